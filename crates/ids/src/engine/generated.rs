//! Traffic that is made for translated rules: a match for each, and near-misses with one condition broken.
//!
//! A near-miss is made only where it is certain without the engine: a content that is there once gets another byte, is
//! moved out of its window, or is added where it is forbidden; a length, an end, the direction or the state is wrong.

use super::flow::Flow;
use super::*;
use crate::buffer::Buffer;
use crate::endpoints::Variables;
use crate::rule::{Comparison, Content, JumpFrom, Owner, PacketTest, Protocol};
use crate::rule::{Read, Test, Value};
use crate::transform::Transform::{self, DotPrefix};
use crate::translate::Translation;
use crate::verify::{self, Verdict};
use fyke_frame::LinkType;
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet as Built;
use fyke_testkit::random::Random;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SYN: u8 = 2;
const ACK: u8 = 16;
/// Attempts to make a match.
const ATTEMPTS: usize = 200;
/// Longest buffer of a near-miss.
const LONGEST: usize = 8192;

/// Traffic for a rule: a buffer for each list, the ends, and the state.
#[derive(Debug, Clone)]
struct Traffic {
    buffers: Vec<Vec<u8>>,
    source: End,
    destination: End,
    /// The source of the rule's header is the client.
    from_client: bool,
    handshake: bool,
    named: bool,
}

/// Bytes of a buffer while its tests are made true.
struct Maker<'r> {
    random: &'r mut Random,
    out: Vec<u8>,
    at: usize,
    filler: u8,
    variables: [i64; 16],
    least: usize,
}

impl Maker<'_> {
    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Number(number) => number,
            Value::Variable(at) => self.variables[at],
        }
    }

    fn put(&mut self, start: usize, bytes: &[u8]) {
        let end = start + bytes.len();
        if self.out.len() < end {
            self.out.resize(end, self.filler);
        }
        self.out[start..end].copy_from_slice(bytes);
    }

    fn content(&mut self, content: &Content, skips: bool) -> Option<()> {
        if content.negated {
            return Some(());
        }
        let from = self.value(content.from);
        let is_there = places(&self.out, content).first().copied();
        if let Some(place) = is_there.filter(|_| !content.relative && skips) {
            self.at = place + content.bytes.len();
            return Some(());
        }
        let start = match (content.relative, content.len) {
            (true, _) => usize::try_from((self.at as i64).checked_add(from.max(0))?).ok()?,
            (false, Some(_)) if self.out.len() > from.max(0) as usize && skips => self.out.len(),
            (false, Some(_)) => usize::try_from(from).ok()?,
            (false, None) => self.out.len().max(usize::try_from(from).ok()?),
        };
        if start > LONGEST {
            return None;
        }
        let mut bytes = content.bytes.to_vec();
        for byte in bytes.iter_mut().filter(|_| content.nocase) {
            if self.random.chance(2) {
                *byte = byte.to_ascii_uppercase();
            }
        }
        self.put(start, &bytes);
        self.at = start + bytes.len();
        Some(())
    }

    fn number(&mut self, read: &Read, value: u64) -> Option<usize> {
        let base = if read.relative { self.at as i64 } else { 0 };
        let start = usize::try_from(base.checked_add(self.value(read.offset))?).ok()?;
        let len = usize::try_from(self.value(read.len)).ok()?;
        if start > LONGEST || len > 16 || read.mask.is_some() {
            return None;
        }
        let bytes = match read.text {
            Some(16) => format!("{value:0len$x}").into_bytes(),
            Some(10) => format!("{value:0len$}").into_bytes(),
            Some(8) => format!("{value:0len$o}").into_bytes(),
            Some(_) => return None,
            None => {
                let all = value.to_be_bytes();
                let mut bytes = all.get(8usize.checked_sub(len)?..)?.to_vec();
                if read.little {
                    bytes.reverse();
                }
                bytes
            }
        };
        self.put(start, &bytes);
        Some(start + bytes.len())
    }

    fn test(&mut self, test: &Test, skips: bool) -> Option<()> {
        match test {
            Test::Content(content) => self.content(content, skips)?,
            Test::Pcre(pcre) if pcre.negated => {}
            Test::Pcre(pcre) => {
                let start = if pcre.relative { self.at } else { self.out.len() };
                let text = pcre.pattern.sample(self.random)?;
                self.put(start, &text);
                self.at = start + text.len();
            }
            Test::ByteTest(test) => {
                let value = self.value(test.value).cast_unsigned();
                let value = match (test.comparison, test.negated) {
                    (Comparison::Equal | Comparison::AtMost | Comparison::AtLeast, false)
                    | (Comparison::And, false)
                    | (Comparison::Less | Comparison::Greater | Comparison::Xor, true) => value,
                    (Comparison::Less, false) | (Comparison::AtLeast, true) => {
                        value.checked_sub(1)?
                    }
                    (Comparison::Xor, false) => value ^ 1,
                    (Comparison::And, true) => 0,
                    _ => value.checked_add(1)?,
                };
                self.number(&test.read, value)?;
            }
            Test::ByteJump(jump) => {
                let end = self.number(&jump.read, 0)?;
                let base = match jump.from {
                    JumpFrom::Number => end,
                    JumpFrom::Beginning => 0,
                    JumpFrom::End => self.out.len(),
                };
                let to = usize::try_from(base as i64 + self.value(jump.post_offset)).ok()?;
                self.least = self.least.max(to.min(LONGEST) + 1);
                self.at = to;
            }
            Test::ByteExtract(extract) => {
                let value = 4 * i64::from(extract.align.max(1));
                let end = self.number(&extract.read, value.cast_unsigned())?;
                self.variables[extract.variable] = value * i64::from(extract.multiplier);
                self.at = end;
            }
            Test::IsDataAt { at, relative, negated: false } => {
                let base = if *relative { self.at as i64 } else { 0 };
                let end = usize::try_from(base.checked_add(self.value(*at))?).ok()? + 1;
                self.least = self.least.max(end.min(LONGEST));
            }
            Test::IsDataAt { .. } => {}
            Test::Len(bound) if bound.negated => {}
            Test::Len(bound) => self.least = self.least.max(bound.low.min(LONGEST as u64) as usize),
            Test::Number(bound) => {
                let value = if bound.negated { bound.high + 1 } else { bound.low };
                self.put(0, &value.to_be_bytes()[6..]);
            }
            Test::ByteMath(_) | Test::Base64 { .. } => return None,
        }
        Some(())
    }
}

/// Makes a buffer that should pass the tests of a list.
fn make(tests: &[Test], random: &mut Random) -> Option<Vec<u8>> {
    let filler = random.pick(&[b'~', b'0', b'z', b' ', b'Q', b'\n', 0]);
    let (order, skips) = (random.below(3), random.chance(2));
    let mut maker = Maker { random, out: Vec::new(), at: 0, filler, variables: [0; 16], least: 0 };
    let pcre_first = |test: &&Test| matches!(test, Test::Pcre(pcre) if !pcre.relative);
    let tests: Vec<&Test> = match order {
        0 => tests
            .iter()
            .filter(pcre_first)
            .chain(tests.iter().filter(|one| !pcre_first(one)))
            .collect(),
        _ => tests.iter().collect(),
    };
    for test in tests {
        maker.test(test, skips)?;
    }
    if maker.out.len() < maker.least {
        maker.out.resize(maker.least, maker.filler);
    }
    (maker.out.len() <= LONGEST).then_some(maker.out)
}

/// Places of a content, compared byte by byte.
fn places(bytes: &[u8], content: &Content) -> Vec<usize> {
    let is = |part: &[u8]| match content.nocase {
        true => part.eq_ignore_ascii_case(&content.bytes),
        false => *part == *content.bytes,
    };
    (0..bytes.len().saturating_sub(content.bytes.len() - 1))
        .filter(|at| is(&bytes[*at..*at + content.bytes.len()]))
        .collect()
}

/// Variants of a buffer that do not pass the tests.
fn broken(tests: &[Test], bytes: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let number = |value: Value| match value {
        Value::Number(number) => usize::try_from(number.max(0)).ok(),
        Value::Variable(_) => None,
    };
    // Place after the last test, if only one is possible.
    let mut last: Option<usize> = None;
    for test in tests {
        match test {
            Test::Content(content) if content.negated => {
                let free = !content.relative && content.len.is_none() && !content.ends;
                if free && number(content.from) == Some(0) {
                    all.push([bytes, &content.bytes].concat());
                }
            }
            Test::Content(content) => {
                let found = places(bytes, content);
                let [place] = found[..] else {
                    last = None;
                    continue;
                };
                let mut other = bytes.to_vec();
                other[place + random.below(content.bytes.len())] ^= 0x80;
                if places(&other, content).is_empty() {
                    all.push(other);
                }
                let window = content.len.and_then(number).zip(number(content.from));
                let before = if content.relative { last } else { Some(0) };
                if let (Some((len, from)), Some(before)) = (window, before)
                    && place >= before
                {
                    let gap = vec![0xf5; from + len];
                    let other = [&bytes[..place], &gap, &bytes[place..]].concat();
                    if places(&other, content).len() == 1 {
                        all.push(other);
                    }
                }
                last = Some(place + content.bytes.len());
            }
            Test::IsDataAt { at: Value::Number(at), relative: true, negated: true } => {
                if let (Some(_), Ok(at)) = (last, usize::try_from(*at)) {
                    all.push([bytes, &vec![0xf5; at + 1]].concat());
                }
            }
            Test::Len(bound) if !bound.negated && bound.high < LONGEST as u64 => {
                let mut other = bytes.to_vec();
                other.resize(bound.high as usize + 1, 0xf5);
                all.push(other);
            }
            other => {
                if other.moves() {
                    last = None;
                }
            }
        }
    }
    all.retain(|bytes| bytes.len() <= 2 * LONGEST);
    all
}

/// An address that fits, or that does not.
fn address(fits: impl Fn(IpAddr) -> bool, other: Option<IpAddr>) -> Option<IpAddr> {
    let all = [[192, 168, 1, 5], [93, 184, 216, 34], [10, 2, 3, 4], [8, 8, 8, 8], [203, 0, 113, 9]];
    let mut all = all.into_iter().map(|four| IpAddr::V4(Ipv4Addr::from(four)));
    all.find(|one| Some(*one) != other && fits(*one))
}

fn port(fits: impl Fn(u16) -> bool, random: &mut Random) -> Option<u16> {
    let first = 1024 + random.below(60_000) as u16;
    (first..=u16::MAX).chain(1..first).find(|port| fits(*port))
}

/// The reason for which no traffic is made for a rule.
fn unfit(armed: &Armed) -> Option<&'static str> {
    let rule = &armed.rule;
    let plain = |test: &PacketTest| matches!(test, PacketTest::PayloadLen(_));
    match rule.header.protocol {
        _ if rule.lists.iter().any(|list| !matches!(list.transforms[..], [] | [DotPrefix])) => {
            Some("a transform")
        }
        _ if rule.flow.established == Some(false)
            || rule.flow.applications != [None; 3]
            || !rule.counts.is_empty() =>
        {
            Some("no connection, or an application by name")
        }
        _ if !rule.packet.iter().all(plain) => Some("fields of headers"),
        _ if !rule.numbers.is_empty() => Some("numbers of flows"),
        _ if rule.lists.is_empty() && !armed.of_application => Some("no bytes"),
        Protocol::Icmp | Protocol::IcmpVersion(_) | Protocol::IpVersion(_) => Some("no ports"),
        _ if rule.bits.iter().any(|bit| bit.set && bit.owner != Owner::Flow) => {
            Some("names of hosts")
        }
        _ => None,
    }
}

/// Bytes that a transform changes into others; none if no bytes are.
fn before_transform(transforms: &[Transform], bytes: Vec<u8>) -> Option<Vec<u8>> {
    match transforms {
        [DotPrefix] => bytes.strip_prefix(b".").map(<[u8]>::to_vec),
        _ => Some(bytes),
    }
}

/// Makes traffic that should match a rule; the reason if it is not made.
fn traffic(armed: &Armed, random: &mut Random) -> Result<Traffic, &'static str> {
    let rule = &armed.rule;
    let header = &rule.header;
    if let Some(reason) = unfit(armed) {
        return Err(reason);
    }
    let source = address(|one| header.source.contains(one), None).ok_or("addresses")?;
    let destination =
        address(|one| header.destination.contains(one), Some(source)).ok_or("addresses")?;
    let source_port = port(|one| header.source_ports.contains(one), random).ok_or("ports")?;
    let fits = |one| header.destination_ports.contains(one) && one != source_port;
    let destination_port = port(fits, random).ok_or("ports")?;
    let mut least: Vec<Test> = Vec::new();
    for test in &rule.packet {
        if let PacketTest::PayloadLen(bound) = test {
            least.push(Test::Len(*bound));
        }
    }
    for _ in 0..ATTEMPTS {
        let made: Option<Vec<Vec<u8>>> = rule
            .lists
            .iter()
            .map(|list| {
                let of_packet = if list.buffer == Buffer::Payload { &least[..] } else { &[] };
                let tests: Vec<Test> = list.tests.iter().chain(of_packet).cloned().collect();
                let made = make(&tests, random).filter(|bytes| !bytes.is_empty())?;
                before_transform(&list.transforms, made)
            })
            .collect();
        let Some(buffers) = made else { continue };
        let mut variables = verify::Variables::default();
        let lists = armed.lists.iter().zip(&rule.lists).zip(&buffers);
        let mut holds = lists.clone().all(|((list, _), bytes)| {
            let mut changed = Cow::Borrowed(&bytes[..]);
            for transform in &list.transforms {
                changed = transform.apply(changed);
            }
            let mut work = crate::work::Work::default();
            list.checks.judge(&changed, &mut variables, &mut work) == Verdict::Match
        });
        for ((_, list), bytes) in lists {
            let fits = |test: &PacketTest| match test {
                PacketTest::PayloadLen(bound) => bound.contains(bytes.len() as u64),
                _ => true,
            };
            holds &= list.buffer != Buffer::Payload || rule.packet.iter().all(fits);
        }
        if holds {
            return Ok(Traffic {
                buffers,
                source: (source, source_port),
                destination: (destination, destination_port),
                from_client: rule_direction(rule) != Some(false),
                handshake: true,
                named: true,
            });
        }
    }
    Err("no buffer found")
}

/// The direction that a rule, or one of its buffers, asks for.
fn rule_direction(rule: &Rule) -> Option<bool> {
    let of_buffers = rule.lists.iter().find_map(|list| list.buffer.facts().to_server);
    rule.flow.to_server.or(of_buffers)
}

/// Number of matches of a rule on some traffic.
fn matches(engine: &mut Engine, armed: &Armed, traffic: &Traffic) -> u64 {
    let before = armed.matches.load(Ordering::Relaxed);
    match armed.of_application {
        true => message(engine, armed, traffic),
        false => packets(engine, armed, traffic),
    }
    armed.matches.load(Ordering::Relaxed) - before
}

fn frame(engine: &mut Engine, time_ns: u64, bytes: &[u8]) {
    let frame = Frame { timestamp_ns: time_ns, ..Frame::new(LinkType::EN10MB, bytes) };
    engine.frame(&frame, &mut |_| ());
}

/// Names that the rule asks for are set for all flows, and their application is known.
fn set_names(engine: &mut Engine, rule: &Rule) {
    engine.flows.retain(|_, flow| {
        if let Protocol::Application(application) = rule.header.protocol {
            flow.iter_mut().for_each(|flow| flow.parser = crate::app::Parser::known(application));
        }
        for bit in rule.bits.iter().filter(|bit| bit.set) {
            flow.iter_mut().for_each(|flow| _ = flow.names.insert(Arc::clone(&bit.names[0])));
        }
        true
    });
}

/// A connection, or datagrams, with the payload.
fn packets(engine: &mut Engine, armed: &Armed, traffic: &Traffic) {
    let v4 = |end: End| match end.0 {
        IpAddr::V4(four) => four.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    let built = |from: End, to: End| Built::ethernet().ipv4(v4(from), v4(to));
    let (source, destination) = (traffic.source, traffic.destination);
    let (client, server) =
        if traffic.from_client { (source, destination) } else { (destination, source) };
    let payload = traffic.buffers.first().map_or(&[][..], |bytes| bytes);
    if armed.rule.header.protocol == Protocol::Udp {
        let datagram = |from: End, to: End, bytes: &[u8]| {
            built(from, to).udp(from.1, to.1).payload(bytes).build()
        };
        frame(engine, 1, &datagram(client, server, b""));
        if traffic.handshake {
            frame(engine, 2, &datagram(server, client, b""));
        }
        if traffic.named {
            set_names(engine, &armed.rule);
        }
        return frame(engine, 3, &datagram(source, destination, payload));
    }
    let segment = |from: End, to: End, numbers: (u32, u32), flags: u8, bytes: &[u8]| {
        let tcp = built(from, to).tcp(from.1, to.1).seq_ack(numbers.0, numbers.1);
        tcp.flags(flags).payload(bytes).build()
    };
    if traffic.handshake {
        frame(engine, 1, &segment(client, server, (100, 0), SYN, b""));
        frame(engine, 2, &segment(server, client, (500, 101), SYN | ACK, b""));
    }
    frame(engine, 3, &segment(client, server, (101, 501), ACK, b""));
    if traffic.named {
        set_names(engine, &armed.rule);
    }
    let numbers = if traffic.from_client { (101, 501) } else { (501, 101) };
    frame(engine, 4, &segment(source, destination, numbers, ACK, payload));
}

/// A message of an application, in a flow of it.
fn message(engine: &mut Engine, armed: &Armed, traffic: &Traffic) {
    let rule = &armed.rule;
    let of_buffers = rule.lists.iter().find_map(|list| list.buffer.facts().application);
    let Some(application) = of_buffers else { return };
    let protocol = if rule.header.protocol == Protocol::Udp { 17 } else { 6 };
    let (client, server) = match traffic.from_client {
        true => (traffic.source, traffic.destination),
        false => (traffic.destination, traffic.source),
    };
    let packet = Packet::between(traffic.source, traffic.destination, protocol, 9);
    let mut flow = Flow::new(1, &Packet::between(client, server, protocol, 1));
    flow.established = traffic.handshake;
    flow.parser = crate::app::Parser::known(application);
    if traffic.named {
        let set = rule.bits.iter().filter(|bit| bit.set);
        flow.names.extend(set.map(|bit| Arc::clone(&bit.names[0])));
    }
    let mut buffers = Vec::new();
    for (list, bytes) in rule.lists.iter().zip(&traffic.buffers) {
        match list.buffer {
            Buffer::Payload => {
                flow.windows[usize::from(!traffic.from_client)].bytes = bytes.clone();
            }
            buffer => buffers.push((buffer, bytes.clone())),
        }
    }
    let message = Message::of_test(application, traffic.from_client, buffers);
    engine.judge_message(&packet, &mut flow, &message, &mut |_| ());
}

/// Near-misses of some traffic.
fn near_misses(
    rule: &Rule,
    traffic: &Traffic,
    random: &mut Random,
) -> Vec<(&'static str, Traffic)> {
    let mut all = Vec::new();
    let header = &rule.header;
    if rule.variables == 0 {
        for (at, list) in rule.lists.iter().enumerate() {
            // Two lists of one buffer see the bytes of each other.
            if rule.lists.iter().filter(|other| other.buffer == list.buffer).count() > 1 {
                continue;
            }
            let changed = match list.transforms[..] {
                [] => Cow::Borrowed(&traffic.buffers[at][..]),
                _ => DotPrefix.apply(Cow::Borrowed(&traffic.buffers[at])),
            };
            for bytes in broken(&list.tests, &changed, random) {
                let Some(bytes) = before_transform(&list.transforms, bytes) else { continue };
                let mut buffers = traffic.buffers.clone();
                buffers[at] = bytes;
                all.push(("a buffer", Traffic { buffers, ..traffic.clone() }));
            }
        }
    }
    if rule_direction(rule).is_some() {
        let from_client = !traffic.from_client;
        all.push(("the direction", Traffic { from_client, ..traffic.clone() }));
    }
    if rule.flow.established == Some(true) {
        all.push(("the handshake", Traffic { handshake: false, ..traffic.clone() }));
    }
    if rule.bits.iter().any(|bit| bit.set) {
        all.push(("a name", Traffic { named: false, ..traffic.clone() }));
    }
    if header.both {
        return all;
    }
    let (source, destination) = (traffic.source, traffic.destination);
    if let Some(wrong) = port(|one| !header.destination_ports.contains(one), random) {
        let destination = (destination.0, wrong);
        all.push(("the port", Traffic { destination, ..traffic.clone() }));
    }
    if let Some(wrong) = address(|one| !header.source.contains(one), Some(destination.0)) {
        let source = (wrong, source.1);
        all.push(("the source", Traffic { source, ..traffic.clone() }));
    }
    if let Some(wrong) = address(|one| !header.destination.contains(one), Some(source.0)) {
        let destination = (wrong, destination.1);
        all.push(("the destination", Traffic { destination, ..traffic.clone() }));
    }
    all
}

fn engine(index: &Arc<Index>) -> Engine {
    let mut engine =
        Engine::new(Index::new(Vec::new()), Limits { bytes: 1 << 20, ..Limits::default() });
    engine.rules = Arc::clone(index);
    engine
}

/// Judges the traffic for all rules of the public sets, in an order drawn by seed; at least this share has a match.
fn judge_sets(least: f64) {
    let (mut random, seed) = Random::seeded(23);
    println!("seed {seed}");
    for name in ["rules/emerging-threats-open.rules", "rules/snort-community.rules"] {
        let Some(path) = Corpus::open().shared(name) else {
            println!("skipped: {name} is not there");
            continue;
        };
        let text = std::fs::read(path).unwrap();
        let mut rules = Translation::new(&text, None, &Variables::default()).rules;
        for at in (1..rules.len()).rev() {
            rules.swap(at, random.below(at + 1));
        }
        let passes = rules.iter().any(|rule| rule.action == crate::rule::Action::Pass);
        let all = Arc::new(Index::new(rules.clone()));
        let (mut matched, mut missed, mut reasons) = (0, 0, HashMap::<&str, usize>::new());
        for (rule, among) in rules.iter().zip(all.iter()) {
            assert_eq!(rule.sid, among.rule.sid);
            let index = Arc::new(Index::new(vec![rule.clone()]));
            let Some(armed) = index.iter().next() else { continue };
            let made = match traffic(armed, &mut random) {
                Ok(made) => made,
                Err(reason) => {
                    *reasons.entry(reason).or_default() += 1;
                    println!("not made: {reason}: {}", rule.text);
                    continue;
                }
            };
            let found = matches(&mut engine(&index), armed, &made);
            assert!(found > 0, "{name} sid {} does not match {made:?}", rule.sid);
            if !passes && rule.bits.is_empty() {
                let found = matches(&mut engine(&all), among, &made);
                assert!(found > 0, "{name} sid {} among others: {made:?}", rule.sid);
            }
            matched += 1;
            for (part, miss) in near_misses(rule, &made, &mut random) {
                let found = matches(&mut engine(&index), armed, &miss);
                assert_eq!(found, 0, "{name} sid {}: {part} is wrong: {miss:?}", rule.sid);
                missed += 1;
            }
        }
        println!(
            "{name}: {} rules, {matched} matches, {missed} near-misses; not made: {reasons:?}",
            rules.len()
        );
        assert!(matched as f64 >= least * rules.len() as f64, "{name}: {matched}");
        assert!(missed >= matched);
    }
}

#[test]
fn rules_match_traffic_made_for_them_and_no_near_miss() {
    judge_sets(0.8);
}
