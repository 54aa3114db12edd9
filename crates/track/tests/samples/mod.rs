//! Conversations of each tracked protocol, with the data that they announce.
#![allow(dead_code, reason = "each test uses a part")]

pub mod h323;

use fyke_testkit::packet::Packet;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Transport of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Tcp,
    Udp,
    Gre,
}

/// A packet of a conversation.
#[derive(Debug, Clone)]
pub struct Sent {
    pub by: By,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub payload: Vec<u8>,
    /// Data that was announced, not signalling.
    pub is_data: bool,
}

/// A conversation.
#[derive(Debug, Clone)]
pub struct Sample {
    pub protocol: &'static str,
    pub sent: Vec<Sent>,
}

pub const A: [u8; 4] = [10, 0, 0, 1];
pub const B: [u8; 4] = [10, 0, 0, 2];

pub fn at(host: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::from((host, port))
}

/// A packet of signalling.
pub fn says(by: By, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Sent {
    Sent { by, from, to, payload: payload.to_vec(), is_data: false }
}

/// A packet of data.
pub fn data(by: By, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Sent {
    Sent { is_data: true, ..says(by, from, to, payload) }
}

/// A packet of RTP.
pub fn rtp(number: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(number.to_be_bytes());
    bytes.extend((u32::from(number) * 160).to_be_bytes());
    bytes.extend([0, 0, 0, 9]);
    bytes.resize(172, 0x55);
    bytes
}

/// A receiver report without blocks.
pub fn rtcp() -> Vec<u8> {
    vec![0x80, 201, 0, 1, 0, 0, 0, 9]
}

/// Media between two ends in both directions, and reports between the ports above.
pub fn media(one: SocketAddr, two: SocketAddr) -> Vec<Sent> {
    let above = |end: SocketAddr| SocketAddr::new(end.ip(), end.port() + 1);
    let mut sent = Vec::new();
    for number in 0..3 {
        sent.push(data(By::Udp, one, two, &rtp(number)));
        sent.push(data(By::Udp, two, one, &rtp(number)));
    }
    sent.push(data(By::Udp, above(one), above(two), &rtcp()));
    sent
}

/// Builds the frames of packets; `begin` makes the headers before the IP header.
pub fn build(sent: &[Sent], begin: &dyn Fn() -> Packet) -> Vec<Vec<u8>> {
    let mut sequences: HashMap<(SocketAddr, SocketAddr), u32> = HashMap::new();
    let one = |packet: &Sent| {
        let Sent { by, from, to, ref payload, .. } = *packet;
        let ip = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => begin().ipv4(from, to),
            (IpAddr::V6(from), IpAddr::V6(to)) => begin().ipv6(from, to),
            other => panic!("{other:?}"),
        };
        match by {
            By::Udp => ip.udp(from.port(), to.port()).payload(payload).build(),
            By::Gre => {
                let inner = ip.pptp(7, Some(1)).ppp().ipv4(A, B).udp(1, 2);
                inner.payload(payload).build()
            }
            By::Tcp => {
                let acknowledged = sequences.get(&(to, from)).copied().unwrap_or(1);
                let next = sequences.entry((from, to)).or_insert(1);
                let sequence = *next;
                *next += payload.len() as u32;
                let tcp = ip.tcp(from.port(), to.port()).flags(16);
                tcp.seq_ack(sequence, acknowledged).payload(payload).build()
            }
        }
    };
    sent.iter().map(one).collect()
}

/// A conversation of each protocol.
pub fn all() -> Vec<Sample> {
    vec![ftp(), sip(), rtsp(), tftp(), pptp(), irc(), skinny(), mgcp(), dcerpc(), h323(), p2p()]
}

fn ftp() -> Sample {
    let (client, server) = (at(A, 4_000), at(B, 21));
    let sent = vec![
        says(By::Tcp, client, server, b"PASV\r\n"),
        says(By::Tcp, server, client, b"227 Entering Passive Mode (10,0,0,2,15,160)\r\n"),
        data(By::Tcp, at(A, 4_001), at(B, 4_000), b"RETR"),
        data(By::Tcp, at(B, 4_000), at(A, 4_001), b"content"),
    ];
    Sample { protocol: "ftp", sent }
}

fn sdp(host: [u8; 4], port: u16) -> String {
    let [a, b, c, d] = host;
    format!(
        "v=0\r\no=x 1 1 IN IP4 {a}.{b}.{c}.{d}\r\ns=-\r\nc=IN IP4 {a}.{b}.{c}.{d}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0\r\n"
    )
}

fn sip() -> Sample {
    let message = |start: &str, body: &str| {
        let head = format!(
            "{start}\r\nVia: SIP/2.0/UDP 10.0.0.1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:b@a>\r\n\
             Call-ID: x@y\r\nCSeq: 1 INVITE\r\nContent-Type: application/sdp\r\n"
        );
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let (caller, callee) = (at(A, 5_060), at(B, 5_060));
    let invite = message("INVITE sip:b@a SIP/2.0", &sdp(A, 4_000));
    let answer = message("SIP/2.0 200 OK", &sdp(B, 6_000));
    let mut sent =
        vec![says(By::Udp, caller, callee, &invite), says(By::Udp, callee, caller, &answer)];
    sent.extend(media(at(A, 4_000), at(B, 6_000)));
    Sample { protocol: "sip", sent }
}

fn rtsp() -> Sample {
    let (client, server) = (at(A, 3_000), at(B, 554));
    let setup = b"SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;client_port=4588-4589\r\n\r\n";
    let answer = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nTransport: \
                   RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257\r\nSession: 7\r\n\r\n";
    let mut sent =
        vec![says(By::Tcp, client, server, setup), says(By::Tcp, server, client, answer)];
    sent.extend(media(at(A, 4_588), at(B, 6_256)));
    Sample { protocol: "rtsp", sent }
}

fn tftp() -> Sample {
    let (client, server) = (at(A, 3_000), at(B, 9_000));
    let sent = vec![
        says(By::Udp, client, at(B, 69), b"\0\x01file\0octet\0"),
        data(By::Udp, server, client, b"\0\x03\0\x01data"),
        data(By::Udp, client, server, b"\0\x04\0\x01"),
    ];
    Sample { protocol: "tftp", sent }
}

fn pptp() -> Sample {
    let mut reply = vec![0, 32, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, 8, 0, 0, 0, 1, 0, 2, 1];
    reply.resize(32, 0);
    let sent = vec![
        says(By::Tcp, at(B, 1_723), at(A, 4_000), &reply),
        data(By::Gre, at(A, 0), at(B, 0), b"tunnel"),
        data(By::Gre, at(B, 0), at(A, 0), b"tunnel"),
    ];
    Sample { protocol: "pptp", sent }
}

fn irc() -> Sample {
    let sent = vec![
        says(
            By::Tcp,
            at(A, 4_000),
            at(B, 6_667),
            b"PRIVMSG b :\x01DCC SEND a 167772161 4100 9\x01\r\n",
        ),
        data(By::Tcp, at([10, 0, 0, 3], 5_000), at(A, 4_100), b"x"),
        data(By::Tcp, at(A, 4_100), at([10, 0, 0, 3], 5_000), b"content"),
    ];
    Sample { protocol: "irc", sent }
}

fn skinny() -> Sample {
    let message = |id: u32, words: &[u32], host: [u8; 4], port: u32, party: u32| {
        let mut data = id.to_le_bytes().to_vec();
        words.iter().for_each(|word| data.extend(word.to_le_bytes()));
        data.extend(host);
        [port, party].iter().for_each(|word| data.extend(word.to_le_bytes()));
        let length = (data.len() as u32).to_le_bytes();
        [&length[..], &[0; 4], &data].concat()
    };
    let (phone, manager) = (at(A, 4_000), at(B, 2_000));
    let mut sent = vec![
        says(By::Tcp, phone, manager, &message(0x22, &[0], A, 24_000, 5)),
        says(By::Tcp, manager, phone, &message(0x8a, &[1, 5], [10, 0, 0, 3], 26_000, 20)),
    ];
    sent.extend(media(at(A, 24_000), at([10, 0, 0, 3], 26_000)));
    Sample { protocol: "skinny", sent }
}

fn mgcp() -> Sample {
    let (agent, gateway) = (at(A, 2_727), at(B, 2_427));
    let create = format!(
        "CRCX 9 aaln/1@gw MGCP 1.0\r\nC: A3\r\nM: sendrecv\r\n\r\n{}",
        sdp([10, 0, 0, 3], 5_000)
    );
    let answer = format!("200 9 OK\r\nI: 1\r\n\r\n{}", sdp(B, 6_000));
    let mut sent = vec![
        says(By::Udp, agent, gateway, create.as_bytes()),
        says(By::Udp, gateway, agent, answer.as_bytes()),
    ];
    sent.extend(media(at([10, 0, 0, 3], 5_000), at(B, 6_000)));
    Sample { protocol: "mgcp", sent }
}

fn dcerpc() -> Sample {
    let mut tower = vec![2, 0];
    for part in [&[7][..], &[0xc0, 0], &[9], &[10, 0, 0, 2]] {
        tower.extend((part.len() as u16).to_le_bytes());
        tower.extend(part);
    }
    let mut results = vec![0; 20];
    // The number of towers three times, a pointer, the sizes of the tower, the tower, the status.
    for number in [1, 4, 0, 1, 3, tower.len() as u32, tower.len() as u32] {
        results.extend(u32::to_le_bytes(number));
    }
    results.extend(&tower);
    results.resize(results.len().next_multiple_of(4) + 4, 0);
    let mut answer = vec![5, 0, 2, 3, 0x10, 0, 0, 0];
    answer.extend((24 + results.len() as u16).to_le_bytes());
    answer.extend([0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    answer.extend(&results);
    let sent = vec![
        says(By::Tcp, at(B, 135), at(A, 4_000), &answer),
        data(By::Tcp, at(A, 4_001), at(B, 49_152), b"call"),
        data(By::Tcp, at(B, 49_152), at(A, 4_001), b"result"),
    ];
    Sample { protocol: "dcerpc", sent }
}

fn h323() -> Sample {
    use h323::{Content, Data, Kind};
    let [caller, callee] = [at(A, 4_000), at(B, 1_720)];
    let above = |end: SocketAddr| Some(SocketAddr::new(end.ip(), end.port() + 1));
    let offer = |end: SocketAddr, is_reverse: bool| {
        let media = is_reverse.then_some(end);
        h323::open(1, Data::Audio, is_reverse, media, above(end))
    };
    let near = at(A, 5_000);
    let far = at(B, 6_000);
    let content = |fast_start| Content { fast_start, ..Content::default() };
    let setup = content(vec![offer(near, false), offer(near, true)]);
    // The answer names the media end of its direction in the forward parameters.
    let accepted = h323::open(1, Data::Audio, false, Some(far), above(far));
    let mut sent = vec![
        says(By::Tcp, caller, callee, &h323::signalling(Kind::Setup, 7, &setup)),
        says(
            By::Tcp,
            callee,
            caller,
            &h323::signalling(Kind::Connect, 0x8007, &content(vec![accepted])),
        ),
    ];
    sent.extend(media(near, far));
    Sample { protocol: "h323", sent }
}

fn p2p() -> Sample {
    let (one, two) = (at(A, 40_000), at(B, 51_413));
    let handshake = [&b"\x13BitTorrent protocol"[..], &[0; 8], &[7; 40]].concat();
    let sent = vec![
        says(By::Tcp, one, two, &handshake),
        data(By::Tcp, two, one, &handshake),
        data(By::Tcp, one, two, &[0, 0, 0, 1, 2]),
    ];
    Sample { protocol: "p2p", sent }
}
