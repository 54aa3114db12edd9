//! Blocks in the kernel's format, built by the tests: damaged ones are refused.

use super::block::{self, Damaged, Shape, Walk};
use crate::cooked::OUTGOING;
use fyke_frame::LinkType;

const BLOCK: usize = 4096;

/// A block of frames with 40 bytes of payload each, at offset 96 of their frame.
fn filled(frames: u32, tci: u32) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[12..16].copy_from_slice(&frames.to_ne_bytes());
    block[16..20].copy_from_slice(&48u32.to_ne_bytes());
    for number in 0..frames as usize {
        let frame = &mut block[48 + number * 144..][..144];
        let last = number + 1 == frames as usize;
        let words = [if last { 0 } else { 144 }, 7, number as u32, 40, 60, 1];
        for (at, word) in words.into_iter().enumerate() {
            frame[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
        frame[24..26].copy_from_slice(&96u16.to_ne_bytes());
        frame[32..36].copy_from_slice(&tci.to_ne_bytes());
        frame[50..52].copy_from_slice(&[0x08, 0x00]);
        frame[52..56].copy_from_slice(&(number as u32 % 3).to_ne_bytes());
        frame[58] = OUTGOING;
        frame[96..136].fill(number as u8 + 1);
    }
    block
}

fn shape(link: LinkType) -> Shape {
    Shape { link, snaplen: 1000, loopback: 2 }
}

#[test]
fn a_block_is_prepared_once_and_seen_again() {
    for (link, more) in [
        (LinkType::EN10MB, 0),
        (LinkType::LINUX_SLL, 16),
        (LinkType::LINUX_SLL2, 20),
        (LinkType::RAW, 0),
    ] {
        for tci in [0, 5] {
            let mut block = filled(20, tci);
            // Raw IP has no field for a tag.
            let tag = if tci != 0 && link != LinkType::RAW { 4 } else { 0 };
            let mut walk = block::start(&block).expect("sound");
            let (mut first, mut again) = (Vec::new(), Vec::new());
            while walk.left > 0 {
                let view = block::prepare(&mut block, &mut walk, &shape(link)).expect("sound");
                assert_eq!((view.captured, view.wire_len), (40 + more + tag, 60 + more + tag));
                assert_eq!(view.ignored, view.ifindex == 2);
                first.push((view.data_at, view.captured, view.timestamp_ns));
            }
            let seen_first = block.clone();
            let mut walk = Walk { at: 48, left: 20 };
            while walk.left > 0 {
                let view = block::view(&block, &mut walk, &shape(link)).expect("sound");
                again.push((view.data_at, view.captured, view.timestamp_ns));
            }
            assert_eq!(first, again);
            assert!(block == seen_first);
            let start = first[1].0 as usize;
            assert!(block[start..][..first[1].1 as usize].ends_with(&[2; 28]));
        }
    }
}

#[test]
fn numbers_that_do_not_add_up() {
    // Offset in the first frame, value, and true if the next frame cannot be found because of it.
    let wrong: [(usize, &[u8]); 5] = [
        (0, &[0, 0, 0, 0]),
        (0, &[0xff, 0xff, 0xff, 0xff]),
        (12, &[0, 0, 1, 0]),
        (24, &[67, 0]),
        (24, &[0xff, 0xff]),
    ];
    for (at, bytes) in wrong {
        let mut block = filled(3, 0);
        block[48 + at..48 + at + bytes.len()].copy_from_slice(bytes);
        let mut walk = block::start(&block).expect("sound");
        let prepared = block::prepare(&mut block, &mut walk, &shape(LinkType::EN10MB));
        assert_eq!(prepared.err(), Some(Damaged(48)), "{at}: {bytes:?}");
    }
    // There is no space in front for a cooked header and a tag.
    let mut block = filled(3, 5);
    block[48 + 24] = 68 + 20;
    let mut walk = block::start(&block).expect("sound");
    let prepared = block::prepare(&mut block, &mut walk, &shape(LinkType::LINUX_SLL2));
    assert_eq!(prepared.err(), Some(Damaged(48)));
}

#[test]
fn random_bytes_neither_panic_nor_hang() {
    let mut random = 99u64;
    let mut roll = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as u32
    };
    for round in 0..3000u32 {
        let link =
            [LinkType::EN10MB, LinkType::LINUX_SLL, LinkType::LINUX_SLL2][round as usize % 3];
        let mut block = filled(20, round & 1);
        for _ in 0..1 + roll() % 8 {
            let at = (roll() % 200) as usize;
            block[at] = roll() as u8;
        }
        let Ok(mut walk) = block::start(&block) else { continue };
        while walk.left > 0 {
            let Ok(view) = block::prepare(&mut block, &mut walk, &shape(link)) else { break };
            let end = view.data_at as usize + view.captured as usize;
            assert!(end <= BLOCK, "round {round}");
        }
    }
}
