//! The installed tcpdump compared with the printer, on the captures of the corpus.
//!
//! For every Ethernet frame with a tcpdump line of a kind that this printer supports in full, the
//! lines are compared: whole, and by their stable parts (addresses, ports, flags, lengths). Lines
//! of application protocols that only tcpdump decodes are recognised by their text after the
//! addresses and left out.

use fyke_frame::{Frame, LinkType};
use fyke_print::{Hex, PrintOptions, Printer, TimeStyle};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::pcap;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Frames of each capture that are compared: fewer with all options than for the plain lines.
const FRAMES: usize = 2000;
const FRAMES_PER_OPTION: usize = 400;

/// tcpdump's text for a file, one string per numbered frame. Dumps of unknown payload are dropped
/// unless `dumps`; the frame in a VXLAN tunnel, which tcpdump prints on its own line, is moved to
/// its place in this printer's line.
fn tcpdump_texts(path: &Path, limit: usize, options: &[&str], dumps: bool) -> Option<Vec<String>> {
    let output = Command::new("tcpdump")
        .args(["-n", "-t", "--number", "-c", &limit.to_string()])
        .args(options)
        .arg("-r")
        .arg(path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut texts: Vec<String> = Vec::new();
    for line in text.lines() {
        let next = format!("{:5}  ", texts.len() + 1);
        match (line.strip_prefix(&next), texts.last_mut()) {
            (Some(line), _) => texts.push(line.to_string()),
            (None, Some(last)) if ends_in_vxlan(last) => {
                let separator =
                    if options.iter().any(|o| o.starts_with("-v")) { "\n\t" } else { ": " };
                *last = format!("{last}{separator}{line}");
            }
            (None, Some(_)) if !dumps && line.trim_start().starts_with("0x") => {}
            (None, Some(last)) => *last = format!("{last}\n{line}"),
            _ => {}
        }
    }
    Some(texts)
}

/// True if the text ends with a VXLAN header: the frame inside follows.
fn ends_in_vxlan(text: &str) -> bool {
    let number = text.rsplit_once("vni ").map_or("", |(_, number)| number);
    text.contains("VXLAN") && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// Kind of a line for the comparison; `None` for kinds that the printer does not copy.
fn kind_of(line: &str) -> Option<&'static str> {
    if line.starts_with("ARP, ") {
        return Some("ARP");
    }
    let after = line.split_once(": ").map(|(_, after)| after)?;
    if !line.starts_with("IP ") && !line.starts_with("IP6 ") {
        return None;
    }
    if line.contains("-proto-") || line.contains(" PAP, ") {
        return None;
    }
    if after.starts_with("VXLAN") || after.starts_with("Geneve") || after.starts_with("GREv") {
        return Some("tunnel");
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
    texts: usize,
    identical: usize,
    stable: usize,
}

/// Compares all frames of the captures; counts per kind of line.
fn compare(
    arguments: &[&str],
    options: &PrintOptions,
    limit: usize,
) -> Option<BTreeMap<&'static str, Count>> {
    let corpus = Corpus::open();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: no tcpdump");
        return None;
    }
    let folders = ["encapsulation", "fragments", "ftp", "ipv6", "tcp-streams", "voip"];
    let mut paths: Vec<_> = folders.iter().flat_map(|folder| corpus.traces(folder)).collect();
    paths.extend(
        ["datagrams.pcap", "without-ports.pcap"].map(|name| corpus.own("mixed").join(name)),
    );
    paths.extend(corpus.busy());
    paths.extend(corpus.shared("traces/mixed/malcolm__Synchrophasor.pcap"));
    let show = std::env::var("FYKE_SHOW_DIFFERENCES").ok();
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for path in paths {
        let Some((1, records)) = pcap::read(&path, limit) else { continue };
        let dumps = options.hex != Hex::None;
        let Some(plain) = tcpdump_texts(&path, limit, &[], false) else { continue };
        let Some(theirs) = tcpdump_texts(&path, limit, arguments, dumps) else { continue };
        let mut printer = Printer::new(options.clone());
        let mut ours = String::new();
        for ((record, theirs), plain) in records.iter().zip(&theirs).zip(&plain) {
            let mut frame = Frame::new(LinkType::EN10MB, &record.data);
            frame.wire_len = record.wire_len;
            ours.clear();
            printer.line(&frame, &mut ours);
            // tcpdump shows GTP-U as plain UDP and does not decode ERSPAN.
            let more = ours.contains("GTP-U") || ours.contains("ERSPAN");
            let kind = if more { None } else { kind_of(plain) };
            if show.as_deref() == Some(&arguments.join(" ")) && ours != *theirs {
                println!("{} {theirs}\n    < {ours}", kind.unwrap_or("OTHER"));
            }
            let Some(kind) = kind else { continue };
            let count = counts.entry(kind).or_default();
            count.texts += 1;
            count.identical += usize::from(ours == *theirs);
            count.stable += usize::from(stable_parts(&ours) == stable_parts(theirs));
        }
    }
    for (kind, count) in &counts {
        let percent = |part: usize| 100.0 * part as f64 / count.texts as f64;
        let (identical, stable) = (percent(count.identical), percent(count.stable));
        println!(
            "{arguments:?} {kind}: {} frames, {identical:.2} % identical, {stable:.2} % alike in \
             addresses, ports, flags, lengths",
            count.texts
        );
    }
    Some(counts)
}

const KINDS: [&str; 6] = ["TCP", "UDP", "ARP", "ICMP", "DNS", "tunnel"];

fn plain() -> PrintOptions {
    PrintOptions { time: TimeStyle::None, ..PrintOptions::default() }
}

#[test]
fn lines_are_tcpdumps_lines() {
    let Some(counts) = compare(&[], &plain(), FRAMES) else { return };
    for kind in KINDS {
        let count = &counts[kind];
        assert!(count.texts >= 50, "{kind}: only {} frames", count.texts);
        assert!(count.identical * 100 >= count.texts * 99, "{kind}: too few identical lines");
        assert!(count.stable * 1000 >= count.texts * 995, "{kind}: stable parts differ");
    }
}

#[test]
fn options_are_tcpdumps_options() {
    let with = |arguments: &[&str], options: PrintOptions, least: usize| {
        let Some(counts) = compare(arguments, &options, FRAMES_PER_OPTION) else { return };
        let texts: usize = counts.values().map(|count| count.texts).sum();
        let identical: usize = counts.values().map(|count| count.identical).sum();
        assert!(texts > 4_000, "{arguments:?}: only {texts} frames");
        assert!(identical * 100 >= texts * least, "{arguments:?}: {identical} of {texts}");
    };
    with(&["-e"], PrintOptions { link_header: true, ..plain() }, 99);
    with(&["-q"], PrintOptions { quiet: true, ..plain() }, 99);
    with(&["-S"], PrintOptions { absolute_sequence: true, ..plain() }, 99);
    with(&["-v"], PrintOptions { verbose: 1, ..plain() }, 99);
    with(&["-vv"], PrintOptions { verbose: 2, ..plain() }, 99);
    with(&["-x"], PrintOptions { hex: Hex::Bytes, ..plain() }, 99);
    with(&["-A"], PrintOptions { hex: Hex::Text, ..plain() }, 99);
    let whole = PrintOptions { hex_link_header: true, ..plain() };
    with(&["-XX"], PrintOptions { hex: Hex::BytesAndText, ..whole }, 99);
}

#[test]
fn first_lines_of_all_protocols_are_tcpdumps() {
    let corpus = Corpus::open();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: no tcpdump");
        return;
    }
    let options = PrintOptions { like_tcpdump: true, ..plain() };
    let first = |text: &str| text.lines().next().unwrap_or_default().to_string();
    let (mut lines, mut equal) = (0, 0);
    let folders = ["encapsulation", "fragments", "ftp", "ipv6", "mixed", "tcp-streams", "voip"];
    for path in folders.iter().flat_map(|folder| corpus.traces(folder)) {
        let Some((1, records)) = pcap::read(&path, FRAMES) else { continue };
        let Some(theirs) = tcpdump_texts(&path, FRAMES, &[], false) else { continue };
        let mut printer = Printer::new(options.clone());
        for (record, theirs) in records.iter().zip(&theirs) {
            let mut frame = Frame::new(LinkType::EN10MB, &record.data);
            frame.wire_len = record.wire_len;
            let mut ours = String::new();
            printer.line(&frame, &mut ours);
            // The frame in a VXLAN tunnel is on the next line, which the reader above moves.
            let theirs = match ours.split_once('\n') {
                Some((own, inner)) if ends_in_vxlan(own) => {
                    theirs.replacen(&format!(": {inner}"), "", 1)
                }
                _ => first(theirs),
            };
            lines += 1;
            equal += usize::from(first(&ours) == theirs);
        }
    }
    println!("{equal} of {lines} lines equal tcpdump's");
    assert!(lines > 1_000, "only {lines} lines");
    assert!(equal * 1000 >= lines * 980, "{equal} of {lines} lines equal tcpdump's");
}
