//! Data that remains after `anonymise.rul`, according to an independent dissector: every listed field of every frame
//! before and after. Needs tshark; prints a skip if it is missing. Runs on a sample of the corpus, the smallest file of
//! each folder; with `FYKE_FULL=1` on all files.
//!
//! No listed value may remain, except values without information (unspecified, broadcast, empty), values that the
//! anonymisation itself made (`xxxx`, zeros), and addresses that prefix preservation maps to themselves (about 7 in
//! 100,000; the test permits at most 1 in 1,000 values, and only addresses).

use fyke_testkit::corpus::Corpus;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Fields, with a flag for addresses.
const FIELDS: &[(&str, bool)] = &[
    ("eth.src", true),
    ("eth.dst", true),
    ("ip.src", true),
    ("ip.dst", true),
    ("ipv6.src", true),
    ("ipv6.dst", true),
    ("arp.src.proto_ipv4", true),
    ("arp.dst.proto_ipv4", true),
    ("arp.src.hw_mac", true),
    ("arp.dst.hw_mac", true),
    ("dns.a", true),
    ("dns.aaaa", true),
    ("dns.qry.name", false),
    ("dns.resp.name", false),
    ("dns.cname", false),
    ("dns.ptr.domain_name", false),
    ("http.host", false),
    ("http.cookie", false),
    ("http.set_cookie", false),
    ("http.request.uri", false),
    ("http.user_agent", false),
    ("http.authorization", false),
    ("http.referer", false),
    ("sip.from.user", false),
    ("sip.to.user", false),
    ("sip.r-uri.user", false),
    ("sip.contact.user", false),
    ("sip.Via", false),
];

/// Limit on the size of a trace in a sample run.
const SAMPLE_BYTES: u64 = 100_000;
const SAMPLE_PER_FOLDER: usize = 2;

fn tshark(file: &Path) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file);
    command.args([
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=|",
    ]);
    for (field, _) in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    // A trace that is truncated at its end fails after the last frame.
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Values without information about a person.
fn is_nothing(value: &str) -> bool {
    let filled = |c: char| matches!(c, 'x' | 'X' | '0' | '.' | ':' | '/' | ' ' | 'f' | '<' | '>');
    value.is_empty()
        || value.chars().all(filled)
        || matches!(value, "255.255.255.255" | "<Root>" | "\\000" | "::1")
}

fn sample(corpus: &Corpus) -> Vec<PathBuf> {
    let all = corpus.traces("");
    if std::env::var_os("FYKE_FULL").is_some() {
        return all;
    }
    let mut by_folder: BTreeMap<PathBuf, Vec<(u64, PathBuf)>> = BTreeMap::new();
    for path in all {
        let size = std::fs::metadata(&path).map_or(0, |file| file.len());
        if (1_000..SAMPLE_BYTES).contains(&size)
            && let Some(folder) = path.parent()
        {
            by_folder.entry(folder.to_owned()).or_default().push((size, path));
        }
    }
    let largest = |mut files: Vec<(u64, PathBuf)>| {
        files.sort();
        files.into_iter().rev().take(SAMPLE_PER_FOLDER).map(|(_, path)| path)
    };
    by_folder.into_values().flat_map(largest).collect()
}

/// Result for one trace: number of values compared, and values that are unchanged in the same frame.
fn compare(before: &[String], after: &[String]) -> (u64, BTreeMap<String, BTreeSet<String>>) {
    let mut compared = 0;
    let mut same: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (before, after) in before.iter().zip(after) {
        let pairs = before.split('\t').zip(after.split('\t'));
        for ((before, after), (field, _)) in pairs.zip(FIELDS) {
            let after: BTreeSet<&str> = after.split('|').collect();
            for value in before.split('|').filter(|value| !is_nothing(value)) {
                compared += 1;
                if after.contains(value) {
                    same.entry((*field).to_owned()).or_default().insert(value.to_owned());
                }
            }
        }
    }
    (compared, same)
}

#[test]
fn nothing_listed_remains() {
    let corpus = Corpus::open();
    if Command::new("tshark").arg("--version").output().is_err() {
        return println!("skipped: no tshark");
    }
    let folder = tempfile::tempdir().unwrap();
    let hidden = folder.path().join("out.pcapng");
    let key = folder.path().join("key");
    std::fs::write(&key, "0f1e2d3c4b5a69788796a5b4c3d2e1f0".repeat(2)).unwrap();
    let (mut traces, mut left_out, mut compared, mut kept_addresses) = (0, 0, 0, 0);
    let mut found = Vec::new();
    for trace in sample(&corpus) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
        command.args(["ruler", "run", "anonymise.rul", "-r"]).arg(&trace);
        command.arg("-w").arg(&hidden).arg("--key-file").arg(&key).arg("--each");
        let output = command.stdin(Stdio::null()).output().expect("fyke runs");
        // Frames of other link types, and broken files, are not written: nothing to compare.
        let each = String::from_utf8_lossy(&output.stdout);
        let passed: Vec<usize> = each
            .lines()
            .filter(|line| line.ends_with("\trewrite"))
            .filter_map(|line| line.split('\t').next()?.parse().ok())
            .collect();
        assert!(!each.contains("\taccept"), "{}: a frame passed as it was", trace.display());
        let (Some(before), Some(after)) = (tshark(&trace), tshark(&hidden)) else { continue };
        let before: Vec<String> =
            passed.iter().filter_map(|number| before.get(number - 1).cloned()).collect();
        if before.len() != after.len() {
            // Frame numbers no longer match.
            println!(
                "{}: left out: {} frames, {} written",
                trace.display(),
                before.len(),
                after.len()
            );
            left_out += 1;
            continue;
        }
        let (values, same) = compare(&before, &after);
        traces += 1;
        compared += values;
        for (field, values) in same {
            let is_address = FIELDS.iter().any(|(name, address)| *name == field && *address);
            if is_address {
                kept_addresses += values.len() as u64;
            }
            found.push((is_address, format!("{}: {field} {values:?}", trace.display())));
        }
    }
    println!("{traces} traces, {compared} values compared, {kept_addresses} addresses stayed");
    found.iter().for_each(|(_, one)| println!("{one}"));
    assert!(traces > 10 && compared > 1_000, "{traces} traces, {compared} values");
    assert!(found.iter().all(|(is_address, _)| *is_address), "names or texts stayed");
    assert_eq!(kept_addresses, 0, "of {compared} values");
    assert!(left_out * 20 <= traces, "{left_out} traces left out, {traces} compared");
}
