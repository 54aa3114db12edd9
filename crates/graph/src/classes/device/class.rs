//! Class `device`: frames of a network interface, live, or of a ring in shared memory. Cost: the capture ring's;
//! frames are copied from a ring of another process.

use crate::node::{Class, Kind, MakeError, Parameter, Settings};
use fyke_capture::{RingOptions, RingSource, SharedSource, Source};
use fyke_frame::LinkType;
use std::path::Path;

fn options(settings: &Settings) -> Result<RingOptions, MakeError> {
    let name = settings.required("expression")?;
    let defaults = RingOptions::default();
    let longest = u64::from(defaults.snaplen);
    let snaplen = settings.number_or("snaplen", 1..=longest, longest)?;
    // KiB, in blocks.
    let buffer = settings.number_or("buffer", 1..=4_194_304, 32_768)?;
    let blocks = buffer / u64::from(defaults.block_size / 1024);
    let held = if settings.flag("lookback")? { defaults.look_back_blocks } else { 0 };
    let block_count = blocks.max(4) as u32;
    let link = match settings.text("link") {
        None => None,
        Some(link) => Some(LinkType::from_name(link).ok_or_else(|| {
            MakeError::new("link", format!("unknown link type {link:?}"))
        })?),
    };
    Ok(RingOptions {
        interface: (name != "any").then(|| name.to_owned()),
        link,
        snaplen: snaplen as u32,
        promiscuous: settings.choice("promiscuous", &["y", "n"])? == 0,
        look_back_blocks: held.min(block_count / 2),
        block_count,
        timeout_ms: 20,
        ..defaults
    })
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
    let is_ring = name.starts_with("ring:");
    if name == "ring:" {
        return Err(MakeError::new("expression", "the path of the ring is missing (ring:PATH)"));
    }
    if user(settings)?.is_some() && !is_ring {
        return Err(MakeError::new("user", "is for `ring:PATH`, not for an interface"));
    }
    options(settings).map(drop)
}

/// The class.
pub const CLASS: Class = Class {
    name: "device",
    summary: "frames of the interface `expression`; `any` for all, ring:PATH for a ring",
    parameters: &[
        Parameter { name: "expression", summary: "the interface, `any`, or ring:PATH" },
        Parameter { name: "snaplen", summary: "bytes of a frame that filters, too, see (262144)" },
        Parameter { name: "link", summary: "for `any`: LINUX_SLL or LINUX_SLL2 (default)" },
        Parameter { name: "promiscuous", summary: "n: only frames addressed to this machine" },
        Parameter { name: "buffer", summary: "KiB of the capture ring (32768)" },
        Parameter { name: "user", summary: "also reads rings of this user" },
        Parameter { name: "lookback", summary: "y: hold frames for filters that look back" },
    ],
    kind: Kind::Source,
    check: Some(check),
    open: |settings| {
        let name = settings.required("expression")?;
        if let Some(path) = name.strip_prefix("ring:") {
            if settings.text("link").is_some() {
                return Err(MakeError::new("link", "a ring has its own link type"));
            }
            let source = SharedSource::connect(name, Path::new(path), user(settings)?);
            let source = source.map_err(|error| MakeError::refused("expression", error))?;
            return Ok(Box::new(source) as Box<dyn Source>);
        }
        let source = RingSource::open(options(settings)?);
        let source = source.map_err(|error| MakeError::refused("expression", error))?;
        Ok(Box::new(source) as Box<dyn Source>)
    },
    ..Class::NODE
};
