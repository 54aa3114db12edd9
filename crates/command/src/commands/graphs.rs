//! Command lines as flow graphs: builds the texts of the graphs that `dump`, `track` and `demux` run, and reports their
//! failures.
//!
//! All frames pass through a graph; these commands are short forms of common graphs. `fyke explain --graph -- dump …`
//! prints the text, and `fyke run` runs it.

mod accounting;
mod changes;
mod interception;
mod opening;
mod payload;
mod reports;

pub use accounting::{ACCOUNT, AccountFilter, Accounted, account, filter_of};
pub use changes::{check_files, wrong_change};
pub use interception::intercept;
pub use opening::of_plan as open_plan;
pub use reports::{
    is_file_limit, is_unfit, node_failure, refused, report_passed_over, say_clamped, say_let_go,
    say_unfit, wrong_edit, wrong_graph,
};

use super::counts::RULES;
use super::privilege::{Doors, Entered, Needs, Privileges};
use super::record::Resumed;
use super::space::{COUNT_ALL, Kernel, check_rules, say_rings, say_rules};
use super::unseen::Unseen;
use super::{DEFAULT_BUFFER_KIB, Failure, expression, interface, interfaces, snaplen};
use crate::cli::{
    Cli, Color, Command, DemuxArgs, Direction, DumpArgs, PrintArgs, RulesArgs, SourceArgs,
    TrackArgs,
};
use clap::Parser;
use fyke_frame::LinkType;
use fyke_graph::language::quoted;
use fyke_graph::node::Settings;
use fyke_graph::{Classes, Engine, GraphHandle, Kept, KeptLimits, Plan};
use fyke_serve::ServeSpace;
use fyke_track::{Limits, Tracker};
use std::path::{Path, PathBuf};

/// Milliseconds that frames on their way to a file may wait for a block of the ring to fill. Where few frames pass the
/// kernel, almost all the time of a capture is that of its wake-ups; where many pass, blocks fill before.
const FILE_DELAY_MS: u32 = 160;
/// Name of the filter node in the graphs of `dump` and `track`.
pub const FILTER: &str = "filter";
/// Name of the node that matches payloads.
pub const PAYLOAD: &str = "payload";
/// Most connections that `--payload` follows at a time.
const CONNECTIONS: u32 = 1 << 18;
/// Longest wait of a frame for the verdict about its conversation.
const LIVE_WAIT_SECONDS: u32 = 30;
const FILE_WAIT_SECONDS: u32 = 86_400;
/// Most bytes of frames that wait.
const WAITING_BYTES: u32 = 1 << 28;
/// Name of the node that matches the direction of frames.
const DIRECTION: &str = "direction";
/// Name of the dispatching node in the graph of `demux`.
pub const DEMUX: &str = "demux";
/// Most threads that capture.
const MAX_THREADS: usize = 64;
/// Name of the node that stores frames for readers.
pub const SERVE: &str = "serve";
/// Name of the node that writes a file for each call, in the graph of `track`.
pub const CALLS: &str = "calls";
/// Name of the tracking node in the graph of `track`.
pub const TRACK: &str = "track";
/// Name of the node that follows users, in the graph of `intercept`.
pub const INTERCEPT: &str = "intercept";

/// Returns the node classes of this command.
pub fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(fyke_track::CLASS);
    classes.register(super::xdp::device());
    classes.register(fyke_track::CALLS);
    classes.register(fyke_intercept::CLASS);
    classes.register(fyke_account::CLASS);
    classes
}

/// True for the name of a source in another fyke: a ring, or a service.
pub fn is_shared(name: &str) -> bool {
    name.starts_with("ring:") || name.starts_with("serve:")
}

/// Formats a node with its parameters, without those that have no value.
fn node(class: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let parts = given.map(|(name, value)| format!(", {name}={}", quoted(value)));
    format!("({class}{})", parts.collect::<String>())
}

fn yes(flag: bool) -> Option<String> {
    flag.then(|| "y".to_owned())
}

/// Converts a path to text for a graph.
fn path(path: &Path) -> Result<Option<String>, Failure> {
    match path.to_str() {
        Some(name) => Ok(Some(name.to_owned())),
        None => Err(Failure::Running(anyhow::anyhow!("{path:?}: the file name must be UTF-8"))),
    }
}

/// Returns the snap length as a parameter; none if it cuts nothing.
fn cut(given: u32) -> Option<String> {
    (given != 0 && given < super::MAX_SNAPLEN).then(|| snaplen(given).to_string())
}

/// Returns the snap length of the outputs as a parameter. The device keeps whole frames, because filters and trackers
/// read them; the outputs cut. Frames of a file stay whole, as in tcpdump.
fn output_cut(args: &SourceArgs) -> Option<String> {
    cut(args.snaplen).filter(|_| args.read.is_none())
}

/// Builds the source of a command that has no options for it but those of all commands.
pub fn plain_source(args: &SourceArgs, look_back: bool) -> Result<String, Failure> {
    source(args, look_back, None, Hurry::Ordinary, false)
}

/// Longest delay of frames of an interface.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hurry {
    Immediate,
    Ordinary,
    /// They go to a file only.
    None,
}

impl Hurry {
    fn of(args: &DumpArgs, dissects: bool) -> Hurry {
        let to_file = args.write.as_ref().is_some_and(|file| file.as_os_str() != "-");
        let shows = args.print || dissects || args.print_options.packet_buffered;
        match args.immediate_mode {
            true => Hurry::Immediate,
            false if to_file && !shows && !args.look_back => Hurry::None,
            false => Hurry::Ordinary,
        }
    }
}

fn source_of_dump(args: &DumpArgs, dissects: bool) -> Result<String, Failure> {
    let link = args.link_type.as_deref().and_then(super::dump::link_type);
    source(&args.source, args.look_back, link, Hurry::of(args, dissects), false)
}

fn source(
    args: &SourceArgs,
    look_back: bool,
    link: Option<LinkType>,
    hurry: Hurry,
    by_class: bool,
) -> Result<String, Failure> {
    check_source(args)?;
    if let Some(files) = &args.read {
        return pcapin(files, false);
    }
    // With several workers each interface is a source of its own, which holds its own frames.
    let apart = args.workers > 1 || by_class;
    let names = if look_back && !apart { vec![interface(args)?] } else { interfaces(args)? };
    if apart {
        check_apart(&names)?;
    }
    let buffer = args.buffer_size.unwrap_or(DEFAULT_BUFFER_KIB).to_string();
    // Frames of several interfaces wait for each other twice as long.
    let alone = matches!(&names[..], [name] if !is_shared(name)) && !apart;
    let waits = hurry == Hurry::None && alone;
    let tls = super::remote::parameters_of(&args.tls)?;
    let device = |names: &[String]| {
        let named = names.iter().map(|name| ("expression", Some(name.clone())));
        let mut parameters: Vec<_> = named.collect();
        parameters.extend([
            ("link", link.map(|link| link.to_string())),
            ("promiscuous", args.no_promiscuous.then(|| "n".to_owned())),
            ("buffer", Some(buffer.clone())),
            ("user", args.ring_user.clone()),
            ("graph", args.serve_graph.clone()),
            ("lookback", yes(look_back)),
            ("immediate", yes(hurry == Hurry::Immediate)),
            ("delay", waits.then(|| FILE_DELAY_MS.to_string())),
            ("take", yes(args.take)),
            ("classes", yes(by_class)),
        ]);
        parameters.extend(tls.clone());
        node("device", &parameters)
    };
    if !apart || names.len() == 1 {
        return Ok(device(&names));
    }
    let devices: Vec<_> = names.chunks(1).map(device).collect();
    Ok(format!("[{}]", devices.join(" | ")))
}

/// Builds the source of files; `named` if interfaces without a name get that of their file.
fn pcapin(files: &[PathBuf], named: bool) -> Result<String, Failure> {
    let files = files.iter().map(|file| Ok(("expression", path(file)?)));
    let mut parameters = files.collect::<Result<Vec<_>, Failure>>()?;
    parameters.push(("named", yes(named)));
    Ok(node("pcapin", &parameters))
}

/// Refuses interfaces of which two would capture the same frames.
fn check_apart(names: &[String]) -> Result<(), Failure> {
    let is_xdp = |name: &String| name.starts_with(super::xdp::PREFIX);
    if let Some(name) = names.iter().find(|name| names.len() > 1 && is_xdp(name)) {
        return Err(Failure::Usage(format!("-i {name}: {}", super::xdp::ALONE)));
    }
    if let Some(name) = names.iter().find(|name| names.len() > 1 && *name == "any") {
        let message = format!("-i {name}: it cannot be captured together with other interfaces");
        return Err(Failure::Usage(message));
    }
    match (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        Some(at) => Err(Failure::Usage(format!("-i {}: it is named twice", names[at]))),
        None => Ok(()),
    }
}

/// Refuses options of a source that would do nothing.
pub fn check_source(args: &SourceArgs) -> Result<(), Failure> {
    let ring = args.interface.iter().any(|name| is_shared(name));
    super::xdp::check_args(args)?;
    super::remote::check_args(args)?;
    for name in &args.interface {
        let problem = match name.as_str() {
            "ring:" => "-i ring: the path of the ring is missing (ring:PATH)",
            "serve:" => "-i serve: the name of the service is missing (serve:NAME)",
            _ => continue,
        };
        return Err(Failure::Usage(problem.into()));
    }
    let is_service = args.interface.iter().any(|name| name.starts_with("serve:"));
    let no_capture = match args.read.is_some() {
        true => Some("-r reads a file"),
        false if is_service => Some("a service is captured by `fyke serve`"),
        false => ring.then_some("a ring is captured by the fyke that publishes it"),
    };
    let problem = match no_capture {
        Some(why) if args.no_promiscuous => format!("-p: {why}; omit this option"),
        Some(why) if args.buffer_size.is_some() => format!("-B: {why}; omit this option"),
        Some(_) if args.workers > 1 => {
            "--workers: a file, a ring or a service is read by one thread, in order; omit this option (`fyke run \
             --workers` distributes the frames of a file)"
                .to_owned()
        }
        _ if args.ring_user.is_some() && !ring => {
            "--ring-user: it is for -i ring:PATH and -i serve:NAME; omit this option".to_owned()
        }
        _ if args.serve_graph.as_deref().is_some_and(|text| text.trim().is_empty()) => {
            "--serve-graph: the graph is empty; give nodes, such as '(sampler, 100)', or omit it"
                .to_owned()
        }
        _ if args.serve_graph.is_some() && !is_service => {
            "--serve-graph: it is for -i serve:NAME; omit this option".to_owned()
        }
        Some(why) if args.count_all => format!("--count-all: {why}; omit this option"),
        _ => return Ok(()),
    };
    Err(Failure::Usage(problem))
}

/// Refuses options of `fyke dump` that would do nothing.
pub fn check_dump(args: &DumpArgs) -> Result<(), Failure> {
    let ring = args.source.interface.iter().any(|name| is_shared(name));
    let problem = match args.source.read.is_some() {
        true if args.look_back => {
            "--look-back: a file has no capture ring to look back into; read the file again with \
             the other expression"
        }
        false if args.look_back && ring => {
            "--look-back: a ring or a service holds no frames to look back at; capture on the \
             interface itself with -i"
        }
        _ if args.print && args.count => {
            "--print: with --count no frame is printed; leave one of them out"
        }
        _ if args.print_options.json && (args.count || args.print_options.dumps_bytes()) => {
            "--json: an object has no dump of bytes and no count; omit -x, -X, -A and --count"
        }
        _ if args.print_options.json && args.dissect => {
            "--json: tshark writes the lines of --dissect; omit one of them (tshark -T json has \
             objects for a file of -w)"
        }
        _ if args.print_options.json && args.print_options.color == Color::Always => {
            "--json: objects have no colours; omit --color"
        }
        _ if args.print_options.json && args.source.workers > 1 => {
            "--json: with --workers the pass that accepted a frame is not known when it is printed; \
             leave one of them out"
        }
        _ if args.annotate && args.source.workers > 1 => {
            "--annotate: with --workers the pass that accepted a frame is not known when it is written; leave one of \
             them out"
        }
        _ if args.conversation && args.source.workers > 1 => {
            "--conversation: the frames of all connections wait in one order, so one thread captures; omit \
             --workers"
        }
        _ if args.nanoseconds() && args.count && args.write.is_none() => {
            "--nano: no timestamp is printed or written with --count; leave one of them out"
        }
        true if args.rules => {
            "--rules: for a capture; a file has no interface, so omit this option"
        }
        true if args.direction.is_some() => {
            "-Q: for a capture; a file is read whole, so omit this option"
        }
        true if args.immediate_mode => "--immediate-mode: for a capture; omit this option",
        _ if args.immediate_mode && ring => {
            "--immediate-mode: a ring or a service is captured by another fyke; omit this option"
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(problem.to_owned()))
}

/// Builds the graph of `fyke dump`; `dissector` is the pipe to a program that prints the frames.
pub fn dump(args: &DumpArgs, dissector: Option<&Path>) -> Result<String, Failure> {
    check_dump(args)?;
    super::xdp::check_direction(args)?;
    // Those of a killed capture are put in force later: a filter less lets the kernel reject nothing before.
    let text = match &args.resumed {
        Some(_) => String::new(),
        None => expression(&args.expression, args.expression_file.as_deref())?,
    };
    let snaplen = output_cut(&args.source);
    let mut chain = vec![source_of_dump(args, dissector.is_some())?];
    chain.extend(args.keep.map(|keep| {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        node("keep", &[("seconds", number(keep.seconds)), ("bytes", number(keep.bytes))])
    }));
    let filter = node(
        "filter",
        &[
            ("names", yes(!text.trim().is_empty() || args.resumed.is_some())),
            ("expression", (!text.trim().is_empty()).then_some(text)),
            ("scoped", yes(args.scoped)),
            ("live", yes(args.source.read.is_none())),
            ("snaplen", cut(args.source.snaplen)),
            ("lookback", yes(args.look_back)),
            ("credits", yes(args.print_options.json || args.annotate)),
        ],
    );
    let way = args.direction.and_then(direction);
    // Before the rules and the filter, so that these count frames of this direction only.
    chain.extend(way.as_ref().map(|node| format!("{{{DIRECTION}}}{node}")));
    chain.extend(args.source.read.is_none().then(|| rules_node(&own_rules(args.rules))));
    chain.push(format!("{{{FILTER}}}{filter}"));
    // Look-back finds frames of both directions.
    chain.extend(way.filter(|_| args.look_back));
    chain.extend(payload::payload(args)?);
    chain.extend(args.count_limit.map(|frames| limit_of_dump(args, frames)));
    let mut ends = Vec::new();
    if let Some(file) = &args.write {
        ends.push(file_of_dump(args, file, snaplen.clone())?);
    }
    if let Some(pipe) = dissector {
        let flush = yes(args.source.read.is_none());
        ends.push(node("tofile", &[("expression", path(pipe)?), ("flush", flush)]));
    } else if !args.count && (args.write.is_none() || args.print) {
        let letters = letters(&args.print_options);
        ends.push(node(
            "print",
            &[
                ("expression", (!letters.is_empty()).then_some(letters)),
                ("live", yes(args.source.read.is_none())),
                ("snaplen", snaplen),
                ("nano", yes(args.nanoseconds())),
                ("lengths", yes(args.print_options.lengths)),
                ("like_tcpdump", yes(args.print_options.like_tcpdump || args.as_tcpdump)),
                ("json", yes(args.print_options.json)),
                ("color", yes(is_colored(args))),
            ],
        ));
    }
    match ends.len() {
        0 => chain.push("(packetcount, export=y)".to_owned()),
        1 => chain.append(&mut ends),
        _ => chain.push(format!("[{}]", ends.join(" | "))),
    }
    Ok(chain.join(" > "))
}

/// The node that writes the file of `fyke dump`.
fn file_of_dump(args: &DumpArgs, file: &Path, snaplen: Option<String>) -> Result<String, Failure> {
    let continued = args.resumed.as_ref().and_then(Resumed::output);
    let (file, identity) = continued.map_or((file, None), |(file, id)| (file, Some(id)));
    Ok(node(
        "tofile",
        &[
            ("expression", path(file)?),
            ("continues", identity.map(str::to_owned)),
            ("format", args.as_tcpdump.then(|| "pcap".to_owned())),
            ("snaplen", snaplen),
            ("size", args.file_size.map(|size| size.to_string())),
            ("seconds", args.rotate_seconds.map(|seconds| seconds.to_string())),
            ("files", args.file_count.map(|count| count.to_string())),
            ("flush", yes(args.print_options.packet_buffered)),
            ("nano", yes(args.nanoseconds())),
            ("compress", args.compress.clone()),
            ("annotate", yes(args.annotate)),
            ("command", args.rotate_command.clone()),
            ("mode", (args.file_mode != "600").then(|| args.file_mode.clone())),
        ],
    ))
}

/// Builds the graph of `fyke track`.
pub fn track(args: &TrackArgs) -> Result<String, Failure> {
    let live = args.source.read.is_none();
    if args.no_look_back && !live {
        let message = "--no-look-back: a file has no capture ring to look back into; omit this \
                       option";
        return Err(Failure::Usage(message.to_owned()));
    }
    if args.rules && !live {
        let message = "--rules: for a capture; a file has no interface, so omit this option";
        return Err(Failure::Usage(message.to_owned()));
    }
    let per_call = args.write.to_string_lossy().contains('{');
    let has_calls = per_call || args.summary.is_some() || args.wav.is_some();
    if has_calls && args.source.workers > 1 {
        let message = "--workers: one thread puts calls together; omit it, or {call} in -w, --summary and --wav";
        return Err(Failure::Usage(message.to_owned()));
    }
    let look_back = live && !args.no_look_back;
    let ports = args.ports.as_deref();
    let protocols = args.protocols.join(",");
    let kinds = fyke_track::registry::parse(&protocols);
    let kinds = kinds.map_err(|error| Failure::Usage(format!("fyke track: {error}")))?;
    let control = ports.map(fyke_track::class::ports).transpose();
    let control = control.map_err(|error| Failure::Usage(format!("--port: {error}")))?;
    if let (Some(_), [_, other, ..]) = (&control, kinds.as_slice()) {
        let message = format!(
            "--port: control ports are for one protocol; run a `fyke track {}` of its own",
            other.name
        );
        return Err(Failure::Usage(message));
    }
    let tracker = fyke_track::registry::make(&kinds, control.as_deref(), Limits::default());
    // In the scoped reading, fragments follow the first one of their packet.
    let also = if args.scoped { String::new() } else { format!(" or {}", fyke_track::FRAGMENTS) };
    let filter = node(
        "filter",
        &[
            ("expression", Some(tracker.start_filter().to_owned() + &also)),
            ("scoped", yes(args.scoped)),
            ("live", yes(live)),
            ("tags", (!args.scoped).then(|| "skip".to_owned())),
            ("snaplen", cut(args.source.snaplen)),
            ("lookback", yes(look_back)),
        ],
    );
    let mut chain = vec![plain_source(&args.source, look_back)?];
    chain.extend(live.then(|| rules_node(&own_rules(args.rules))));
    chain.push(format!("{{{FILTER}}}{filter}"));
    chain.extend(args.count_limit.map(limit));
    let port = ports.map(str::to_owned);
    let tracked = [("expression", Some(protocols)), ("port", port), ("live", yes(live))];
    let fragments = [("fragments", yes(!args.scoped))];
    let track = node("track", &[&tracked[..], &fragments].concat());
    chain.push(format!("{{{TRACK}}}{track}"));
    let snaplen = output_cut(&args.source);
    if has_calls {
        let files = if per_call { path(&args.write)? } else { None };
        let summary = args.summary.as_deref().map(path).transpose()?.flatten();
        let wav = args.wav.as_deref().map(path).transpose()?.flatten();
        let files = [("files", files), ("summary", summary), ("wav", wav)];
        let calls: Vec<_> = tracked.into_iter().chain(files).collect();
        let form = vec![("snaplen", snaplen.clone()), ("nano", yes(args.nano))];
        chain.push(format!("{{{CALLS}}}{}", node("calls", &[calls, form].concat())));
    }
    if !per_call {
        let file =
            [("expression", path(&args.write)?), ("snaplen", snaplen), ("nano", yes(args.nano))];
        chain.push(node("tofile", &file));
    }
    Ok(chain.join(" > "))
}

/// The expressions of `fyke demux`, each with the number of its endpoint, and the distinct endpoints. Endpoints keep
/// their numbers when expressions are removed.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Expressions with the numbers of their endpoints.
    pub list: Vec<(String, usize)>,
    /// Endpoints by their numbers.
    pub endpoints: Vec<String>,
}

impl Rules {
    /// Adds an expression for an endpoint.
    pub fn push(&mut self, expression: &str, endpoint: &str) {
        let known = self.endpoints.iter().position(|name| name == endpoint);
        let number = known.unwrap_or_else(|| {
            self.endpoints.push(endpoint.to_owned());
            self.endpoints.len() - 1
        });
        self.list.push((expression.to_owned(), number));
    }
}

/// Splits `EXPR => ENDPOINT`.
pub fn rule_of(text: &str) -> Result<(&str, &str), String> {
    let Some((expression, name)) = text.rsplit_once("=>") else {
        return Err(format!(
            "`{text}`: expected 'EXPR => ENDPOINT' (in quotes, else the shell redirects to ENDPOINT)"
        ));
    };
    match name.trim() {
        "" => Err(format!("`{text}`: an endpoint is missing after `=>`")),
        name => Ok((expression.trim(), name)),
    }
}

/// Parses the expressions of a command line.
pub fn endpoints(texts: &[String]) -> Result<Rules, Failure> {
    let mut rules = Rules::default();
    for text in texts {
        let (expression, name) = rule_of(text).map_err(Failure::Usage)?;
        rules.push(expression, name);
    }
    Ok(rules)
}

/// Sets the number of threads of a demux with a thread for each endpoint.
///
/// # Errors
/// If the sources or the number of endpoints do not permit it.
pub fn by_endpoint(args: &mut DemuxArgs, endpoints: usize) -> Result<(), Failure> {
    if !args.by_endpoint {
        return Ok(());
    }
    let other = |name: &&String| is_shared(name) || *name == "any";
    let problem = match endpoints {
        _ if args.source.read.is_some() => {
            "a file is read by one thread; omit this option".to_owned()
        }
        0..=1 => "there is one endpoint only; omit this option".to_owned(),
        2..=MAX_THREADS => match args.source.interface.iter().find(other) {
            Some(name) => {
                format!("-i {name}: it is for interfaces by name; use --workers, or omit it")
            }
            None => {
                args.source.workers = endpoints as u16;
                return Ok(());
            }
        },
        _ => format!("there are {endpoints} endpoints, of {MAX_THREADS} at most; use --workers"),
    };
    Err(Failure::Usage(format!("--by-endpoint: {problem}")))
}

/// Builds the graph of `fyke demux`.
pub fn demux(args: &DemuxArgs) -> Result<String, Failure> {
    demux_of(args, &endpoints(&args.rules)?)
}

/// Builds the graph of `fyke demux` with other expressions.
pub fn demux_of(args: &DemuxArgs, rules: &Rules) -> Result<String, Failure> {
    let snaplen = output_cut(&args.source);
    if args.patience_seconds.is_some() && !args.scoped {
        let message = "--patience-seconds: fragments wait only with --scoped; add --scoped, or \
                       omit this option";
        return Err(Failure::Usage(message.to_owned()));
    }
    let patience = args.patience_seconds.filter(|&seconds| seconds != 60);
    let texts = rules.list.iter().map(|(text, number)| Some(format!("{text} => {number}")));
    let mut parameters: Vec<_> = texts.map(|rule| ("expression", rule)).collect();
    parameters.extend([
        ("first", yes(args.first)),
        ("scoped", yes(args.scoped)),
        ("live", yes(args.source.read.is_none())),
        ("patience", patience.map(|seconds| seconds.to_string())),
        ("snaplen", cut(args.source.snaplen)),
        ("export", yes(true)),
    ]);
    let by_class = args.by_endpoint || super::xdp::selects_by_endpoint(args, rules.endpoints.len());
    let mut chain = vec![source(&args.source, false, None, Hurry::Ordinary, by_class)?];
    chain.extend(args.limit.map(limit));
    chain.push(format!("{{{DEMUX}}}{}", node(DEMUX, &parameters)));
    let mut first = chain.join(" > ");
    let mut branches = Vec::new();
    let used = |number: &usize| rules.list.iter().any(|(_, endpoint)| endpoint == number);
    for (number, name) in rules.endpoints.iter().enumerate().filter(|(number, _)| used(number)) {
        let endpoint = endpoint(name, &snaplen, args.nano);
        branches.push(format!("[{first} -{number}-> {endpoint}]"));
        first = format!("{{{DEMUX}}}()");
    }
    Ok(branches.join(" | "))
}

/// Builds the node of an endpoint: `ring:PATH`, `udp:HOST:PORT`, `unix:PATH`, `if:NAME`, `count`, else a file.
fn endpoint(name: &str, snaplen: &Option<String>, nano: bool) -> String {
    let output = |class, value: &str| {
        node(class, &[("expression", Some(value.to_owned())), ("snaplen", snaplen.clone())])
    };
    if name == "count" {
        return node("packetcount", &[]);
    }
    match name.split_once(':') {
        Some(("ring", path)) => output("toring", path),
        Some(("udp" | "unix", _)) => output("tosocket", name),
        Some(("if", interface)) => output("tointerface", interface),
        _ => {
            let file = ("expression", Some(name.to_owned()));
            node("tofile", &[file, ("snaplen", snaplen.clone()), ("nano", yes(nano))])
        }
    }
}

/// Returns the parameters of a capture's rules: the interface's with `--rules`, else its own.
fn own_rules(shared: bool) -> Vec<(&'static str, Option<String>)> {
    vec![("own", yes(!shared))]
}

fn rules_node(parameters: &[(&str, Option<String>)]) -> String {
    format!("{{{RULES}}}{}", node("bloom", parameters))
}

/// Builds the graph that a dump without rules becomes after a command of `fyke rules`.
fn rules(args: &RulesArgs) -> Result<String, Failure> {
    let command = args.command.join(" ");
    let mut parameters = own_rules(false);
    match command.split_once(' ') {
        Some(("enable", value)) => parameters.push(("enable", Some(value.to_owned()))),
        Some(("negative", value)) => parameters.push(("negative", Some(value.to_owned()))),
        _ => {
            let rule = command.strip_prefix('+');
            let off = rule.map(|_| ("enable", Some("n".to_owned())));
            parameters.extend(rule.map(|rule| ("expression", Some(rule.to_owned()))));
            parameters.extend(off);
        }
    }
    let device = node("device", &[("expression", Some(args.interface.clone()))]);
    let filter = node("filter", &[("live", yes(true))]);
    Ok(format!("{device} > {} > {{{FILTER}}}{filter}", rules_node(&parameters)))
}

/// Builds the node for -Q.
fn direction(given: Direction) -> Option<String> {
    let way = match given {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Inout => return None,
    };
    Some(node("accept", &[("direction", Some(way.to_owned()))]))
}

/// Builds the limit of `fyke dump`: a batch is not cut after streams, which are put together once.
fn limit_of_dump(args: &DumpArgs, frames: u64) -> String {
    let cut = (!args.payload.is_empty()).then(|| "n".to_owned());
    node("limit", &[("expression", Some(frames.to_string())), ("cut", cut)])
}

fn limit(frames: u64) -> String {
    node("limit", &[("expression", Some(frames.to_string()))])
}

/// True if lines get colours: as tcpdump, and for objects, never.
fn is_colored(args: &DumpArgs) -> bool {
    !args.as_tcpdump && !args.print_options.json && args.print_options.color.is_on()
}

/// Returns the print options as tcpdump's letters.
fn letters(args: &PrintArgs) -> String {
    let counted = [
        ('n', args.numeric.min(1)),
        ('e', u8::from(args.link_header)),
        ('q', u8::from(args.quiet)),
        ('v', args.verbose),
        ('x', args.hex.min(2)),
        ('X', args.hex_text.min(2)),
        ('A', args.text.min(2)),
        ('t', args.time.min(5)),
        ('l', u8::from(args.line_buffered || args.packet_buffered)),
        ('S', u8::from(args.absolute_sequence)),
        ('#', u8::from(args.number)),
    ];
    counted.iter().map(|&(letter, count)| String::from(letter).repeat(count.into())).collect()
}

/// A graph that has started, of a process that has dropped its rights.
pub struct Started {
    pub engine: Engine,
    pub handle: GraphHandle,
    pub entered: Entered,
    pub unseen: Unseen,
    /// The last frames that arrived at the filter, for clients that may edit it.
    pub kept: Option<Kept>,
}

/// Starts the graph of a command that must end when one of its nodes fails. With `stats` it warns of interfaces that
/// merge frames. The process drops its rights after it has opened its files and before it reads the first frame.
pub fn start(
    text: &str,
    privileges: Privileges,
    doors: Doors,
    args: &SourceArgs,
    stats: bool,
) -> Result<Started, Failure> {
    let names = args.interface.iter().map(String::as_str);
    let open = || GraphHandle::open(&[text], classes(), args.workers.into());
    let opened = opening::patiently(names, open);
    let mut opened = opened.map_err(refused)?;
    let count_all = args.count_all.then_some(COUNT_ALL).or(args.counts_all);
    opened.place(&ServeSpace(Kernel { count_all }));
    check_rules(&opened)?;
    let of_node = opened.kept();
    let kept = of_node.clone().unwrap_or_else(|| Kept::new(KeptLimits::RECENT));
    let keeps = match doors {
        Doors::Closed | Doors::Look => false,
        Doors::Filters => of_node.is_some() || opened.keep(FILTER, &kept),
        Doors::Graph => {
            opened.keep_at_filter(&kept);
            true
        }
    };
    let unseen = Unseen::start(opened.plan(), stats);
    let mut privileges = privileges;
    privileges.opened();
    let entered = privileges.enter(&Needs::of(opened.plan(), doors))?;
    let rotates = rotates(opened.plan());
    let (mut engine, handle) = opened.start().map_err(refused)?;
    say_rules(&handle);
    say_rings(&handle);
    report_passed_over(rotates, &handle)?;
    engine.end_at_first_failure();
    engine.on_notice(|notice| note!("fyke: {notice}"));
    Ok(Started { engine, handle, entered, unseen, kept: keeps.then_some(kept) })
}

/// True if a node of a graph writes several files.
pub fn rotates(plan: &Plan) -> bool {
    let is_set = |settings: &Settings, name| settings.text(name).is_some();
    let mut files = plan.nodes.iter().filter(|node| node.class.name == "tofile");
    files.any(|node| is_set(&node.settings, "size") || is_set(&node.settings, "seconds"))
}

/// Describes the graph of a command line, and where its filters would run.
pub fn explain(words: &[String]) -> Result<String, Failure> {
    let line = std::iter::once("fyke").chain(words.iter().map(String::as_str));
    let command = Cli::try_parse_from(line).map_err(|error| Failure::Usage(error.to_string()))?;
    let texts = match command.command {
        Command::Dump(mut args) => {
            super::read_list(&mut args.source)?;
            vec![dump(&args, None)?]
        }
        Command::Track(mut args) => {
            super::read_list(&mut args.source)?;
            vec![track(&args)?]
        }
        Command::Intercept(mut args) if args.action.is_none() => {
            super::read_list(&mut args.source)?;
            vec![intercept(&args)?]
        }
        Command::Demux(mut args) => {
            super::read_list(&mut args.source)?;
            vec![demux(&args)?]
        }
        Command::Account(mut args) => {
            super::read_list(&mut args.source)?;
            vec![account(&args, &Accounted::new(&args)?)?]
        }
        Command::Rules(args) if args.own || args.tcx || args.drop => {
            let message = "fyke rules with --own, --tcx or --drop runs no graph: programs in the kernel read its \
                           rules; `fyke explain --graph -- dump -i IF --rules` shows the graph of a capture that \
                           reads them";
            return Err(Failure::Usage(message.to_owned()));
        }
        Command::Rules(args) => vec![rules(&args)?],
        Command::Run(args) => args.graph,
        _ => {
            let message = "this command runs no graph; dump, track, intercept, demux, account, rules and run do";
            return Err(Failure::Usage(message.to_owned()));
        }
    };
    let list: Vec<_> = texts.iter().map(String::as_str).collect();
    let plan = Plan::new(&list, &classes()).map_err(|error| refused(error.into()))?;
    Ok(plan.describe() + &fyke_graph::placement::describe(&plan))
}
