//! A tracker of your own: TFTP. A request goes to UDP port 69; the file comes from another port to the port of the
//! request. The tracker reads requests and edits the filter before it, so that the next frame is captured already.

use fyke::Error;
use fyke::capture::MemorySource;
use fyke::flow::Ageing;
use fyke::frame::{Frame, LinkType, walk};
use fyke::graph::node::{Class, Parameter};
use fyke::graph::{Classes, GraphHandle, Made};
use fyke::track::{Cause, Closed, Connection, Event, Protocol, Reason, Tracker, class};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Most transfers that are followed at a time, and how long.
const TRANSFERS: usize = 10_000;
const LIFETIME_NS: u64 = 60_000_000_000;

struct Tftp {
    transfers: Ageing<(IpAddr, u16), Connection>,
    next_id: u64,
}

impl Default for Tftp {
    fn default() -> Self {
        Tftp { transfers: Ageing::new(TRANSFERS), next_id: 0 }
    }
}

impl Tracker for Tftp {
    fn name(&self) -> &'static str {
        "tftp"
    }

    fn start_filter(&self) -> &str {
        "udp dst port 69"
    }

    fn frame(&mut self, frame: &Frame, events: &mut Vec<Event>) {
        self.expire(frame.timestamp_ns, events);
        let layers = walk(frame);
        let (Some(ip), Some(ports)) = (layers.innermost_ip(), layers.ports()) else { return };
        // A read or a write request.
        let [0, 1 | 2, ..] = layers.payload() else { return };
        let (end, now_ns) = ((ip.source(), ports.source), frame.timestamp_ns);
        if ports.destination != 69 || self.transfers.get(&end, now_ns).is_some() {
            return;
        }
        self.next_id += 1;
        let connection = Connection {
            id: self.next_id,
            server: end.0, // the end that listens
            port: end.1,
            client: ip.destination(),
            protocol: Protocol::Udp,
            pair: true,
            call: self.next_id,
            label: "TFTP data",
            cause: Cause::new("TFTP request"),
            announced_ns: now_ns,
        };
        self.transfers.insert(end, connection, now_ns.saturating_add(LIFETIME_NS));
        events.push(Event::Open(connection));
    }

    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        while let Some((_, connection)) = self.transfers.pop_expired(now_ns) {
            let (reason, from_syn) = (Reason::Idle, false);
            let counts = Closed {
                connection,
                reason,
                client_port: None,
                frame_count: 0,
                wire_bytes: 0,
                from_syn,
            };
            events.push(Event::Close(counts));
        }
    }
}

/// The class `tftp`: all that `track` does, with another tracker.
const CLASS: Class = Class {
    name: "tftp",
    aliases: &[],
    summary: "follows TFTP and edits the filter before it",
    // Those of `track` that this class reads; a graph text with another one is refused.
    parameters: &[Parameter {
        name: "live",
        summary: "y: transfers expire while no frame arrives",
    }],
    make: |settings| Ok(class::node(Box::new(Tftp::default()), settings.flag("live")?)),
    ..class::CLASS
};

/// A UDP frame between two ports of 10.0.0.1 (the client) and 10.0.0.2; `opcode` begins its payload.
fn udp(from_client: bool, source: u16, destination: u16, opcode: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 46]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    if !from_client {
        (frame[29], frame[33]) = (2, 1);
    }
    frame[34..36].copy_from_slice(&source.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.to_be_bytes());
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    frame[43] = opcode;
    frame
}

fn main() -> Result<(), Error> {
    let mut source = MemorySource::new(LinkType::EN10MB);
    for bytes in [
        udp(false, 3_000, 2_000, 3), // before the request
        udp(true, 2_000, 69, 1),     // a request
        udp(false, 3_000, 2_000, 3), // a block of the file, in the same batch
        udp(true, 2_000, 3_000, 4),  // its acknowledgement
        udp(false, 3_000, 2_001, 3), // another port
    ] {
        source.push(&Frame::new(LinkType::EN10MB, &bytes));
    }
    let mut classes = Classes::new();
    classes.register(CLASS);
    let refused =
        GraphHandle::start(&["(pcapin, expression=-) > (tftp, port=69)"], classes.clone());
    assert!(refused.is_err_and(|error| error.to_string().contains("no parameter \"port\"")));
    let text = "(pcapin, expression=given) > {f}(bpf, expression=\"udp dst port 69\") > {t}(tftp)";
    let given = vec![("pcapin", Made::Source(Box::new(source)))];
    let (mut engine, handle) = GraphHandle::start_with(&[text], classes, given)?;
    engine.run(&AtomicBool::new(false))?;

    let view = handle.view();
    let (filter, tracker) = (view.node("f").expect("a tag"), view.node("t").expect("a tag"));
    for counter in &tracker.counters {
        println!("{:12} {}", counter.name, counter.value);
    }
    assert_eq!((filter.counts.arrived, filter.counts.passed), (5, 3));
    assert_eq!(tracker.counters[0].value, 1.0, "one transfer announced");
    Ok(())
}
