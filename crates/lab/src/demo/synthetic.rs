//! The demonstration's traffic generated in memory, for machines that refuse namespaces: the same servers,
//! transfers, bursts and background as on the wire, as frames with timestamps.
//!
//! The frames are those of TCP stacks on a link without loss: handshakes, some replies split in two,
//! acknowledgements for every second segment, FIN from both ends. Memory: all frames at once, at most
//! [`MOST_BYTES`]; the background is reduced to fit.

use crate::ftp::{self, CONTROL_PORT, Transfer};
use crate::{background, net};
use etherparse::PacketBuilder;
use fyke_capture::MemorySource;
use fyke_frame::{Frame, LinkType};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

/// Maximum bytes of frames.
const MOST_BYTES: u64 = 512 << 20;
/// Number of frames that the source keeps for look-back, as a ring's unreleased blocks would.
const LOOK_BACK: u64 = 2_048;
const MSS: u64 = 1_448;
/// Time from one end to the other and through its application.
const STEP_NS: u64 = 60_000;
/// Time between two segments of a burst.
const SEGMENT_NS: u64 = 12_000;
/// An arbitrary day: 2024-01-01.
const EPOCH_NS: u64 = 1_704_067_200_000_000_000;
const SPLIT_EVERY: usize = 7;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;

/// Generated traffic.
pub struct Synthetic {
    /// The frames, in order of time.
    pub source: MemorySource,
    /// Completed transfers.
    pub transfers: Vec<Transfer>,
    /// Time from the first to the last frame.
    pub duration: Duration,
}

/// Generates all frames.
pub fn generate(options: &ftp::Options, background: &background::Options) -> Synthetic {
    let mut traffic = Traffic::default();
    let interval = options.interval.as_nanos() as u64;
    for server in 0..options.servers {
        for index in 0..options.connections {
            let offset = interval * server as u64 / options.servers.max(1) as u64;
            traffic.now_ns = EPOCH_NS + offset + interval * index as u64;
            traffic.session(server, index, options);
        }
    }
    let last = traffic.frames.iter().map(|(time, _)| *time).max().unwrap_or(EPOCH_NS);
    traffic.background(last, background);
    traffic.frames.sort_by_key(|(time, _)| *time);
    let mut source = MemorySource::new(LinkType::EN10MB);
    source.look_back(LOOK_BACK);
    for (timestamp_ns, bytes) in &traffic.frames {
        source.push(&Frame { timestamp_ns: *timestamp_ns, ..Frame::new(LinkType::EN10MB, bytes) });
    }
    let duration = Duration::from_nanos(last - EPOCH_NS);
    Synthetic { source, transfers: traffic.transfers, duration }
}

#[derive(Default)]
struct Traffic {
    frames: Vec<(u64, Vec<u8>)>,
    transfers: Vec<Transfer>,
    now_ns: u64,
}

/// A TCP connection with the next sequence number of each end.
struct Tcp {
    client: SocketAddrV4,
    server: SocketAddrV4,
    next: [u32; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Client = 0,
    Server = 1,
}

impl Traffic {
    fn session(&mut self, server: usize, index: usize, options: &ftp::Options) {
        let client_ip = net::client_address(server);
        let server_ip = net::server_address(server);
        let client_port = 30_000 + 2 * index as u16;
        let kind = index + server;
        let (extended, upload) = (kind % 3 == 2, kind % 5 == 4);
        let mut control = Tcp::new(
            SocketAddrV4::new(client_ip, client_port),
            SocketAddrV4::new(server_ip, CONTROL_PORT),
        );
        self.open(&mut control);
        self.say(&mut control, From::Server, "220-fyke lab\r\n220 ready\r\n");
        for (command, reply) in
            [("USER fyke", "331 password"), ("PASS lab", "230 welcome"), ("TYPE I", "200 yes")]
        {
            self.say(&mut control, From::Client, &format!("{command}\r\n"));
            self.say(&mut control, From::Server, &format!("{reply}\r\n"));
        }
        let started_ns = self.now_ns;
        let port = 40_000 + (index as u16 * 7) % 20_000;
        self.say(&mut control, From::Client, if extended { "EPSV\r\n" } else { "PASV\r\n" });
        let reply = announcement(extended, SocketAddrV4::new(server_ip, port));
        if index % SPLIT_EVERY == SPLIT_EVERY - 1 {
            let (head, tail) = reply.split_at(reply.len() / 2);
            self.say(&mut control, From::Server, head);
            self.say(&mut control, From::Server, tail);
        } else {
            self.say(&mut control, From::Server, &reply);
        }
        let mut data = Tcp::new(
            SocketAddrV4::new(client_ip, client_port + 1),
            SocketAddrV4::new(server_ip, port),
        );
        self.open(&mut data);
        let verb = if upload { "STOR" } else { "RETR" };
        self.say(&mut control, From::Client, &format!("{verb} {}\r\n", options.size_bytes));
        self.say(&mut control, From::Server, "150 here it comes\r\n");
        self.transfer(&mut data, if upload { From::Client } else { From::Server }, options);
        self.say(&mut control, From::Server, "226 done\r\n");
        self.say(&mut control, From::Client, "QUIT\r\n");
        self.say(&mut control, From::Server, "221 bye\r\n");
        self.close(&mut control, From::Server);
        self.transfers.push(Transfer {
            server: SocketAddr::V4(data.server),
            client: SocketAddr::V4(data.client),
            extended,
            upload,
            bytes: options.size_bytes,
            started_ns,
            ended_ns: self.now_ns,
        });
    }

    fn open(&mut self, tcp: &mut Tcp) {
        self.segment(tcp, From::Client, SYN, &[]);
        self.segment(tcp, From::Server, SYN, &[]);
        self.segment(tcp, From::Client, 0, &[]);
    }

    fn close(&mut self, tcp: &mut Tcp, first: From) {
        self.segment(tcp, first, FIN, &[]);
        self.segment(tcp, first.other(), FIN, &[]);
        self.segment(tcp, first, 0, &[]);
    }

    fn say(&mut self, tcp: &mut Tcp, from: From, text: &str) {
        self.segment(tcp, from, PSH, text.as_bytes());
        self.now_ns += STEP_NS;
    }

    fn transfer(&mut self, tcp: &mut Tcp, from: From, options: &ftp::Options) {
        let payload = [b'f'; MSS as usize];
        let burst_bytes = options.burst_bytes.max(1);
        let pause = burst_bytes as f64 / options.bytes_per_second.max(1) as f64;
        let (mut left, mut start) = (options.size_bytes, self.now_ns);
        while left > 0 {
            self.now_ns = self.now_ns.max(start);
            start += (pause * 1e9) as u64;
            let mut burst = left.min(burst_bytes);
            left -= burst;
            let mut unacknowledged = 0;
            while burst > 0 {
                let len = burst.min(MSS);
                burst -= len;
                self.segment(tcp, from, PSH, &payload[..len as usize]);
                unacknowledged += 1;
                if unacknowledged == 2 || burst == 0 {
                    unacknowledged = 0;
                    self.segment(tcp, from.other(), 0, &[]);
                }
            }
        }
        self.close(tcp, from);
    }

    fn segment(&mut self, tcp: &mut Tcp, from: From, flags: u8, payload: &[u8]) {
        let (source, destination) = match from {
            From::Client => (tcp.client, tcp.server),
            From::Server => (tcp.server, tcp.client),
        };
        let opening = flags & SYN != 0 && from == From::Client;
        let (sequence, acknowledged) = (tcp.next[from as usize], tcp.next[from.other() as usize]);
        let mut header = PacketBuilder::ethernet2(mac(source), mac(destination))
            .ipv4(source.ip().octets(), destination.ip().octets(), 64)
            .tcp(source.port(), destination.port(), sequence, 64_240);
        header = if opening { header } else { header.ack(acknowledged) };
        header = if flags & SYN != 0 { header.syn() } else { header };
        header = if flags & FIN != 0 { header.fin() } else { header };
        header = if flags & PSH != 0 { header.psh() } else { header };
        let mut bytes = Vec::with_capacity(header.size(payload.len()));
        // A write to memory cannot fail, and payloads here are far below the maximum of an IP packet.
        let _ = header.write(&mut bytes, payload);
        self.frames.push((self.now_ns, bytes));
        self.now_ns += SEGMENT_NS;
        let taken = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        tcp.next[from as usize] = sequence.wrapping_add(taken);
    }

    fn background(&mut self, last_ns: u64, options: &background::Options) {
        let source = SocketAddrV4::new(net::client_address(0), background::UDP_PORT);
        let destination = SocketAddrV4::new(net::server_address(0), background::UDP_PORT);
        let header = PacketBuilder::ethernet2(mac(source), mac(destination))
            .ipv4(source.ip().octets(), destination.ip().octets(), 64)
            .udp(source.port(), destination.port());
        let mut bytes = Vec::new();
        let _ = header.write(&mut bytes, &vec![b'u'; options.payload_bytes.min(1_400)]);
        let duration_s = (last_ns - EPOCH_NS) as f64 / 1e9;
        let wanted = (options.packets_per_second as f64 * duration_s) as u64;
        let used: u64 = self.frames.iter().map(|(_, frame)| frame.len() as u64).sum();
        let count = wanted.min(MOST_BYTES.saturating_sub(used) / bytes.len() as u64);
        for number in 0..count {
            let offset = (last_ns - EPOCH_NS) as u128 * u128::from(number) / u128::from(count);
            self.frames.push((EPOCH_NS + offset as u64, bytes.clone()));
        }
    }
}

impl Tcp {
    fn new(client: SocketAddrV4, server: SocketAddrV4) -> Tcp {
        let first = u32::from(client.port()).wrapping_mul(2_654_435_761);
        Tcp { client, server, next: [first, first.wrapping_mul(31)] }
    }
}

impl From {
    fn other(self) -> From {
        match self {
            From::Client => From::Server,
            From::Server => From::Client,
        }
    }
}

fn announcement(extended: bool, listener: SocketAddrV4) -> String {
    let port = listener.port();
    if extended {
        return format!("229 Entering Extended Passive Mode (|||{port}|)\r\n");
    }
    let [a, b, c, d] = listener.ip().octets();
    format!("227 Entering Passive Mode ({a},{b},{c},{d},{},{}).\r\n", port >> 8, port & 0xff)
}

/// Creates a locally administered address from the IP address.
fn mac(end: SocketAddrV4) -> [u8; 6] {
    let [a, b, c, d] = end.ip().octets();
    [2, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_capture::{Next, Source};
    use fyke_track::{Event, Ftp, Reason, Tracker};

    #[test]
    fn the_tracker_finds_every_transfer_in_it() {
        let options = ftp::Options { servers: 3, connections: 15, ..Default::default() };
        let quiet = background::Options { packets_per_second: 100, ..Default::default() };
        let mut synthetic = generate(&options, &quiet);
        assert_eq!(synthetic.transfers.len(), 45);
        let (mut ftp, mut events, mut last) = (Ftp::default(), Vec::new(), 0);
        while let Next::Frames(batch, _) = synthetic.source.next().unwrap() {
            for frame in batch.frames() {
                assert!(frame.timestamp_ns >= last);
                last = frame.timestamp_ns;
                ftp.frame(frame, &mut events);
            }
        }
        ftp.expire(u64::MAX, &mut events);
        let closed = events.iter().filter_map(|event| match event {
            Event::Close(closed) => Some(closed),
            Event::Open(_) => None,
        });
        let finished: Vec<_> = closed.filter(|closed| closed.reason == Reason::Finished).collect();
        assert_eq!(finished.len(), 45);
        assert!(finished.iter().all(|closed| closed.from_syn));
        assert!(finished.iter().all(|closed| closed.wire_bytes > options.size_bytes));
    }
}
