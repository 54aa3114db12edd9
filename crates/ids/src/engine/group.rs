//! The rules of one kind of buffer, by the bytes that each is searched for.
//!
//! One search has all rules that have been there for a while, and a small one those that were added since. An edit
//! makes only the small one again, so it costs microseconds, however many rules there are. When the small one has
//! [`MERGE`] rules, another is begun, and a thread makes one search of all; until it is done, nothing waits for it.

use super::index::Candidates;
use fyke_ruler::byte_set::ByteSet;
use fyke_ruler::gate::Gate;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Most rules in the small search.
pub const MERGE: usize = 32;

/// The bytes that a rule is searched for, and its number.
type Member = (Arc<Vec<ByteSet>>, u32);

/// A search.
#[derive(Debug, Default)]
struct Search {
    gate: Option<Gate>,
    /// The rules of each run of the gate.
    owners: Vec<Vec<u32>>,
    members: Vec<Member>,
}

impl Search {
    fn new(members: Vec<Member>) -> Search {
        let (mut runs, mut owners) = (Vec::new(), Vec::<Vec<u32>>::new());
        let mut numbers: HashMap<&[ByteSet], usize> = HashMap::new();
        for (run, rule) in &members {
            let at = *numbers.entry(run).or_insert(runs.len());
            if at == runs.len() {
                runs.push(run.to_vec());
                owners.push(Vec::new());
            }
            owners[at].push(*rule);
        }
        Search { gate: (!runs.is_empty()).then(|| Gate::new(&runs)), owners, members }
    }

    fn scan(&self, bytes: &[u8], found: &mut Candidates) {
        if let Some(gate) = &self.gate {
            gate.scan(bytes, u32::MAX, &mut |run, _| {
                for rule in &self.owners[run as usize] {
                    found.add(*rule);
                }
                u32::MAX
            });
        }
    }

    /// Removes a rule; the bytes of one that is alone with them are searched for until the next merge.
    fn remove(&mut self, rule: u32) -> bool {
        let Some(at) = self.members.iter().position(|(_, own)| *own == rule) else { return false };
        self.members.swap_remove(at);
        self.owners.iter_mut().for_each(|owners| owners.retain(|own| *own != rule));
        true
    }
}

/// A merge that a thread makes.
#[derive(Debug)]
struct Merging {
    /// In a mutex only so that an engine may move to another thread.
    made: Mutex<Receiver<Search>>,
    /// Takes the searches that the made one replaces, as to free them takes time.
    replaced: Sender<Vec<Search>>,
    /// Number of the full searches that are in it.
    full: usize,
    /// Rules that were removed meanwhile.
    removed: Vec<u32>,
}

/// Rules of one kind of buffer.
#[derive(Debug, Default)]
pub struct Group {
    all: Search,
    /// Searches of [`MERGE`] rules that wait for a merge.
    full: Vec<Search>,
    recent: Search,
    merging: Option<Merging>,
    /// Rules without a run.
    always: Vec<u32>,
    longest: usize,
}

impl Group {
    /// A group of these rules.
    pub fn new(members: Vec<(Vec<ByteSet>, u32)>, always: Vec<u32>) -> Group {
        let longest = members.iter().map(|(run, _)| run.len()).max().unwrap_or(0);
        let members = members.into_iter().map(|(run, rule)| (Arc::new(run), rule)).collect();
        Group { all: Search::new(members), always, longest, ..Group::default() }
    }

    /// Adds the rules with runs that are in some bytes.
    pub fn scan(&self, bytes: &[u8], found: &mut Candidates) {
        for rule in &self.always {
            found.add(*rule);
        }
        for search in self.searches() {
            search.scan(bytes, found);
        }
    }

    /// Adds a rule, with the bytes that it is searched for.
    pub fn add(&mut self, run: Option<Vec<ByteSet>>, rule: u32) {
        self.settle();
        let Some(run) = run else { return self.always.push(rule) };
        self.longest = self.longest.max(run.len());
        let mut members = std::mem::take(&mut self.recent.members);
        members.push((Arc::new(run), rule));
        self.recent = Search::new(members);
        if self.recent.members.len() >= MERGE {
            self.full.push(std::mem::take(&mut self.recent));
            if self.merging.is_none() {
                self.merge();
            }
        }
    }

    fn searches(&self) -> impl Iterator<Item = &Search> {
        [&self.all].into_iter().chain(&self.full).chain([&self.recent])
    }

    /// Begins to make one search of all rules but the recent ones; without a thread, it is made at once.
    fn merge(&mut self) {
        let members = self.old_members();
        let ((sender, made), (replaced, old)) = (channel(), channel::<Vec<Search>>());
        let work = move || {
            if sender.send(Search::new(members)).is_ok() {
                // Freed here; without an answer, the group is gone.
                drop(old.recv());
            }
        };
        match std::thread::Builder::new().name("fyke-ids-merge".to_owned()).spawn(work) {
            Ok(_) => {
                let (made, full) = (Mutex::new(made), self.full.len());
                self.merging = Some(Merging { made, replaced, full, removed: Vec::new() });
            }
            Err(_) => {
                self.all = Search::new(self.old_members());
                self.full.clear();
            }
        }
    }

    /// The members of all searches but the recent one.
    fn old_members(&self) -> Vec<Member> {
        let searches = [&self.all].into_iter().chain(&self.full);
        searches.flat_map(|one| one.members.iter().cloned()).collect()
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
        if let Some(mut made) = made {
            merging.removed.into_iter().for_each(|rule| _ = made.remove(rule));
            let mut old = vec![std::mem::replace(&mut self.all, made)];
            old.extend(self.full.drain(..merging.full));
            // If the thread is gone, they are freed here.
            let _ = merging.replaced.send(old);
            let members = self.searches().flat_map(|one| &one.members);
            self.longest = members.map(|(run, _)| run.len()).max().unwrap_or(0);
        }
        if !self.full.is_empty() {
            self.merge();
        }
    }

    /// Removes a rule, if it is there.
    pub fn remove(&mut self, rule: u32) {
        self.always.retain(|own| *own != rule);
        if self.recent.remove(rule) {
            return;
        }
        let mut older = [&mut self.all].into_iter().chain(&mut self.full);
        if older.any(|search| search.remove(rule)) {
            self.merging.iter_mut().for_each(|merging| merging.removed.push(rule));
        }
    }

    /// Length of the longest run.
    pub fn longest(&self) -> usize {
        self.longest
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
