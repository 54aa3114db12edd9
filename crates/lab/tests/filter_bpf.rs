//! Conversion to classic BPF: programs compiled from filter texts are no longer than those of libpcap's optimiser,
//! and libpcap's interpreter gives the same verdicts for both.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod filter_support;

use filter_support::{frames, libpcap, machine, options, spoilt};
use fyke_filter::{Options, bpf, compile};
use fyke_frame::LinkType;
use fyke_lab::peers::libpcap::{Libpcap, OwnedFrame, Program};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::filter_text::{Values, filter_text};
use fyke_testkit::random::Random;

/// Returns the six filters of the Swift paper's experiments; the last has the 38 hosts of test networks.
fn of_the_paper() -> Vec<String> {
    let hosts: Vec<String> = (1..=38).map(|host| format!("192.0.2.{host}")).collect();
    vec![
        String::new(),
        "ip".to_string(),
        "ip src net 192.168.2.0/24 and dst net 10.0.0.0/8".to_string(),
        "ip src or dst net 192.168.2.0/24".to_string(),
        "ip and tcp port (ssh or http or imap or smtp or pop3 or ftp)".to_string(),
        format!("ip and (not tcp port (80 or 25 or 143) and not ip host ({}))", hosts.join(" or ")),
    ]
}

fn lowered(libpcap: &Libpcap, text: &str, options: &Options) -> Option<Program> {
    let predicate = compile(text, options).ok()?;
    let program = match bpf::lower(&predicate, options.snaplen) {
        Ok(program) => program,
        Err(error) => {
            let known = matches!(error, bpf::LowerError::Loop | bpf::LowerError::Choice);
            assert!(known, "{text}: {error}");
            return None;
        }
    };
    Some(libpcap.program(program).expect("libpcap takes the program"))
}

#[test]
fn the_papers_filters_are_no_longer_than_there() {
    let Some(libpcap) = libpcap() else { return };
    for text in of_the_paper() {
        let options = options(LinkType::EN10MB);
        let ours = lowered(&libpcap, &text, &options).expect("there is a program");
        let there = libpcap.compile(options.link, options.snaplen, &text, true).unwrap();
        let (ours, there) = (ours.instructions().len(), there.instructions().len());
        println!("{ours} instructions, {there} there: {:.70}", text);
        assert!(ours <= there, "{text}");
    }
}

/// Link types with headers of variable length, and terms that shift the following headers.
const VARYING: &[(LinkType, &[&str])] = &[
    (LinkType(105), &["tcp port 80", "ip", "arp", "wlan host ff:ff:ff:ff:ff:ff", "type mgt"]),
    (LinkType(127), &["tcp port 80", "ip", "host 10.0.0.1", "wlan ra ff:ff:ff:ff:ff:ff"]),
    (LinkType(163), &["udp", "ip6", "llc", "subtype beacon"]),
    (LinkType(119), &["tcp", "ip", "broadcast", "ip[8] < 64"]),
    (LinkType(192), &["tcp", "ip", "ether host ff:ff:ff:ff:ff:ff"]),
    (LinkType(117), &["tcp", "inbound", "udp port 53", "on em0", "ip[8] < 64"]),
    (LinkType::EN10MB, &["geneve", "geneve 5", "geneve and tcp", "geneve and ip[8] > 4", "udp"]),
];

/// Filters on headers at variable positions have programs too: these read no memory word before it is written, and
/// their verdicts equal the predicate's.
#[test]
fn headers_of_varying_length_have_programs() {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return };
    let (mut random, seed) = Random::seeded(43);
    println!("seed {seed}");
    let names: Vec<_> = VARYING.iter().map(|(link, _)| link.to_string()).collect();
    for ((link, terms), name) in VARYING.iter().zip(names) {
        let options = options(*link);
        let all = frames(&libpcap, &corpus, *link, 20);
        let all = spoilt(&mut random, &all);
        let mut values = Values { terms, ..Values::common() };
        all.iter().step_by(50).for_each(|frame| values.learn(&frame.data));
        let (mut texts, mut none, mut lengths, mut verdicts) = (0, 0, (0, 0), 0);
        for _ in 0..200 {
            let text = filter_text(&mut random, &values);
            let Ok(predicate) = compile(&text, &options) else { continue };
            let Some(ours) = lowered(&libpcap, &text, &options) else {
                none += 1;
                continue;
            };
            texts += 1;
            let some: Vec<_> = (0..60).map(|_| &all[random.below(all.len())]).collect();
            for owned in some {
                let outcome = machine::run(ours.instructions(), &owned.frame(), false);
                let direct = predicate.holds(&owned.frame());
                let same = outcome == machine::Outcome::Verdict(direct == Ok(true));
                assert_ne!(outcome, machine::Outcome::Unset, "{name} {text}");
                let short = owned.data.len() < 250 || direct.is_err();
                assert!(same || short, "{name} {text}: {outcome:?} on {:02x?}", owned.data);
                verdicts += usize::from(same);
            }
            if let Ok(there) = libpcap.compile(*link, options.snaplen, &text, true) {
                lengths.0 += ours.instructions().len();
                lengths.1 += there.instructions().len();
            }
        }
        let (own, there) = lengths;
        println!(
            "{name}: {texts} programs, {none} texts have none; {verdicts} verdicts are the same; \
             {own} instructions, {there} there"
        );
        assert!(texts > 50 && verdicts > 0);
        assert!(own <= there, "{name}: {own} instructions, {there} there");
    }
}

/// Compares verdicts. If a frame has all bytes that are tested, the program must agree with the predicate; for
/// shorter frames a verdict of one of libpcap's own two programs is accepted too. Returns the number of
/// comparisons.
fn same(
    libpcap: &Libpcap,
    text: &str,
    options: &Options,
    ours: &Program,
    frames: &[&OwnedFrame],
) -> usize {
    let predicate = compile(text, options).unwrap();
    let there = [false, true]
        .map(|optimize| libpcap.compile(options.link, options.snaplen, text, optimize));
    for owned in frames {
        let verdict = ours.matches(&owned.data, owned.wire_len);
        let direct = predicate.holds(&owned.frame());
        if verdict == (direct == Ok(true)) {
            continue;
        }
        let allowed =
            there.iter().flatten().any(|one| one.matches(&owned.data, owned.wire_len) == verdict);
        // A test that was moved before another may reach the end of the frame first.
        let short = owned.data.len() < 120 || direct.is_err();
        assert!(allowed || short, "{text}: {verdict} on {:02x?}", owned.data);
    }
    frames.len()
}

#[test]
fn programs_give_libpcaps_verdicts() {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return };
    let (mut random, seed) = Random::seeded(41);
    println!("seed {seed}");
    let all = frames(&libpcap, &corpus, LinkType::EN10MB, 20);
    let all = spoilt(&mut random, &all);
    let mut values = Values::common();
    for frame in all.iter().step_by(50) {
        values.learn(&frame.data);
    }
    let options = options(LinkType::EN10MB);
    let (mut shorter, mut equal, mut longer, mut verdicts, mut none) = (0, 0, 0, 0, 0);
    let (mut total, mut total_there) = (0, 0);
    let real = corpus.real_filters();
    let real = real.into_iter().filter(|(_, link)| link == "EN10MB").map(|(text, _)| text);
    let generated: Vec<String> = (0..3000).map(|_| filter_text(&mut random, &values)).collect();
    let real: Vec<String> = real.collect();
    let (count, mut of_real) = (real.len(), [0; 3]);
    let texts = real.into_iter().chain(of_the_paper()).chain(generated);
    for (number, text) in texts.enumerate() {
        if compile(&text, &options).is_err() {
            continue;
        }
        let Some(ours) = lowered(&libpcap, &text, &options) else {
            none += 1;
            continue;
        };
        let some: Vec<_> = (0..200).map(|_| &all[random.below(all.len())]).collect();
        verdicts += same(&libpcap, &text, &options, &ours, &some);
        let Ok(there) = libpcap.compile(options.link, options.snaplen, &text, true) else {
            continue;
        };
        let lengths = (ours.instructions().len(), there.instructions().len());
        (total, total_there) = (total + lengths.0, total_there + lengths.1);
        let order = lengths.0.cmp(&lengths.1);
        of_real[(order as i8 + 1) as usize] += usize::from(number < count);
        match order {
            std::cmp::Ordering::Less => shorter += 1,
            std::cmp::Ordering::Equal => equal += 1,
            std::cmp::Ordering::Greater => {
                longer += 1;
                if longer <= 8 {
                    println!("longer: {lengths:?} {text:.150}");
                }
            }
        }
    }
    println!(
        "{verdicts} verdicts; {shorter} programs shorter than libpcap's, {equal} as long, {longer} \
         longer; {total} instructions, {total_there} there; {none} texts have no program"
    );
    let [shorter_real, equal_real, longer_real] = of_real;
    println!(
        "filters in real use: {shorter_real} shorter, {equal_real} as long, {longer_real} longer"
    );
    assert!(shorter + equal > 6 * longer);
    // Two kinds are two instructions longer: both ends of one host or port, and both ends of another.
    assert!(shorter_real + equal_real > 200 && longer_real <= 2, "{longer_real} are longer");
}
