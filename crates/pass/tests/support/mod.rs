//! Seeded generators for the property tests: usual frames, truncated frames, conditions as filter texts make them and
//! unusual conditions.
#![allow(dead_code, reason = "every test file uses its part")]

use fyke_frame::condition::{
    Address6, Base, Compare, Expr, Load, MetaField, Operator, Relation, Source, Width,
};
use fyke_frame::{Batch, Condition, Direction, Frame, LinkType};
use std::sync::Arc;

/// A linear congruential generator; the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

pub const HOSTS: [u32; 6] =
    [0x0a00_0001, 0x0a00_0002, 0xc0a8_0201, 0xc0a8_fe07, 0x0800_0001, 0x7f00_0001];
pub const PORTS: [u16; 6] = [21, 22, 23, 80, 53, 0x0800];

/// Bytes of a frame: mostly well-formed Ethernet, with few distinct values so that tests match.
pub fn frame_bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    bytes[5] = random.below(3) as u8;
    let ethertype = random.pick(&[0x0800_u16, 0x0800, 0x0800, 0x86dd, 0x0806, 0x8035, 0x8100]);
    bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
    match ethertype {
        0x0800 => ipv4(random, &mut bytes),
        0x86dd => ipv6(random, &mut bytes),
        _ => {
            bytes.extend([0, 1, 8, 0, 6, 4, 0, random.below(3) as u8, 2, 2, 2, 2, 2, 2]);
            bytes.extend(random.pick(&HOSTS).to_be_bytes());
            bytes.extend([2, 2, 2, 2, 2, 2]);
            bytes.extend(random.pick(&HOSTS).to_be_bytes());
        }
    }
    if random.chance(25) {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    } else if random.chance(30) {
        bytes.resize(bytes.len().max(60), 0);
    }
    if random.chance(5) && !bytes.is_empty() {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.next() as u8;
    }
    bytes
}

fn ipv4(random: &mut Random, bytes: &mut Vec<u8>) {
    let words = random.pick(&[5_u8, 5, 5, 5, 6, 8, 15, 0, 4]);
    let protocol = random.pick(&[6_u8, 6, 17, 1, 132]);
    let fragment = random.pick(&[0_u16, 0, 0, 0x2000, 0x2005, 0x0003, 0x4000]);
    bytes.extend([0x40 | words, 0, 0, 40, 0, 1]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(random.pick(&HOSTS).to_be_bytes());
    bytes.extend(random.pick(&HOSTS).to_be_bytes());
    bytes.resize(14 + 4 * usize::from(words.max(5)), 0);
    transport(random, bytes);
}

fn ipv6(random: &mut Random, bytes: &mut Vec<u8>) {
    bytes.extend([0x60, 0, 0, 0, 0, 20, random.pick(&[6_u8, 17, 58, 44]), 64]);
    for _ in 0..2 {
        bytes.extend((0x2001_0db8_u128 << 96 | u128::from(random.below(3))).to_be_bytes());
    }
    transport(random, bytes);
}

fn transport(random: &mut Random, bytes: &mut Vec<u8>) {
    bytes.extend(random.pick(&PORTS).to_be_bytes());
    bytes.extend(random.pick(&PORTS).to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, random.below(32) as u8, 0, 9, 0, 0, 0, 0]);
    bytes.extend((0..random.below(12)).map(|value| value as u8));
}

/// Frames over bytes, with lengths and metadata that vary.
pub fn frames<'a>(random: &mut Random, bytes: &'a [Vec<u8>]) -> Vec<Frame<'a>> {
    bytes
        .iter()
        .map(|bytes| {
            let mut frame = Frame::new(LinkType::EN10MB, bytes);
            frame.wire_len += random.below(3) as u32 * 40;
            frame.meta.ifindex = random.below(3) as u32;
            frame.meta.direction = random.pick(&[Direction::Inbound, Direction::Outbound]);
            frame
        })
        .collect()
}

/// A batch of at most 256 frames.
pub fn batch<'a>(frames: &[Frame<'a>]) -> Batch<'a> {
    let mut batch = Batch::new();
    frames.iter().for_each(|frame| batch.push(*frame).expect("fits and has the same link type"));
    batch
}

pub fn equal(offset: u32, width: Width, mask: u32, value: u32) -> Condition {
    Condition::Load(Load::equal(offset, width, mask, value))
}

pub fn ethertype(value: u32) -> Condition {
    equal(12, Width::Two, 0xffff, value)
}

fn word_at(offset: u32, compare: Compare, mask: u32) -> Condition {
    Condition::Load(Load::at(Base::Frame, offset, Width::Four, mask, compare))
}

/// Source, destination, either or both.
#[derive(Clone, Copy)]
pub enum End {
    Source,
    Destination,
    Either,
    Both,
}

pub fn ends(end: End, test: impl Fn(u32) -> Condition, source: u32, destination: u32) -> Condition {
    match end {
        End::Source => test(source),
        End::Destination => test(destination),
        End::Either => Condition::Any(vec![test(source), test(destination)]),
        End::Both => Condition::All(vec![test(source), test(destination)]),
    }
}

/// `ip [src|dst] net address mask mask`.
pub fn ip_net(end: End, mask: u32, address: u32) -> Condition {
    let test = |offset| word_at(offset, Compare::Equal(address & mask), mask);
    Condition::All(vec![ethertype(0x0800), ends(end, test, 26, 30)])
}

/// `[src|dst] host address`: IPv4, ARP and RARP.
pub fn host(end: End, address: u32) -> Condition {
    net(end, u32::MAX, address)
}

/// `[src|dst] net address mask mask`: IPv4, ARP and RARP.
pub fn net(end: End, mask: u32, address: u32) -> Condition {
    let test = |offset| word_at(offset, Compare::Equal(address & mask), mask);
    Condition::Any(vec![
        Condition::All(vec![ethertype(0x0800), ends(end, test, 26, 30)]),
        Condition::All(vec![ethertype(0x0806), ends(end, test, 28, 38)]),
        Condition::All(vec![ethertype(0x8035), ends(end, test, 28, 38)]),
    ])
}

/// `ip6 [src|dst] net`.
pub fn net6(end: End, bits: u32, value: u128) -> Condition {
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    let test = |offset| Condition::Address6(Address6 { offset, mask, value: value & mask });
    Condition::All(vec![ethertype(0x86dd), ends(end, test, 22, 38)])
}

/// `ip proto number`.
pub fn ip_proto(number: u32) -> Condition {
    Condition::All(vec![ethertype(0x0800), equal(23, Width::One, 0xff, number)])
}

/// `tcp|udp|sctp [src|dst] port`, IPv6 and IPv4, as libpcap orders it.
pub fn port(protocols: &[u32], end: End, compare: &Compare) -> Condition {
    let behind = |offset| {
        let base = Base::IpHeaderEnd { ip: 14 };
        Condition::Load(Load::at(base, offset, Width::Two, 0xffff, compare.clone()))
    };
    let fixed = |offset| {
        Condition::Load(Load::at(Base::Frame, offset, Width::Two, 0xffff, compare.clone()))
    };
    let any = |test: &dyn Fn(u32) -> Condition| {
        Condition::Any(protocols.iter().map(|&protocol| test(protocol)).collect())
    };
    Condition::Any(vec![
        Condition::All(vec![
            ethertype(0x86dd),
            any(&|protocol| {
                Condition::All(vec![
                    equal(20, Width::One, 0xff, protocol),
                    ends(end, fixed, 54, 56),
                ])
            }),
        ]),
        Condition::All(vec![
            ethertype(0x0800),
            any(&|protocol| {
                Condition::All(vec![
                    equal(23, Width::One, 0xff, protocol),
                    equal(20, Width::Two, 0x1fff, 0),
                    ends(end, behind, 0, 2),
                ])
            }),
        ]),
    ])
}

fn random_end(random: &mut Random) -> End {
    random.pick(&[End::Source, End::Destination, End::Either, End::Either, End::Both])
}

fn random_compare(random: &mut Random, values: &[u32]) -> Compare {
    match random.below(4) {
        0 => {
            let (a, b) = (random.pick(values), random.pick(values));
            Compare::Range(a.min(b), a.max(b))
        }
        1 => {
            let mut list: Vec<u32> = (0..3).map(|_| random.pick(values)).collect();
            list.sort_unstable();
            list.dedup();
            Compare::OneOf(list.into())
        }
        _ => Compare::Equal(random.pick(values)),
    }
}

fn random_expr(random: &mut Random, depth: u32) -> Arc<Expr> {
    Arc::new(match random.below(if depth == 0 { 4 } else { 8 }) {
        0 => Expr::Const(random.pick(&[0, 1, 2, 14, 20, 40, 255])),
        1 => Expr::WireLen,
        2 => Expr::IpHeaderLen { ip: 14 },
        3 => Expr::Load {
            index: Arc::new(
                random
                    .pick(&[0_u32, 1])
                    .checked_sub(1)
                    .map_or(Expr::Const(random.below(50) as u32), |_| Expr::IpHeaderLen { ip: 14 }),
            ),
            offset: 14 + random.below(14) as u32,
            width: random.pick(&[Width::One, Width::Two, Width::Four]),
        },
        4 => Expr::Load {
            index: random_expr(random, depth - 1),
            offset: random.below(20) as u32,
            width: random.pick(&[Width::One, Width::Two]),
        },
        5 => Expr::Negate(random_expr(random, depth - 1)),
        _ => {
            let operator = random.pick(&[
                Operator::Add,
                Operator::Sub,
                Operator::Mul,
                Operator::Div,
                Operator::Mod,
                Operator::And,
                Operator::And,
                Operator::Or,
                Operator::Shl,
                Operator::Shr,
            ]);
            Expr::Binary(operator, random_expr(random, depth - 1), random_expr(random, depth - 1))
        }
    })
}

/// A test in the form of a filter text's primitive.
pub fn primitive(random: &mut Random) -> Condition {
    let end = random_end(random);
    let ports: Vec<u32> = PORTS.iter().map(|&port| port.into()).collect();
    match random.below(15) {
        0 | 1 => host(end, random.pick(&HOSTS)),
        2 => {
            ip_net(end, random.pick(&[u32::MAX, 0xff00_0000, 0xffff_ff00, 0]), random.pick(&HOSTS))
        }
        3 => net6(
            end,
            random.pick(&[128, 64, 32, 7, 0]),
            0x2001_0db8_u128 << 96 | u128::from(random.below(3)),
        ),
        4 | 5 => {
            let protocols: &[u32] = random.pick(&[&[6], &[17], &[132, 6, 17]]);
            let compare = random_compare(random, &ports);
            port(protocols, end, &compare)
        }
        6 => ip_proto(random.pick(&[6, 17, 1])),
        7 => ethertype(random.pick(&[0x0800, 0x0806, 0x86dd, 0x8100])),
        8 => {
            let relation =
                random.pick(&[Relation::Equal, Relation::Greater, Relation::GreaterOrEqual]);
            Condition::Relation(relation, random_expr(random, 2), random_expr(random, 1))
        }
        9 => {
            let flags = Arc::new(Expr::Load {
                index: Arc::new(Expr::IpHeaderLen { ip: 14 }),
                offset: 14 + 13,
                width: Width::One,
            });
            let masked =
                Expr::Binary(Operator::And, flags, Arc::new(Expr::Const(random.below(20) as u32)));
            let zero = Arc::new(Expr::Const(random.pick(&[0, 0, 2])));
            let test = Condition::Relation(Relation::Equal, Arc::new(masked), zero);
            Condition::All(vec![ip_proto(6), Condition::Not(Box::new(test))])
        }
        10 => {
            let (low, high) = (random.below(90) as u32, 40 + random.below(90) as u32);
            let compare = Compare::Range(low, high);
            Condition::Load(Load { source: Source::WireLen, mask: u32::MAX, compare })
        }
        11 => {
            let field = random.pick(&[MetaField::Direction, MetaField::IfIndex]);
            let compare = random_compare(random, &[0, 1, 2, 5]);
            Condition::Load(Load { source: Source::Meta(field), mask: u32::MAX, compare })
        }
        12 => tcp_payload(random),
        13 => equal(0, Width::Four, random.pick(&[u32::MAX, 0x0000_00ff]), 0),
        _ => load(random),
    }
}

/// `tcp and tcp[((tcp[12] & 0xf0) >> 2) + n:w] = value`, in the usual ways to write it.
pub fn tcp_payload(random: &mut Random) -> Condition {
    let number = |value| Arc::new(Expr::Const(value));
    let binary = |operator, left, right| Arc::new(Expr::Binary(operator, left, right));
    let add = |left, right| binary(Operator::Add, left, right);
    let ip = || Arc::new(Expr::IpHeaderLen { ip: 14 });
    let field =
        Arc::new(Expr::Load { index: add(ip(), number(12)), offset: 14, width: Width::One });
    let masked = binary(Operator::And, field.clone(), number(0xf0));
    let length = match random.below(5) {
        0 => binary(Operator::Mul, binary(Operator::Shr, field, number(4)), number(4)),
        1 => binary(Operator::Shl, binary(Operator::Shr, masked, number(4)), number(2)),
        2 => binary(Operator::And, binary(Operator::Shr, field, number(2)), number(0x3c)),
        _ => binary(Operator::Shr, masked, number(2)),
    };
    let index = add(add(length, ip()), number(random.below(4) as u32));
    let width = random.pick(&[Width::One, Width::Two, Width::Four]);
    let load = Arc::new(Expr::Load { index, offset: 14, width });
    let (value, relation) = random.pick(&[
        (0x0001_0203, Relation::Equal),
        (0x0001, Relation::Equal),
        (0x01, Relation::Equal),
        (0x0203, Relation::Greater),
        (0, Relation::Equal),
    ]);
    let load = match random.below(3) {
        0 => binary(Operator::And, load, number(random.pick(&[0xff, 0xf0, 0xffff]))),
        _ => load,
    };
    Condition::All(vec![ip_proto(6), Condition::Relation(relation, load, number(value))])
}

/// A test of bytes at any place, unguarded.
pub fn load(random: &mut Random) -> Condition {
    let width = random.pick(&[Width::One, Width::Two, Width::Four]);
    let base = match random.below(5) {
        0 | 1 => Base::IpHeaderEnd { ip: random.pick(&[14, 18]) },
        2 if random.chance(30) => Base::Computed(random_expr(random, 1)),
        _ => Base::Frame,
    };
    let mask = random.pick(&[u32::MAX, 0xff, 0xff00, 0xf0, 0x1fff, 0]);
    let compare = random_compare(random, &[0, 1, 6, 8, 0x0800, 0x45, 0x11, 22]);
    let offset = if random.chance(3) { 70_000 } else { random.below(70) as u32 };
    Condition::Load(Load::at(base, offset, width, mask, compare))
}

/// Primitives, joined in usual ways.
pub fn condition(random: &mut Random, depth: u32) -> Condition {
    if depth == 0 || random.chance(15) {
        return primitive(random);
    }
    match random.below(6) {
        0 => Condition::Not(Box::new(condition(random, depth - 1))),
        1 => {
            // A list of one kind, as in "host a or b or c".
            let end = random_end(random);
            let list = (0..2 + random.below(4)).map(|_| host(end, random.pick(&HOSTS)));
            let list: Vec<Condition> = list.collect();
            match random.below(3) {
                0 => Condition::Any(list),
                1 => Condition::Not(Box::new(Condition::Any(list))),
                _ => Condition::All(
                    list.into_iter().map(|one| Condition::Not(Box::new(one))).collect(),
                ),
            }
        }
        2 | 3 => {
            Condition::All((0..2 + random.below(2)).map(|_| condition(random, depth - 1)).collect())
        }
        4 => {
            Condition::Any((0..2 + random.below(3)).map(|_| condition(random, depth - 1)).collect())
        }
        _ if random.chance(5) => Condition::Const(random.chance(50)),
        _ => Condition::Any((0..random.below(3)).map(|_| load(random)).collect()),
    }
}

/// A list of exceptions, `P and not (…) and not (…) …`; some of them have exceptions themselves.
pub fn exceptions(random: &mut Random, depth: u32) -> Condition {
    let excepted = |random: &mut Random| {
        let mut parts: Vec<Condition> =
            (0..1 + random.below(3)).map(|_| primitive(random)).collect();
        if depth > 0 && random.chance(15) {
            parts.push(exceptions(random, depth - 1));
        }
        let whole = if random.chance(15) { Condition::Any(parts) } else { Condition::All(parts) };
        Condition::Not(Box::new(whole))
    };
    let most = if random.chance(20) { 40 } else { 8 };
    let count = 2 + random.below(most);
    let mut all: Vec<Condition> = (0..count).map(|_| excepted(random)).collect();
    if random.chance(50) {
        all.insert(0, primitive(random));
    }
    if random.chance(15) {
        Condition::Any(vec![primitive(random), Condition::All(all)])
    } else {
        Condition::All(all)
    }
}
