//! The captures that a service should have: by its command line, or by its file of rules.

use super::super::Failure;
use crate::cli::{ServeArgs, SourceArgs};
use fyke_serve::policy::Capture;
use fyke_serve::{Listening, place};

/// A capture that is not open yet.
pub struct Wanted {
    /// Its options; one interface.
    pub source: SourceArgs,
    /// Name for its readers, or the path of its socket.
    pub name: String,
    /// Its socket, if the service manager has opened it.
    pub socket: Option<Listening>,
}

/// The captures of the command line or, if that names none, of the file; `listed` are those of the file. At least one.
pub fn wanted(args: &ServeArgs, listed: &[Capture]) -> Result<Vec<Wanted>, Failure> {
    if let (Some(first), [_, ..]) = (args.interface.first(), listed) {
        return Err(Failure::Usage(format!(
            "-i {first}: the file of --config lists the captures ([[capture]]); name interfaces in one of both"
        )));
    }
    let all: Vec<Wanted> = match listed {
        [] => super::super::interfaces(&source(args))?
            .into_iter()
            .map(|interface| of_interface(args, interface))
            .collect(),
        listed => listed.iter().map(|one| of_file(args, one)).collect(),
    };
    for (at, one) in all.iter().enumerate() {
        let interface = &one.source.interface[0];
        if interface.starts_with("ring:") || interface.starts_with("serve:") {
            return Err(Failure::Usage(format!(
                "-i {interface}: frames of another fyke are served by that one; name an interface"
            )));
        }
        if all[..at].iter().any(|other| other.name == one.name) {
            return Err(Failure::Usage(format!("-i {interface}: it is named twice")));
        }
    }
    Ok(all)
}

fn of_interface(args: &ServeArgs, interface: String) -> Wanted {
    let source = SourceArgs { interface: vec![interface.clone()], ..source(args) };
    Wanted { source, name: interface, socket: None }
}

fn of_file(args: &ServeArgs, listed: &Capture) -> Wanted {
    let options = source(args);
    let promiscuous = listed.promiscuous.unwrap_or(!options.no_promiscuous);
    let source = SourceArgs {
        interface: vec![listed.interface.clone()],
        no_promiscuous: !promiscuous,
        buffer_size: listed.buffer_kib.or(options.buffer_size),
        ..options
    };
    Wanted { source, name: listed.name.clone(), socket: None }
}

/// The options that all captures have.
fn source(args: &ServeArgs) -> SourceArgs {
    SourceArgs {
        interface: args.interface.clone(),
        netns: args.netns.clone(),
        read: None,
        file_list: None,
        snaplen: 0,
        no_promiscuous: args.no_promiscuous,
        buffer_size: args.buffer_size,
        count_all: args.count_all,
        counts_all: None,
        workers: 1,
        ring_user: None,
        take: false,
        serve_graph: None,
        tls: crate::cli::TlsArgs::default(),
    }
}

/// Gives the captures their names, and the sockets that the service manager has opened: a single one belongs to a
/// single capture, else each to the capture with the name of its file.
pub fn named(
    args: &ServeArgs,
    mut all: Vec<Wanted>,
    given: Vec<Listening>,
) -> Result<Vec<Wanted>, Failure> {
    if let (Some(name), [_, _, ..]) = (&args.name, &all[..]) {
        return Err(Failure::Usage(format!(
            "--name {name}: it names one capture, and there are {}; name each by [[capture]] in the file of --config",
            all.len()
        )));
    }
    let is_alone = matches!((&all[..], &given[..]), ([_], [_]));
    for socket in given {
        let path = socket.path().display().to_string();
        if let Some(name) = &args.name {
            let message = format!("--name {name}: the service manager has opened {path}; omit it");
            return Err(Failure::Usage(message));
        }
        let stem = socket.path().file_stem().unwrap_or_default().to_os_string();
        let fits = |one: &Wanted| is_alone || stem == *one.name || path == one.name;
        let free = all.iter_mut().find(|one| one.socket.is_none() && fits(one));
        let Some(one) = free else {
            return Err(Failure::Usage(format!(
                "the service manager has opened {path}, and no capture has the name {}",
                stem.display()
            )));
        };
        (one.name, one.socket) = (path, Some(socket));
    }
    if let ([one], Some(name)) = (&mut all[..], &args.name) {
        one.name.clone_from(name);
    }
    for one in &all {
        let checked = place::check_name(&one.name);
        checked.map_err(|error| Failure::Usage(format!("--name: {error}")))?;
    }
    Ok(all)
}
