//! Class `ruler` over streams: rules apply to the stream that the pieces of class [`tcp`](super::super::tcp) form.
//!
//! A piece passes as soon as no later byte can make the rules reject its stream, and then all later pieces pass too;
//! its class value is that of the first rule that matches so far. An empty frame ends a stream: it passes if the
//! rules accept the whole stream. Cost: a step of each running automaton per byte; nothing more once the result is
//! certain. Memory: the state of the automata for each open stream; at most [`MAX_STREAMS`] are open.

use crate::node::{Arrival, Counter, MakeError, Node, NodeError};
use fyke_flow::Ageing;
use fyke_frame::Mask;
use fyke_ruler::matcher::Room;
use fyke_ruler::{Action, CompileError, Limits, Matcher, Program, Progress, Stream};
use std::num::NonZeroU64;

/// Most open streams; beyond it, the stream that has been silent for longest is dropped.
const MAX_STREAMS: usize = 1 << 20;

pub(super) struct StreamRules {
    matcher: Matcher,
    room: Room,
    /// Class value of each rule that accepts; `None` for a rule that rejects.
    values: Vec<Option<u32>>,
    /// Rules before this one all accept.
    all_accept: usize,
    open: Ageing<NonZeroU64, Known>,
    too_long: u64,
}

struct Known {
    stream: Stream,
    /// Result for all later pieces, if it is certain.
    settled: Option<Option<u32>>,
}

impl StreamRules {
    /// # Errors
    /// If the filter rewrites, needs a link type, or exceeds a limit.
    pub(super) fn new(program: &Program, filter: usize) -> Result<StreamRules, MakeError> {
        let filter = &program.filters[filter];
        if !filter.links.is_empty() {
            let message = format!("`{}` is for a link type; streams have none", filter.name);
            return Err(MakeError::new("stream", message));
        }
        let value = |action: &Action| match action {
            Action::Accept(class) => Ok(Some(class.unwrap_or(0))),
            Action::Reject => Ok(None),
            Action::Rewrite { .. } => {
                Err(MakeError::new("stream", "rules that rewrite are for frames, not for streams"))
            }
        };
        let values: Vec<Option<u32>> =
            filter.rules.iter().map(|rule| value(&rule.action)).collect::<Result<_, _>>()?;
        let too_large = |cause| CompileError { filter: filter.name.clone(), cause };
        let matcher = Matcher::new(&filter.rules, Limits::default())
            .map_err(|cause| MakeError::new("expression", too_large(cause)))?;
        let all_accept = values.iter().take_while(|value| value.is_some()).count();
        let (room, open) = (Room::default(), Ageing::new(MAX_STREAMS));
        Ok(StreamRules { matcher, room, values, all_accept, open, too_long: 0 })
    }

    /// Class value if the rules accept the whole stream.
    fn end(&mut self, stream: &Stream) -> Option<u32> {
        self.matcher.at_end(stream, &mut self.room);
        self.matcher.winner(&self.room, 0).and_then(|rule| self.values[rule])
    }

    fn piece(&mut self, number: NonZeroU64, bytes: &[u8]) -> Option<u32> {
        let begun = || Known { stream: self.matcher.stream(), settled: None };
        let mut known = self.open.remove(&number).unwrap_or_else(begun);
        if bytes.is_empty() {
            return known.settled.unwrap_or_else(|| self.end(&known.stream));
        }
        let verdict = match known.settled {
            Some(verdict) => verdict,
            None => match self.matcher.feed(&mut known.stream, &mut self.room, bytes) {
                Progress::Open => {
                    let met = self.matcher.certain(&known.stream, 0);
                    met.filter(|rule| *rule < self.all_accept).and_then(|rule| self.values[rule])
                }
                progress => {
                    self.too_long += u64::from(progress == Progress::TooLong);
                    *known.settled.insert(self.end(&known.stream))
                }
            },
        };
        self.open.insert(number, known, 0);
        verdict
    }
}

impl Node for StreamRules {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            let Some(stream) = arrival.stream(index) else { continue };
            if let Some(value) = self.piece(stream, frame.data) {
                arrival.classify(index, value);
                passed.set(index);
            }
        }
        Ok(passed)
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            Counter::count("open_streams", self.open.len() as u64),
            Counter::count("too_long", self.too_long),
            Counter::count("forgotten_streams", self.open.evicted()),
        ]
    }
}
