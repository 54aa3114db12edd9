//! Frames that wait for the verdict about their flow, in the order of the capture.
//!
//! All frames after the first one that waits wait too, so they leave in the order in which they came. The first one
//! leaves when it is decided, or if a limit is reached: then an undecided one is let go and does not pass. A flow that
//! holds too much lets go of its own oldest frames. Waiting frames are copies, so they keep nothing of the capture's
//! ring. Memory: at most the bytes of [`Bounds`], those of the queue and of the flows included. Cost: a copy of each
//! frame, O(1) besides.

use crate::node::{Counter, Emitted, FrameFlow, MakeError, Parameter, Settings};
use fyke_flow::clock;
use fyke_frame::Frame;
use std::collections::{HashMap, VecDeque};

/// Memory of a frame besides its bytes: its place in a queue that doubles, and that of its flow in a map that does.
const OVERHEAD_BYTES: usize = 2 * size_of::<Held>() + 64;
/// No frame.
const NONE: u64 = u64::MAX;
/// Added to the numbers of packets of fragments, so that they differ from those of connections.
const PACKETS: u64 = 1 << 63;

/// Limits of waiting frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes in all, with those for each frame.
    pub bytes: usize,
    /// Most bytes of one flow, with those for each frame.
    pub flow_bytes: usize,
    /// Longest wait, in nanoseconds.
    pub wait_ns: u64,
}

/// Parameters of classes with nodes that let frames wait.
pub const PARAMETERS: [Parameter; 4] = [
    Parameter {
        name: "conversation",
        summary: "y: with stream=y, pass the frames before the match too, as far as they are held",
    },
    Parameter { name: "wait", summary: "longest wait of a frame, in seconds (10)" },
    Parameter { name: "waiting", summary: "most bytes of frames that wait (67108864)" },
    Parameter {
        name: "flow_waiting",
        summary: "most bytes of one flow that wait, and about 300 for each frame (4194304)",
    },
];

/// True if frames shall wait.
pub fn is_wanted(settings: &Settings) -> bool {
    settings.flag("conversation").unwrap_or(false)
}

impl Bounds {
    /// Reads the [parameters](PARAMETERS); `None` if no frame shall wait.
    ///
    /// # Errors
    /// If a value is out of range, or makes no sense without another parameter.
    pub fn read(settings: &Settings) -> Result<Option<Bounds>, MakeError> {
        let bounds = Bounds::all(settings, 10)?;
        if !settings.flag("conversation")? {
            let extra = ["wait", "waiting", "flow_waiting"];
            let given = extra.into_iter().find(|name| settings.text(name).is_some());
            return match given {
                Some(name) => Err(MakeError::new(name, "no frame waits without conversation=y")),
                None => Ok(None),
            };
        }
        if !settings.flag("stream")? {
            return Err(MakeError::new("conversation", "it needs stream=y, after `tcp`"));
        }
        Ok(Some(bounds))
    }

    /// Reads the limits; `wait` is the default of the longest wait, in seconds.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn all(settings: &Settings, wait: u64) -> Result<Bounds, MakeError> {
        let bytes = |name, default: u64| settings.number_or(name, 1..=1 << 36, default);
        Ok(Bounds {
            bytes: bytes("waiting", 64 << 20)? as usize,
            flow_bytes: bytes("flow_waiting", 4 << 20)? as usize,
            wait_ns: settings.number_or("wait", 0..=86_400, wait)? * 1_000_000_000,
        })
    }
}

/// Frames of a flow that wait for its verdict: the first and the last.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: u64,
    last: u64,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Pass(u32),
    Gone,
}

/// A copy of a frame, with its source and its flow.
#[derive(Debug)]
pub(crate) struct Copied {
    pub source: u32,
    pub flow: FrameFlow,
    data: Box<[u8]>,
    /// The frame without its bytes.
    head: Frame<'static>,
}

impl Copied {
    pub fn new(source: u32, frame: &Frame<'_>, flow: FrameFlow) -> Copied {
        let head = Frame { data: &[], ..*frame };
        Copied { source, flow, data: frame.data.into(), head }
    }

    /// The frame.
    pub fn frame(&self) -> Frame<'_> {
        Frame { data: &self.data, ..self.head }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Lets go of its bytes, and returns their number.
    fn empty(&mut self) -> usize {
        std::mem::take(&mut self.data).len()
    }
}

#[derive(Debug)]
struct Held {
    copied: Copied,
    state: State,
    /// Number of the next frame of the flow.
    next: u64,
}

impl Held {
    fn cost(&self) -> usize {
        self.copied.len() + OVERHEAD_BYTES
    }
}

/// The frames that wait.
#[derive(Debug)]
pub struct Waiting {
    bounds: Bounds,
    queue: VecDeque<Held>,
    /// Undecided frames of each connection, by its number, and of each packet of fragments.
    chains: HashMap<u64, Chain>,
    /// Packets of fragments of each connection that have frames here.
    packets: HashMap<u64, Vec<u64>>,
    /// Number of the first frame of the queue.
    first: u64,
    bytes: usize,
    /// True if the last frame was as recent as the system's clock.
    is_live: bool,
    copied: u64,
    copied_bytes: u64,
    let_go: u64,
}

impl Waiting {
    /// No frames.
    pub fn new(bounds: Bounds) -> Waiting {
        Waiting {
            bounds,
            queue: VecDeque::new(),
            chains: HashMap::new(),
            packets: HashMap::new(),
            first: 0,
            bytes: 0,
            is_live: false,
            copied: 0,
            copied_bytes: 0,
            let_go: 0,
        }
    }

    /// True if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The system's clock, in nanoseconds since 1970, if the last frame was as recent.
    pub fn clock_ns(&self) -> Option<u64> {
        self.is_live.then(clock::system_ns)
    }

    /// Lets a frame wait: for the verdict about its flow, or, if it is accepted already, for the frames before it.
    pub fn hold(&mut self, source: u32, frame: &Frame<'_>, flow: FrameFlow, value: Option<u32>) {
        self.is_live = is_recent(frame.timestamp_ns, self.copied).unwrap_or(self.is_live);
        let number = self.first + self.queue.len() as u64;
        let copied = Copied::new(source, frame, flow);
        let held = Held { copied, state: value.map_or(State::Open, State::Pass), next: NONE };
        let cost = held.cost();
        self.bytes += cost;
        self.copied += 1;
        self.copied_bytes += frame.data.len() as u64;
        self.queue.push_back(held);
        if let Some(owner) = owner(flow).filter(|_| value.is_none()) {
            self.chain(owner, number, cost);
        }
    }

    /// Gives the fragments of a complete packet that wait the verdict of its flow: `value`, or that to come.
    pub fn join(&mut self, packet: u64, connection: u64, value: Option<u32>) {
        let packet = packet | PACKETS;
        if value.is_some() {
            return self.decide(packet, value);
        }
        let chains = &self.chains;
        let packets = self.packets.entry(connection).or_default();
        packets.retain(|known| chains.contains_key(known));
        packets.extend(Some(packet).filter(|packet| chains.contains_key(packet)));
    }

    /// Appends a frame to those of its flow; lets go of the oldest of them if they are too many.
    fn chain(&mut self, connection: u64, number: u64, cost: usize) {
        let new = Chain { first: number, last: number, bytes: 0 };
        let chain = self.chains.entry(connection).or_insert(new);
        let before = std::mem::replace(&mut chain.last, number);
        chain.bytes += cost;
        if before != number
            && let Some(before) = self.at(before)
        {
            before.next = number;
        }
        while self.chains.get(&connection).is_some_and(|one| one.bytes > self.bounds.flow_bytes) {
            self.drop_first(connection);
        }
    }

    fn at(&mut self, number: u64) -> Option<&mut Held> {
        let index = number.checked_sub(self.first)?;
        self.queue.get_mut(usize::try_from(index).ok()?)
    }

    /// Lets go of the oldest frame of a flow.
    fn drop_first(&mut self, connection: u64) {
        let Some(mut chain) = self.chains.remove(&connection) else { return };
        let Some(held) = self.at(chain.first) else { return };
        chain.bytes -= held.cost();
        chain.first = held.next;
        held.state = State::Gone;
        let freed = held.copied.empty();
        self.bytes -= freed;
        self.let_go += 1;
        if chain.first != NONE {
            self.chains.insert(connection, chain);
        }
    }

    /// Decides about the frames of a flow that wait: they pass with a value, or not.
    pub fn decide(&mut self, connection: u64, value: Option<u32>) {
        for packet in self.packets.remove(&connection).unwrap_or_default() {
            self.decide(packet, value);
        }
        let Some(chain) = self.chains.remove(&connection) else { return };
        let (mut number, mut freed) = (chain.first, 0);
        while let Some(held) = self.at(number) {
            number = held.next;
            held.state = match value {
                Some(value) => State::Pass(value),
                None => {
                    freed += held.copied.empty();
                    State::Gone
                }
            };
        }
        self.bytes -= freed;
    }

    /// Emits the decided frames at the front, and lets go of undecided ones beyond the limits; `now_ns` is the time, if
    /// it has changed.
    pub fn release(&mut self, emitted: &mut Emitted, now_ns: Option<u64>) {
        while let Some(front) = self.queue.front() {
            match front.state {
                State::Pass(value) => {
                    let Copied { source, flow, .. } = front.copied;
                    emitted.push_late(source, &front.copied.frame(), value, flow);
                }
                State::Gone => {}
                State::Open => {
                    let is_old = now_ns.is_some_and(|now_ns| {
                        now_ns.saturating_sub(front.copied.head.timestamp_ns) > self.bounds.wait_ns
                    });
                    if self.bytes <= self.bounds.bytes && !is_old {
                        return;
                    }
                    // The first frame of the queue is the first of its flow.
                    if let Some(owner) = owner(front.copied.flow) {
                        self.drop_first(owner);
                    }
                }
            }
            if let Some(gone) = self.queue.pop_front() {
                self.bytes -= gone.cost();
                self.first += 1;
            }
        }
    }

    /// Emits the frames that are accepted; no verdict will come for the others.
    pub fn end(&mut self, emitted: &mut Emitted) {
        for Held { copied, state, .. } in self.queue.drain(..) {
            if let State::Pass(value) = state {
                emitted.push_late(copied.source, &copied.frame(), value, copied.flow);
            }
        }
        self.chains.clear();
        self.packets.clear();
        (self.bytes, self.first) = (0, 0);
    }

    /// The counters.
    pub fn counters(&self) -> Vec<Counter> {
        [
            ("waiting_bytes", self.bytes as u64),
            ("copied_frames", self.copied),
            ("copied_bytes", self.copied_bytes),
            ("let_go", self.let_go),
        ]
        .map(|(name, count)| Counter::count(name, count))
        .into()
    }
}

/// The number by which a frame that waits finds its verdict.
fn owner(flow: FrameFlow) -> Option<u64> {
    match flow {
        FrameFlow::Part(packet) => Some(packet | PACKETS),
        flow => flow.flow().map(|flow| flow.connection),
    }
}

/// True if a frame is as recent as the system's clock; looks only at one frame of 64.
pub(crate) fn is_recent(timestamp_ns: u64, number: u64) -> Option<bool> {
    if !number.is_multiple_of(64) {
        return None;
    }
    Some(clock::is_live(timestamp_ns))
}
