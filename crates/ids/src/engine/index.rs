//! The rules in force, by the literal that each needs.
//!
//! A rule waits for its rarest content: one search per buffer finds the contents that are in it, and only their
//! rules are judged. Rules without a content that can be searched for are judged on every buffer of their kind.
//! Adding or removing a rule costs microseconds, however many there are (`group`). Source of the search:
//! `fyke_ruler::gate`.

use super::group::{Group, Member};
use super::suspend::Suspension;
use crate::buffer::{BUFFERS, Buffer};
use crate::rule::{Action, Content, List, Presence, Protocol, Rule, Test};
use crate::transform::Transform;
use crate::verify::Checks;
use fyke_ruler::byte_set::ByteSet;
use fyke_ruler::gate::{MIN_RUN, rarity};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    /// The time for which it is left out, if it reaches limits.
    pub suspension: Suspension,
    /// Units of work of its tests of headers, flows and names.
    pub cost: u64,
    /// Order in which rules are judged: those that set names before those that test them.
    pub rank: u8,
}

/// Tests of a buffer, prepared.
#[derive(Debug)]
pub struct ArmedList {
    /// The buffer.
    pub buffer: Buffer,
    /// The need for it in a message.
    pub presence: Presence,
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
            presence: list.presence,
            transforms: list.transforms.clone(),
            checks: Checks::new(list, rule.variables > 0),
        };
        let has = |test: fn(Buffer) -> bool| rule.lists.iter().any(|list| test(list.buffer));
        let anchored = rule.scope.packets && rule.scope.streams;
        let marks = rule.marks.len() + rule.sums.len();
        let tests = rule.bits.len() + rule.numbers.len();
        let rank = match (rule.action, marks == 0, tests == 0) {
            (Action::Pass, ..) => 0,
            (_, false, true) => 1,
            (_, false, false) => 2,
            (_, true, false) => 3,
            (_, true, true) => 4,
        };
        Armed {
            lists: rule.lists.iter().map(list).collect(),
            needs_body: has(Buffer::is_body),
            of_application: has(|buffer| buffer.facts().application.is_some()),
            has_payload: has(|buffer| buffer == Buffer::Payload),
            anchored,
            matches: AtomicU64::new(0),
            suspension: Suspension::default(),
            cost: cost(&rule),
            rank,
            rule,
        }
    }

    /// Describes what the rule is found by.
    pub fn found_by(&self) -> String {
        match self.literal() {
            Some((buffer, run)) => {
                // Of a letter in both cases, the small one.
                let text: String = run
                    .iter()
                    .map(|set| match set.iter().last() {
                        Some(letter) if set.len() == 2 => char::from(letter).to_string(),
                        _ => set.to_string(),
                    })
                    .collect();
                let case = if run.iter().any(|set| set.len() == 2) { ", any case," } else { "" };
                format!("{text}{case} in {}", buffer.name())
            }
            None => match self.rule.lists.first() {
                Some(list) => format!("every {}", list.buffer.name()),
                None => "its header".to_owned(),
            },
        }
    }

    /// The search that finds the rule, and the bytes that are searched for.
    fn place(&self) -> (Place, Option<Arc<[ByteSet]>>) {
        let lists = &self.rule.lists;
        let is_needed = |list: &&List| {
            list.buffer.facts().application.is_some() && list.presence == Presence::Needed
        };
        let of_application = lists.iter().find(is_needed);
        let payload = lists.iter().find(|list| list.buffer == Buffer::Payload);
        let (buffer, run) = match self.literal() {
            Some((buffer, run)) => (Some(buffer), Some(run.into())),
            None => (of_application.or(payload).map(|list| list.buffer), None),
        };
        let place = match buffer {
            None | Some(Buffer::Payload) if self.of_application => Place::Every,
            None => Place::Plain,
            Some(Buffer::Payload) => {
                Place::Payloads(Payload::ALL.map(|payload| payload.has(&self.rule)))
            }
            Some(buffer) => Place::Buffer(buffer),
        };
        (place, run)
    }

    /// The buffer and the bytes that a search finds the rule by: the rarest [`MAX_SEARCHED`] of its contents.
    fn literal(&self) -> Option<(Buffer, Vec<ByteSet>)> {
        // A search of each payload finds rules about packets, one of each buffer those about an application.
        let is_searched = |list: &&List| match self.of_application {
            true => list.buffer != Buffer::Payload,
            false => list.buffer == Buffer::Payload,
        };
        let is_needed = |list: &&List| list.presence == Presence::Needed;
        let lists = self.rule.lists.iter().filter(is_searched).filter(is_needed);
        let contents = lists.flat_map(|list| {
            let contents = list.tests.iter().filter_map(|test| match test {
                Test::Content(content) if !content.negated => Some(&**content),
                _ => None,
            });
            contents
                .filter_map(move |content| Some((list.buffer, content, searched(list, content)?)))
        });
        let worth = |bytes: &[u8]| bytes.iter().map(|byte| rarity(*byte)).sum::<u32>();
        let (buffer, content, bytes) =
            contents.max_by_key(|(_, _, bytes)| (worth(bytes), bytes.len()))?;
        let parts = bytes.windows(bytes.len().min(MAX_SEARCHED));
        // The first of equals.
        let part = parts.rev().max_by_key(|part| worth(part))?;
        let set = |byte: &u8| match content.nocase {
            true => ByteSet::folded(*byte),
            false => ByteSet::one(*byte),
        };
        Some((buffer, part.iter().map(set).collect()))
    }
}

/// Units of work of the tests of a rule that are not about bytes.
fn cost(rule: &Rule) -> u64 {
    let header = &rule.header;
    let members = header.source.members()
        + header.destination.members()
        + header.source_ports.members()
        + header.destination_ports.members();
    let names: usize = rule.bits.iter().map(|test| test.names.len()).sum();
    let others = rule.packet.len() + rule.counts.len() + rule.numbers.len();
    (4 + members / 4 + others + 8 * names) as u64
}

/// Most bytes that are searched for; the verifier compares the rest.
const MAX_SEARCHED: usize = 32;

/// The bytes of a content that are in the buffer before its transforms, if they are enough for a search.
fn searched<'r>(list: &List, content: &'r Content) -> Option<&'r [u8]> {
    let bytes = match &list.transforms[..] {
        [] => &content.bytes[..],
        // The first dot may be the one that the transform adds.
        [Transform::DotPrefix] => content.bytes.strip_prefix(b".").unwrap_or(&content.bytes),
        _ => return None,
    };
    (bytes.len() >= MIN_RUN).then_some(bytes)
}

/// Rules that may match, each once.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Their numbers.
    pub rules: Vec<u32>,
    /// Those of them that are left out.
    pub out: Vec<u32>,
    seen: Marks,
    /// Runs of the current search.
    runs: Marks,
}

/// Numbers, each of which is met once.
#[derive(Debug, Default)]
struct Marks {
    marks: Vec<u32>,
    generation: u32,
}

impl Marks {
    /// Forgets all.
    fn clear(&mut self) {
        if self.generation == u32::MAX {
            self.marks.fill(0);
            self.generation = 0;
        }
        self.generation += 1;
    }

    /// True if a number is met for the first time.
    #[inline]
    fn is_new(&mut self, number: u32) -> bool {
        let at = number as usize;
        if self.marks.len() <= at {
            self.marks.resize(at + 1, 0);
        }
        std::mem::replace(&mut self.marks[at], self.generation) != self.generation
    }
}

impl Candidates {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.rules.clear();
        self.out.clear();
        self.seen.clear();
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: u32) {
        if self.seen.is_new(rule) {
            self.rules.push(rule);
        }
    }

    /// Begins a search with runs of its own.
    pub fn begin_search(&mut self) {
        self.runs.clear();
    }

    /// Adds the rules of a run, if it is found for the first time.
    #[inline]
    pub fn add_run(&mut self, run: u32, rules: &[u32]) {
        if self.runs.is_new(run) {
            rules.iter().for_each(|rule| self.add(*rule));
        }
    }
}

/// The bytes of a payload, by which rules about payloads are searched for: a rule that never applies there is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// A packet of another protocol than TCP.
    Datagram,
    /// A packet of TCP with bytes that are judged as a stream, too.
    Segment,
    /// A packet of TCP that no stream takes.
    Alone,
    /// A stream.
    Stream,
}

/// Number of the kinds of payload.
const PAYLOADS: usize = Payload::Stream as usize + 1;

impl Payload {
    const ALL: [Payload; PAYLOADS] =
        [Payload::Datagram, Payload::Segment, Payload::Alone, Payload::Stream];

    /// True if a rule about payloads may apply.
    fn has(self, rule: &Rule) -> bool {
        let protocol = rule.header.protocol;
        let of_tcp = !matches!(protocol, Protocol::Udp | Protocol::Sctp) && !protocol.is_icmp();
        let scope = rule.scope;
        match self {
            Payload::Datagram => protocol != Protocol::Tcp && (scope.packets || scope.alone),
            Payload::Segment => scope.packets && of_tcp,
            Payload::Alone => (scope.packets || scope.alone) && of_tcp,
            Payload::Stream => scope.streams && of_tcp,
        }
    }
}

/// The search that finds a rule.
#[derive(Debug)]
enum Place {
    /// The rule has no tests of bytes.
    Plain,
    /// The rule needs no buffer of its application.
    Every,
    /// In a buffer of an application.
    Buffer(Buffer),
    /// In these kinds of payload.
    Payloads([bool; PAYLOADS]),
}

impl Place {
    /// The numbers of its groups.
    fn groups(&self) -> Vec<usize> {
        match self {
            Place::Plain | Place::Every => Vec::new(),
            Place::Buffer(buffer) => vec![*buffer as usize],
            Place::Payloads(has) => {
                (0..PAYLOADS).filter(|at| has[*at]).map(|at| BUFFERS + at).collect()
            }
        }
    }
}

/// The rules in force.
#[derive(Debug)]
pub struct Index {
    rules: Vec<Option<Arc<Armed>>>,
    /// By the buffer, then by the kind of payload.
    groups: Vec<Group>,
    /// Rules without tests of bytes.
    plain: Vec<u32>,
    /// Rules about messages that need none of their buffers.
    every: Vec<u32>,
    /// Numbers of rules by group and sid.
    numbers: HashMap<(u32, u32), u32>,
}

impl Index {
    /// The index of some rules.
    pub fn new(rules: Vec<Rule>) -> Index {
        Index::of(rules.into_iter().map(Armed::new).map(Arc::new).collect())
    }

    /// The index of some prepared rules.
    pub fn of(rules: Vec<Arc<Armed>>) -> Index {
        let mut index = Index {
            rules: Vec::with_capacity(rules.len()),
            groups: Vec::new(),
            plain: Vec::new(),
            every: Vec::new(),
            numbers: HashMap::new(),
        };
        let mut groups: Vec<(Vec<Member>, Vec<u32>)> = Vec::new();
        groups.resize_with(BUFFERS + PAYLOADS, Default::default);
        for rule in rules {
            let (number, place, run) = index.enter(rule);
            for group in place.groups() {
                match &run {
                    Some(run) => groups[group].0.push((run.clone(), number)),
                    None => groups[group].1.push(number),
                }
            }
        }
        let group = |(members, always)| Group::new(members, always);
        index.groups = groups.into_iter().map(group).collect();
        index
    }

    /// Gives a rule a number; returns it, the search that finds it, and the bytes that are searched for.
    fn enter(&mut self, armed: Arc<Armed>) -> (u32, Place, Option<Arc<[ByteSet]>>) {
        // Numbers are not used again: flows remember them.
        let number = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        let (place, run) = armed.place();
        match place {
            Place::Plain => self.plain.push(number),
            Place::Every => self.every.push(number),
            Place::Buffer(_) | Place::Payloads(_) => {}
        }
        self.numbers.insert((armed.rule.gid, armed.rule.sid), number);
        self.rules.push(Some(armed));
        (number, place, run)
    }

    /// Adds a rule; one with the same identifier is replaced.
    pub fn add(&mut self, rule: Arc<Armed>) {
        self.remove(rule.rule.gid, rule.rule.sid);
        let (number, place, run) = self.enter(rule);
        for group in place.groups() {
            self.groups[group].add(run.clone(), number);
        }
    }

    /// Takes the searches that were made in the background.
    pub fn settle(&mut self) {
        self.groups.iter_mut().for_each(Group::settle);
    }

    /// Removes a rule; false if there is none with this identifier.
    pub fn remove(&mut self, gid: u32, sid: u32) -> bool {
        let Some(number) = self.numbers.remove(&(gid, sid)) else { return false };
        let Some(armed) = self.rules[number as usize].take() else { return false };
        self.plain.retain(|own| *own != number);
        self.every.retain(|own| *own != number);
        for group in armed.place().0.groups() {
            self.groups[group].remove(number);
        }
        true
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// True if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
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

    /// Rules about messages that need none of their buffers.
    pub fn every(&self) -> &[u32] {
        &self.every
    }

    /// Adds the rules that may match a buffer of an application.
    pub fn scan(&self, buffer: Buffer, bytes: &[u8], found: &mut Candidates) {
        self.groups[buffer as usize].scan(bytes, found);
    }

    /// Adds the rules that may match a payload.
    pub fn scan_payload(&self, payload: Payload, bytes: &[u8], found: &mut Candidates) {
        self.groups[BUFFERS + payload as usize].scan(bytes, found);
    }

    /// Length of the longest run that is searched for in streams.
    pub fn longest(&self) -> usize {
        self.groups[BUFFERS + Payload::Stream as usize].longest()
    }
}
