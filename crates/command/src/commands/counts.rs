//! Counts of a running graph for the control socket, `--stats` and `--json`, all taken from one snapshot.

use fyke_capture::{Interface, SourceStats};
use fyke_control::{
    Accounting, EntryKind, FilterCount, InterfaceAccounting, NOT_COUNTED, NodeCount, NodeFeed,
};
use fyke_filters::FilterCounts;
use fyke_graph::node::{Counter, NodeError};
use fyke_graph::plan::Feed;
use fyke_graph::runtime::{NodeView, Outcome, SourceView};
use fyke_graph::{GraphView, UNFIT};
use std::fmt::Write;

/// Name of the node that `fyke rules` edits, in the graphs of live captures.
pub const RULES: &str = "rules";

/// Most words of a memory buffer that are shown.
const MAX_WORDS: usize = 4096;

/// Most counters of a node on one line.
const MAX_COUNTERS: usize = 40;

/// Part of the words for frames that the policy of a service rejects.
const BEYOND: &str = " beyond the policy of ";
/// The same for a service that has ended without its last counts.
const SINCE: &str = " since the last report of ";

/// Returns the counts of the frames of all sources.
pub fn accounting(view: &GraphView) -> Accounting {
    Accounting {
        rejected_by_rules: by_rules(view),
        interfaces: interfaces(view),
        not_seen: not_seen(view),
        ..of_outcome(view, &view.outcome)
    }
}

/// Returns the counts of each live interface, if there are several.
fn interfaces(view: &GraphView) -> Vec<InterfaceAccounting> {
    let one = |(interface, outcome): (&Interface, &Outcome)| InterfaceAccounting {
        interface: interface.name.clone(),
        accounting: of_outcome(view, outcome),
    };
    let all: Vec<_> = view.by_interface().map(one).collect();
    if all.len() > 1 { all } else { Vec::new() }
}

fn of_outcome(view: &GraphView, outcome: &Outcome) -> Accounting {
    Accounting {
        seen: outcome.seen(),
        delivered: outcome.accepted,
        rejected: outcome.rejected,
        taken: outcome.taken,
        lost: outcome.lost.iter().map(|(why, count)| (why.to_string(), *count)).collect(),
        rejected_in_kernel: outcome.uncounted.then(|| not_counted(view)),
        ..Accounting::default()
    }
}

/// Frames that no count has: those that the kernel rejects or, for a reader of a service, those beyond its policy, or
/// after its last report.
fn not_counted(view: &GraphView) -> String {
    let cut = view.sources.iter().find(|source| source.stats.cut_off);
    if let Some(one) = cut.and_then(|source| source.interfaces.first()) {
        return format!("{NOT_COUNTED}{SINCE}{}", one.name);
    }
    let restricted = view.sources.iter().find(|source| source.stats.beyond_policy);
    let name = restricted.and_then(|source| source.interfaces.first());
    name.map_or(NOT_COUNTED.to_owned(), |one| format!("{NOT_COUNTED}{BEYOND}{}", one.name))
}

/// The times without a connection to other machines, in words; `None` if there were none.
fn not_seen(view: &GraphView) -> Option<String> {
    let cut = view.sources.iter().filter(|source| source.stats.cuts > 0);
    let words = |source: &SourceView| {
        let name = source.interfaces.first().map_or("", |interface| interface.name.as_str());
        without_connection(name, &source.stats)
    };
    let all: Vec<_> = cut.filter_map(words).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// The time in which a source on another machine had no connection, in words; `None` if there was none.
pub fn without_connection(name: &str, stats: &SourceStats) -> Option<String> {
    let SourceStats { cuts, unseen_ms: ms, .. } = *stats;
    let times = if cuts == 1 { String::new() } else { format!(" in {cuts} times") };
    let seconds = format!("{}.{} s", ms / 1_000, ms % 1_000 / 100);
    let name = super::one_line(name);
    (cuts > 0).then(|| format!("frames of {seconds} without a connection to {name}{times}"))
}

/// Counts the frames that rules rejected, in the kernel or after it; `None` if no rules decide about all frames, and
/// for rules of a capture alone that have rejected none.
fn by_rules(view: &GraphView) -> Option<u64> {
    let count = |node: &NodeView| {
        let count = node.counts.rejected + node.rules.as_ref()?.rejected_below().unwrap_or(0);
        let decides = node.rules.as_ref()?.is_deciding();
        (decides || (node.name == RULES && count > 0)).then_some(count)
    };
    view.nodes.iter().filter_map(count).reduce(|sum, one| sum + one)
}

/// Formats parts of a count that are known: ` (3 by rules)`; empty if none is.
pub fn parts(parts: &[(Option<u64>, &str)]) -> String {
    let known = parts.iter().filter_map(|(count, what)| Some(format!("{} {what}", (*count)?)));
    let known = known.collect::<Vec<_>>().join(", ");
    if known.is_empty() { known } else { format!(" ({known})") }
}

/// Rejected frames that arrived after the requested number was reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct AfterLast {
    pub frames: u64,
    /// True if the kernel rejected further ones; it does not tell when.
    pub at_least: bool,
}

impl From<u64> for AfterLast {
    fn from(frames: u64) -> AfterLast {
        AfterLast { frames, at_least: false }
    }
}

impl AfterLast {
    fn in_words(self) -> Option<(Option<u64>, &'static str)> {
        let words = if self.at_least { "or more after the last" } else { "after the last" };
        (self.frames > 0).then_some((Some(self.frames), words))
    }
}

/// Formats the counts on one line, with the reasons of losses. `late` of the accepted frames were accepted by
/// look-back; `after` is a part of the rejected frames.
pub fn sum(accounting: &Accounting, late: u64, after: impl Into<AfterLast>) -> String {
    let Accounting { seen, delivered, rejected, taken, lost, .. } = accounting;
    let (rejected_in_kernel, by_rules) =
        (&accounting.rejected_in_kernel, accounting.rejected_by_rules);
    let by = if rejected_in_kernel.is_some() { " by fyke" } else { "" };
    let mut text = format!("{seen} seen{by} = {delivered} accepted");
    if late > 0 {
        text += &format!(" ({late} by look-back)");
    }
    text += &format!(" + {rejected} rejected");
    text += &parts(&[(by_rules, "by rules"), after.into().in_words().unwrap_or_default()]);
    if *taken > 0 {
        text += &format!(" + {taken} taken");
    }
    let lost: Vec<_> = lost.iter().map(|(why, count)| format!("{count} lost ({why})")).collect();
    text += " + ";
    text += &if lost.is_empty() { "0 lost".to_owned() } else { lost.join(" + ") };
    if let Some(count) = rejected_in_kernel {
        text += &match (count.split_once(BEYOND), count.split_once(SINCE)) {
            (Some((count, service)), _) => {
                format!("; rejected by the policy of {service}: {count}")
            }
            (_, Some((count, service))) => {
                format!("; rejected or lost since the last report of {service}: {count}")
            }
            _ => format!("; rejected in the kernel: {count}"),
        };
    }
    if let Some(not_seen) = &accounting.not_seen {
        text += &format!("; not seen: {not_seen}");
    }
    text
}

/// Formats the counts of each of several interfaces, one line each, after an indent; empty for one interface.
pub fn interface_lines(accounting: &Accounting, indent: &str) -> String {
    let line = |one: &InterfaceAccounting| {
        let name = super::one_line(&one.interface);
        format!("{indent}{name}: {}\n", sum(&one.accounting, 0, 0))
    };
    let mut lines: String = accounting.interfaces.iter().map(line).collect();
    let accepted: u64 = accounting.interfaces.iter().map(|one| one.accounting.delivered).sum();
    if let Some(late @ 1..) = accepted.checked_sub(accounting.delivered) {
        lines += &format!("{indent}{late} of these accepted frames were not written\n");
    }
    lines
}

/// Formats how many frames each of several rings of an interface received, one line for each interface.
pub fn ring_lines(view: &GraphView, indent: &str) -> String {
    let several = view.sources.iter().filter(|source| source.rings.len() > 1);
    let line = |source: &SourceView| {
        let name = source.interfaces.first().map_or("", |interface| interface.name.as_str());
        let counts: Vec<_> = source.rings.iter().map(|ring| ring.received.to_string()).collect();
        format!(
            "{indent}{}: its rings received {} frames\n",
            super::one_line(name),
            counts.join(", ")
        )
    };
    several.map(line).collect()
}

/// Formats the sum at a stop; `None` for a run on files that lost no frames.
pub fn closing(view: &GraphView, live: bool) -> Option<String> {
    let accounting = accounting(view);
    let shown = live || !accounting.lost.is_empty();
    shown.then(|| sum(&accounting, 0, 0) + &unwritten(view))
}

/// Lists the nodes that lost frames, such as outputs that could not write them, one line each. Other branches may have
/// accepted the same frames.
pub fn unwritten(view: &GraphView) -> String {
    let lost = view.nodes.iter().filter(|node| node.counts.lost > 0);
    let lost = lost.filter(|node| !node.failed.as_ref().is_some_and(NodeError::is_done));
    lost.map(|node| format!("\n  {}: {} frames lost here", node.text, node.counts.lost)).collect()
}

/// Converts the counts of a node for JSON, without its edges.
pub fn node(node: &NodeView) -> NodeCount {
    let counts = &node.counts;
    let filters = node.filters.as_ref().map(|counts| filters(counts));
    let states = node.counters.iter().filter(|counter| counter.is_state);
    NodeCount {
        id: node.id,
        node: node.name.clone(),
        class: node.class.to_owned(),
        text: node.text.to_string(),
        feeds: Vec::new(),
        arrived: counts.arrived,
        passed: counts.passed,
        rejected: counts.rejected,
        taken: counts.taken,
        lost: counts.lost,
        emitted: counts.emitted,
        merged: counts.merged,
        late: counts.late,
        counters: node
            .counters
            .iter()
            .filter_map(|counter| Some((counter.name.clone(), number(counter.value)?)))
            .collect(),
        states: states.map(|counter| counter.name.clone()).collect(),
        failed: node.failed.as_ref().map(ToString::to_string),
        filters: filters.unwrap_or_default(),
        memory: memory(node),
    }
}

/// Reads the memory buffer of an exported node.
fn memory(node: &NodeView) -> Vec<u64> {
    let words = if node.exported { node.memory.len().min(MAX_WORDS) } else { 0 };
    (0..words).map(|word| node.memory.get(word)).collect()
}

/// Most filters that a report lists unless it is a full one.
const LISTED_FILTERS: usize = 20;

/// The entries that a report lists: the first filters, unless it is a full one, and everything else; and a text on the
/// other filters, if there are any. `of` returns the kind of an entry, and its frames.
pub fn listed<T>(
    entries: &[T],
    full: bool,
    of: impl Fn(&T) -> (EntryKind, u64),
) -> (Vec<&T>, Option<String>) {
    let (mut filters, mut frames) = (0, 0);
    let is_listed = |entry: &&T| {
        let (kind, accepted) = of(entry);
        filters += usize::from(kind == EntryKind::Filter);
        let is_more = kind == EntryKind::Filter && filters > LISTED_FILTERS && !full;
        frames += if is_more { accepted } else { 0 };
        !is_more
    };
    let listed: Vec<_> = entries.iter().filter(is_listed).collect();
    let more = entries.len() - listed.len();
    (listed, (more > 0).then(|| format!("… {more} more filters: {frames} frames")))
}

/// Converts the counts of all nodes for JSON, with their edges.
pub fn nodes(view: &GraphView) -> Vec<NodeCount> {
    let feed = |feed: &Feed| {
        let from = view.nodes.get(feed.from)?.id;
        Some(NodeFeed { from, class: feed.class })
    };
    let with_feeds = |of: &NodeView| {
        let feeds = of.feeds.iter().filter_map(feed).collect();
        NodeCount { feeds, ..node(of) }
    };
    view.nodes.iter().map(with_feeds).collect()
}

/// Converts a counter value: whole numbers have no fraction; `None` if it is not a number.
fn number(value: f64) -> Option<serde_json::Number> {
    let whole = value.fract() == 0.0 && (0.0..9e15).contains(&value);
    if whole { Some((value as u64).into()) } else { serde_json::Number::from_f64(value) }
}

/// Text of the entry for filters that have been removed.
pub const REMOVED: &str = "frames of filters that have been removed";

/// Returns the filters of a node with their counts. Entries for removed trackers and filters make the sum complete.
pub fn filters(counts: &FilterCounts) -> Vec<FilterCount> {
    let kind = EntryKind::Filter;
    let own = counts.filters.iter().map(|filter| FilterCount {
        id: filter.id,
        text: filter.text.to_string(),
        kind,
        accepted: filter.accepted,
        label: None,
    });
    let entry = |kind, text: &str, accepted| FilterCount {
        text: text.into(),
        kind,
        accepted,
        ..Default::default()
    };
    let tracker = counts.tracker.iter();
    let tracker = tracker.map(|(name, accepted)| entry(EntryKind::Tracker, name, *accepted));
    let removed = (counts.removed > 0).then(|| entry(EntryKind::Removed, REMOVED, counts.removed));
    own.chain(tracker).chain(removed).collect()
}

/// Names a filter as [`entry`] does, with its own name: `filter 3 voip`.
pub fn named(filter: &FilterCount) -> String {
    if filter.kind == EntryKind::Tracker && filter.text == BY_HAND {
        return "by hand".to_owned();
    }
    let own = filter.label.as_ref().and_then(|label| label.name.as_deref());
    let own = own.map(|name| format!(" {}", super::one_line(name)));
    entry(filter.id, filter.kind) + &own.unwrap_or_default()
}

/// Text of the entry for passes that were edited by hand, if no tracker has passes.
const BY_HAND: &str = "passes edited by hand";

/// Names an entry of the list of filters: `filter 3`, `tracker`.
pub fn entry(id: u64, kind: EntryKind) -> String {
    match kind {
        EntryKind::Filter => format!("filter {id}"),
        EntryKind::Graph => format!("graph {id}"),
        EntryKind::Tracker => "tracker".to_owned(),
        EntryKind::Removed => "removed".to_owned(),
        EntryKind::Unfiltered => "no filter".to_owned(),
        EntryKind::Reader => format!("reader {id}"),
        EntryKind::Other => "other".to_owned(),
    }
}

/// Formats the counters of a node that are not zero: `connections 23, gaps 1`; empty if all are. The counts of frames
/// without a fitting link type have a line of their own.
pub fn counters(node: &NodeView) -> String {
    let counted = |counter: &&Counter| counter.value != 0.0 && !counter.name.starts_with(UNFIT);
    let all: Vec<_> = node.counters.iter().filter(counted).collect();
    let (shown, more) = all.split_at(all.len().min(MAX_COUNTERS));
    let one = |counter: &&Counter| format!("{} {}", super::one_line(&counter.name), counter.value);
    let mut texts: Vec<_> = shown.iter().map(one).collect();
    if !more.is_empty() {
        texts.push(format!("and {} more (--all)", more.len()));
    }
    texts.join(", ")
}

/// Formats the counts of a node.
pub fn account(node: &NodeCount) -> String {
    let NodeCount { arrived, passed, rejected, taken, lost, .. } = node;
    let mut text = format!(
        "{:<16} {arrived} arrived = {passed} passed + {rejected} rejected + {taken} taken + {lost} lost",
        node.node
    );
    let more = [(node.emitted, "emitted"), (node.merged, "merged"), (node.late, "late")];
    for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
        let _infallible = write!(text, "; {count} {what}");
    }
    text
}
