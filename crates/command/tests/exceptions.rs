//! Lists of exceptions, `not (…) and not (…) …`, with the built command: lists of any length accept the same frames as
//! in libpcap, in `dump`, `run`, `track`, `demux` and as edits of a running capture.

use fyke_frame::LinkType;
use fyke_lab::peers::libpcap::Libpcap;
use fyke_testkit::filter_text::{self, Values};
use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use fyke_testkit::random::Random;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");
const FRAMES: usize = 4_000;

fn fyke(args: &[&str]) -> String {
    let output: Output =
        Command::new(FYKE).args(args).stdin(Stdio::null()).output().expect("fyke runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// TCP and UDP over IPv4 and IPv6, ARP, fragments and truncated frames, between few hosts and ports.
fn frames() -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let mut frame = || {
        let mut host = || [10, 0, 0, random.below(60) as u8 + 1];
        let (source, target) = (host(), host());
        let mut port = || 1_000 + random.below(60) as u16;
        let (from, to) = (port(), port());
        let packet = Packet::ethernet().ipv4(source, target);
        let wide = |last: u8| {
            let mut address = [0_u8; 16];
            (address[0], address[15]) = (0xfd, last);
            address
        };
        let mut frame = match random.below(8) {
            0 => packet.udp(from, to).build(),
            1 => packet.fragment(5, 100, true).udp(from, to).build(),
            2 => Packet::ethernet().ipv6(wide(source[3]), wide(target[3])).tcp(from, to).build(),
            3 => Packet::ethernet().arp(1, source, target).build(),
            4 => packet.ip_options(&[1; 4]).tcp(from, to).build(),
            _ => packet.tcp(from, to).payload(b"12345678").build(),
        };
        if random.below(16) == 0 {
            frame.truncate(random.below(60));
        }
        frame
    };
    (0..FRAMES).map(|_| frame()).collect()
}

fn capture(folder: &Path, frames: &[Vec<u8>]) -> String {
    let path = folder.join("exceptions.pcap");
    std::fs::write(&path, pcap::file(1, frames)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns two numbers below 60 for each of 3,600 terms; no pair is repeated.
fn two(term: usize) -> (usize, usize) {
    (term % 60, (7 * term + term / 60) % 60)
}

fn hosts_and_ports(terms: usize) -> String {
    let term = |(host, port)| format!("not (host 10.0.0.{} and port {})", host + 1, 1_000 + port);
    (0..terms).map(two).map(term).collect::<Vec<_>>().join(" and ")
}

fn pairs(terms: usize) -> String {
    let term = |(source, target)| {
        format!("not (src host 10.0.0.{} and dst 10.0.0.{})", source + 1, target + 1)
    };
    (0..terms).map(two).map(term).collect::<Vec<_>>().join(" and ")
}

#[test]
fn lists_of_exceptions_accept_what_libpcap_accepts() {
    let libpcap = match Libpcap::load() {
        Ok(libpcap) => libpcap,
        Err(error) => return println!("skipped: {error}"),
    };
    let (folder, frames) = (tempfile::tempdir().unwrap(), frames());
    let file = capture(folder.path(), &frames);
    let mixed = format!("tcp and ({}) and not (udp or net 10.0.0.0/30)", hosts_and_ports(9));
    let nested =
        format!("not (port 1001 and not ({})) and ({} or ip6)", hosts_and_ports(5), pairs(12));
    let texts = [1, 7, 8, 39, 100].into_iter().flat_map(|n| [hosts_and_ports(n), pairs(n)]);
    for text in texts.chain([mixed, nested]) {
        // The optimiser moves loads, which changes verdicts on truncated frames.
        let program = libpcap.compile(LinkType::EN10MB, 262_144, &text, false).unwrap();
        let theirs =
            frames.iter().filter(|frame| program.matches(frame, frame.len() as u32)).count();
        assert!(theirs > 0 && theirs < FRAMES, "{theirs} of {FRAMES}: {text}");
        let expected = format!("{theirs}\n");
        assert_eq!(fyke(&["dump", "--count", "-r", &file, &text]), expected, "{text}");
        let graph = format!("(pcapin, {file}) > (filter, \"{text}\") > (tofile, out.pcap)");
        let out = folder.path().join("out.pcap");
        let graph = graph.replace("out.pcap", out.to_str().unwrap());
        fyke(&["run", "--no-control", &graph]);
        assert_eq!(fyke(&["dump", "--count", "-r", out.to_str().unwrap()]), expected, "{text}");
        let counts = fyke(&["demux", "-r", &file, &format!("{text} => count")]);
        assert_eq!(counts.split('\t').next(), Some(expected.trim()), "{text}");
    }
}

/// Generated lists with the command: lists that libpcap accepts are accepted, with the count of one of libpcap's two
/// programs (they differ on truncated frames).
#[test]
fn generated_lists_of_exceptions_accept_what_libpcap_accepts() {
    let libpcap = match Libpcap::load() {
        Ok(libpcap) => libpcap,
        Err(error) => return println!("skipped: {error}"),
    };
    let (folder, frames) = (tempfile::tempdir().unwrap(), frames());
    let file = capture(folder.path(), &frames);
    let mut values = Values::common();
    frames.iter().take(20).for_each(|frame| values.learn(frame));
    let mut random = Random::new(11);
    let mut taken = 0;
    for _ in 0..300 {
        let mut text = String::new();
        filter_text::exceptions(&mut random, &values, &mut text, 2);
        let count = |optimize| {
            let program = libpcap.compile(LinkType::EN10MB, 262_144, &text, optimize).ok()?;
            let accepted = frames.iter().filter(|one| program.matches(one, one.len() as u32));
            Some(format!("{}\n", accepted.count()))
        };
        let (Some(plain), Some(optimized)) = (count(false), count(true)) else { continue };
        taken += 1;
        let ours = fyke(&["dump", "--count", "-r", &file, &text]);
        assert!([plain, optimized].contains(&ours), "{ours} {text}");
    }
    println!("{taken} texts");
    assert!(taken > 50, "{taken} texts");
}

/// A running capture accepts an expression that is too large for passes, and warns that it is slow and why.
#[test]
fn an_edit_of_any_size_is_taken_and_what_is_slow_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        set -eu
        ip link set lo up
        "$FYKE" dump -i lo -w out.pcapng 'udp dst port 5001' 2> log &
        dump=$!
        answers
        "$FYKE" ctl add "$EXCEPTIONS" 2> quick
        "$FYKE" ctl add "$PRODUCT" 2> slow
        "$FYKE" ctl show > shown
        kill -INT $dump
        wait $dump
    "#;
    let choice = |n: usize| {
        let one = |len: usize, at: usize| format!("len > {len} and ip[{at}] != {n}");
        format!("({} or ({}) or ({}))", one(20 + n, 8), one(60 + n, 9), one(90 + n, 6))
    };
    let namespace = Script::new(FYKE, folder.path())
        .env("EXCEPTIONS", hosts_and_ports(39))
        .env("PRODUCT", (0..10).map(choice).collect::<Vec<_>>().join(" and "));
    let Some(output) = namespace.run(script) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", read("log"));
    assert!(!read("quick").contains("frame by frame"), "{}", read("quick"));
    assert!(read("slow").contains("evaluated frame by frame, in the order of its text: its"));
    let shown = read("shown");
    assert!(shown.contains("not (one of 39 passes holds) (PASSES)"), "{shown}");
    assert!(shown.contains("in the text's own order"), "{shown}");
}

/// `explain` shows the passes of the exceptions.
#[test]
fn explain_shows_exceptions() {
    let shown = fyke(&["explain", &hosts_and_ports(8)]);
    assert!(shown.contains("pass 1    not (one of 8 passes holds) (PASSES)\n"), "{shown}");
    assert!(shown.contains("              pass 8 "), "{shown}");
    let shown = fyke(&["explain", &pairs(1_000)]);
    assert!(shown.contains("of them are rows of 2 tables"), "{shown}");
    assert!(shown.contains("… and "), "{shown}");
}
