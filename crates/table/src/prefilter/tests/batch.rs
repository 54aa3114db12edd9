//! Tests that the fast path, the batch and the header walk give the same answers for every frame.

use super::super::ends::Ends;
use super::super::plain::{Plain, plain};
use super::{SIX, prefilter, tcp};
use crate::Level;
use crate::hash::Seed;
use crate::prefilter::{Answer, Decided, Prefilter, PrefilterOptions, PrefilterReader, Rule};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Mask};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use std::collections::HashMap;

/// A frame and its length on the wire.
type Captured = (LinkType, Vec<u8>, u32);

/// The fast path finds the same fields as the walk, or is unclear: all UDP destination ports, every length, random
/// bytes.
#[test]
fn plain_frames_are_what_the_walk_finds() {
    let mut seen = HashMap::new();
    let mut check = |data: &[u8]| {
        for wire_len in [data.len() as u32, data.len() as u32 + 100] {
            let frame = Frame { wire_len, ..Frame::new(LinkType::EN10MB, data) };
            let ends = Ends::of(&frame);
            let (packet, vlan) = match plain(data) {
                Plain::Packet(head) => (Some(head.packet()), head.vlan),
                Plain::Nothing => (None, None),
                Plain::Unclear => continue,
            };
            assert!(ends.packets().eq(&packet), "{packet:?} {ends:?} {data:02x?}");
            assert!(ends.vlans() == vlan.as_slice(), "{vlan:?} {ends:?} {data:02x?}");
            assert!(!ends.incomplete, "{ends:?} {data:02x?}");
            *seen.entry((packet.map(|p| p.kind.bits()), vlan.is_some())).or_insert(0) += 1;
        }
    };
    for port in 0..=u16::MAX {
        let inner = [0x08, 0, 0x65, 0x58, 0, 0, 7, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 69];
        let v4 = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, port);
        check(&v4.payload(&[&inner[..], &[0; 40]].concat()).build());
        if port % 64 == 0 {
            check(&Packet::ethernet().ipv6(SIX, SIX).udp(9, port).payload(&[0; 40]).build());
        }
    }
    let (mut random, seed) = Random::seeded(71);
    println!("seed {seed}");
    for base in bases() {
        let bytes = base.build();
        (0..=bytes.len()).for_each(|length| check(&bytes[..length]));
        for _ in 0..30_000 {
            let mut bytes = bytes.clone();
            spoil(&mut random, &mut bytes);
            check(&bytes);
        }
    }
    let least = [((Some(32), false), 100_000), ((Some(32), true), 10_000), ((None, false), 1_000)];
    for (what, least) in least.into_iter().chain([((Some(128), false), 10_000)]) {
        assert!(seen.get(&what).is_some_and(|&count| count > least), "{what:?} {seen:?}");
    }
}

/// Changes up to three bytes after the link addresses and truncates some frames.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = 12 + random.below(bytes.len() - 12);
        bytes[at] = random.number() as u8;
    }
    bytes.truncate(bytes.len() - random.below(24).min(bytes.len() - 13));
}

/// Frames of every kind that the walk knows.
fn bases() -> Vec<Packet> {
    let v4 = |outer: Packet| outer.ipv4([10, 0, 0, 1], [192, 168, 0, 10]);
    let ethernet = Packet::ethernet;
    let inner = |outer: Packet| v4(outer).udp(5000, 53).payload(&[7; 20]);
    vec![
        tcp(),
        tcp().payload(&[9; 30]),
        v4(ethernet()).ip_options(&[1, 1, 1, 1, 7, 4, 4, 0]).tcp(5000, 80),
        v4(ethernet()).fragment(9, 1480, true).ip_payload(17, &[0; 60]),
        v4(ethernet()).fragment(9, 0, true).udp(5000, 53).payload(&[0; 60]),
        v4(ethernet()).icmp(8, 0, 0).payload(&[0; 30]),
        v4(ethernet()).esp(77).payload(&[3; 40]),
        v4(ethernet()).sctp(5000, 80),
        v4(ethernet()).udp_lite(5000, 80),
        v4(ethernet().vlan(7)).tcp(5000, 80),
        v4(ethernet().vlan(0)).udp(5000, 53).payload(&[0; 20]),
        ethernet().vlan(8).ipv6(SIX, SIX).udp(7, 53),
        ethernet().ipv6(SIX, SIX).tcp(7, 8),
        ethernet().ipv6(SIX, SIX).hop_by_hop().tcp(7, 8),
        ethernet().ipv6(SIX, SIX).fragment6(7, 1480, true).payload(&[0; 40]),
        ethernet().ipv6(SIX, SIX).icmpv6(128, 0, 0),
        ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]),
        ethernet().vlan(7).arp(1, [10, 0, 0, 1], [10, 0, 0, 2]),
        inner(ethernet().qinq(5).vlan(7)),
        inner(ethernet().mpls(100).mpls(200)),
        inner(ethernet().vlan(7).pppoe(3).ppp()),
        inner(ethernet().ipv6(SIX, SIX).vxlan(9).ether()),
        inner(ethernet().ipv4([1, 1, 1, 1], [2, 2, 2, 2]).gre()),
        inner(ethernet().ipv4([1, 1, 1, 1], [2, 2, 2, 2]).geneve(5, &[]).ether().vlan(7)),
        inner(v4(ethernet())),
        ethernet().payload(&[0x88, 0xcc, 2, 7, 4]),
        v4(Packet::raw()).tcp(5000, 80),
        v4(Packet::sll()).tcp(5000, 80),
    ]
}

/// Makes rules of all wildcard patterns, some that match the frames and some that do not; sometimes all with a VLAN or
/// a port, sometimes enough to fill the arrays: then a field is absent only if it is not looked up.
fn rules(random: &mut Random, frames: &[Captured]) -> Prefilter {
    let (bits, hash_pairs) = ([64, 1 << 16][random.below(2)], 1 + random.below(2) as u8);
    let options = PrefilterOptions { bits, hash_pairs, ..Default::default() };
    let mut prefilter = Prefilter::new(options, Seed::fixed(random.number()));
    let count = if random.chance(4) { 300 } else { random.below(12) };
    let (all_tagged, all_ported) = (random.chance(4), random.chance(4));
    for _ in 0..count {
        let (link, data, _) = &frames[random.below(frames.len())];
        let ends = Ends::of(&Frame::new(*link, data));
        let mut rule = Rule::default();
        if let Some(packet) = ends.packets().nth(random.below(2)) {
            let words = if random.chance(2) { packet.source } else { packet.destination };
            if random.chance(2) {
                let longest = usize::from(packet.kind.bits());
                let prefix = if random.chance(2) { longest } else { 1 + random.below(longest) };
                rule = rule.with_net(packet.kind.address(words), prefix as u8);
            }
            if random.chance(2) {
                rule = rule.with_protocol(packet.protocol.unwrap_or(0));
            }
        }
        if all_ported || random.chance(2) {
            rule = rule.with_port(random.pick(&[80, 53, 5000, 7, 40_000]));
        }
        if all_tagged || random.chance(3) {
            rule = rule.with_vlan(ends.vlans().first().copied().unwrap_or(7).max(1));
        }
        if rule != Rule::default() {
            // A refusal because of too many prefix lengths is acceptable.
            let _refused = prefilter.add(rule);
        }
    }
    prefilter
}

/// Answers and counts of a batch equal those of its frames, on every instruction level and in every mode.
fn compare(random: &mut Random, prefilter: &mut Prefilter, frames: &[Captured]) -> [usize; 3] {
    prefilter.set_negative(random.chance(4));
    prefilter.set_enabled(!random.chance(16));
    let mut one_by_one = prefilter.reader();
    let mut readers: Vec<(Level, PrefilterReader)> =
        Level::all().into_iter().map(|level| (level, prefilter.reader())).collect();
    readers.iter_mut().for_each(|(level, reader)| reader.set_level(*level));
    let mut kinds = [0; 3];
    let mut rest = frames;
    while let Some((first, _, _)) = rest.first() {
        let same = rest.iter().take_while(|(link, ..)| link == first).count();
        let (now, later) = rest.split_at(same.min(1 + random.below(BATCH_CAPACITY)));
        rest = later;
        let mut batch = Batch::new();
        for (link, data, wire_len) in now {
            batch.push(Frame { wire_len: *wire_len, ..Frame::new(*link, data) }).unwrap();
        }
        let words = [random.number(), random.number(), u64::MAX, random.number()];
        let among = if random.chance(2) { Mask(words) } else { batch.all() };
        let mut expected = Decided::default();
        for index in (among & batch.all()).iter() {
            let frame = &batch.frames()[index];
            let answer = one_by_one.ask_by_walk(frame);
            assert_eq!(one_by_one.ask(frame), answer, "{:02x?}", frame.data);
            if one_by_one.passes(frame) {
                expected.passed.set(index);
                if answer == Answer::Undecided && prefilter.is_enabled() {
                    expected.undecided.set(index);
                }
            }
            kinds[answer as usize] += 1;
        }
        for (level, reader) in &mut readers {
            let decided = reader.decide(&batch, among);
            assert_eq!(decided, expected, "{level} {:?}", prefilter.rules().collect::<Vec<_>>());
            assert_eq!(reader.counts(), one_by_one.counts(), "{level}");
        }
    }
    kinds
}

/// Generated frames of every encapsulation, each truncated at every length and with changed bytes.
#[test]
fn batches_are_judged_as_their_frames_are() {
    let (mut random, seed) = Random::seeded(72);
    println!("seed {seed}");
    let mut frames: Vec<Captured> = Vec::new();
    for base in bases() {
        let (link, bytes) = (LinkType(base.link_type()), base.build());
        for length in (0..=bytes.len()).chain([bytes.len(); 40]) {
            frames.push((link, bytes[..length].to_vec(), bytes.len() as u32));
        }
        for _ in 0..40 {
            let mut spoilt = bytes.clone();
            spoil(&mut random, &mut spoilt);
            frames.push((link, spoilt, bytes.len() as u32));
        }
    }
    let mut kinds = [0; 3];
    for _ in 0..200 {
        for last in (1..frames.len()).rev() {
            frames.swap(last, random.below(last + 1));
        }
        frames.sort_by_key(|(link, ..)| link.0);
        let mut prefilter = rules(&mut random, &frames);
        let more = compare(&mut random, &mut prefilter, &frames);
        kinds.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    assert!(kinds.iter().all(|&count| count > 10_000), "{kinds:?}");
}

/// Plain frames with each value of each byte of their headers: every limit of a length, every version, protocol and
/// tunnel port, against rules that match none of them and rules that match most.
#[test]
fn every_value_of_a_header_is_judged() {
    let (mut random, seed) = Random::seeded(74);
    println!("seed {seed}");
    let v4 = |outer: Packet| outer.ipv4([10, 0, 0, 1], [192, 168, 0, 10]);
    let v6 = |outer: Packet| outer.ipv6(SIX, SIX);
    let (plain, tagged) = (Packet::ethernet, || Packet::ethernet().vlan(7));
    // The low byte of the port becomes that of each tunnel.
    let udp = |packet: Packet, port: u16| packet.udp(7, port).payload(&[0; 20]);
    let mut bases = vec![
        plain().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]),
        tagged().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]),
        v4(plain()).tcp(7, 80),
        v6(plain()).tcp(7, 80),
        v6(tagged()).tcp(7, 80),
        v4(tagged()).udp(7, 53).payload(&[0; 20]),
    ];
    bases.extend([2152, 4789, 6081, 8472].map(|port| udp(v4(plain()), port & 0xff00)));
    bases.extend([2152, 4789, 6081, 8472].map(|port| udp(v6(plain()), port & 0xff00)));
    let mut frames: Vec<Captured> = Vec::new();
    for base in bases {
        let bytes = base.build();
        for (at, value) in
            (12..bytes.len().min(66)).flat_map(|at| (0..=u8::MAX).map(move |n| (at, n)))
        {
            let mut changed = bytes.clone();
            changed[at] = value;
            frames.push((LinkType::EN10MB, changed, bytes.len() as u32));
        }
    }
    let none = ["ip=1.1.1.1,port=9", "ip=1::1,port=9,proto=6", "vlan=9,proto=17,port=9"];
    let most = ["ip=10.0.0.0/8,proto=17", "port=80", "vlan=7,port=53"];
    for rules in [none, most] {
        compare(&mut random, &mut prefilter(&rules), &frames);
    }
}

/// Frames of captures of all kinds.
#[test]
fn batches_of_captures_are_judged_as_their_frames_are() {
    let corpus = Corpus::open();
    let (mut random, seed) = Random::seeded(73);
    println!("seed {seed}");
    let mut files = 0;
    for folder in ["encapsulation", "fragments", "ipv6", "linktypes", "malformed", "mixed", "voip"]
    {
        for path in corpus.traces(folder) {
            let Some((link, frames)) = Corpus::frames(&path, 1_500) else { continue };
            let captured = |data: Vec<u8>| (LinkType(link), data.clone(), data.len() as u32);
            let frames: Vec<Captured> = frames.into_iter().map(captured).collect();
            for _ in 0..3 {
                if !frames.is_empty() {
                    let mut prefilter = rules(&mut random, &frames);
                    compare(&mut random, &mut prefilter, &frames);
                }
            }
            files += 1;
        }
    }
    assert!(files > 200, "{files} captures");
}

/// Batches with frames of one kind only, and one of each kind: blocks that are full, empty and in between.
#[test]
fn blocks_of_every_size_are_judged() {
    let data = tcp().build();
    let wanted = Packet::ethernet().ipv4([10, 0, 0, 1], [192, 168, 0, 11]).tcp(5000, 80).build();
    let prefilter = prefilter(&["ip=192.168.0.11,port=80"]);
    let mut reader = prefilter.reader();
    for count in 0..=BATCH_CAPACITY {
        let mut batch = Batch::new();
        for index in 0..count {
            let data = if index + 1 == count { &wanted } else { &data };
            batch.push(Frame::new(LinkType::EN10MB, data)).unwrap();
        }
        let passed = reader.decide(&batch, batch.all()).passed;
        assert!(passed.iter().eq(count.checked_sub(1)), "{count} {passed:?}");
    }
}
