//! `mixed`: a busy link with interleaved connections, datagrams, tunnels and fragments, tagged and untagged.

use super::CaptureFile;
use super::payload;
use super::protocols;
use super::scene::{Scene, v4, v6};
use super::talk::Talk;
use crate::packet::Packet;
use crate::random::Random;

/// Number of frames of the busy link.
pub const BUSY_FRAMES: usize = 4_096;

/// Makes a conversation of a random kind.
fn conversation(random: &mut Random, number: u16) -> Vec<Vec<u8>> {
    let around = match random.below(4) {
        0 => Packet::ethernet(),
        1 => Packet::ethernet().qinq(30).vlan(31),
        _ => Packet::ethernet().vlan(1 + random.below(3) as u16),
    };
    let (near, far) = (1 + random.below(200) as u16, 201 + random.below(50) as u16);
    let is_six = random.chance(4);
    let (client, server) = match is_six {
        true => (v6(near), v6(far)),
        false => (v4(near as u8), v4(far as u8)),
    };
    let port = 20_000 + number % 30_000;
    let packet = || super::scene::ip(around.clone(), client, server);
    let back = || super::scene::ip(around.clone(), server, client);
    match random.below(8) {
        0 => vec![
            packet().udp(port, 53).payload(&payload::dns_query(number, "www.example.org", 1)),
            back().udp(53, port).payload(&payload::dns_answer(number, "www.example.org", 1)),
        ],
        1 => (0..1 + random.below(8) as u16)
            .map(|sequence| packet().udp(port, 16_384).payload(&payload::rtp(sequence, 5)))
            .collect(),
        2 if is_six => vec![packet().icmpv6(128, 0, 7), back().icmpv6(129, 0, 7)],
        2 => vec![packet().icmp(8, 0, 7).payload(&[1; 48]), back().icmp(0, 0, 7).payload(&[1; 48])],
        3 => vec![packet().udp(4_500, 4_500).payload(&[7; 60]), packet().esp(9).payload(&[3; 60])],
        4 => {
            let inner = packet().gre().ipv4([172, 16, 0, 1], [172, 16, 0, 2]);
            vec![inner.clone().tcp(port, 443), inner.udp(port, 443).payload(&[5; 100])]
        }
        _ => {
            let server_port = random.pick(&[443, 443, 80, 22, 25]);
            let first = [random.number() as u32, random.number() as u32];
            let mut talk = Talk::new(around, (client, port), (server, server_port), first);
            talk.handshake();
            match server_port {
                443 => talk.client(&payload::client_hello("www.example.net")).server(&[23; 900]),
                80 => talk.client(&payload::http_request("www.example.com", "/lamp")),
                _ => talk.server(b"220 hello\r\n").client(b"EHLO chair\r\n"),
            };
            talk.close();
            return talk.frames();
        }
    }
    .iter()
    .map(Packet::build)
    .collect()
}

/// Makes the busy link.
pub fn busy() -> Scene {
    let mut random = Random::new(2_024);
    let mut scene = Scene::new(1);
    let mut open: Vec<std::vec::IntoIter<Vec<u8>>> = Vec::new();
    let mut number = 0;
    let rare = protocols::without_ports();
    while scene.records.len() < BUSY_FRAMES {
        while open.len() < 8 {
            number += 1;
            open.push(conversation(&mut random, number).into_iter());
        }
        if random.chance(25) {
            scene.push(rare[random.below(rare.len())].clone());
            continue;
        }
        let place = random.below(open.len());
        match open[place].next() {
            Some(frame) => scene.push(frame),
            None => {
                open.remove(place);
            }
        }
    }
    scene
}

/// Returns the files of the folder.
pub fn files() -> Vec<CaptureFile> {
    vec![
        CaptureFile::new("mixed", "busy.pcap", busy().pcap()),
        CaptureFile::new("mixed", "busy-snapped.pcap", busy().snapped(96).pcap()),
    ]
}
