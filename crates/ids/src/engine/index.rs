//! The rules in force, by the literal that each needs.
//!
//! A rule waits for its rarest content: one search per buffer finds the contents that are in it, and only their
//! rules are judged. Rules without a content that can be searched for are judged on every buffer of their kind. Rules
//! that are added are searched for in a small list of their own until there are [`MERGE`] of them; so adding or
//! removing a rule costs a few microseconds, however many there are. Source of the search: `fyke_ruler::gate`.

use crate::buffer::{BUFFERS, Buffer};
use crate::rule::{Action, Content, List, Rule, Test};
use crate::transform::Transform;
use crate::verify::Checks;
use fyke_ruler::byte_set::ByteSet;
use fyke_ruler::gate::{Gate, MAX_RUN, MIN_RUN, rarity};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Rules that are searched for one after the other before they join the others.
pub const MERGE: usize = 32;

/// A rule with its tests prepared.
#[derive(Debug)]
pub struct Armed {
    /// The rule.
    pub rule: Rule,
    /// Its lists.
    pub lists: Vec<ArmedList>,
    /// One of its lists is about a body.
    pub needs_body: bool,
    /// It has tests of an application's buffers.
    pub of_application: bool,
    /// It has tests of the payload.
    pub has_payload: bool,
    /// A content has a place from the beginning of the payload.
    pub anchored: bool,
    /// Matches so far.
    pub matches: AtomicU64,
    /// Order in which rules are judged: those that set names before those that test them.
    pub rank: u8,
}

/// Tests of a buffer, prepared.
#[derive(Debug)]
pub struct ArmedList {
    /// The buffer.
    pub buffer: Buffer,
    /// Changes of its bytes.
    pub transforms: Vec<Transform>,
    /// The tests.
    pub checks: Checks,
}

impl Armed {
    /// Prepares a rule.
    pub fn new(rule: Rule) -> Armed {
        let list = |list: &List| ArmedList {
            buffer: list.buffer,
            transforms: list.transforms.clone(),
            checks: Checks::new(list, rule.variables > 0),
        };
        let has = |test: fn(Buffer) -> bool| rule.lists.iter().any(|list| test(list.buffer));
        let anchored = rule.scope.packets && rule.scope.streams;
        let rank = match (rule.action, rule.marks.is_empty(), rule.bits.is_empty()) {
            (Action::Pass, ..) => 0,
            (_, false, true) => 1,
            (_, false, false) => 2,
            (_, true, false) => 3,
            (_, true, true) => 4,
        };
        Armed {
            lists: rule.lists.iter().map(list).collect(),
            needs_body: has(Buffer::is_body),
            of_application: has(|buffer| buffer != Buffer::Payload),
            has_payload: has(|buffer| buffer == Buffer::Payload),
            anchored,
            matches: AtomicU64::new(0),
            rank,
            rule,
        }
    }

    /// Describes what the rule is found by.
    pub fn found_by(&self) -> String {
        match self.literal() {
            Some((buffer, run)) => {
                let text: String = run.iter().map(ToString::to_string).collect();
                format!("{text} in {}", buffer.name())
            }
            None => match self.rule.lists.first() {
                Some(list) => format!("every {}", list.buffer.name()),
                None => "its header".to_owned(),
            },
        }
    }

    /// The buffer and the bytes that a search finds the rule by.
    fn literal(&self) -> Option<(Buffer, Vec<ByteSet>)> {
        let lists = self
            .rule
            .lists
            .iter()
            .filter(|list| !self.of_application || list.buffer != Buffer::Payload);
        let contents = lists.flat_map(|list| {
            let contents = list.tests.iter().filter_map(|test| match test {
                Test::Content(content) if !content.negated => Some(&**content),
                _ => None,
            });
            contents.filter_map(move |content| Some((list.buffer, searched(list, content)?)))
        });
        let worth = |(_, run): &(Buffer, Vec<ByteSet>)| {
            let rare: u32 =
                run.iter().map(|set| rarity(set.iter().next().unwrap_or_default())).sum();
            (rare, run.len())
        };
        contents.max_by_key(worth)
    }
}

/// The bytes of a content that are in the buffer before its transforms.
fn searched(list: &List, content: &Content) -> Option<Vec<ByteSet>> {
    let set = |byte: &u8| if content.nocase { ByteSet::folded(*byte) } else { ByteSet::one(*byte) };
    let bytes = match &list.transforms[..] {
        [] => &content.bytes[..],
        // The first dot may be the one that the transform adds.
        [Transform::DotPrefix] => content.bytes.strip_prefix(b".").unwrap_or(&content.bytes),
        _ => return None,
    };
    let run: Vec<ByteSet> = bytes.iter().take(MAX_RUN).map(set).collect();
    (run.len() >= MIN_RUN).then_some(run)
}

/// Rules of one kind of buffer.
#[derive(Debug, Default)]
struct Group {
    gate: Option<Gate>,
    /// The rules of each run of the gate.
    owners: Vec<Vec<u32>>,
    runs: Vec<Vec<ByteSet>>,
    /// Numbers of the runs.
    numbers: HashMap<Vec<ByteSet>, usize>,
    /// Rules that are searched for one by one.
    recent: Vec<(Vec<ByteSet>, u32)>,
    /// Rules without a run.
    always: Vec<u32>,
}

impl Group {
    /// Adds the rules with runs that are in some bytes.
    fn scan(&self, bytes: &[u8], found: &mut Candidates) {
        for rule in &self.always {
            found.add(*rule);
        }
        if let Some(gate) = &self.gate {
            gate.scan(bytes, u32::MAX, &mut |run, _| {
                for rule in &self.owners[run as usize] {
                    found.add(*rule);
                }
                u32::MAX
            });
        }
        for (run, rule) in &self.recent {
            let is_at =
                |window: &[u8]| run.iter().zip(window).all(|(set, byte)| set.contains(*byte));
            if bytes.windows(run.len()).any(is_at) {
                found.add(*rule);
            }
        }
    }

    fn add(&mut self, run: Option<Vec<ByteSet>>, rule: u32, merge: usize) {
        match run {
            None => self.always.push(rule),
            Some(run) => {
                self.recent.push((run, rule));
                if self.recent.len() > merge {
                    self.merge();
                }
            }
        }
    }

    /// Makes one search of all runs.
    fn merge(&mut self) {
        for (run, rule) in self.recent.drain(..) {
            match self.numbers.get(&run) {
                Some(at) => self.owners[*at].push(rule),
                None => {
                    self.numbers.insert(run.clone(), self.runs.len());
                    self.runs.push(run);
                    self.owners.push(vec![rule]);
                }
            }
        }
        self.gate = (!self.runs.is_empty()).then(|| Gate::new(&self.runs));
    }

    fn remove(&mut self, rule: u32) {
        self.always.retain(|own| *own != rule);
        self.recent.retain(|(_, own)| *own != rule);
        self.owners.iter_mut().for_each(|owners| owners.retain(|own| *own != rule));
    }

    fn longest(&self) -> usize {
        let recent = self.recent.iter().map(|(run, _)| run.len());
        self.runs.iter().map(Vec::len).chain(recent).max().unwrap_or(0)
    }
}

/// Rules that may match, each once.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Their numbers.
    pub rules: Vec<u32>,
    seen: Vec<u32>,
    generation: u32,
}

impl Candidates {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.rules.clear();
        if self.generation == u32::MAX {
            self.seen.fill(0);
            self.generation = 0;
        }
        self.generation += 1;
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: u32) {
        let at = rule as usize;
        if self.seen.len() <= at {
            self.seen.resize(at + 1, 0);
        }
        if std::mem::replace(&mut self.seen[at], self.generation) != self.generation {
            self.rules.push(rule);
        }
    }
}

/// The rules in force.
#[derive(Debug)]
pub struct Index {
    rules: Vec<Option<Arc<Armed>>>,
    groups: Vec<Group>,
    /// Rules without tests of bytes.
    plain: Vec<u32>,
    count: usize,
}

impl Index {
    /// The index of some rules.
    pub fn new(rules: Vec<Rule>) -> Index {
        let mut index = Index {
            rules: Vec::with_capacity(rules.len()),
            groups: (0..BUFFERS).map(|_| Group::default()).collect(),
            plain: Vec::new(),
            count: 0,
        };
        for rule in rules {
            index.insert(rule, usize::MAX);
        }
        index.groups.iter_mut().for_each(Group::merge);
        index
    }

    fn insert(&mut self, rule: Rule, merge: usize) {
        let armed = Armed::new(rule);
        // Numbers are not used again: flows remember them.
        let number = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        match armed.literal() {
            Some((buffer, run)) => self.groups[buffer as usize].add(Some(run), number, merge),
            None => {
                let lists = &armed.rule.lists;
                let list =
                    lists.iter().find(|list| list.buffer != Buffer::Payload).or(lists.first());
                match list {
                    Some(list) => self.groups[list.buffer as usize].add(None, number, merge),
                    None => self.plain.push(number),
                }
            }
        }
        self.rules.push(Some(Arc::new(armed)));
        self.count += 1;
    }

    /// Adds a rule; one with the same identifier is replaced.
    pub fn add(&mut self, rule: Rule) {
        self.remove(rule.gid, rule.sid);
        self.insert(rule, MERGE);
    }

    /// Removes a rule; false if there is none with this identifier.
    pub fn remove(&mut self, gid: u32, sid: u32) -> bool {
        let is_it = |armed: &Option<Arc<Armed>>| {
            armed.as_ref().is_some_and(|armed| (armed.rule.gid, armed.rule.sid) == (gid, sid))
        };
        let Some(at) = self.rules.iter().position(is_it) else { return false };
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.plain.retain(|own| *own != number);
        self.groups.iter_mut().for_each(|group| group.remove(number));
        self.rules[at] = None;
        self.count -= 1;
        true
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The rules.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Armed>> {
        self.rules.iter().flatten()
    }

    /// The rule with a number.
    pub fn get(&self, rule: u32) -> Option<&Arc<Armed>> {
        self.rules.get(rule as usize)?.as_ref()
    }

    /// Rules without tests of bytes.
    pub fn plain(&self) -> &[u32] {
        &self.plain
    }

    /// Adds the rules that may match a buffer.
    pub fn scan(&self, buffer: Buffer, bytes: &[u8], found: &mut Candidates) {
        self.groups[buffer as usize].scan(bytes, found);
    }

    /// Length of the longest run that is searched for in a buffer.
    pub fn longest(&self, buffer: Buffer) -> usize {
        self.groups[buffer as usize].longest()
    }
}
