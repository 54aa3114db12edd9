//! Events as they are sent to a page, one JSON object a line, bounded: the largest entries, and texts cut.

use crate::fleet::{Standing, View};
use fyke_control::{EntryKind, FilterCount, Instance, Label, NodeCount, NodeFeed, Response, Stats};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Most filters in one event.
const MAX_FILTERS: usize = 100;
/// Most nodes in one event.
const MAX_NODES: usize = 256;
/// Most edges to a node.
const MAX_FEEDS: usize = 64;
/// Most characters of a text.
const MAX_CHARS: usize = 500;
/// Most labels of a filter or a sensor of a group.
const MAX_LABELS: usize = 8;
/// Most characters of a name.
const MAX_NAME_CHARS: usize = 64;
/// Most running fykes in the list.
const MAX_FYKES: usize = 64;

/// An event.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Fykes { fykes: Vec<Fyke>, more: usize },
    Counts(Counts<'a>),
    Ended { pid: u32, reason: String },
    Fleet(View),
}

#[derive(Debug, Serialize)]
struct Fyke {
    pid: u32,
    /// Absent if it does not answer.
    command: Option<String>,
    source: Option<String>,
    live: bool,
    started_unix_ms: u64,
}

#[derive(Debug, Serialize)]
struct Counts<'a> {
    pid: u32,
    epoch: u64,
    uptime_ms: u64,
    paused: bool,
    kernel: Option<&'a str>,
    no_counts: Option<&'a str>,
    seen: u64,
    accepted: u64,
    rejected: u64,
    taken: u64,
    lost: u64,
    lost_by_reason: &'a BTreeMap<String, u64>,
    closes: bool,
    rejected_in_kernel: Option<&'a str>,
    nodes: Vec<Node<'a>>,
    more_nodes: usize,
    kept_at: Option<u64>,
    filters: Vec<Filter<'a>>,
    more_filters: usize,
}

#[derive(Debug, Serialize)]
struct Node<'a> {
    id: u64,
    node: String,
    text: String,
    feeds: &'a [NodeFeed],
    arrived: u64,
    passed: u64,
    rejected: u64,
    taken: u64,
    lost: u64,
    failed: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Filter<'a> {
    id: u64,
    kind: EntryKind,
    text: String,
    /// Number of characters of the whole text.
    chars: usize,
    accepted: u64,
    label: Option<&'a Label>,
}

/// The event with the running fykes.
pub fn fykes(running: &[Instance]) -> Vec<u8> {
    let fykes = running.iter().take(MAX_FYKES).map(|instance| {
        let description = instance.description.as_ref();
        Fyke {
            pid: instance.pid,
            command: description.map(|it| cut(&it.command_line.join(" "))),
            source: description.map(|it| cut(&it.source)),
            live: description.is_some_and(|it| it.live),
            started_unix_ms: description.map_or(0, |it| it.started_unix_ms),
        }
    });
    let more = running.len().saturating_sub(MAX_FYKES);
    line(&Event::Fykes { fykes: fykes.collect(), more })
}

/// The event with the counts of a running fyke.
pub fn counts(pid: u32, stats: &Stats) -> Vec<u8> {
    let accounting = &stats.accounting;
    let filters = largest(&stats.filters);
    line(&Event::Counts(Counts {
        pid,
        epoch: stats.epoch,
        uptime_ms: stats.uptime_ms,
        paused: stats.paused,
        kernel: stats.kernel.as_deref(),
        no_counts: stats.no_counts.as_deref(),
        seen: accounting.seen,
        accepted: accounting.delivered,
        rejected: accounting.rejected,
        taken: accounting.taken,
        lost: accounting.lost.values().fold(0, |sum, lost| sum.saturating_add(*lost)),
        lost_by_reason: &accounting.lost,
        closes: accounting.is_exact(),
        rejected_in_kernel: accounting.rejected_in_kernel.as_deref(),
        nodes: stats.nodes.iter().take(MAX_NODES).map(node).collect(),
        more_nodes: stats.nodes.len().saturating_sub(MAX_NODES),
        kept_at: stats.kept_at,
        more_filters: stats.filters.len() - filters.len(),
        filters: filters.into_iter().map(filter).collect(),
    }))
}

/// The event with the counts of a running fyke as a line of `fyke ctl --json watch`, with the same limits.
pub fn lines(pid: u32, stats: &Stats) -> Vec<u8> {
    let largest = largest(&stats.filters);
    let filters: Vec<_> = largest
        .into_iter()
        .map(|filter| FilterCount { text: cut(&filter.text), ..filter.clone() })
        .collect();
    let nodes = stats.nodes.iter().take(MAX_NODES).map(|node| {
        let mut feeds = node.feeds.clone();
        feeds.truncate(MAX_FEEDS);
        NodeCount { node: cut(&node.node), text: cut(&node.text), feeds, ..node.clone() }
    });
    let (more_filters, more_nodes) =
        (stats.filters.len() - filters.len(), stats.nodes.len().saturating_sub(MAX_NODES));
    let bounded = Stats {
        epoch: stats.epoch,
        uptime_ms: stats.uptime_ms,
        accounting: stats.accounting.clone(),
        filters,
        nodes: nodes.collect(),
        own_filter: stats.own_filter.clone(),
        no_counts: stats.no_counts.clone(),
        kernel: stats.kernel.clone(),
        paused: stats.paused,
        kept_at: stats.kept_at,
        edits: stats.edits.clone(),
        readers: stats.readers.iter().take(MAX_FILTERS).cloned().collect(),
    };
    let mut counts = serde_json::to_value(Response::Stats(bounded)).unwrap_or_default();
    counts["target"] = json!({"pid": pid, "source": null});
    let event = json!({
        "event": "counts",
        "pid": pid,
        "more_filters": more_filters,
        "more_nodes": more_nodes,
        "counts": counts,
    });
    format!("{event}\n").into_bytes()
}

/// The event for a running fyke that no longer answers.
pub fn ended(pid: u32, reason: &str) -> Vec<u8> {
    line(&Event::Ended { pid, reason: cut(reason) })
}

/// The event with a group of machines.
pub fn fleet(mut view: View) -> Vec<u8> {
    if let Some(away) = &mut view.away {
        away.reason = cut(&away.reason);
    }
    for filter in &mut view.filters {
        filter.text = cut(&filter.text);
        filter.only = labels(&filter.only);
    }
    for sensor in &mut view.sensors {
        sensor.name = short(&sensor.name);
        sensor.host = short(&sensor.host);
        sensor.source = sensor.source.as_deref().map(short);
        sensor.labels = labels(&sensor.labels);
        sensor.trouble = sensor.trouble.as_deref().map(cut);
        if let Standing::Refused { message } = &mut sensor.standing {
            *message = cut(message);
        }
    }
    line(&Event::Fleet(view))
}

fn labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = labels.iter().take(MAX_LABELS);
    shown.map(|(name, value)| (short(name), short(value))).collect()
}

/// The filters that accepted most, in their own order.
fn largest(filters: &[FilterCount]) -> Vec<&FilterCount> {
    let mut places: Vec<usize> = (0..filters.len()).collect();
    if filters.len() > MAX_FILTERS {
        let count = |place: &usize| std::cmp::Reverse(filters[*place].accepted);
        places.select_nth_unstable_by_key(MAX_FILTERS, count);
        places.truncate(MAX_FILTERS);
        places.sort_unstable();
    }
    places.into_iter().map(|place| &filters[place]).collect()
}

fn filter(count: &FilterCount) -> Filter<'_> {
    Filter {
        id: count.id,
        kind: count.kind,
        text: cut(&count.text),
        chars: count.text.chars().count(),
        accepted: count.accepted,
        label: count.label.as_ref(),
    }
}

fn node(count: &NodeCount) -> Node<'_> {
    Node {
        id: count.id,
        node: cut(&count.node),
        text: cut(&count.text),
        feeds: &count.feeds[..count.feeds.len().min(MAX_FEEDS)],
        arrived: count.arrived,
        passed: count.passed,
        rejected: count.rejected,
        taken: count.taken,
        lost: count.lost,
        failed: count.failed.as_deref(),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

fn short(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

fn line(event: &Event<'_>) -> Vec<u8> {
    // Maps with texts as keys, numbers and texts: nothing that JSON lacks.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{self, Sensor};
    use serde_json::Value;

    #[test]
    fn counts_are_bounded_and_keep_their_sum() {
        let filters = (0..10_000).map(|id| FilterCount {
            id,
            text: "x".repeat(10_000),
            accepted: id % 5_000,
            ..FilterCount::default()
        });
        let nodes = (0..1_000).map(|id| NodeCount { id, ..NodeCount::default() });
        let mut stats =
            Stats { filters: filters.collect(), nodes: nodes.collect(), ..Stats::default() };
        stats.accounting.seen = 3;
        stats.accounting.delivered = 1;
        stats.accounting.lost = BTreeMap::from([("ring".to_owned(), 2)]);
        let line = counts(7, &stats);
        assert!(line.len() < 256 << 10, "{} bytes", line.len());
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&event["event"], &event["pid"]), (&"counts".into(), &7.into()));
        assert_eq!((&event["lost"], &event["closes"]), (&2.into(), &true.into()));
        assert_eq!((&event["more_filters"], &event["more_nodes"]), (&9_900.into(), &744.into()));
        let shown = event["filters"].as_array().unwrap();
        assert!(shown.iter().all(|one| one["accepted"].as_u64().unwrap() >= 4_950), "the largest");
        assert!(shown.is_sorted_by_key(|one| one["id"].as_u64()));
        assert_eq!(
            (&shown[0]["chars"], shown[0]["text"].as_str().map(str::len)),
            (&10_000.into(), Some(MAX_CHARS))
        );
    }

    #[test]
    fn lines_are_bounded_and_keep_their_sum() {
        let filters = (0..10_000).map(|id| FilterCount {
            id,
            text: "x".repeat(10_000),
            ..FilterCount::default()
        });
        let nodes = (0..1_000).map(|id| NodeCount { id, ..NodeCount::default() });
        let mut stats =
            Stats { filters: filters.collect(), nodes: nodes.collect(), ..Stats::default() };
        (stats.epoch, stats.accounting.seen, stats.accounting.rejected) = (4, 3, 3);
        let line = lines(7, &stats);
        assert!(line.len() < 256 << 10, "{} bytes", line.len());
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&event["more_filters"], &event["more_nodes"]), (&9_900.into(), &744.into()));
        let counts = &event["counts"];
        assert_eq!((&counts["response"], &counts["epoch"]), (&"stats".into(), &4.into()));
        assert_eq!(counts["accounting"]["rejected"], 3);
        assert_eq!(counts["target"]["pid"], 7);
    }

    #[test]
    fn a_fleet_is_bounded_whatever_its_sensors_send() {
        let long = "\u{1}".repeat(10_000);
        let labels: BTreeMap<_, _> =
            (0..100).map(|at| (format!("{at}{long}"), long.clone())).collect();
        let sensor = Sensor {
            name: long.clone(),
            host: long.clone(),
            labels: labels.clone(),
            source: Some(long.clone()),
            trouble: Some(long.clone()),
            standing: Standing::Refused { message: long.clone() },
            ..Sensor::default()
        };
        let filter = fleet::Filter { text: long.clone(), only: labels, ..Default::default() };
        let view = View {
            away: Some(fleet::Away { since_unix_ms: 1, reason: long }),
            sensors: vec![sensor; fleet::MAX_SENSORS],
            filters: vec![filter; fleet::MAX_FILTERS],
            ..View::default()
        };
        let line = super::fleet(view);
        // The page takes 4 MiB.
        assert!(line.len() < 4 << 20, "{} bytes", line.len());
        let event: Value = serde_json::from_slice(&line).unwrap();
        let sensor = &event["sensors"][199];
        assert_eq!(
            (&event["event"], &sensor["standing"]["standing"]),
            (&"fleet".into(), &"refused".into())
        );
        assert_eq!(sensor["labels"].as_object().unwrap().len(), MAX_LABELS);
    }

    #[test]
    fn texts_of_the_network_are_one_line() {
        let line = ended(1, "a\n</script>\u{2028}");
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
