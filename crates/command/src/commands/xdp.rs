//! Interfaces as the source `xdp:IF` or `xdp:IF:QUEUE`: frames are taken at the driver, before the host gets them.
//!
//! Refused, unless `--take` is given, where the host would miss the frames: an address, a route, a port of a
//! bridge or a bond. Filters run at XDP, too: the host gets the frames that they reject there. Like every filter in the
//! kernel they pass a superset, so the host may lack a rejected frame while an edit takes effect. Each of several
//! workers has a socket of each queue.

use super::Failure;
use crate::cli::{DemuxArgs, Direction, DumpArgs, SourceArgs};
use anyhow::anyhow;
use fyke_capture::{DriverFilter, Redirect, Redirected, RingGroup, Source, XdpOptions, XdpSource};
use fyke_graph::node::{Class, MakeError, Settings};
use fyke_kernel::prefilter::{DropError, DropperMode};
use fyke_kernel::redirect::{FilterPlace, Redirector, host_needs};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A source without frames, and that of each worker.
type Shares = (Box<dyn Source>, Vec<Box<dyn Source>>);

/// The prefix of such a source.
pub const PREFIX: &str = "xdp:";

/// The class `device` that also opens `xdp:IF`, `serve:NAME` and sources of other machines.
pub fn device() -> Class {
    Class { open: open_device, check: Some(check), shares, open_shares, ..super::remote::device() }
}

/// Splits the name of a source; `None` if it does not begin with the prefix.
///
/// # Errors
/// The name of the interface is missing, or the queue is no number.
pub fn parse(name: &str) -> Option<Result<(&str, Option<u32>), String>> {
    let name = name.strip_prefix(PREFIX)?;
    Some(match name.split_once(':') {
        _ if name.is_empty() || name.starts_with(':') => {
            Err("the name of the interface is missing (xdp:IF or xdp:IF:QUEUE)".to_owned())
        }
        None => Ok((name, None)),
        Some((interface, queue)) => match queue.parse() {
            Ok(number) => Ok((interface, Some(number))),
            Err(_) => Err(format!("{queue:?} is not the number of a queue (xdp:IF:QUEUE)")),
        },
    })
}

/// Refuses names of such sources that are wrong, and `--take` without such a source.
///
/// # Errors
/// As [`parse`].
pub fn check_args(args: &SourceArgs) -> Result<(), Failure> {
    let mut is_xdp = false;
    for name in &args.interface {
        let parsed = parse(name).transpose();
        is_xdp |= parsed.map_err(|why| Failure::Usage(format!("-i {name}: {why}")))?.is_some();
    }
    let message = "--take: it is for -i xdp:IF; other captures leave the host its frames; omit it";
    if args.take && !is_xdp { Err(Failure::Usage(message.to_owned())) } else { Ok(()) }
}

/// Refuses `-Q out` for such a source.
///
/// # Errors
/// If both are given.
pub fn check_direction(args: &DumpArgs) -> Result<(), Failure> {
    let names = &args.source.interface;
    let found = names.iter().find_map(|name| Some((name, name.strip_prefix(PREFIX)?)));
    let Some((name, of)) = found.filter(|_| args.direction == Some(Direction::Out)) else {
        return Ok(());
    };
    let interface = of.split(':').next().unwrap_or(of);
    Err(Failure::Usage(format!(
        "-Q out: -i {name} captures incoming frames only, so it would write nothing; omit it, or capture frames of \
         both directions with -i {interface}"
    )))
}

/// Refusal of such a source beside others, after its name.
pub const ALONE: &str = "it cannot be captured together with other interfaces or queues; -i xdp:IF captures all \
                         queues of IF (with --workers N, by N threads)";

/// True if the program at the driver selects the worker of a frame by its endpoint: each worker has at least one, and
/// frames need no other ones of their conversation.
pub fn selects_by_endpoint(args: &DemuxArgs, endpoints: usize) -> bool {
    let source = &args.source;
    let is_xdp = source.interface.iter().any(|name| name.starts_with(PREFIX));
    let is_free = !args.scoped && !source.count_all;
    is_xdp && is_free && source.workers > 1 && endpoints >= usize::from(source.workers)
}

fn check(settings: &Settings) -> Result<(), MakeError> {
    let name = settings.required("expression")?;
    let parsed = parse(name).transpose().map_err(|why| MakeError::new("expression", why))?;
    if parsed.is_none() && settings.flag("take")? {
        return Err(MakeError::new(
            "take",
            "is for `xdp:IF`: other captures leave the host its frames",
        ));
    }
    let is_other = |link: &str| !link.eq_ignore_ascii_case("EN10MB");
    if parsed.is_some() && settings.text("link").is_some_and(is_other) {
        return Err(MakeError::new("link", "frames of `xdp:IF` have link type EN10MB"));
    }
    fyke_serve::client::device().check.map_or(Ok(()), |check| check(settings))
}

fn open_device(settings: &Settings) -> Result<Box<dyn Source>, MakeError> {
    let Some(options) = options(settings)? else { return (super::remote::device().open)(settings) };
    let opened = open(&options, settings.flag("take")?, 1).map(|mut one| one.remove(0));
    Ok(Box::new(opened.map_err(|error| MakeError::refused("expression", error))?))
}

/// True for such a source: each of several workers has a socket of each queue.
fn shares(settings: &Settings) -> bool {
    settings.text("expression").is_some_and(|name| name.starts_with(PREFIX))
        || (super::remote::device().shares)(settings)
}

fn open_shares(settings: &Settings, workers: usize) -> Result<Shares, MakeError> {
    let Some(options) = options(settings)? else {
        return (super::remote::device().open_shares)(settings, workers);
    };
    let refused = |error| MakeError::refused("expression", error);
    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
    let sources = open(&options, settings.flag("take")?, workers).map_err(refused)?;
    let (group, shares) = RingGroup::at_driver(sources).map_err(|error| refused(error.into()))?;
    let shares = shares.into_iter().map(|share| Box::new(share) as Box<dyn Source>);
    Ok((Box::new(group), shares.collect()))
}

/// The options of such a source; `None` for another one.
fn options(settings: &Settings) -> Result<Option<XdpOptions>, MakeError> {
    let Some(parsed) = parse(settings.required("expression")?) else { return Ok(None) };
    let (interface, queue) = parsed.map_err(|why| MakeError::new("expression", why))?;
    Ok(Some(XdpOptions {
        interface: interface.to_owned(),
        queue,
        snaplen: settings.number_or("snaplen", 1..=262_144, 262_144)? as u32,
        buffer_kib: settings.number_or("buffer", 1..=4_194_304, 32_768)? as u32,
        look_back: settings.flag("lookback")?,
        promiscuous: settings.choice("promiscuous", &["y", "n"])? == 0,
        by_class: settings.flag("classes")?,
    }))
}

fn open(options: &XdpOptions, take: bool, workers: u32) -> anyhow::Result<Vec<XdpSource>> {
    let interface = &options.interface;
    // An interface that does not exist gets its message below.
    if !take && let Ok(Some(why)) = host_needs(interface) {
        return Err(anyhow!(
            "{why}, so the host would lose frames; xdp:IF is for monitoring ports, -i {interface} captures copies \
             (--take takes the frames here, too)"
        ));
    }
    let (mut mode, mut tells_tags) = (DropperMode::Native, false);
    let sources = XdpSource::open_several(options, workers, || {
        let program = Redirector::attach(interface, options.queue, workers);
        let program = program.map_err(|error| match error {
            DropError::Open(error) if error.is_unavailable() => anyhow!(
                "{interface}: frames cannot be taken at the driver: {}; or capture copies of them: -i {interface}",
                error.brief()
            ),
            DropError::Open(error) => anyhow!("{interface}: {}", error.brief()),
            other => other.into(),
        })?;
        (mode, tells_tags) = (program.mode(), program.tells_tags());
        anyhow::Ok(Box::new(Program(program)) as Box<dyn Redirect>)
    })?;
    if let Some(first) = sources.first() {
        say_start(options, first, workers, mode, tells_tags);
    }
    Ok(sources)
}

/// Tells how the frames are taken, and what the host gets.
fn say_start(
    options: &XdpOptions,
    source: &XdpSource,
    workers: u32,
    mode: DropperMode,
    tells_tags: bool,
) {
    let (interface, queues) = (&options.interface, source.queues());
    let copy = if source.is_zero_copy() { "zero-copy" } else { "copy" };
    let queues = match options.queue {
        Some(queue) => format!("queue {queue}"),
        None if queues.len() == 1 => "queue 0, the only one".to_owned(),
        None => format!("all {} queues", queues.len()),
    };
    let each = match workers {
        1 => String::new(),
        more => format!(", {more} sockets of each"),
    };
    let tags = match tells_tags {
        true => "tags that the device removes are reinserted (metadata of the driver)".to_owned(),
        false => format!(
            "tags that the device removes are lost, since the driver or the kernel does not tell them (ethtool -K \
             {interface} rxvlan off)"
        ),
    };
    note!(
        "fyke: {interface}: {mode}; AF_XDP in {copy} mode, {queues}{each}; incoming frames only; the host does not \
         get those that are taken here, but those that a filter at the driver rejects (fyke ctl stats tells if it runs \
         there); {tags}"
    );
}

/// The program of an interface.
struct Program(Redirector);

impl Redirect for Program {
    fn connect(&mut self, queue: u32, worker: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.0.connect(queue, worker, socket)
    }

    fn set_factor(&self, factor: u32) {
        self.0.set_factor(factor);
    }

    fn set_gone(&self, workers: u64) {
        self.0.set_gone(workers);
    }

    fn set_on(&self, on: bool) {
        self.0.set_on(on);
    }

    fn counts(&self) -> Redirected {
        Redirected {
            to_sockets: self.0.redirected(),
            without_socket: self.0.without_socket(),
            too_long: self.0.too_long(),
        }
    }

    fn set_longest(&self, bytes: u32) {
        self.0.set_longest(bytes);
    }

    fn filter(&mut self) -> io::Result<Arc<dyn DriverFilter>> {
        Ok(Arc::new(Place(self.0.filter()?)))
    }

    fn is_native(&self) -> bool {
        self.0.mode() == DropperMode::Native
    }
}

/// The place of the program for a filter.
struct Place(FilterPlace);

impl DriverFilter for Place {
    fn deliver(&self) -> BorrowedFd<'_> {
        self.0.deliver()
    }

    fn put(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.0.put(program)
    }

    fn set_filtering(&self, on: bool) {
        self.0.set_filtering(on);
    }
}

#[cfg(test)]
mod tests;
