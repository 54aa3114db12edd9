//! `fyke track` with calls: SIP, RTSP and TFTP from files and live, a file for each call, summaries.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");
const CALLER: [u8; 4] = [10, 0, 0, 1];
const CALLEE: [u8; 4] = [10, 0, 0, 2];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    Packet::ethernet().ipv4(from.0, to.0).udp(from.1, to.1).payload(payload).build()
}

fn sdp(host: [u8; 4], port: u16) -> String {
    let [a, b, c, d] = host;
    let host = format!("{a}.{b}.{c}.{d}");
    format!(
        "v=0\r\no=x {port} 1 IN IP4 {host}\r\ns=-\r\nc=IN IP4 {host}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"
    )
}

fn sip(start: &str, id: usize, method: &str, body: &str) -> Vec<u8> {
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    let length = body.len();
    let head = format!("{start}\r\nCall-ID: call-{id}@x\r\nCSeq: 1 {method}\r\n{kind}");
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

fn rtp(number: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(u32::from(number) * 160).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 9]);
    bytes.resize(172, 0x55);
    bytes
}

/// Frames of a call: six of signalling, then `packets` of RTP in each direction and two of RTCP; one packet of RTP in
/// ten is left out in the direction to the caller.
fn call(id: usize, packets: u16) -> Vec<Vec<u8>> {
    let base = 4_000 + (id as u16) * 4;
    let (caller, callee) = ((CALLER, 5060), (CALLEE, 5060));
    let invite = "INVITE sip:b@c SIP/2.0";
    let mut frames = vec![
        udp(caller, callee, &sip(invite, id, "INVITE", &sdp(CALLER, base))),
        udp(callee, caller, &sip("SIP/2.0 180 Ringing", id, "INVITE", "")),
        udp(callee, caller, &sip("SIP/2.0 200 OK", id, "INVITE", &sdp(CALLEE, base + 20_000))),
        udp(caller, callee, &sip("ACK sip:b@c SIP/2.0", id, "ACK", "")),
    ];
    let (near, far) = ((CALLER, base), (CALLEE, base + 20_000));
    for number in 0..packets {
        frames.push(udp(near, far, &rtp(number)));
        if number % 10 != 5 {
            frames.push(udp(far, near, &rtp(number)));
        }
    }
    let report = [0x81, 201, 0, 1, 0, 0, 0, 9];
    frames.push(udp((CALLER, base + 1), (CALLEE, base + 20_001), &report));
    frames.push(udp((CALLEE, base + 20_001), (CALLER, base + 1), &report));
    frames.push(udp(caller, callee, &sip("BYE sip:b@c SIP/2.0", id, "BYE", "")));
    frames.push(udp(callee, caller, &sip("SIP/2.0 200 OK", id, "BYE", "")));
    frames
}

/// Number of frames of [`call`].
fn size(packets: usize) -> usize {
    6 + 2 * packets - (packets + 4) / 10 + 2
}

/// Frames that belong to no call.
fn noise() -> Vec<Vec<u8>> {
    vec![
        udp((CALLER, 4_000), (CALLEE, 53), b"question"),
        udp(([10, 0, 0, 3], 9), ([10, 0, 0, 4], 4_000), &rtp(1)),
        Packet::ethernet().ipv4(CALLER, CALLEE).tcp(4_000, 443).flags(16).payload(b"tls").build(),
        udp((CALLER, 4_100), (CALLEE, 24_100), &rtp(2)),
    ]
}

/// Takes one frame of each list in turn.
fn interleave(lists: Vec<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    let most = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..most).flat_map(|at| lists.iter().filter_map(move |list| list.get(at).cloned())).collect()
}

fn fyke(args: &[&str]) -> Output {
    Command::new(FYKE).args(args).output().unwrap()
}

fn track(folder: &Path, frames: &[Vec<u8>], args: &[&str]) -> Output {
    std::fs::write(folder.join("in.pcap"), pcap::file(1, frames)).unwrap();
    let output = Command::new(FYKE)
        .args(["track", "-Z", "root"])
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

fn count(path: &Path) -> usize {
    let output = fyke(&["dump", "--count", "-r", path.to_str().unwrap()]);
    text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn the_media_of_a_call_is_captured_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let frames = interleave(vec![call(1, 50), noise(), noise()]);
    for options in [&[][..], &["--scoped"]] {
        let args = [&["sip", "-r", "in.pcap", "-w", "out.pcapng"], options].concat();
        let output = track(folder.path(), &frames, &args);
        let kept = count(&folder.path().join("out.pcapng"));
        assert_eq!(kept, size(50), "{options:?}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains("4 data connections announced, 4 closed"), "{said}");
    }
}

/// A datagram in fragments of 600 bytes.
fn fragments(six: bool, id: u16, ports: [u16; 2], payload: &[u8]) -> Vec<Vec<u8>> {
    let whole = Packet::ethernet().ipv4(CALLER, CALLEE).udp(ports[0], ports[1]).payload(payload);
    let datagram = whole.build()[34..].to_vec();
    let count = datagram.chunks(600).count();
    let parts = datagram.chunks(600).enumerate().map(|(at, part)| {
        let (offset, more) = (at as u16 * 600, at + 1 < count);
        let ip = match six {
            true => {
                Packet::ethernet().ipv6([0x20; 16], [0x21; 16]).fragment6(id.into(), offset, more)
            }
            false => Packet::ethernet().ipv4(CALLER, CALLEE).fragment(id, offset, more),
        };
        ip.ip_payload(17, part).build()
    });
    parts.collect()
}

/// An INVITE with its description in the last fragment, media in fragments, and fragments of others.
#[test]
fn messages_in_fragments_announce_their_media() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("calls")).unwrap();
    for six in [false, true] {
        let long = format!("X: {}\r\nCSeq", "y".repeat(1_500));
        let invite = sip("INVITE sip:b@c SIP/2.0", 1, "INVITE", &sdp(CALLER, 4_000));
        let invite = text(&invite).replace("CSeq", &long);
        let invite = invite.replace("Call-ID", "From: <sip:a@b>;tag=1\r\nCall-ID");
        let mut frames = fragments(six, 1, [5060, 5060], invite.as_bytes());
        let signalling = frames.len();
        assert!(signalling > 2);
        frames.extend(fragments(six, 2, [2049, 2049], &[7; 2_000]));
        frames.push(udp((CALLEE, 24_000), (CALLER, 4_000), &rtp(1)));
        frames.push(udp((CALLEE, 24_000), (CALLER, 4_000), &rtp(2)));
        for options in [&[][..], &["--scoped"]] {
            let args = [&["sip", "-r", "in.pcap", "-w", "out.pcapng", "--stats"], options].concat();
            let said = text(&track(folder.path(), &frames, &args).stderr);
            let kept = count(&folder.path().join("out.pcapng"));
            assert_eq!(kept, signalling + 2, "IPv6: {six}, {options:?}: {said}");
            assert!(said.contains("2 data connections announced"), "{said}");
        }
        track(folder.path(), &frames, &["sip", "-r", "in.pcap", "-w", "calls/{call}.pcapng"]);
        assert_eq!(count(&folder.path().join("calls/1.pcapng")), signalling + 2, "IPv6: {six}");
    }
}

/// The first frame after the end of a call is judged without the call.
#[test]
fn no_frame_after_the_end_of_a_call_is_captured() {
    let folder = tempfile::tempdir().unwrap();
    let late = [2, 40].map(|second| (second, udp((CALLEE, 24_004), (CALLER, 4_004), &rtp(9))));
    let frames: Vec<_> = call(1, 10).into_iter().map(|frame| (0, frame)).chain(late).collect();
    let said = track_at(folder.path(), &frames);
    assert_eq!(count(&folder.path().join("out.pcapng")), size(10), "{said}");
    // Each frame announces ends and is the first after the end of others.
    let invite = |id| sip("INVITE sip:b@c SIP/2.0", id, "INVITE", &sdp(CALLER, 4_000));
    let frame = |id| (id as u64 * 201, udp((CALLER, 5060), (CALLEE, 5060), &invite(id)));
    let said = track_at(folder.path(), &(1..=9).map(frame).collect::<Vec<_>>());
    assert!(said.contains("9 seen = 9 accepted"), "{said}");
    assert!(said.contains("18 data connections announced, 18 closed"), "{said}");
}

/// Tracks SIP in a file of frames at these seconds; returns the messages of the command.
fn track_at(folder: &Path, frames: &[(u64, Vec<u8>)]) -> String {
    let record = |(second, data): &(u64, Vec<u8>)| pcap::Record {
        timestamp_ns: second * 1_000_000_000,
        wire_len: data.len() as u32,
        data: data.clone(),
    };
    let records: Vec<_> = frames.iter().map(record).collect();
    let file = pcap::encode(
        1,
        &records,
        pcap::Layout { nanoseconds: false, big_endian: false, snaplen: 262_144 },
    );
    std::fs::write(folder.join("late.pcap"), file).unwrap();
    text(&track(folder, &[], &["sip", "-r", "late.pcap", "-w", "out.pcapng"]).stderr)
}

#[test]
fn what_is_not_followed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let server = |text: &str, sequence| {
        let packet = Packet::ethernet().ipv4(CALLEE, CALLER).tcp(21, 4_000).flags(16);
        packet.seq_ack(sequence, 1).payload(text.as_bytes()).build()
    };
    let mut frames = vec![server("227 At (10,0,0,2,0,80)\r\n", 1), server("234 TLS\r\n", 25)];
    let many = format!("{}{}", sdp(CALLER, 4_000), "m=audio 5000 RTP/AVP 0\r\n".repeat(20));
    let invite = sip("INVITE sip:b@c SIP/2.0", 1, "INVITE", &many);
    frames.push(udp((CALLER, 5060), (CALLEE, 5060), &invite));
    let said =
        text(&track(folder.path(), &frames, &["ftp,sip", "-r", "in.pcap", "-w", "o"]).stderr);
    for expected in [
        "1 control connections became encrypted",
        "1 announced ends were refused: a port below 1024",
        "5 announced ends were omitted: too many in one message",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn each_call_gets_a_file_and_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("calls")).unwrap();
    let tftp = vec![
        udp((CALLER, 3_000), (CALLEE, 69), b"\0\x01file\0octet\0"),
        udp((CALLEE, 9_000), (CALLER, 3_000), b"\0\x03\0\x01data"),
        udp((CALLER, 3_000), (CALLEE, 9_000), b"\0\x04\0\x01"),
        udp(([10, 0, 0, 7], 9_000), (CALLER, 3_000), b"another host"),
    ];
    let frames = interleave(vec![call(1, 20), call(2, 40), tftp, noise(), call(3, 30)]);
    let files = "calls/{protocol}-{call}.pcapng";
    let args = ["sip,tftp", "-r", "in.pcap", "-w", files, "--summary", "calls.json", "--stats"];
    let output = track(folder.path(), &frames, &args);
    let named = |name: &str| count(&folder.path().join("calls").join(name));
    for (name, expected) in
        [("sip-1", size(20)), ("sip-2", size(40)), ("sip-3", size(30)), ("tftp-1", 3)]
    {
        assert_eq!(named(&format!("{name}.pcapng")), expected, "{name}: {}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_dir(folder.path().join("calls")).unwrap().count(), 4);
    let lines = std::fs::read_to_string(folder.path().join("calls.json")).unwrap();
    assert_eq!(lines.lines().count(), 4, "{lines}");
    for line in lines.lines() {
        let call: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(call["files"], 1, "{line}");
        if call["protocol"] == "tftp" {
            assert_eq!(
                (&call["data_frames"], call["streams"].as_array().unwrap().len()),
                (&2.into(), 0)
            );
            continue;
        }
        assert_eq!(call["signalling_frames"], 6, "{line}");
        let ends: Vec<_> =
            call["ends"].as_array().unwrap().iter().map(|end| &end["label"]).collect();
        assert_eq!(ends, ["RTP audio", "RTCP audio", "RTP audio", "RTCP audio"], "{line}");
        let streams = call["streams"].as_array().unwrap();
        let lost: Vec<_> = streams.iter().map(|stream| stream["lost"].as_i64().unwrap()).collect();
        let packets = [20, 40, 30][call["call"].as_u64().unwrap() as usize - 1];
        assert_eq!(lost, [0, packets / 10], "{line}");
        assert_eq!(
            (&streams[0]["codec"], &streams[0]["packets"]),
            (&"PCMU".into(), &packets.into())
        );
    }
}

/// A session of RTSP in pieces of ten bytes, with media in both directions.
fn stream() -> Vec<Vec<u8>> {
    let tcp = |from_client: bool, flags: u8, sequence: usize, payload: &[u8]| {
        let (from, to) = if from_client { (CALLER, CALLEE) } else { (CALLEE, CALLER) };
        let (source, destination) = if from_client { (3_333, 554) } else { (554, 3_333) };
        let packet = Packet::ethernet().ipv4(from, to).tcp(source, destination).flags(flags);
        packet.seq_ack(sequence as u32, 1).payload(payload).build()
    };
    let say = |from_client: bool, first: usize, text: &str| -> Vec<Vec<u8>> {
        let parts = text.as_bytes().chunks(10).enumerate();
        parts.map(|(at, part)| tcp(from_client, 16, first + at * 10, part)).collect()
    };
    let setup = "SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;client_port=4588-4589\r\n\r\n";
    let ok = "RTSP/1.0 200 OK\r\nCSeq: 1\r\nTransport: \
              RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257\r\nSession: 7\r\n\r\n";
    let over = "TEARDOWN rtsp://a/b RTSP/1.0\r\nCSeq: 2\r\n\r\n";
    let mut frames = vec![tcp(true, 2, 99, b""), tcp(false, 18, 499, b"")];
    frames.extend(say(true, 100, setup));
    frames.extend(say(false, 500, ok));
    for number in 0..30 {
        frames.push(udp((CALLEE, 6_256), (CALLER, 4_588), &rtp(number)));
    }
    frames.push(udp((CALLER, 4_589), (CALLEE, 6_257), &[0x81, 201, 0, 1, 0, 0, 0, 9]));
    frames.extend(say(true, 100 + setup.len(), over));
    frames
}

/// A control connection is silent for longer than calls last; nothing of its first part is overwritten.
#[test]
fn a_call_that_continues_after_a_long_silence_gets_another_part() {
    let folder = tempfile::tempdir().unwrap();
    let control = |sequence, text: &[u8]| {
        let packet = Packet::ethernet().ipv4(CALLER, CALLEE).tcp(4_000, 21).flags(16);
        packet.seq_ack(sequence, 1).payload(text).build()
    };
    let times = [
        (1, control(1, b"USER a\r\n")),
        (2, control(9, b"NOOP\r\n")),
        (200, control(15, b"QUIT\r\n")),
    ];
    let record = |(second, data): (u64, Vec<u8>)| {
        let wire_len = data.len() as u32;
        pcap::Record { timestamp_ns: second * 1_000_000_000, wire_len, data }
    };
    let file = pcap::encode(
        1,
        &times.map(record),
        pcap::Layout { nanoseconds: false, big_endian: false, snaplen: 262_144 },
    );
    std::fs::write(folder.path().join("in.pcap"), file).unwrap();
    let args = ["-r", "in.pcap", "-w", "{protocol}-{call}.pcapng", "--summary", "calls.json"];
    let mut command = Command::new(FYKE);
    let command = command.args(["track", "ftp", "-Z", "root"]).args(args);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let parts = ["ftp-1.pcapng", "ftp-1-part2.pcapng"].map(|name| count(&folder.path().join(name)));
    assert_eq!(parts, [2, 1]);
    let lines = std::fs::read_to_string(folder.path().join("calls.json")).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

/// Samples of a WAV file.
fn samples(path: &Path) -> Vec<i16> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!((&bytes[..4], &bytes[8..16]), (&b"RIFF"[..], &b"WAVEfmt "[..]));
    assert_eq!(&bytes[20..36], [1, 0, 1, 0, 0x40, 0x1f, 0, 0, 0x80, 0x3e, 0, 0, 2, 0, 16, 0]);
    let length = u32::from_le_bytes(bytes[40..44].try_into().unwrap());
    assert_eq!(bytes.len(), 44 + length as usize);
    bytes[44..].chunks(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}

/// Writes `timed.pcap`: a frame each 10 ms.
fn timed(folder: &Path, frames: &[Vec<u8>]) {
    let record = |(at, frame): (u64, &Vec<u8>)| pcap::Record {
        timestamp_ns: at * 10_000_000,
        wire_len: frame.len() as u32,
        data: frame.clone(),
    };
    let records: Vec<_> = (0..).zip(frames).map(record).collect();
    let file = pcap::encode(
        1,
        &records,
        pcap::Layout { nanoseconds: false, big_endian: false, snaplen: 262_144 },
    );
    std::fs::write(folder.join("timed.pcap"), file).unwrap();
}

#[test]
fn the_audio_of_a_call_is_written_with_silence_for_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = call(1, 30);
    // Packets may arrive in another order.
    frames.swap(6, 20);
    let args = ["sip", "-r", "timed.pcap", "-w", "out.pcapng", "--wav", "{call}.wav"];
    timed(folder.path(), &frames);
    let output = track(folder.path(), &[], &args);
    // Sound is 0x55, which is -716 in the table of the mu-law.
    for (name, missing) in [("1-1.wav", vec![]), ("1-2.wav", vec![5, 15, 25])] {
        let found = samples(&folder.path().join(name));
        // The second stream began 10 ms later.
        assert!([4_800, 4_880].contains(&found.len()), "{name}: {}", found.len());
        let found = &found[found.len() - 30 * 160..];
        for (number, part) in found.chunks(160).enumerate() {
            let expected = if missing.contains(&number) { 0 } else { -716 };
            assert!(part.iter().all(|one| *one == expected), "{name}, {number}: {part:?}");
        }
    }
    assert!(!folder.path().join("1-3.wav").exists(), "{}", text(&output.stderr));
    // Encrypted media are no audio.
    let secret = |frame: Vec<u8>| {
        let at = frame.windows(7).position(|part| part == b"RTP/AVP");
        let mut frame = frame;
        if let Some(at) = at {
            frame.splice(at..at + 9, *b"RTP/SAVP ");
        }
        frame
    };
    let folder = tempfile::tempdir().unwrap();
    let args = [&args[..], &["--summary", "calls.json"]].concat();
    let secret: Vec<_> = frames.into_iter().map(secret).collect();
    timed(folder.path(), &secret);
    track(folder.path(), &[], &args);
    assert!(!folder.path().join("1-1.wav").exists());
    let line = std::fs::read_to_string(folder.path().join("calls.json")).unwrap();
    assert!(line.contains("SRTP audio") && line.contains("\"streams\":[{"), "{line}");
}

/// A call of two gateways at 10.0.0.1 and 10.0.0.2, by an agent at 10.0.0.9.
fn gateways() -> Vec<Vec<u8>> {
    let agent = ([10, 0, 0, 9], 2_727);
    let gateways = [(CALLER, 2_427), (CALLEE, 2_427)];
    let [near, far] = [(CALLER, 4_000), (CALLEE, 24_000)];
    let command = |to: usize, text: &str| udp(agent, gateways[to], text.as_bytes());
    let answer = |from: usize, text: &str| udp(gateways[from], agent, text.as_bytes());
    let body = [sdp(CALLER, 4_000), sdp(CALLEE, 24_000)];
    let mut frames = vec![
        command(0, "CRCX 1 aaln/1@a MGCP 1.0\r\nC: A3\r\nM: recvonly\r\n"),
        answer(0, &format!("200 1 OK\r\nI: 1\r\n\r\n{}", body[0])),
        command(1, &format!("CRCX 2 aaln/1@b MGCP 1.0\r\nC: A3\r\nM: sendrecv\r\n\r\n{}", body[0])),
        answer(1, &format!("200 2 OK\r\nI: 2\r\n\r\n{}", body[1])),
        command(0, &format!("MDCX 3 aaln/1@a MGCP 1.0\r\nC: A3\r\nI: 1\r\n\r\n{}", body[1])),
        answer(0, "200 3 OK\r\n"),
    ];
    for number in 0..10 {
        frames.extend([udp(near, far, &rtp(number)), udp(far, near, &rtp(number))]);
    }
    let both = "DLCX 4 aaln/1@a MGCP 1.0\r\nC: A3\r\n.\r\nRQNT 5 aaln/1@a MGCP 1.0\r\nX: 1\r\n";
    frames.extend([command(0, both), answer(0, "250 4 OK\r\n.\r\n200 5 OK\r\n")]);
    frames.push(command(1, "DLCX 6 aaln/1@b MGCP 1.0\r\nC: A3\r\n"));
    frames.push(answer(1, "250 6 OK\r\n"));
    frames
}

#[test]
fn calls_of_gateways_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = gateways();
    let of_call = frames.len();
    // The call is over, so its ends are: a second later.
    frames.push(udp((CALLEE, 24_000), (CALLER, 4_000), &rtp(11)));
    let other = [&frames[..], &noise()].concat();
    let args = ["mgcp", "-r", "in.pcap", "-w", "{call}.pcapng", "--summary", "calls.json"];
    let output = track(folder.path(), &other, &args);
    assert_eq!(count(&folder.path().join("1.pcapng")), of_call, "{}", text(&output.stderr));
    let lines = std::fs::read_to_string(folder.path().join("calls.json")).unwrap();
    let call: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
    let packets = [&call["streams"][0]["packets"], &call["streams"][1]["packets"]];
    assert_eq!((&call["protocol"], packets), (&"mgcp".into(), [&10.into(), &10.into()]));
    let ends: Vec<_> = call["ends"].as_array().unwrap().iter().map(|end| &end["why"]).collect();
    assert_eq!(ends, [&serde_json::Value::from("MGCP response with SDP"); 4]);
}

/// The frame inside others: `wrap` gets an empty frame and adds headers.
fn inside(frame: &[u8], wrap: impl Fn(Packet) -> Packet) -> Vec<u8> {
    let ip = Packet::ethernet().ipv4([192, 0, 2, 1], [192, 0, 2, 2]);
    wrap(ip).payload(frame).build()
}

/// A call with the same addresses, with tags and in tunnels.
#[test]
fn calls_with_tags_and_in_tunnels_are_followed() {
    let plain = call(1, 20);
    type Wrap = fn(&[u8]) -> Vec<u8>;
    let wraps: [(&str, bool, Wrap); 7] = [
        ("VLAN", false, |frame| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()),
        ("QinQ", false, |frame| {
            [&frame[..12], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7], &frame[12..]].concat()
        }),
        ("MPLS", false, |frame| {
            [&frame[..12], &[0x88, 0x47, 0, 1, 0x01, 64], &frame[14..]].concat()
        }),
        ("VLAN, scoped", true, |frame| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()),
        ("VXLAN", true, |frame| inside(frame, |ip| ip.vxlan(5))),
        ("GTP-U", true, |frame| inside(&frame[14..], |ip| ip.gtpu(5))),
        ("IP in IP", true, |frame| {
            Packet::ethernet()
                .ipv4([192, 0, 2, 1], [192, 0, 2, 2])
                .ip_payload(4, &frame[14..])
                .build()
        }),
    ];
    for (name, scoped, wrap) in wraps {
        let folder = tempfile::tempdir().unwrap();
        let frames: Vec<_> = plain.iter().chain(&noise()).map(|frame| wrap(frame)).collect();
        let scoped: &[&str] = if scoped { &["--scoped"] } else { &[] };
        for file in ["out.pcapng", "{call}.pcapng"] {
            let args = [&["sip", "-r", "in.pcap", "-w", file][..], scoped].concat();
            let output = track(folder.path(), &frames, &args);
            let kept = count(&folder.path().join(file.replace("{call}", "1")));
            assert_eq!(kept, size(20), "{name}, {file}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn streams_of_rtsp_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let frames = stream();
    let other = [&frames[..], &noise()].concat();
    let args = ["rtsp", "-r", "in.pcap", "-w", "out.pcapng", "--summary", "calls.json"];
    let output = track(folder.path(), &other, &args);
    let kept = count(&folder.path().join("out.pcapng"));
    assert_eq!(kept, frames.len(), "{}", text(&output.stderr));
    let line = std::fs::read_to_string(folder.path().join("calls.json")).unwrap();
    let call: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
    assert_eq!((&call["data_frames"], &call["streams"][0]["packets"]), (&31.into(), &30.into()));
}

/// Addresses are translated: the description names a private address, the media come from a public one.
#[test]
fn translated_media_are_of_the_call_and_strangers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (public, stranger) = ([192, 0, 2, 7], [192, 0, 2, 8]);
    let mut frames = call(1, 0);
    let end = frames.split_off(4);
    frames.push(udp((public, 7_777), (CALLEE, 24_004), &rtp(1)));
    frames.push(udp((CALLEE, 24_004), (public, 7_777), &rtp(1)));
    frames.push(udp((stranger, 9), (CALLEE, 24_004), &rtp(1)));
    frames.extend(end);
    track(folder.path(), &frames, &["sip", "-r", "in.pcap", "-w", "{call}.pcap"]);
    assert_eq!(count(&folder.path().join("1.pcap")), size(0) + 2);
    track(folder.path(), &frames, &["sip", "-r", "in.pcap", "-w", "all.pcap"]);
    assert_eq!(count(&folder.path().join("all.pcap")), size(0) + 3);
}

#[test]
fn wrong_requests_are_refused() {
    let refused = |args: &[&str], problem: &str| {
        let output = fyke(&[&["track"], args, &["-r", "in.pcap"]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(problem), "{args:?}: {said}");
    };
    refused(&["sip,rtsp", "--port", "5080", "-w", "o.pcap"], "for one protocol");
    refused(&["sip,sip", "-w", "o.pcap"], "given twice");
    refused(&["sip,gopher", "-w", "o.pcap"], "gopher");
    refused(&["sip,rtsp", "-w", "{call}.pcap"], "{protocol}");
    refused(&["sip", "-w", "{id}.pcap"], "{id}");
    refused(&["sip", "-w", "{call}/a.pcap"], "after the last");
    refused(&["sip", "-w", "o.pcap", "--wav", "a.wav"], "{call}");
}

#[test]
fn many_calls_share_few_open_files_and_limits_count() {
    let folder = tempfile::tempdir().unwrap();
    let frames = interleave((1..=6).map(|id| call(id, 4)).collect());
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
    let run = |limits: &str| {
        let graph = format!(
            "(pcapin, in.pcap) > (filter, expression=\"udp\") > {{c}}(calls, expression=sip, \
             files=\"{{call}}.pcapng\", {limits}, export=y)"
        );
        let mut command = Command::new(FYKE);
        let output = command
            .args(["run", "-Z", "root", &graph])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr) + &text(&output.stdout)
    };
    run("open=2");
    let each = |from: usize| -> usize {
        let names = std::fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().path());
        let of_call = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            name == format!("{from}.pcapng") || name.starts_with(&format!("{from}-part"))
        };
        names.filter(of_call).map(|path| count(&path)).sum()
    };
    assert!((1..=6).all(|id| each(id) == size(4)), "parts hold all frames");
    assert!(folder.path().join("1-part2.pcapng").exists());
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "pcapng") {
            std::fs::remove_file(path).unwrap();
        }
    }
    run("most=2");
    let left: Vec<_> = (1..=6).map(each).collect();
    assert_eq!(left.iter().filter(|&&frames| frames == size(4)).count(), 2, "{left:?}");
    assert_eq!(left.iter().sum::<usize>(), 2 * size(4));
}

/// Replays calls while both ends are tracked.
const SCRIPT: &str = r#"
    set -eu
    veth
    mkdir -p near.d
    chmod 777 near.d
    ids=""
    "$FYKE" track sip -i near -w 'near.d/{protocol}-{call}.pcapng' --summary near.json 2> near.log &
    ids="$ids $!"
    "$FYKE" track sip -i far -w far.pcapng --stats 2> far.log &
    ids="$ids $!"
    for id in $ids; do wait_for "$FYKE" ctl --pid $id show; done
    "$FYKE" run --no-control '(pcapin,open.pcap) > (tointerface,near)' 2> open.log
    sleep 0.5
    "$FYKE" ctl --pid $id show --full > show.txt
    "$FYKE" run --no-control '(pcapin,in.pcap) > (tointerface,near)' 2> in.log
    sleep 1.5
    kill -INT $ids
    wait
"#;

#[test]
fn live_calls_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let calls = 20;
    let mut lists: Vec<_> = (1..=calls).map(|id| call(id, 50)).collect();
    // The first call is open when the others begin.
    let open: Vec<_> = lists[0].drain(..20).collect();
    for (name, frames) in [("open.pcap", open), ("in.pcap", interleave(lists))] {
        std::fs::write(folder.path().join(name), pcap::file(1, &frames)).unwrap();
    }
    let Some(output) = Script::new(FYKE, folder.path()).run(SCRIPT) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = text(&output.stderr) + &read("near.log") + &read("far.log");
    assert_eq!(count(&folder.path().join("far.pcapng")), calls * size(50), "{said}");
    let files: Vec<_> = std::fs::read_dir(folder.path().join("near.d")).unwrap().collect();
    assert_eq!(files.len(), calls, "{said}");
    for file in files {
        let path = file.unwrap().path();
        assert_eq!(count(&path), size(50), "{}: {said}", path.display());
    }
    assert_eq!(read("near.json").lines().count(), calls, "{said}");
    let show = read("show.txt");
    for (port, label, cause) in [
        ("10.0.0.1 udp port 4004", "RTP audio", "SIP request with SDP"),
        ("10.0.0.2 udp port 24005", "RTCP audio", "SIP response with SDP"),
    ] {
        let is_row = |line: &str| {
            line.trim_start().starts_with("expected")
                && [port, label, cause, "sip call 1:"].iter().all(|part| line.contains(part))
        };
        assert!(show.lines().any(is_row), "{show}");
    }
}

/// Frames of a call with media that comes directly after the INVITE, before its description may have been read.
fn early(id: usize) -> Vec<Vec<u8>> {
    let mut frames = call(id, 8);
    let base = 4_000 + (id as u16) * 4;
    frames.insert(1, udp((CALLEE, base + 20_000), (CALLER, base), &rtp(100)));
    frames
}

/// Sends calls as fast as the machine does, then media of calls that are over, then calls again, with a signal directly
/// after them.
const BURST: &str = r#"
    set -eu
    veth
    "$FYKE" track sip -i far -w far.pcapng --stats 2> far.log &
    id=$!
    wait_for "$FYKE" ctl --pid $id show
    send calls.pcap
    none() {
        "$FYKE" ctl --pid $id stats | grep -q " $1 seen" || return 1
        ! "$FYKE" ctl --pid $id show --full | grep -q expected
    }
    wait_for none $CALLS
    send late.pcap
    send more.pcap
    kill -INT $id
    wait $id
"#;

#[test]
fn a_burst_of_calls_is_captured_whole_until_the_signal_and_nothing_after_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, frames: &[Vec<u8>]| {
        std::fs::write(folder.path().join(name), pcap::file(1, frames)).unwrap();
    };
    let (first, more) = (400, 100);
    let calls = interleave((1..=first).map(early).collect());
    write("calls.pcap", &calls);
    let late = |id: usize| {
        let base = 4_000 + (id as u16) * 4;
        udp((CALLEE, base + 20_000), (CALLER, base), &rtp(200))
    };
    // Port 5060 of one of them is that of signalling, which is always captured.
    let without_signalling = (1..=first).filter(|id| 4_000 + id * 4 != 5_060);
    write("late.pcap", &without_signalling.map(late).collect::<Vec<_>>());
    write("more.pcap", &interleave((first + 1..=first + more).map(early).collect()));
    let script = Script::new(FYKE, folder.path()).env("CALLS", calls.len().to_string());
    let Some(output) = script.run(BURST) else { return };
    let log = std::fs::read_to_string(folder.path().join("far.log")).unwrap_or_default();
    let said = text(&output.stderr) + &log;
    assert!(output.status.success(), "{said}");
    let kept = count(&folder.path().join("far.pcapng"));
    assert_eq!(kept, (first + more) * (size(8) + 1), "{said}");
    assert!(log.contains(" 0 lost") || !log.contains(" lost"), "{log}");
}
