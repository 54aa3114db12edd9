//! Every filter has the same meaning in fyke and in the installed libpcap.
//!
//! Texts: texts in real use, texts of all kinds, valid and invalid, and a seeded walk through the grammar. Frames:
//! a sample of the corpus, whole, truncated and corrupted. Both sides must accept or refuse each text; the oracle
//! must give libpcap's verdict for each frame.
//!
//! libpcap contradicts itself on some truncated frames: its optimiser removes loads without a use of the value and
//! moves tests, so that a load out of bounds is not executed, or earlier. Those verdicts are counted and printed; a
//! result equal to either counts as equal.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod filter_support;

use filter_support::{Reference, Tally, frames, libpcap, options, spoilt};
use fyke_filter::compile;
use fyke_frame::LinkType;
use fyke_testkit::conformance::Conformance;
use fyke_testkit::corpus::{Corpus, Expression};
use fyke_testkit::random::Random;

#[test]
fn real_filters_mean_the_same() {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return };
    let mut random = Random::new(1);
    let link = LinkType::EN10MB;
    let mut sample = frames(&libpcap, &corpus, link, 100);
    sample.extend(spoilt(&mut random, &frames(&libpcap, &corpus, link, 3)));
    let mut tally = Tally::default();
    for (text, name) in corpus.real_filters() {
        if name != link.to_string() {
            continue;
        }
        let options = options(link);
        let reference = Reference::new(&libpcap, &options, &text);
        if let Some(readings) = tally.text(&options, &text, &reference) {
            tally.frames(readings, sample.iter());
        }
    }
    assert!(tally.texts > 100);
    tally.finish("real filters");
}

/// Pieces of texts; none is a name that would cause a DNS look-up.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "ip", "tcp", "udp", "ip6", "arp", "ether", "icmp6", "isis", "port", "host", "net", "proto",
    "portrange", "src", "dst", "80", "22", "0x1f", "017", "10.0.0.1", "10.1", "10.0.0.0/8",
    "10.0.0.0 mask 255.0.0.0", "::1", "fe80::/10", "0:1:2:3:4:5", "80-90", "(", "(", ")", ")",
    "[", "]", ":", "and", "or", "not", "!", "&&", "||", "=", "<", ">=", "!=", "<<", "-", "+",
    "%", "^", "&", "|", "/", "*", "vlan", "mpls", "pppoes", "pppoed", "len", "less", "greater",
    "byte", "broadcast", "multicast", "tcpflags", "tcp-syn", "icmp-echo", "ip[0]", "tcp[13]",
    "len > 5", "ether[0:2]", "src or dst", "dst and src", "llc", "inbound", "ifindex", "gateway",
    "ra", "1 = 1", "l2",
];

#[test]
fn texts_of_random_words_are_accepted_alike() {
    let Some(libpcap) = libpcap() else { return };
    let (mut random, seed) = Random::seeded(31);
    println!("seed {seed}");
    let mut tally = Tally::default();
    for _ in 0..30_000 {
        let words = 1 + random.below(9);
        let text: Vec<&str> = (0..words).map(|_| random.pick(PIECES)).collect();
        let text = text.join(if random.chance(4) { "" } else { " " });
        // Words run together can become host names, which would cause a DNS look-up.
        let options = options(LinkType::EN10MB);
        let named =
            compile(&text, &options).is_err_and(|error| error.message().contains("the host"));
        if !named {
            let reference = Reference::new(&libpcap, &options, &text);
            let right = tally.text(&options, &text, &reference).is_some();
            tally.accepted += usize::from(right);
        }
    }
    assert!(tally.accepted > 500, "{} texts were right", tally.accepted);
    tally.finish("random words");
}

#[test]
fn the_conformance_corpus_is_libpcaps_opinion() {
    let Some(libpcap) = libpcap() else { return };
    let corpus = Conformance::load();
    for case in &corpus.cases {
        let link = LinkType::from_name(&case.link).expect("a known link type");
        let reference = Reference::new(&libpcap, &options(link), &case.text);
        for program in [&reference.plain, &reference.optimized] {
            let program = program.as_ref().unwrap_or_else(|error| panic!("{}: {error}", case.name));
            for verdict in corpus.verdicts(case) {
                let accepted = program.matches(&verdict.data, verdict.wire_len);
                assert_eq!(accepted, verdict.accepted, "{} on {}", case.name, verdict.frame);
            }
        }
    }
    for case in &corpus.refused {
        let link = LinkType::from_name(&case.link).expect("a known link type");
        let reference = Reference::new(&libpcap, &options(link), &case.text);
        assert!(reference.optimized.is_err(), "libpcap accepts {:?}", case.text);
    }
}

#[test]
fn texts_of_all_kinds_mean_the_same() {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return };
    let mut tally = Tally::default();
    let (mut other_links, mut other_version, mut names) = (0, 0, 0);
    let mut random = Random::new(2);
    let mut sample = std::collections::HashMap::new();
    for Expression { text, link: name, is_right, is_own } in corpus.expressions() {
        let Some(link) = LinkType::from_name(&name) else {
            other_links += 1;
            continue;
        };
        if text.to_lowercase().contains("libpcap.test") {
            names += 1;
            continue;
        }
        let options = options(link);
        let reference = Reference::new(&libpcap, &options, &text);
        // The shared texts are from libpcap's own test suite, which is newer than the installed library.
        let is_accepted = reference.optimized.is_ok();
        assert!(!is_own || is_accepted == is_right, "{name} {text:?}: libpcap: {is_accepted}");
        other_version += usize::from(is_accepted != is_right);
        if let Some(readings) = tally.text(&options, &text, &reference) {
            let frames = sample.entry(link).or_insert_with(|| {
                let frames = frames(&libpcap, &corpus, link, 3);
                spoilt(&mut random, &frames)
            });
            tally.frames(readings, frames.iter());
        }
    }
    println!(
        "left out: {other_links} cases of other link types, {names} with names of hosts that only \
         the suite's own machine knows; the installed libpcap differs in {other_version} cases"
    );
    assert!(tally.texts > 1000);
    tally.finish("texts of all kinds");
}
