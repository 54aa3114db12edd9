//! `fyke dump`: captures or reads, filters, prints or writes frames; its filters can be edited while it runs.
//!
//! It runs the graph `source > filter > print | tofile | packetcount` ([`graphs`]). The control socket ([`Live`])
//! shares its filters, so an edit from another terminal takes effect at the next batch and loses no frame.

pub mod as_tcpdump;
mod offered;
mod program;

pub use offered::{is_time_stamp_type, link_type};

use super::Failure;
use super::dissect::Dissector;
use super::graphs::{self, FILTER, Started};
use super::live::Live;
use super::privilege::{Doors, Privileges, Sockets};
use super::record::Record;
use super::signals::{report_on_signal, stop_at_end_of_input, stop_on_signals};
use super::unseen::Unseen;
use crate::cli::DumpArgs;
use fyke_capture::{Compression, Interface, client_address};
use fyke_control::Server;
use fyke_graph::{Engine, GraphHandle, Kept};
use offered::{Offered, TimeStamps, list_interfaces};
use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Runs the command.
pub fn run(mut args: DumpArgs) -> Result<(), Failure> {
    super::read_list(&mut args.source)?;
    if list(&args)? {
        return Ok(());
    }
    check_rotation(&args)?;
    graphs::check_dump(&args)?;
    let is_live = args.source.read.is_none();
    let runs = args.rotate_command.as_deref().zip(args.write.as_deref());
    let with_helper = is_live || !args.no_control;
    let mut privileges = Privileges::prepare_to_run(&args.privilege, with_helper, runs)?;
    let doors = if args.no_control { Doors::Closed } else { Doors::Filters };
    let recorded = record_when_open(&args, &mut privileges)?;
    let dissector = args.dissect.then(|| Dissector::start(&args, &privileges)).transpose()?;
    let pipe = dissector.as_ref().map(Dissector::path);
    let start = |graph: String| graphs::start(&graph, privileges, doors, &args.source, args.stats);
    let started = graphs::dump(&args, pipe.as_deref()).and_then(start);
    let Started { mut engine, handle, entered, unseen, kept } = started.inspect_err(|_| {
        if args.as_tcpdump {
            as_tcpdump::start_of_file(&args);
        }
    })?;
    check_interfaces(&args, &engine)?;
    let clients = entered.clients();
    if is_live {
        entered.say_missing();
    }
    let live = live(&engine, handle, is_live, kept)?;
    if args.source.workers <= 1 {
        live.allow_snap_lengths();
    }
    live.record(args.resumed.as_ref(), recorded.take())?;
    let server = if args.no_control { None } else { serve(&live, entered.sockets, is_live) };
    let stop = stop_on_signals()?;
    if args.until_stdin_ends {
        stop_at_end_of_input(&stop)?;
    }
    let counts = Arc::clone(&live);
    let (stats, as_tcpdump) = (args.stats, args.as_tcpdump);
    let drops = unseen.clone();
    report_on_signal(move || match as_tcpdump {
        true => as_tcpdump::summary(&counts.snapshot(), false),
        false => counts.summary(stats) + &drops.lines(stats),
    })?;
    if as_tcpdump {
        as_tcpdump::start(&args, engine.interfaces());
        as_tcpdump::progress(&args, &live)?;
    } else if is_live {
        announce(engine.interfaces(), args.source.snaplen, server.is_some().then_some(&*clients));
    }
    announce_kept(&args);
    let result = engine.run(&stop);
    live.end_record();
    close(&args, &live, &unseen, stop.load(Ordering::Relaxed))?;
    let view = engine.view();
    drop(engine);
    dissector.map_or(Ok(()), Dissector::finish)?;
    let program = if args.as_tcpdump { "tcpdump" } else { "fyke" };
    graphs::say_clamped(&view, args.source.read.as_deref(), program);
    graphs::say_unfit(&view);
    graphs::say_let_go(&view);
    graphs::node_failure(&view)?;
    Ok(result?)
}

/// Has the resume files of this capture made once its files are open; without them it cannot be taken up after a kill.
fn record_when_open(
    args: &DumpArgs,
    privileges: &mut Privileges,
) -> Result<Rc<Cell<Option<Record>>>, Failure> {
    let recorded = Rc::new(Cell::new(None));
    let rotates = args.file_size.is_some() || args.rotate_seconds.is_some();
    let is_packed = |path: &Path| Compression::of(path) != Compression::None;
    let packed = args.compress.is_some() || args.write.as_deref().is_some_and(is_packed);
    let lasts = args.source.read.is_none() && !args.no_control && !args.as_tcpdump;
    if !lasts || rotates || packed || args.dissect || args.until_stdin_ends {
        return Ok(recorded);
    }
    let own = || std::env::args_os().skip(1).map(|word| word.into_string().ok()).collect();
    let words: Option<Vec<String>> = match &args.resumed {
        Some(resumed) => {
            resumed.will_be_removed();
            Some(resumed.args().to_vec())
        }
        None => own(),
    };
    let Some(words) = words else { return Ok(recorded) };
    let has_clients = |path: &Path| matches!(client_address(path), Ok(Some(_)));
    let output = args.write.clone().filter(|file| file.as_os_str() != "-" && !has_clients(file));
    let made = Rc::clone(&recorded);
    privileges.when_open(Box::new(move || match Record::start(words, output.as_deref()) {
        Ok(record) => made.set(record),
        Err(error) => note!("fyke: no resume file, so `fyke resume` cannot take it up: {error:#}"),
    }));
    Ok(recorded)
}

/// Prints the counts at the end; `stopped` by a signal.
fn close(args: &DumpArgs, live: &Live, unseen: &Unseen, stopped: bool) -> Result<(), Failure> {
    let (is_live, as_tcpdump) = (args.source.read.is_none(), args.as_tcpdump);
    // As tcpdump: the line after a ^C of the terminal.
    if as_tcpdump && is_live && args.write.is_none() && stopped {
        writeln!(super::output())?;
    }
    if as_tcpdump {
        as_tcpdump::say_file_limit(args, &live.snapshot());
    }
    if as_tcpdump && is_live {
        note!("{}", as_tcpdump::summary(&live.snapshot(), true));
    } else if args.stats || (is_live && !args.count) {
        note!("{}", live.summary(args.stats).trim_end());
    }
    unseen.report_as(as_tcpdump, args.stats);
    match args.count {
        true if as_tcpdump && is_live => {}
        true if as_tcpdump => as_tcpdump::count(live.accounting().delivered)?,
        true => writeln!(super::output(), "{}", live.accounting().delivered)?,
        false => {}
    }
    Ok(())
}

/// Prints the list that the arguments ask for, if any, and checks the options that choose from one. Enters the network
/// namespace first. Returns true if that was all.
fn list(args: &DumpArgs) -> Result<bool, Failure> {
    if args.list_interfaces && args.source.read.is_some() {
        return Err(Failure::Usage(
            "-D lists interfaces, -r reads a file; omit one of them".into(),
        ));
    }
    super::enter_namespace(&args.source)?;
    if args.list_interfaces {
        match args.as_tcpdump {
            true => as_tcpdump::interfaces(&fyke_capture::interfaces_available()?)?,
            false => list_interfaces()?,
        }
        return Ok(true);
    }
    if args.dump_program > 0 {
        return program::print(args).map(|()| true);
    }
    if args.list_time_stamp_types {
        return print_list(args, TimeStamps::of(&args.source)?.list());
    }
    if let Some(name) = &args.time_stamp_type {
        TimeStamps::of(&args.source)?.check(name)?;
    }
    if args.list_link_types || args.link_type.is_some() {
        let offered = Offered::of(&args.source)?;
        match &args.link_type {
            _ if args.list_link_types => return print_list(args, offered.list()),
            Some(name) => offered.check(name)?,
            None => {}
        }
    }
    Ok(false)
}

/// Prints a list: on standard output; called as `tcpdump`, on standard error. Returns true.
fn print_list(args: &DumpArgs, list: String) -> Result<bool, Failure> {
    match args.as_tcpdump {
        true => note!("{}", list.trim_end()),
        false => super::output().write_all(list.as_bytes())?,
    }
    Ok(true)
}

/// Reports a pcapng file that describes no interface, so that it holds no frame; called as `tcpdump`, as a failure.
fn check_interfaces(args: &DumpArgs, engine: &Engine) -> Result<(), Failure> {
    if args.source.read.is_none() || engine.interfaces().next().is_some() {
        return Ok(());
    }
    let text = "the capture file has no Interface Description Blocks";
    if args.as_tcpdump {
        return Err(Failure::Running(anyhow::anyhow!(text)));
    }
    note!("fyke: {text}, so it holds no frame");
    Ok(())
}

/// Refuses rotation options that cannot work together.
fn check_rotation(args: &DumpArgs) -> Result<(), Failure> {
    let rotates = args.file_size.is_some() || args.rotate_seconds.is_some();
    let refused = |text: &str| Err(Failure::Usage(text.to_owned()));
    match &args.write {
        _ if args.rotate_command.is_some() && !rotates => {
            refused("-z runs a command for each file of -C or -G; give one of them, and -w")
        }
        _ if args.file_count.is_some() && !rotates => {
            refused("-W counts the files of -C or -G; give one of them, too")
        }
        Some(file) if rotates && file.as_os_str() == "-" => {
            refused("-C and -G start new files, so -w needs a file name, not standard output")
        }
        _ => Ok(()),
    }
}

/// Makes the filters and counts of a graph available to the control socket.
pub fn live(
    engine: &Engine,
    handle: GraphHandle,
    is_live: bool,
    kept: Option<Kept>,
) -> Result<Arc<Live>, Failure> {
    let filters =
        engine.filters(FILTER).ok_or_else(|| anyhow::anyhow!("the graph has no filter"))?;
    let interfaces: Vec<_> = engine.interfaces().cloned().collect();
    let numbers = filters.counts().into_iter().map(|filter| filter.id);
    for note in numbers.filter_map(|id| filters.note(id)) {
        note!("fyke: {note}");
    }
    Ok(Live::new(filters, handle, &interfaces, is_live, kept))
}

/// Serves the control sockets. The capture works without them, so a failure is only reported.
pub fn serve(live: &Arc<Live>, sockets: Sockets, say: bool) -> Option<Server> {
    match sockets.and_then(|sockets| Server::serve(sockets, Arc::clone(live) as _)) {
        Ok(server) => Some(server),
        Err(error) => {
            if say {
                note!("fyke: no control socket, so `fyke ctl` cannot reach it: {error}");
            }
            None
        }
    }
}

/// Tells which frames are kept, and what that changes.
fn announce_kept(args: &DumpArgs) {
    let Some(keep) = args.keep else { return };
    let time = keep.seconds.map(|seconds| format!("the frames of the last {seconds} s, "));
    let bytes = keep.bytes.unwrap_or(1 << 30);
    let kernel = match args.source.read {
        None => "; the kernel rejects no frame, so that all can be kept",
        Some(_) => "",
    };
    note!(
        "keeping {}at most {bytes} bytes{kernel}; save them: fyke ctl --pid {} save FILE",
        time.unwrap_or_else(|| "the last frames, ".to_owned()),
        std::process::id()
    );
}

/// Describes how to edit this capture; `clients` describes the users that may, `None` if there is no control socket.
pub fn edit_hint(clients: Option<&str>) -> String {
    let hint = |clients| format!("; edit: fyke ctl --pid {}{clients}", std::process::id());
    clients.map(hint).unwrap_or_default()
}

/// Announces the interfaces of a capture, and how to edit it.
pub fn announce<'i>(
    interfaces: impl Iterator<Item = &'i Interface>,
    snaplen: u32,
    clients: Option<&str>,
) {
    let interfaces: Vec<_> = interfaces.collect();
    for (index, interface) in interfaces.iter().enumerate() {
        let hint = if index + 1 == interfaces.len() { edit_hint(clients) } else { String::new() };
        note!(
            "listening on {}, link type {} ({}), snap length {} bytes{hint}",
            interface.name,
            interface.link,
            interface.link.description().map_or("unknown", |link| link.title),
            super::snaplen(snaplen).min(interface.snaplen),
        );
    }
}
