//! `ftp`: control connections and the data connections that they announce, with the counts that a tracker must find.

use super::CaptureFile;
use super::scene::{Scene, v4, v6};
use super::talk::{End, Talk};
use crate::packet::Packet;
use crate::random::Random;
use std::net::IpAddr;

/// Counts that a tracker of port 21 must find in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FtpCounts {
    /// Valid announcements by the server.
    pub passive: u64,
    /// Valid announcements by the client.
    pub active: u64,
    /// Invalid announcements.
    pub malformed: u64,
    /// Data connections that are opened.
    pub connections: u64,
    /// Their frames.
    pub frames: u64,
}

/// A capture with its counts.
struct FtpScene {
    scene: Scene,
    counts: FtpCounts,
    outer: Packet,
    control_port: u16,
}

const CLIENT: u16 = 40_100;

impl FtpScene {
    fn new(outer: Packet) -> FtpScene {
        let scene = Scene::new(outer.link_type());
        FtpScene { scene, counts: FtpCounts::default(), outer, control_port: 21 }
    }

    /// Makes a control connection up to the greeting.
    fn control(&self, client: IpAddr, server: IpAddr, port: u16) -> Talk {
        let first = [u32::from(port), 9_000_000];
        let mut talk =
            Talk::new(self.outer.clone(), (client, port), (server, self.control_port), first);
        talk.handshake().server(b"220 ready\r\n");
        talk.client(b"USER lamp\r\n").server(b"331 password\r\n");
        talk.client(b"PASS chair\r\n").server(b"230 welcome\r\n");
        talk
    }

    /// Moves the segments so far into the capture.
    fn flush(&mut self, talk: &mut Talk) {
        talk.frames().into_iter().for_each(|frame| self.scene.push(frame));
        talk.pieces.clear();
    }

    /// Makes a data connection that transfers `bytes`.
    fn data(&mut self, from: End, to: End, bytes: &[u8]) {
        let mut talk = Talk::new(self.outer.clone(), from, to, [500, 600]);
        talk.handshake().segment_len(700);
        talk.server(bytes).close();
        self.counts.connections += 1;
        self.counts.frames += talk.pieces.len() as u64;
        self.flush(&mut talk);
    }
}

/// Formats a port for 227 and `PORT`.
fn spelled(port: u16) -> String {
    format!("{},{}", port >> 8, port & 255)
}

/// Makes transfers in passive mode, over IPv4 with 227 or over IPv6 with 229.
fn passive(outer: Packet, six: bool, transfers: u16) -> (Scene, FtpCounts) {
    passive_by(FtpScene::new(outer), six, transfers)
}

/// Makes the same with control connections to port 443, which a tracker of port 21 does not see.
fn other_port() -> (Scene, FtpCounts) {
    let made = FtpScene { control_port: 443, ..FtpScene::new(Packet::ethernet()) };
    (passive_by(made, false, 2).0, FtpCounts::default())
}

fn passive_by(mut made: FtpScene, six: bool, transfers: u16) -> (Scene, FtpCounts) {
    let (client, server) = if six { (v6(1), v6(2)) } else { (v4(1), v4(2)) };
    let mut talk = made.control(client, server, CLIENT);
    for number in 0..transfers {
        let port = 50_000 + 7 * number;
        let (ask, tell) = match six {
            true => ("EPSV\r\n", format!("229 extended passive (|||{port}|)\r\n")),
            false => ("PASV\r\n", format!("227 passive (10,0,0,2,{})\r\n", spelled(port))),
        };
        talk.client(ask.as_bytes()).server(tell.as_bytes());
        made.counts.passive += 1;
        talk.client(b"RETR file\r\n").server(b"150 here it comes\r\n");
        made.flush(&mut talk);
        made.data((client, 41_000 + number), (server, port), &[number as u8; 2_000]);
        talk.server(b"226 done\r\n");
    }
    talk.client(b"QUIT\r\n").server(b"221 bye\r\n").close();
    made.flush(&mut talk);
    (made.scene, made.counts)
}

/// Makes transfers in active mode, with `PORT` or `EPRT`.
fn active(outer: Packet, six: bool, extended: bool) -> (Scene, FtpCounts) {
    let mut made = FtpScene::new(outer);
    let (client, server) = if six { (v6(1), v6(2)) } else { (v4(1), v4(2)) };
    let mut talk = made.control(client, server, CLIENT);
    for number in 0..4 {
        let port = 52_000 + number;
        let ask = match (extended, six) {
            (true, true) => format!("EPRT |2|{client}|{port}|\r\n"),
            (true, false) => format!("EPRT |1|{client}|{port}|\r\n"),
            (false, _) => format!("PORT 10,0,0,1,{}\r\n", spelled(port)),
        };
        talk.client(ask.as_bytes()).server(b"200 noted\r\n");
        made.counts.active += 1;
        talk.client(b"STOR file\r\n").server(b"150 send\r\n");
        made.flush(&mut talk);
        made.data((server, 20), (client, port), &[7; 900]);
        talk.server(b"226 done\r\n");
    }
    talk.close();
    made.flush(&mut talk);
    (made.scene, made.counts)
}

/// Makes announcements without a connection, with invalid numbers, and texts that only resemble one.
fn wrong() -> (Scene, FtpCounts) {
    let mut made = FtpScene::new(Packet::ethernet());
    let mut talk = made.control(v4(1), v4(2), CLIENT);
    for (by_client, text) in [
        (true, "PORT 10,0,0,1,300,1\r\n"),
        (true, "PORT 10,0,0\r\n"),
        (true, "EPRT |1|10.0.0.1|99999|\r\n"),
        (false, "227 passive (10,0,0,2,256,0)\r\n"),
        (false, "229 passive (|||0|)\r\n"),
    ] {
        match by_client {
            true => talk.client(text.as_bytes()),
            false => talk.server(text.as_bytes()),
        };
        made.counts.malformed += 1;
    }
    talk.client(b"PASV\r\n").server(b"227 passive (10,0,0,2,200,1)\r\n");
    made.counts.passive += 1;
    talk.client(b"SITE PORT 10,0,0,1,2,3\r\n").server(b"500 what?\r\n");
    talk.server(b"214-the commands are\r\n 227 none of (10,0,0,2,9,9)\r\n214 that is all\r\n");
    talk.reset(true);
    made.flush(&mut talk);
    (made.scene, made.counts)
}

/// Makes a reply in segments of three bytes, reordered and repeated.
fn split(seed: u64) -> (Scene, FtpCounts) {
    let mut made = FtpScene::new(Packet::ethernet());
    let mut talk = made.control(v4(1), v4(2), CLIENT);
    made.flush(&mut talk);
    let mut random = Random::new(seed);
    talk.client(b"PASV\r\n");
    talk.segment_len(3).server(b"227 passive (10,0,0,2,195,80)\r\n");
    talk.reordered(&mut random).retransmitted(&mut random);
    made.flush(&mut talk);
    made.counts.passive += 1;
    made.data((v4(1), 41_000), (v4(2), 50_000), b"listing\r\n");
    talk.close();
    made.flush(&mut talk);
    (made.scene, made.counts)
}

/// Makes a connection that becomes unreadable, after which it announces nothing.
fn encrypted() -> (Scene, FtpCounts) {
    let mut made = FtpScene::new(Packet::ethernet());
    let mut talk = made.control(v4(1), v4(2), CLIENT);
    talk.client(b"AUTH TLS\r\n").server(b"234 go ahead\r\n");
    talk.client(&super::payload::client_hello("ftp.example.org")).server(&[22, 3, 3, 0, 1, 2]);
    talk.close();
    made.flush(&mut talk);
    (made.scene, made.counts)
}

/// Makes connections of many clients, interleaved with other traffic.
fn busy() -> (Scene, FtpCounts) {
    let mut made = FtpScene::new(Packet::ethernet());
    let mut counts = FtpCounts::default();
    for number in 0..20u8 {
        let (client, server) = (v4(10 + number), v4(2));
        let mut talk = made.control(client, server, CLIENT + u16::from(number));
        let port = 50_500 + u16::from(number);
        talk.client(b"PASV\r\n");
        talk.server(format!("227 at (10,0,0,2,{}).\r\n", spelled(port)).as_bytes());
        counts.passive += 1;
        made.flush(&mut talk);
        made.scene.push(Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, 53).build());
        made.data((client, 42_000), (server, port), &[number; 100]);
        talk.close();
        made.flush(&mut talk);
    }
    (counts.connections, counts.frames) = (made.counts.connections, made.counts.frames);
    (made.scene, counts)
}

/// Returns name, capture and counts of each file of the folder.
pub fn captures() -> Vec<(&'static str, Scene, FtpCounts)> {
    let ethernet = Packet::ethernet;
    let mut captures = Vec::new();
    let mut add = |name, (scene, counts): (Scene, FtpCounts)| captures.push((name, scene, counts));
    add("passive.pcap", passive(ethernet(), false, 5));
    add("passive-six.pcap", passive(ethernet(), true, 5));
    add("passive-raw.pcap", passive(Packet::raw(), false, 3));
    add("passive-sll.pcap", passive(Packet::sll(), false, 3));
    add("port-443.pcap", other_port());
    add("active.pcap", active(ethernet(), false, false));
    add("active-eprt.pcap", active(ethernet(), false, true));
    add("active-eprt-six.pcap", active(ethernet(), true, true));
    add("wrong.pcap", wrong());
    add("split-1.pcap", split(1));
    add("split-2.pcap", split(2));
    add("encrypted.pcap", encrypted());
    add("busy.pcap", busy());
    captures
}

/// Returns the files of the folder.
pub fn files() -> Vec<CaptureFile> {
    let captures = captures().into_iter();
    captures.map(|(name, scene, _)| CaptureFile::new("ftp", name, scene.pcap())).collect()
}
