//! `fyke dump`: captures or reads, filters, prints or writes frames; its filters can be edited while it runs.
//!
//! It runs the graph `source > filter > print | tofile | packetcount` ([`graphs`]). The control socket ([`Live`])
//! shares its filters, so an edit from another terminal takes effect at the next batch and loses no frame.

use super::graphs::{self, FILTER};
use super::live::Live;
use super::privilege::{Doors, Privileges, Sockets};
use super::signals::{report_on_signal, stop_on_signals};
use super::{Failure, interface};
use crate::cli::{DumpArgs, SourceArgs};
use fyke_capture::Interface;
use fyke_control::Server;
use fyke_frame::LinkType;
use fyke_graph::{Engine, GraphHandle};
use std::io::Write;
use std::sync::Arc;

/// Runs the command.
pub fn run(mut args: DumpArgs) -> Result<(), Failure> {
    super::read_list(&mut args.source)?;
    if args.list_interfaces && args.source.read.is_some() {
        return Err(Failure::Usage(
            "-D lists interfaces, -r reads a file; omit one of them".into(),
        ));
    }
    if args.list_interfaces {
        return list_interfaces();
    }
    if args.list_link_types || args.link_type.is_some() {
        let offered = Offered::of(&args.source)?;
        match &args.link_type {
            _ if args.list_link_types => return offered.list(),
            Some(name) => offered.check(name)?,
            None => {}
        }
    }
    check_rotation(&args)?;
    let is_live = args.source.read.is_none();
    let privileges = Privileges::prepare(&args.privilege, is_live || !args.no_control)?;
    let doors = if args.no_control { Doors::Closed } else { Doors::Filters };
    let (mut engine, handle, entered) = graphs::start(&graphs::dump(&args)?, privileges, doors)?;
    let clients = entered.clients();
    if is_live {
        entered.say_missing();
    }
    let live = live(&engine, handle, is_live)?;
    let server = if args.no_control { None } else { serve(&live, entered.sockets, is_live) };
    let stop = stop_on_signals()?;
    let counts = Arc::clone(&live);
    report_on_signal(move || counts.summary(args.stats))?;
    if is_live {
        announce(
            engine.interfaces().next(),
            args.source.snaplen,
            server.is_some().then_some(&*clients),
        );
    }
    let result = engine.run(&stop);
    if args.stats || (is_live && !args.count) {
        note!("{}", live.summary(args.stats).trim_end());
    }
    if args.count {
        writeln!(super::output(), "{}", live.accounting().delivered)?;
    }
    let view = engine.view();
    graphs::say_unfit(&view);
    graphs::node_failure(&view)?;
    Ok(result?)
}

/// Refuses rotation options that cannot work together.
fn check_rotation(args: &DumpArgs) -> Result<(), Failure> {
    let rotates = args.file_size.is_some() || args.rotate_seconds.is_some();
    let refused = |text: &str| Err(Failure::Usage(text.to_owned()));
    match &args.write {
        _ if args.file_count.is_some() && !rotates => {
            refused("-W counts the files of -C or -G; give one of them, too")
        }
        Some(file) if rotates && file.as_os_str() == "-" => {
            refused("-C and -G start new files, so -w needs a file name, not standard output")
        }
        _ => Ok(()),
    }
}

/// The link types that an interface offers; on Linux it is one, and two for `any`.
struct Offered {
    interface: String,
    links: Vec<LinkType>,
}

impl Offered {
    fn of(args: &SourceArgs) -> Result<Offered, Failure> {
        if args.read.is_some() {
            return Err(Failure::Usage(
                "-y and -L are for interfaces; a file has its own link types, so omit these options \
                 (fyke explain --link NAME shows how a filter is read for another link type)"
                    .to_owned(),
            ));
        }
        let interface = interface(args)?;
        let available = fyke_capture::interfaces_available()?;
        match available.into_iter().find(|one| one.name == interface) {
            Some(found) => Ok(Offered { interface, links: found.links() }),
            None => Err(Failure::Running(anyhow::anyhow!(
                "there is no interface {interface}; -D lists the interfaces"
            ))),
        }
    }

    fn titles(&self) -> impl Iterator<Item = String> {
        self.links.iter().map(|link| {
            let title = link.description().map_or("unknown", |link| link.title);
            format!("{link} ({title})")
        })
    }

    fn list(&self) -> Result<(), Failure> {
        let mut out = super::output();
        writeln!(out, "Data link types for {} (use option -y to set):", self.interface)?;
        self.titles().try_for_each(|title| Ok(writeln!(out, "  {title}")?))
    }

    fn check(&self, name: &str) -> Result<(), Failure> {
        let problem = match link_type(name) {
            Some(link) if self.links.contains(&link) => return Ok(()),
            Some(link) => format!("{} does not offer link type {link}", self.interface),
            None => format!("unknown link type {name:?}"),
        };
        let titles: Vec<String> = self.titles().collect();
        Err(Failure::Usage(format!("{problem}; {} offers {}", self.interface, titles.join(", "))))
    }
}

/// Returns the link type for the argument of -y.
pub fn link_type(name: &str) -> Option<LinkType> {
    LinkType::from_name(name.strip_prefix("DLT_").unwrap_or(name))
}

/// Makes the filters and counts of a graph available to the control socket.
pub fn live(engine: &Engine, handle: GraphHandle, is_live: bool) -> Result<Arc<Live>, Failure> {
    let filters =
        engine.filters(FILTER).ok_or_else(|| anyhow::anyhow!("the graph has no filter"))?;
    let interfaces: Vec<_> = engine.interfaces().cloned().collect();
    let numbers = filters.counts().into_iter().map(|filter| filter.id);
    for note in numbers.filter_map(|id| filters.note(id)) {
        note!("fyke: {note}");
    }
    Ok(Live::new(filters, handle, &interfaces, is_live))
}

/// Serves the control sockets. The capture works without them, so a failure is only reported.
pub fn serve(live: &Arc<Live>, sockets: Sockets, say: bool) -> Option<Server> {
    match sockets.and_then(|sockets| Server::serve(sockets, Arc::clone(live) as _)) {
        Ok(server) => Some(server),
        Err(error) => {
            if say {
                note!("fyke: no control socket, so this capture cannot be edited: {error}");
            }
            None
        }
    }
}

/// Describes how to edit this capture; `clients` describes the users that may, `None` if there is no control socket.
pub fn edit_hint(clients: Option<&str>) -> String {
    let hint = |clients| format!("; edit: fyke ctl --pid {}{clients}", std::process::id());
    clients.map(hint).unwrap_or_default()
}

/// Announces the interface of a capture, and how to edit it.
pub fn announce(interface: Option<&Interface>, snaplen: u32, clients: Option<&str>) {
    if let Some(interface) = interface {
        note!(
            "listening on {}, link type {} ({}), snap length {} bytes{}",
            interface.name,
            interface.link,
            interface.link.description().map_or("unknown", |link| link.title),
            super::snaplen(snaplen).min(interface.snaplen),
            edit_hint(clients)
        );
    }
}

fn list_interfaces() -> Result<(), Failure> {
    let mut out = super::output();
    for (number, interface) in fyke_capture::interfaces_available()?.iter().enumerate() {
        writeln!(out, "{}.{interface}", number + 1)?;
    }
    Ok(())
}
