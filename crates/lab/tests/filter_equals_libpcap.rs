//! Every filter means here what it means to the installed libpcap.
//!
//! Texts: those that people use, libpcap's own test suite, and a seeded walk through the grammar. Frames: a sample of
//! the corpus, whole, cut short and spoilt. For each text both sides accept or refuse it; for each frame the oracle
//! gives libpcap's verdict.
//!
//! libpcap disagrees with itself about some frames that are cut short: its optimiser drops loads whose value does
//! not matter and moves tests, so that a load out of bounds is not made, or made earlier. Those verdicts are counted
//! and printed; they count as equal to either.

use fyke_filter::{Options, Predicate, compile};
use fyke_frame::LinkType;
use fyke_lab::peers::libpcap::{Compile, Libpcap, OwnedFrame, Program};
use fyke_testkit::conformance::Conformance;
use fyke_testkit::corpus::Corpus;
use fyke_testkit::filter_text::{Values, filter_text};
use fyke_testkit::random::Random;

/// Why a text is refused that no frame can match.
const NEVER: &str = "no frame can match this filter";

/// What libpcap makes of a text.
struct Reference {
    plain: Result<Program, String>,
    optimized: Result<Program, String>,
}

/// What was compared, and what was found.
#[derive(Debug, Default)]
struct Tally {
    texts: usize,
    refused_by_both: usize,
    /// libpcap's optimiser found that nothing can match; this crate did not.
    never_only_there: Vec<String>,
    /// The other way round.
    never_only_here: Vec<String>,
    unsupported: Vec<String>,
    /// Refused as never matching and found so.
    never_checked: usize,
    verdicts: usize,
    accepted: usize,
    /// libpcap's two programs differ; (ours equals the plain one, ours equals the optimised one).
    self_contradictions: (usize, usize),
    failures: Vec<String>,
}

impl Reference {
    fn new(libpcap: &Libpcap, options: &Options, text: &str) -> Reference {
        let compile = |optimize| {
            let how = Compile {
                link: options.link,
                snaplen: options.snaplen,
                netmask: options.netmask,
                optimize,
                swapped: options.swapped,
            };
            libpcap.compile_with(&how, text)
        };
        Reference { plain: compile(false), optimized: compile(true) }
    }
}

/// What most texts are read for.
fn options(link: LinkType) -> Options {
    Options { link, ..Options::default() }
}

impl Tally {
    /// Compares acceptance of a text; gives both readings when both accept.
    fn text<'r>(
        &mut self,
        options: &Options,
        text: &str,
        reference: &'r Reference,
    ) -> Option<(Predicate, &'r Program, &'r Program)> {
        self.texts += 1;
        let (link, ours) = (options.link, compile(text, options));
        match (ours, &reference.plain, &reference.optimized) {
            (Ok(predicate), Ok(plain), Ok(optimized)) => {
                return Some((predicate, plain, optimized));
            }
            (Ok(_), Ok(_), Err(error)) if error.contains("rejects all packets") => {
                self.never_only_there.push(text.to_string());
            }
            (Err(error), Ok(_), _) if error.message().contains("not supported") => {
                self.unsupported.push(text.to_string());
            }
            (Err(_), Err(_), _) | (Err(_), _, Err(_)) => self.refused_by_both += 1,
            (Ok(_), Err(error), _) | (Ok(_), _, Err(error)) => {
                self.fail(format!("{link} {text:?}: libpcap refuses: {error}"));
            }
            (Err(error), ..) if error.message() == NEVER => {
                self.never_only_here.push(text.to_string());
            }
            (Err(error), ..) => self.fail(format!("{link} {text:?}: only we refuse: {error}")),
        }
        None
    }

    /// Compares verdicts.
    fn frames<'f>(
        &mut self,
        (predicate, plain, optimized): (Predicate, &Program, &Program),
        frames: impl Iterator<Item = &'f OwnedFrame>,
    ) {
        for frame in frames {
            let ours = predicate.accepts(&frame.frame());
            let there = [plain, optimized].map(|one| one.matches(&frame.data, frame.wire_len));
            self.verdicts += 1;
            self.accepted += usize::from(ours);
            if there[0] != there[1] {
                self.self_contradictions.0 += usize::from(ours == there[0]);
                self.self_contradictions.1 += usize::from(ours == there[1]);
            } else if ours != there[0] {
                let bytes: String = frame.data.iter().map(|byte| format!("{byte:02x}")).collect();
                let text = predicate.text();
                self.fail(format!("{} {text:?}: {ours} here on {bytes}", predicate.link()));
                return;
            }
        }
    }

    /// What is refused as never matching never matches, whatever libpcap's optimiser makes of it.
    fn never<'f>(
        &mut self,
        text: &str,
        options: &Options,
        reference: &Reference,
        mut frames: impl Iterator<Item = &'f OwnedFrame>,
    ) {
        let (Err(error), Ok(plain)) = (compile(text, options), &reference.plain) else { return };
        if error.message() == NEVER {
            self.never_checked += 1;
            if frames.any(|frame| plain.matches(&frame.data, frame.wire_len)) {
                self.fail(format!(
                    "{} {text:?}: refused as never matching, but does",
                    options.link
                ));
            }
        }
    }

    fn fail(&mut self, what: String) {
        if self.failures.len() < 1000 {
            self.failures.push(what);
        }
    }

    fn finish(self, name: &str) {
        let Tally { texts, refused_by_both, .. } = self;
        let unsupported = self.unsupported.len();
        let (there, here) = (self.never_only_there.len(), self.never_only_here.len());
        let Tally { verdicts, accepted, self_contradictions: (plain, optimized), .. } = self;
        println!(
            "{name}: {texts} texts, {refused_by_both} refused by both, {unsupported} not supported \
             yet, refused as never matching {there} there only and {here} here only; {verdicts} \
             verdicts, {accepted} accepted; where libpcap's plain and optimised programs differ, \
             {plain} like the plain and {optimized} like the optimised one"
        );
        for text in self.unsupported.iter().take(20) {
            println!("  not supported: {text}");
        }
        for text in self.never_only_there.iter().take(5) {
            println!("  never there: {text}");
        }
        for text in self.never_only_here.iter().take(5) {
            println!("  never here: {text}");
        }
        for failure in self.failures.iter().take(20) {
            println!("  {failure}");
        }
        // libpcap's optimiser is imitated, not copied: once in some ten thousand texts it sees more or less.
        assert!(there + here <= 2 + texts / 1000, "{there} and {here} are too many");
        assert!(self.failures.is_empty(), "{} differences", self.failures.len());
        assert!(verdicts == 0 || accepted > 0, "nothing was ever accepted");
    }
}

/// Loads libpcap, or says that it is not there.
fn libpcap() -> Option<Libpcap> {
    match Libpcap::load() {
        Ok(libpcap) => {
            println!("peer: {}", libpcap.version());
            Some(libpcap)
        }
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// The first frames of every trace of a link type, as they are. Link types that the corpus lacks are made of others.
fn frames(libpcap: &Libpcap, corpus: &Corpus, link: LinkType, per_file: usize) -> Vec<OwnedFrame> {
    let made_of = match link {
        LinkType::LOOP => LinkType::NULL,
        LinkType::IPV4 | LinkType::IPV6 => LinkType::RAW,
        own => own,
    };
    let mut frames = Vec::new();
    let name = made_of.to_string();
    for path in corpus.traces("") {
        let Ok(read) = libpcap.frames(&path, per_file) else { continue };
        for mut frame in read.into_iter().filter(|frame| frame.link.to_string() == name) {
            frame.link = link;
            if link == LinkType::LOOP && frame.data.len() >= 4 {
                frame.data[..4].reverse();
            }
            frames.push(frame);
        }
    }
    frames
}

/// The frames, and each of them cut short or with some bytes changed.
fn spoilt(random: &mut Random, frames: &[OwnedFrame]) -> Vec<OwnedFrame> {
    let mut all = frames.to_vec();
    for frame in frames {
        let mut cut = frame.clone();
        cut.data.truncate(random.below(80.min(frame.data.len() + 1)));
        all.push(cut);
        let mut changed = frame.clone();
        for _ in 0..1 + random.below(3) {
            let place = random.below(60.min(changed.data.len()));
            if let Some(byte) = changed.data.get_mut(place) {
                *byte = random.pick(&[0, 1, 6, 17, 0x40, 0x45, 0x60, 0x08, 0xff, *byte ^ 1]);
            }
        }
        all.push(changed);
    }
    all
}

#[test]
fn real_filters_mean_the_same() {
    let (Some(libpcap), Some(corpus)) = (libpcap(), Corpus::open()) else { return };
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

/// Pieces of texts; none is a name that would be looked up in the network.
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
        // Run together, words can become names of hosts, which would be looked up in the network.
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

#[derive(serde::Deserialize)]
struct Suite {
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    expression: String,
    dlt: String,
    expect: String,
}

#[test]
fn the_suite_of_libpcap_means_the_same() {
    let (Some(libpcap), Some(corpus)) = (libpcap(), Corpus::open()) else { return };
    let text = corpus.text("filters/libpcap-expressions.json");
    let suite: Suite = serde_json::from_str(&text).expect("the suite is JSON");
    let mut tally = Tally::default();
    let (mut other_links, mut other_version, mut names) = (0, 0, 0);
    let mut random = Random::new(2);
    let mut sample = std::collections::HashMap::new();
    for case in suite.cases {
        let Some(link) = LinkType::from_name(&case.dlt) else {
            other_links += 1;
            continue;
        };
        if case.expression.to_lowercase().contains("libpcap.test") {
            names += 1;
            continue;
        }
        let options = options(link);
        let reference = Reference::new(&libpcap, &options, &case.expression);
        // The suite is of a later version.
        let accepted = reference.optimized.is_ok();
        other_version += usize::from(accepted != (case.expect == "accept"));
        if let Some(readings) = tally.text(&options, &case.expression, &reference) {
            let frames = sample.entry(link).or_insert_with(|| {
                let frames = frames(&libpcap, &corpus, link, 3);
                spoilt(&mut random, &frames)
            });
            tally.frames(readings, frames.iter());
        }
    }
    println!(
        "skipped: {other_links} cases of other link types, {names} with names of hosts that only \
         the suite's own machine knows; the installed libpcap differs in {other_version} cases"
    );
    assert!(tally.texts > 1000);
    tally.finish("libpcap's suite");
}

/// Texts from the grammar, each on a handful of frames.
fn generated(link: LinkType, default_seed: u64, texts: usize) {
    let (Some(libpcap), Some(corpus)) = (libpcap(), Corpus::open()) else { return };
    let (mut random, seed) = Random::seeded(default_seed);
    println!("seed {seed}");
    let frames = frames(&libpcap, &corpus, link, 6);
    let mut values = Values::common();
    let frames = spoilt(&mut random, &frames);
    for frame in &frames {
        if random.chance(20) {
            values.learn(&frame.data);
        }
    }
    if frames.is_empty() {
        return println!("skipped: the corpus has no frames of {link}");
    }
    let mut tally = Tally::default();
    for _ in 0..texts {
        let text = filter_text(&mut random, &values);
        let options = Options {
            netmask: random.chance(2).then_some(0xffff_ff00),
            swapped: random.chance(4),
            ..options(link)
        };
        let reference = Reference::new(&libpcap, &options, &text);
        let start = random.below(frames.len());
        let some = frames.iter().cycle().skip(start).take(200.min(frames.len()));
        match tally.text(&options, &text, &reference) {
            Some(readings) => tally.frames(readings, some),
            None => tally.never(&text, &options, &reference, some),
        }
    }
    assert!(tally.never_checked > texts / 100);
    tally.finish(&format!("generated for {link}"));
}

#[test]
fn generated_filters_mean_the_same_on_ethernet() {
    generated(LinkType::EN10MB, 11, 20_000);
}

#[test]
fn generated_filters_mean_the_same_on_raw_ip() {
    generated(LinkType::RAW, 12, 4_000);
    generated(LinkType::IPV4, 17, 2_000);
    generated(LinkType::IPV6, 18, 2_000);
}

#[test]
fn generated_filters_mean_the_same_on_linux_cooked() {
    generated(LinkType::LINUX_SLL, 13, 4_000);
    generated(LinkType::LINUX_SLL2, 14, 4_000);
}

#[test]
fn generated_filters_mean_the_same_on_loopback() {
    generated(LinkType::NULL, 15, 4_000);
    generated(LinkType::LOOP, 16, 4_000);
}
