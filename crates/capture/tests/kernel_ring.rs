//! Live capture, in the tests' own network namespaces: order, tags, cooked headers, look-back, accounting, errors.

mod common;

use common::network::{inside, inside_with, ip, veth};
use common::{Owned, have_tcpdump};
use fyke_capture::{
    Interface, InterfaceSink, LinkState, Next, ReadError, RingOptions, RingSource, Sink, Source,
    SourceStats,
};
use fyke_frame::{Direction, Frame, LinkType};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn open(interface: &str, change: impl FnOnce(&mut RingOptions)) -> RingSource {
    let mut options =
        RingOptions { interface: Some(interface.to_owned()), timeout_ms: 50, ..Default::default() };
    change(&mut options);
    RingSource::open(options).expect("the interface is there")
}

/// Sends frames that have their number after 14 bytes of Ethernet header.
fn send(interface: &str, numbers: std::ops::Range<u32>, len: usize) {
    let mut sink = InterfaceSink::open(interface).expect("an interface to send on");
    for number in numbers {
        write(&mut sink, &numbered(number, len));
    }
}

fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[0..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &Frame<'_>) -> u32 {
    u32::from_be_bytes(frame.data[14..18].try_into().expect("four bytes"))
}

fn write(sink: &mut InterfaceSink, data: &[u8]) {
    let interface = Interface::new("", LinkType::EN10MB);
    sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).expect("sent");
}

/// Calls `each` with every frame until no frame arrives for a while.
fn drain(source: &mut RingSource, mut each: impl FnMut(&Frame<'_>)) -> SourceStats {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < end, "the source does not come to rest");
        match source.next().expect("a source that works") {
            Next::Frames(batch, _) => batch.frames().iter().for_each(&mut each),
            Next::Idle => return source.stats(),
            Next::End => panic!("a live source does not end"),
        }
    }
}

fn balanced(stats: SourceStats) {
    assert_eq!(stats.received, stats.delivered + stats.dropped + stats.ignored, "{stats:?}");
}

#[test]
fn every_frame_once_and_in_order() {
    if !inside("every_frame_once_and_in_order") {
        return;
    }
    veth();
    let mut source = open("v1", |_| {});
    let sender = std::thread::spawn(|| send("v0", 0..20_000, 60));
    let (mut next, mut last_ns) = (0, 0);
    let mut stats = SourceStats::default();
    while next < 20_000 {
        stats = drain(&mut source, |frame| {
            assert_eq!(number(frame), next);
            assert_eq!(frame.data, numbered(next, 60));
            assert_eq!((frame.wire_len, frame.link), (60, LinkType::EN10MB));
            assert_eq!(frame.meta.direction, Direction::OtherHost);
            assert_ne!(frame.meta.ifindex, 0);
            assert!(frame.timestamp_ns >= last_ns, "time continues");
            last_ns = frame.timestamp_ns;
            next += 1;
        });
    }
    sender.join().expect("the sender");
    balanced(stats);
    assert_eq!((stats.received, stats.dropped), (20_000, 0));
}

#[test]
fn loopback_shows_every_packet_once() {
    if !inside("loopback_shows_every_packet_once") {
        return;
    }
    ip("link set lo up");
    for (interface, header, link) in
        [("lo", 14, LinkType::EN10MB), ("any", 20, LinkType::LINUX_SLL2)]
    {
        let mut source = open(interface, |_| {});
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("its address");
        for number in 0..500u32 {
            socket.send_to(&number.to_be_bytes(), to).expect("sent");
        }
        let mut next = 0u32;
        let stats = drain(&mut source, |frame| {
            assert_eq!(frame.link, link);
            assert_eq!(frame.data[header], 0x45, "IPv4 follows the link header");
            assert_eq!(frame.data[header + 28..], next.to_be_bytes(), "the payload");
            assert_eq!(frame.wire_len as usize, frame.data.len());
            assert_eq!(frame.meta.direction, Direction::Inbound);
            next += 1;
        });
        assert_eq!(next, 500, "{interface}");
        balanced(stats);
    }
}

/// A tagged frame as it was sent.
fn tagged(tags: &[(u16, u16)]) -> Vec<u8> {
    let plain = numbered(7, 60);
    let mut frame = plain[..12].to_vec();
    for (tpid, tci) in tags {
        frame.extend_from_slice(&tpid.to_be_bytes());
        frame.extend_from_slice(&tci.to_be_bytes());
    }
    frame.extend_from_slice(&plain[12..]);
    frame
}

#[test]
fn tags_are_put_back() {
    if !inside("tags_are_put_back") {
        return;
    }
    veth();
    ip("link set lo up");
    let mut one = open("v1", |_| {});
    let mut any = open("any", |_| {});
    let sent = [
        tagged(&[]),
        tagged(&[(0x8100, 5)]),
        tagged(&[(0x8100, 0)]),
        tagged(&[(0x88a8, 0x6abc)]),
        tagged(&[(0x88a8, 7), (0x8100, 8)]),
    ];
    let mut sink = InterfaceSink::open("v0").expect("an interface to send on");
    for frame in &sent {
        write(&mut sink, frame);
    }
    let mut seen = Vec::new();
    balanced(drain(&mut one, |frame| {
        assert_eq!(frame.wire_len as usize, frame.data.len());
        seen.push(frame.data.to_vec());
    }));
    assert_eq!(seen, sent);

    // Cooked: protocol, two unused bytes, interface … then the bytes after the first protocol of the Ethernet header.
    let mut seen = Vec::new();
    balanced(drain(&mut any, |frame| {
        if frame.meta.direction == Direction::OtherHost {
            assert_eq!(frame.wire_len as usize, frame.data.len());
            assert_eq!(frame.data[4..8], frame.meta.ifindex.to_be_bytes());
            assert_eq!(frame.data[12..18], [2, 0, 0, 0, 0, 2], "who sent it");
            seen.push([&frame.data[..2], &frame.data[20..]].concat());
        }
    }));
    // Of two tags, recent kernels report the protocol after both for cooked frames and leave the inner tag's content
    // in the packet; libpcap shows the same. All other bytes are as they were sent.
    let mut expected: Vec<_> = sent.iter().map(|frame| frame[12..].to_vec()).collect();
    let two = expected.last_mut().expect("the frame with two tags");
    if seen.last().is_some_and(|last| last[4..6] == [0x88, 0xb5]) {
        two[4..6].copy_from_slice(&[0x88, 0xb5]);
    }
    assert_eq!(seen, expected);
}

#[test]
fn same_as_tcpdump() {
    if !inside("same_as_tcpdump") || !have_tcpdump() {
        return;
    }
    veth();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tcpdump.pcap");
    let mut tcpdump = Command::new("tcpdump")
        .args(["-i", "v1", "-c", "300", "-Z", "root", "--time-stamp-precision=nano", "-w"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .expect("tcpdump runs");
    let mut source = open("v1", |options| options.snaplen = 1000);
    // tcpdump creates the file after it has begun to capture.
    let end = Instant::now() + Duration::from_secs(10);
    while !file.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    if let Ok(Some(status)) = tcpdump.try_wait() {
        // As root of an ordinary user's namespace it may not change its groups.
        println!("skipped: tcpdump does not start here ({status})");
        return;
    }
    let mut sink = InterfaceSink::open("v0").expect("an interface to send on");
    for index in 0..300u16 {
        let mut frame = tagged(if index % 3 == 0 { &[(0x8100, 9)] } else { &[] });
        frame.resize(64 + usize::from(index) * 4, index as u8);
        write(&mut sink, &frame);
    }
    let mut ours = Vec::new();
    drain(&mut source, |frame| {
        ours.push(Owned {
            data: frame.data.to_vec(),
            wire_len: frame.wire_len,
            timestamp_ns: frame.timestamp_ns,
            link: frame.link.0,
            interface: 0,
        });
    });
    assert!(tcpdump.wait().expect("tcpdump ends").success());
    let mut theirs = common::parse_native(&std::fs::read(&file).expect("what tcpdump wrote"));
    assert_eq!(theirs.len(), 300);
    for frame in &mut theirs {
        frame.data.truncate(1000);
    }
    assert!(ours == theirs, "times, lengths and bytes");
}

/// Blocks of 4 KiB hold about two dozen small frames.
fn small(options: &mut RingOptions) {
    options.block_size = 4096;
    options.block_count = 32;
    options.look_back_blocks = 6;
    options.retire_ms = 10;
}

#[test]
fn look_back_shows_what_was_lent_before() {
    if !inside("look_back_shows_what_was_lent_before") {
        return;
    }
    veth();
    let mut source = open("v1", small);
    let (mut lent, mut longest, mut shown) = (0u64, 0, 0);
    for round in 0..60u32 {
        send("v0", round * 20..round * 20 + 20, 60);
        loop {
            let held = source.held_blocks();
            assert!(held <= 6);
            let Next::Frames(batch, look_back) = source.next().expect("works") else { break };
            assert_eq!(batch.first_sequence, lent);
            let back: Vec<_> = look_back.frames().collect();
            let first = lent - back.len() as u64;
            for (expected, (sequence, frame)) in (first..lent).zip(&back) {
                assert_eq!(*sequence, expected);
                assert_eq!(frame.data, numbered(expected as u32, 60), "the same bytes again");
            }
            for (index, frame) in batch.frames().iter().enumerate() {
                assert_eq!(u64::from(number(frame)), lent + index as u64);
            }
            longest = longest.max(back.len());
            shown += batch.len();
            lent += batch.len() as u64;
        }
    }
    assert_eq!(shown, 1200);
    assert!(longest >= 100, "six blocks of 20 frames or more were held, not {longest}");
    let stats = source.stats();
    balanced(stats);
    assert_eq!(stats.dropped, 0);
}

#[test]
fn look_back_never_costs_frames() {
    if !inside("look_back_never_costs_frames") {
        return;
    }
    veth();
    let mut source = open("v1", |options| {
        small(options);
        options.look_back_blocks = 16;
    });
    // Fills the held half, then sends bursts that need most of the other half at once.
    let (mut seen, mut sent, mut full) = (0, 0, false);
    for burst in [20u32; 40].into_iter().chain([14 * 20; 10]) {
        send("v0", sent..sent + burst, 60);
        sent += burst;
        drain(&mut source, |frame| {
            assert_eq!(number(frame), seen);
            seen += 1;
        });
        full |= source.held_blocks() == 16;
    }
    let stats = source.stats();
    balanced(stats);
    assert_eq!((stats.received, stats.dropped, seen), (u64::from(sent), 0, sent));
    assert!(full, "blocks were held");
}

#[test]
fn short_of_blocks_held_ones_go_back() {
    if !inside("short_of_blocks_held_ones_go_back") {
        return;
    }
    veth();
    let mut source = open("v1", |options| {
        small(options);
        options.look_back_blocks = 16;
    });
    let mut sent = 0;
    while source.held_blocks() < 16 {
        send("v0", sent..sent + 20, 60);
        sent += 20;
        drain(&mut source, |_| {});
    }
    // 16 of 32 are held; 12 full blocks ahead leave 4, fewer than a quarter.
    send("v0", sent..sent + 12 * 24, 60);
    std::thread::sleep(Duration::from_millis(50));
    assert!(matches!(source.next(), Ok(Next::Frames(..))));
    assert!(source.held_blocks() < 16, "{} are held", source.held_blocks());
    let stats = drain(&mut source, |_| {});
    balanced(stats);
    assert_eq!(stats.dropped, 0);
}

#[test]
fn received_is_delivered_and_dropped() {
    if !inside("received_is_delivered_and_dropped") {
        return;
    }
    veth();
    let mut source = open("v1", |options| {
        small(options);
        options.block_count = 4;
        options.look_back_blocks = 2;
    });
    let mut total = 0;
    for round in 0..5u32 {
        send("v0", round * 1000..(round + 1) * 1000, 200);
        total += 1000;
        let (mut last, mut seen) = (None, 0);
        let stats = drain(&mut source, |frame| {
            assert!(last.is_none_or(|last| last < number(frame)), "order is kept over a gap");
            last = Some(number(frame));
            seen += 1;
        });
        assert!(seen > 0, "the ring works again after it was full");
        balanced(stats);
        assert_eq!(stats.received, total);
        assert!(stats.dropped > 0 && stats.freezes > 0, "{stats:?}");
    }
}

#[test]
fn snapshot_length_cuts() {
    if !inside("snapshot_length_cuts") {
        return;
    }
    veth();
    let mut source = open("v1", |options| options.snaplen = 100);
    send("v0", 0..3, 1500);
    send("v0", 3..4, 60);
    let mut lens = Vec::new();
    drain(&mut source, |frame| lens.push((frame.data.len(), frame.wire_len)));
    assert_eq!(lens, [(100, 1500), (100, 1500), (100, 1500), (60, 60)]);
}

#[test]
fn raw_link_type_of_a_tunnel() {
    if !inside("raw_link_type_of_a_tunnel") {
        return;
    }
    let created = Command::new("ip").args(["tuntap", "add", "t0", "mode", "tun"]).status();
    if !created.is_ok_and(|status| status.success()) {
        println!("skipped: no tun device here");
        return;
    }
    ip("link set t0 up");
    let source = open("t0", |_| {});
    assert_eq!(source.interfaces()[0].link, LinkType::RAW);
    let available = fyke_capture::interfaces_available().expect("a list");
    let tunnel = available.iter().find(|interface| interface.name == "t0").expect("listed");
    assert!(tunnel.up && tunnel.link == LinkType::RAW);
}

#[test]
fn an_interface_that_goes_away() {
    if !inside("an_interface_that_goes_away") {
        return;
    }
    veth();
    let mut source = open("v1", |_| {});
    send("v0", 0..3, 60);
    let mut seen = 0;
    drain(&mut source, |_| seen += 1);
    // Down and up again: the capture continues.
    ip("link set v1 down");
    drain(&mut source, |_| {});
    drain(&mut source, |_| {});
    ip("link set v1 up");
    drain(&mut source, |_| {});
    send("v0", 3..6, 60);
    drain(&mut source, |_| seen += 1);
    assert_eq!(seen, 6);

    // Deleted and created again with the same index: the capture continues.
    ip("link del v1");
    drain(&mut source, |_| {});
    ip("link add v0 type veth peer name v1");
    ip("link set v0 up");
    ip("link set v1 up");
    let end = Instant::now() + Duration::from_secs(10);
    let mut states = Vec::new();
    while !states.contains(&LinkState::Back) {
        assert!(Instant::now() < end, "nobody notices: {states:?}");
        assert!(matches!(source.next(), Ok(Next::Idle)));
        states.extend(std::iter::from_fn(|| source.take_notice()).map(|notice| notice.state));
    }
    send("v0", 6..9, 60);
    drain(&mut source, |_| seen += 1);
    assert_eq!(seen, 9);
    assert_eq!(states, [LinkState::Down, LinkState::Up, LinkState::Gone, LinkState::Back]);

    // An interface of another kind with that name cannot continue the capture.
    ip("link del v1");
    drain(&mut source, |_| {});
    ip("tuntap add mode tun name v1");
    let error = loop {
        assert!(Instant::now() < end, "nobody notices");
        if let Err(error) = source.next() {
            break error.to_string();
        }
    };
    assert_eq!(error, "v1: the interface came back with link type RAW instead of EN10MB");
    assert!(matches!(source.next(), Ok(Next::End)));
}

#[test]
fn a_stop_hands_out_all_that_came_before() {
    if !inside("a_stop_hands_out_all_that_came_before") {
        return;
    }
    veth();
    for count in [1, 7, 500, 4000] {
        let mut source = open("v1", |_| {});
        send("v0", 0..count, 60);
        assert!(source.stop());
        // None of these frames is captured.
        send("v0", 0..100, 60);
        let mut seen = 0;
        loop {
            match source.next().expect("the interface is there") {
                Next::Frames(batch, _) => seen += batch.len() as u64,
                Next::Idle => {}
                Next::End => break,
            }
        }
        let stats = source.stats();
        assert_eq!(seen + stats.dropped, u64::from(count));
        assert_eq!((stats.received, stats.delivered), (count.into(), seen));
    }
}

fn refusal(interface: &str) -> String {
    let options = RingOptions { interface: Some(interface.to_owned()), ..Default::default() };
    match RingSource::open(options) {
        Ok(_) => panic!("{interface} can be opened"),
        Err(error @ ReadError::Live(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn errors_say_what_to_do() {
    if !inside("errors_say_what_to_do") {
        return;
    }
    assert_eq!(refusal("lo"), "lo: the interface is down (`ip link set lo up` starts it)");
    let text = refusal("nonsense");
    assert!(text.starts_with("nonsense: no such interface (there are: lo"), "{text}");
    let available = fyke_capture::interfaces_available().expect("a list");
    assert!(available.iter().any(|interface| interface.name == "lo" && !interface.up));
    assert_eq!(available.last().map(|interface| interface.name.as_str()), Some("any"));
}

#[test]
fn no_permission() {
    // A user namespace without a network namespace: no privileges in the visible network.
    if !inside_with("no_permission", &["-U"]) {
        return;
    }
    let text = refusal("lo");
    assert!(
        text.starts_with("lo: no permission to capture: the capability CAP_NET_RAW is missing"),
        "{text}"
    );
}

#[test]
fn options_that_cannot_work() {
    let wrong: [fn(&mut RingOptions); 5] = [
        |options| options.block_size = 5000,
        |options| options.block_count = 3,
        |options| options.look_back_blocks = 129,
        |options| options.snaplen = 0,
        |options| options.retire_ms = 0,
    ];
    for change in wrong {
        let mut options = RingOptions::default();
        change(&mut options);
        let refused = RingSource::open(options.clone());
        assert!(matches!(refused, Err(ReadError::Live(_))), "{options:?}");
    }
}
