//! Class `tofile`: writes frames to a capture file and passes them. Cost: a copy into the file's buffer.
//!
//! A frame that is not complete in the file at the end (a full disk, a pipe without a reader) counts as lost. If other
//! nodes get the frames, too, each batch is written before it passes, and lost frames do not pass.

use crate::comments::Comments;
use crate::cuts;
use crate::fits::{LOST_BY_CLIENTS, PASSED_OVER, SENT_TO_CLIENTS};
use crate::losses::Losses;
use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens};
use crate::node::{Parameter, Settings};
use fyke_capture::{
    Account, Compression, FileIdentity, Format, Interface, PRIVATE, Rotation, Sink, WriteOptions,
    client_address,
};
use fyke_filters::FilterSet;
use fyke_frame::{Frame, Mask};
use fyke_privilege::runner;
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

struct ToFile {
    limit: u64,
    /// Number of frames received, up to the limit.
    taken: u64,
    sink: Box<dyn Sink>,
    losses: Losses,
    /// Accounts of the live interfaces; only with several files.
    accounts: Vec<(Interface, Account)>,
    /// True if there are several files.
    rotates: bool,
    comments: Comments,
    /// Reason why writing has ended.
    failed: Option<NodeError>,
}

impl Node for ToFile {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let (left, before) = ((self.limit - self.taken) as usize, self.taken);
        let beyond = arrival.mask().iter().nth(left);
        // Index of the last frame, and number of frames before it.
        let (at, written) = (Cell::new(0), Cell::new(0));
        let cut = cuts::frames(arrival);
        self.comments.begin_batch();
        let mut frames = arrival.frames().take(left).peekable();
        while let Some((index, first)) = frames.peek().map(|(index, one)| (*index, one.interface)) {
            for text in self.comments.of(arrival, index) {
                self.sink.comment(text);
            }
            let mut most = self.comments.run();
            let mut run = std::iter::from_fn(|| {
                most = most.checked_sub(1)?;
                let same = |next: &(usize, &Frame<'_>)| next.1.interface == first;
                let (index, frame) = frames.next_if(same)?;
                written.set(self.taken - before);
                at.set(index);
                self.taken += 1;
                Some(cut.get(index).unwrap_or(frame))
            });
            if self.failed.is_none() {
                let interface = &arrival.interfaces()[first as usize];
                let account = self.accounts.iter().find(|(known, _)| known == interface);
                let mut now = || {
                    let settled = arrival.settled(at.get())?;
                    Some(Account {
                        received: Some(settled.received),
                        accepted: Some(settled.accepted + written.get()),
                        ..account?.1
                    })
                };
                let done = self.sink.write_accounted(interface, &mut run, &mut now);
                self.failed = done.err().map(NodeError::new);
            }
            // Frames that a failure left unwritten count as lost.
            run.for_each(drop);
        }
        if !self.losses.at_once {
            if self.failed.is_none() {
                self.failed = self.sink.end_batch().err().map(NodeError::new);
            }
            return Ok(arrival.mask());
        }
        if self.failed.is_none() {
            self.failed = self.sink.flush().err().map(NodeError::new);
        }
        let mask = arrival.mask();
        let taken = beyond.map_or(mask, |first| mask & Mask::first(first));
        let is_done = self.failed.as_ref().is_some_and(NodeError::is_done);
        let lost = self.taken - self.sink.stats().frames;
        Ok(self.losses.pass(arrival, taken, lost, is_done))
    }

    /// Reports failures, as no other function does: earlier frames are in the file, and each later one counts as
    /// lost.
    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        match &self.failed {
            Some(failed) => Err(failed.clone()),
            None => self.sink.make_room(patience).map_err(NodeError::new),
        }
    }

    fn give_up(&mut self) {
        self.sink.give_up();
    }

    fn pass_written(&mut self, at_once: bool) {
        self.losses.at_once = at_once;
    }

    fn lost(&self) -> u64 {
        self.losses.late(self.taken - self.sink.stats().frames)
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.sink.flush().map_err(NodeError::new)
    }

    fn connect(&mut self, filters: &FilterSet) {
        self.comments.connect(filters);
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        for text in self.comments.rest() {
            self.sink.comment(text);
        }
        self.sink.end().map_err(NodeError::new)
    }

    /// Passes the accounts to the sink, for the statistics at the end of a pcapng file.
    fn account(&mut self, accounts: &[(Interface, Account)]) {
        for (interface, account) in accounts {
            self.sink.account(interface, account);
        }
        if self.rotates {
            self.accounts = accounts.to_vec();
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let stats = self.sink.stats();
        let passed_over = stats.passed_over;
        let passed_over = (passed_over > 0).then(|| Counter::count(PASSED_OVER, passed_over));
        let clients = stats.clients.map(|clients| {
            [
                Counter::count("clients", clients.connected),
                Counter::count(SENT_TO_CLIENTS, clients.sent),
                Counter::count(LOST_BY_CLIENTS, clients.lost),
            ]
        });
        let written = [Counter::count("written", stats.frames)];
        written.into_iter().chain(passed_over).chain(clients.into_iter().flatten()).collect()
    }
}

/// Permission bits in octal digits, as chmod(1) takes them.
fn mode(settings: &Settings) -> Result<u32, MakeError> {
    let Some(text) = settings.text("mode") else { return Ok(PRIVATE) };
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| MakeError::new("mode", "permission bits in octal, from 000 to 777"))
}

/// The compression; by the name of the file if none is given.
fn compression(settings: &Settings) -> Result<Option<Compression>, MakeError> {
    let Some(given) = settings.text("compress") else { return Ok(None) };
    let known = Compression::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(given));
    known.map(|(_, compression)| Some(*compression)).ok_or_else(|| {
        let names: Vec<_> = Compression::NAMES.iter().map(|(name, _)| *name).collect();
        MakeError::new("compress", format!("{given} is not one of: {}", names.join(", ")))
    })
}

/// Checks the command that runs for each complete file; a process of its own runs it, which has to exist already.
fn completed(settings: &Settings) -> Result<Option<fn(&Path)>, MakeError> {
    let Some(given) = settings.text("command") else { return Ok(None) };
    if !rotation(settings)?.rotates() {
        let why = "a command runs for each complete file of a rotation: add `size` or `seconds`";
        return Err(MakeError::new("command", why));
    }
    match runner::current().is_some_and(|runner| runner.command() == given) {
        true => Ok(Some(run_command)),
        false => {
            let why = "this fyke cannot start programs any more; `fyke dump -z` starts the process \
                       that can";
            Err(MakeError::refused("command", why))
        }
    }
}

fn run_command(file: &Path) {
    let Some(runner) = runner::current() else { return };
    if let Err(error) = runner.run(file) {
        eprintln!("fyke: -z: {} was not run for {file:?}: {error}", runner.command());
    }
}

/// Reads when to start another file, from the parameters of the class.
///
/// # Errors
/// If a parameter is not a number.
pub fn rotation(settings: &Settings) -> Result<Rotation, MakeError> {
    let some = |name: &'static str| {
        let number = settings.number_or(name, 1..=u64::from(u32::MAX), 0)?;
        Ok::<_, MakeError>((number > 0).then_some(number as u32))
    };
    Ok(Rotation { size_millions: some("size")?, seconds: some("seconds")?, count: some("files")? })
}

/// The format, if it does not depend on the name.
fn format(settings: &Settings) -> Result<Option<Format>, MakeError> {
    match settings.text("format") {
        None => Ok(None),
        Some("pcap") => Ok(Some(Format::Pcap)),
        Some("pcapng") => Ok(Some(Format::Pcapng)),
        Some(_) => Err(MakeError::new("format", "pcap or pcapng")),
    }
}

/// The file that is continued instead of made.
fn continues(settings: &Settings) -> Result<Option<FileIdentity>, MakeError> {
    let parsed = settings.text("continues").map(str::parse::<FileIdentity>).transpose();
    parsed.map_err(|error| MakeError::new("continues", error))
}

fn options(settings: &Settings) -> Result<WriteOptions, MakeError> {
    Ok(WriteOptions {
        format: format(settings)?,
        snaplen: settings.number_or("snaplen", 1..=262_144, 262_144)? as u32,
        nanoseconds: Some(settings.flag("nano")?),
        flush_each: settings.flag("flush")?,
        waits: false,
        interfaces: settings.interfaces().to_vec(),
        rotation: rotation(settings)?,
        mode: mode(settings)?,
        compression: compression(settings)?,
        continues: continues(settings)?,
        ..WriteOptions::default()
    })
}

fn limit(settings: &Settings) -> Result<u64, MakeError> {
    settings.number_or("limit", 0..=u64::MAX, u64::MAX)
}

fn check(settings: &Settings) -> Result<(), MakeError> {
    settings.required("expression")?;
    limit(settings)?;
    let options = options(settings)?;
    let path = Path::new(settings.required("expression")?);
    client_address(path).map_err(|error| MakeError::new("expression", error))?;
    if settings.flag("annotate")? && options.format.unwrap_or(Format::of(path)) == Format::Pcap {
        return Err(MakeError::new("annotate", "a pcap file has no comments; write a pcapng file"));
    }
    Ok(())
}

/// Creates the file with the graph: a file that cannot be created is refused before any frame arrives.
fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let path = Path::new(settings.required("expression")?);
    let options = WriteOptions { completed: completed(settings)?, ..options(settings)? };
    let sink = fyke_capture::create_file(path, options);
    let sink = sink.map_err(|error| match error.is_input() {
        true => MakeError::new("expression", error),
        false => MakeError::refused("expression", error),
    })?;
    let rotates = rotation(settings)?.rotates();
    let (limit, accounts, losses) = (limit(settings)?, Vec::new(), Losses::default());
    let comments = Comments::new(settings.flag("annotate")?);
    let (taken, failed) = (0, None);
    Ok(Box::new(ToFile { limit, taken, sink, losses, accounts, rotates, comments, failed }))
}

/// Refuses a FIFO without a reader: opening it would block this edit and all later ones.
fn check_edit(settings: &Settings) -> Result<(), MakeError> {
    let path = settings.required("expression")?;
    match crate::texts::has_no_reader(Path::new(path)) {
        false => Ok(()),
        true => {
            let why = "this FIFO has no reader; start one first";
            Err(MakeError::refused("expression", format!("{path}: {why}")))
        }
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "tofile",
    aliases: &["to_file", "pcapout"],
    summary: "writes frames to the capture file `expression` and passes them",
    parameters: &[
        Parameter { name: "expression", summary: "the file; .pcap, else pcapng; .gz, .zst, .lz4" },
        Parameter { name: "format", summary: "pcap or pcapng (by the name)" },
        Parameter { name: "limit", summary: "most frames that are written (all)" },
        Parameter { name: "snaplen", summary: "most bytes of a frame (262144)" },
        Parameter { name: "size", summary: "start another file after this many million bytes" },
        Parameter { name: "seconds", summary: "start another file after this many seconds" },
        Parameter { name: "files", summary: "number of files, written in turn" },
        Parameter { name: "flush", summary: "y: each frame is written at once" },
        Parameter { name: "nano", summary: "y: .pcap with nanoseconds, not microseconds" },
        Parameter { name: "annotate", summary: "y: a comment with what accepted each frame" },
        Parameter { name: "compress", summary: "none, gzip, zstd or lz4 (by the name)" },
        Parameter { name: "command", summary: "program to run for each complete file" },
        Parameter { name: "continues", summary: "a file to write on: DEVICE:INODE:BIRTH" },
        Parameter { name: "mode", summary: "permission bits of new files, in octal (600)" },
    ],
    // Both depend on the order of all frames: which frames are the first N, and when the next file begins.
    ordered: |settings| ["limit", "seconds"].iter().any(|name| settings.text(name).is_some()),
    in_time_order: true,
    reads_filters: true,
    lasting: true,
    waits: true,
    check: Some(check),
    check_edit,
    make,
    opens: |settings| {
        let is_address = |path| client_address(Path::new(path)).map_or(true, |one| one.is_some());
        match settings.text("command") {
            Some(_) => Opens::Program,
            None if settings.text("expression").is_some_and(is_address) => Opens::Network,
            None => Opens::File,
        }
    },
    ..Class::NODE
};
