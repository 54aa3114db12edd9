//! The checks of the fuzz targets `flow_fragments` and `flow_streams` on seeded input: fragments and segments, some of
//! them damaged.

use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/flow.rs"]
mod checks;
#[path = "../../../fuzz/checks/streams.rs"]
mod streams;

#[test]
fn fragments_of_any_bytes() {
    let (mut random, seed) = Random::seeded(33);
    println!("seed {seed}");
    let mut fragments = 0;
    for _ in 0..500 {
        let mut data = Vec::new();
        for _ in 0..random.below(120) {
            let (offset, more) = (8 * random.below(3) as u16, random.chance(2));
            let (id, ether) = (random.below(12) as u16, Packet::ethernet());
            let packet = match random.chance(2) {
                true => ether.ipv6([0x20; 16], [0x21; 16]).fragment6(id.into(), offset, more),
                false => ether.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(id, offset, more),
            };
            let mut bytes = packet.ip_payload(17, &[7; 24]).build();
            if random.chance(6) {
                let at = random.below(bytes.len());
                bytes[at] = random.number() as u8;
            }
            data.extend([random.number() as u8 & 0x1f, bytes.len() as u8]);
            data.extend(bytes);
        }
        fragments += checks::fragments(&data);
    }
    assert!(fragments > 10_000, "{fragments}");
}

#[test]
fn segments_of_any_bytes() {
    let (mut random, seed) = Random::seeded(34);
    println!("seed {seed}");
    let mut delivered = 0;
    for _ in 0..500 {
        let mut data = vec![random.number() as u8, random.number() as u8];
        for _ in 0..random.below(120) {
            let flags = [0x10, 0x10, 0x10, 0x02, 0x12, 0x11, 0x04][random.below(7)];
            let six = random.chance(5);
            let ip = |ether: Packet| match six {
                true => ether.ipv6([0x20; 16], [0x21; 16]),
                false => ether.ipv4([10, 0, 0, 1], [10, 0, 0, 2]),
            };
            let tcp = ip(Packet::ethernet()).tcp(random.below(30) as u16, 80);
            let tcp = tcp.seq_ack(random.below(400) as u32, 0).flags(flags);
            let mut bytes = tcp.payload(&vec![7; random.below(90)]).build();
            if random.chance(6) {
                let (id, header) = (random.below(4) as u16, if six { 54 } else { 34 });
                let cut = (header + 24).min(bytes.len());
                let (at, more, end) = match random.chance(2) {
                    true => (header, true, cut),
                    false => (cut, false, bytes.len()),
                };
                let offset = (at - header) as u16;
                let part = match six {
                    true => ip(Packet::ethernet()).fragment6(id.into(), offset, more),
                    false => ip(Packet::ethernet()).fragment(id, offset, more),
                };
                bytes = part.ip_payload(6, &bytes[at..end]).build();
            }
            if random.chance(6) {
                let at = random.below(bytes.len());
                bytes[at] = random.number() as u8;
            }
            data.extend([random.number() as u8, bytes.len() as u8]);
            data.extend(bytes);
        }
        delivered += streams::streams(&data);
    }
    assert!(delivered > 100_000, "{delivered}");
}
