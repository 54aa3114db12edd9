//! Several workers: every frame once, a conversation on one worker and in order, from memory and from an interface.

mod common;

use common::network::{inside, ip, veth};
use fyke_capture::{
    FlowHash, Interface, InterfaceSink, LinkState, MemorySource, Next, ReadError, RingOptions,
    RingSource, Sink, Source, SourceStats, fan_out,
};
use fyke_frame::{BATCH_CAPACITY, Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

const PAIRS: u32 = 61;

/// Frame `number` of a conversation, in either direction: complete, tagged, a fragment, or IPv6. The last eight bytes
/// are the conversation and the number.
fn frame(number: u32) -> Vec<u8> {
    let pair = number * 7 % PAIRS;
    let mark = [pair.to_be_bytes(), number.to_be_bytes()].concat();
    let (near, far) = ([10, 0, 0, pair as u8], [10, 0, 1, pair as u8]);
    let (near, far) = if number.is_multiple_of(3) { (far, near) } else { (near, far) };
    let packet = match (pair % 5, number % 4) {
        (0, _) => {
            let end = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            let (near, far) = (end(1), end(pair as u16 + 9));
            let (near, far) = if number.is_multiple_of(3) { (far, near) } else { (near, far) };
            let packet = Packet::ethernet();
            if number.is_multiple_of(2) { packet.vlan(5) } else { packet }
                .ipv6(near, far)
                .udp(1000, 53)
        }
        (_, 0) => Packet::ethernet().vlan(7).ipv4(near, far).tcp(1000, 80),
        (_, 1) => Packet::ethernet().ipv4(near, far).fragment(9, 0, true).udp(1000, 53),
        (_, 2) => {
            let packet = Packet::ethernet().ipv4(near, far).fragment(9, 185, false);
            return packet.ip_payload(17, &mark).build();
        }
        _ => Packet::ethernet().ipv4(near, far).tcp(1000, 80),
    };
    packet.payload(&mark).build()
}

/// Frames that one worker has received.
#[derive(Default)]
struct Seen {
    frames: u32,
    /// Number of the last frame of each conversation.
    last: HashMap<u32, u32>,
    stats: SourceStats,
}

impl Seen {
    fn add(&mut self, data: &[u8]) {
        let word = |from_end: usize| {
            let bytes = data[data.len() - from_end..][..4].try_into();
            u32::from_be_bytes(bytes.expect("four bytes"))
        };
        let (pair, number) = (word(8), word(4));
        assert_eq!(data, frame(number), "the bytes that were sent");
        let before = self.last.insert(pair, number);
        assert!(before < Some(number), "{number} after {before:?}");
        self.frames += 1;
    }
}

/// Reads a source to its end, or until it is idle.
fn read(mut source: impl Source) -> Seen {
    let mut seen = Seen::default();
    while let Next::Frames(batch, _) = source.next().expect("a source that works") {
        assert_eq!(batch.first_sequence, u64::from(seen.frames));
        assert!(!batch.is_empty() && batch.len() <= BATCH_CAPACITY);
        batch.frames().iter().for_each(|frame| seen.add(frame.data));
    }
    seen.stats = source.stats();
    seen
}

/// Reads all sources, each on its own thread.
fn read_all(sources: Vec<impl Source + 'static>) -> Vec<Seen> {
    let threads = sources.into_iter().map(|source| std::thread::spawn(|| read(source)));
    let threads: Vec<_> = threads.collect();
    threads.into_iter().map(|thread| thread.join().expect("a worker")).collect()
}

/// Checks that all frames arrived, every conversation on one worker, and that several workers got frames.
fn whole(seen: &[Seen], frames: u32) {
    assert_eq!(seen.iter().map(|one| one.frames).sum::<u32>(), frames);
    for pair in 0..PAIRS {
        let workers = seen.iter().filter(|one| one.last.contains_key(&pair)).count();
        assert_eq!(workers, 1, "conversation {pair}");
    }
    assert!(seen.iter().filter(|one| one.frames > 0).count() > 1, "one worker did everything");
    for one in seen {
        let SourceStats { received, delivered, dropped, .. } = one.stats;
        assert_eq!((received, dropped), (delivered, 0));
        assert_eq!(delivered, u64::from(one.frames));
    }
}

fn memory(frames: u32) -> MemorySource {
    let mut source = MemorySource::new(LinkType::EN10MB);
    for number in 0..frames {
        source.push(&Frame::new(LinkType::EN10MB, &frame(number)));
    }
    source
}

#[test]
fn conversations_stay_on_one_worker_in_order() {
    for workers in [2, 3, 8] {
        whole(&read_all(fan_out(memory(20_000), workers).expect("a thread")), 20_000);
    }
    let alone = read_all(fan_out(memory(1_000), 0).expect("a thread"));
    assert_eq!((alone.len(), alone[0].frames), (1, 1_000));
}

#[test]
fn the_frames_of_a_worker_that_is_gone_are_counted() {
    let mut source = memory(PAIRS);
    source.repeat(u64::from(10_000 / PAIRS));
    let total = u64::from(10_000 / PAIRS * PAIRS);
    let mut shares = fan_out(source, 2).expect("a thread");
    drop(shares.pop());
    let mut first = shares.pop().expect("two");
    let mut delivered = 0;
    loop {
        match first.next().expect("works") {
            Next::Frames(batch, _) => delivered += batch.len() as u64,
            Next::Idle => {}
            Next::End => break,
        }
    }
    let stats = first.stats();
    assert_eq!((stats.delivered, stats.received), (delivered, total), "{stats:?}");
    assert_eq!(stats.dropped, total - delivered);
    assert!(stats.dropped > 0 && delivered > 0, "both had conversations");
}

#[test]
fn a_damaged_source_hands_its_frames_out_first() {
    struct Damaged(MemorySource);
    impl Source for Damaged {
        fn interfaces(&self) -> &[Interface] {
            self.0.interfaces()
        }
        fn next(&mut self) -> Result<Next<'_>, ReadError> {
            match self.0.next()? {
                Next::End => {
                    let source = std::io::Error::other("damaged");
                    Err(ReadError::Open { name: "test".to_owned(), source })
                }
                next => Ok(next),
            }
        }
        fn stats(&mut self) -> SourceStats {
            self.0.stats()
        }
    }
    let shares = fan_out(Damaged(memory(1_000)), 2).expect("a thread");
    let mut frames = 0;
    for (number, mut share) in shares.into_iter().enumerate().rev() {
        let failed = loop {
            match share.next() {
                Ok(Next::Frames(batch, _)) => frames += batch.len(),
                Ok(Next::Idle) => {}
                Ok(Next::End) => break false,
                Err(error) => break error.to_string().contains("damaged"),
            }
        };
        assert_eq!(failed, number == 0, "the first one reports it");
        assert!(matches!(share.next(), Ok(Next::End)));
    }
    assert_eq!(frames, 1_000);
}

/// The rings of one interface, and the kernel's distribution over them.
#[test]
fn the_kernel_keeps_conversations_on_one_ring_in_order() {
    if !inside("the_kernel_keeps_conversations_on_one_ring_in_order") {
        return;
    }
    veth();
    const FRAMES: u32 = 12_000;
    let options =
        RingOptions { interface: Some("v1".to_owned()), timeout_ms: 300, ..RingOptions::default() };
    for rings in [2, 3] {
        let sources = RingSource::open_several(&options, rings).expect("the interface is there");
        assert_eq!(sources.len(), rings);
        let sender = std::thread::spawn(|| {
            let mut sink = InterfaceSink::open("v0").expect("an interface to send on");
            for number in 0..FRAMES {
                let (data, interface) = (frame(number), Interface::new("", LinkType::EN10MB));
                sink.write(&interface, &Frame::new(LinkType::EN10MB, &data)).expect("sent");
                if number.is_multiple_of(500) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let seen = read_all(sources);
        sender.join().expect("the sender");
        whole(&seen, FRAMES);
    }
}

#[test]
fn a_number_of_rings_that_cannot_be_is_refused() {
    for rings in [0, 257] {
        let error = RingSource::open_several(&RingOptions::default(), rings).err();
        let message = error.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(message, format!("number of rings {rings} is not from 1 to 256"));
    }
    assert!(FlowHash::random().worker(&Frame::new(LinkType::EN10MB, &frame(4)), 3) < 3);
}

/// Several rings of an interface that is deleted and made again: each gets a new socket, and a conversation stays on
/// one ring.
#[test]
fn rings_of_an_interface_that_is_made_again_continue() {
    if !inside("rings_of_an_interface_that_is_made_again_continue") {
        return;
    }
    veth();
    const FRAMES: u32 = 2_000;
    let options =
        RingOptions { interface: Some("v1".to_owned()), timeout_ms: 25, ..RingOptions::default() };
    let mut sources = RingSource::open_several(&options, 3).expect("the interface is there");
    let limit = Instant::now() + Duration::from_secs(60);
    for round in 0..3 {
        if round > 0 {
            ip("link del v1");
            veth();
            let mut back = [false; 3];
            while back.contains(&false) {
                assert!(Instant::now() < limit, "{back:?}");
                for (source, back) in sources.iter_mut().zip(&mut back) {
                    assert!(matches!(source.next(), Ok(Next::Idle)));
                    let notices = std::iter::from_fn(|| source.take_notice());
                    let states: Vec<_> = notices.map(|notice| notice.state).collect();
                    *back |= states.contains(&LinkState::Back);
                }
            }
        }
        let mut sink = InterfaceSink::open("v0").expect("an interface to send on");
        let interface = Interface::new("", LinkType::EN10MB);
        for number in 0..FRAMES {
            sink.write(&interface, &Frame::new(LinkType::EN10MB, &frame(number))).expect("sent");
        }
        let mut seen: Vec<Vec<Vec<u8>>> = vec![Vec::new(); sources.len()];
        while seen.iter().map(Vec::len).sum::<usize>() < FRAMES as usize {
            assert!(Instant::now() < limit, "{:?}", seen.iter().map(Vec::len));
            for (source, seen) in sources.iter_mut().zip(&mut seen) {
                if let Next::Frames(batch, _) = source.next().expect("a source that works") {
                    seen.extend(batch.frames().iter().map(|frame| frame.data.to_vec()));
                }
            }
        }
        let sent: Vec<_> = (0..FRAMES).map(frame).collect();
        assert!(seen.iter().filter(|frames| !frames.is_empty()).count() > 1);
        for frames in &seen {
            // Ordered as they were sent, so of one conversation, too.
            let mut sent = sent.iter();
            assert!(frames.iter().all(|frame| sent.any(|one| one == frame)));
        }
    }
    for source in &mut sources {
        let stats = source.stats();
        assert_eq!(stats.received, stats.delivered + stats.dropped + stats.ignored, "{stats:?}");
    }
}
