//! Control socket of a running `fyke demux`: shows, counts and edits its expressions.
//!
//! An edit replaces the text of the graph. The node `demux` applies it while it runs, so expressions that remain keep
//! their counts, and endpoints that remain are not reopened. With `--scoped`, held fragments refer to endpoints by the
//! number of their expression, so the expressions cannot be edited.

use super::super::graphs::{self, DEMUX, Rules, check_files, rule_of, wrong_change};
use super::super::live::apply_rules;
use super::super::requests::{self, Editable};
use super::super::space::placement;
use super::super::{counts, edits, past};
use crate::cli::DemuxArgs;
use fyke_capture::Interface;
use fyke_control::{
    Controlled, Description, EntryKind, FilterCount, FilterPasses, Peer, Request, Response, Stats,
};
use fyke_filters::{Change, Edits, FilterError, GroupError, Ledger, Logged, Planned};
use fyke_graph::{GraphHandle, GraphView, Kept};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The expressions and counts of one run, shared between the packet loop and the control socket.
pub struct Live {
    args: DemuxArgs,
    handle: GraphHandle,
    description: Description,
    book: Mutex<Book>,
    ledger: Ledger,
    kept: Option<Kept>,
}

/// The expressions in force.
struct Book {
    rules: Rules,
    /// Ids of the expressions for `fyke ctl`, in the same order.
    ids: Vec<u64>,
}

impl Live {
    /// Shares the expressions of a graph over these interfaces.
    pub fn new(
        args: DemuxArgs,
        rules: Rules,
        handle: GraphHandle,
        interfaces: &[Interface],
        kept: Option<Kept>,
    ) -> Arc<Live> {
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let link = interfaces.first().map_or_else(String::new, |first| first.link.to_string());
        let live = args.source.read.is_none();
        let description =
            Description { live, ..Description::of_this_process(names.join(", "), link) };
        let texts: Vec<_> = (0..rules.list.len()).map(|at| text_of(&rules, at)).collect();
        let ledger = Ledger::new(texts.iter().map(String::as_str), handle.epoch());
        let book = Mutex::new(Book { ids: (1..=texts.len() as u64).collect(), rules });
        let live = Arc::new(Live { args, handle, description, book, ledger, kept });
        let weak = Arc::downgrade(&live);
        live.ledger.belongs_to(weak);
        live
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the expressions with their frame counts.
    pub fn counted(&self, view: &GraphView) -> Vec<FilterCount> {
        let (book, labels) = (self.lock(), self.ledger.labels());
        let counters = view.node(DEMUX).map(|node| node.counters.as_slice()).unwrap_or_default();
        // Counters of equal expressions with the same endpoint have the same name: the first expression gets the first
        // counter.
        let mut found: HashMap<&str, Vec<f64>> = HashMap::new();
        for counter in counters.iter().rev() {
            found.entry(&counter.name).or_default().push(counter.value);
        }
        let texts = book.rules.list.iter().zip(&book.ids).enumerate();
        let count = |(at, ((text, endpoint), &id)): (usize, (&(String, usize), &u64))| {
            let name = format!("{text} => {endpoint}");
            let accepted = found.get_mut(name.as_str()).and_then(Vec::pop).unwrap_or(0.0) as u64;
            let label = labels.get(&id).map(edits::label);
            let text = text_of(&book.rules, at);
            FilterCount { id, text, kind: EntryKind::Filter, accepted, label }
        };
        texts.map(count).collect()
    }

    /// Returns these expressions, with the endpoints so far, so that the open ones keep their numbers.
    fn rules_of(&self, texts: &BTreeMap<u64, Arc<str>>) -> Result<Rules, String> {
        let endpoints = self.lock().rules.endpoints.clone();
        let mut rules = Rules { list: Vec::with_capacity(texts.len()), endpoints };
        for text in texts.values() {
            let (expression, endpoint) = rule_of(text)?;
            rules.push(expression, endpoint);
        }
        Ok(rules)
    }

    /// True if a text is no expression with an endpoint.
    fn is_wrong(&self, text: &str) -> bool {
        let rules = self.rules_of(&BTreeMap::from([(1, text.into())]));
        let graph = rules.ok().and_then(|rules| graphs::demux_of(&self.args, &rules).ok());
        graph.is_none_or(|graph| fyke_graph::Plan::new(&[&graph], &graphs::classes()).is_err())
    }
}

/// The text of an expression with its endpoint.
fn text_of(rules: &Rules, at: usize) -> String {
    let (text, endpoint) = &rules.list[at];
    format!("{text} => {}", rules.endpoints[*endpoint])
}

impl Logged for Live {
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn put(&self, edit: &Planned<'_>) -> Result<(), GroupError> {
        let refused = |message: &str| {
            let error = FilterError::Program(message.to_owned());
            Err(GroupError { place: edit.changes.len().saturating_sub(1), error })
        };
        if self.args.scoped {
            return refused(
                "with --scoped the expressions cannot change while fyke runs, because fragments may be held for them; \
                 end this demux and start another",
            );
        }
        let after = edit.after();
        match edit.changes.last() {
            Some(Change::Remove(id)) if after.is_empty() => {
                return refused(&format!(
                    "filter {id} is the last one and cannot be removed; replace it with `set 'EXPR => ENDPOINT'`, or \
                     end the demux"
                ));
            }
            _ if after.is_empty() || after.values().any(|text| text.trim().is_empty()) => {
                return refused("expected 'EXPR => ENDPOINT', found an empty text");
            }
            _ => {}
        }
        let wrong = |message| wrong_change(edit, message, |text| self.is_wrong(text));
        let rules = self.rules_of(&after).map_err(wrong)?;
        let graph_of = |rules: &Rules| graphs::demux_of(&self.args, rules);
        let graph = graph_of(&rules).map_err(|error| wrong(error.message()))?;
        if edit.undoes {
            let old = graph_of(&self.lock().rules).map_err(|error| wrong(error.message()))?;
            check_files([&old].into_iter(), [&graph].into_iter()).map_err(wrong)?;
        }
        self.handle.set(&graph).map_err(|error| wrong(graphs::refused(error).message()))?;
        *self.lock() = Book { rules, ids: after.into_keys().collect() };
        Ok(())
    }

    fn accepted(&self) -> HashMap<u64, u64> {
        let counted = self.counted(&self.handle.snapshot());
        counted.into_iter().map(|count| (count.id, count.accepted)).collect()
    }

    fn epoch(&self) -> u64 {
        self.handle.epoch()
    }

    fn remarks(&self) -> Vec<String> {
        self.handle.notes()
    }
}

impl Editable for Live {
    fn logged(&self) -> Result<&dyn Edits, &'static str> {
        Ok(self)
    }

    fn epoch(&self) -> u64 {
        self.handle.epoch()
    }

    fn show(&self) -> Response {
        let filters = self.counted(&self.handle.snapshot()).into_iter();
        let filters = filters.map(|FilterCount { id, text, kind, accepted, label }| FilterPasses {
            id,
            text,
            kind,
            accepted,
            label,
            passes: Vec::new(),
        });
        Response::Passes {
            epoch: self.handle.epoch(),
            filters: filters.collect(),
            nodes: Vec::new(),
            own_filter: None,
            no_counts: None,
            kernel: placement(&self.handle),
        }
    }

    fn stats(&self) -> Stats {
        let view = self.handle.snapshot();
        Stats {
            epoch: view.epoch,
            uptime_ms: u64::try_from(view.elapsed.as_millis()).unwrap_or(u64::MAX),
            accounting: counts::accounting(&view),
            filters: self.counted(&view),
            nodes: counts::nodes(&view),
            own_filter: None,
            no_counts: None,
            kernel: placement(&self.handle),
            paused: self.handle.is_paused(),
        }
    }

    fn rules(&self, command: &str) -> Response {
        apply_rules(&self.handle, command)
    }

    fn graph(&self) -> Option<&GraphHandle> {
        Some(&self.handle)
    }
}

impl Live {
    fn answer(&self, request: Request, peer: Option<&Peer>) -> Response {
        match request {
            Request::Try { .. } | Request::Why { .. } => {
                let ids = self.lock().ids.clone();
                past::of_graph(&self.handle, self.kept.as_ref(), &ids, request)
            }
            other => requests::handle(self, other, peer),
        }
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        self.answer(request, None)
    }

    fn handle_from(&self, request: Request, peer: &Peer) -> Response {
        self.answer(request, Some(peer))
    }

    fn is_long(&self, request: &Request) -> bool {
        matches!(request, Request::Show | Request::Try { .. } | Request::Why { .. })
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
