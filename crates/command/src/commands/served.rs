//! Control socket of a command with texts of a graph: `fyke run` and `fyke demux`. Shows, counts and edits the texts
//! with a log, and answers questions about frames of the past.

use super::graphs::DEMUX;
use super::requests::{self, Editable};
use super::{counts, edits, live, past, space};
use fyke_control::{
    Controlled, Description, EntryKind, FilterCount, FilterPasses, PassCount, Peer, Request,
    Response, Stats,
};
use fyke_filters::{
    CallsRefused, Edits, FilterSet, GroupError, HandCalls, Ledger, Logged, PassDescription, Planned,
};
use fyke_graph::runtime::NodeView;
use fyke_graph::{DEMUX_REMOVED, GraphHandle, GraphView, Kept};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Texts of one kind, and the way in which they are put into force.
pub trait Texts: Send + Sync + Sized + 'static {
    /// Their kind in lists.
    const KIND: EntryKind;
    /// True if clients see the nodes of each text.
    const HAS_NODES: bool;

    /// Puts an edit into force, all of it or nothing. Returns the numbers of the removed texts, each with what
    /// [`Self::final_counts`] needs.
    fn put(&self, served: &Served<Self>, edit: &Planned<'_>) -> Result<Self::Removed, GroupError>;

    /// The texts that an edit has removed.
    type Removed;

    /// Frames that removed texts have accepted, by number, in the counts after their edit.
    fn final_counts(removed: Self::Removed, view: &GraphView) -> HashMap<u64, u64>;

    /// Frames that all removed texts have accepted.
    fn removed(&self, view: &GraphView) -> u64;

    /// Running filters with passes that clients edit one by one; `None` if all passes are those of texts.
    fn by_hand(_: &Served<Self>, _node: Option<&str>) -> Option<Result<FilterSet, String>> {
        None
    }

    /// The texts with their numbers and frame counts, in their order.
    fn counted(&self, view: &GraphView) -> Vec<(u64, String, u64)>;
}

/// Frames that removed filters of the node `demux` have accepted, by number. A filter is known by its text.
pub fn final_counts_at_demux(removed: Vec<(u64, String)>, view: &GraphView) -> HashMap<u64, u64> {
    let Some(node) = view.node(DEMUX) else { return HashMap::new() };
    // Equal filters with the same class value or endpoint have equal texts.
    let mut found: HashMap<&str, Vec<u64>> = HashMap::new();
    for (text, frames) in node.removed.iter().rev() {
        found.entry(text).or_default().push(*frames);
    }
    let count = |(id, text): (u64, String)| Some((id, found.get_mut(text.as_str())?.pop()?));
    removed.into_iter().filter_map(count).collect()
}

/// Frames that all removed filters of the node `demux` have accepted.
pub fn removed_at_demux(view: &GraphView) -> u64 {
    let counters = view.node(DEMUX).map(|node| node.counters.as_slice()).unwrap_or_default();
    let removed = counters.iter().find(|counter| counter.name == DEMUX_REMOVED);
    removed.map_or(0, |counter| counter.value as u64)
}

/// A running graph as served on the control socket.
pub struct Served<T> {
    /// The texts.
    pub texts: T,
    /// The graph.
    pub handle: GraphHandle,
    /// The log of edits.
    pub ledger: Ledger,
    description: Description,
    /// Frames that arrived at the only filter.
    kept: Option<Kept>,
}

impl<T: Texts> Served<T> {
    /// Shares a graph. `list` are the texts that it starts with; they get the numbers from 1.
    pub fn new<'a>(
        texts: T,
        list: impl IntoIterator<Item = &'a str>,
        handle: GraphHandle,
        description: Description,
        kept: Option<Kept>,
    ) -> Arc<Served<T>> {
        let ledger = Ledger::new(list, handle.epoch());
        let served = Arc::new(Served { texts, handle, ledger, description, kept });
        let weak = Arc::downgrade(&served);
        served.ledger.belongs_to(weak);
        served
    }

    /// Returns all counts, with every edit that has been acknowledged: a client that edits and reads sees its edit.
    fn snapshot_after_edits(&self) -> Arc<GraphView> {
        let epoch = self.handle.epoch();
        let view = self.handle.snapshot();
        if view.epoch < epoch { self.handle.snapshot_when_due() } else { view }
    }

    /// Returns the texts with their labels and frame counts. If a busy worker has made the view old, new texts have no
    /// frames yet.
    pub fn counted(&self, view: &GraphView) -> Vec<FilterCount> {
        let mut counted = self.texts.counted(view);
        if view.epoch < self.handle.epoch() {
            let known: HashSet<u64> = counted.iter().map(|(id, ..)| *id).collect();
            let texts = self.ledger.texts().into_iter();
            let new = texts.filter(|(id, _)| !known.contains(id));
            counted.extend(new.map(|(id, text)| (id, text.to_string(), 0)));
        }
        let labels = self.ledger.labels();
        let count = |(id, text, accepted)| {
            let label = labels.get(&id).map(edits::label);
            FilterCount { id, text, kind: T::KIND, accepted, label }
        };
        counted.into_iter().map(count).collect()
    }

    /// Frames that each text has accepted, by number.
    fn counts_in(&self, view: &GraphView) -> HashMap<u64, u64> {
        let counted = self.texts.counted(view).into_iter();
        counted.map(|(id, _, accepted)| (id, accepted)).collect()
    }

    /// The frames of removed texts, as an entry of the list; `None` if there are none.
    fn removed(&self, view: &GraphView) -> Option<FilterCount> {
        let accepted = self.texts.removed(view);
        let what = if T::KIND == EntryKind::Graph { "graphs" } else { "filters" };
        let text = format!("frames of {what} that have been removed");
        let entry = FilterCount { text, kind: EntryKind::Removed, accepted, ..Default::default() };
        (accepted > 0).then_some(entry)
    }

    fn passes(&self, view: &GraphView, id: u64) -> Vec<PassCount> {
        let nodes = view.nodes.iter().filter(|node| T::HAS_NODES && node.texts.contains(&id));
        let pass = |node: &NodeView| PassCount {
            id: node.id,
            text: node.text.to_string(),
            accepted: node.counts.passed,
        };
        nodes.map(pass).collect()
    }

    /// The passes that were edited by hand, of each node that has some.
    fn edited_by_hand(&self, view: &GraphView) -> Vec<FilterPasses> {
        let of_node = |node: &NodeView| {
            let counts = node.filters.as_ref()?;
            let tracked = self.handle.filters_at(node)?.tracked()?;
            let hits: HashMap<_, _> =
                counts.passes.iter().map(|&(link, id, accepted)| ((link, id), accepted)).collect();
            let count = |pass: PassDescription| {
                let accepted = *hits.get(&(pass.link, pass.id))?;
                Some(PassCount { id: pass.id, text: pass.text, accepted })
            };
            Some(FilterPasses {
                id: tracked.filter.id,
                text: format!("{}: {}", node.name, tracked.filter.text),
                kind: EntryKind::Tracker,
                accepted: counts.tracker.as_ref().map_or(0, |(_, accepted)| *accepted),
                label: None,
                passes: tracked.passes.into_iter().filter_map(count).collect(),
            })
        };
        view.nodes.iter().filter_map(of_node).collect()
    }

    fn answer(&self, request: Request, peer: Option<&Peer>) -> Response {
        match request {
            Request::Try { .. } | Request::Why { .. } | Request::Frames { .. } => {
                let ids: Vec<_> = self.ledger.texts().into_keys().collect();
                past::of_graph(&self.handle, self.kept.as_ref(), &ids, request)
            }
            other => requests::handle(self, other, peer),
        }
    }
}

impl<T: Texts> Logged for Served<T> {
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn put(&self, edit: &Planned<'_>) -> Result<HashMap<u64, u64>, GroupError> {
        let before =
            if edit.removes() { self.counts_in(&self.handle.view()) } else { HashMap::new() };
        let removed = self.texts.put(self, edit)?;
        if !edit.removes() {
            return Ok(before);
        }
        // The loop publishes the final counts with the edit; without an answer of it, they are those before.
        let view = self.handle.view();
        let last = (view.epoch >= self.handle.epoch()).then(|| T::final_counts(removed, &view));
        Ok(before.into_iter().chain(last.into_iter().flatten()).collect())
    }

    fn accepted(&self) -> HashMap<u64, u64> {
        self.counts_in(&self.handle.snapshot())
    }

    fn epoch(&self) -> u64 {
        self.handle.epoch()
    }

    fn remarks(&self) -> Vec<String> {
        self.handle.notes()
    }

    fn edit_passes(
        &self,
        node: Option<&str>,
        calls: &mut HandCalls<'_>,
    ) -> Option<Result<Vec<u64>, CallsRefused>> {
        let set = T::by_hand(self, node)?;
        let edited = set.map_err(CallsRefused::Whole).and_then(|set| set.edit_by_calls(calls));
        Some(edited.map(|(_, made)| {
            self.handle.edited_by_hand();
            made
        }))
    }
}

impl<T: Texts> Editable for Served<T> {
    fn logged(&self) -> Result<&dyn Edits, &'static str> {
        Ok(self)
    }

    fn epoch(&self) -> u64 {
        self.handle.epoch()
    }

    fn show(&self) -> Response {
        let view = self.snapshot_after_edits();
        let filters = self.counted(&view).into_iter().map(|count| FilterPasses {
            passes: self.passes(&view, count.id),
            id: count.id,
            text: count.text,
            kind: count.kind,
            accepted: count.accepted,
            label: count.label,
        });
        Response::Passes {
            epoch: view.epoch,
            filters: filters.chain(self.edited_by_hand(&view)).collect(),
            nodes: if T::HAS_NODES { counts::nodes(&view) } else { Vec::new() },
            own_filter: None,
            no_counts: None,
            kernel: space::placement(&self.handle),
        }
    }

    fn stats(&self) -> Stats {
        let view = self.snapshot_after_edits();
        let key = self.kept.as_ref().and_then(|_| self.handle.filter_key());
        let kept_at = key.and_then(|key| view.nodes.iter().find(|node| node.key == key));
        Stats {
            epoch: view.epoch,
            uptime_ms: u64::try_from(view.elapsed.as_millis()).unwrap_or(u64::MAX),
            accounting: counts::accounting(&view),
            filters: self.counted(&view).into_iter().chain(self.removed(&view)).collect(),
            nodes: counts::nodes(&view),
            kernel: space::placement(&self.handle),
            paused: self.handle.is_paused(),
            kept_at: kept_at.map(|node| node.id),
            ..Stats::default()
        }
    }

    fn rules(&self, interface: Option<&str>, command: &str) -> Response {
        live::apply_rules(&self.handle, interface, command)
    }

    fn graph(&self) -> Option<&GraphHandle> {
        Some(&self.handle)
    }
}

impl<T: Texts> Controlled for Served<T> {
    fn handle(&self, request: Request) -> Response {
        self.answer(request, None)
    }

    fn handle_from(&self, request: Request, peer: &Peer) -> Response {
        self.answer(request, Some(peer))
    }

    fn is_long(&self, request: &Request) -> bool {
        matches!(
            request,
            Request::Show | Request::Try { .. } | Request::Why { .. } | Request::Frames { .. }
        )
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
