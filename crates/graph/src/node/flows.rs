//! Streams beside the frames of a batch: the flow of each frame, and the pieces that the frames complete.
//!
//! A node that [gives streams](super::Class::gives_streams) fills them; the nodes after it read them and vote for an
//! end of the pieces of a direction that they have seen enough of. Pieces of the batch's own frames are places in these
//! frames; bytes that were held for longer are copied. Cost: 40 bytes per frame and 56 per piece; nothing is allocated
//! once the lists have their size.

use fyke_flow::streams::{Event, Flow, Piece};
use fyke_frame::Batch;

/// Relation of a frame to a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FrameFlow {
    /// Not a packet with ports.
    #[default]
    None,
    /// A TCP segment of no known connection.
    Unknown,
    /// A fragment of a packet that is not complete yet, with the number of the packet.
    Part(u64),
    /// A TCP segment; its flow has pieces.
    Stream(Flow),
    /// A packet of another protocol with ports; its flow has no pieces.
    Datagram(Flow),
}

impl FrameFlow {
    /// The flow.
    pub fn flow(self) -> Option<Flow> {
        match self {
            FrameFlow::None | FrameFlow::Unknown | FrameFlow::Part(_) => None,
            FrameFlow::Stream(flow) | FrameFlow::Datagram(flow) => Some(flow),
        }
    }
}

/// An event of the streams of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEvent<'b> {
    /// Index of the frame with which it happened; 0 if there was none.
    pub at: usize,
    /// True if that frame is of the same flow: it has completed the piece.
    pub is_of_frame: bool,
    /// The event.
    pub event: Event<'b>,
}

/// Vote of a node for an end of the pieces of a direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vote {
    pub flow: u32,
    pub connection: u64,
    pub forward: bool,
}

/// Position of the bytes of a piece.
#[derive(Debug, Clone, Copy)]
enum Place {
    Frame { start: usize, len: usize },
    Held { start: usize, len: usize },
}

#[derive(Debug)]
struct Stored {
    at: usize,
    /// The event; its bytes are at the place.
    event: Event<'static>,
    place: Place,
}

/// Streams of a batch.
#[derive(Debug, Default)]
pub struct BatchFlows {
    /// Number of the batch.
    pub(crate) serial: u64,
    frames: Vec<FrameFlow>,
    /// Offset of the payload of each frame in its stream.
    offsets: Vec<Option<i64>>,
    events: Vec<Stored>,
    held: Vec<u8>,
    /// Frames that completed a packet of fragments, and its number.
    wholes: Vec<(usize, u64)>,
}

impl BatchFlows {
    /// Begins a batch of `frames` frames.
    pub fn begin(&mut self, frames: usize) {
        self.frames.clear();
        self.frames.resize(frames, FrameFlow::None);
        self.offsets.clear();
        self.offsets.resize(frames, None);
        self.events.clear();
        self.held.clear();
        self.wholes.clear();
    }

    /// Notes that a frame is the last missing fragment of a packet.
    pub fn complete(&mut self, index: usize, packet: u64) {
        self.wholes.push((index, packet));
    }

    /// The number of the packet that a frame, its last missing fragment, completes.
    pub fn completed_by(&self, index: usize) -> Option<u64> {
        self.wholes.iter().find(|(at, _)| *at == index).map(|(_, packet)| *packet)
    }

    /// Sets the flow of a frame.
    pub fn set(&mut self, index: usize, flow: FrameFlow) {
        if let Some(place) = self.frames.get_mut(index) {
            *place = flow;
        }
    }

    /// Sets the offset of the first byte of a frame's payload in its stream.
    pub fn set_offset(&mut self, index: usize, offset: Option<i64>) {
        if let Some(place) = self.offsets.get_mut(index) {
            *place = offset;
        }
    }

    /// Offset of the first byte of a frame's payload in its stream; `None` if the frame is not a whole segment.
    pub fn offset_of(&self, index: usize) -> Option<i64> {
        self.offsets.get(index).copied().flatten()
    }

    /// The flow of a frame.
    pub fn of(&self, index: usize) -> FrameFlow {
        self.frames.get(index).copied().unwrap_or_default()
    }

    /// Adds an event that happened with frame `at`, which has these bytes.
    pub fn add(&mut self, at: usize, frame: &[u8], event: &Event<'_>) {
        let (event, place) = match event {
            Event::Removed { flow, connection } => {
                let removed = Event::Removed { flow: *flow, connection: *connection };
                (removed, Place::Held { start: 0, len: 0 })
            }
            Event::Piece(piece) => {
                let Piece { flow, connection, forward, missing, offset, bytes } = *piece;
                let place = self.place(frame, bytes);
                let piece = Piece { flow, connection, forward, missing, offset, bytes: &[] };
                (Event::Piece(piece), place)
            }
        };
        self.events.push(Stored { at, event, place });
    }

    /// Finds bytes in a frame, or copies them.
    fn place(&mut self, frame: &[u8], bytes: &[u8]) -> Place {
        let (start, len) = (bytes.as_ptr() as usize, bytes.len());
        let within = start.checked_sub(frame.as_ptr() as usize);
        if let Some(start) = within.filter(|start| start + len <= frame.len()) {
            return Place::Frame { start, len };
        }
        let start = self.held.len();
        self.held.extend_from_slice(bytes);
        Place::Held { start, len }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns an event, by its number in the order of the batch, which must be the one that this is about.
    pub fn event<'b>(&'b self, number: usize, batch: &'b Batch<'_>) -> Option<BatchEvent<'b>> {
        let Stored { at, event, place } = self.events.get(number)?;
        let (event, flow, connection) = match *event {
            Event::Removed { flow, connection } => {
                (Event::Removed { flow, connection }, flow, connection)
            }
            Event::Piece(piece) => {
                let bytes = match *place {
                    Place::Held { start, len } => self.held.get(start..start + len),
                    Place::Frame { start, len } => {
                        batch.frames().get(*at).and_then(|frame| frame.data.get(start..start + len))
                    }
                };
                let bytes = bytes.unwrap_or_default();
                (Event::Piece(Piece { bytes, ..piece }), piece.flow, piece.connection)
            }
        };
        let of_frame = self.of(*at).flow();
        let is_of_frame =
            of_frame.is_some_and(|own| (own.number, own.connection) == (flow, connection));
        Some(BatchEvent { at: *at, is_of_frame, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::{Frame, LinkType};

    #[test]
    fn bytes_of_frames_are_not_copied() {
        let frame = b"header payload".to_vec();
        let mut batch = Batch::new();
        batch.push(Frame::new(LinkType::RAW, &frame)).unwrap();
        let mut flows = BatchFlows::default();
        flows.begin(1);
        let flow = Flow { number: 3, connection: 9, forward: true };
        let piece =
            |bytes| Piece { flow: 3, connection: 9, forward: true, missing: 0, offset: 0, bytes };
        let held = b"held".to_vec();
        flows.add(0, &frame, &Event::Piece(piece(&frame[7..])));
        flows.add(0, &frame, &Event::Piece(piece(&held)));
        flows.add(0, &frame, &Event::Removed { flow: 4, connection: 8 });
        flows.set(0, FrameFlow::Stream(flow));
        assert_eq!(flows.held, b"held");
        let events: Vec<_> = (0..4).filter_map(|number| flows.event(number, &batch)).collect();
        let found = [Event::Piece(piece(b"payload")), Event::Piece(piece(b"held"))];
        assert_eq!(events.iter().map(|one| one.event).collect::<Vec<_>>()[..2], found);
        assert_eq!(
            events.iter().map(|one| one.is_of_frame).collect::<Vec<_>>(),
            [true, true, false]
        );
    }
}
