//! FTP: follows control connections and reports the data connections that they negotiate.
//!
//! Passive (227, 229) and active (`PORT`, `EPRT`), over IPv4 and IPv6. Replies may be split over
//! segments, repeated, out of order or multi-line. A data connection ends with FIN of both ends or
//! RST, after a short time for the last acknowledgements, or when it has been silent too long.
//!
//! Decisions:
//! - **Address.** A 227 may announce an address to which the client does not connect (address
//!   translation, wrong configuration). So both the announced address and that of the announcing
//!   end are expected ([`Event::Open`] twice); when the connection arrives at one, the other is
//!   closed ([`Reason::OtherAddress`](crate::Reason::OtherAddress)).
//! - **Time.** A `PORT` takes effect when it is seen, before the server's answer: the data may
//!   arrive with the answer.
//! - **Encryption.** After reply 234 (`AUTH TLS`) the control connection is unreadable; it is
//!   counted, and nothing is guessed. A plain reply later on (after `CCC`) makes it readable again.
//! - Fragments are not reassembled; a fragment may belong to a control connection, but its ports
//!   are unknown, so fragments are only counted.
//!
//! Cost: one or two hash look-ups per frame, O(bytes) for control segments. Memory: [`Limits`].
//! Source: RFC 959, 1123, 2428, 4217; Swift, section 5.2 (FTPCap).

mod announce;
mod lines;

use crate::base::{Base, Ends, Follows, Offer};
use crate::expectations::Announcement;
use crate::segment::{Content, FIN, RST, SYN, Segment};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use announce::Announced;
use fyke_flow::Ageing;
use fyke_frame::Frame;
use lines::{Faults, Line, Lines};
use std::net::SocketAddr;

/// Reply 227 to `PASV`.
pub const PASSIVE: Cause = Cause::new("FTP reply 227");
/// Reply 229 to `EPSV`.
pub const EXTENDED_PASSIVE: Cause = Cause::new("FTP reply 229");
/// Command `PORT`.
pub const ACTIVE: Cause = Cause::new("FTP command PORT");
/// Command `EPRT`.
pub const EXTENDED_ACTIVE: Cause = Cause::new("FTP command EPRT");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "ftp",
    summary: "FTP with its data connections, passive and active (control port 21)",
    port: PORT,
    causes: &[PASSIVE, EXTENDED_PASSIVE, ACTIVE, EXTENDED_ACTIVE],
    start_filter,
    held: Some(HELD),
    make: |ports, limits| Box::new(Ftp::at_ports(ports, limits)),
};

/// Frames that may belong to a data connection: a reply may announce any host and any port, and the first frames of the
/// connection may arrive before the reply has been read, even before the first frame of its control connection has.
const HELD: &str = "tcp";

/// Standard control port.
const PORT: u16 = 21;

/// Most lines of a multi-line reply; a longer one has lost its end.
const REPLY_LINES: u32 = 1_024;

/// Counters of the tracker since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames of control connections.
    pub control_frames: u64,
    /// Frames of data connections that were announced.
    pub data_frames: u64,
    /// TCP frames of other connections.
    pub other_frames: u64,
    /// Fragments of TCP segments, which are not read.
    pub tcp_fragments: u64,
    /// Control connections seen.
    pub control_connections: u64,
    /// Control connections removed to make room for others.
    pub control_evicted: u64,
    /// Control connections that became encrypted.
    pub encrypted: u64,
    /// Parsed replies 227 and 229.
    pub passive_replies: u64,
    /// Parsed commands `PORT` and `EPRT`.
    pub active_commands: u64,
    /// Announcements that could not be parsed.
    pub malformed: u64,
    /// Announcements repeated before the connection arrived.
    pub repeated: u64,
    /// Announcements with an address other than that of the announcing end.
    pub other_address: u64,
    /// Control segments received again.
    pub repeated_segments: u64,
    /// Control segments that arrived before an earlier one.
    pub early_segments: u64,
    /// Gaps in control connections that were never closed.
    pub gaps: u64,
    /// Control lines longer than the limit.
    pub long_lines: u64,
}

/// The tracker.
pub struct Ftp {
    base: Base,
    flows: Ageing<FlowKey, Flow>,
    counters: Counters,
    next_flow: u64,
    next_announcement: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FlowKey {
    server: SocketAddr,
    client: SocketAddr,
}

#[derive(Default)]
struct Flow {
    number: u64,
    from_server: Lines,
    from_client: Lines,
    finished: [bool; 2],
    encrypted: bool,
    /// Code of the current multi-line reply, and the number of its lines so far.
    reply: Option<(u16, u32)>,
}

impl Default for Ftp {
    fn default() -> Self {
        Ftp::new(PORT, Limits::default())
    }
}

impl Ftp {
    /// A tracker of FTP servers with this control port.
    pub fn new(control_port: u16, limits: Limits) -> Self {
        Ftp::at_ports(&[control_port], limits)
    }

    /// A tracker of FTP servers with any of these control ports.
    pub fn at_ports(control_ports: &[u16], limits: Limits) -> Self {
        Ftp {
            base: Base::new(&KIND, control_ports, limits),
            flows: Ageing::new(limits.control_connections),
            counters: Counters::default(),
            next_flow: 1,
            next_announcement: 1,
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of data connections: announced, open and closing.
    pub fn data_connections(&self) -> usize {
        self.base.expectations.len()
    }

    fn control(&mut self, key: FlowKey, segment: &Segment, now_ns: u64, events: &mut Vec<Event>) {
        self.counters.control_frames += 1;
        let from_server = segment.source == key.server;
        let deadline = now_ns.saturating_add(self.base.limits.control_idle_ns);
        if self.flows.peek(&key).is_none() {
            if segment.payload_len == 0 && segment.flags & SYN == 0 {
                return;
            }
            self.add_flow(key, deadline);
        }
        let mut found: Vec<(bool, Announced)> = Vec::new();
        let Some(flow) = self.flows.touch(&key, deadline) else { return };
        let mut faults = Faults::default();
        if segment.flags & SYN != 0 {
            if !from_server {
                *flow = Flow { number: flow.number, ..Flow::default() };
            }
            flow.lines(from_server).start(segment.sequence);
        }
        if !flow.is_hidden(from_server, segment) {
            flow.read(from_server, segment, &mut faults, &mut self.counters, &mut |announced| {
                found.push((from_server, announced));
            });
        }
        flow.finished[usize::from(from_server)] |= segment.flags & FIN != 0;
        let (number, over) = (flow.number, flow.finished == [true; 2]);
        self.base.signals(number);
        if over || segment.flags & RST != 0 {
            self.flows.remove(&key);
        }
        self.counters.add(faults);
        for (by_server, announced) in found {
            self.announced(key, number, by_server, announced, now_ns, events);
        }
    }

    fn add_flow(&mut self, key: FlowKey, deadline_ns: u64) {
        if self.flows.is_full() && self.flows.pop_oldest().is_some() {
            self.counters.control_evicted += 1;
        }
        let flow = Flow { number: self.next_flow, ..Flow::default() };
        self.next_flow += 1;
        self.counters.control_connections += 1;
        // The table has room and the key is new, so this cannot be refused.
        let _ = self.flows.try_insert(key, flow, deadline_ns);
    }

    fn announced(
        &mut self,
        key: FlowKey,
        control: u64,
        by_server: bool,
        announced: Announced,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        let (listener, connector) =
            if by_server { (key.server, key.client) } else { (key.client, key.server) };
        let origin = self.next_announcement;
        self.next_announcement += 1;
        let other = announced.address.filter(|address| *address != listener.ip());
        self.counters.other_address += u64::from(other.is_some());
        let mut repeated = true;
        for server in std::iter::once(listener.ip()).chain(other) {
            let offer = Offer {
                end: SocketAddr::new(server, announced.port),
                protocol: Protocol::Tcp,
                client: connector.ip(),
                // A client that names another host makes only the server connect to it (RFC 2577).
                pair: !by_server && server != listener.ip(),
                label: "FTP data",
                cause: announced.cause,
                origin,
                lifetime_ns: self.base.limits.announced_ns,
                follows_call: false,
            };
            let outcome = self.base.expect(control, offer, now_ns, events);
            repeated &= matches!(outcome, Announcement::Repeated(_));
        }
        self.counters.repeated += u64::from(repeated);
    }
}

impl Follows for Ftp {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        let segment = match content {
            Content::Tcp(segment) => segment,
            Content::TcpFragment => {
                self.counters.tcp_fragments += 1;
                return;
            }
            Content::Udp(_) | Content::UdpFragment | Content::Other => return,
        };
        if let Some(Ends { server, client, .. }) =
            self.base.ends(segment.source, segment.destination)
        {
            let key = FlowKey { server, client };
            self.control(key, &segment, frame.timestamp_ns, events);
        } else if self.base.segment(&segment, frame, events) {
            self.counters.data_frames += 1;
        } else {
            self.counters.other_frames += 1;
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        while self.flows.pop_due(now_ns).is_some() {}
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        let Counters { encrypted, malformed, other_address, control_evicted, .. } = self.counters;
        notices.extend([
            ("encrypted", encrypted),
            ("unreadable", malformed),
            ("other_address", other_address),
            ("calls_evicted", control_evicted),
        ]);
    }
}

/// The filter text for the control connections at these ports.
fn start_filter(ports: &[u16]) -> String {
    let names = ports.iter().map(|port| match *port {
        PORT => "tcp port ftp".to_owned(),
        port => format!("tcp port {port}"),
    });
    names.collect::<Vec<_>>().join(" or ")
}

impl Flow {
    fn lines(&mut self, from_server: bool) -> &mut Lines {
        if from_server { &mut self.from_server } else { &mut self.from_client }
    }

    /// True if the payload is ciphertext. A plain reply after `CCC` makes the connection readable
    /// again; a repeated reply from before the encryption does not.
    fn is_hidden(&mut self, from_server: bool, segment: &Segment) -> bool {
        let payload = segment.payload;
        let plain = from_server
            && payload.len() >= 5
            && payload[..3].iter().all(u8::is_ascii_digit)
            && payload.ends_with(b"\r\n")
            && payload.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        if self.encrypted && plain && self.from_server.is_new(segment.sequence) {
            let number = self.number;
            *self = Flow { number, ..Flow::default() };
        }
        self.encrypted
    }

    fn read(
        &mut self,
        from_server: bool,
        segment: &Segment,
        faults: &mut Faults,
        counters: &mut Counters,
        found: &mut dyn FnMut(Announced),
    ) {
        let (mut reply, mut encrypted) = (self.reply, self.encrypted);
        let mut line = |line: Line| {
            if encrypted {
                return;
            }
            if !from_server {
                match announce::command(line.bytes) {
                    Some(Some(announced)) => {
                        counters.active_commands += 1;
                        found(announced);
                    }
                    Some(None) => counters.malformed += 1,
                    None => {}
                }
            } else if let Some(code) = reply_of(&line, &mut reply) {
                let text = line.bytes.get(3..).unwrap_or_default();
                let announced = match code {
                    227 => announce::passive_reply(text),
                    229 => announce::extended_passive_reply(text),
                    234 => {
                        encrypted = true;
                        counters.encrypted += 1;
                        return;
                    }
                    _ => return,
                };
                match announced {
                    Some(announced) => {
                        counters.passive_replies += 1;
                        found(announced);
                    }
                    None => counters.malformed += 1,
                }
            }
        };
        let gaps = faults.gaps;
        // A SYN takes one sequence number.
        let sequence = segment.sequence.wrapping_add(u32::from(segment.flags & SYN != 0));
        let (payload, payload_len) = (segment.payload, segment.payload_len);
        self.lines(from_server).segment(sequence, payload, payload_len, faults, &mut line);
        self.reply = if faults.gaps == gaps { reply } else { None };
        self.encrypted = encrypted;
    }
}

/// The code of the reply that this line belongs to, if the line may contain the reply's text: the
/// only line, or any line with the code itself. Text inside a multi-line reply of another code is
/// not a reply.
fn reply_of(line: &Line, reply: &mut Option<(u16, u32)>) -> Option<u16> {
    let read = announce::reply_code(line.bytes);
    if !line.in_order {
        return read.map(|read| read.code);
    }
    match (*reply, read) {
        (Some((code, _)), Some(read)) if read.code == code => {
            if !read.more {
                *reply = None;
            }
            Some(code)
        }
        (Some((_, lines)), _) if lines >= REPLY_LINES => {
            *reply = None;
            read.map(|read| read.code)
        }
        (Some((code, lines)), _) => {
            *reply = Some((code, lines + 1));
            None
        }
        (None, Some(read)) => {
            if read.more {
                *reply = Some((read.code, 0));
            }
            Some(read.code)
        }
        (None, None) => None,
    }
}

impl Counters {
    fn add(&mut self, faults: Faults) {
        self.repeated_segments += faults.repeated_segments;
        self.early_segments += faults.early_segments;
        self.gaps += faults.gaps;
        self.long_lines += faults.long_lines;
    }
}

#[cfg(test)]
mod tests;
