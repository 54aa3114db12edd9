//! Matching of a stream in pieces: the answers equal those for all pieces in one packet.
//!
//! State between pieces: the state and registers of each automaton, with positions counted from the start of the
//! stream; the groups with bytes that have occurred; and the last bytes (255 at most), in which a run of the gate may
//! begin that ends in the next piece. A group runs from the first byte if its rules accept anything before the bytes
//! that they need, and otherwise from the first occurrence of these bytes. Once no further byte can change the answer
//! of any filter, pieces are ignored.
//!
//! Cost: a step of each running automaton and the gate's scan per byte. [`Stream::bytes`] returns the memory: 4
//! bytes and the registers for each automaton; for a rule over the limits, a list of at most its positions.
//!
//! Source: Hruby, chapter 6, where a state number is all that is kept; here positions of names are kept too.

use super::{Engine, Gate, Group, Matcher, Part, Place, Room};
use crate::dense::Kind;
use crate::pike;
use smallvec::{SmallVec, smallvec};

/// Numbers in the stream itself if they are few, as they are for one filter: with very many streams every other place
/// in memory is a load that takes longer than the bytes of a segment.
type Few<T> = SmallVec<[T; 2]>;
/// States of automata; of a single one, in the stream itself.
type States = SmallVec<[State; 1]>;

/// State of a stream after the pieces so far.
#[derive(Debug, Clone)]
pub struct Stream {
    len: u32,
    settled: bool,
    /// States of the parts that read every byte.
    parts: States,
    /// Per filter: this rule or an earlier one is certain to win; the largest number: nothing is certain.
    certain: Few<u32>,
    /// First rule of each filter that the gate decided.
    decided: Few<u32>,
    /// Groups with running automata, by number.
    groups: Vec<(u32, States)>,
    /// The last bytes.
    tail: Vec<u8>,
}

/// State of an automaton.
#[derive(Debug, Clone)]
enum State {
    Dense { row: u32, registers: Few<u32> },
    Pike(Box<pike::Suspended>),
}

/// Effect that further bytes can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// They can change the answer.
    Open,
    /// None: further pieces are ignored.
    Settled,
    /// The stream would exceed [`MAX_STREAM`] bytes: the piece was not taken.
    TooLong,
}

/// Maximum length of a stream in bytes: positions have 32 bits.
pub const MAX_STREAM: u32 = u32::MAX - 2;

impl Stream {
    /// Number of bytes so far.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there were no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory of the stream's state, in bytes.
    pub fn bytes(&self) -> usize {
        let state = |state: &State| match state {
            State::Dense { registers, .. } => size_of::<State>() + registers.len() * 4,
            State::Pike(threads) => size_of::<State>() + threads.bytes(),
        };
        let groups = self.groups.iter().flat_map(|(_, states)| states);
        let states: usize = self.parts.iter().chain(groups).map(state).sum();
        size_of::<Stream>() + states + self.tail.len() + self.certain.len() * 8
    }
}

impl Matcher {
    /// Creates an empty stream.
    pub fn stream(&self) -> Stream {
        let from_start = |(_, group): &(u32, &Group)| !group.decisive && !group.leads;
        let groups = (0u32..).zip(&self.groups).filter(from_start);
        let states = |parts: &[Part]| parts.iter().map(|part| part.begin(0)).collect::<States>();
        let mut stream = Stream {
            len: 0,
            settled: false,
            parts: states(&self.parts),
            certain: smallvec![u32::MAX; self.starts.len()],
            decided: smallvec![u32::MAX; self.starts.len()],
            groups: groups.map(|(number, group)| (number, states(group.parts()))).collect(),
            tail: Vec::new(),
        };
        self.settle(&mut stream);
        stream
    }

    /// Returns true if all automata are in their first state: no pattern with a name for the bytes before it has begun.
    /// An automaton with states that are built on demand never is.
    pub fn is_at_start(&self, stream: &Stream) -> bool {
        self.groups.is_empty()
            && self.parts.iter().zip(&stream.parts).all(|(part, state)| {
                match (&part.engine, state) {
                    (Engine::Dense(dense), State::Dense { row, .. }) => *row == dense.start(),
                    _ => false,
                }
            })
    }

    /// Takes the next piece of a stream of this matcher.
    pub fn feed(&self, stream: &mut Stream, room: &mut Room, piece: &[u8]) -> Progress {
        let len = u32::try_from(piece.len()).ok().and_then(|len| stream.len.checked_add(len));
        let Some(len) = len.filter(|len| *len <= MAX_STREAM) else { return Progress::TooLong };
        let base = stream.len;
        if stream.settled {
            stream.len = len;
            return Progress::Settled;
        }
        for (part, state) in self.parts.iter().zip(&mut stream.parts) {
            part.feed(state, room, piece, base);
        }
        for (number, states) in &mut stream.groups {
            let parts = self.groups[*number as usize].parts();
            parts.iter().zip(states).for_each(|(part, state)| part.feed(state, room, piece, base));
        }
        if let Some(gate) = &self.gate {
            self.feed_gate(gate, stream, room, piece);
        }
        stream.len = len;
        self.settle(stream);
        if stream.settled { Progress::Settled } else { Progress::Open }
    }

    /// Starts the groups if their bytes end in this piece.
    fn feed_gate(&self, gate: &Gate, stream: &mut Stream, room: &mut Room, piece: &[u8]) {
        let overlap = gate.longest().saturating_sub(1);
        let old = stream.tail.len();
        stream.tail.extend_from_slice(&piece[..piece.len().min(overlap)]);
        let mut found: Vec<(u32, i64)> = Vec::new();
        let Stream { groups, certain, decided, tail, .. } = &mut *stream;
        for (bytes, before) in [(&tail[..], old as i64), (piece, 0)] {
            gate.scan(bytes, u32::MAX, &mut |run, at| {
                let group = &self.groups[run as usize];
                let filter = group.filter as usize;
                if group.decisive {
                    decided[filter] = decided[filter].min(group.numbers[0]);
                    certain[filter] = certain[filter].min(group.numbers[0]);
                } else if group.numbers[0] < certain[filter]
                    && groups.binary_search_by_key(&run, |(known, _)| *known).is_err()
                {
                    found.push((run, at as i64 - before));
                }
                u32::MAX
            });
        }
        // Of several positions of one group, the first is kept.
        found.sort_unstable();
        found.dedup_by_key(|(run, _)| *run);
        for (number, at) in found {
            let parts = self.groups[number as usize].parts();
            let back = usize::try_from(-at).unwrap_or(0);
            let ahead = usize::try_from(at).unwrap_or(0);
            let before = &stream.tail[old.saturating_sub(back)..old];
            let narrow = |len: usize| u32::try_from(len).unwrap_or(0);
            let start = stream.len - narrow(before.len()) + narrow(ahead);
            let mut states: States = parts.iter().map(|part| part.begin(start)).collect();
            for (part, state) in parts.iter().zip(&mut states) {
                part.feed(state, room, before, start);
                part.feed(state, room, &piece[ahead..], start + narrow(before.len()));
            }
            let place = stream.groups.partition_point(|(known, _)| *known < number);
            stream.groups.insert(place, (number, states));
        }
        stream.tail.truncate(old);
        let kept = &piece[piece.len().saturating_sub(overlap)..];
        stream.tail.drain(..(old + kept.len()).saturating_sub(overlap).min(old));
        stream.tail.extend_from_slice(kept);
    }

    /// Determines which answers are certain, and if further bytes matter.
    fn settle(&self, stream: &mut Stream) {
        let mut open = false;
        let groups = stream
            .groups
            .iter()
            .flat_map(|(number, states)| self.groups[*number as usize].parts().iter().zip(states));
        let all = || self.parts.iter().zip(&stream.parts).chain(groups.clone());
        for (part, state) in all() {
            part.certain(state, &mut stream.certain);
        }
        let certain = &stream.certain;
        for (part, state) in all() {
            // A certain rule may still lack the positions of its names.
            let may_win =
                part.firsts.iter().any(|(filter, first)| *first <= certain[*filter as usize]);
            open |= may_win && !part.is_done(state);
        }
        for (filter, end) in (0..).zip(&self.group_ends) {
            // The first group that still waits for its bytes.
            let waiting = (self.groups_from(filter)..*end).find(|number| {
                let group = &self.groups[*number as usize];
                let came = stream.groups.binary_search_by_key(number, |(known, _)| *known).is_ok();
                !(came || group.decisive && stream.decided[filter] == group.numbers[0])
            });
            let first = waiting.map(|number| self.groups[number as usize].numbers[0]);
            open |= first.is_some_and(|first| first < certain[filter]);
        }
        stream.settled = !open;
    }

    /// Returns the rule of a filter that will win unless an earlier one does, if that is already certain.
    pub fn certain(&self, stream: &Stream, filter: usize) -> Option<usize> {
        let rule = *stream.certain.get(filter)?;
        (rule != u32::MAX).then(|| (rule - self.starts[filter]) as usize)
    }

    /// Finds the first rule of each filter that matches all of the stream so far, as [`Matcher::matches`] does for
    /// a packet; the stream may continue afterwards.
    pub fn at_end(&self, stream: &Stream, room: &mut Room) {
        self.begin(room);
        for (number, (part, state)) in (0u32..).zip(self.parts.iter().zip(&stream.parts)) {
            part.end(state, room, stream.len(), Place::Part(number));
        }
        for (number, states) in &stream.groups {
            let parts = self.groups[*number as usize].parts();
            for (at, (part, state)) in (0u32..).zip(parts.iter().zip(states)) {
                part.end(state, room, stream.len(), Place::Group(*number, at));
            }
        }
        for (win, rule) in room.wins.iter_mut().zip(&stream.decided) {
            win.take(*rule, 0, Place::Decided);
        }
    }
}

impl Part {
    /// Creates the state at its start, at a position of the stream.
    fn begin(&self, at: u32) -> State {
        match &self.engine {
            Engine::Dense(dense) => {
                let registers = smallvec![crate::nfa::NONE; dense.registers()];
                State::Dense { row: dense.start(), registers }
            }
            Engine::Lazy => State::Pike(Box::new(pike::Suspended::new(&self.nfa, at))),
        }
    }

    fn feed(&self, state: &mut State, room: &mut Room, piece: &[u8], base: u32) {
        match (&self.engine, state) {
            (Engine::Dense(dense), State::Dense { row, registers }) => {
                *row = dense.resume(*row, piece, base as usize, registers);
            }
            (_, State::Pike(threads)) => threads.feed(&self.nfa, &mut room.pike, piece, base),
            (Engine::Lazy, State::Dense { .. }) => {}
        }
    }

    /// Returns true if no byte can change the answer of this part.
    fn is_done(&self, state: &State) -> bool {
        match (&self.engine, state) {
            (Engine::Dense(dense), State::Dense { row, .. }) => {
                matches!(dense.kind(dense.state(*row)), Kind::Dead | Kind::Settled)
            }
            (_, State::Pike(threads)) => threads.is_done(&self.nfa),
            (Engine::Lazy, State::Dense { .. }) => true,
        }
    }

    /// Records rules that match every continuation, unless an earlier rule matches.
    fn certain(&self, state: &State, certain: &mut [u32]) {
        let mut met = |rule: u32| {
            let filter = self.nfa.filters[rule as usize] as usize;
            certain[filter] = certain[filter].min(self.rules[rule as usize]);
        };
        match (&self.engine, state) {
            (Engine::Dense(dense), State::Dense { row, .. }) => {
                let state = dense.state(*row);
                if dense.kind(state) == Kind::Settled {
                    dense.accepts(state).iter().for_each(|accept| met(accept.rule));
                }
            }
            (_, State::Pike(threads)) => {
                if threads.is_universal(&self.nfa) {
                    met(0);
                }
            }
            (Engine::Lazy, State::Dense { .. }) => {}
        }
    }

    fn end(&self, state: &State, room: &mut Room, len: usize, place: Place) {
        match (&self.engine, state) {
            (Engine::Dense(dense), State::Dense { row, registers }) => {
                self.accept(dense, dense.state(*row), registers, &mut room.wins, len, place);
            }
            (_, State::Pike(threads)) => {
                let win = &mut room.wins[self.firsts[0].0 as usize];
                if let Some(tags) = threads.accepted(&self.nfa)
                    && win.take(self.rules[0], 0, place)
                {
                    win.tags.clear();
                    win.tags.extend_from_slice(tags);
                }
            }
            (Engine::Lazy, State::Dense { .. }) => {}
        }
    }
}
