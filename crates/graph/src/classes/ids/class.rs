//! Class `ids`: judges frames by rules of Snort and Suricata; passes those that lead to an alert.
//!
//! The engine is that of `fyke ids` ([`fyke_ids`]), with the same alerts and counts. Alerts at the end of a stream
//! have no frame. Cost: about 1 µs a frame.

use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens};
use crate::node::{Parameter, Settings};
use fyke_capture::{Output, PRIVATE};
use fyke_frame::Mask;
use fyke_ids::engine::Policies;
use fyke_ids::{Alert, Checksums, Counters, Dialect, Engine, Index, Kinds, Limits, RuleFiles};
use fyke_ids::{Variables, eve};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes that wait before the node takes no more frames.
const BUFFER: usize = 1 << 18;
/// Most rules that are shown with their matches.
const MAX_ENTRIES: usize = 1000;

struct Ids {
    engine: Engine,
    eve: Option<(Output, eve::Options)>,
    refused: u64,
    is_finished: bool,
}

impl Ids {
    /// Writes the records since the last call.
    fn write_records(&mut self) {
        let lines = self.engine.take_records();
        if let Some((out, _)) = &mut self.eve {
            lines.iter().for_each(|line| write(out, line));
        }
    }

    fn drain(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let Some((out, _)) = &mut self.eve else { return Ok(true) };
        out.drain(Some(patience)).map_err(NodeError::new)
    }

    fn is_full(&self) -> bool {
        self.eve.as_ref().is_some_and(|(out, _)| out.waiting() >= BUFFER)
    }
}

fn write(out: &mut Output, line: &str) {
    out.buffer().extend_from_slice(line.as_bytes());
    out.buffer().push(b'\n');
    out.mark(true);
}

/// Writes an alert, if there is a file for it.
fn tell(eve: &mut Option<(Output, eve::Options)>, alert: &Alert<'_>) {
    if let Some((out, options)) = eve {
        write(out, &eve::line(alert, *options));
    }
}

impl Node for Ids {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            let Ids { engine, eve, .. } = self;
            engine.frame(frame, &mut |alert| {
                passed.set(index);
                tell(eve, alert);
            });
            self.write_records();
        }
        if self.is_full() {
            self.drain(Duration::ZERO)?;
        }
        Ok(passed)
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.drain(Duration::ZERO).map(drop)
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        if self.is_full() || self.is_finished { self.drain(patience) } else { Ok(true) }
    }

    fn give_up(&mut self) {
        if let Some((out, _)) = &mut self.eve {
            out.give_up();
        }
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let Ids { engine, eve, .. } = self;
        engine.finish(&mut |alert| tell(eve, alert));
        self.write_records();
        while self.engine.end_flow() {
            self.write_records();
        }
        self.is_finished = true;
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let Counters { judged, fragments, damaged, other, flows, forgotten, .. } =
            self.engine.counters();
        let Counters { messages, matches, alerts, held_back, silent, .. } = self.engine.counters();
        let Counters { limited, suspended, unjudged, .. } = self.engine.counters();
        let lost = self.eve.as_ref().map_or(0, |(out, _)| out.lost());
        let counts = [
            ("judged", judged),
            ("fragments", fragments),
            ("wrong_checksum", damaged),
            ("not_ip", other),
            ("flows", flows),
            ("forgotten_flows", forgotten),
            ("messages", messages),
            ("matches", matches),
            ("alerts", alerts),
            ("held_back", held_back),
            ("silent", silent),
            ("at_a_limit", limited),
            ("suspended", suspended),
            ("over_budget", unjudged),
            ("lost_lines", lost),
        ];
        let rules = [("rules", self.engine.rules().len() as u64), ("refused_rules", self.refused)];
        let rules = rules.into_iter().map(|(name, count)| Counter::count(name, count).state());
        rules.chain(counts.into_iter().map(|(name, count)| Counter::count(name, count))).collect()
    }

    /// The rules that have matched.
    fn entries(&self) -> Vec<(String, u64)> {
        let rules = self.engine.rules().iter();
        let matched = rules.filter_map(|armed| {
            let (rule, matches) = (&armed.rule, armed.matches.load(Ordering::Relaxed));
            let name = || format!("[{}:{}:{}] {}", rule.gid, rule.sid, rule.rev, rule.message);
            (matches > 0).then(|| (name(), matches))
        });
        matched.take(MAX_ENTRIES).collect()
    }
}

fn values<'s>(settings: &'s Settings, name: &str) -> impl Iterator<Item = &'s str> {
    let pairs = settings.pairs().iter().filter(move |(key, _)| key == name);
    pairs.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

/// Kinds of records, with commas between them.
fn kinds(settings: &Settings) -> Result<Kinds, MakeError> {
    let mut kinds = Kinds::default();
    for word in settings.text("records").unwrap_or_default().split(',').map(str::trim) {
        match word {
            "" => {}
            "flow" => kinds.flow = true,
            "dns" => kinds.dns = true,
            "tls" => kinds.tls = true,
            "http" => kinds.http = true,
            "packet" => kinds.packet = true,
            other => {
                let message = format!("{other:?} is none of: flow, dns, tls, http, packet");
                return Err(MakeError::new("records", message));
            }
        }
    }
    if settings.text("eve").is_none() {
        let given = ["records", "payload"].into_iter().find(|name| settings.text(name).is_some());
        if let Some(name) = given {
            return Err(MakeError::new(name, "it needs `eve=…`, the file that has the lines"));
        }
    }
    Ok(kinds)
}

fn limits(settings: &Settings) -> Result<Limits, MakeError> {
    let checksums = [Checksums::Learned, Checksums::Required, Checksums::Ignored];
    Ok(Limits {
        bytes: (settings.number_or("memory", 1..=1 << 20, 512)? as usize) << 20,
        midstream: settings.flag("midstream")?,
        one_direction: settings.flag("one_direction")?,
        ignore_vlan: settings.flag("ignore_vlan")?,
        checksums: checksums[settings.choice("checksums", &["auto", "yes", "no"])?],
        ..Limits::default()
    })
}

fn policies(settings: &Settings) -> Result<Policies, MakeError> {
    let mut policies = Policies::default();
    for text in values(settings, "policy") {
        policies.add(text).map_err(|error| MakeError::new("policy", error).of(text))?;
    }
    Ok(policies)
}

fn rules(settings: &Settings) -> Result<RuleFiles, MakeError> {
    settings.required("expression")?;
    let mut variables = Variables::default();
    for text in values(settings, "set") {
        variables.set(text).map_err(|error| MakeError::new("set", error).of(text))?;
    }
    let dialect = match settings.choice("language", &["auto", "suricata", "snort2", "snort3"])? {
        0 => None,
        1 => Some(Dialect::Suricata),
        2 => Some(Dialect::Snort2),
        _ => Some(Dialect::Snort3),
    };
    let files: Vec<PathBuf> = values(settings, "expression").map(PathBuf::from).collect();
    let found = RuleFiles::read(&files, dialect, &variables, &mut |_| ()).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        MakeError::refused("expression", format!("{error}: {}", cause.unwrap_or_default()))
    })?;
    if found.rules.is_empty() {
        let total = found.total;
        let message =
            format!("none of {total} rules can be judged; `fyke snort2ruler` gives the reasons");
        return Err(MakeError::new("expression", message));
    }
    Ok(found)
}

fn check(settings: &Settings) -> Result<(), MakeError> {
    kinds(settings)?;
    limits(settings)?;
    policies(settings)?;
    settings.flag("payload")?;
    rules(settings).map(drop)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let RuleFiles { rules, refused, .. } = rules(settings)?;
    let mut engine =
        Engine::with_policies(Index::new(rules), limits(settings)?, policies(settings)?);
    engine.record(kinds(settings)?);
    let options = eve::Options { payload: settings.flag("payload")? };
    let eve = match settings.text("eve") {
        None => None,
        Some(path) => {
            let out = fyke_capture::create_output(Path::new(path), PRIVATE);
            Some((out.map_err(|error| MakeError::refused("eve", error))?, options))
        }
    };
    Ok(Box::new(Ids { engine, eve, refused: refused as u64, is_finished: false }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "ids",
    aliases: &["snort", "suricata"],
    summary: "judges frames by the Snort or Suricata rules in `expression`; passes those with an alert",
    parameters: &[
        Parameter { name: "expression", summary: "a file of rules; may be repeated" },
        Parameter { name: "eve", summary: "file for alerts as JSON lines; - = standard output" },
        Parameter { name: "records", summary: "also write: flow,dns,tls,http,packet (none)" },
        Parameter { name: "payload", summary: "y: alerts have the payload, in base 64" },
        Parameter { name: "set", summary: "a variable, such as HOME_NET=10.0.0.0/8; repeatable" },
        Parameter { name: "language", summary: "auto (default), suricata, snort2 or snort3" },
        Parameter { name: "midstream", summary: "y: judge streams without a beginning" },
        Parameter {
            name: "one_direction",
            summary: "y: judge established connections of which one direction is captured",
        },
        Parameter { name: "ignore_vlan", summary: "y: tags do not make connections different" },
        Parameter { name: "checksums", summary: "leave out wrong ones: auto (default), yes, no" },
        Parameter { name: "policy", summary: "bytes that count in overlaps: first (default), …" },
        Parameter { name: "memory", summary: "most MiB of flows with what they hold (512)" },
    ],
    ordered: |_| true,
    lasting: true,
    waits: true,
    check: Some(check),
    make,
    opens: |_| Opens::File,
    ..Class::NODE
};
