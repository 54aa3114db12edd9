//! Control socket of a running fyke: shows and edits the filters of its graph, and shows its counts.

use super::graphs::{FILTER, INTERCEPT, TRACK};
use super::record::{Record, Resumed};
use super::requests::{self, Editable};
use super::{Failure, counts, description, edits, past};
use fyke_capture::{Interface, SourceStats};
use fyke_control::{
    Accounting, Controlled, Description, EntryKind, FIRST_EXPECTATION, FilterCount, FilterPasses,
    PassCount, Peer, Request, Response, Stats,
};
use fyke_filters::{Edits, FilterSet, PassDescription};
use fyke_graph::node::NodeError;
use fyke_graph::{GraphHandle, GraphView, Kept};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;
use std::sync::{Arc, OnceLock};

/// Number of filters above which it takes more than about a millisecond to write their counts.
const MANY_FILTERS: usize = 1_000;

/// Classes about streams, of which `--stats` shows the counters.
const OF_STREAMS: [&str; 3] = ["tcp", "strsearch", "ruler"];

/// Filters and counts of one run, shared between the packet loop and the control socket.
pub struct Live {
    filters: FilterSet,
    handle: GraphHandle,
    description: Description,
    kept: Option<Kept>,
    /// The interfaces at the start.
    interfaces: Vec<Interface>,
    /// Its resume files, written after each edit.
    record: OnceLock<Record>,
    /// The reason why clients cannot edit or pause it, if they cannot.
    no_edits: OnceLock<&'static str>,
}

impl Live {
    /// Shares the filters of a graph on these interfaces; `live` is true for network interfaces, false for a file.
    pub fn new(
        filters: FilterSet,
        handle: GraphHandle,
        interfaces: &[Interface],
        live: bool,
        kept: Option<Kept>,
    ) -> Arc<Live> {
        let rules = super::space::owned_rules(&handle);
        Arc::new(Live {
            filters,
            handle,
            kept,
            interfaces: interfaces.to_vec(),
            record: OnceLock::new(),
            no_edits: OnceLock::new(),
            description: description(interfaces, live).with_rules(rules),
        })
    }

    /// Permits snap lengths of filters: all outputs of the graph cut frames to them.
    pub fn allow_snap_lengths(&self) {
        self.filters.allow_snap_lengths();
    }

    /// Refuses all requests that change something, with a reason.
    pub fn refuse_edits(&self, reason: &'static str) {
        let _ = self.no_edits.set(reason);
    }

    /// Puts the filters of a killed capture in force, and records the filters from now on, also for the next kill.
    pub fn record(&self, resumed: Option<&Resumed>, record: Option<Record>) -> Result<(), Failure> {
        if let Some(resumed) = resumed {
            resumed.apply(&self.filters)?;
        }
        if let Some(record) = record {
            record.write(&self.filters, false);
            let _ = self.record.set(record);
            resumed.inspect(|resumed| resumed.done());
        }
        Ok(())
    }

    /// Removes the resume files: the capture has ended without a kill.
    pub fn end_record(&self) {
        self.record.get().inspect(|record| record.end());
    }

    /// Returns the frame counts so far.
    pub fn accounting(&self) -> Accounting {
        counts::accounting(&self.handle.snapshot())
    }

    /// Returns all counts so far, of one moment.
    pub fn snapshot(&self) -> Arc<GraphView> {
        self.handle.snapshot()
    }

    /// Formats the counts; with `filters`, the hits of each filter too.
    pub fn summary(&self, filters: bool) -> String {
        let mut text = String::new();
        let view = self.handle.snapshot();
        let stats = self.stats_of(&view);
        let late = view.node(FILTER).map_or(0, |node| node.counts.late);
        let sum = counts::sum(&stats.accounting, late, after_limit(&view));
        let edits = super::edits::counted(stats.epoch.saturating_sub(1));
        let _infallible = writeln!(text, "{sum}; {edits}");
        let unwritten = counts::unwritten(&view);
        if !unwritten.is_empty() {
            let _infallible = writeln!(text, "{}", unwritten.trim_start_matches('\n'));
        }
        if filters {
            text += &counts::interface_lines(&stats.accounting, "  ");
        }
        let orphans = self.filters.orphans();
        if orphans > 0 {
            let _infallible =
                writeln!(text, "  {orphans} fragments without their first: filtered without ports");
        }
        if let Some(kernel) = stats.kernel.as_ref().filter(|_| filters) {
            let _infallible = writeln!(text, "  {kernel}");
        }
        if !filters {
            return text;
        }
        let (listed, more) =
            counts::listed(&stats.filters, false, |filter| (filter.kind, filter.accepted));
        for filter in listed {
            let name = counts::named(filter);
            let shown = super::shortened(&filter.text);
            let _infallible = writeln!(text, "  {name}: {} {shown}", filter.accepted);
        }
        if let Some(more) = more {
            let _infallible = writeln!(text, "  {more}");
        }
        for node in view.nodes.iter().filter(|node| OF_STREAMS.contains(&node.class)) {
            let counters = counts::counters(node);
            if !counters.is_empty() {
                let _infallible = writeln!(text, "  {}: {counters}", super::one_line(&node.name));
            }
        }
        text
    }

    /// Returns all counts, with every edit that has been acknowledged: a client that edits and reads sees its edit.
    fn snapshot_after_edits(&self) -> Arc<GraphView> {
        let epoch = self.filters.epoch();
        let view = self.handle.snapshot();
        let counts = view.node(FILTER).and_then(|node| node.filters.as_ref());
        match counts.is_none_or(|counts| counts.epoch < epoch) {
            true => self.handle.snapshot_when_due(),
            false => view,
        }
    }

    fn stats_of(&self, view: &GraphView) -> Stats {
        let (epoch, filters) = self.filters_of(view);
        Stats {
            epoch,
            uptime_ms: u64::try_from(view.elapsed.as_millis()).unwrap_or(u64::MAX),
            accounting: counts::accounting(view),
            filters,
            nodes: counts::nodes(view),
            kernel: super::space::placement(&self.handle),
            paused: self.handle.is_paused(),
            kept_at: self.kept.as_ref().and(view.node(FILTER)).map(|node| node.id),
            ..Stats::default()
        }
    }

    fn answer(&self, request: Request, peer: Option<&Peer>) -> Response {
        if let (Some(reason), false) = (self.no_edits.get(), request.only_reads()) {
            return Response::Error { message: (*reason).to_owned() };
        }
        match request {
            Request::Try { text, last } => self.frames().tried(&text, last),
            Request::Why { last } => self.frames().why(last),
            Request::Frames { last, verdict } => self.frames().shown(last, verdict),
            other => {
                let by_hand = matches!(other, Request::Passes { .. });
                let edits = matches!(
                    other,
                    Request::Set { .. }
                        | Request::Add { .. }
                        | Request::Delete { .. }
                        | Request::Edit { .. }
                        | Request::Undo { .. }
                );
                let response = requests::handle(self, other, peer);
                // Before the client gets its answer: what it has been told stays true after a kill.
                if (edits || by_hand) && matches!(response, Response::Ok { .. }) {
                    self.record.get().inspect(|record| record.write(&self.filters, by_hand));
                }
                response
            }
        }
    }

    /// Returns the frames of the past, for questions about them.
    fn frames(&self) -> past::Frames<'_> {
        past::Frames {
            filters: &self.filters,
            kept: self.kept.as_ref(),
            rejected: past::rejected_before(&self.handle),
        }
    }

    /// Returns the number of edits and the current filters with their labels: those of the view or, if a busy worker
    /// has made it old, those that edits change, so that a client finds what it has added.
    fn filters_of(&self, view: &GraphView) -> (u64, Vec<FilterCount>) {
        let (mut epoch, mut filters) = filters_of(view);
        let now = self.filters.epoch();
        if epoch < now {
            filters = brought_up(filters, &self.filters.counts());
            epoch = now;
        }
        let labels = self.filters.labels();
        for filter in filters.iter_mut().filter(|filter| filter.kind == EntryKind::Filter) {
            filter.label = labels.get(&filter.id).map(edits::label);
        }
        (epoch, filters)
    }

    /// Returns the filters with their passes. All counts are of one moment; passes that an edit has added or removed
    /// since then are omitted.
    fn passes(&self) -> Response {
        let view = self.snapshot_after_edits();
        let (epoch, filters) = self.filters_of(&view);
        let counts = view.node(FILTER).and_then(|node| node.filters.as_ref());
        let passes = counts.map(|counts| counts.passes.as_slice()).unwrap_or_default();
        let accepted: HashMap<_, _> =
            passes.iter().map(|&(link, id, accepted)| ((link, id), accepted)).collect();
        let mut described: HashMap<u64, Vec<PassDescription>> = HashMap::new();
        for filter in self.filters.view().into_iter().chain(self.filters.tracked()) {
            described.insert(filter.filter.id, filter.passes);
        }
        let filters = filters.into_iter().map(|filter| {
            let has_passes = [EntryKind::Filter, EntryKind::Tracker].contains(&filter.kind);
            let passes = described.get_mut(&filter.id).filter(|_| has_passes);
            let count = |pass: PassDescription| {
                let accepted = *accepted.get(&(pass.link, pass.id))?;
                Some(PassCount { id: pass.id, text: pass.text, accepted })
            };
            let passes = passes.map(std::mem::take).unwrap_or_default();
            let mut passes: Vec<_> = passes.into_iter().filter_map(count).collect();
            if filter.kind == EntryKind::Tracker {
                passes.extend(expectations(&view));
            }
            FilterPasses {
                id: filter.id,
                text: filter.text,
                kind: filter.kind,
                accepted: filter.accepted,
                label: filter.label,
                passes,
            }
        });
        let filters = filters.collect();
        let (nodes, own_filter, no_counts) = (Vec::new(), None, None);
        let kernel = super::space::placement(&self.handle);
        Response::Passes { epoch, filters, nodes, own_filter, no_counts, kernel }
    }
}

/// Returns the expectations of the tracker, in the form of passes, after its passes.
fn expectations(view: &GraphView) -> impl Iterator<Item = PassCount> {
    let node = view.node(TRACK).or_else(|| view.node(INTERCEPT));
    let entries = node.map(|node| node.entries.as_slice()).unwrap_or_default();
    let entries = entries.iter().zip(FIRST_EXPECTATION..);
    entries.map(|((text, frames), id)| PassCount { id, text: text.clone(), accepted: *frames })
}

/// Returns the number of edits and the current filters. An entry for frames accepted while there was no filter makes
/// the sum complete.
fn filters_of(view: &GraphView) -> (u64, Vec<FilterCount>) {
    let node = view.node(FILTER);
    let Some((node, counts)) = node.and_then(|node| Some((node, node.filters.as_ref()?))) else {
        return (0, Vec::new());
    };
    let mut filters = counts::filters(counts);
    let accepted = node.counts.passed.saturating_sub(counts.credited);
    if accepted > 0 {
        let (id, kind, text) = (0, EntryKind::Unfiltered, "every frame".to_owned());
        filters.push(FilterCount { id, text, kind, accepted, label: None });
    }
    (counts.epoch, filters)
}

/// Brings a list of filters up to date: new ones have no frames yet, and the frames of those that are gone belong to
/// the removed ones. So the sum of the list stays the same.
fn brought_up(list: Vec<FilterCount>, now: &[fyke_filters::FilterCount]) -> Vec<FilterCount> {
    let is_filter = |entry: &FilterCount| entry.kind == EntryKind::Filter;
    let (filters, mut others): (Vec<_>, Vec<_>) = list.into_iter().partition(is_filter);
    let mut before: HashMap<u64, FilterCount> =
        filters.into_iter().map(|filter| (filter.id, filter)).collect();
    let entry = |filter: &fyke_filters::FilterCount| {
        before.remove(&filter.id).unwrap_or_else(|| FilterCount {
            id: filter.id,
            text: filter.text.to_string(),
            kind: EntryKind::Filter,
            ..FilterCount::default()
        })
    };
    let filters: Vec<_> = now.iter().map(entry).collect();
    let gone: u64 = before.values().map(|filter| filter.accepted).sum();
    match others.iter_mut().find(|entry| entry.kind == EntryKind::Removed) {
        Some(removed) => removed.accepted += gone,
        None if gone > 0 => others.push(FilterCount {
            text: counts::REMOVED.to_owned(),
            kind: EntryKind::Removed,
            accepted: gone,
            ..FilterCount::default()
        }),
        None => {}
    }
    filters.into_iter().chain(others).collect()
}

impl Editable for Live {
    fn logged(&self) -> Result<&dyn Edits, &'static str> {
        Ok(&self.filters)
    }

    fn epoch(&self) -> u64 {
        self.filters.epoch()
    }

    fn show(&self) -> Response {
        self.passes()
    }

    fn stats(&self) -> Stats {
        self.stats_of(&self.snapshot_after_edits())
    }

    fn rules(&self, interface: Option<&str>, command: &str) -> Response {
        apply_rules(&self.handle, interface, command)
    }

    fn graph(&self) -> Option<&GraphHandle> {
        Some(&self.handle)
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        self.answer(request, None)
    }

    fn handle_from(&self, request: Request, peer: &Peer) -> Response {
        self.answer(request, Some(peer))
    }

    fn save(&self, request: Request, file: File, _peer: &Peer) -> Response {
        let Request::Save { last_ms, text, format, replaces } = request else {
            return Response::Error { message: edits::NO_FRAMES.to_owned() };
        };
        let live = self.description.live;
        let interfaces = self.interfaces.clone();
        let wanted = past::Wanted { last_ms, text, format, replaces, interfaces, live };
        self.frames().save(file, &wanted)
    }

    fn is_long(&self, request: &Request) -> bool {
        match request {
            Request::Show | Request::Try { .. } | Request::Why { .. } | Request::Frames { .. } => {
                true
            }
            Request::Stats | Request::Log { .. } => self.filters.len() > MANY_FILTERS,
            _ => false,
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}

/// Returns the number of frames that arrived after the requested number was reached.
fn after_limit(view: &GraphView) -> counts::AfterLast {
    let unread: u64 = view.sources.iter().map(|source| source.after_end).sum();
    let in_kernel = |stats: &SourceStats| stats.filtered > 0 || stats.filtered_uncounted;
    let at_least = view.sources.iter().any(|source| in_kernel(&source.stats));
    counts::AfterLast { frames: unread + after_last_file(view), at_least }
}

/// Returns the number of frames that passed the filter after the last file of a rotation was full.
fn after_last_file(view: &GraphView) -> u64 {
    view.nodes
        .iter()
        .filter(|node| node.failed.as_ref().is_some_and(NodeError::is_done))
        .map(|node| node.counts.lost)
        .max()
        .unwrap_or(0)
}

/// Runs a command for the rules of a running graph, of an interface if it has several.
pub fn apply_rules(handle: &GraphHandle, interface: Option<&str>, command: &str) -> Response {
    let view = handle.view();
    let Some(rules) = view.rules() else {
        let message = "no node of this graph has rules: put (bloom) into it, or run `fyke dump`";
        return Response::Error { message: message.to_owned() };
    };
    match rules.command_at(interface, command) {
        Ok(text) => Response::Rules { text },
        Err(error) => Response::Error { message: error.to_string() },
    }
}
