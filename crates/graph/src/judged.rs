//! Verdicts about flows by the streams beside the frames; the part that all nodes with `stream=y` have in common.
//!
//! A node looks at the pieces of both directions of each flow until it knows the verdict: it accepts the flow with a
//! value, from the frame on that completes the match, or drops it. Then it votes for an end of the pieces, and a frame
//! of the flow costs a look-up by its number. Packets of flows without streams are judged one by one until one is
//! accepted; packets without ports always are. With [`Waiting`], frames of open flows wait for the verdict. Memory:
//! 64 bytes for each flow number in use, and the states of open directions. Source: Hruby's thesis, 6.5 (postponed and
//! resumed matching, DROP, values of accepted streams).

use crate::node::{Arrival, BatchEvent, Counter, Emitted, FrameFlow, NodeError, Pause};
use crate::waiting::Waiting;
use fyke_flow::streams::{Event, Flow, Piece};
use fyke_frame::{Frame, Mask, walk};

/// Answer about one direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// More bytes can change the answer.
    Open,
    /// The flow is accepted, with this class value.
    Accept(u32),
    /// This direction is not accepted, whatever comes.
    Drop,
}

/// Rules about streams.
pub trait Judge: Send {
    /// State of a direction between pieces.
    type State: Send;

    /// The state at the beginning of a stream, or after missing bytes.
    fn begin(&mut self) -> Self::State;

    /// Takes the next bytes of a stream.
    fn take(&mut self, state: &mut Self::State, bytes: &[u8]) -> Answer;

    /// Decides about a whole stream: the class value if it is accepted.
    fn end(&mut self, state: Self::State) -> Option<u32>;

    /// Decides about the payload of a packet without a stream.
    fn alone(&mut self, payload: &[u8]) -> Option<u32>;
}

/// One direction of a flow.
#[derive(Debug)]
enum Side<S> {
    Unseen,
    Open { state: S, next: u64 },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    Accept(u32),
    Drop,
}

impl Verdict {
    /// Class value of an accepted flow.
    fn value(self) -> Option<u32> {
        match self {
            Verdict::Accept(value) => Some(value),
            Verdict::Open | Verdict::Drop => None,
        }
    }
}

#[derive(Debug)]
struct Known<S> {
    connection: u64,
    verdict: Verdict,
    /// True if the match was counted as unseen.
    is_unseen: bool,
    /// Backward and forward direction.
    sides: [Side<S>; 2],
}

impl<S> Known<S> {
    fn new(connection: u64) -> Known<S> {
        let sides = [Side::Unseen, Side::Unseen];
        Known { connection, verdict: Verdict::Open, is_unseen: false, sides }
    }
}

/// A node's verdicts.
pub struct Judged<J: Judge> {
    /// The rules.
    pub judge: J,
    flows: Vec<Option<Known<J::State>>>,
    waiting: Option<Waiting>,
    accepted: u64,
    /// Accepted flows without a frame that passed.
    unseen: u64,
    dropped: u64,
    open: u64,
}

impl<J: Judge> Judged<J> {
    /// No flows yet; with `waiting`, frames of open flows wait for the verdict.
    pub fn new(judge: J, waiting: Option<Waiting>) -> Judged<J> {
        Judged { judge, flows: Vec::new(), waiting, accepted: 0, unseen: 0, dropped: 0, open: 0 }
    }

    /// Judges the frames that arrive; returns those that pass, and classifies them.
    pub fn process(&mut self, arrival: &mut Arrival<'_>) -> Mask {
        let (flows, batch) = (arrival.flows(), arrival.batch());
        let (mut passed, mut next) = (Mask::EMPTY, 0);
        let event = |number: usize| flows.and_then(|flows| flows.event(number, batch));
        for (index, frame) in arrival.frames() {
            while let Some(one) = event(next).filter(|one| one.at <= index) {
                if one.at == index || !one.is_of_frame {
                    self.event(&one, arrival);
                }
                next += 1;
            }
            let flow = arrival.flow(index);
            let verdict = self.verdict(flow, frame);
            let packet = flows.and_then(|flows| flows.completed_by(index));
            if let (Some(waiting), Some(packet), Some(flow)) =
                (&mut self.waiting, packet, flow.flow())
            {
                waiting.join(packet, flow.connection, verdict.value());
            }
            if self.pass(arrival, index, frame, flow, verdict) {
                passed.set(index);
            }
        }
        while let Some(one) = event(next) {
            if !one.is_of_frame {
                self.event(&one, arrival);
            }
            next += 1;
        }
        let is_end = arrival.pause() == Some(Pause::End);
        if let Some(waiting) = &mut self.waiting {
            waiting.release(arrival.emitted(), None);
            if is_end {
                waiting.end(arrival.emitted());
            }
        }
        passed
    }

    /// Passes a frame, or lets it wait; true if it passes now.
    fn pass(
        &mut self,
        arrival: &mut Arrival<'_>,
        index: usize,
        frame: &Frame<'_>,
        flow: FrameFlow,
        verdict: Verdict,
    ) -> bool {
        if verdict == Verdict::Drop {
            return false;
        }
        let value = verdict.value();
        let Some(waiting) = &mut self.waiting else {
            value.iter().for_each(|value| arrival.classify(index, *value));
            return value.is_some();
        };
        if let Some(value) = value
            && waiting.is_empty()
            && arrival.emitted().is_empty()
        {
            arrival.classify(index, value);
            return true;
        }
        let source = arrival.source();
        waiting.hold(source, frame, flow, value);
        waiting.release(arrival.emitted(), Some(frame.timestamp_ns));
        false
    }

    /// The verdict about a frame.
    fn verdict(&mut self, flow: FrameFlow, frame: &Frame<'_>) -> Verdict {
        let alone = |judge: &mut J| match judge.alone(walk(frame).payload()) {
            Some(value) => Verdict::Accept(value),
            None => Verdict::Drop,
        };
        match flow {
            FrameFlow::None => alone(&mut self.judge),
            FrameFlow::Unknown => Verdict::Drop,
            // Its packet may belong to a flow that is accepted.
            FrameFlow::Part(packet) => match alone(&mut self.judge) {
                Verdict::Drop if self.waiting.is_some() && packet > 0 => Verdict::Open,
                verdict => verdict,
            },
            FrameFlow::Stream(Flow { number, connection, .. }) => {
                let known = self.known(number, connection);
                let (verdict, was_unseen) = (known.verdict, std::mem::take(&mut known.is_unseen));
                self.unseen -= u64::from(was_unseen);
                verdict
            }
            FrameFlow::Datagram(Flow { number, connection, .. }) => {
                if self.known(number, connection).verdict == Verdict::Open
                    && let Verdict::Accept(value) = alone(&mut self.judge)
                {
                    self.decide(number, connection, Verdict::Accept(value));
                }
                let known = self.known(number, connection);
                let (verdict, was_unseen) = (known.verdict, std::mem::take(&mut known.is_unseen));
                self.unseen -= u64::from(was_unseen);
                verdict
            }
        }
    }

    /// The state of a flow; a new one if its number belongs to another connection now.
    fn known(&mut self, number: u32, connection: u64) -> &mut Known<J::State> {
        let at = number as usize;
        if self.flows.len() <= at {
            self.flows.resize_with(at + 1, || None);
        }
        if self.flows[at].as_ref().is_some_and(|known| known.connection != connection) {
            self.forget(at);
        }
        let open = &mut self.open;
        self.flows[at].get_or_insert_with(|| {
            *open += 1;
            Known::new(connection)
        })
    }

    /// Removes the state of a flow; frames that still wait for its verdict do not pass.
    fn forget(&mut self, at: usize) {
        let Some(known) = self.flows.get_mut(at).and_then(Option::take) else { return };
        self.open -= u64::from(known.verdict == Verdict::Open);
        if let Some(waiting) = &mut self.waiting {
            waiting.decide(known.connection, None);
        }
    }

    fn decide(&mut self, number: u32, connection: u64, verdict: Verdict) {
        let is_alone = self.waiting.is_none();
        let known = self.known(number, connection);
        if known.verdict != Verdict::Open {
            return;
        }
        known.verdict = verdict;
        known.sides = [Side::Done, Side::Done];
        let value = verdict.value();
        known.is_unseen = is_alone && value.is_some();
        self.unseen += u64::from(is_alone && value.is_some());
        self.open -= 1;
        self.accepted += u64::from(value.is_some());
        self.dropped += u64::from(value.is_none());
        if let Some(waiting) = &mut self.waiting {
            waiting.decide(connection, value);
        }
    }

    fn event(&mut self, one: &BatchEvent<'_>, arrival: &mut Arrival<'_>) {
        match one.event {
            Event::Piece(piece) => self.piece(&piece, arrival),
            Event::Removed { flow, connection } => {
                let at = flow as usize;
                let own = self.flows.get(at).and_then(Option::as_ref);
                if own.is_some_and(|known| known.connection == connection) {
                    self.forget(at);
                }
            }
        }
    }

    /// Judges a piece. Bytes are missing before it if it does not follow the one before.
    fn piece(&mut self, piece: &Piece<'_>, arrival: &mut Arrival<'_>) {
        let Piece { flow, connection, forward, offset, bytes, .. } = *piece;
        let side = usize::from(forward);
        let known = self.known(flow, connection);
        if known.verdict != Verdict::Open {
            return;
        }
        let state = std::mem::replace(&mut known.sides[side], Side::Done);
        let next = offset + bytes.len() as u64;
        let mut state = match state {
            Side::Done => return,
            Side::Open { state, next } if next == offset => state,
            Side::Unseen | Side::Open { .. } => self.judge.begin(),
        };
        let answer = match bytes.is_empty() {
            true => self.judge.end(state).map_or(Answer::Drop, Answer::Accept),
            false => match self.judge.take(&mut state, bytes) {
                Answer::Open => {
                    self.known(flow, connection).sides[side] = Side::Open { state, next };
                    return;
                }
                answer => answer,
            },
        };
        match answer {
            Answer::Accept(value) => {
                self.decide(flow, connection, Verdict::Accept(value));
                arrival.settle(flow, connection, false);
                arrival.settle(flow, connection, true);
            }
            _ => {
                arrival.settle(flow, connection, forward);
                let known = self.known(flow, connection);
                if known.sides.iter().all(|side| matches!(side, Side::Done)) {
                    self.decide(flow, connection, Verdict::Drop);
                }
            }
        }
    }

    /// Releases frames that have waited for too long, in a live capture.
    ///
    /// # Errors
    /// None; as [`Node::tick`](crate::node::Node::tick).
    pub fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        if let Some(waiting) = &mut self.waiting {
            let now_ns = waiting.clock_ns();
            waiting.release(emitted, now_ns);
        }
        Ok(())
    }

    /// Forgets all states and verdicts: the rules have changed.
    pub fn restart(&mut self) {
        (0..self.flows.len()).for_each(|at| self.forget(at));
    }

    /// The counters.
    pub fn counters(&self) -> Vec<Counter> {
        let own = [
            ("open_flows", self.open),
            ("accepted_flows", self.accepted),
            ("unseen_matches", self.unseen),
            ("dropped_flows", self.dropped),
        ];
        let mut all: Vec<_> = own.map(|(name, count)| Counter::count(name, count)).into();
        all.extend(self.waiting.iter().flat_map(Waiting::counters));
        all
    }
}
