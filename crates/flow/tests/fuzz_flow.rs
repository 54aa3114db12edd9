//! The check of the fuzz target `flow_fragments` on seeded input: fragments, some of them damaged.

use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/flow.rs"]
mod checks;

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
