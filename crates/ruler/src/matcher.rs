//! Compiled filters: find the rule of each filter that matches a packet, and the spans of its slots.
//!
//! A matcher has the rules of one filter, or of several filters that run on the same packets. These share the
//! search for bytes and, if it stays small, the automaton; its states hold the first rule of each filter.
//!
//! 1. Rules that may begin anywhere and need certain bytes wait for a `Gate` to find these bytes. Those of a filter
//!    with the same bytes share an automaton; those that consist only of these bytes need none.
//! 2. All others form one deterministic automaton if it has at most [`Limits::states`] states. If it would have
//!    more, each filter gets its own, then each rule, and neighbours are joined while their states do not multiply.
//! 3. If a rule is too large by itself, or [`Limits::bytes`] are used up, its states are built on demand, a bounded
//!    number at a time.
//!
//! If there are more than [`Limits::eager`] automata that wait for the gate, each is built when the first packet
//! needs it. The first rule of each filter wins, whichever engine matches it; [`Matcher::parts`] lists the engines,
//! for `fyke ruler check`.

use crate::byte_set::ByteSet;
use crate::dense::{Dense, Registers};
use crate::fold::Fold;
use crate::gate::{Also, Gate, MIN_RUN, MIN_VECTOR_RUN, Needed, by_vectors, needed_run};
use crate::lazy::Lazy;
use crate::nfa::{Nfa, TooLarge};
use crate::node::Node;
use crate::pike;
use crate::program::Rule;
use crate::split::{Budget, Source, add, check_size};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

mod stream;
pub use stream::{MAX_STREAM, Progress, Stream};

/// Limits of a matcher.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// States of the non-deterministic automaton of one part, and positions of all rules together.
    pub nfa_states: usize,
    /// States of a deterministic automaton.
    pub states: usize,
    /// Configurations processed while one automaton is built.
    pub work: usize,
    /// Bytes of the tables of all parts; later parts are built on demand.
    pub bytes: usize,
    /// Time to build automata; later parts are built on demand.
    pub time: Duration,
    /// Maximum number of groups of the gate for which automata are built at the start.
    pub eager: usize,
    /// Allows a gate. Without it, one automaton has as many rules as possible, as for a drawing.
    pub gate: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            nfa_states: 4 << 20,
            states: 8192,
            work: 2_000_000,
            bytes: 192 << 20,
            time: Duration::from_secs(2),
            eager: 512,
            gate: true,
        }
    }
}

/// Maximum number of states of an automaton that waits for the gate: there are many, and few packets reach them.
const GATED_STATES: usize = 512;
const GATED_WORK: usize = 20_000;

/// The automata of one filter, or of several.
#[derive(Debug)]
pub struct Matcher {
    /// Index of the first rule of each filter among all rules.
    starts: Vec<u32>,
    /// Parts that run on every packet, in the order of their rules.
    parts: Vec<Part>,
    gate: Option<Gate>,
    /// Groups that wait for the gate, by the number of the run that they need, filter by filter.
    groups: Vec<Group>,
    /// Index of the end of each filter's groups.
    group_ends: Vec<u32>,
    /// Rules that an earlier rule with the same bytes always precedes.
    beaten: Vec<u32>,
}

/// Some rules, and the engine that matches them.
#[derive(Debug)]
pub struct Part {
    /// Numbers of the rules, in order; they continue from one filter to the next.
    pub rules: Vec<u32>,
    /// Their automaton.
    pub engine: Engine,
    pub(crate) nfa: Nfa,
    /// Each filter that has rules here, and its first rule.
    firsts: Vec<(u32, u32)>,
}

/// Rules of a filter that need the same bytes.
#[derive(Debug)]
struct Group {
    filter: u32,
    /// Numbers of the rules, in order.
    numbers: Vec<u32>,
    /// The first rule needs nothing else than the bytes.
    decisive: bool,
    /// All rules begin with any bytes, then these: no match begins before their first occurrence.
    leads: bool,
    /// Other bytes that all rules need.
    also: Option<Also>,
    /// The rules, until the automata are built.
    rules: Vec<Rule>,
    limits: Limits,
    parts: OnceLock<Vec<Part>>,
}

impl Part {
    /// Number of tags that need a register.
    pub fn tags(&self) -> usize {
        self.nfa.rules.iter().map(|rule| rule.tags as usize).sum()
    }

    /// Number of positions that actions use and that are computed without a tag.
    pub fn fixed_positions(&self) -> usize {
        let used = self.nfa.rules.iter().flat_map(|rule| &rule.slots).flatten().count();
        (used * 2).saturating_sub(self.tags())
    }

    /// Bytes of its tables.
    pub fn bytes(&self) -> usize {
        match &self.engine {
            Engine::Dense(dense) => dense.bytes(),
            Engine::Lazy => self.nfa.bytes(),
        }
    }

    pub(crate) fn new(rules: Vec<u32>, engine: Engine, nfa: Nfa) -> Part {
        let mut firsts: Vec<(u32, u32)> =
            nfa.filters.iter().copied().zip(rules.iter().copied()).collect();
        firsts.dedup_by_key(|(filter, _)| *filter);
        Part { rules, engine, nfa, firsts }
    }

    /// The first filter that has rules here.
    pub(crate) fn filter(&self) -> u32 {
        self.firsts[0].0
    }

    /// Number of filters that have rules here.
    pub fn filters(&self) -> usize {
        self.firsts.len()
    }

    /// Records the rules that a state accepts, after `len` bytes.
    #[inline]
    fn accept(
        &self,
        dense: &Dense,
        state: usize,
        registers: &[u32],
        wins: &mut [Win],
        len: usize,
        place: Place,
    ) {
        for accept in dense.accepts(state) {
            let win = &mut wins[self.nfa.filters[accept.rule as usize] as usize];
            if win.take(self.rules[accept.rule as usize], accept.rule, place) {
                dense.tags(accept, registers, len, &mut win.tags);
            }
        }
    }

    /// Runs unless earlier rules have won already; all rules accept any bytes before `from`.
    fn run(&self, room: &mut Room, bytes: &[u8], from: usize, place: Place) {
        let beaten = |(filter, first): &(u32, u32)| room.wins[*filter as usize].rule <= *first;
        if self.firsts.iter().all(beaten) {
            return;
        }
        match &self.engine {
            Engine::Dense(dense) => {
                let state = dense.state_after(bytes, from, &mut room.registers);
                let Room { wins, registers, .. } = room;
                self.accept(dense, state, registers, wins, bytes.len(), place);
            }
            Engine::Lazy => {
                // The part has only one rule.
                let lazy = room.lazy.entry(self.rules[0]).or_insert_with(|| Lazy::new(&self.nfa));
                if lazy.first_match(&self.nfa, &bytes[from..]).is_none() {
                    return;
                }
                let win = &mut room.wins[self.firsts[0].0 as usize];
                win.take(self.rules[0], 0, place);
                if self.nfa.rules[0].tags > 0 {
                    pike::first_match(&self.nfa, &mut room.pike, bytes, &mut win.tags);
                }
            }
        }
    }
}

/// Engine of a part.
#[derive(Debug)]
pub enum Engine {
    /// A deterministic automaton, in one pass.
    Dense(Dense),
    /// A deterministic automaton built on demand; a simulation of all paths finds the names.
    Lazy,
}

impl Group {
    fn new(filter: u32, decisive: bool, limits: Limits) -> Group {
        let (numbers, rules, parts) = (Vec::new(), Vec::new(), OnceLock::new());
        Group { filter, numbers, decisive, leads: true, also: None, rules, limits, parts }
    }

    fn parts(&self) -> &[Part] {
        self.parts.get_or_init(|| {
            let own: Vec<u32> = (0u32..).take(self.rules.len()).collect();
            let mut budget = Budget::new(self.limits);
            let mut parts = Vec::new();
            let filters = vec![self.filter; own.len()];
            let source = Source { rules: &self.rules, filters: &filters };
            add(source, &own, self.limits, &mut budget, &mut parts);
            for part in &mut parts {
                for rule in &mut part.rules {
                    *rule = self.numbers[*rule as usize];
                }
                part.firsts = vec![(self.filter, part.rules[0])];
            }
            parts
        })
    }
}

/// Working memory of a matcher; one per thread.
#[derive(Debug, Default)]
pub struct Room {
    pike: pike::Room,
    /// States built so far, by the first rule of the part.
    lazy: HashMap<u32, Lazy, Fold>,
    registers: Registers,
    /// The winner of each filter so far.
    wins: Vec<Win>,
    /// Groups of each filter that can still win are those below this number.
    open: Vec<u32>,
    /// Groups with bytes that are in the packet, and the first position of the bytes.
    found: Vec<(u32, usize)>,
}

/// The first rule of a filter that matches.
#[derive(Debug)]
struct Win {
    /// Number of the rule; the largest number = none.
    rule: u32,
    /// Its number in its part.
    own: u32,
    place: Place,
    tags: Vec<u32>,
}

impl Win {
    const NONE: Win = Win { rule: u32::MAX, own: 0, place: Place::Decided, tags: Vec::new() };

    /// Records a rule if it precedes the recorded one.
    fn take(&mut self, rule: u32, own: u32, place: Place) -> bool {
        if rule >= self.rule {
            return false;
        }
        (self.rule, self.own, self.place) = (rule, own, place);
        true
    }
}

/// Location of a winner's slots.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// In a part that runs on every packet.
    Part(u32),
    /// In a part of a group.
    Group(u32, u32),
    /// Nowhere: the gate decided for the first rule of a group, and no slots are needed.
    Decided,
}

impl Matcher {
    /// Builds the automata of one filter's `rules`.
    ///
    /// # Errors
    /// If one rule, or all together, exceed a limit.
    pub fn new(rules: &[Rule], limits: Limits) -> Result<Matcher, TooLarge> {
        Matcher::of_filters(&[rules], limits)
    }

    /// Builds the automata of several filters, which share one pass over a packet.
    ///
    /// # Errors
    /// If the rules of a filter exceed a limit together.
    pub fn of_filters(filters: &[&[Rule]], limits: Limits) -> Result<Matcher, TooLarge> {
        let rules: Cow<'_, [Rule]> = match filters {
            [one] => Cow::Borrowed(one),
            _ => Cow::Owned(filters.concat()),
        };
        let mut matcher = Matcher {
            starts: Vec::new(),
            parts: Vec::new(),
            gate: None,
            groups: Vec::new(),
            group_ends: Vec::new(),
            beaten: Vec::new(),
        };
        let mut owners: Vec<u32> = Vec::with_capacity(rules.len());
        for (number, own) in (0u32..).zip(filters) {
            check_size(own, limits)?;
            matcher.starts.push(u32::try_from(owners.len()).unwrap_or(u32::MAX));
            owners.resize(owners.len() + own.len(), number);
        }
        let source = Source { rules: &rules, filters: &owners };
        let others = matcher.add_gated(source, limits);
        let mut budget = Budget::new(limits);
        if !others.is_empty() {
            add(source, &others, limits, &mut budget, &mut matcher.parts);
        }
        let share = budget.bytes / matcher.groups.len().max(1);
        for group in &mut matcher.groups {
            group.limits.bytes = share.max(1 << 14);
            group.limits.states = limits.states.min(GATED_STATES);
            group.limits.work = limits.work.min(GATED_WORK);
        }
        if matcher.groups.len() <= limits.eager {
            matcher.groups.iter().filter(|group| !group.decisive).for_each(|group| {
                group.parts();
            });
        }
        Ok(matcher)
    }

    /// Groups the rules that need certain bytes; returns the others.
    fn add_gated(&mut self, source: Source<'_>, limits: Limits) -> Vec<u32> {
        let needed = |rule: &Rule| {
            let may = limits.gate && floats(&rule.pattern);
            if may { needed_run(&rule.pattern, MIN_VECTOR_RUN) } else { None }
        };
        let needed: Vec<Option<Needed>> = source.rules.iter().map(needed).collect();
        let mut places: HashMap<(u32, &[ByteSet]), usize> = HashMap::new();
        let mut runs: Vec<Vec<ByteSet>> = Vec::new();
        for Needed { run, .. } in needed.iter().flatten() {
            places.entry((0, run)).or_insert_with(|| {
                runs.push(run.clone());
                runs.len() - 1
            });
        }
        let least = if by_vectors(&runs) { MIN_VECTOR_RUN } else { MIN_RUN };
        places.clear();
        runs.clear();
        let mut others = Vec::new();
        for ((number, rule), needed) in (0u32..).zip(source.rules).zip(&needed) {
            let filter = source.filters[number as usize];
            self.group_ends.resize(filter as usize, self.group_count());
            let Some(needed) = needed.as_ref().filter(|needed| needed.run.len() >= least) else {
                others.push(number);
                continue;
            };
            let decisive = needed.decisive && !rule.used.contains(&true);
            let place = *places.entry((filter, &needed.run)).or_insert_with(|| {
                runs.push(needed.run.clone());
                self.groups.push(Group::new(filter, decisive, limits));
                self.groups.len() - 1
            });
            let group = &mut self.groups[place];
            group.leads &= needed.leads;
            group.also = needed.also.clone().filter(|_| group.numbers.is_empty());
            if group.decisive && !group.numbers.is_empty() {
                self.beaten.push(number);
            } else {
                group.numbers.push(number);
                group.rules.push(rule.clone());
            }
        }
        self.group_ends.resize(self.starts.len(), self.group_count());
        self.gate = (!runs.is_empty()).then(|| Gate::new(&runs));
        others
    }

    fn group_count(&self) -> u32 {
        u32::try_from(self.groups.len()).unwrap_or(u32::MAX)
    }

    /// Rules and engines that run on every packet.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Rules and engines that wait for the gate; builds those that are not yet built.
    pub fn gated(&self) -> impl Iterator<Item = &Part> {
        self.groups.iter().filter(|group| !group.decisive).flat_map(Group::parts)
    }

    /// Rules that wait for the gate and never win, since an earlier one matches every packet with their bytes.
    pub fn beaten(&self) -> &[u32] {
        &self.beaten
    }

    /// Number of rules that the scan decides without an automaton.
    pub fn decided(&self) -> usize {
        self.groups.iter().filter(|group| group.decisive).count()
    }

    /// Memory of the gate in bytes.
    pub fn gate_bytes(&self) -> usize {
        self.gate.as_ref().map_or(0, Gate::bytes)
    }

    /// Description of the gate's scans, for users.
    pub fn gate(&self) -> Option<String> {
        self.gate.as_ref().map(Gate::describe)
    }

    /// Finds the first rule of the first filter that matches all of `bytes`. Slots are available until the next
    /// call.
    #[inline]
    pub fn first_match(&self, room: &mut Room, bytes: &[u8]) -> Option<usize> {
        self.matches(room, bytes);
        self.winner(room, 0)
    }

    /// Finds the first rule of each filter that matches all of `bytes`, for [`Matcher::winner`] and
    /// [`Matcher::slot_of`].
    #[inline]
    pub fn matches(&self, room: &mut Room, bytes: &[u8]) {
        self.begin(room);
        for (number, part) in (0u32..).zip(&self.parts) {
            part.run(room, bytes, 0, Place::Part(number));
        }
        if let Some(gate) = &self.gate {
            self.through_gate(gate, room, bytes);
        }
    }

    /// Clears the winners.
    #[inline]
    fn begin(&self, room: &mut Room) {
        if room.wins.len() < self.starts.len() {
            room.wins.resize_with(self.starts.len(), || Win::NONE);
        }
        room.wins.iter_mut().for_each(|win| win.rule = u32::MAX);
    }

    /// Returns the rule of a filter that matched the last packet.
    #[inline]
    pub fn winner(&self, room: &Room, filter: usize) -> Option<usize> {
        let rule = room.wins.get(filter)?.rule;
        (rule != u32::MAX).then(|| (rule - self.starts[filter]) as usize)
    }

    /// Runs the rules that wait for the gate.
    fn through_gate(&self, gate: &Gate, room: &mut Room, bytes: &[u8]) {
        let mut found = std::mem::take(&mut room.found);
        found.clear();
        let (wins, open) = (&mut room.wins, &mut room.open);
        open.clear();
        // Groups of a filter are in the order of their first rules.
        open.extend(self.group_ends.iter().enumerate().map(|(filter, end)| {
            let (own, won) = (self.groups_from(filter), wins[filter].rule);
            if won == u32::MAX {
                return *end;
            }
            let before = |group: &Group| group.numbers[0] < won;
            own + self.groups[own as usize..*end as usize].partition_point(before) as u32
        }));
        let mut bound = self.bound(open);
        gate.scan(bytes, bound, &mut |run, at| {
            let group = &self.groups[run as usize];
            let filter = group.filter as usize;
            if run >= open[filter] {
                return bound;
            }
            if group.decisive {
                wins[filter].take(group.numbers[0], 0, Place::Decided);
                open[filter] = run;
                bound = self.bound(open);
            } else if found.last().is_none_or(|(last, _)| *last != run) {
                found.push((run, at));
            }
            bound
        });
        if !found.is_empty() {
            // Sorts by run; if a run has several positions, the first one is kept.
            found.sort_unstable();
            found.dedup_by_key(|(run, _)| *run);
            found.iter().for_each(|(number, at)| self.group(*number, *at, room, bytes));
        }
        room.found = found;
    }

    fn groups_from(&self, filter: usize) -> u32 {
        filter.checked_sub(1).map_or(0, |before| self.group_ends[before])
    }

    /// Number from which groups cannot win any more.
    fn bound(&self, open: &[u32]) -> u32 {
        let last = (0..open.len()).rev().find(|filter| open[*filter] > self.groups_from(*filter));
        last.map_or(0, |filter| open[filter])
    }

    /// Runs a group; its bytes first occur at `at`.
    fn group(&self, number: u32, at: usize, room: &mut Room, bytes: &[u8]) {
        let group = &self.groups[number as usize];
        if group.numbers[0] >= room.wins[group.filter as usize].rule {
            return;
        }
        let also = group.also.as_ref().map_or(Some(0), |also| also.earliest(bytes));
        let Some(from) = also else { return };
        let from = if group.leads { at } else { from };
        for (at, part) in (0u32..).zip(group.parts()) {
            part.run(room, bytes, from, Place::Group(number, at));
        }
    }

    /// Finds the first rules of several packets, several in parallel if that is faster; slots are not available.
    pub fn first_matches(&self, room: &mut Room, packets: &[&[u8]], found: &mut [Option<usize>]) {
        if let ([part], None, [_]) = (&self.parts[..], &self.gate, &self.starts[..])
            && let Engine::Dense(dense) = &part.engine
        {
            dense.each_state(packets, &mut room.registers, |packet, state| {
                let accept = dense.accepts(state).first();
                found[packet] = accept.map(|accept| part.rules[accept.rule as usize] as usize);
            });
            return;
        }
        for (packet, found) in packets.iter().zip(found) {
            *found = self.first_match(room, packet);
        }
    }

    /// Returns a slot of the first filter's rule, as [`Matcher::slot_of`].
    #[inline]
    pub fn slot(&self, room: &Room, slot: u32, len: usize) -> Option<(usize, usize)> {
        self.slot_of(room, 0, slot, len)
    }

    /// Returns a slot of the rule of a filter that matched a packet of `len` bytes; none if its part of the pattern
    /// did not take part in the match, or if the rule's action does not need it.
    #[inline]
    pub fn slot_of(
        &self,
        room: &Room,
        filter: usize,
        slot: u32,
        len: usize,
    ) -> Option<(usize, usize)> {
        let win = room.wins.get(filter)?;
        let part = match win.place {
            Place::Part(number) => self.parts.get(number as usize)?,
            Place::Group(group, part) => &self.groups[group as usize].parts()[part as usize],
            Place::Decided => return None,
        };
        part.nfa.rules[win.own as usize].span(slot, &win.tags, len)
    }
}

/// Returns true if a pattern may begin anywhere; other patterns fail after a few bytes in an automaton.
pub(crate) fn floats(node: &Node) -> bool {
    match node {
        Node::Sequence(nodes) => nodes.first().is_some_and(floats),
        Node::Capture(_, node) => floats(node),
        Node::Repeat { max: None, .. } => true,
        _ => false,
    }
}
