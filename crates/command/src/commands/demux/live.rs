//! Control socket of a running `fyke demux`: shows, counts and edits its expressions.
//!
//! An edit replaces the text of the graph. The node `demux` applies it while it runs, so expressions that remain keep
//! their counts, and endpoints that remain are not reopened. With `--scoped`, held fragments refer to endpoints by the
//! number of their expression, so the expressions cannot be edited.

use super::super::description;
use super::super::graphs::{self, DEMUX, Rules, check_files, rule_of, wrong_change};
use super::super::privilege::is_denied;
use super::super::served::{Served, Texts, final_counts_at_demux, removed_at_demux};
use crate::cli::DemuxArgs;
use fyke_capture::Interface;
use fyke_control::EntryKind;
use fyke_filters::{Change, FilterError, GroupError, Planned};
use fyke_graph::{GraphHandle, GraphView, Kept};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The expressions of one run, shared between the packet loop and the control socket.
pub struct Expressions {
    args: DemuxArgs,
    /// Files that edits may open.
    limits: Option<String>,
    book: Mutex<Book>,
}

/// A running demultiplexer.
pub type Live = Served<Expressions>;

/// The expressions in force.
struct Book {
    rules: Rules,
    /// Ids of the expressions for `fyke ctl`, in the same order.
    ids: Vec<u64>,
}

/// Shares the expressions of a graph over these interfaces; `limits` describes the files that edits may open.
pub fn share(
    args: DemuxArgs,
    rules: Rules,
    handle: GraphHandle,
    interfaces: &[Interface],
    kept: Option<Kept>,
    limits: Option<String>,
) -> Arc<Live> {
    let description = description(interfaces, args.source.read.is_none());
    let texts: Vec<_> = (0..rules.list.len()).map(|at| text_of(&rules, at)).collect();
    let book = Mutex::new(Book { ids: (1..=texts.len() as u64).collect(), rules });
    let list = texts.iter().map(String::as_str);
    Served::new(Expressions { args, limits, book }, list, handle, description, kept)
}

impl Expressions {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Texts for Expressions {
    const KIND: EntryKind = EntryKind::Filter;
    const HAS_NODES: bool = false;

    /// Numbers and texts, in their order.
    type Removed = Vec<(u64, String)>;

    fn put(&self, served: &Live, edit: &Planned<'_>) -> Result<Self::Removed, GroupError> {
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
        served.handle.set(&graph).map_err(|error| {
            let message = graphs::refused(error).message();
            match self.limits.as_ref().filter(|_| is_denied(&message)) {
                Some(why) => wrong(format!("{message}\n{why}")),
                None => wrong(message),
            }
        })?;
        let ids: Vec<_> = after.keys().copied().collect();
        let old = std::mem::replace(&mut *self.lock(), Book { rules, ids });
        let texts = old.rules.list.iter().zip(&old.ids);
        let removed = texts.filter(|(_, id)| !after.contains_key(id));
        Ok(removed.map(|((text, endpoint), id)| (*id, format!("{text} => {endpoint}"))).collect())
    }

    fn final_counts(removed: Self::Removed, view: &GraphView) -> HashMap<u64, u64> {
        final_counts_at_demux(removed, view)
    }

    fn removed(&self, view: &GraphView) -> u64 {
        removed_at_demux(view)
    }

    fn counted(&self, view: &GraphView) -> Vec<(u64, String, u64)> {
        let book = self.lock();
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
            (id, text_of(&book.rules, at), accepted)
        };
        texts.map(count).collect()
    }
}
