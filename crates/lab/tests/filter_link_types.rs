//! Generated texts have the same meaning in fyke and in the installed libpcap, for every link type that it
//! supports.
//!
//! Texts: a seeded walk through the grammar, with the words of the link types. Frames: those of the corpus, and
//! Ethernet frames converted to the link type, each whole, truncated and corrupted. Each text is compiled with
//! libpcap's optimiser and without. `FYKE_PAIRS` sets the number of pairs of a text and a frame for each link type,
//! `FYKE_SEED` the seed, `FYKE_LINK` selects a single link type.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod filter_support;

use filter_support::{Reference, Tally, frames, libpcap, options, spoilt};
use fyke_filter::Options;
use fyke_frame::LinkType;
use fyke_frame::link;
use fyke_lab::peers::libpcap::Libpcap;
use fyke_testkit::corpus::Corpus;
use fyke_testkit::filter_text::{SPECIAL, Values, filter_text};
use fyke_testkit::random::Random;

/// Default number of pairs for a link type.
const PAIRS: usize = 60_000;
/// Number of frames for each text.
const FRAMES_PER_TEXT: usize = 60;

fn pairs() -> usize {
    std::env::var("FYKE_PAIRS").ok().and_then(|pairs| pairs.parse().ok()).unwrap_or(PAIRS)
}

/// Compares one link type; returns the number of differences.
fn generated(libpcap: &Libpcap, corpus: &Corpus, link: LinkType) -> usize {
    let (_, seed) = Random::seeded(1000);
    // Each link type has texts of its own.
    let mut random = Random::new(seed.wrapping_add(u64::from(link.0) << 32));
    let frames = frames(libpcap, corpus, link, 6);
    let mut values = Values::common();
    let frames = spoilt(&mut random, &frames);
    for frame in &frames {
        if random.chance(20) {
            values.learn(&frame.data);
        }
    }
    let special = random.chance(2) || link != LinkType::EN10MB;
    let mut tally = Tally::default();
    let (pairs, mut texts) = (pairs(), 0);
    while tally.verdicts < pairs && texts < pairs {
        texts += 1;
        values.terms = if special && !random.chance(3) { SPECIAL } else { &[] };
        let text = filter_text(&mut random, &values);
        let options = Options {
            netmask: random.chance(2).then_some(0xffff_ff00),
            swapped: random.chance(4),
            ..options(link)
        };
        let reference = Reference::new(libpcap, &options, &text);
        let start = random.below(frames.len());
        let some = frames.iter().cycle().skip(start).take(FRAMES_PER_TEXT.min(frames.len()));
        match tally.text(&options, &text, &reference) {
            Some(readings) => tally.frames(readings, some),
            None => tally.never(&text, &options, &reference, some),
        }
    }
    tally.report(&format!("generated for {link} (seed {seed})"))
}

/// Link types by the index of their name in the list, so that four tests share the work.
fn every_fourth(first: usize) {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return };
    let wanted = std::env::var("FYKE_LINK").ok();
    let mut differences = 0;
    for (index, link) in link::all().enumerate() {
        let asked = wanted.as_ref().is_none_or(|name| link.name == name);
        if index % 4 == first && asked {
            differences += generated(&libpcap, &corpus, link.numbers[0]);
        }
    }
    assert_eq!(differences, 0);
}

#[test]
fn first_quarter_of_the_link_types() {
    every_fourth(0);
}

#[test]
fn second_quarter_of_the_link_types() {
    every_fourth(1);
}

#[test]
fn third_quarter_of_the_link_types() {
    every_fourth(2);
}

#[test]
fn fourth_quarter_of_the_link_types() {
    every_fourth(3);
}
