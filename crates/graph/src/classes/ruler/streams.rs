//! Class `ruler` over streams: rules apply to the bytes of each direction of a connection.
//!
//! With streams beside the frames, a flow is accepted as soon as no later byte can make the rules reject one of its
//! directions ([`judged`](crate::judged)); its class value is that of the first rule that matches so far. At the end of
//! a direction it is accepted if the rules accept the whole stream.
//!
//! With pieces in place of frames, a piece passes as soon as the same is certain about its direction, and then all
//! later pieces pass too. An empty frame ends a stream: it passes if the rules accept the whole stream.
//!
//! Cost: a step of each running automaton per byte; nothing more once the result is certain. Memory: the state of the
//! automata for each open direction; of pieces, at most [`MAX_STREAMS`] are open.

use crate::judged::{Answer, Judge, Judged};
use crate::node::{Arrival, Counter, Emitted, MakeError, Node, NodeError};
use crate::waiting::Waiting;
use fyke_flow::Ageing;
use fyke_frame::Mask;
use fyke_ruler::matcher::Room;
use fyke_ruler::{Action, CompileError, Limits, Matcher, Program, Progress, Rule, Stream};
use std::num::NonZeroU64;

/// Most open streams of pieces; beyond it, the stream that has been silent for longest is dropped.
const MAX_STREAMS: usize = 1 << 20;

/// Rules for streams.
struct Rules {
    matcher: Matcher,
    room: Room,
    /// Class value of each rule that accepts; `None` for a rule that rejects.
    values: Vec<Option<u32>>,
    /// Rules before this one all accept.
    all_accept: usize,
    too_long: u64,
}

impl Rules {
    /// Class value if the rules accept the whole stream.
    fn value_at_end(&mut self, stream: &Stream) -> Option<u32> {
        self.matcher.at_end(stream, &mut self.room);
        self.matcher.winner(&self.room, 0).and_then(|rule| self.values[rule])
    }

    /// Class value if no later byte can make the rules reject the stream.
    fn value_so_far(&self, stream: &Stream) -> Option<u32> {
        let met = self.matcher.certain(stream, 0);
        met.filter(|rule| *rule < self.all_accept).and_then(|rule| self.values[rule])
    }

    /// Class value of a stream that takes no more bytes.
    fn settle(&mut self, progress: Progress, stream: &Stream) -> Option<u32> {
        self.too_long += u64::from(progress == Progress::TooLong);
        self.value_at_end(stream)
    }
}

impl Judge for Rules {
    type State = Box<Stream>;

    fn begin(&mut self) -> Box<Stream> {
        Box::new(self.matcher.stream())
    }

    fn take(&mut self, stream: &mut Box<Stream>, bytes: &[u8]) -> Answer {
        match self.matcher.feed(stream, &mut self.room, bytes) {
            Progress::Open => self.value_so_far(stream).map_or(Answer::Open, Answer::Accept),
            progress => self.settle(progress, stream).map_or(Answer::Drop, Answer::Accept),
        }
    }

    fn end(&mut self, stream: Box<Stream>) -> Option<u32> {
        self.value_at_end(&stream)
    }

    fn alone(&mut self, payload: &[u8]) -> Option<u32> {
        let rule = self.matcher.first_match(&mut self.room, payload)?;
        self.values[rule]
    }
}

/// State of a stream of pieces.
struct Known {
    stream: Box<Stream>,
    /// Result for all later pieces, if it is certain.
    settled: Option<Option<u32>>,
}

pub(super) struct StreamRules {
    judged: Judged<Rules>,
    open: Ageing<NonZeroU64, Known>,
}

impl StreamRules {
    /// Rules that do not rewrite, for any link type.
    ///
    /// # Errors
    /// If the filter exceeds a limit.
    pub(super) fn new(
        program: &Program,
        filter: usize,
        waiting: Option<Waiting>,
    ) -> Result<StreamRules, MakeError> {
        let filter = &program.filters[filter];
        let value = |rule: &Rule| match rule.action {
            Action::Accept(class) => Some(class.unwrap_or(0)),
            Action::Reject | Action::Rewrite { .. } => None,
        };
        let values: Vec<Option<u32>> = filter.rules.iter().map(value).collect();
        let too_large = |cause| CompileError { filter: filter.name.clone(), cause };
        let matcher = Matcher::new(&filter.rules, Limits::default())
            .map_err(|cause| MakeError::new("expression", too_large(cause)))?;
        let all_accept = values.iter().take_while(|value| value.is_some()).count();
        let rules = Rules { matcher, room: Room::default(), values, all_accept, too_long: 0 };
        let open = Ageing::new(MAX_STREAMS);
        Ok(StreamRules { judged: Judged::new(rules, waiting), open })
    }

    fn piece(&mut self, number: NonZeroU64, bytes: &[u8]) -> Option<u32> {
        let rules = &mut self.judged.judge;
        let known = self.open.remove(&number);
        let mut known = known.unwrap_or_else(|| Known { stream: rules.begin(), settled: None });
        if bytes.is_empty() {
            return known.settled.unwrap_or_else(|| rules.end(known.stream));
        }
        let verdict = match known.settled {
            Some(verdict) => verdict,
            None => match rules.matcher.feed(&mut known.stream, &mut rules.room, bytes) {
                Progress::Open => rules.value_so_far(&known.stream),
                progress => *known.settled.insert(rules.settle(progress, &known.stream)),
            },
        };
        self.open.insert(number, known, 0);
        verdict
    }
}

impl Node for StreamRules {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let first = arrival.frames().next();
        if first.is_none_or(|(index, _)| arrival.stream(index).is_none()) {
            return Ok(self.judged.process(arrival));
        }
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

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        self.judged.tick(emitted)
    }

    fn counters(&self) -> Vec<Counter> {
        let mut all = self.judged.counters();
        all.extend([
            Counter::count("open_streams", self.open.len() as u64),
            Counter::count("too_long", self.judged.judge.too_long),
            Counter::count("forgotten_streams", self.open.evicted()),
        ]);
        all
    }
}
