//! The service on its control socket: the readers of all captures, and their counts.

use super::super::counts;
use super::super::requests::{self, Editable};
use super::super::space::placement;
use fyke_control::{
    Accounting, Controlled, Description, EntryKind, FilterCount, FilterPasses, InterfaceAccounting,
    NodeCount, ReaderCount, Request, Response, Stats,
};
use fyke_filters::Edits;
use fyke_graph::{GraphHandle, GraphView};
use fyke_serve::message::Edited;
use fyke_serve::server::ReaderView;
use fyke_serve::service::Refused;
use std::sync::Arc;
use std::time::Instant;

/// Pauses a reader of this number, or starts it again; `None` if there is none.
type Pause = dyn Fn(u64, bool) -> Option<Result<Edited, Refused>> + Send + Sync;

/// A capture as people see it.
pub struct Shown {
    /// Name for its readers.
    pub name: String,
    pub handle: GraphHandle,
    pub readers: Box<dyn Fn() -> Vec<ReaderView> + Send + Sync>,
    pub pause: Box<Pause>,
}

/// The service as people see it on the control socket.
pub struct Live {
    pub captures: Vec<Shown>,
    pub description: Description,
}

/// Accepted frames that a reader has lost.
fn lost(reader: &ReaderView) -> u64 {
    reader.lost + reader.overwritten + reader.counts.dropped
}

/// Describes a reader on one line; with the name of its capture, if there are several.
fn described(reader: &ReaderView, of: Option<&str>) -> String {
    let texts: Vec<&str> = reader.texts.iter().map(String::as_str).collect();
    let texts = match texts[..] {
        [] => "(no text yet)".to_owned(),
        [""] => "(every frame)".to_owned(),
        _ => texts.join(" | "),
    };
    let (rejected, unread) = (reader.counts.rejected, reader.unread);
    let lost = lost(reader);
    let of = of.map_or_else(String::new, |name| format!("serve:{name}, "));
    format!(
        "{texts}  ({of}user {}, process {}, {}; {rejected} rejected, {unread} unread, {lost} lost)",
        reader.user, reader.pid, reader.program
    )
}

/// Adds the counts of the captures. Each has a line of its own, if there are several.
fn all_accounting(views: &[(&str, Arc<GraphView>)]) -> Accounting {
    let each = |(name, view): &(&str, Arc<GraphView>)| InterfaceAccounting {
        interface: (*name).to_owned(),
        accounting: counts::accounting(view),
    };
    let all: Vec<InterfaceAccounting> = views.iter().map(each).collect();
    if let [one] = &all[..] {
        return one.accounting.clone();
    }
    let mut sum = Accounting::default();
    for InterfaceAccounting { accounting: one, .. } in &all {
        sum.seen += one.seen;
        sum.delivered += one.delivered;
        sum.rejected += one.rejected;
        sum.taken += one.taken;
        for (why, count) in &one.lost {
            *sum.lost.entry(why.clone()).or_default() += count;
        }
        let not_counted = one.rejected_in_kernel.clone();
        sum.rejected_in_kernel = sum.rejected_in_kernel.or(not_counted);
    }
    Accounting { interfaces: all, ..sum }
}

impl Live {
    /// Pauses a reader, or starts it again.
    fn pause(&self, id: u64, is_paused: bool) -> Response {
        let started = Instant::now();
        let Some(paused) = self.captures.iter().find_map(|one| (one.pause)(id, is_paused)) else {
            let readers = self.captures.iter().flat_map(|one| (one.readers)());
            let readers: Vec<_> = readers.map(|one| one.number.to_string()).collect();
            let readers = readers.join(", ");
            let message = format!("there is no reader {id}; the readers are: {readers}");
            return Response::Error { message };
        };
        let note = match is_paused {
            true => format!("it gets no frames until `fyke ctl start {id}`"),
            false => "it gets frames".to_owned(),
        };
        match paused {
            Ok(edited) => Response::Ok {
                epoch: edited.epoch,
                ids: Vec::new(),
                latency_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
                notes: vec![note],
            },
            Err(refused) => Response::Error { message: refused.to_string() },
        }
    }

    fn is_single(&self) -> bool {
        self.captures.len() == 1
    }

    fn entries(&self) -> Vec<FilterCount> {
        let of = |capture: &Shown| {
            let name = (!self.is_single()).then(|| capture.name.clone());
            (capture.readers)().into_iter().map(move |reader| FilterCount {
                id: reader.number,
                text: described(&reader, name.as_deref()),
                kind: EntryKind::Reader,
                accepted: reader.counts.accepted,
                label: None,
            })
        };
        let mut all: Vec<_> = self.captures.iter().flat_map(of).collect();
        all.sort_by_key(|one| one.id);
        all
    }

    /// The readers of all captures and their frames, by number.
    fn readers(&self) -> Vec<ReaderCount> {
        let of = |capture: &Shown| {
            let name = capture.name.clone();
            (capture.readers)().into_iter().map(move |reader| ReaderCount {
                id: reader.number,
                capture: name.clone(),
                user: reader.user,
                pid: reader.pid,
                lost: lost(&reader),
                program: reader.program,
                accepted: reader.counts.accepted,
                rejected: reader.counts.rejected,
                unread: reader.unread,
            })
        };
        let mut all: Vec<_> = self.captures.iter().flat_map(of).collect();
        all.sort_by_key(|one| one.id);
        all
    }

    fn views(&self) -> Vec<(&str, Arc<GraphView>)> {
        self.captures.iter().map(|one| (one.name.as_str(), one.handle.snapshot())).collect()
    }

    /// The nodes of all captures, with the name of theirs, if there are several.
    fn nodes(&self, views: &[(&str, Arc<GraphView>)]) -> Vec<NodeCount> {
        let named = |name: &str, node: NodeCount| match self.is_single() {
            true => node,
            false => NodeCount { node: format!("{name}: {}", node.node), ..node },
        };
        let of = |(name, view): &(&str, Arc<GraphView>)| {
            let nodes = counts::nodes(view).into_iter();
            nodes.map(|node| named(name, node)).collect::<Vec<_>>()
        };
        views.iter().flat_map(of).collect()
    }

    /// Place of the filters of each capture.
    fn kernel(&self) -> Option<String> {
        let of = |one: &Shown| {
            let placed = placement(&one.handle)?;
            Some(if self.is_single() { placed } else { format!("{}: {placed}", one.name) })
        };
        let all: Vec<_> = self.captures.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The reason why the texts cannot be edited here.
const OF_READERS: &str = "the texts of a service belong to its readers: edit a reader (fyke ctl --pid PID), or start \
                          one with `fyke dump -i serve:NAME EXPR`";

impl Editable for Live {
    fn logged(&self) -> Result<&dyn Edits, &'static str> {
        Err(OF_READERS)
    }

    fn epoch(&self) -> u64 {
        self.captures.iter().map(|one| one.handle.epoch()).sum()
    }

    fn show(&self) -> Response {
        let entry = |one: FilterCount| FilterPasses {
            id: one.id,
            text: one.text,
            kind: one.kind,
            accepted: one.accepted,
            passes: Vec::new(),
            label: None,
        };
        Response::Passes {
            epoch: self.epoch(),
            filters: self.entries().into_iter().map(entry).collect(),
            nodes: self.nodes(&self.views()),
            own_filter: None,
            no_counts: None,
            kernel: self.kernel(),
        }
    }

    fn stats(&self) -> Stats {
        let views = self.views();
        let uptime = views.iter().map(|(_, view)| view.elapsed.as_millis()).max().unwrap_or(0);
        Stats {
            epoch: self.epoch(),
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            accounting: all_accounting(&views),
            filters: self.entries(),
            nodes: self.nodes(&views),
            kernel: self.kernel(),
            paused: self.captures.iter().any(|one| one.handle.is_paused()),
            readers: self.readers(),
            ..Stats::default()
        }
    }

    fn rules(&self, _: Option<&str>, _: &str) -> Response {
        Response::Error { message: "a service has no rules; its readers may have".to_owned() }
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        match request {
            Request::Pause | Request::Start => {
                let message = "a service runs for its readers; `fyke ctl show` has their numbers: fyke ctl pause \
                               READER";
                Response::Error { message: message.to_owned() }
            }
            Request::PauseReader { id, is_paused } => self.pause(id, is_paused),
            request => requests::handle(self, request, None),
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
