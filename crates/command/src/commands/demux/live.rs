//! Control socket of a running `fyke demux`: shows, counts and edits its expressions.
//!
//! An edit replaces the text of the graph. The node `demux` applies it while it runs, so expressions that remain keep
//! their counts, and endpoints that remain are not reopened. With `--scoped`, held fragments refer to endpoints by the
//! number of their expression, so the expressions cannot be edited.

use super::super::counts;
use super::super::edits;
use super::super::graphs::{self, DEMUX, Rules, rule_of};
use super::super::live::apply_rules;
use super::super::requests::pause;
use super::super::space::placement;
use crate::cli::DemuxArgs;
use fyke_capture::Interface;
use fyke_control::{
    Controlled, Description, EntryKind, FilterCount, FilterPasses, Request, Response, Stats,
};
use fyke_graph::{GraphHandle, GraphView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The expressions and counts of one run, shared between the packet loop and the control socket.
pub struct Live {
    args: DemuxArgs,
    handle: GraphHandle,
    description: Description,
    book: Mutex<Book>,
}

/// The expressions in force.
#[derive(Clone)]
struct Book {
    rules: Rules,
    /// Ids of the expressions for `fyke ctl`, in the same order.
    ids: Vec<u64>,
    last_id: u64,
}

impl Live {
    /// Shares the expressions of a graph over these interfaces.
    pub fn new(
        args: DemuxArgs,
        rules: Rules,
        handle: GraphHandle,
        interfaces: &[Interface],
    ) -> Arc<Live> {
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let link = interfaces.first().map_or_else(String::new, |first| first.link.to_string());
        let live = args.source.read.is_none();
        let description =
            Description { live, ..Description::of_this_process(names.join(", "), link) };
        let last_id = rules.list.len() as u64;
        let book = Mutex::new(Book { rules, ids: (1..=last_id).collect(), last_id });
        Arc::new(Live { args, handle, description, book })
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the expressions with their frame counts.
    pub fn counted(&self, view: &GraphView) -> Vec<FilterCount> {
        let book = self.lock();
        let counters = view.node(DEMUX).map(|node| node.counters.as_slice()).unwrap_or_default();
        // Counters of equal expressions with the same endpoint have the same name: the first expression gets the first
        // counter.
        let mut found: HashMap<&str, Vec<f64>> = HashMap::new();
        for counter in counters.iter().rev() {
            found.entry(&counter.name).or_default().push(counter.value);
        }
        let texts = book.rules.list.iter().zip(&book.ids);
        let count = |((text, endpoint), &id): (&(String, usize), &u64)| {
            let name = format!("{text} => {endpoint}");
            let accepted = found.get_mut(name.as_str()).and_then(Vec::pop).unwrap_or(0.0) as u64;
            let text = format!("{text} => {}", book.rules.endpoints[*endpoint]);
            FilterCount { id, text, kind: EntryKind::Filter, accepted, label: None }
        };
        texts.map(count).collect()
    }

    /// Applies an edit of the expressions completely or not at all. Returns the ids of the new expressions.
    fn edit(&self, request: Request) -> Result<Vec<u64>, String> {
        if self.args.scoped {
            return Err("with --scoped the expressions cannot change while fyke runs, because \
                        fragments may be held for them; end this demux and start another"
                .to_owned());
        }
        let mut book = self.lock();
        let mut new = book.clone();
        let mut ids = Vec::new();
        match request {
            Request::Delete { id } => {
                let Some(at) = new.ids.iter().position(|&known| known == id) else {
                    let known: Vec<_> = new.ids.iter().map(u64::to_string).collect();
                    let known = known.join(", ");
                    return Err(format!("there is no filter {id}; the filters are: {known}"));
                };
                if new.ids.len() == 1 {
                    return Err(format!(
                        "filter {id} is the last one and cannot be removed; replace it with \
                         `set 'EXPR => ENDPOINT'`, or end the demux"
                    ));
                }
                new.ids.remove(at);
                new.rules.list.remove(at);
            }
            Request::Set { text } | Request::Add { text } if text.trim().is_empty() => {
                return Err("expected 'EXPR => ENDPOINT', found an empty text".to_owned());
            }
            Request::Set { text } => {
                new.ids.clear();
                new.rules.list.clear();
                ids.push(new.add(&text)?);
            }
            Request::Add { text } => ids.push(new.add(&text)?),
            _ => return Err(edits::NO_LOG.to_owned()),
        }
        let text = graphs::demux_of(&self.args, &new.rules).map_err(|error| error.message())?;
        self.handle.set(&text).map_err(|error| graphs::refused(error).message())?;
        *book = new;
        Ok(ids)
    }
}

impl Book {
    fn add(&mut self, text: &str) -> Result<u64, String> {
        let (expression, endpoint) = rule_of(text)?;
        self.rules.push(expression, endpoint);
        self.last_id += 1;
        self.ids.push(self.last_id);
        Ok(self.last_id)
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        let started = Instant::now();
        match request {
            Request::Show => {
                let filters = self.counted(&self.handle.snapshot()).into_iter();
                let filters = filters.map(|FilterCount { id, text, kind, accepted, label }| {
                    FilterPasses { id, text, kind, accepted, label, passes: Vec::new() }
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
            Request::Pause | Request::Start => {
                let epoch = self.handle.epoch();
                pause(&self.handle, request == Request::Pause, None, epoch, started)
            }
            Request::PauseReader { .. } => {
                let message = "`fyke demux` has no readers; `fyke serve` has";
                Response::Error { message: message.to_owned() }
            }
            Request::Passes { .. } => Response::Error { message: edits::NO_PASSES.to_owned() },
            Request::Try { .. } | Request::Why { .. } | Request::Save { .. } => {
                Response::Error { message: edits::NO_FRAMES.to_owned() }
            }
            Request::Rules { command } => apply_rules(&self.handle, &command),
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                let view = self.handle.snapshot();
                Response::Stats(Stats {
                    epoch: view.epoch,
                    uptime_ms: u64::try_from(view.elapsed.as_millis()).unwrap_or(u64::MAX),
                    accounting: counts::accounting(&view),
                    filters: self.counted(&view),
                    nodes: counts::nodes(&view),
                    own_filter: None,
                    no_counts: None,
                    kernel: placement(&self.handle),
                    paused: self.handle.is_paused(),
                })
            }
            edit => match self.edit(edit) {
                Ok(ids) => Response::Ok {
                    epoch: self.handle.epoch(),
                    ids,
                    latency_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
                    notes: self.handle.notes(),
                },
                Err(message) => Response::Error { message },
            },
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
