//! Class `device`: frames of a network interface, live, or of a ring in shared memory. Cost: the capture ring's;
//! frames are copied from a ring of another process.

use crate::node::{Class, Kind, MakeError, Opens, Parameter, Settings};
use fyke_capture::{MergedSource, RingGroup, RingOptions, RingSource, SharedSource, Source};
use fyke_frame::LinkType;
use std::path::Path;
use std::time::Duration;

/// Time that a frame of one of several interfaces waits for earlier frames of the others, beyond the time after which
/// the kernel hands over frames.
const SLACK_MS: u32 = 10;

/// Delay from which blocks are larger.
const PATIENT_MS: u32 = 80;
/// Smallest ring that has larger blocks.
const LARGE_RING_KIB: u64 = 32_768;

/// True for the name of a source in another process: a ring, or a service.
fn is_shared(name: &str) -> bool {
    name.starts_with("ring:") || name.starts_with("serve:")
}

/// True for the name of an interface that is read at the driver.
fn is_xdp(name: &str) -> bool {
    name.starts_with("xdp:")
}

/// The names of the interfaces.
fn names(settings: &Settings) -> Vec<&str> {
    let given = settings.pairs().iter().filter(|(name, _)| name == "expression");
    given.map(|(_, value)| value.as_str()).collect()
}

fn options(settings: &Settings, name: &str) -> Result<RingOptions, MakeError> {
    options_with(settings, name, u32::MAX)
}

/// The options of a ring that hands over frames after `longest_ms` at the latest.
fn options_with(
    settings: &Settings,
    name: &str,
    longest_ms: u32,
) -> Result<RingOptions, MakeError> {
    let defaults = RingOptions::default();
    let longest = u64::from(defaults.snaplen);
    let snaplen = settings.number_or("snaplen", 1..=longest, longest)?;
    let buffer_kib = settings.number_or("buffer", 1..=4_194_304, 32_768)?;
    let delay = settings.number_or("delay", 1..=1_000, u64::from(defaults.retire_ms))? as u16;
    let retire_ms = if settings.flag("immediate")? { 1 } else { delay.into() };
    let link = match settings.text("link") {
        None => None,
        Some(link) => Some(
            LinkType::from_name(link)
                .ok_or_else(|| MakeError::new("link", format!("unknown link type {link:?}")))?,
        ),
    };
    let options = RingOptions {
        interface: (name != "any").then(|| name.to_owned()),
        link,
        snaplen: snaplen as u32,
        promiscuous: settings.choice("promiscuous", &["y", "n"])? == 0,
        retire_ms: retire_ms.min(longest_ms),
        timeout_ms: delay.max(20),
        ..defaults
    };
    Ok(in_blocks(options, buffer_kib, settings.flag("lookback")?))
}

/// Divides a ring into blocks. Where frames may wait for long, blocks are larger; the ring still has one for every 80
/// ms of five seconds.
///
/// PERF: a wake-up costs as much as some hundred frames. With blocks of 512 KiB a capture that writes everything takes
/// 124 ns a frame, with blocks of 128 KiB 171 (300,000 frames of 100 bytes a second, a veth pair).
fn in_blocks(options: RingOptions, buffer_kib: u64, look_back: bool) -> RingOptions {
    let is_patient = options.retire_ms >= PATIENT_MS && buffer_kib >= LARGE_RING_KIB;
    let times = if is_patient { 4 } else { 1 };
    let block_size = options.block_size * times;
    let block_count = (buffer_kib / u64::from(block_size / 1024)).max(4) as u32;
    let held = if look_back { options.look_back_blocks / times } else { 0 };
    let look_back_blocks = held.min(block_count / 2);
    RingOptions { block_size, block_count, look_back_blocks, ..options }
}

/// The user that may serve the ring.
fn user(settings: &Settings) -> Result<Option<u32>, MakeError> {
    let Some(name) = settings.text("user") else { return Ok(None) };
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let found = fyke_privilege::user::User::named(name);
    found.map(|user| Some(user.uid)).map_err(|error| MakeError::new("user", error))
}

/// Refuses parameters that would do nothing.
fn check(settings: &Settings) -> Result<(), MakeError> {
    let name = settings.required("expression")?;
    let names = names(settings);
    let alone = |name: &&str| *name == "any" || is_shared(name) || is_xdp(name);
    if let Some(name) = names.iter().find(|name| names.len() > 1 && alone(name)) {
        let more = match is_xdp(name) {
            true => " or queues; xdp:IF captures all queues of IF",
            false => "",
        };
        let message = format!("{name} cannot be captured together with other interfaces{more}");
        return Err(MakeError::new("expression", message));
    }
    if let Some(at) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        return Err(MakeError::new("expression", format!("{} is named twice", names[at])));
    }
    if names.len() > 1 && settings.flag("lookback")? {
        let message = "frames of several interfaces are not held; name one interface";
        return Err(MakeError::new("lookback", message));
    }
    if name == "ring:" {
        return Err(MakeError::new("expression", "the path of the ring is missing (ring:PATH)"));
    }
    if name == "serve:" {
        return Err(MakeError::new(
            "expression",
            "the name of the service is missing (serve:NAME)",
        ));
    }
    if user(settings)?.is_some() && !is_shared(name) {
        let message = "is for `ring:PATH` and `serve:NAME`, not for an interface";
        return Err(MakeError::new("user", message));
    }
    if settings.text("link").is_some() && is_shared(name) {
        let of = if name.starts_with("ring:") { "a ring" } else { "a service" };
        return Err(MakeError::new("link", format!("{of} has its own link type")));
    }
    if settings.flag("classes")? && names.len() > 1 {
        let message = "several workers read one interface; write a device for each";
        return Err(MakeError::new("classes", message));
    }
    options(settings, name).map(drop)
}

/// The class.
pub const CLASS: Class = Class {
    name: "device",
    summary: "frames of the interface `expression`; `any` for all, ring:PATH, serve:NAME, xdp:IF",
    parameters: &[
        Parameter { name: "expression", summary: "interfaces, `any`, ring:, serve:, xdp:" },
        Parameter { name: "snaplen", summary: "bytes of a frame that filters, too, see (262144)" },
        Parameter { name: "link", summary: "for `any`: LINUX_SLL or LINUX_SLL2 (default)" },
        Parameter { name: "promiscuous", summary: "n: only frames addressed to this machine" },
        Parameter { name: "buffer", summary: "KiB of the capture ring, of each worker's (32768)" },
        Parameter { name: "user", summary: "also reads rings and services of this user" },
        Parameter { name: "immediate", summary: "y: frames within 1 ms, whatever the delay" },
        Parameter { name: "delay", summary: "ms (20) that frames may wait for a block to fill" },
        Parameter { name: "take", summary: "y: for xdp:IF, also where the host needs the frames" },
        Parameter { name: "classes", summary: "y: a worker for each class of a demultiplexer" },
        Parameter { name: "lookback", summary: "y: hold frames for filters that look back" },
    ],
    kind: Kind::Source,
    check: Some(check),
    open: |settings| {
        let name = settings.required("expression")?;
        if let Some(path) = name.strip_prefix("ring:") {
            let source = SharedSource::connect(name, Path::new(path), user(settings)?);
            let source = source.map_err(|error| MakeError::refused("expression", error))?;
            return Ok(Box::new(source) as Box<dyn Source>);
        }
        if is_shared(name) || is_xdp(name) {
            let message = format!("this program does not read {name}");
            return Err(MakeError::new("expression", message));
        }
        let mut sources = Vec::new();
        let mut window_ms = SLACK_MS;
        for name in names(settings) {
            let options = options(settings, name)?;
            window_ms = SLACK_MS + 2 * options.retire_ms;
            let source = RingSource::open(options);
            let source = source.map_err(|error| MakeError::refused("expression", error))?;
            sources.push(Box::new(source) as Box<dyn Source>);
        }
        let window = Duration::from_millis(window_ms.into());
        match sources.len() {
            1 => Ok(sources.remove(0)),
            _ => Ok(Box::new(MergedSource::new(sources, window)) as Box<dyn Source>),
        }
    },
    // Frames of several interfaces are merged by one thread.
    shares: |settings| matches!(names(settings)[..], [name] if !is_shared(name) && !is_xdp(name)),
    open_shares: |settings, workers| {
        let name = settings.required("expression")?;
        // Workers put their frames into the order of time, for which no ring may be late.
        let options = options_with(settings, name, RingOptions::default().retire_ms)?;
        let options = RingOptions { by_class: settings.flag("classes")?, ..options };
        let opened = RingGroup::open(&options, workers);
        let (group, shares) = opened.map_err(|error| MakeError::refused("expression", error))?;
        let shares = shares.into_iter().map(|share| Box::new(share) as Box<dyn Source>);
        Ok((Box::new(group), shares.collect()))
    },
    opens: |_| Opens::Device,
    ..Class::NODE
};
