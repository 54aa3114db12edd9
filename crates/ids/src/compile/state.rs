//! Options with a state: `flow`, `threshold`, `detection_filter`, and the application of a flow.

use super::Builder;
use super::number::{Ends, bound, within};
use crate::buffer::Application;
use crate::read::RawOption;
use crate::rule::{FlowCount, Side, Threshold, ThresholdKind, Track, UniquePort, Unit};

/// Most different ports that `unique_on` counts.
const MAX_UNIQUE: u32 = 256;

impl Builder {
    /// Reads an option of this file; false if it is none.
    pub(super) fn state_option(&mut self, option: &RawOption) -> Result<bool, String> {
        let text = option.text();
        match &*option.name {
            "flow" => self.flow(text?)?,
            "noalert" | "alert" => {
                let alerts = option.name == "alert";
                if if alerts { self.rule.silent } else { self.alerts } {
                    return Err("alert and noalert contradict each other".to_owned());
                }
                *(if alerts { &mut self.alerts } else { &mut self.rule.silent }) = true;
            }
            "threshold" => self.threshold(text?)?,
            "detection_filter" => self.detection_filter(text?)?,
            "stream_size" => self.stream_size(text?)?,
            name if name.starts_with("flow.pkts") || name.starts_with("flow.bytes") => {
                self.flow_count(name, text?)?;
            }
            "app-layer-protocol" => {
                let text = text?;
                let (text, mode) = text.split_once(',').unwrap_or((text, "final"));
                let (text, mode) = (text.trim(), mode.trim());
                // A flow has one application here, whichever direction shows it.
                if mode != "final" && (mode != "either" || text.starts_with('!')) {
                    return Err(format!("the mode {mode} is not judged"));
                }
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
        self.set_threshold(kind, None, rest)
    }

    fn detection_filter(&mut self, text: &str) -> Result<(), String> {
        let mut unique = None;
        let rest = self.limits(text, |name, value| {
            if name != "unique_on" {
                return Ok(false);
            }
            unique = Some(match value {
                "src_port" => UniquePort::Source,
                "dst_port" => UniquePort::Destination,
                other => return Err(format!("unique_on {other} is not judged")),
            });
            Ok(true)
        })?;
        if unique.is_some() && rest.1 > MAX_UNIQUE {
            return Err(format!("unique_on with a count over {MAX_UNIQUE} is not judged"));
        }
        self.set_threshold(ThresholdKind::Detection, unique, rest)
    }

    fn set_threshold(
        &mut self,
        kind: ThresholdKind,
        unique: Option<UniquePort>,
        (track, count, time_ns): (Track, u32, u64),
    ) -> Result<(), String> {
        let limit = Threshold { kind, track, count, time_ns, unique };
        if self.rule.threshold.replace(limit).is_some() {
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
