//! Properties of all texts: the canonical text means the same, errors point into the text, nothing panics.

use fyke_filter::{Options, compile};
use fyke_frame::{Frame, LinkType, link};
use fyke_testkit::filter_text::{SPECIAL, Values, filter_text};
use fyke_testkit::random::Random;

fn options(random: &mut Random) -> Options {
    let links: Vec<LinkType> = link::all().map(|link| link.numbers[0]).collect();
    Options {
        link: if random.chance(2) { LinkType::EN10MB } else { random.pick(&links) },
        netmask: Some(0xffff_0000),
        live: random.chance(4),
        ..Options::default()
    }
}

#[test]
fn the_canonical_text_parses_back_to_an_equal_predicate() {
    let (mut random, seed) = Random::seeded(21);
    let mut values = Values::common();
    let mut right = 0;
    for _ in 0..20_000 {
        values.terms = if random.chance(2) { SPECIAL } else { &[] };
        let text = filter_text(&mut random, &values);
        let options = options(&mut random);
        let Ok(predicate) = compile(&text, &options) else { continue };
        right += 1;
        let canonical = predicate.to_string();
        let again = compile(&canonical, &options)
            .unwrap_or_else(|error| panic!("seed {seed}, {text:?} became {canonical:?}: {error}"));
        assert!(predicate == again, "seed {seed}, {text:?} became {canonical:?}");
        assert_eq!(canonical, again.to_string(), "seed {seed}, {text:?}");
        for primitive in predicate.root().primitives() {
            assert!(text.get(primitive.span.clone()).is_some(), "seed {seed}, {text:?}");
        }
    }
    assert!(right > 5_000, "{right} of the texts were right");
}

/// Pieces of texts, right and wrong.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "ip", "tcp", "port", "host", "net", "80", "0x", "0x1f", "1.2.3.4", "::1", "0:1:2:3:4:5", "(",
    ")", "[", "]", ":", "and", "or", "not", "!", "=", "<", "<<", "-", "+", "%", "^", "&", "|",
    "/", "\\", "\\tcp", "$1", "é", "\n", "\0", "vlan", "mpls", "pppoes", "len", "less", "byte",
    "src", "dst", "gateway", "protochain", "geneve", "llc", "mask", "proto", "portrange", "1-2",
    "http", "ether", "broadcast", "tcpflags", "99999999999", "08", "1.2.3.4/33", "0:0:0:",
    "type", "wlan", "ra", "_",
];

#[test]
fn no_text_panics_and_errors_point_into_it() {
    let (mut random, seed) = Random::seeded(22);
    for _ in 0..50_000 {
        let mut text = String::new();
        for _ in 0..random.below(12) {
            text.push_str(random.pick(PIECES));
            if !random.chance(4) {
                text.push(' ');
            }
        }
        match compile(&text, &options(&mut random)) {
            Ok(predicate) => drop(predicate.accepts(&Frame::new(LinkType::EN10MB, &[0x45; 60]))),
            Err(error) => {
                let span = error.span();
                assert!(span.start <= span.end && span.end <= text.len(), "seed {seed}, {text:?}");
                let shown = error.to_string();
                assert!(shown.lines().any(|line| line.trim_start().starts_with('^')), "{shown}");
            }
        }
    }
}

#[test]
fn verdicts_of_any_bytes_are_an_answer() {
    let (mut random, _) = Random::seeded(23);
    let values = Values::common();
    for _ in 0..2_000 {
        let text = filter_text(&mut random, &values);
        let options = options(&mut random);
        let Ok(predicate) = compile(&text, &options) else { continue };
        for _ in 0..20 {
            let bytes: Vec<u8> = (0..random.below(90)).map(|_| random.number() as u8).collect();
            let mut frame = Frame::new(options.link, &bytes);
            frame.wire_len = random.number() as u32;
            let holds = predicate.holds(&frame);
            assert_eq!(predicate.accepts(&frame), holds == Ok(true));
        }
    }
}

#[test]
fn every_prefix_of_a_text_is_an_answer() {
    let mut random = Random::new(24);
    let values = Values { terms: SPECIAL, ..Values::common() };
    for _ in 0..500 {
        let text = filter_text(&mut random, &values);
        let options = options(&mut random);
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            if let Err(error) = compile(&text[..end], &options) {
                assert!(error.span().end <= end.max(1), "{:?}: {error}", &text[..end]);
            }
        }
    }
}
