//! Typical expressions on all captures: fyke accepts the same number of frames as the installed libpcap.
//!
//! For truncated frames, libpcap's plain and optimised programs differ, because the optimiser moves loads. A count is
//! correct if it equals that of either program.
//!
//! Every capture of the corpus with a link type of the first part of the language is run with every typical expression,
//! through the graph that `fyke dump` runs; a sample of them also runs through the two commands.

use fyke_capture::{Next, Source, open_file};
use fyke_frame::LinkType;
use fyke_graph::language::quoted;
use fyke_graph::runtime::NodeCounts;
use fyke_graph::{Classes, GraphHandle};
use fyke_lab::peers::libpcap::{Libpcap, Program};
use fyke_testkit::corpus::Corpus;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

const LINKS: [LinkType; 8] = [
    LinkType::EN10MB,
    LinkType::RAW,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
    LinkType::LOOP,
];

/// Typical expressions for Ethernet.
fn expressions(corpus: &Corpus) -> Vec<String> {
    let filters = corpus.real_filters().into_iter();
    filters.filter(|(_, link)| link == "EN10MB").map(|(text, _)| text).collect()
}

/// Frames of a capture with one link type, as owned bytes.
fn frames(path: &Path) -> BTreeMap<u16, Vec<(Vec<u8>, u32)>> {
    let mut found: BTreeMap<u16, Vec<(Vec<u8>, u32)>> = BTreeMap::new();
    let Ok(mut source) = open_file(path) else { return found };
    while let Ok(Next::Frames(batch, _)) = source.next() {
        for frame in batch.frames() {
            found.entry(frame.link.0).or_default().push((frame.data.to_vec(), frame.wire_len));
        }
    }
    found
}

/// Counts frames with the graph that `fyke dump --count` runs.
fn ours(path: &Path, text: &str) -> Result<NodeCounts, String> {
    let graph = format!(
        "(pcapin, {}) > {{filter}}(filter, {}) > {{n}}(packetcount)",
        quoted(path.to_str().unwrap()),
        quoted(text)
    );
    let started = GraphHandle::start(&[&graph], Classes::new());
    let (mut engine, _) = started.map_err(|error| error.to_string())?;
    // A truncated file ends with an error; the frames before it were evaluated.
    let _ = engine.run(&AtomicBool::new(false));
    let view = engine.view();
    let counts = view.node("filter").unwrap().counts;
    assert!(counts.is_exact() && counts.lost == 0);
    assert_eq!(view.node("n").unwrap().counts.arrived, counts.passed);
    Ok(counts)
}

#[test]
fn every_real_expression_accepts_what_libpcap_accepts() {
    let corpus = Corpus::open();
    let libpcap = match Libpcap::load() {
        Ok(libpcap) => libpcap,
        Err(error) => return println!("skipped: {error}"),
    };
    let expressions = expressions(&corpus);
    let mut programs: BTreeMap<(u16, &str), Option<[Program; 2]>> = BTreeMap::new();
    let (mut pairs, mut judged, mut differences) = (0u64, 0u64, Vec::new());
    for path in corpus.traces("") {
        let found = frames(&path);
        let [(&link, frames)] = found.iter().collect::<Vec<_>>()[..] else { continue };
        let link = LinkType(link);
        if !LINKS.contains(&link) {
            continue;
        }
        for text in &expressions {
            let program = programs.entry((link.0, text)).or_insert_with(|| {
                let [optimized, plain] = [true, false]
                    .map(|optimize| libpcap.compile(link, 262_144, text, optimize).ok());
                Some([optimized?, plain?])
            });
            let Some(programs) = program else { continue };
            let theirs = programs.each_ref().map(|program| {
                frames.iter().filter(|(data, wire)| program.matches(data, *wire)).count() as u64
            });
            pairs += 1;
            judged += frames.len() as u64;
            match ours(&path, text) {
                Ok(count) if theirs.contains(&count.passed) => {}
                Ok(count) => differences.push(format!(
                    "{} {text:?}: {} instead of {theirs:?}",
                    path.display(),
                    count.passed
                )),
                Err(error) => {
                    differences.push(format!("{} {text:?}: refused: {error}", path.display()));
                }
            }
        }
    }
    println!(
        "{pairs} (capture, expression) pairs, {judged} verdicts, {} differ",
        differences.len()
    );
    assert!(pairs > 10_000, "only {pairs} pairs");
    assert!(differences.is_empty(), "{:#?}", &differences[..differences.len().min(20)]);
}

#[test]
fn the_commands_count_alike() {
    let corpus = Corpus::open();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return println!("skipped: no tcpdump to compare with");
    }
    let expressions = expressions(&corpus);
    let files = corpus.traces("encapsulation");
    // Takes pairs spread over all combinations of both lists.
    let known = |path: &&PathBuf| frames(path).keys().all(|&link| LINKS.contains(&LinkType(link)));
    for (index, path) in files.iter().filter(known).enumerate().take(60) {
        let text = &expressions[index * 37 % expressions.len()];
        let theirs = Command::new("tcpdump").args(["--count", "-nr"]).arg(path).arg(text).output();
        let theirs = theirs.expect("tcpdump runs");
        let ours = Command::new(env!("CARGO_BIN_EXE_fyke"))
            .args(["dump", "--count", "-nr"])
            .arg(path)
            .arg(text)
            .output()
            .expect("fyke runs");
        if !theirs.status.success() {
            continue;
        }
        let theirs = String::from_utf8_lossy(&theirs.stdout);
        let number = theirs.split_whitespace().next().unwrap_or("0");
        let what = format!("{} {text:?}", path.display());
        assert_eq!(String::from_utf8_lossy(&ours.stdout).trim(), number, "{what}");
        assert_eq!(ours.status.code(), Some(0), "{what}");
    }
}

/// For any file contents, the command prints frames or an error, and ends.
#[test]
fn malformed_captures_give_frames_or_a_clear_error() {
    let corpus = Corpus::open();
    let files = corpus.traces("malformed");
    assert!(files.len() > 100);
    for path in files {
        let output = Command::new("timeout")
            .args(["20", env!("CARGO_BIN_EXE_fyke"), "dump", "-nevvvXXr"])
            .arg(&path)
            .output()
            .expect("fyke runs");
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            Some(1) => assert!(said.starts_with("fyke: "), "{}: {said}", path.display()),
            status => panic!("{}: {status:?}: {said}", path.display()),
        }
    }
}
