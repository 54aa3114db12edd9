//! The registry of trackers: one row for each protocol that can be tracked.
//!
//! `fyke track`, the graphs that it builds and the graph class `track` take their choices, filters
//! and help from [`TRACKERS`]. A new tracker is a file with a [`TrackerKind`] and a row here.

use crate::{Limits, Several, TrackerKind};
use crate::{dcerpc, ftp, h323, irc, mgcp, p2p, pptp, rtsp, sip, skinny, tftp};

/// All trackers; the first one is the default of the graph class `track`.
pub const TRACKERS: &[TrackerKind] = &[
    ftp::KIND,
    sip::KIND,
    rtsp::KIND,
    tftp::KIND,
    pptp::KIND,
    irc::KIND,
    skinny::KIND,
    mgcp::KIND,
    dcerpc::KIND,
    h323::KIND,
    p2p::KIND,
];

/// Returns the tracker of a name; case does not matter.
pub fn find(name: &str) -> Option<&'static TrackerKind> {
    TRACKERS.iter().find(|kind| kind.name.eq_ignore_ascii_case(name))
}

/// Returns the names of all trackers.
pub fn names() -> impl Iterator<Item = &'static str> {
    TRACKERS.iter().map(|kind| kind.name)
}

/// Reads names such as `sip,rtsp`; case does not matter.
///
/// # Errors
/// If one is not known or is there twice.
pub fn parse(text: &str) -> Result<Vec<&'static TrackerKind>, String> {
    let mut kinds: Vec<&'static TrackerKind> = Vec::new();
    for word in text.split(',').map(str::trim) {
        let kind = find(word).ok_or_else(|| {
            let known: Vec<_> = names().collect();
            format!("{word:?} is none of: {}", known.join(", "))
        })?;
        if kinds.iter().any(|other| other.name == kind.name) {
            return Err(format!("{word} is given twice"));
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

/// Makes one tracker of several protocols. `ports` are the control ports, instead of the standard ones; only for one
/// protocol.
pub fn make(kinds: &[&'static TrackerKind], ports: Option<&[u16]>, limits: Limits) -> Several {
    let one = |kind: &&'static TrackerKind| (kind.make)(ports.unwrap_or(&[kind.port]), limits);
    Several::new(kinds.iter().map(one).collect())
}

/// Help of the parameter that chooses a tracker, like `ftp (default), sip`.
pub(crate) const CHOICES: &str = match std::str::from_utf8(&choices::<{ choices_len() }>()) {
    Ok(text) => text,
    Err(_) => panic!("the names are text"),
};

const DEFAULT: &str = " (default)";
const SEPARATOR: &str = ", ";

const fn choices_len() -> usize {
    let mut len = DEFAULT.len();
    let mut row = 0;
    while row < TRACKERS.len() {
        len += TRACKERS[row].name.len();
        len += if row == 0 { 0 } else { SEPARATOR.len() };
        row += 1;
    }
    len
}

const fn choices<const LEN: usize>() -> [u8; LEN] {
    let (mut text, mut at) = append([0; LEN], 0, TRACKERS[0].name);
    (text, at) = append(text, at, DEFAULT);
    let mut row = 1;
    while row < TRACKERS.len() {
        (text, at) = append(text, at, SEPARATOR);
        (text, at) = append(text, at, TRACKERS[row].name);
        row += 1;
    }
    assert!(at == LEN);
    text
}

const fn append<const LEN: usize>(text: [u8; LEN], at: usize, part: &str) -> ([u8; LEN], usize) {
    let (mut text, part) = (text, part.as_bytes());
    let mut index = 0;
    while index < part.len() {
        text[at + index] = part[index];
        index += 1;
    }
    (text, at + index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_are_complete() {
        let mut seen = HashSet::new();
        for kind in TRACKERS {
            let name = kind.name;
            assert!(seen.insert(name), "{name} has two rows");
            assert!(
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            );
            assert!(!kind.summary.is_empty() && !kind.summary.contains('\n'), "{name}");
            assert!(!kind.causes.is_empty(), "{name}");
            let causes: HashSet<_> = kind.causes.iter().collect();
            assert_eq!(causes.len(), kind.causes.len(), "{name}");
            for ports in [&[kind.port][..], &[kind.port, 2_121]] {
                let text = (kind.start_filter)(ports);
                let tracker = (kind.make)(ports, Limits::default());
                assert_eq!((tracker.name(), tracker.start_filter()), (name, text.as_str()));
                fyke_filter::compile(&text, &fyke_filter::Options::default()).expect(&text);
                assert_eq!(tracker.held(), kind.held, "{name}");
                if let Some(held) = kind.held {
                    fyke_filter::compile(held, &fyke_filter::Options::default()).expect(held);
                }
            }
            assert_eq!(find(&name.to_ascii_uppercase()).map(|found| found.name), Some(name));
        }
        assert!(find("gopher").is_none());
    }

    #[test]
    fn the_help_of_the_class_lists_the_registry() {
        let rest = names().skip(1).map(|name| format!(", {name}"));
        assert_eq!(CHOICES, format!("{} (default){}", TRACKERS[0].name, rest.collect::<String>()));
    }
}
