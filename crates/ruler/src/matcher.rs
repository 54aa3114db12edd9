//! Filters, ready to match: which rule of each a packet meets, and what its slots are.
//!
//! A matcher has the rules of one filter, or of several that packets are given to together: these share the search for
//! bytes and, as far as that stays small, the automaton, whose states tell the first rule of each filter.
//!
//! 1. Rules that may begin anywhere and need certain bytes stand behind a `Gate`; those of a filter with the same
//!    bytes share an automaton, and those that are nothing but these bytes need none.
//! 2. All others are one deterministic automaton as long as that has at most [`Limits::states`] states. When it would
//!    have more, each filter gets its own, then each rule, and neighbours are joined as long as the states do not
//!    multiply.
//! 3. The states of a rule that is too large by itself, or comes when [`Limits::bytes`] are spent, are made when
//!    packets come to them, a bounded number at a time.
//!
//! Automata behind the gate are made when the first packet needs them once there are more than [`Limits::eager`]. The
//! first rule of each filter wins whatever was done; what was done is in [`Matcher::parts`], for `fyke ruler check`.

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

/// Bounds of a matcher.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// States of the non-deterministic automaton of one part, and positions of all rules together.
    pub nfa_states: usize,
    /// States of a deterministic automaton.
    pub states: usize,
    /// Configurations looked at while making one automaton.
    pub work: usize,
    /// Bytes of the tables of all parts; what comes later is made lazily.
    pub bytes: usize,
    /// For making automata; what comes later is made lazily.
    pub time: Duration,
    /// Most groups behind the gate whose automata are made at once.
    pub eager: usize,
    /// Whether there may be a gate. Without, all that is possible is in one automaton, as one draws it.
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

/// What an automaton behind the gate may have: there are many, and few packets come to them.
const GATED_STATES: usize = 512;
const GATED_WORK: usize = 20_000;

/// The automata of one filter, or of several.
#[derive(Debug)]
pub struct Matcher {
    /// Where the rules of each filter begin among all of them.
    starts: Vec<u32>,
    /// Parts that every packet is given to, in the order of their rules.
    parts: Vec<Part>,
    gate: Option<Gate>,
    /// Behind the gate, by the number of the run that they need; filter by filter.
    groups: Vec<Group>,
    /// Where the groups of each filter end.
    group_ends: Vec<u32>,
    /// Rules that an earlier one with the same bytes always beats.
    beaten: Vec<u32>,
}

/// Some rules, and how they are matched.
#[derive(Debug)]
pub struct Part {
    /// Which rules, in order; rules of later filters have the numbers behind those of the filters before.
    pub rules: Vec<u32>,
    /// Their automaton.
    pub engine: Engine,
    pub(crate) nfa: Nfa,
    /// Each filter that has rules here, and the first of them.
    firsts: Vec<(u32, u32)>,
}

/// Rules of a filter that need the same bytes.
#[derive(Debug)]
struct Group {
    filter: u32,
    /// Which rules, in order.
    numbers: Vec<u32>,
    /// Whether the bytes are all that the first rule needs.
    decisive: bool,
    /// Whether all rules begin with any bytes and then these: no match begins before they stand for the first time.
    leads: bool,
    /// Other bytes that all rules need.
    also: Option<Also>,
    /// The rules themselves, until the automata are made.
    rules: Vec<Rule>,
    limits: Limits,
    parts: OnceLock<Vec<Part>>,
}

impl Part {
    /// Tags that need a register.
    pub fn tags(&self) -> usize {
        self.nfa.rules.iter().map(|rule| rule.tags as usize).sum()
    }

    /// Positions that actions use and that are told without one.
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

    /// Filters that have rules here.
    pub fn filters(&self) -> usize {
        self.firsts.len()
    }

    /// Takes what a state accepts, after `len` bytes.
    #[inline]
    fn accept(
        &self,
        dense: &Dense,
        state: usize,
        registers: &Registers,
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

    /// Runs unless rules before these have won already; what is before `from` is any bytes to all of them.
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
                // It has one rule only.
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

/// How rules are matched.
#[derive(Debug)]
pub enum Engine {
    /// By a deterministic automaton, in one pass.
    Dense(Dense),
    /// By a deterministic automaton whose states are made when packets come to them; names by following all ways at
    /// once.
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

/// Room for runs of a matcher; one per thread.
#[derive(Debug, Default)]
pub struct Room {
    pike: pike::Room,
    /// States made so far, by the first rule of the part.
    lazy: HashMap<u32, Lazy, Fold>,
    registers: Registers,
    /// The winner of each filter so far.
    wins: Vec<Win>,
    /// Groups of each filter that can still win end here.
    open: Vec<u32>,
    /// Groups whose bytes are in the packet, and where first.
    found: Vec<(u32, usize)>,
}

/// The first rule of a filter that matches.
#[derive(Debug)]
struct Win {
    /// The largest number: none.
    rule: u32,
    /// Its number in its part.
    own: u32,
    place: Place,
    tags: Vec<u32>,
}

impl Win {
    const NONE: Win = Win { rule: u32::MAX, own: 0, place: Place::Decided, tags: Vec::new() };

    /// Takes a rule if it is before the one that is there.
    fn take(&mut self, rule: u32, own: u32, place: Place) -> bool {
        if rule >= self.rule {
            return false;
        }
        (self.rule, self.own, self.place) = (rule, own, place);
        true
    }
}

/// Where a winner's slots are.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// In a part that every packet is given to.
    Part(u32),
    /// In a part of a group.
    Group(u32, u32),
    /// The first rule of a group, decided by the gate: nobody needs slots.
    Decided,
}

impl Matcher {
    /// Makes the automata of one filter's `rules`.
    ///
    /// # Errors
    /// When a rule would be over a limit even by itself, or all together are.
    pub fn new(rules: &[Rule], limits: Limits) -> Result<Matcher, TooLarge> {
        Matcher::of_filters(&[rules], limits)
    }

    /// Makes the automata of several filters: a packet is gone through once for all of them.
    ///
    /// # Errors
    /// When the rules of a filter together are over a limit.
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
        let others = matcher.put_behind_gate(source, limits);
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

    /// Groups the rules that need certain bytes; gives the others.
    fn put_behind_gate(&mut self, source: Source<'_>, limits: Limits) -> Vec<u32> {
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

    /// How the rules are matched that every packet is compared with.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How the rules are matched that need bytes which few packets have; what has not been made yet is made now.
    pub fn gated(&self) -> impl Iterator<Item = &Part> {
        self.groups.iter().filter(|group| !group.decisive).flat_map(Group::parts)
    }

    /// Rules behind the gate that never win, since an earlier one takes all that has their bytes.
    pub fn beaten(&self) -> &[u32] {
        &self.beaten
    }

    /// Rules that the scan for bytes decides alone.
    pub fn decided(&self) -> usize {
        self.groups.iter().filter(|group| group.decisive).count()
    }

    /// Memory of the gate.
    pub fn gate_bytes(&self) -> usize {
        self.gate.as_ref().map_or(0, Gate::bytes)
    }

    /// How the gate scans, for people.
    pub fn gate(&self) -> Option<String> {
        self.gate.as_ref().map(Gate::describe)
    }

    /// The first rule of the first filter that matches all of `bytes`. Slots can be asked for until the next call.
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

    /// Nobody has won.
    #[inline]
    fn begin(&self, room: &mut Room) {
        if room.wins.len() < self.starts.len() {
            room.wins.resize_with(self.starts.len(), || Win::NONE);
        }
        room.wins.iter_mut().for_each(|win| win.rule = u32::MAX);
    }

    /// The rule of a filter that the last packet met.
    #[inline]
    pub fn winner(&self, room: &Room, filter: usize) -> Option<usize> {
        let rule = room.wins.get(filter)?.rule;
        (rule != u32::MAX).then(|| (rule - self.starts[filter]) as usize)
    }

    /// Looks at the rules behind the gate.
    fn through_gate(&self, gate: &Gate, room: &mut Room, bytes: &[u8]) {
        let mut found = std::mem::take(&mut room.found);
        found.clear();
        let (wins, open) = (&mut room.wins, &mut room.open);
        open.clear();
        // Groups of a filter come in the order of their first rules.
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
            // By run; of several places of one, the first.
            found.sort_unstable();
            found.dedup_by_key(|(run, _)| *run);
            found.iter().for_each(|(number, at)| self.group(*number, *at, room, bytes));
        }
        room.found = found;
    }

    fn groups_from(&self, filter: usize) -> u32 {
        filter.checked_sub(1).map_or(0, |before| self.group_ends[before])
    }

    /// Groups from this number on cannot win any more.
    fn bound(&self, open: &[u32]) -> u32 {
        let last = (0..open.len()).rev().find(|filter| open[*filter] > self.groups_from(*filter));
        last.map_or(0, |filter| open[filter])
    }

    /// A group whose bytes stand at `at` first.
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

    /// The first rules of several packets, several at a time where that is faster; slots cannot be asked for.
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

    /// A slot of the first filter's rule, as [`Matcher::slot_of`].
    #[inline]
    pub fn slot(&self, room: &Room, slot: u32, len: usize) -> Option<(usize, usize)> {
        self.slot_of(room, 0, slot, len)
    }

    /// A slot of the rule of a filter that was found for a packet of `len` bytes; none when its part of the pattern
    /// was not used, or the rule's action does not need it.
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

/// Whether a pattern may begin anywhere: where it does not, an automaton soon knows that it does not match.
pub(crate) fn floats(node: &Node) -> bool {
    match node {
        Node::Sequence(nodes) => nodes.first().is_some_and(floats),
        Node::Capture(_, node) => floats(node),
        Node::Repeat { max: None, .. } => true,
        _ => false,
    }
}
