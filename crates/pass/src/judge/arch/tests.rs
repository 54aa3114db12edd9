//! All levels of this processor against each other and against plain arithmetic, on random frames and tests.

use super::*;
use crate::isa::value_set::ValueSet;
use crate::plan::word_test::WordTest;
use fyke_frame::{Frame, LinkType};
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

fn random_frames(random: &mut Random, round: u32) -> Vec<Vec<u8>> {
    let count = if round < 40 { round } else { random.below(257) };
    let shortest = [0, 0, 40, 69][random.below(4) as usize];
    let bytes = |random: &mut Random| {
        let len = shortest + random.below(70 - shortest);
        (0..len).map(|_| random.next() as u8).collect()
    };
    (0..count).map(|_| bytes(random)).collect()
}

fn batch_of(bytes: &[Vec<u8>]) -> Batch<'_> {
    let mut batch = Batch::new();
    for data in bytes {
        batch.push(Frame::new(LinkType::EN10MB, data)).expect("room");
    }
    batch
}

/// Frames of all lengths around every edge of a chunk, in batches of all sizes.
#[test]
fn all_levels_load_the_same_words() {
    let mut random = Random(5);
    for round in 0..300 {
        let bytes = random_frames(&mut random, round);
        let batch = batch_of(&bytes);
        let offsets: Vec<u32> = (0..1 + random.below(4)).map(|_| random.below(60)).collect();
        let groups = random.next() as u16;
        let mut expected = vec![[Words([7; BATCH_CAPACITY]); 4]; offsets.len()];
        for group in (0..16).filter(|group| groups >> group & 1 == 1) {
            for (at, frame) in bytes.iter().enumerate().skip(group * 16).take(16) {
                for (&offset, one_chunk) in offsets.iter().zip(&mut expected) {
                    for (lane, words) in one_chunk.iter_mut().enumerate() {
                        let byte = |index| {
                            let place = offset as usize + 4 * lane + index;
                            u32::from(frame.get(place).copied().unwrap_or(0))
                        };
                        words.0[at] = (0..4).rev().fold(0, |word, index| word << 8 | byte(index));
                    }
                }
            }
        }
        for level in Level::all() {
            let mut chunk_words = vec![[Words([7; BATCH_CAPACITY]); 4]; offsets.len()];
            level.load(&batch, &offsets, groups, &mut chunk_words);
            for (words, expected) in chunk_words.iter().flatten().zip(expected.iter().flatten()) {
                let count = bytes.len();
                assert_eq!(words.0, expected.0, "{level}, {count} frames, offsets {offsets:?}");
            }
        }
    }
}

/// Lengths, header lengths, and words as numbers.
#[test]
fn all_levels_compare_lengths_and_numbers_alike() {
    let mut random = Random(7);
    for round in 0..300 {
        let bytes = random_frames(&mut random, round);
        let batch = batch_of(&bytes);
        let words = Words(std::array::from_fn(|_| random.next()));
        let (limit, fixed) = (random.below(80), [random.below(70), u32::MAX][round as usize % 2]);
        let shift = [0, 8, 16, 24][random.below(4) as usize];
        let mask = [u32::MAX, 0xffff, 0xff][random.below(3) as usize];
        let number = |at: usize| u32::from_be_bytes(words.0[at].to_le_bytes()) >> shift;
        let all = batch.all();
        let (mut long, mut reaching) = (Mask::EMPTY, Mask::EMPTY);
        for (at, data) in bytes.iter().enumerate() {
            if data.len() >= limit as usize {
                long.set(at);
            }
            if data.len() >= fixed as usize + 4 * (number(at) as usize & 0xf) {
                reaching.set(at);
            }
        }
        for level in Level::all() {
            let lengths = &batch.lengths().0;
            assert_eq!(level.at_least(lengths, limit, all), long, "{level}");
            let header = (&words, shift);
            assert_eq!(level.reaches(header, fixed, lengths, all), reaching, "{level}");
            let mut out = [0; BATCH_CAPACITY];
            let some = Mask(std::array::from_fn(|_| u64::from(random.next()) * 0x8000_0001));
            let some = if round % 3 == 0 { Mask::first(BATCH_CAPACITY) } else { some };
            level.numbers((&words, shift), mask, some, &mut out);
            assert!(some.iter().zip(out).all(|(at, out)| out == number(at) & mask), "{level}");
        }
    }
}

/// Several words at once, and both halves of a word.
#[test]
fn all_levels_compare_several_words_alike() {
    let mut random = Random(8);
    for _ in 0..1_000 {
        let columns: Vec<Words> = (0..TERMS)
            .map(|_| Words(std::array::from_fn(|_| random.below(3) << 16 | random.below(3))))
            .collect();
        let terms: Vec<Term> = columns[..random.below(TERMS as u32 + 1) as usize]
            .iter()
            .map(|words| {
                let mask = [u32::MAX, 0xffff, 0xffff_0000, 1, 0][random.below(5) as usize];
                Term { words, mask, value: (random.below(3) << 16 | random.below(3)) & mask }
            })
            .collect();
        let halves: Vec<u16> = (0..random.below(4)).map(|_| random.below(5) as u16).collect();
        let among = Mask(std::array::from_fn(|_| u64::from(random.next()) * 0x1_0000_0001));
        let (mut all, mut any) = (Mask::EMPTY, Mask::EMPTY);
        for at in among.iter() {
            if terms.iter().all(|term| term.words.0[at] & term.mask == term.value) {
                all.set(at);
            }
            let word = columns[0].0[at];
            if halves.iter().any(|&half| half == word as u16 || half == (word >> 16) as u16) {
                any.set(at);
            }
        }
        for level in Level::all() {
            assert_eq!(level.all_of(&terms, among), all, "{level}");
            assert_eq!(level.halves(&columns[0], among, &halves), any, "{level}");
        }
    }
}

fn random_test(random: &mut Random) -> WordTest {
    let mask = [u32::MAX, 0xffff, 0x0fff, 0xff00_0000, 0][random.below(5) as usize];
    let value = |random: &mut Random| {
        let value = [random.next(), random.below(64), 0, u32::MAX][random.below(4) as usize];
        value & mask
    };
    let values = |random: &mut Random, most: u32| -> Vec<u32> {
        (0..random.below(most)).map(|_| value(random)).collect()
    };
    let shift = [0, 8, 16, 24][random.below(4) as usize];
    match random.below(5) {
        0 => WordTest::equal(mask, value(random), shift),
        1 => WordTest::one_of(mask, &values(random, 15), shift),
        2 => {
            let intervals: Vec<(u32, u32)> =
                (0..random.below(4)).map(|_| (value(random), value(random))).collect();
            WordTest::within(mask, &intervals, shift)
        }
        3 => WordTest::member(mask, &Arc::new(ValueSet::words(&values(random, 60))), shift),
        _ => WordTest::member(mask, &Arc::new(ValueSet::words(&values(random, 4000))), shift),
    }
}

#[test]
fn all_levels_select_the_same_frames() {
    let mut random = Random(6);
    let mut found = 0;
    for _ in 0..3_000 {
        let word_test = random_test(&mut random);
        let small = random.below(3);
        let words = Words(std::array::from_fn(|_| match small {
            0 => random.below(64).swap_bytes(),
            1 => [0, 1 << 24, 5, u32::MAX, 0x00ff_0000][random.below(5) as usize],
            _ => random.next(),
        }));
        let dense = random.below(3);
        let among = Mask(std::array::from_fn(|_| {
            let bits = u64::from(random.next()) << 32 | u64::from(random.next());
            [bits, 0, 1 << (bits & 63)][if random.below(4) == 0 { dense as usize } else { 0 }]
        }));
        let mut expected = Mask::EMPTY;
        among.iter().filter(|&at| word_test.holds(words.0[at])).for_each(|at| expected.set(at));
        found += expected.count();
        for level in Level::all() {
            let selected = level.select(&words, among, &word_test);
            assert_eq!(selected, expected, "{level} {word_test:?}");
        }
    }
    assert!(found > 10_000, "{found}");
}

/// Stencils of one to four words against frames that are equal to them or nearly so, whole and truncated.
#[test]
fn all_levels_lay_stencils_alike() {
    use crate::plan::stencil::{FrameWord, MAX_STENCILS, Stencil};
    let mut random = Random(9);
    let mut found = 0;
    for round in 0..400 {
        let word = |random: &mut Random| {
            let mask = [u32::MAX, 0xffff, 0xff00_0000, 0x0f, 0][random.below(5) as usize];
            FrameWord { offset: random.below(20), mask, value: random.next() & 0x0101_0101 & mask }
        };
        let mut stencils: Vec<Stencil> = (0..20)
            .filter_map(|_| {
                let count = 1 + random.below(4);
                Stencil::new(&(0..count).map(|_| word(&mut random)).collect::<Vec<_>>())
            })
            .collect();
        stencils.truncate(random.below(MAX_STENCILS as u32 + 1) as usize);
        let mut bytes = random_frames(&mut random, round);
        for data in &mut bytes {
            data.iter_mut().for_each(|byte| *byte &= 1);
            if let Some(stencil) = stencils.get(random.below(4) as usize) {
                let place = data.iter_mut().skip(stencil.offset as usize);
                place.zip(stencil.value).for_each(|(byte, value)| *byte = value);
                let at = random.below(80) as usize;
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
        let batch = batch_of(&bytes);
        let reach = stencils.iter().map(Stencil::end).max().unwrap_or(0) as usize;
        for index in 0..4 {
            let mut expected = [0_u64; MAX_STENCILS];
            for (stencil, expected) in stencils.iter().zip(&mut expected) {
                for (bit, data) in bytes.iter().skip(64 * index).take(64).enumerate() {
                    let there = data.iter().skip(stencil.offset as usize);
                    let wanted = stencil.value.iter().zip(&stencil.mask);
                    let same = data.len() >= reach
                        && there.zip(wanted).all(|(byte, (value, mask))| byte & mask == *value);
                    *expected |= u64::from(same) << bit;
                }
                found += expected.count_ones();
            }
            for level in Level::all() {
                assert_eq!(level.stencils(&batch, &stencils, index), expected, "{level}");
            }
        }
    }
    assert!(found > 1_000, "{found}");
}
