//! Counts of all running fykes in the OpenMetrics text format, for Prometheus and programs that read its format.
//!
//! | family | labels | meaning |
//! |---|---|---|
//! | `fyke_info` | `version`, `source`, `command` | always 1 |
//! | `fyke_up` | | 1 if the process answered, else 0 |
//! | `fyke_epoch`, `fyke_uptime_seconds`, `fyke_paused` | | edits in force, time since the start, 1 in a pause |
//! | `fyke_frames_seen_total`, `…accepted_total`, `…rejected_total`, `…taken_total` | | frames by outcome |
//! | `fyke_frames_lost_total` | `reason` | lost frames; with the outcomes above they add up to `seen` |
//! | `fyke_interface_frames_total` | `interface`, `outcome` | the same for each of several interfaces |
//! | `fyke_edit_seconds` | `le` | histogram of the times from a client's request to its edit being in force |
//! | `fyke_edit_max_seconds` | | the longest of these times |
//! | `fyke_edits_refused_total` | | requests for edits that were refused |
//! | `fyke_filter_accepted_frames_total` | `id`, `filter` | the 100 filters that accepted most; others: `id="rest"` |
//! | `fyke_reader_frames_total` | `id`, `capture`, `user`, `program`, `outcome` | readers of `fyke serve`, see below |
//! | `fyke_reader_unread_frames` | `id`, `capture`, `user`, `program` | their lag: frames that they can still read |
//! | `fyke_node_frames_total` | `id`, `node`, `outcome` | nodes of the graph, at most 100 |
//!
//! Of the readers, the 100 that have lost most have series of their own, and of those without a loss the ones with the
//! most unread frames; the others are one, `id="rest"`. Every sample has the label `pid`. Label values have at most
//! 100 characters, so the number of series and the size of an answer are bounded. Source of the format: OpenMetrics
//! 1.0, the text format.

mod edits;
mod exporter;
mod filters;
mod older;
mod others;
mod readers;

pub use exporter::{Exporter, ListenError};
pub use older::older_format;
pub use others::Others;

use fyke_control::{Client, Instance, NodeCount, Request, Response, Stats};
use std::fmt::Write;
use std::time::Duration;

/// Content type of the answer.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Most running fykes in one answer.
const MAX_FYKES: usize = 64;
/// Most filters, and most nodes, of one fyke with series of their own.
const MAX_SERIES: usize = 100;
/// Most characters of a label value.
const MAX_CHARS: usize = 100;
/// Time limit for the counts of one fyke; one that is slower is not up.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Reads the counts of the running fykes (only of one, if `pid` names it) and returns them as text. `others` belongs to
/// all answers of a server.
pub fn collect(pid: Option<u32>, others: &mut Others) -> String {
    let mut running = fyke_control::list();
    running.retain(|instance| pid.is_none_or(|pid| pid == instance.pid));
    running.truncate(MAX_FYKES);
    // One that is slow does not delay the others.
    let read = std::thread::scope(|scope| {
        let threads = running.iter().map(|instance| scope.spawn(move || counts(instance)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(None)).collect::<Vec<_>>()
    });
    let fykes: Vec<Fyke<'_>> = running
        .iter()
        .zip(&read)
        .map(|(instance, stats)| Fyke { instance, stats: stats.as_ref() })
        .collect();
    others.forget_all_but(&running);
    render(&fykes, others)
}

fn counts(instance: &Instance) -> Option<Stats> {
    let mut client = Client::connect_to(&instance.socket).ok()?;
    client.set_answer_limit(ANSWER_LIMIT);
    match client.call(Request::Stats) {
        Ok(Response::Stats(stats)) => Some(stats),
        _ => None,
    }
}

/// A running fyke and its counts, if it answered.
struct Fyke<'a> {
    instance: &'a Instance,
    stats: Option<&'a Stats>,
}

/// A family of samples: its lines must be together.
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

fn render(fykes: &[Fyke<'_>], others: &mut Others) -> String {
    let mut text = String::new();
    let info = Family { name: "fyke", kind: "info", help: "A running fyke." };
    head(&mut text, &info);
    for fyke in fykes {
        if let Some(it) = &fyke.instance.description {
            let labels = [
                ("version", it.version.as_str()),
                ("source", it.source.as_str()),
                ("command", &it.command_line.join(" ")),
            ];
            sample(&mut text, "fyke_info", fyke.instance.pid, &labels, 1);
        }
    }
    head(
        &mut text,
        &Family { name: "fyke_up", kind: GAUGE, help: "1 if the process answered, else 0." },
    );
    for fyke in fykes {
        sample(&mut text, "fyke_up", fyke.instance.pid, &[], u64::from(fyke.stats.is_some()));
    }
    let known: Vec<(u32, &Stats)> =
        fykes.iter().filter_map(|fyke| Some((fyke.instance.pid, fyke.stats?))).collect();
    single_values(&mut text, &known);
    lost(&mut text, &known);
    interfaces(&mut text, &known);
    edits::samples(&mut text, &known);
    filters::samples(&mut text, &known, others);
    readers::samples(&mut text, &known, others);
    nodes(&mut text, &known);
    text.push_str("# EOF\n");
    text
}

type ValueOf = fn(&Stats) -> u64;

fn single_values(text: &mut String, known: &[(u32, &Stats)]) {
    let families: [(Family<'_>, ValueOf); 6] = [
        (Family { name: "fyke_epoch", kind: GAUGE, help: "Number of edits in force." }, |stats| {
            stats.epoch
        }),
        (
            Family { name: "fyke_paused", kind: GAUGE, help: "1 while the capture is paused." },
            |stats| u64::from(stats.paused),
        ),
        (
            Family {
                name: "fyke_frames_seen",
                kind: COUNTER,
                help: "Frames that reached the source.",
            },
            |stats| stats.accounting.seen,
        ),
        (
            Family {
                name: "fyke_frames_accepted",
                kind: COUNTER,
                help: "Frames that were accepted.",
            },
            |stats| stats.accounting.delivered,
        ),
        (
            Family {
                name: "fyke_frames_rejected",
                kind: COUNTER,
                help: "Frames that were rejected.",
            },
            |stats| stats.accounting.rejected,
        ),
        (
            Family {
                name: "fyke_frames_taken",
                kind: COUNTER,
                help: "Frames that a node holds or has replaced by others.",
            },
            |stats| stats.accounting.taken,
        ),
    ];
    for (family, value) in &families {
        head(text, family);
        let name = match family.kind {
            COUNTER => format!("{}_total", family.name),
            _ => family.name.to_owned(),
        };
        for (pid, stats) in known {
            sample(text, &name, *pid, &[], value(stats));
        }
    }
    let help = "Time since the start.";
    let uptime = Family { name: "fyke_uptime_seconds", kind: GAUGE, help };
    head(text, &uptime);
    text.push_str("# UNIT fyke_uptime_seconds seconds\n");
    for (pid, stats) in known {
        let seconds = seconds(stats.uptime_ms.saturating_mul(1_000_000));
        let _ = writeln!(text, "fyke_uptime_seconds{{pid=\"{pid}\"}} {seconds}");
    }
}

fn lost(text: &mut String, known: &[(u32, &Stats)]) {
    let help = "Frames that were lost, by reason.";
    head(text, &Family { name: "fyke_frames_lost", kind: COUNTER, help });
    for (pid, stats) in known {
        for (reason, frames) in &stats.accounting.lost {
            sample(text, "fyke_frames_lost_total", *pid, &[("reason", reason)], *frames);
        }
    }
}

fn interfaces(text: &mut String, known: &[(u32, &Stats)]) {
    let help = "Frames of each of several interfaces, by outcome.";
    head(text, &Family { name: "fyke_interface_frames", kind: COUNTER, help });
    for (pid, stats) in known {
        for one in stats.accounting.interfaces.iter().take(MAX_SERIES) {
            let counts = &one.accounting;
            let lost = counts.lost.values().fold(0, |sum: u64, lost| sum.saturating_add(*lost));
            for (outcome, frames) in [
                ("accepted", counts.delivered),
                ("rejected", counts.rejected),
                ("taken", counts.taken),
                ("lost", lost),
            ] {
                let labels = [("interface", one.interface.as_str()), ("outcome", outcome)];
                sample(text, "fyke_interface_frames_total", *pid, &labels, frames);
            }
        }
    }
}

fn nodes(text: &mut String, known: &[(u32, &Stats)]) {
    let help = "Frames that arrived at a node of the graph, by outcome.";
    head(text, &Family { name: "fyke_node_frames", kind: COUNTER, help });
    for (pid, stats) in known {
        for node in stats.nodes.iter().take(MAX_SERIES) {
            node_samples(text, *pid, node);
        }
    }
}

fn node_samples(text: &mut String, pid: u32, node: &NodeCount) {
    let id = node.id.to_string();
    for (outcome, frames) in [
        ("passed", node.passed),
        ("rejected", node.rejected),
        ("taken", node.taken),
        ("lost", node.lost),
    ] {
        let labels = [("id", &*id), ("node", &node.node), ("outcome", outcome)];
        sample(text, "fyke_node_frames_total", pid, &labels, frames);
    }
}

fn head(text: &mut String, family: &Family<'_>) {
    let Family { name, kind, help } = family;
    let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}");
}

/// Nanoseconds as seconds: a decimal number without a loss, with at least three digits after the point.
fn seconds(ns: u64) -> String {
    let digits = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let whole = digits.len() - 6;
    digits[..whole.max(digits.trim_end_matches('0').len())].to_owned()
}

fn sample(text: &mut String, name: &str, pid: u32, labels: &[(&str, &str)], value: u64) {
    sample_of(text, name, pid, labels, &value.to_string());
}

/// A sample with its value as text.
fn sample_of(text: &mut String, name: &str, pid: u32, labels: &[(&str, &str)], value: &str) {
    let _ = write!(text, "{name}{{pid=\"{pid}\"");
    for (label, value) in labels {
        let _ = write!(text, ",{label}=\"");
        for letter in value.chars().take(MAX_CHARS) {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter if letter.is_control() => text.push(char::REPLACEMENT_CHARACTER),
                letter => text.push(letter),
            }
        }
        text.push('"');
    }
    let _ = writeln!(text, "}} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_control::{EditTimes, EditsWithin, EntryKind, FilterCount, ReaderCount};
    use std::collections::{BTreeMap, BTreeSet};

    fn stats() -> Stats {
        let filters = (0..1_000).map(|id| FilterCount {
            id: id + 1,
            text: format!("host \"a\\{id}\n\" {}", "x".repeat(1_000)),
            accepted: id,
            ..FilterCount::default()
        });
        let nodes = (0..1_000).map(|id| NodeCount { id, ..NodeCount::default() });
        let mut stats =
            Stats { filters: filters.collect(), nodes: nodes.collect(), ..Stats::default() };
        stats.accounting.seen = 3;
        stats.accounting.delivered = 1;
        stats.accounting.lost = BTreeMap::from([("ring full".to_owned(), 2)]);
        stats.uptime_ms = 61_005;
        let within =
            [(50_000, 1), (10_000_000_000, 3)].map(|(ns, edits)| EditsWithin { ns, edits });
        stats.edits = Some(Box::new(EditTimes {
            edits: 4,
            refused: 2,
            sum_ns: 21_000_003_001,
            max_ns: 12_500_000_000,
            within: within.into(),
        }));
        let reader = |id| ReaderCount {
            id,
            capture: "eth0".into(),
            user: 7,
            program: format!("p\"{}", "y".repeat(1_000)),
            accepted: 10,
            rejected: 20,
            unread: id,
            lost: u64::from(id == 3) * 9,
            ..ReaderCount::default()
        };
        stats.readers = (1..=256).map(reader).collect();
        // As a service lists them: each text has counts.
        stats.filters.push(FilterCount {
            id: 2_000,
            text: "(every frame), 5 unread".into(),
            kind: EntryKind::Reader,
            ..FilterCount::default()
        });
        stats
    }

    #[test]
    fn samples_are_bounded_escaped_and_grouped_by_family() {
        let instance = Instance { pid: 7, socket: "/x".into(), description: None };
        let stats = stats();
        let silent = Instance { pid: 8, socket: "/y".into(), description: None };
        let fykes = [
            Fyke { instance: &instance, stats: Some(&stats) },
            Fyke { instance: &silent, stats: None },
        ];
        let text = render(&fykes, &mut Others::default());
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        assert!(text.len() < 250 << 10, "{} bytes", text.len());
        assert!(!text.contains("5 unread"), "the text of a reader is no label");
        for line in [
            "fyke_up{pid=\"7\"} 1",
            "fyke_up{pid=\"8\"} 0",
            "fyke_frames_seen_total{pid=\"7\"} 3",
            "fyke_frames_lost_total{pid=\"7\",reason=\"ring full\"} 2",
            "fyke_uptime_seconds{pid=\"7\"} 61.005",
            "fyke_edit_seconds_bucket{pid=\"7\",le=\"0.00005\"} 1",
            "fyke_edit_seconds_bucket{pid=\"7\",le=\"10.000\"} 3",
            "fyke_edit_seconds_bucket{pid=\"7\",le=\"+Inf\"} 4",
            "fyke_edit_seconds_count{pid=\"7\"} 4",
            "fyke_edit_seconds_sum{pid=\"7\"} 21.000003001",
            "fyke_edit_max_seconds{pid=\"7\"} 12.500",
            "fyke_edits_refused_total{pid=\"7\"} 2",
            "fyke_reader_unread_frames{pid=\"7\",id=\"rest\",capture=\"\",user=\"\",program=\"\"} 12400",
            "fyke_filter_accepted_frames_total{pid=\"7\",id=\"rest\",filter=\"\"} 404550",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.contains("id=\"1000\",filter=\"host \\\"a\\\\999\\n\\\" xxx"), "{text}");
        assert_eq!(text.matches("fyke_node_frames_total{").count(), 4 * MAX_SERIES);
        assert_eq!(text.matches("fyke_reader_frames_total{").count(), 3 * (MAX_SERIES + 1));
        // The reader with a loss is among them, though its lag is small.
        let lost = "id=\"3\",capture=\"eth0\",user=\"7\",program=\"p\\\"yyy";
        assert!(text.contains(lost), "{text}");
        // Each family has its lines together, after its type, and each series is there once.
        let mut families = Vec::new();
        let mut series = BTreeSet::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                families.push(rest.split(' ').next().unwrap());
            } else if !line.starts_with('#') {
                let (name, _) = line.rsplit_once(' ').unwrap();
                assert!(name.starts_with(families.last().unwrap()), "{line}");
                assert!(series.insert(name), "{line} is there twice");
            }
        }
        let distinct: BTreeSet<_> = families.iter().collect();
        assert_eq!(distinct.len(), families.len(), "{families:?}");
    }
}
