//! The H.323 tracker on calls that are encoded by hand; tshark reads the same frames.

#[path = "samples/mod.rs"]
mod samples;

use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use fyke_testkit::random::Random;
use fyke_track::{Event, H323, Reason, Tracker};
use samples::h323::{self as encode, Content, Data, Kind};
use samples::{By, Sent, at, build, media, says};
use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::Command;

/// Ends of a call.
#[derive(Debug, Clone, Copy)]
struct Call {
    caller: SocketAddr,
    callee: SocketAddr,
    near: SocketAddr,
    far: SocketAddr,
    /// The end at which the callee listens for H.245.
    control: SocketAddr,
}

impl Call {
    fn four() -> Call {
        Call {
            caller: at(samples::A, 4_000),
            callee: at(samples::B, 1_720),
            near: at(samples::A, 5_000),
            far: at([10, 0, 0, 4], 6_000),
            control: at(samples::B, 30_000),
        }
    }

    fn six() -> Call {
        let six = |end: SocketAddr, host: u16| {
            SocketAddr::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into(), end.port())
        };
        let Call { caller, callee, near, far, control } = Call::four();
        Call {
            caller: six(caller, 1),
            callee: six(callee, 2),
            near: six(near, 1),
            far: six(far, 4),
            control: six(control, 2),
        }
    }

    fn caller_sends(&self, kind: Kind, content: &Content) -> Sent {
        says(By::Tcp, self.caller, self.callee, &encode::signalling(kind, 7, content))
    }

    fn callee_sends(&self, kind: Kind, content: &Content) -> Sent {
        says(By::Tcp, self.callee, self.caller, &encode::signalling(kind, 0x8007, content))
    }

    /// Messages of H.245 that open a channel in each direction.
    fn channels(&self, data: Data) -> [(bool, Vec<u8>); 4] {
        let (near, far) = (self.near, self.far);
        [
            (true, encode::request(1, data, above(near))),
            (false, encode::acknowledgement(1, far, above(far))),
            (false, encode::request(1, data, above(far))),
            (true, encode::acknowledgement(1, near, above(near))),
        ]
    }
}

fn above(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip(), end.port() + 1)
}

/// A call with fast start.
fn fast_start(call: Call, kind: Kind) -> Vec<Sent> {
    let Call { near, far, .. } = call;
    let offer = [
        encode::open(1, Data::Audio, false, None, Some(above(near))),
        encode::open(2, Data::Audio, true, Some(near), Some(above(near))),
    ];
    let answer = [
        encode::open(1, Data::Audio, false, Some(far), Some(above(far))),
        encode::open(2, Data::Audio, true, Some(near), Some(above(far))),
    ];
    let content =
        |elements: [Vec<u8>; 2]| Content { fast_start: elements.to_vec(), ..Content::default() };
    let mut sent = vec![
        call.caller_sends(Kind::Setup, &content(offer)),
        call.callee_sends(kind, &content(answer)),
    ];
    sent.extend(media(near, far));
    sent
}

/// A call with H.245 in a connection of its own, in pieces.
fn separate(call: Call, kind: Kind, data: Data) -> Vec<Sent> {
    let content = Content { control: Some(call.control), ..Content::default() };
    let mut sent = vec![
        call.caller_sends(Kind::Setup, &Content::default()),
        call.callee_sends(kind, &content),
    ];
    let client = SocketAddr::new(call.caller.ip(), 4_001);
    for (is_caller, bytes) in call.channels(data) {
        let (from, to) = if is_caller { (client, call.control) } else { (call.control, client) };
        let bytes = encode::tpkt(&bytes);
        let (head, tail) = bytes.split_at(7);
        sent.extend(
            [head, tail].map(|piece| Sent { is_data: true, ..says(By::Tcp, from, to, piece) }),
        );
    }
    sent.extend(media(call.near, call.far));
    sent
}

/// A call with H.245 tunnelled in its signalling.
fn tunnelled(call: Call, data: Data) -> Vec<Sent> {
    let mut sent = vec![call.caller_sends(Kind::Setup, &Content::default())];
    for (is_caller, bytes) in call.channels(data) {
        let content = Content { tunnelled: vec![bytes], ..Content::default() };
        sent.push(match is_caller {
            true => call.caller_sends(Kind::Facility, &content),
            false => call.callee_sends(Kind::Connect, &content),
        });
    }
    sent.extend(media(call.near, call.far));
    sent
}

/// Runs frames, one each millisecond; returns the numbers of those that are data, and the events.
fn run(tracker: &mut H323, frames: &[Vec<u8>], from_ms: u64) -> (BTreeSet<usize>, Vec<Event>) {
    let (mut found, mut events) = (BTreeSet::new(), Vec::new());
    for (index, bytes) in frames.iter().enumerate() {
        let timestamp_ns = (from_ms + index as u64) * 1_000_000;
        let frame = Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, bytes) };
        tracker.frame(&frame, &mut events);
        if tracker.call().is_some_and(|part| part.label.is_some()) {
            found.insert(index + 1);
        }
    }
    (found, events)
}

/// The numbers of the frames with RTP or RTCP that tshark attributes to a session, and its text for
/// those of TCP.
fn tshark(frames: &[Vec<u8>]) -> Option<(BTreeSet<usize>, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("call.pcap");
    std::fs::write(&path, pcap::file(1, frames)).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&path).args(args);
        let output = command.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let filter = "rtp.setup-frame or rtcp.setup-frame or t38.setup-frame";
    let Some(numbers) = run(&["-Y", filter, "-T", "fields", "-e", "frame.number"]) else {
        eprintln!("tshark is not installed: the frames are not compared with it");
        return None;
    };
    let text = run(&["-Y", "tcp", "-V"])?;
    Some((numbers.lines().map(|line| line.parse().unwrap()).collect(), text))
}

fn data_of(sent: &[Sent]) -> BTreeSet<usize> {
    (1..=sent.len()).filter(|number| sent[number - 1].is_data).collect()
}

#[test]
fn media_of_calls_in_every_form_is_found_as_tshark_finds_it() {
    for call in [Call::four(), Call::six()] {
        let mut forms: Vec<(String, Vec<Sent>)> = Vec::new();
        for kind in [Kind::CallProceeding, Kind::Alerting, Kind::Connect, Kind::Facility] {
            forms.push((format!("fast start, {kind:?}"), fast_start(call, kind)));
            forms.push((format!("H.245, {kind:?}"), separate(call, kind, Data::Audio)));
        }
        for data in [Data::Audio, Data::Video, Data::OldVideo, Data::Fax] {
            forms.push((format!("H.245, {data:?}"), separate(call, Kind::Connect, data)));
            forms.push((format!("tunnelled, {data:?}"), tunnelled(call, data)));
        }
        for (name, sent) in forms {
            let name = format!("{name}, {}", call.near);
            let frames = build(&sent, &Packet::ethernet);
            let mut tracker = H323::default();
            let (found, _) = run(&mut tracker, &frames, 0);
            let notices: Vec<_> =
                tracker.notices().into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(found, data_of(&sent), "{name}: {notices:?}");
            assert_eq!(notices, [], "{name}");
            let Some((theirs, text)) = tshark(&frames) else { continue };
            assert!(!text.contains("Malformed"), "{name}: {text}");
            for end in [call.near, call.far] {
                let shows = |what: &str| text.contains(&what.replace('#', &end.port().to_string()));
                assert!(shows("tsapIdentifier: #"), "{name} {end}: {text}");
            }
            let media: BTreeSet<_> =
                (1..=sent.len()).filter(|at| sent[at - 1].by == By::Udp).collect();
            let missing: Vec<_> = theirs.difference(&found).collect();
            assert_eq!(missing, Vec::<&usize>::new(), "{name}: frames of tshark that are not ours");
            if !name.contains("Fax") {
                assert_eq!(theirs, media, "{name}: {text}");
            }
        }
    }
}

#[test]
fn a_setup_at_any_port_is_followed_and_its_connection_is_expected() {
    let mut call = Call::four();
    call.callee = at(samples::B, 11_720);
    let sent = separate(call, Kind::Connect, Data::Audio);
    let frames = build(&sent, &Packet::ethernet);
    let (mut tracker, mut all) = (H323::default(), data_of(&sent));
    let (found, events) = run(&mut tracker, &frames, 0);
    // The second frame is at the expected end of signalling.
    all.remove(&2);
    let mut others = found.clone();
    others.remove(&2);
    assert_eq!(others, all);
    let Event::Open(first) = events[0] else { panic!("{events:?}") };
    assert_eq!((first.label, first.port), ("H.225 signalling", 11_720));
    assert_eq!(first.only_host(), Some(call.caller.ip()));
    // Bytes that only look like it announce nothing.
    let other =
        says(By::Tcp, at(samples::A, 1), at(samples::B, 9_999), &[3, 0, 0, 9, 2, 0xf0, 0x80]);
    let (found, events) = run(&mut H323::default(), &build(&[other], &Packet::ethernet), 0);
    assert_eq!((found.len(), events.len()), (0, 0));
}

/// The number of expectations after some seconds.
fn left(tracker: &mut H323, seconds: u64, events: &mut Vec<Event>) -> usize {
    tracker.expire(seconds * 1_000_000_000, events);
    tracker.expected().len()
}

#[test]
fn closed_channels_ended_sessions_and_released_calls_end() {
    let call = Call::four();
    let begin = |more: Vec<Sent>| {
        let sent = [tunnelled(call, Data::Audio), more].concat();
        let mut tracker = H323::default();
        let (_, events) = run(&mut tracker, &build(&sent, &Packet::ethernet), 0);
        (tracker, events)
    };
    let (mut tracker, mut events) = begin(vec![]);
    assert_eq!((left(&mut tracker, 60, &mut events), events.len()), (4, 4));
    let tunnel = |bytes| Content { tunnelled: vec![bytes], ..Content::default() };
    // The channel of the caller: the callee's media and control ends, and the caller's control end, which the other
    // channel has announced again.
    let close = call.caller_sends(Kind::Facility, &tunnel(encode::close(1)));
    let (mut tracker, mut events) = begin(vec![close]);
    assert_eq!(left(&mut tracker, 4, &mut events), 4);
    let left_over = left(&mut tracker, 60, &mut events);
    assert!((2..4).contains(&left_over), "{events:?}");
    let end = call.callee_sends(Kind::Facility, &tunnel(encode::end_session()));
    let (mut tracker, mut events) = begin(vec![end]);
    assert_eq!(left(&mut tracker, 4, &mut events), 4);
    assert_eq!(left(&mut tracker, 6, &mut events), 0);
    let release = call.callee_sends(Kind::ReleaseComplete, &Content::default());
    let (mut tracker, mut events) = begin(vec![release]);
    assert_eq!(left(&mut tracker, 1, &mut events), 0);
    let is_finished =
        |event: &&Event| matches!(event, Event::Close(closed) if closed.reason == Reason::Finished);
    // The report arrived at one of the two control ends.
    assert_eq!(events.iter().filter(is_finished).count(), 3);
}

#[test]
fn calls_of_one_connection_are_apart() {
    let call = Call::four();
    let mut second = fast_start(
        Call { near: at(samples::A, 7_000), far: at(samples::B, 8_000), ..call },
        Kind::Connect,
    );
    // Another call reference, at its place in the TPKT.
    second[..2].iter_mut().for_each(|one| one.payload[7] = 8);
    let release = call.caller_sends(Kind::ReleaseComplete, &Content::default());
    let sent = [fast_start(call, Kind::Connect), second, vec![release]].concat();
    let mut tracker = H323::default();
    let (_, mut events) = run(&mut tracker, &build(&sent, &Packet::ethernet), 0);
    assert_eq!(left(&mut tracker, 1, &mut events), 4, "the second call");
    assert!(tracker.expected().iter().all(|one| one.connection.port >= 7_000));
}

/// Damaged messages: no panic, counted if they announce nothing, and never an address that was not sent.
#[test]
fn damaged_messages_are_refused_and_invent_no_end() {
    let call = Call::four();
    let (mut random, seed) = Random::seeded(323);
    println!("seed {seed}");
    let forms = [
        fast_start(call, Kind::Connect),
        separate(call, Kind::Facility, Data::Video),
        tunnelled(call, Data::Fax),
        separate(Call::six(), Kind::Alerting, Data::Audio),
    ];
    let (mut opened, mut refused) = (0, 0);
    for round in 0..2_000 {
        let mut sent = random.pick(&[0, 1, 2, 3]).min(3);
        let mut packets = forms[sent].clone();
        sent = random.below(packets.len());
        let payload = &mut packets[sent].payload;
        let at = random.below(payload.len());
        let is_whole = matches!(payload[..], [3, 0, high, low, ..]
            if usize::from(u16::from_be_bytes([high, low])) == payload.len());
        let flips = round % 2 == 0 || !is_whole;
        match flips {
            true => payload[at] ^= 1 << random.below(8),
            // The length of the TPKT stays true, so that what is left is read.
            false => {
                payload.truncate(at.max(1));
                let length = (payload.len() as u16).to_be_bytes();
                if payload.len() > 4 && payload[0] == 3 {
                    payload[2..4].copy_from_slice(&length);
                }
            }
        }
        let mut tracker = H323::default();
        let (_, mut events) = run(&mut tracker, &build(&packets, &Packet::ethernet), 0);
        refused += tracker.notices().iter().map(|(_, count)| count).sum::<u64>();
        tracker.expire(u64::MAX, &mut events);
        assert!(tracker.expected().is_empty());
        let known =
            [Call::four(), Call::six()].map(|one| [one.caller, one.callee, one.near, one.far]);
        for event in &events {
            let Event::Open(connection) = event else { continue };
            opened += 1;
            let is_known = known.iter().flatten().any(|end| end.ip() == connection.server);
            assert!(flips || is_known, "{connection:?}");
        }
    }
    assert!(opened > 2_000 && refused > 100, "{opened} opened, {refused} refused");
}
