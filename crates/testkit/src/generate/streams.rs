//! `tcp-streams`: connections with every kind of disorder that a network causes, many interleaved in each file.

use super::CaptureFile;
use super::payload;
use super::scene::{Scene, v4, v6};
use super::talk::Talk;
use crate::packet::Packet;
use crate::random::Random;

/// Number of connections of a file.
const CONNECTIONS: u16 = 55;

/// Disorder of the segments of a connection.
type Disorder = fn(&mut Talk, &mut Random);

const DISORDERS: [(&str, Disorder); 6] = [
    ("in-order", |_, _| {}),
    ("reordered", |talk, random| {
        talk.reordered(random);
    }),
    ("retransmitted", |talk, random| {
        talk.retransmitted(random);
    }),
    ("overlapping", |talk, random| {
        talk.overlapping(random);
    }),
    ("gaps", |talk, random| {
        talk.with_a_gap(random);
    }),
    ("everything", |talk, random| {
        talk.overlapping(random).retransmitted(random).reordered(random);
    }),
];

/// Returns bytes that identify the connection and the offset.
fn text(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| b'a' + random.below(26) as u8).collect()
}

/// Makes a connection with data in both directions.
fn talk(random: &mut Random, number: u16) -> Talk {
    let port = 20_000 + number;
    let is_six = number % 5 == 4;
    let (client, server) = match is_six {
        true => ((v6(1 + number), port), (v6(200), 80)),
        false => ((v4(1 + (number % 200) as u8), port), (v4(250), [80, 25, 443][random.below(3)])),
    };
    // Some connections start just below the end of the sequence space.
    let near_end = if random.chance(4) { u32::MAX - 300 } else { random.number() as u32 };
    let mut talk = Talk::new(Packet::ethernet(), client, server, [near_end, near_end ^ 0x55]);
    talk.handshake().segment_len(60 + random.below(400));
    for _ in 0..1 + random.below(3) {
        let (ask, tell) = (40 + random.below(300), 200 + random.below(1_500));
        talk.client(&text(random, ask)).server(&text(random, tell));
    }
    talk
}

fn file(name: &str, seed: u64, disorder: Disorder) -> CaptureFile {
    let mut random = Random::new(seed);
    let mut scene = Scene::new(1);
    let mut talks: Vec<std::vec::IntoIter<Vec<u8>>> = Vec::new();
    for number in 0..CONNECTIONS {
        let mut one = talk(&mut random, number);
        disorder(&mut one, &mut random);
        one.close();
        talks.push(one.frames().into_iter());
    }
    // Takes a frame of a random open connection until all are finished.
    while !talks.is_empty() {
        let among = talks.len().min(6);
        let place = random.below(among);
        match talks[place].next() {
            Some(frame) => scene.push(frame),
            None => {
                talks.remove(place);
            }
        }
    }
    CaptureFile::new("tcp-streams", &format!("{name}.pcap"), scene.pcap())
}

/// Makes single connections that start, continue or end in unusual ways.
fn odd() -> Vec<(&'static str, Talk)> {
    let ends = |port| ((v4(1), port), (v4(2), 80));
    let open = |port| Talk::open(ends(port).0, ends(port).1);
    let mut reset = open(3001);
    reset.client(b"one").server(b"two").reset(false);
    let mut refused = Talk::new(Packet::ethernet(), ends(3002).0, ends(3002).1, [5, 0]);
    refused.piece(true, 0x02, b"").piece(false, 0x14, b"");
    let mut middle = Talk::new(Packet::ethernet(), ends(3003).0, ends(3003).1, [900, 800]);
    middle.client(b"begun before the capture").server(b"yes").close();
    let mut keep_alive = open(3004);
    keep_alive.client(b"x");
    let mut probe = keep_alive.pieces[0].clone();
    (probe.flags, probe.sequence) = (0x10, probe.sequence + 1);
    keep_alive.pieces.extend([probe.clone(), probe]);
    let mut urgent = open(3005);
    urgent.piece(true, 0x38, b"urgent").piece(false, 0x10, b"").close();
    let mut bare = open(3006);
    bare.close();
    let mut web = open(3007);
    web.client(&payload::http_request("www.example.org", "/index")).segment_len(500);
    web.server(&payload::http_answer(&[b'z'; 3_000])).close();
    let mut tls = Talk::open(ends(3008).0, (v4(2), 443));
    tls.client(&payload::client_hello("www.example.org")).server(&[22, 3, 3, 0, 2, 2, 0]).close();
    let mut at_once = open(3009);
    at_once.piece(true, 0x19, b"data and end").piece(false, 0x11, b"").piece(true, 0x10, b"");
    vec![
        ("reset", reset),
        ("refused", refused),
        ("from-the-middle", middle),
        ("keep-alive", keep_alive),
        ("urgent", urgent),
        ("without-data", bare),
        ("http", web),
        ("tls", tls),
        ("data-and-fin", at_once),
    ]
}

/// Returns the files of the folder.
pub fn files() -> Vec<CaptureFile> {
    let disorders = (0..2).flat_map(|round| {
        DISORDERS.iter().zip(10..).map(move |((name, disorder), seed)| {
            file(&format!("{name}-{round}"), seed + 100 * round, *disorder)
        })
    });
    let mut files: Vec<_> = disorders.collect();
    files.extend(odd().into_iter().map(|(name, talk)| {
        let mut scene = Scene::new(1);
        talk.frames().into_iter().for_each(|frame| scene.push(frame));
        CaptureFile::new("tcp-streams", &format!("{name}.pcap"), scene.pcap())
    }));
    files
}
