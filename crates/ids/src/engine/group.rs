//! The rules of one kind of buffer, by the bytes that each is searched for.
//!
//! One search has all rules that have been there for a while, and a small one those that were added since. An edit
//! makes only the small one again, so it costs microseconds, however many rules there are. When the small one has
//! [`MERGE`] rules, another is begun, and a thread makes one search of all; until it is done, nothing waits for it. A
//! rule that is removed is only noted: a search still finds its number, which no rule has any more, until the next
//! merge.

use super::index::Candidates;
use fyke_ruler::byte_set::ByteSet;
use fyke_ruler::gate::Gate;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Most rules in the small search.
pub const MERGE: usize = 16;
/// Rules that are removed before a merge takes them out.
const MAX_GONE: usize = 256;

/// The bytes that a rule is searched for, and its number.
pub type Member = (Arc<[ByteSet]>, u32);

/// A search.
#[derive(Debug, Default)]
struct Search {
    gate: Option<Gate>,
    /// The rules of each run of the gate.
    owners: Vec<Vec<u32>>,
    members: Vec<Member>,
    /// Length of the longest run.
    longest: usize,
}

impl Search {
    fn new(members: Vec<Member>) -> Search {
        let (mut runs, mut owners) = (Vec::new(), Vec::<Vec<u32>>::new());
        let mut numbers: HashMap<&[ByteSet], usize> = HashMap::new();
        for (run, rule) in &members {
            let at = *numbers.entry(run).or_insert(runs.len());
            if at == runs.len() {
                runs.push(Arc::clone(run));
                owners.push(Vec::new());
            }
            owners[at].push(*rule);
        }
        let longest = runs.iter().map(|run| run.len()).max().unwrap_or(0);
        let gate = (!runs.is_empty()).then(|| Gate::shared(runs));
        Search { gate, owners, members, longest }
    }

    fn scan(&self, bytes: &[u8], found: &mut Candidates) {
        if let Some(gate) = &self.gate {
            found.begin_search();
            gate.scan(bytes, u32::MAX, &mut |run, _| {
                found.add_run(run, &self.owners[run as usize]);
                u32::MAX
            });
        }
    }
}

/// A merge that a thread makes.
#[derive(Debug)]
struct Merging {
    /// In a mutex only so that an engine may move to another thread.
    made: Mutex<Receiver<Search>>,
    /// Takes the searches that the made one replaces, as to free them takes time.
    replaced: Sender<Vec<Arc<Search>>>,
    /// Number of the full searches that are in it.
    full: usize,
}

/// Rules of one kind of buffer.
#[derive(Debug, Default)]
pub struct Group {
    all: Arc<Search>,
    /// Searches of [`MERGE`] rules that wait for a merge.
    full: Vec<Arc<Search>>,
    recent: Search,
    merging: Option<Merging>,
    /// Rules that were removed, and that no merge has taken out.
    gone: HashSet<u32>,
    /// Rules without a run.
    always: Vec<u32>,
}

impl Group {
    /// A group of these rules.
    pub fn new(members: Vec<Member>, always: Vec<u32>) -> Group {
        Group { all: Arc::new(Search::new(members)), always, ..Group::default() }
    }

    /// Adds the rules with runs that are in some bytes, and numbers of rules that were removed.
    pub fn scan(&self, bytes: &[u8], found: &mut Candidates) {
        for rule in &self.always {
            found.add(*rule);
        }
        for search in self.searches() {
            search.scan(bytes, found);
        }
    }

    /// Adds a rule, with the bytes that it is searched for.
    pub fn add(&mut self, run: Option<Arc<[ByteSet]>>, rule: u32) {
        self.settle();
        let Some(run) = run else { return self.always.push(rule) };
        let mut members = std::mem::take(&mut self.recent.members);
        members.push((run, rule));
        self.recent = Search::new(members);
        if self.recent.members.len() >= MERGE {
            self.full.push(Arc::new(std::mem::take(&mut self.recent)));
            self.merge();
        }
    }

    fn searches(&self) -> impl Iterator<Item = &Search> {
        let older = [&self.all].into_iter().chain(&self.full);
        older.map(|search| &**search).chain([&self.recent])
    }

    /// Begins to make one search of all rules but the recent ones, unless that is being done; without a thread, it is
    /// made at once.
    fn merge(&mut self) {
        if self.merging.is_some() {
            return;
        }
        let old: Vec<Arc<Search>> = [&self.all].into_iter().chain(&self.full).cloned().collect();
        let gone = std::mem::take(&mut self.gone);
        let merged = move || {
            let members = old.iter().flat_map(|one| &one.members);
            Search::new(members.filter(|(_, rule)| !gone.contains(rule)).cloned().collect())
        };
        let ((sender, made), (replaced, freed)) = (channel(), channel::<Vec<Arc<Search>>>());
        let work = {
            let merged = merged.clone();
            move || {
                if sender.send(merged()).is_ok() {
                    // Freed here; without an answer, the group is gone.
                    drop(freed.recv());
                }
            }
        };
        match std::thread::Builder::new().name("fyke-ids-merge".to_owned()).spawn(work) {
            Ok(_) => {
                let (made, full) = (Mutex::new(made), self.full.len());
                self.merging = Some(Merging { made, replaced, full });
            }
            Err(_) => {
                self.all = Arc::new(merged());
                self.full.clear();
            }
        }
    }

    /// Takes a merge that is done, and begins the next one if rules wait for it.
    pub fn settle(&mut self) {
        let Some(merging) = &mut self.merging else { return };
        let made = merging.made.get_mut().unwrap_or_else(PoisonError::into_inner);
        let made = match made.try_recv() {
            Ok(made) => Some(made),
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => None,
        };
        let Some(merging) = self.merging.take() else { return };
        if let Some(made) = made {
            let mut old = vec![std::mem::replace(&mut self.all, Arc::new(made))];
            old.extend(self.full.drain(..merging.full));
            // If the thread is gone, they are freed here.
            let _ = merging.replaced.send(old);
        }
        if !self.full.is_empty() {
            self.merge();
        }
    }

    /// Removes a rule of the group.
    pub fn remove(&mut self, rule: u32) {
        let before = (self.always.len(), self.recent.members.len());
        self.always.retain(|own| *own != rule);
        self.recent.members.retain(|(_, own)| *own != rule);
        if (self.always.len(), self.recent.members.len()) == before {
            self.gone.insert(rule);
            if self.gone.len() >= MAX_GONE {
                self.merge();
            }
        }
    }

    /// Length of the longest run.
    pub fn longest(&self) -> usize {
        self.searches().map(|search| search.longest).max().unwrap_or(0)
    }

    /// True while a thread makes a search.
    #[cfg(test)]
    pub fn is_merging(&self) -> bool {
        self.merging.is_some()
    }

    /// Number of rules in the small search.
    #[cfg(test)]
    pub fn recent(&self) -> usize {
        self.recent.members.len()
    }
}
