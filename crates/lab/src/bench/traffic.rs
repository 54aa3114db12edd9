//! The seeded generator of frames, with a mix as on a campus link.
//!
//! TCP and UDP over a skewed choice of flows, ICMP, GRE and ESP, ARP (2 %), VLAN tags (4 %), IPv6 (12 % of the
//! flows), IPv4 options (1 %), later fragments (2 %), and sizes in three groups: 42 % small, 26 % full, the rest
//! between. It takes about a microsecond per frame. Enough addresses match those of the papers' filters for them to
//! accept some frames.

use super::filters::HOSTS_38;
pub use crate::random::Random;

/// One end of a flow.
pub type End = (u32, u16);

/// A flow of the generator.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    /// Both ends; IPv6 flows derive their addresses from them.
    pub ends: [End; 2],
    /// IP protocol number: 6 or 17.
    pub protocol: u8,
    /// True if it is carried over IPv6.
    pub ipv6: bool,
}

/// The generator.
#[derive(Debug)]
pub struct Traffic {
    random: Random,
    flows: Vec<Flow>,
}

const FLOWS: usize = 50_000;
const SERVICES: [u16; 25] = [
    443, 443, 443, 443, 443, 443, 443, 443, 80, 80, 80, 80, 80, 22, 22, 25, 25, 143, 110, 21, 21,
    8080, 3306, 993, 5222,
];

impl Traffic {
    /// Creates a generator; the same seed gives the same frames on every machine.
    pub fn new(seed: u64) -> Traffic {
        let mut random = Random::new(seed);
        let flows = flows(&mut random);
        Traffic { random, flows }
    }

    /// Flows that the frames belong to.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Writes the next frame into `frame`.
    pub fn next(&mut self, frame: &mut Vec<u8>) {
        let random = &mut self.random;
        frame.clear();
        frame.extend((0..12).map(|_| random.number() as u8));
        let kind = random.below(100);
        let flow = self.flows[random.skewed(FLOWS)];
        let swap = random.below(2);
        let (from, to) = (flow.ends[swap], flow.ends[1 - swap]);
        if kind < 2 {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
            frame.extend(from.0.to_be_bytes());
            frame.extend([0; 6]);
            frame.extend(to.0.to_be_bytes());
            frame.resize(60, 0);
            return;
        }
        if kind < 6 {
            frame.extend([0x81, 0, 0, random.below(200) as u8]);
        }
        let total = match random.below(100) {
            0..42 => 60 + random.below(40),
            42..68 => 1514,
            _ => 100 + random.below(1400),
        };
        if flow.ipv6 {
            ipv6(random, frame, flow.protocol, from, to, total);
        } else {
            ipv4(random, frame, flow.protocol, from, to, total);
        }
        frame.resize(frame.len().max(60), 0);
    }
}

fn flows(random: &mut Random) -> Vec<Flow> {
    let near: Vec<u32> = (0..250).map(|i| 0xc0a8_0201 + (i * 37) % 250).collect();
    let mut inside: Vec<u32> =
        (0..3000).map(|_| 0x0a00_0000 | (random.number() as u32 & 0x00ff_ffff)).collect();
    for (index, host) in HOSTS_38.iter().enumerate() {
        inside[60 * (index % 48) + 7] = u32::from_be_bytes(*host);
    }
    let outside: Vec<u32> = (0..22_000)
        .map(|_| (1 + random.below(220) as u32) << 24 | (random.number() as u32 & 0x00ff_ffff))
        .collect();
    let pick = |random: &mut Random, pool: &[u32]| pool[random.skewed(pool.len())];
    let flow = |_| {
        let (one, other) = match random.below(100) {
            0..12 => (pick(random, &near), pick(random, &inside)),
            12..70 => (pick(random, &inside), pick(random, &outside)),
            70..75 => (pick(random, &near), pick(random, &outside)),
            _ => (pick(random, &outside), pick(random, &outside)),
        };
        let protocol = if random.below(100) < 70 { 6 } else { 17 };
        let high = 1024 + random.below(64_000) as u16;
        let port = match (protocol, random.below(100)) {
            (6, 0..78) => SERVICES[random.below(SERVICES.len())],
            (17, 0..40) => 53,
            (17, 40..70) => 443,
            _ => 1024 + random.below(64_000) as u16,
        };
        Flow { ends: [(one, high), (other, port)], protocol, ipv6: random.below(100) < 12 }
    };
    (0..FLOWS).map(flow).collect()
}

/// Appends the transport header and a payload, so that the frame has `total` bytes.
fn transport(
    random: &mut Random,
    frame: &mut Vec<u8>,
    protocol: u8,
    ports: [u16; 2],
    total: usize,
) {
    frame.extend(ports[0].to_be_bytes());
    frame.extend(ports[1].to_be_bytes());
    if protocol == 6 {
        frame.extend((random.number() as u32).to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x80, if random.below(10) == 0 { 0x18 } else { 0x10 }]);
    }
    frame.resize(total.max(frame.len() + 12), 0);
}

fn ipv6(random: &mut Random, frame: &mut Vec<u8>, protocol: u8, from: End, to: End, total: usize) {
    let protocol = if random.below(100) < 4 { 58 } else { protocol };
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    let payload = total.saturating_sub(frame.len() + 36).max(20) as u16;
    frame.extend(payload.to_be_bytes());
    frame.extend([protocol, 64]);
    for (prefix, address) in [([0x20, 1, 0xd, 0xb8], from.0), ([0x2a, 0, 0x14, 0x50], to.0)] {
        frame.extend(prefix);
        frame.extend([0; 8]);
        frame.extend(address.to_be_bytes());
    }
    transport(random, frame, protocol, [from.1, to.1], total.max(78));
}

fn ipv4(random: &mut Random, frame: &mut Vec<u8>, protocol: u8, from: End, to: End, total: usize) {
    let protocol = match random.below(200) {
        0..8 => 1,
        8 => [47, 50][random.below(2)],
        _ => protocol,
    };
    let words = if random.below(100) == 0 { 6 + random.below(4) } else { 5 };
    frame.extend([8, 0]);
    let start = frame.len();
    let fragment = random.below(100) < 2;
    let place = 185 * (1 + random.below(4)) as u16;
    let offset = place + 0x2000 * random.below(2) as u16;
    let flags = if fragment { offset } else { 0x4000 };
    let length = total.saturating_sub(start).max(4 * words + 20) as u16;
    frame.extend([0x40 | words as u8, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend((random.number() as u16).to_be_bytes());
    frame.extend(flags.to_be_bytes());
    frame.extend([64 - random.below(20) as u8, protocol, 0, 0]);
    frame.extend(from.0.to_be_bytes());
    frame.extend(to.0.to_be_bytes());
    frame.resize(start + 4 * words, 1);
    if fragment {
        frame.extend((0..20).map(|_| random.number() as u8));
        frame.resize(total.max(frame.len()), 0);
    } else {
        transport(random, frame, protocol, [from.1, to.1], total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_as_announced() {
        let (mut one, mut other) = (Traffic::new(5), Traffic::new(5));
        let (mut frame, mut same) = (Vec::new(), Vec::new());
        let (mut arp, mut v6, mut tagged, mut fragments) = (0, 0, 0, 0);
        for _ in 0..20_000 {
            one.next(&mut frame);
            other.next(&mut same);
            assert_eq!(frame, same);
            assert!((60..=1540).contains(&frame.len()), "{}", frame.len());
            match (frame[12], frame[13]) {
                (8, 6) => arp += 1,
                (0x86, 0xdd) => v6 += 1,
                (0x81, 0) => tagged += 1,
                _ => fragments += usize::from(frame[20] & 0x1f != 0 || frame[21] != 0),
            }
        }
        assert!((200..600).contains(&arp) && (500..1_200).contains(&tagged));
        assert!((1_200..3_600).contains(&v6), "{v6}");
        assert!((150..600).contains(&fragments), "{fragments}");
    }
}
