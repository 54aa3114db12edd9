//! `fyke dump` on every link type compared with the installed libpcap: expressions of all kinds, valid and invalid,
//! each on a file of its link type; and captures of many link types, counted by both commands.

#[allow(dead_code, reason = "each test file takes what it needs")]
#[path = "../../lab/tests/filter_support/mod.rs"]
mod filter_support;

use filter_support::{FOUND_OUT, frames, libpcap, options, registers_clash};
use fyke_filter::compile;
use fyke_frame::LinkType;
use fyke_lab::peers::libpcap::{Compile, Libpcap, Program};
use fyke_testkit::corpus::{Corpus, Expression};
use fyke_testkit::pcap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Number of frames of each link type for the suite.
const FRAMES: usize = 300;

fn dump_count(path: &Path, expression: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fyke"))
        .args(["dump", "--count", "-r"])
        .arg(path)
        .args(["--", expression])
        .output()
        .expect("fyke runs")
}

/// A capture file of a link type, and its frames.
struct Capture {
    path: PathBuf,
    frames: Vec<Vec<u8>>,
}

fn capture(folder: &Path, libpcap: &Libpcap, corpus: &Corpus, link: LinkType) -> Capture {
    let frames = frames(libpcap, corpus, link, 3).into_iter().take(FRAMES);
    let frames: Vec<Vec<u8>> = frames.map(|frame| frame.data).collect();
    let path = folder.join(format!("{}.pcap", link.0));
    std::fs::write(&path, pcap::file(link.0, &frames)).unwrap();
    Capture { path, frames }
}

/// Programs of libpcap for an expression: plain and optimised.
fn programs(libpcap: &Libpcap, link: LinkType, text: &str) -> [Result<Program, String>; 2] {
    let options = options(link);
    [false, true].map(|optimize| {
        let how =
            Compile { link, snaplen: options.snaplen, netmask: Some(0), optimize, swapped: false };
        libpcap.compile_with(&how, text)
    })
}

/// `dump` accepts and counts the same as libpcap for valid expressions, and refuses invalid ones with exit status 2.
#[test]
fn dump_takes_what_libpcap_takes_on_every_link_type() {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut captures: HashMap<LinkType, Capture> = HashMap::new();
    let (mut accepted, mut refused, mut found, mut listed) = (0, 0, 0usize, 0);
    let mut differences = Vec::new();
    for (number, one) in corpus.expressions().into_iter().enumerate() {
        let Expression { text, link, is_right, is_own } = one;
        // Most refused expressions are permutations of words, and our own ones are repeated for every link type.
        let is_left_out = if is_right { is_own && number % 3 != 0 } else { number % 8 != 0 };
        let Some(link) = LinkType::from_name(&link).filter(|_| !is_left_out) else { continue };
        if text.to_lowercase().contains("libpcap.test") {
            continue;
        }
        let file =
            captures.entry(link).or_insert_with(|| capture(folder.path(), &libpcap, &corpus, link));
        let output = dump_count(&file.path, &text);
        let count = String::from_utf8_lossy(&output.stdout).trim().parse::<usize>().ok();
        let what = format!("{link} {:?}", text);
        match programs(&libpcap, link, &text) {
            [Ok(plain), Ok(optimized)] => {
                let theirs = [plain, optimized].map(|program| {
                    let matches = |frame: &&Vec<u8>| program.matches(frame, frame.len() as u32);
                    file.frames.iter().filter(matches).count()
                });
                accepted += 1;
                found += count.unwrap_or(0);
                if count.is_none_or(|count| !theirs.contains(&count)) {
                    match is_listed(&text, link) {
                        true => listed += 1,
                        false => {
                            let said = String::from_utf8_lossy(&output.stderr);
                            differences
                                .push(format!("{what}: {count:?}, libpcap {theirs:?} {said}"));
                        }
                    }
                }
            }
            [Err(error), _] | [_, Err(error)] => {
                refused += 1;
                // fyke imitates the results of libpcap's optimiser but does not copy it.
                let found_out = error.contains("rejects all packets") && count == Some(0);
                if output.status.code() != Some(2) && !found_out {
                    differences.push(format!("{what}: taken, libpcap refuses: {error}"));
                }
            }
        }
    }
    println!(
        "{accepted} texts taken by libpcap, {found} frames found, {refused} refused, {listed} listed \
         in docs/language.md, {} differ, {} link types",
        differences.len(),
        captures.len()
    );
    assert!(accepted > 300 && refused > 100 && found > 10_000);
    assert!(differences.is_empty(), "{:#?}", &differences[..differences.len().min(20)]);
}

/// Differences listed in `docs/language.md`: `byte`, results of the optimiser, register conflicts.
fn is_listed(text: &str, link: LinkType) -> bool {
    match compile(text, &options(link)) {
        Ok(predicate) => registers_clash(&predicate),
        Err(error) => FOUND_OUT.contains(&error.message()) || text.contains("byte "),
    }
}

/// Expressions for several kinds of link types; each is tried on every capture.
const TEXTS: &[&str] = &[
    "ip",
    "tcp port 80",
    "udp",
    "ip6",
    "not arp",
    "wlan type mgt",
    "type data and not ip",
    "wlan addr2 ff:ff:ff:ff:ff:ff or ip",
    "vlan or udp",
    "mpls or tcp",
    "link[0] & 1 = 0",
    "ether broadcast",
    "len > 100 and icmp or arp",
    "tcp[tcpflags] & tcp-syn != 0",
    "host 192.168.1.1 or net 10.0.0.0/8",
    "llc or ip",
    "inbound",
    "portrange 1-1024",
];

/// Expressions on captures of every link type, `fyke dump --count` compared with `tcpdump --count`.
#[test]
fn the_commands_count_alike_on_every_link_type() {
    let corpus = Corpus::open();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return println!("skipped: no tcpdump to compare with");
    }
    let mut files = corpus.traces("linktypes");
    files.extend(corpus.traces("encapsulation").into_iter().take(10));
    let (mut compared, mut refused, mut differences) = (0, 0, Vec::new());
    for (index, path) in files.iter().enumerate() {
        for text in TEXTS.iter().skip(index % 2).step_by(2) {
            let theirs = Command::new("tcpdump")
                .args(["--count", "-nr"])
                .arg(path)
                .arg(text)
                .output()
                .expect("tcpdump runs");
            let ours = dump_count(path, text);
            let said = String::from_utf8_lossy(&theirs.stderr);
            let what = format!("{} {text:?}", path.display());
            if !theirs.status.success() {
                // tcpdump may refuse the file itself.
                let only_there = said.contains("unknown file format") || said.contains("DLT");
                let alike = ours.status.code() == Some(2) || ours.status.code() == Some(1);
                refused += 1;
                if !alike && !only_there && !said.contains("rejects all packets") {
                    differences.push(format!("{what}: taken; tcpdump: {said}"));
                }
                continue;
            }
            compared += 1;
            let number = String::from_utf8_lossy(&theirs.stdout);
            let number = number.split_whitespace().next().unwrap_or("0").to_owned();
            let own = String::from_utf8_lossy(&ours.stdout).trim().to_owned();
            let link = pcap::read(path, 0).map(|(link, _)| LinkType(link));
            if own != number && !link.is_some_and(|link| is_listed(text, link)) {
                let said = String::from_utf8_lossy(&ours.stderr);
                differences.push(format!("{what}: {own:?}, tcpdump {number} {said}"));
            }
        }
    }
    println!("{compared} counts compared, {refused} refused, {} differ", differences.len());
    assert!(compared > 150, "{compared}");
    assert!(differences.is_empty(), "{:#?}", &differences[..differences.len().min(20)]);
}
