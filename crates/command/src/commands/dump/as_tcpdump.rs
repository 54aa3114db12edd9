//! Texts of tcpdump: its start and end, its lists and its usage.

use crate::cli::DumpArgs;
use crate::commands::graphs::{self, FILTER};
use crate::commands::live::Live;
use crate::commands::{self, Failure};
use fyke_capture::{Available, Interface, Source};
use fyke_frame::LinkType;
use fyke_graph::GraphView;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Version of tcpdump with these options and habits.
const TCPDUMP: &str = "4.99";
/// Version of libpcap with this language.
const LIBPCAP: &str = "1.10";

const USAGE: &str = "\
Usage: tcpdump [-AbdDefhHIJKlLnNOpqStuUvxX#] [ -B size ] [ -c count ] [--count]
\t\t[ -C file_size ] [ -F file ] [ -G seconds ] [ -i interface ]
\t\t[ --immediate-mode ] [ -j tstamptype ] [ --lengths ] [ --number ]
\t\t[ --print ] [ -Q in|out|inout ] [ -r file ] [ -s snaplen ]
\t\t[ --version ] [ -V file ] [ -w file ] [ -W filecount ]
\t\t[ -y datalinktype ] [ --time-stamp-precision precision ] [ --micro ]
\t\t[ --nano ] [ -z postrotate-command ] [ -Z user ] [ expression ]
";

/// The versions, for `--version`.
pub fn version() -> String {
    let fyke = env!("CARGO_PKG_VERSION");
    format!("tcpdump version {TCPDUMP} (fyke {fyke})\nlibpcap version {LIBPCAP} (fyke {fyke})\n")
}

/// The versions and the options, for `--help` and after a wrong command line.
pub fn usage() -> String {
    version() + USAGE
}

/// Link type with its title, as in `EN10MB (Ethernet)`; its number if it is unknown.
fn titled(interface: &Interface) -> String {
    let link = interface.link;
    let title = match link {
        LinkType::RAW => "Raw IP",
        LinkType::IPV4 => "Raw IPv4",
        LinkType::IPV6 => "Raw IPv6",
        _ => match link.description() {
            Some(description) => description.title,
            None => return link.0.to_string(),
        },
    };
    format!("{link} ({title})")
}

/// Prints what was to be read, before the message about a failure. Prints nothing if the file cannot be read, or not
/// again.
pub fn start_of_file(args: &DumpArgs) {
    let Some([file]) = args.source.read.as_deref() else { return };
    if !file.is_file() {
        return;
    }
    if let Ok(source) = fyke_capture::open_file(file) {
        start(args, source.interfaces().iter());
    }
}

/// Prints that the last file of a rotation by time is complete, if it is.
pub fn say_file_limit(args: &DumpArgs, view: &GraphView) {
    let is_full = || view.nodes.iter().any(|node| graphs::is_file_limit(node.failed.as_ref()));
    if let Some(count) = args.file_count.filter(|_| args.file_size.is_none() && is_full()) {
        note!("Maximum file limit reached: {count}");
    }
}

/// Prints what is captured or read.
pub fn start<'i>(args: &DumpArgs, interfaces: impl Iterator<Item = &'i Interface>) {
    let Some(interface) = { interfaces }.next() else { return };
    let link = titled(interface);
    let snaplen = commands::snaplen(args.source.snaplen).min(interface.snaplen);
    if let Some(files) = &args.source.read {
        let snaplen = interface.snaplen;
        for file in files {
            let file = file.display();
            note!("reading from file {file}, link-type {link}, snapshot length {snaplen}");
        }
        return;
    }
    let name = &interface.name;
    if name == fyke_capture::ANY && args.link_type.is_none() {
        note!("tcpdump: data link type {}", interface.link);
    }
    let quiet = args.write.is_none() && args.print_options.verbose == 0;
    let before = match quiet {
        true => "tcpdump: verbose output suppressed, use -v[v]... for full protocol decode\n",
        false => "tcpdump: ",
    };
    note!("{before}listening on {name}, link-type {link}, snapshot length {snaplen} bytes");
}

/// Prints the number of packets every second, as tcpdump does with -v and -w.
pub fn progress(args: &DumpArgs, live: &Arc<Live>) -> Result<(), Failure> {
    let (is_live, verbose) = (args.source.read.is_none(), args.print_options.verbose > 0);
    if !is_live || !verbose || args.write.is_none() {
        return Ok(());
    }
    let live = Arc::clone(live);
    let report = move || loop {
        std::thread::sleep(Duration::from_secs(1));
        let _ = write!(std::io::stderr(), "Got {}\r", live.accounting().delivered);
    };
    std::thread::Builder::new().name("progress".to_owned()).spawn(report)?;
    Ok(())
}

/// Formats the counts of a capture: at the end three lines, after SIGUSR1 one.
pub fn summary(view: &GraphView, at_end: bool) -> String {
    let node = view.node(FILTER).map(|node| &node.counts);
    let passed = node.map_or(0, |counts| counts.passed);
    let dropped: u64 = view.sources.iter().map(|source| source.stats.dropped).sum();
    // Without a filter, frames after the last one have been received by it, too.
    let filters = view.node(FILTER).and_then(|node| node.filters.as_ref());
    let has_filter = filters.is_some_and(|counts| !counts.filters.is_empty());
    let after: u64 = view.sources.iter().map(|source| source.after_end).sum();
    let received = passed + dropped + if has_filter { 0 } else { after };
    let counts = [
        (view.outcome.accepted, "captured"),
        (received, "received by filter"),
        (dropped, "dropped by kernel"),
    ];
    let lines = counts
        .map(|(count, what)| format!("{count} packet{} {what}", if count == 1 { "" } else { "s" }));
    match at_end {
        true => lines.join("\n"),
        false => format!("tcpdump: {}", lines.join(", ")),
    }
}

/// Prints the number of packets of a file.
pub fn count(packets: u64) -> Result<(), Failure> {
    let plural = if packets == 1 { "" } else { "s" };
    Ok(writeln!(commands::output(), "{packets} packet{plural}")?)
}

/// Prints the interfaces that can be captured on.
pub fn interfaces(available: &[Available]) -> Result<(), Failure> {
    let mut out = commands::output();
    for (number, interface) in available.iter().enumerate() {
        let name = &interface.name;
        let states = [
            (interface.up, "Up"),
            (interface.running, "Running"),
            (interface.loopback, "Loopback"),
        ];
        let mut words: Vec<_> =
            states.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word).collect();
        if words.is_empty() {
            words.push("none");
        }
        let is_any = name == fyke_capture::ANY;
        if !is_any && !interface.loopback {
            words.push(if interface.running { "Connected" } else { "Disconnected" });
        }
        let title = if is_any { " (Pseudo-device that captures on all interfaces)" } else { "" };
        writeln!(out, "{}.{name}{title} [{}]", number + 1, words.join(", "))?;
    }
    Ok(())
}
