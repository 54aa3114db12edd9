//! A fake of a running fyke: keeps texts, counts edits.
#![allow(dead_code, reason = "each test program uses a part of it")]

use fyke_control::{
    Accounting, Controlled, Description, EntryKind, FilterCount, FilterPasses, PassCount, Request,
    Response, RuntimeDir, Server, Stats,
};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    epoch: u64,
    next_id: u64,
    filters: Vec<(u64, String)>,
}

/// A fake filter keeper. Filters are texts; `bad` in one is an error, `panic` a bug, `big` makes
/// the answers big.
#[derive(Default)]
pub struct Fake {
    state: Mutex<State>,
}

impl State {
    fn edit(&mut self, added: Option<String>) -> Response {
        self.epoch += 1;
        let mut ids = Vec::new();
        if let Some(text) = added {
            self.next_id += 1;
            self.filters.push((self.next_id, text));
            ids.push(self.next_id);
        }
        Response::Ok { epoch: self.epoch, ids, latency_ns: 1, notes: Vec::new() }
    }

    fn show(&self) -> Response {
        let filter = |(id, text): &(u64, String)| {
            let pass = PassCount { id: 100 + id, text: "ip".into(), accepted: *id };
            let big = if text == "big" { text.repeat(8 << 20) } else { text.clone() };
            let kind = EntryKind::Filter;
            FilterPasses {
                id: *id,
                text: big,
                kind,
                accepted: *id,
                label: None,
                passes: vec![pass],
            }
        };
        let filters = self.filters.iter().map(filter).collect();
        Response::Passes {
            epoch: self.epoch,
            filters,
            nodes: Vec::new(),
            own_filter: None,
            no_counts: None,
            kernel: None,
        }
    }

    fn stats(&self) -> Response {
        let accounting = Accounting { seen: 3, delivered: 1, rejected: 2, ..Default::default() };
        let count = |(id, text): &(u64, String)| {
            let kind = EntryKind::Filter;
            FilterCount { id: *id, text: text.clone(), kind, accepted: *id, label: None }
        };
        let filters = self.filters.iter().map(count).collect();
        Response::Stats(Stats {
            epoch: self.epoch,
            uptime_ms: 1,
            accounting,
            filters,
            ..Stats::default()
        })
    }
}

impl Controlled for Fake {
    fn handle(&self, request: Request) -> Response {
        let mut state = self.state.lock().unwrap();
        match request {
            Request::Set { text } | Request::Add { text } if text == "bad" => {
                Response::Error { message: format!("{text}\n^~~\nexpected a primitive") }
            }
            Request::Add { text } if text == "panic" => {
                drop(state);
                panic!("a bug in what is controlled");
            }
            Request::Set { text } => {
                state.filters.clear();
                state.edit(Some(text))
            }
            Request::Add { text } => state.edit(Some(text)),
            Request::Delete { id } => {
                let before = state.filters.len();
                state.filters.retain(|(found, _)| *found != id);
                match state.filters.len() == before {
                    true => Response::Error { message: format!("no filter {id}") },
                    false => state.edit(None),
                }
            }
            Request::Show => state.show(),
            Request::Stats => state.stats(),
            Request::Rules { .. } => Response::Error { message: "no pre-filter".to_owned() },
            Request::Describe | Request::Hello { .. } | Request::Watch { .. } => {
                unreachable!("the server answers these")
            }
            _ => Response::Error { message: "no log".to_owned() },
        }
    }

    fn describe(&self) -> Description {
        Description::of_this_process("lo", "EN10MB")
    }
}

/// A served fake in its own folder.
pub fn serve() -> (tempfile::TempDir, RuntimeDir, Server) {
    let base = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::at(base.path().join("run"));
    let server = Server::start_in(&dir, Arc::new(Fake::default())).unwrap();
    (base, dir, server)
}
