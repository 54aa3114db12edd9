//! Options with a state: `flow`, `flowbits`, `xbits`, `threshold`, `detection_filter`, and the application of a flow.

use super::number::{Ends, bound, within};
use super::{Builder, Dialect};
use crate::buffer::Application;
use crate::read::RawOption;
use crate::rule::{BitTest, Change, FlowCount, Mark, Owner, Side, Threshold, ThresholdKind};
use crate::rule::{Track, Unit};
use std::sync::Arc;

/// Most names in all bit options of a rule.
const MAX_NAMES: usize = 64;
/// Time for which `xbits` are set without `expire`, in seconds.
const EXPIRES_S: u64 = 30;

impl Builder {
    /// Reads an option of this file; false if it is none.
    pub(super) fn state_option(&mut self, option: &RawOption) -> Result<bool, String> {
        let text = option.text();
        match &*option.name {
            "flow" => self.flow(text?)?,
            "flowbits" => self.flow_bits(text?)?,
            "xbits" => self.host_bits(text?)?,
            "noalert" => self.rule.silent = true,
            "threshold" => self.threshold(text?)?,
            "detection_filter" => self.detection_filter(text?)?,
            "stream_size" => self.stream_size(text?)?,
            name if name.starts_with("flow.pkts") || name.starts_with("flow.bytes") => {
                self.flow_count(name, text?)?;
            }
            "app-layer-protocol" => {
                let text = text?.trim();
                let (wanted, name) = match text.strip_prefix('!') {
                    Some(name) => (false, name),
                    None => (true, text),
                };
                let application = Application::from_name(name);
                let application =
                    application.ok_or_else(|| format!("{name} is not recognised in traffic"))?;
                let known = &mut self.rule.flow.applications[application as usize];
                if known.replace(wanted).is_some() {
                    return Err(format!("{name} is given twice"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn flow(&mut self, text: &str) -> Result<(), String> {
        let flow = &mut self.rule.flow;
        for part in text.split(',').map(str::trim) {
            let before = *flow;
            match &*part.to_ascii_lowercase() {
                "established" => flow.established = Some(true),
                "not_established" => flow.established = Some(false),
                "stateless" => {}
                "to_server" | "from_client" | "toserver" | "fromclient" => {
                    flow.to_server = Some(true)
                }
                "to_client" | "from_server" | "toclient" | "fromserver" => {
                    flow.to_server = Some(false)
                }
                "only_stream" => self.only_streams = true,
                "no_stream" => self.only_packets = Some("no_stream"),
                "no_frag" | "only_frag" => {
                    return Err(format!("{part}: packets are not put together from fragments"));
                }
                _ => return Err(format!("{part} is not judged")),
            }
            let twice = |before: Option<bool>, now: Option<bool>| before.is_some() && before != now;
            if twice(before.established, flow.established)
                || twice(before.to_server, flow.to_server)
            {
                return Err(format!("{part} contradicts a word before it"));
            }
        }
        Ok(())
    }

    /// `flow.pkts:toserver,>10`, or `flow.pkts_toserver:>10`.
    fn flow_count(&mut self, name: &str, text: &str) -> Result<(), String> {
        let unit = if name.contains("pkts") { Unit::Packets } else { Unit::PacketBytes };
        let (word, number) = match name.split_once('_') {
            Some((_, word)) => (word, text),
            None => text.split_once(',').ok_or("expected a direction and a number")?,
        };
        let side = match word.trim() {
            "toserver" => Side::Client,
            "toclient" => Side::Server,
            "either" => Side::Either,
            other => return Err(format!("{other}: expected toserver, toclient or either")),
        };
        let bound = bound(number, u64::MAX >> 1, Ends::Outside)?;
        self.rule.counts.push(FlowCount { unit, side, bound });
        Ok(())
    }

    /// `stream_size:server,>,1000`.
    fn stream_size(&mut self, text: &str) -> Result<(), String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let &[word, operator, number] = &parts[..] else {
            return Err("expected a side, an operator and a number".to_owned());
        };
        let side = match word {
            "client" => Side::Client,
            "server" => Side::Server,
            "both" => Side::Both,
            "either" => Side::Either,
            other => return Err(format!("{other}: expected client, server, both or either")),
        };
        let operator = if operator == "!=" { "!" } else { operator };
        if !matches!(operator, "<" | ">" | "=" | "<=" | ">=" | "!") {
            return Err(format!("{operator} is no operator"));
        }
        let bound = bound(&format!("{operator}{number}"), u32::MAX.into(), Ends::Outside)?;
        self.rule.counts.push(FlowCount { unit: Unit::StreamBytes, side, bound });
        Ok(())
    }

    fn flow_bits(&mut self, text: &str) -> Result<(), String> {
        let (word, names) = text.split_once(',').unwrap_or((text, ""));
        if word.trim() == "noalert" {
            self.rule.silent = true;
            return Ok(());
        }
        if word.trim() == "reset" {
            return Err("reset is not judged".to_owned());
        }
        let names = names.trim();
        if names.contains(',') {
            return Err("groups of names are not judged".to_owned());
        }
        // Snort joins names that must all be set by `&`.
        let all = if self.dialect == Dialect::Suricata {
            vec![names]
        } else {
            names.split('&').collect()
        };
        for names in all {
            self.bit(word.trim(), Owner::Flow, bit_names(names)?, u64::MAX)?;
        }
        Ok(())
    }

    /// `xbits:set,NAME,track ip_src,expire 60`.
    fn host_bits(&mut self, text: &str) -> Result<(), String> {
        let mut parts = text.split(',').map(str::trim);
        let word = parts.next().unwrap_or_default();
        if word == "noalert" {
            self.rule.silent = true;
            return Ok(());
        }
        let name = bit_names(parts.next().unwrap_or_default())?;
        let (mut owner, mut expires_s) = (None, EXPIRES_S);
        for part in parts {
            match part.split_once(char::is_whitespace).map(|(name, value)| (name, value.trim())) {
                Some(("track", "ip_src")) => owner = Some(Owner::Source),
                Some(("track", "ip_dst")) => owner = Some(Owner::Destination),
                Some(("track", "ip_pair")) => owner = Some(Owner::Pair),
                Some(("expire", seconds)) => expires_s = within(seconds, 1, 86_400 * 365)? as u64,
                _ => return Err(format!("{part} is not judged")),
            }
        }
        let owner = owner.ok_or("expected track ip_src, ip_dst or ip_pair")?;
        self.bit(word, owner, name, expires_s.saturating_mul(1_000_000_000))
    }

    fn bit(
        &mut self,
        word: &str,
        owner: Owner,
        names: Vec<Arc<str>>,
        expires_ns: u64,
    ) -> Result<(), String> {
        if self.rule.bits.len() + self.rule.marks.len() + names.len() > MAX_NAMES {
            return Err(format!("more than {MAX_NAMES} names"));
        }
        let change = match word {
            "set" => Change::Set,
            "unset" => Change::Unset,
            "toggle" => Change::Toggle,
            "isset" | "isnotset" => {
                self.rule.bits.push(BitTest { owner, names, set: word == "isset" });
                return Ok(());
            }
            other => return Err(format!("{other} is not judged")),
        };
        let marks = names.into_iter().map(|name| Mark { owner, name, change, expires_ns });
        self.rule.marks.extend(marks);
        Ok(())
    }

    fn threshold(&mut self, text: &str) -> Result<(), String> {
        let mut kind = None;
        let rest = self.limits(text, |name, value| {
            if name != "type" {
                return Ok(false);
            }
            kind = Some(match value {
                "limit" => ThresholdKind::Limit,
                "threshold" => ThresholdKind::Every,
                "both" => ThresholdKind::Both,
                other => return Err(format!("the type {other} is not judged")),
            });
            Ok(true)
        })?;
        let kind = kind.ok_or("expected type limit, threshold or both")?;
        self.set_threshold(kind, rest)
    }

    fn detection_filter(&mut self, text: &str) -> Result<(), String> {
        let rest = self.limits(text, |_, _| Ok(false))?;
        self.set_threshold(ThresholdKind::Detection, rest)
    }

    fn set_threshold(
        &mut self,
        kind: ThresholdKind,
        (track, count, time_ns): (Track, u32, u64),
    ) -> Result<(), String> {
        if self.rule.threshold.replace(Threshold { kind, track, count, time_ns }).is_some() {
            return Err("the alerts have a limit already".to_owned());
        }
        Ok(())
    }

    /// `track by_src, count 5, seconds 60`, in any order.
    fn limits(
        &self,
        text: &str,
        mut other: impl FnMut(&str, &str) -> Result<bool, String>,
    ) -> Result<(Track, u32, u64), String> {
        let (mut track, mut count, mut seconds) = (None, None, None);
        for part in text.split(',').map(str::trim) {
            let (name, value) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let value = value.trim();
            if other(name, value)? {
                continue;
            }
            match name {
                "track" => {
                    track = Some(match value {
                        "by_src" => Track::Source,
                        "by_dst" => Track::Destination,
                        "by_both" => Track::Both,
                        "by_rule" => Track::Rule,
                        "by_flow" => Track::Flow,
                        other => return Err(format!("track {other} is not judged")),
                    });
                }
                "count" => count = Some(within(value, 1, u32::MAX.into())? as u32),
                "seconds" => seconds = Some(within(value, 1, u32::MAX.into())? as u64),
                _ => return Err(format!("{part} is not judged")),
            }
        }
        match (track, count, seconds) {
            (Some(track), Some(count), Some(seconds)) => {
                Ok((track, count, seconds * 1_000_000_000))
            }
            _ => Err("expected track, count and seconds".to_owned()),
        }
    }
}

/// Names separated by `|`.
fn bit_names(text: &str) -> Result<Vec<Arc<str>>, String> {
    let names = text.split('|').map(str::trim);
    let is_name = |name: &str| !name.is_empty() && !name.contains([' ', '\t', '"']);
    let names: Vec<&str> = names.collect();
    match names.iter().find(|name| !is_name(name)) {
        Some(wrong) => Err(format!("\"{wrong}\" is no name")),
        None => Ok(names.into_iter().map(Arc::from).collect()),
    }
}
