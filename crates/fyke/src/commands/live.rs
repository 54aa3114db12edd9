//! A running fyke that can be looked at and edited: the filters of its graph, and counts, behind the control socket.

use super::graphs::{FILTER, PAYLOAD, RULES};
use fyke_capture::{Interface, WriteError};
use fyke_control::{
    Accounting, Controlled, Description, FilterCount, FilterPasses, PassCount, Request, Response,
    Stats,
};
use fyke_graph::runtime::{NodeView, SourceView};
use fyke_graph::{FilterSet, GraphHandle, GraphView};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

/// Filters whose counts take longer than about a millisecond to write.
const MANY_FILTERS: usize = 1_000;

/// Filters and counts of one run, shared between the packet loop and the control socket.
pub struct Live {
    filters: FilterSet,
    handle: GraphHandle,
    description: Description,
    started: Instant,
}

impl Live {
    /// Shares the filters of a graph over these interfaces.
    pub fn new(filters: FilterSet, handle: GraphHandle, interfaces: &[Interface]) -> Arc<Live> {
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let link = interfaces.first().map_or_else(String::new, |first| first.link.to_string());
        Arc::new(Live {
            filters,
            handle,
            description: Description::of_this_process(names.join(", "), link),
            started: Instant::now(),
        })
    }

    /// What became of the frames, as of the last tenth of a second.
    pub fn accounting(&self) -> Accounting {
        let view = self.handle.view();
        let counts = view.node(FILTER).map(|node| node.counts).unwrap_or_default();
        let mut lost = losses(&view);
        let before: u64 = lost.values().sum();
        if counts.lost > 0 {
            lost.insert("the filter has failed".to_owned(), counts.lost);
        }
        let unwritten = unwritten(&view);
        if unwritten > 0 {
            lost.insert("writer".to_owned(), unwritten);
        }
        let after_end: u64 = view.sources.iter().map(|source| source.after_end).sum();
        let after_limit = after_limit(&view);
        // Before the filter there may be rules, and behind it a pattern; both take away some of what passes.
        let rejected = |name| view.node(name).map_or(0, |node| node.counts.rejected);
        let (rules, payload) = (rejected(RULES), rejected(PAYLOAD));
        Accounting {
            seen: counts.arrived + rules + before + after_end,
            delivered: counts.passed.saturating_sub(payload + unwritten + after_last_file(&view)),
            rejected: counts.rejected + rules + payload + after_limit,
            lost,
        }
    }

    /// The counts for people; with `filters`, hits per filter too.
    pub fn summary(&self, filters: bool) -> String {
        let mut text = String::new();
        let stats = self.stats();
        let view = self.handle.view();
        let late = view.node(FILTER).map_or(0, |node| node.counts.late);
        let late = if late == 0 { String::new() } else { format!(" ({late} by look-back)") };
        let after = match after_limit(&view) {
            0 => String::new(),
            after => format!(" ({after} after the last)"),
        };
        let lost: Vec<_> = stats
            .accounting
            .lost
            .iter()
            .map(|(why, count)| format!("{count} lost ({why})"))
            .collect();
        let _infallible = writeln!(
            text,
            "{} seen = {} accepted{late} + {} rejected{after} + {}; {} edits",
            stats.accounting.seen,
            stats.accounting.delivered,
            stats.accounting.rejected,
            if lost.is_empty() { "0 lost".to_owned() } else { lost.join(" + ") },
            stats.epoch.saturating_sub(1),
        );
        let orphans = self.filters.orphans();
        if orphans > 0 {
            let _infallible =
                writeln!(text, "  {orphans} fragments without their first: not judged by ports");
        }
        for filter in stats.filters.iter().filter(|_| filters) {
            let _infallible =
                writeln!(text, "  filter {}: {} {}", filter.id, filter.accepted, filter.text);
        }
        text
    }

    fn stats(&self) -> Stats {
        Stats {
            epoch: self.filters.epoch(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            accounting: self.accounting(),
            filters: self
                .filters
                .counts()
                .into_iter()
                .map(|filter| FilterCount {
                    id: filter.id,
                    text: filter.text.as_ref().to_owned(),
                    accepted: filter.accepted,
                })
                .collect(),
        }
    }

    fn passes(&self) -> Response {
        let filters = self.filters.view().into_iter().map(|view| FilterPasses {
            id: view.filter.id,
            text: view.filter.text.as_ref().to_owned(),
            accepted: view.filter.accepted,
            passes: view
                .passes
                .into_iter()
                .map(|pass| PassCount { id: pass.id, text: pass.text, accepted: pass.accepted })
                .collect(),
        });
        Response::Passes { epoch: self.filters.epoch(), filters: filters.collect() }
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        let started = Instant::now();
        let edited = match request {
            Request::Set { text } => self.filters.set(&text).map(|id| id.into_iter().collect()),
            Request::Add { text } => self.filters.add(&text).map(|id| vec![id]),
            Request::Delete { id } => self.filters.remove(id).map(|()| Vec::new()),
            Request::Show => return self.passes(),
            Request::Rules { command } => {
                return apply_rules(&self.handle, &command);
            }
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                return Response::Stats(self.stats());
            }
        };
        let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match edited {
            Ok(ids) => {
                let notes = ids.iter().filter_map(|&id| self.filters.note(id)).collect();
                Response::Ok { epoch: self.filters.epoch(), ids, latency_ns, notes }
            }
            Err(error) => Response::Error { message: error.to_string() },
        }
    }

    fn is_long(&self, request: &Request) -> bool {
        match request {
            Request::Show => true,
            Request::Stats => self.filters.len() > MANY_FILTERS,
            _ => false,
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}

/// Frames that were lost before the first node, with the reason.
pub fn losses(view: &GraphView) -> BTreeMap<String, u64> {
    let sum = |count: fn(&SourceView) -> u64| view.sources.iter().map(count).sum::<u64>();
    let dropped = sum(|source| source.stats.dropped);
    let unread = sum(|source| source.unread);
    let lost = [("capture ring full", dropped), ("not read before the stop", unread)];
    let lost = lost.into_iter().filter(|(_, count)| *count > 0);
    lost.map(|(why, count)| (why.to_owned(), count)).collect()
}

/// Frames that arrived after the last one that was asked for.
fn after_limit(view: &GraphView) -> u64 {
    view.sources.iter().map(|source| source.after_end).sum::<u64>() + after_last_file(view)
}

/// Frames that passed the filter after the last file of a rotation was full.
fn after_last_file(view: &GraphView) -> u64 {
    view.nodes.iter().filter(|node| is_done(node)).map(|node| node.counts.lost).max().unwrap_or(0)
}

/// Whether a node has written all files that it was asked for.
fn is_done(node: &NodeView) -> bool {
    let failed = node.failed.as_ref();
    failed.is_some_and(|error| error.0.downcast_ref().is_some_and(WriteError::is_file_limit))
}

/// Frames that the outputs did not take; of several outputs, those of the one that took least.
fn unwritten(view: &GraphView) -> u64 {
    let outputs = view.nodes.iter().filter(|node| ["tofile", "print"].contains(&node.class));
    let outputs = outputs.filter(|node| !is_done(node));
    outputs.map(|node| node.counts.lost).max().unwrap_or(0)
}

/// A command for the rules of a running graph.
pub fn apply_rules(handle: &GraphHandle, command: &str) -> Response {
    let view = handle.view();
    let Some(rules) = view.rules() else {
        let message = "no node of this graph has rules: put (bloom) into it, or run `fyke dump`";
        return Response::Error { message: message.to_owned() };
    };
    match rules.command(command) {
        Ok(text) => Response::Rules { text },
        Err(error) => Response::Error { message: error.to_string() },
    }
}
