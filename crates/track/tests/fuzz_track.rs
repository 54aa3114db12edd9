//! The check of the fuzz target `track_messages` on seeded input: messages of all trackers, some of them damaged.

use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/track.rs"]
mod checks;

/// Messages that announce something, for the ports of [`checks`].
const MESSAGES: [(u8, &str); 15] = [
    (
        0,
        "INVITE sip:b SIP/2.0\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\nContent-Type: application/sdp\r\nContent-Length: \
         109\r\n\r\nv=0\r\no=x 1 1 IN IP4 10.0.0.1\r\nc=IN IP4 10.0.0.1\r\nm=audio 4000 RTP/AVP 0\r\n\
         a=candidate:1 1 UDP 1 10.0.0.2 77 typ host\r\n",
    ),
    (
        0,
        "SIP/2.0 200 OK\r\ni: a\r\nCSeq: 1 INVITE\r\nc: application/sdp\r\n\r\nv=0\r\nc=IN IP4 10.0.0.2\r\n\
         m=video 4001/3 RTP/AVP 0\r\na=rtcp:9\r\nm=message 99 TCP/MSRP *\r\n",
    ),
    (0, "BYE sip:b SIP/2.0\r\nCall-ID: a\r\nCSeq: 2 BYE\r\n\r\n"),
    (
        1,
        "SETUP rtsp://a RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;client_port=4000-4001\r\n\r\n",
    ),
    (1, "TEARDOWN rtsp://a RTSP/1.0\r\nCSeq: 2\r\n\r\n"),
    (2, "\0\u{1}file\0octet\0"),
    (3, "227 Entering Passive Mode (10,0,0,2,15,160)\r\n"),
    (6, "\0\u{20}\0\u{1}\u{1a}+<M\0\u{8}\0\0\0\u{1}\0\u{2}\u{1}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    (7, "PRIVMSG b :\u{1}DCC SEND a 167772161 4000 1\u{1}\r\n"),
    (
        10,
        concat!(
            "\u{5}\0\u{2}\u{3}\u{10}\0\0\0X\0\0\0\u{1}\0\0\0\0\0\0\0\0\0\0\0",
            "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{1}\0\0\0\u{4}\0\0\0\0\0\0\0\u{1}\0\0\0",
            "\u{3}\0\0\0\t\0\0\0\t\0\0\0\u{1}\0\u{1}\0\u{7}\u{2}\0\u{f}P\0\0\0\0\0\0\0",
        ),
    ),
    (
        9,
        "CRCX 9 aaln/1@gw MGCP 1.0\r\nC: A3\r\n\r\nv=0\r\nc=IN IP4 10.0.0.1\r\nm=audio 4000 RTP/AVP 0\r\n",
    ),
    (9, "DLCX 10 *@gw MGCP 1.0\r\n"),
    (12, "\u{13}BitTorrent protocol"),
    (12, "d1:ad2:id20:iiiiiiiiiiiiiiiiiiiie1:q4:ping1:t2:aa1:y1:qe"),
    (8, "\u{14}\0\0\0\0\0\0\0\"\0\0\0\0\0\0\0\n\0\0\u{1}@]\0\0\u{5}\0\0\0"),
];

#[test]
fn messages_of_any_bytes() {
    let (mut random, seed) = Random::seeded(26);
    println!("seed {seed}");
    let mut opened = 0;
    for _ in 0..1_500 {
        let mut data = Vec::new();
        for _ in 0..random.below(30) {
            let (port, text) = random.pick(&MESSAGES);
            let mut text = text.as_bytes().to_vec();
            for _ in 0..random.below(4) {
                let at = random.below(text.len());
                match random.below(4) {
                    0 => text[at] = random.number() as u8,
                    1 => text.truncate(at.max(1)),
                    2 => text.insert(at, b"0\r\n:=/9-"[random.below(8)]),
                    _ => text[at] = b' ',
                }
            }
            text.resize(text.len().next_multiple_of(8), b'\n');
            let port = if random.chance(6) { 4 } else { port };
            let how = random.below(4) as u8 | port << 2;
            data.extend([how, random.number() as u8, (text.len() / 8) as u8]);
            data.extend(text);
        }
        opened += checks::messages(&data);
    }
    assert!(opened > 5_000, "{opened}");
}

#[test]
fn bytes_without_any_order() {
    let (mut random, seed) = Random::seeded(27);
    println!("seed {seed}");
    for _ in 0..500 {
        let data: Vec<u8> = (0..random.below(2_000)).map(|_| random.number() as u8).collect();
        checks::messages(&data);
    }
}
