//! Class `tcp`: passes its frames with the TCP streams beside them, or emits the bytes of the streams instead.
//!
//! Each frame gets the number of its flow, and the nodes after it read the pieces that the frame completes: places in
//! the frame, or bytes that were held for longer ([`BatchFlows`]). Such a node votes for an end of a direction that it
//! has seen enough of; when all of them have, its segments cost a look-up. With `payload`, frames are taken and the
//! pieces are emitted as frames (`pieces.rs`).
//!
//! Fragments of IP packets are put together first, as the receiver does it: the segment belongs to the frame that
//! completed it.
//!
//! The wait for missing bytes uses the time of the connection's own segments, so streams depend neither on other
//! traffic nor on the number of workers, each of which has its own streams and limits. In a live capture, where
//! frames are as recent as the system's clock, that clock continues the wait if no segment arrives. Memory and
//! losses: [`fyke_flow::streams`]. Cost: a header walk and a look-up. Source: MAPI's COOKING; Hruby's thesis, 6.5.

mod pieces;
mod settings;

use crate::node::{
    Arrival, BatchFlows, Class, Counter, FrameFlow, MakeError, Node, NodeError, Opens, Parameter,
    Pause, Settings,
};
use fyke_flow::records::Packet;
use fyke_flow::streams::{Event, Flow, On, Piece, Segment};
use fyke_flow::{Fragment, Reassembler, Streams, clock};
use fyke_frame::{Frame, Mask, walk};

/// Number of flows from which the look-ups of a batch are made to overlap: their states do not fit the cache.
const MANY: usize = 8_192;

/// The streams of a node, and whether its frames are live.
struct Table {
    streams: Streams,
    reassembler: Reassembler,
    /// True if the last frames were as recent as the system's clock.
    is_live: bool,
    /// True if segments with a wrong checksum are ignored.
    checks: bool,
}

impl Table {
    fn new(settings: &Settings) -> Result<Table, MakeError> {
        let (limits, handling) = settings::read(settings)?;
        let reassembler = Reassembler::new(Default::default(), handling.policies.clone());
        let (streams, checks) = (Streams::with(limits, handling), settings.flag("checksum")?);
        Ok(Table { streams, reassembler, is_live: false, checks })
    }

    /// Notes whether the last frame that arrives is recent.
    fn note_time(&mut self, arrival: &Arrival<'_>) {
        if let Some((_, frame)) = arrival.frames().last() {
            self.is_live = clock::is_live(frame.timestamp_ns);
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let counters = self.streams.counters();
        let packets = self.reassembler.counters();
        [
            ("connections", counters.connections),
            ("midstream", counters.midstream),
            ("evicted", counters.evicted),
            ("datagram_flows", counters.datagram_flows),
            ("flows", self.streams.len() as u64),
            ("most_flows", counters.most_flows),
            ("delivered_bytes", counters.delivered_bytes),
            ("repeated_bytes", counters.repeated_bytes),
            ("contradicting_bytes", counters.contradicting_bytes),
            ("gaps", counters.gaps),
            ("missing_bytes", counters.missing_bytes),
            ("copied_bytes", counters.copied_bytes),
            ("dropped_bytes", counters.dropped_bytes),
            ("settled", counters.settled),
            ("outside", counters.outside),
            ("doubtful", counters.doubtful),
            ("refused", counters.refused),
            ("ignored", counters.ignored),
            ("damaged", counters.damaged),
            ("fragments", packets.fragments),
            ("packets_of_fragments", packets.packets),
            ("fragments_given_up", packets.given_up + packets.refused),
            ("held_bytes", self.streams.held_bytes() as u64),
        ]
        .map(|(name, count)| Counter::count(name, count))
        .into()
    }
}

/// Content of a frame.
enum Found<'a> {
    Segment(Segment<'a>),
    /// A segment with a wrong checksum.
    Damaged(Segment<'a>),
    /// A fragment with a wrong checksum of a header.
    DamagedFragment,
    /// A fragment of an IP packet.
    Fragment,
    /// Another packet with ports.
    Datagram(Packet),
    Other,
}

/// Reads a frame; with `checks`, also the checksums of a segment and of IPv4 headers.
fn read<'a>(frame: &Frame<'a>, checks: bool) -> Found<'a> {
    let layers = walk(frame);
    if let Some(segment) = Segment::of(&layers) {
        return match checks && Segment::is_damaged(&layers) {
            true => Found::Damaged(segment),
            false => Found::Segment(segment),
        };
    }
    if Fragment::of(&layers).is_some() {
        return match checks && Segment::has_damaged_header(&layers) {
            true => Found::DamagedFragment,
            false => Found::Fragment,
        };
    }
    let has_ports = layers.innermost_level().is_some_and(|scope| scope.ports().is_some());
    let packet = Packet::of(frame, &layers).filter(|_| has_ports);
    packet.map_or(Found::Other, Found::Datagram)
}

/// Passes frames and gives streams.
struct Tcp(Table);

impl Tcp {
    /// Finds the flow of a frame, and adds the events that it causes.
    fn frame(
        &mut self,
        index: usize,
        frame: &Frame<'_>,
        found: &Found<'_>,
        flows: &mut BatchFlows,
    ) -> FrameFlow {
        let Table { streams, reassembler, checks, .. } = &mut self.0;
        let time = frame.timestamp_ns;
        let mut add = |event: Event<'_>| flows.add(index, frame.data, &event);
        match found {
            Found::Segment(segment) => {
                let flow = streams.segment_events(segment, time, &mut add);
                known(flow)
            }
            Found::Damaged(segment) => known(streams.ignore(segment)),
            Found::Datagram(packet) => {
                FrameFlow::Datagram(datagram(streams, packet, time, &mut add))
            }
            Found::Fragment => {
                let layers = walk(frame);
                let is_whole = reassembler.add(frame, &layers).is_some();
                let packet = reassembler.packet();
                let Some(whole) = reassembler.made(frame).filter(|_| is_whole) else {
                    return FrameFlow::Part(packet);
                };
                match read(&whole, *checks) {
                    Found::Damaged(segment) => known(streams.ignore(&segment)),
                    Found::Segment(segment) => {
                        let flow = streams.segment_events(&segment, time, &mut add);
                        known(flow)
                    }
                    Found::Datagram(packet) => {
                        let flow = datagram(streams, &packet, time, &mut add);
                        // The frame has only the end of the datagram.
                        add(Event::Piece(Piece {
                            flow: flow.number,
                            connection: flow.connection,
                            forward: flow.forward,
                            missing: 0,
                            offset: 0,
                            bytes: walk(&whole).payload(),
                        }));
                        FrameFlow::Stream(flow)
                    }
                    Found::Fragment | Found::DamagedFragment | Found::Other => {
                        FrameFlow::Part(packet)
                    }
                }
            }
            Found::DamagedFragment => {
                streams.ignore_fragment();
                FrameFlow::Unknown
            }
            Found::Other => FrameFlow::None,
        }
    }
}

fn known(flow: Option<Flow>) -> FrameFlow {
    flow.map_or(FrameFlow::Unknown, FrameFlow::Stream)
}

fn datagram(streams: &mut Streams, packet: &Packet, time_ns: u64, on: On<'_>) -> Flow {
    let Packet { protocol, source, destination, .. } = *packet;
    streams.datagram(protocol, source, destination, time_ns, on)
}

impl Node for Tcp {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.0.note_time(arrival);
        let (mask, batch, pause) = (arrival.mask(), arrival.batch(), arrival.pause());
        let all: Vec<Found<'_>> = {
            let checks = self.0.checks;
            arrival.frames().map(|(_, frame)| read(frame, checks)).collect()
        };
        if self.0.streams.len() >= MANY {
            let segments = all.iter().filter_map(|found| match found {
                Found::Segment(segment) => Some(*segment),
                _ => None,
            });
            std::hint::black_box(self.0.streams.warm(segments));
        }
        arrival.give_streams(|flows, votes, voters| {
            for vote in votes.drain(..) {
                self.0.streams.settle(vote.flow, vote.connection, vote.forward, voters);
            }
            flows.begin(batch.len());
            for (index, found) in mask.iter().zip(&all) {
                let flow = self.frame(index, &batch.frames()[index], found, flows);
                flows.set(index, flow);
                if let FrameFlow::Stream(flow) = flow
                    && let Found::Segment(segment) | Found::Damaged(segment) = found
                {
                    flows.set_offset(index, self.0.streams.offset(flow, segment));
                }
                if matches!(found, Found::Fragment) && flow.flow().is_some() {
                    flows.complete(index, self.0.reassembler.packet());
                }
            }
            let streams = &mut self.0.streams;
            match pause {
                Some(Pause::Tick) if self.0.is_live => {
                    let mut add = |event: Event<'_>| flows.add(0, &[], &event);
                    streams.expire_events(clock::system_ns(), &mut add);
                }
                Some(Pause::End) => {
                    streams.finish_events(&mut |_, event| flows.add(0, &[], &event));
                }
                _ => {}
            }
        });
        // The class values stay.
        for index in mask.iter() {
            arrival.classify(index, arrival.class(index));
        }
        Ok(mask)
    }

    fn counters(&self) -> Vec<Counter> {
        self.0.counters()
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let table = Table::new(settings)?;
    Ok(match settings.flag("payload")? {
        true => Box::new(pieces::Pieces::new(table)),
        false => Box::new(Tcp(table)),
    })
}

fn emits(settings: &Settings) -> bool {
    settings.flag("payload").unwrap_or(false)
}

/// The class.
pub const CLASS: Class = Class {
    name: "tcp",
    aliases: &["cooking", "streams"],
    summary: "passes frames with the TCP streams beside them, for nodes with stream=y",
    parameters: &[
        Parameter { name: "payload", summary: "y: emits the bytes of the streams instead" },
        Parameter {
            name: "policy",
            summary: "bytes that count in overlaps: first (default), linux@10.0.0.0/8, …",
        },
        Parameter { name: "connections", summary: "most connections known at a time (65536)" },
        Parameter { name: "held", summary: "most bytes held per direction (1048576)" },
        Parameter { name: "segments", summary: "most segments held per direction (65536)" },
        Parameter { name: "memory", summary: "most bytes held in all (67108864)" },
        Parameter { name: "gap", summary: "longest wait for missing bytes, in seconds (10)" },
        Parameter { name: "idle", summary: "seconds after which a silent connection ends (300)" },
        Parameter { name: "midstream", summary: "n: ignore connections without a captured SYN" },
        Parameter { name: "renewal", summary: "n: ignore a new SYN of a known connection" },
        Parameter { name: "checksum", summary: "y: ignore segments with a wrong checksum" },
        Parameter { name: "profile", summary: "thesis: limits and drops of Hruby's reassembler" },
    ],
    classifies: true,
    emits_pieces: emits,
    gives_streams: |settings| !emits(settings),
    // All segments of a connection are on one worker.
    parallel: true,
    make,
    opens: Opens::nothing,
    ..Class::NODE
};
