//! The installed tcpdump beside the printer, over the shared captures.
//!
//! For every Ethernet frame whose line by tcpdump is of a kind that this printer has in full, the lines are compared:
//! whole, and by their stable parts (addresses, ports, flags, lengths). Lines of application protocols that only
//! tcpdump decodes are left out by what they say after the addresses.

mod support;

use fyke_frame::{Frame, LinkType};
use fyke_print::{PrintOptions, Printer, TimeStyle};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const FRAMES_PER_FILE: usize = 2000;

/// tcpdump's lines for a file, one per frame; continuation lines are dropped.
fn tcpdump_lines(path: &Path, options: &[&str]) -> Option<Vec<String>> {
    let output = Command::new("tcpdump")
        .args(options)
        .arg("-c")
        .arg(FRAMES_PER_FILE.to_string())
        .arg("-r")
        .arg(path)
        .env("TZ", "UTC")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_start = |line: &&str| !line.starts_with(['\t', ' ']);
    Some(text.lines().filter(is_start).map(str::to_string).collect())
}

/// What kind of line this is, for the comparison; `None` for what the printer does not claim to print alike.
fn kind_of(line: &str) -> Option<&'static str> {
    if line.starts_with("ARP, ") {
        return Some("ARP");
    }
    let after = line.split_once(": ").map(|(_, after)| after)?;
    if !line.starts_with("IP ") && !line.starts_with("IP6 ") {
        return None;
    }
    if after.starts_with("ICMP") {
        return Some("ICMP");
    }
    if after.starts_with("Flags [") {
        let rest = after.split_once(", length ").map_or("", |(_, rest)| rest);
        return rest.bytes().all(|byte| byte.is_ascii_digit()).then_some("TCP");
    }
    if after.starts_with("UDP, length ") {
        return Some("UDP");
    }
    let is_dns = after.split_once(' ').is_some_and(|(id, rest)| {
        id.trim_end_matches(['+', '%', '*', '-', '|', '$']).parse::<u16>().is_ok()
            && rest.ends_with(')')
    });
    is_dns.then_some("DNS")
}

/// Addresses, ports, flags and lengths of a line.
fn stable_parts(line: &str) -> (String, Vec<String>) {
    let (ends, rest) = line.split_once(": ").unwrap_or((line, ""));
    let words: Vec<&str> = rest.split([' ', ',']).collect();
    let mut parts = Vec::new();
    for pair in words.windows(2) {
        if matches!(pair[0], "Flags" | "length" | "win" | "id") {
            parts.push(format!("{} {}", pair[0], pair[1]));
        }
    }
    (ends.to_string(), parts)
}

#[derive(Default)]
struct Count {
    lines: usize,
    identical: usize,
    stable: usize,
}

#[test]
fn lines_are_tcpdumps_lines() {
    let Some(traces) = support::traces() else { return };
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: no tcpdump");
        return;
    }
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let folders = ["encapsulation", "fragments", "ftp", "ipv6", "tcp-streams", "voip"];
    let mut paths: Vec<_> =
        folders.iter().flat_map(|folder| support::files(&traces.join(folder))).collect();
    paths.push(traces.join("mixed/snabb__sanitized4k.pcap"));
    paths.push(traces.join("mixed/malcolm__Synchrophasor.pcap"));
    let show = std::env::var_os("FYKE_SHOW_DIFFERENCES").is_some();
    for path in paths {
        let Some((1, records)) = support::read_pcap(&path, FRAMES_PER_FILE) else { continue };
        let Some(theirs) = tcpdump_lines(&path, &["-tn"]) else { continue };
        let options = PrintOptions { time: TimeStyle::None, ..PrintOptions::default() };
        let mut printer = Printer::new(options);
        let mut ours = String::new();
        for (record, theirs) in records.iter().zip(&theirs) {
            let mut frame = Frame::new(LinkType::EN10MB, &record.data);
            frame.wire_len = record.wire_len;
            ours.clear();
            printer.line(&frame, &mut ours);
            assert!(!ours.contains('\n'), "one line: {ours:?}");
            let Some(kind) = kind_of(theirs) else {
                if show && ours != *theirs {
                    println!("OTHER {theirs}\n    < {ours}");
                }
                continue;
            };
            let count = counts.entry(kind).or_default();
            count.lines += 1;
            count.identical += usize::from(ours == *theirs);
            count.stable += usize::from(stable_parts(&ours) == stable_parts(theirs));
            if show && ours != *theirs {
                println!("{kind} {theirs}\n    < {ours}  ({})", path.display());
            }
        }
    }
    for (kind, count) in &counts {
        let percent = |part: usize| 100.0 * part as f64 / count.lines as f64;
        println!(
            "{kind}: {} lines, {:.2} % identical, {:.2} % alike in the stable parts",
            count.lines,
            percent(count.identical),
            percent(count.stable)
        );
    }
    for kind in ["TCP", "UDP", "ARP", "ICMP", "DNS"] {
        let count = &counts[kind];
        assert!(count.lines >= 50, "{kind}: only {} lines", count.lines);
        assert!(count.identical * 100 >= count.lines * 97, "{kind}: too few identical lines");
        assert!(count.stable * 1000 >= count.lines * 995, "{kind}: stable parts differ");
    }
}
