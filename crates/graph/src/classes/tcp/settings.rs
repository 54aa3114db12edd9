//! Parameters of class `tcp`: limits and treatment of streams.

use crate::node::{MakeError, Settings};
use fyke_flow::streams::{Handling, Limits};

/// Most connections at a time.
const MAX_CONNECTIONS: u64 = 1 << 24;
/// Connections at a time by default.
const CONNECTIONS: usize = 65_536;

/// Reads yes or no; `default` if absent.
fn flag(settings: &Settings, name: &'static str, default: bool) -> Result<bool, MakeError> {
    if settings.text(name).is_none() { Ok(default) } else { settings.flag(name) }
}

/// Refuses parameters without a value.
fn check_values(settings: &Settings) -> Result<(), MakeError> {
    let empty = settings.pairs().iter().find(|(_, value)| value.is_empty());
    let Some((name, _)) = empty else { return Ok(()) };
    let known = super::CLASS.parameters.iter().find(|known| known.name == name);
    match known {
        Some(known) => Err(MakeError::new(known.name, "it has no value; leave it out")),
        None => Ok(()),
    }
}

/// Reads limits and treatment; the profile has the defaults.
pub(super) fn read(settings: &Settings) -> Result<(Limits, Handling), MakeError> {
    check_values(settings)?;
    let (defaults, handling) = match settings.choice("profile", &["default", "thesis"])? {
        0 => (Limits { connections: CONNECTIONS, ..Limits::default() }, Handling::default()),
        _ => Handling::thesis(),
    };
    let bytes = |name, default: usize| {
        let number = settings.number_or(name, 1..=1 << 32, default as u64)?;
        Ok::<_, MakeError>(number as usize)
    };
    let seconds = |name, default_ns: u64| {
        let number = settings.number_or(name, 0..=86_400, default_ns / 1_000_000_000)?;
        Ok::<_, MakeError>(number * 1_000_000_000)
    };
    let count = |name, most, default: usize| {
        Ok::<_, MakeError>(settings.number_or(name, 1..=most, default as u64)? as usize)
    };
    let limits = Limits {
        connections: count("connections", MAX_CONNECTIONS, defaults.connections)?,
        direction_bytes: bytes("held", defaults.direction_bytes)?,
        bytes: bytes("memory", defaults.bytes)?,
        gap_ns: seconds("gap", defaults.gap_ns)?,
        idle_ns: seconds("idle", defaults.idle_ns)?,
    };
    let mut policies = handling.policies.clone();
    for (_, text) in settings.pairs().iter().filter(|(name, _)| name == "policy") {
        let added = policies.add(text);
        added.map_err(|error| MakeError::new("policy", error).of(text))?;
    }
    let handling = Handling {
        policies,
        midstream: flag(settings, "midstream", handling.midstream)?,
        renewal: flag(settings, "renewal", handling.renewal)?,
        direction_segments: count("segments", 1 << 20, handling.direction_segments)?,
        ..handling
    };
    Ok((limits, handling))
}
