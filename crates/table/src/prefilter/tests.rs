//! Tests of the pre-filter on frames: encapsulations, wildcards, networks, unreadable fields, negative mode, limits.

mod batch;

use super::*;
use fyke_frame::{Batch, Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::net::Ipv6Addr;

fn prefilter(rules: &[&str]) -> Prefilter {
    let mut prefilter = Prefilter::new(PrefilterOptions::default(), Seed::fixed(1));
    for rule in rules {
        prefilter.add(Rule::parse(rule).unwrap()).unwrap();
    }
    prefilter
}

fn ask(rules: &[&str], packet: &Packet) -> Answer {
    ask_bytes(rules, &packet.build())
}

fn ask_bytes(rules: &[&str], data: &[u8]) -> Answer {
    prefilter(rules).reader().ask(&Frame::new(LinkType::EN10MB, data))
}

fn tcp() -> Packet {
    Packet::ethernet().ipv4([10, 0, 0, 1], [192, 168, 0, 10]).tcp(5000, 80)
}

const SIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

#[test]
fn fields_must_hold_at_one_end() {
    for rule in [
        "ip=192.168.0.10,port=80",
        "ip=10.0.0.1,port=5000",
        "ip=10.0.0.1",
        "port=80",
        "port=5000,proto=tcp",
        "proto=6",
        "ip=192.168.0.0/24,port=80,proto=tcp",
        "ip=128.0.0.0/1",
    ] {
        assert_eq!(ask(&[rule], &tcp()), Answer::Maybe, "{rule}");
        assert_eq!(ask(&["ip=1.2.3.4", "vlan=9", rule], &tcp()), Answer::Maybe, "{rule}");
    }
    for rule in [
        "ip=192.168.0.10,port=5000",
        "ip=10.0.0.2",
        "port=81",
        "proto=udp",
        "port=80,proto=udp",
        "vlan=7",
        "ip=192.168.1.0/24",
        "ip=2001:db8::1",
        "ip=::192.168.0.10",
    ] {
        assert_eq!(ask(&[rule], &tcp()), Answer::No, "{rule}");
    }
    assert_eq!(ask(&[], &tcp()), Answer::No);
}

#[test]
fn every_level_of_every_encapsulation_is_looked_at() {
    let inner = |outer: Packet| outer.ipv4([10, 0, 0, 1], [192, 168, 0, 10]).udp(5000, 53);
    let carried = [
        inner(Packet::ethernet()),
        inner(Packet::ethernet().vlan(7)),
        inner(Packet::ethernet().qinq(5).vlan(7)),
        inner(Packet::ethernet().mpls(100).mpls(200)),
        inner(Packet::ethernet().vlan(7).pppoe(3).ppp()),
        inner(Packet::ethernet().ipv6(SIX, SIX).vxlan(9).ether()),
        inner(Packet::ethernet().ipv4([1, 1, 1, 1], [2, 2, 2, 2]).gre()),
    ];
    for packet in &carried {
        assert_eq!(ask(&["ip=192.168.0.10,port=53,proto=udp"], packet), Answer::Maybe);
        assert_eq!(ask(&["ip=192.168.0.11,port=53"], packet), Answer::No);
    }
    for packet in &carried[1..3] {
        assert_eq!(ask(&["vlan=7,port=53"], packet), Answer::Maybe);
        assert_eq!(ask(&["vlan=7"], packet), Answer::Maybe);
        assert_eq!(ask(&["vlan=8,port=53"], packet), Answer::No);
    }
    assert_eq!(ask(&["ip=2001:db8::/32,port=4789"], &carried[5]), Answer::Maybe);
    assert_eq!(ask(&["ip=2.2.2.2,proto=gre"], &carried[6]), Answer::Maybe);
    let six = Packet::ethernet().ipv6(SIX, SIX).hop_by_hop().tcp(7, 8);
    assert_eq!(ask(&["ip=2001:db8::1,port=8,proto=tcp"], &six), Answer::Maybe);
    assert_eq!(ask(&["ip=2001:db8::2,port=8"], &six), Answer::No);
    let arp = Packet::ethernet().vlan(7).payload(&[0; 40]);
    assert_eq!(ask(&["vlan=7"], &arp), Answer::Maybe);
    assert_eq!(ask(&["vlan=7,proto=tcp"], &arp), Answer::No);
}

#[test]
fn what_cannot_be_read_is_undecided_only_where_it_matters() {
    let later = Packet::ethernet()
        .ipv4([10, 0, 0, 1], [192, 168, 0, 10])
        .fragment(9, 1480, false)
        .ip_payload(17, &[0; 100]);
    assert_eq!(ask(&["ip=10.0.0.1,port=53"], &later), Answer::Undecided);
    assert_eq!(ask(&["ip=10.0.0.1,proto=udp"], &later), Answer::Maybe);
    assert_eq!(ask(&["ip=10.0.0.2,proto=udp"], &later), Answer::No);
    let ping = Packet::ethernet().ipv4([10, 0, 0, 1], [192, 168, 0, 10]).icmp(8, 0, 0);
    assert_eq!(ask(&["ip=10.0.0.1,port=53"], &ping), Answer::No);
    let bytes = tcp().build();
    assert_eq!(ask_bytes(&["port=80"], &bytes[..36]), Answer::Undecided);
    assert_eq!(ask_bytes(&["port=81"], &bytes[..40]), Answer::No, "ports are there");
    // No prefix of a matching frame may be answered with a certain no.
    for length in 0..=bytes.len() {
        let frame = Frame { wire_len: 54, ..Frame::new(LinkType::EN10MB, &bytes[..length]) };
        for rule in ["port=80", "ip=192.168.0.10", "proto=tcp", "ip=10.0.0.0/8,port=5000"] {
            assert_ne!(prefilter(&[rule]).reader().ask(&frame), Answer::No, "{rule} {length}");
        }
    }
}

#[test]
fn switches_and_counts() {
    let mut prefilter = prefilter(&["port=80"]);
    let mut reader = prefilter.reader();
    let wanted = tcp().build();
    let other = Packet::ethernet().ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(1, 2).build();
    let passes = |reader: &mut PrefilterReader| {
        [&wanted, &other].map(|data| reader.passes(&Frame::new(LinkType::EN10MB, data)))
    };
    assert_eq!(passes(&mut reader), [true, false]);
    prefilter.apply(Command::Negative(true)).unwrap();
    assert_eq!(passes(&mut reader), [false, true]);
    prefilter.apply(Command::Enable(false)).unwrap();
    assert_eq!(passes(&mut reader), [true, true]);
    let counts = reader.counts();
    assert_eq!((counts.seen, counts.passed, counts.dropped, counts.undecided), (6, 4, 2, 0));
    prefilter.apply(Command::Enable(true)).unwrap();
    prefilter.apply(Command::Negative(false)).unwrap();
    prefilter.apply(Command::Reset).unwrap();
    assert_eq!(passes(&mut reader), [true, true], "on without rules: every frame passes");
}

#[test]
fn rules_are_listed_and_counted() {
    let mut prefilter = prefilter(&["port=80", "ip=10.0.0.0/8", "port=80"]);
    let listing = prefilter.apply(Command::List).unwrap();
    assert_eq!(listing, "+port=80\n+port=80\n+ip=10.0.0.0/8\n");
    let gone = Rule::parse("port=81").unwrap();
    let error = prefilter.remove(&gone).unwrap_err();
    assert_eq!(error.to_string(), "there is no rule `port=81`");
    let twice = Rule::parse("port=80").unwrap();
    let mut reader = prefilter.reader();
    let data = tcp().build();
    let frame = Frame::new(LinkType::EN10MB, &data);
    prefilter.remove(&Rule::parse("ip=10.0.0.0/8").unwrap()).unwrap();
    prefilter.remove(&twice).unwrap();
    assert_eq!(reader.ask(&frame), Answer::Maybe);
    prefilter.remove(&twice).unwrap();
    assert_eq!(reader.ask(&frame), Answer::No);
    assert!(prefilter.is_empty() && prefilter.stats().is_empty());
}

#[test]
fn limits_refuse_and_change_nothing() {
    let options =
        PrefilterOptions { bits: 1 << 10, max_spaces: 2, max_rules: 3, ..Default::default() };
    let mut prefilter = Prefilter::new(options, Seed::fixed(1));
    for text in ["ip=10.0.0.0/8", "ip=10.1.0.0/16"] {
        prefilter.add(Rule::parse(text).unwrap()).unwrap();
    }
    let third = prefilter.add(Rule::parse("ip=10.1.1.0/24").unwrap()).unwrap_err();
    assert!(third.to_string().contains("2 prefix lengths"), "{third}");
    prefilter.add(Rule::parse("ip=11.0.0.0/8").unwrap()).unwrap();
    let fourth = prefilter.add(Rule::parse("ip=12.0.0.0/8").unwrap()).unwrap_err();
    assert_eq!(fourth, PrefilterError::TooManyRules { limit: 3 });
    assert_eq!((prefilter.len(), prefilter.stats().len()), (3, 2));
    let prefixes = Some("ip/24,ip6/64".parse().unwrap());
    let options = PrefilterOptions { prefixes, ..Default::default() };
    let mut prefilter = Prefilter::new(options, Seed::fixed(1));
    for text in ["ip=10.1.2.0/24", "ip=2001:db8::/64", "port=80"] {
        prefilter.add(Rule::parse(text).unwrap()).unwrap();
    }
    let refused = prefilter.add(Rule::parse("ip=10.1.2.3").unwrap()).unwrap_err().to_string();
    assert!(refused.contains("`ip=10.1.2.3`") && refused.contains("ip/24,ip6/64"), "{refused}");
    assert_eq!(prefilter.len(), 3);
}

/// A rule never misses while a thousand other rules that share its bits are added and removed.
#[test]
fn no_false_negative_while_rules_are_edited() {
    let options =
        PrefilterOptions { bits: 256, max_spaces: 4, max_rules: 10_000, ..Default::default() };
    let mut prefilter = Prefilter::new(options, Seed::random());
    let frames: Vec<Vec<u8>> = (0..50u8)
        .map(|n| Packet::ethernet().ipv4([10, 9, 0, n], [10, 0, 0, n]).udp(1000, 5060).build())
        .collect();
    for n in 0..50 {
        prefilter.add(Rule::parse(&format!("ip=10.0.0.{n},port=5060,proto=udp")).unwrap()).unwrap();
    }
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (mut reader, frames, done) = (prefilter.reader(), frames.clone(), done.clone());
            std::thread::spawn(move || {
                let mut rounds = 0u64;
                while !done.load(std::sync::atomic::Ordering::Acquire) || rounds == 0 {
                    let mut batch = Batch::new();
                    for data in &frames {
                        let frame = Frame::new(LinkType::EN10MB, data);
                        assert_eq!(reader.ask(&frame), Answer::Maybe, "round {rounds}");
                        batch.push(frame).unwrap();
                    }
                    let passed = reader.decide(&batch, batch.all()).passed;
                    assert_eq!(passed.count(), frames.len(), "round {rounds}");
                    rounds += 1;
                }
            })
        })
        .collect();
    let mut random = Seed::random();
    let mut there = Vec::new();
    for _ in 0..60_000 {
        let draw = random.next();
        if draw & 1 == 0 && !there.is_empty() {
            let rule = there.swap_remove((draw >> 8) as usize % there.len());
            prefilter.remove(&rule).unwrap();
        } else if there.len() < 1_000 {
            let address = std::net::Ipv4Addr::from((draw >> 32) as u32).into();
            let rule = Rule::default().with_net(address, [32, 24][(draw >> 9 & 1) as usize]);
            let rule = if draw & 2 == 0 { rule.with_port(5060) } else { rule };
            prefilter.add(rule).unwrap();
            there.push(rule);
        }
    }
    done.store(true, std::sync::atomic::Ordering::Release);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}
