//! All levels of this processor against each other and against plain arithmetic, on random frames and tests.

use super::*;
use crate::lanes::Lanes;
use crate::set::ValueSet;
use fyke_frame::LinkType;
use std::sync::Arc;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.next() % limit
    }
}

/// Frames of all lengths around every edge of a window, in batches of all sizes.
#[test]
fn all_levels_load_the_same_words() {
    let mut random = Random(5);
    for round in 0..300 {
        let count = if round < 40 { round } else { random.below(257) };
        let bytes: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let len = random.below(70);
                (0..len).map(|_| random.next() as u8).collect()
            })
            .collect();
        let frames: Vec<Frame> =
            bytes.iter().map(|data| Frame::new(LinkType::EN10MB, data)).collect();
        let offset = random.below(60) as usize;
        let groups = random.next() as u16;
        let mut expected = [Words([7; BATCH_CAPACITY]); 4];
        for group in (0..16).filter(|group| groups >> group & 1 == 1) {
            for at in group * 16..group * 16 + 16 {
                for (lane, words) in expected.iter_mut().enumerate() {
                    let byte = |index| {
                        let data = bytes.get(at).map_or(&[][..], |data| data);
                        u32::from(data.get(offset + 4 * lane + index).copied().unwrap_or(0))
                    };
                    words.0[at] = (0..4).fold(0, |word, index| word << 8 | byte(index));
                }
            }
        }
        for level in Level::all() {
            let mut quad = [Words([7; BATCH_CAPACITY]); 4];
            level.load(&frames, offset, groups, &mut quad);
            for (words, expected) in quad.iter().zip(&expected) {
                assert_eq!(words.0, expected.0, "{level}, {count} frames, offset {offset}");
            }
        }
    }
}

fn random_lanes(random: &mut Random) -> Lanes {
    let mask = [u32::MAX, 0xffff, 0x0fff, 0xff00_0000, 0][random.below(5) as usize];
    let value = |random: &mut Random| {
        let value = [random.next(), random.below(64), 0, u32::MAX][random.below(4) as usize];
        value & mask
    };
    let values = |random: &mut Random, most: u32| -> Vec<u32> {
        (0..random.below(most)).map(|_| value(random)).collect()
    };
    match random.below(5) {
        0 => Lanes::Equal { mask, value: value(random) },
        1 => Lanes::one_of(mask, &values(random, 15)),
        2 => {
            let intervals: Vec<(u32, u32)> =
                (0..random.below(4)).map(|_| (value(random), value(random))).collect();
            Lanes::within(mask, &intervals)
        }
        3 => Lanes::member(mask, &Arc::new(ValueSet::words(&values(random, 60)))),
        _ => Lanes::member(mask, &Arc::new(ValueSet::words(&values(random, 4000)))),
    }
}

#[test]
fn all_levels_select_the_same_frames() {
    let mut random = Random(6);
    let mut found = 0;
    for _ in 0..3_000 {
        let lanes = random_lanes(&mut random);
        let small = random.below(3);
        let words = Words(std::array::from_fn(|_| match small {
            0 => random.below(64),
            1 => [0, 1, 5, u32::MAX, 0x00ff_0000][random.below(5) as usize],
            _ => random.next(),
        }));
        let dense = random.below(3);
        let among = Mask(std::array::from_fn(|_| {
            let bits = u64::from(random.next()) << 32 | u64::from(random.next());
            [bits, 0, 1 << (bits & 63)][if random.below(4) == 0 { dense as usize } else { 0 }]
        }));
        let shift = [0, 8, 16, 24][random.below(4) as usize];
        let mut expected = Mask::EMPTY;
        among
            .iter()
            .filter(|&at| lanes.holds(words.0[at] >> shift))
            .for_each(|at| expected.set(at));
        found += expected.count();
        for level in Level::all() {
            let selected = level.select(&words, shift, among, &lanes);
            assert_eq!(selected, expected, "{level} {lanes:?}");
        }
    }
    assert!(found > 10_000, "{found}");
}
