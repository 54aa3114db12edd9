//! The commands, one file each, and their common parts: failures with exit status, expressions, sources.

pub mod account;
#[cfg(feature = "lab")]
pub mod bench;
mod counts;
pub mod ctl;
#[cfg(feature = "lab")]
pub mod demo;
pub mod demux;
mod dissect;
pub mod dump;
mod edits;
pub mod exec;
pub mod explain;
pub mod extcap;
#[cfg(feature = "fleet")]
pub mod fleet;
#[cfg(any(feature = "fleet", feature = "web"))]
mod foreign;
#[cfg(feature = "lab")]
pub mod generate;
mod graphs;
pub mod ids;
pub mod intercept;
mod live;
pub mod machine;
pub mod mcp;
#[cfg(feature = "web")]
pub mod metrics;
mod output;
mod past;
mod privilege;
pub mod record;
pub mod relay;
pub mod remote;
mod requests;
pub mod resume;
pub mod ruler;
pub mod rules;
pub mod run;
pub mod serve;
mod served;
mod signals;
pub mod snort2ruler;
mod space;
pub mod tcpdump;
#[cfg(feature = "top")]
pub mod top;
pub mod track;
mod unseen;
#[cfg(feature = "web")]
pub mod web;
pub mod written;
mod xdp;

pub use output::{
    event_line, note_line, one_line, output, safe, shortened, write_notes_as, writes_json,
};
pub use space::give_back_rules;

use crate::cli::SourceArgs;
use anyhow::Context;
use fyke_capture::{
    FileOptions, FileSource, Interface, MAX_FILES, MergedFiles, RingOptions, RingSource, Source,
};
use fyke_control::Description;
use fyke_graph::node::Settings;
use rustix::process::{Resource, getrlimit};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Largest snap length, as in libpcap; 0 means this value.
pub const MAX_SNAPLEN: u32 = 262_144;

/// Size of the capture ring without -B.
pub const DEFAULT_BUFFER_KIB: u32 = 32 * 1024;

/// Failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// The command line or an expression is wrong: exit status 2.
    Usage(String),
    /// The command failed at run time: exit status 1.
    Running(anyhow::Error),
    /// The reader of our output closed the pipe: a normal end.
    Pipe,
    /// The command has already printed its messages and only sets the exit status.
    Status(u8),
}

impl Failure {
    /// Formats the message.
    pub fn message(&self) -> String {
        match self {
            Failure::Usage(message) => message.clone(),
            Failure::Running(error) => with_limit(told_once(error)),
            Failure::Pipe | Failure::Status(_) => "it has ended".to_owned(),
        }
    }
}

/// An error with its causes; a cause that the text before it ends with is not told again.
fn told_once(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text {
        text if text.is_empty() => cause,
        text if text.ends_with(&cause) => text,
        text => text + ": " + &cause,
    })
}

/// Completes the message of a failure for want of descriptors. The text is searched, because errors pass through
/// libraries that keep their text only.
fn with_limit(message: String) -> String {
    let too_many = std::io::Error::from(rustix::io::Errno::MFILE).to_string();
    if !message.contains(&too_many) {
        return message;
    }
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or_else(String::new, |limit| format!(" {limit}"));
    format!(
        "{message}; this process may have{limit} files and sockets open: raise the limit \
         (ulimit -n, in a unit LimitNOFILE=); a capture needs about 40, and 8 more for each worker"
    )
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let broken = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        };
        match error.chain().any(broken) {
            true => Failure::Pipe,
            false => Failure::Running(error),
        }
    }
}

/// Describes this process as a reader of these interfaces; `live` is false for files.
pub fn description(interfaces: &[Interface], live: bool) -> Description {
    let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let link = interfaces.first().map_or_else(String::new, |first| first.link.to_string());
    Description { live, ..Description::of_this_process(names.join(", "), link) }
}

/// Returns the expression: its words joined by spaces, as in tcpdump, or the contents of a file.
pub fn expression(words: &[String], file: Option<&Path>) -> Result<String, Failure> {
    expression_by(words, file, "the expression", without_comments)
}

/// As [`expression`]; `what` names the text in errors, and `clean` takes the comments out of a file's text.
pub fn expression_by(
    words: &[String],
    file: Option<&Path>,
    what: &str,
    clean: fn(&str) -> String,
) -> Result<String, Failure> {
    let Some(file) = file else { return Ok(words.join(" ")) };
    if !words.is_empty() {
        return Err(Failure::Usage(format!(
            "{what} comes from {} (-F): remove `{}`, or -F",
            file.display(),
            words.join(" ")
        )));
    }
    let text =
        read_text(file).with_context(|| format!("cannot read {what} from {}", file.display()))?;
    // The last line end would be shown in every report.
    Ok(clean(&text).trim_end().to_owned())
}

/// Blanks comments, from `#` to the end of the line, as tcpdump does in files with an expression.
pub fn without_comments(text: &str) -> String {
    let blank = |line: &str| match line.find('#') {
        Some(at) => line[..at].to_owned() + &" ".repeat(line[at..].chars().count()),
        None => line.to_owned(),
    };
    text.split('\n').map(blank).collect::<Vec<_>>().join("\n")
}

/// The byte order mark.
const MARK: &str = "\u{feff}";

/// Limit on the length of a text read from a file.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Reads a text from a file or a pipe, up to the limit.
pub fn read_text(file: &Path) -> std::io::Result<String> {
    read_limited(std::fs::File::open(file)?)
}

/// Reads a text from any reader, up to the limit, without a byte order mark.
pub fn read_limited(from: impl std::io::Read) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind};
    let not_text = |_| Error::new(ErrorKind::InvalidData, "not UTF-8 text");
    Ok(without_mark(String::from_utf8(read_bytes(from)?).map_err(not_text)?))
}

/// A text of a file without the byte order mark that some editors begin a file with.
pub fn without_mark(mut text: String) -> String {
    if text.starts_with(MARK) {
        text.drain(..MARK.len());
    }
    text
}

/// Reads all bytes of a reader, up to the limit.
fn read_bytes(from: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    use std::io::{Error, ErrorKind, Read};
    let mut bytes = Vec::new();
    from.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        let message = format!("longer than {MAX_TEXT_BYTES} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Adds the files of the list of -V to those of -r. Must be called before the source is used.
pub fn read_list(args: &mut SourceArgs) -> Result<(), Failure> {
    use std::os::unix::ffi::OsStringExt;
    let Some(list) = args.file_list.take() else { return Ok(()) };
    let refused = |why: String| Failure::Usage(format!("-V {}: {why}", list.display()));
    let text = match list.as_os_str() == "-" {
        true => read_bytes(std::io::stdin().lock()),
        false => std::fs::File::open(&list).and_then(read_bytes),
    };
    let text = text.map_err(|error| refused(error.to_string()))?;
    let text = text.strip_prefix(MARK.as_bytes()).unwrap_or(&text);
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let files = args.read.get_or_insert_default();
    let before = files.len();
    files.extend(lines.map(|line| PathBuf::from(OsString::from_vec(line.to_vec()))));
    match files.len() {
        count if count == before => {
            Err(refused("the list is empty; it names one file a line".into()))
        }
        count if count > MAX_FILES => {
            let why =
                format!("{count} files are more than the {MAX_FILES} that can be read at once");
            Err(refused(format!("{why}; merge some of them first")))
        }
        _ => Ok(()),
    }
}

/// Opens the files or the interface in the arguments; by default, the first interface that is up. Frames are whole:
/// outputs cut them to the snap length.
pub fn open(args: &SourceArgs, look_back: bool) -> Result<Box<dyn Source>, Failure> {
    if let Some(files) = &args.read {
        let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let options = FileOptions::default();
        return match files[..] {
            [file] => Ok(Box::new(FileSource::open(file, options)?)),
            _ => Ok(Box::new(MergedFiles::open(&files, &options)?)),
        };
    }
    let interface = interface(args)?;
    if graphs::is_shared(&interface) {
        return open_shared(args, interface);
    }
    if interface.starts_with(xdp::PREFIX) {
        return Err(Failure::Usage(format!(
            "-i {interface}: this command does not take frames at the driver; omit `{}`",
            xdp::PREFIX
        )));
    }
    let options = RingOptions {
        interface: Some(interface).filter(|name| name != fyke_capture::ANY),
        promiscuous: !args.no_promiscuous,
        look_back_blocks: if look_back { RingOptions::default().look_back_blocks } else { 0 },
        block_count: (args.buffer_size.unwrap_or(DEFAULT_BUFFER_KIB)
            / (RingOptions::default().block_size / 1024))
            .max(4),
        ..RingOptions::default()
    };
    Ok(Box::new(RingSource::open(options)?))
}

/// Opens a ring or a service, as the class `device` does.
fn open_shared(args: &SourceArgs, interface: String) -> Result<Box<dyn Source>, Failure> {
    let given = [
        ("expression", Some(interface)),
        ("user", args.ring_user.clone()),
        ("graph", args.serve_graph.clone()),
    ];
    let given = given
        .into_iter()
        .chain(remote::parameters_of(&args.tls)?)
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let opened = (remote::device().open)(&Settings::new(given));
    opened.map_err(|error| match error.refused {
        true => Failure::Running(error.into()),
        false => Failure::Usage(format!("-i: {error}")),
    })
}

/// Returns the snap length for an argument.
pub fn snaplen(given: u32) -> u32 {
    if given == 0 { MAX_SNAPLEN } else { given }
}

/// Returns the interface in the arguments, by name or `dump -D` number; by default, the first that is up. For commands
/// and options that take one interface.
pub fn interface(args: &SourceArgs) -> Result<String, Failure> {
    match &interfaces(args)?[..] {
        [one] => Ok(one.clone()),
        several => Err(Failure::Usage(format!(
            "-i {}: one interface can be named here; -i any captures from all",
            several.join(" -i ")
        ))),
    }
}

/// Returns the interfaces in the arguments, at least one, as [`interface`] does.
pub fn interfaces(args: &SourceArgs) -> Result<Vec<String>, Failure> {
    match &args.interface[..] {
        [] => Ok(vec![first_interface()?]),
        given => given.iter().map(|name| numbered(name)).collect(),
    }
}

/// Enters the network namespace in the arguments, if there is one. Must be called before anything else: all sockets of
/// the process are then made there.
pub fn enter_namespace(args: &SourceArgs) -> Result<(), Failure> {
    let Some(given) = &args.netns else { return Ok(()) };
    Ok(fyke_privilege::namespace::enter(given)?)
}

/// Returns the name of an interface given by name or by its number in `dump -D`.
pub fn numbered(name: &str) -> Result<String, Failure> {
    if name.is_empty() {
        let message = "-i: the name of an interface is missing; `fyke dump -D` lists them";
        return Err(Failure::Usage(message.to_owned()));
    }
    if let Some(Ok((interface, queue))) = xdp::parse(name) {
        let interface = numbered(interface)?;
        let queue = queue.map_or_else(String::new, |queue| format!(":{queue}"));
        return Ok(format!("{}{interface}{queue}", xdp::PREFIX));
    }
    let Ok(number) = name.parse::<usize>() else { return Ok(name.to_owned()) };
    let mut there = fyke_capture::interfaces_available()?;
    // A name takes precedence over a number: Linux allows an interface with the name 7.
    if there.iter().any(|one| one.name == name) {
        return Ok(name.to_owned());
    }
    match number.checked_sub(1).filter(|&at| at < there.len()) {
        Some(at) => Ok(there.swap_remove(at).name),
        None => Err(Failure::Usage(format!(
            "-i {name}: there is no interface with this name or number; the numbers are 1 to {}, as \
             `fyke dump -D` lists them",
            there.len()
        ))),
    }
}

fn first_interface() -> Result<String, Failure> {
    let interfaces = fyke_capture::interfaces_available()?;
    match interfaces.first() {
        Some(interface) => Ok(interface.name.clone()),
        None => Err(Failure::Running(anyhow::anyhow!(
            "there is no interface to capture on; read a file with -r FILE"
        ))),
    }
}
