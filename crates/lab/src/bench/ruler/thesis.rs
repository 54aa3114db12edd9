//! The measurements of the thesis: table 7.1, and the claims of section 7 about memory and anonymisation.
//!
//! The thesis measured one 600 MHz micro-engine of a network processor (for the automaton in memory: six); its
//! figures are shown next to ours for scale.

use super::{BENCH, Bench, matcher};
use crate::bench::BenchError;
use crate::bench::frames::CACHE_FRAMES;
use crate::bench::measure::{Turn, rounds, time_of};
use crate::bench::report::{Measurement, Report};
use fyke_frame::LinkType;
use fyke_ruler::anonymise::Anonymiser;
use fyke_ruler::matcher::Room;
use fyke_ruler::{Limits, Program, Ruler, Verdict};
use std::hint::black_box;

/// Table 7.1: bytes and Mbit/s of one micro-engine.
const TABLE_7_1: [(usize, f64); 6] =
    [(64, 152.0), (128, 191.0), (256, 220.0), (512, 238.0), (1024, 247.0), (1470, 251.0)];
/// Rewriting the addresses of all IPv4 packets, one micro-engine.
const ANONYMISING: f64 = 540.0;
/// Automata in memory only, six micro-engines, largest packets.
const IN_MEMORY: f64 = 900.0;

/// Two states that no vector search can skip: every byte is inspected.
const EVERY_BYTE: &str = "filter f (. [^\\xff]){0,} .? => accept;";

fn mbit(bytes: usize, ns: f64) -> f64 {
    bytes as f64 * 8_000.0 / ns
}

/// Case `r34`: every byte of a packet is inspected.
pub fn every_byte(bench: &Bench<'_>, report: &mut Report) -> Result<(), BenchError> {
    let byte = |at: usize, number: usize| ((at * 7 + number) % 255) as u8;
    for row in TABLE_7_1 {
        table(bench, "r34", EVERY_BYTE, &byte, row, report)?;
    }
    Ok(())
}

/// Case `r35`: the largest packets through an automaton that does not fit into the first-level cache.
pub fn in_memory(bench: &Bench<'_>, report: &mut Report) -> Result<(), BenchError> {
    // 255 states in a ring, each of which refuses another byte: a table of 255 × 256 cells.
    let ring: String = (0..255).map(|byte| format!("[^\\x{byte:02x}] ")).collect();
    let text = format!("filter f ({ring}){{0,}} .{{0,254}} => accept;");
    // Each byte differs from the one refused at its position; all other values occur.
    let byte = |at: usize, number: usize| (at % 255 + 1 + (at * at + number) % 255) as u8;
    table(bench, "r35", &text, &byte, (1470, IN_MEMORY), report)
}

fn table(
    bench: &Bench<'_>,
    case: &str,
    text: &str,
    byte: &dyn Fn(usize, usize) -> u8,
    (size, published): (usize, f64),
    report: &mut Report,
) -> Result<(), BenchError> {
    let matcher = matcher(text)?;
    let mut room = Room::default();
    let count = if bench.options.smoke { 8 } else { 256 };
    let packet = |number| (0..size).map(|at| byte(at, number)).collect();
    let packets: Vec<Vec<u8>> = (0..count).map(packet).collect();
    let refused = packets.iter().filter(|one| matcher.first_match(&mut room, one).is_none());
    if refused.count() > 0 {
        return Err(BenchError::Other(format!("{case}: a packet is not matched")));
    }
    let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let mut found: Vec<Option<usize>> = vec![None; packets.len()];
    let times = if bench.options.smoke { 1 } else { (4_000_000 / (size * count)).max(1) };
    let samples = rounds(
        &mut room,
        1,
        bench.rounds(),
        |_| {},
        |room, _| {
            let time = time_of(true, || {
                for _ in 0..times {
                    matcher.first_matches(room, black_box(&packets), &mut found);
                    black_box(&found);
                }
            });
            Turn { time, units: times * count }
        },
    );
    let setting = format!("{size} bytes, every one inspected");
    let rate = mbit(size, samples[0].median());
    let one = Measurement::value(BENCH, case, "fyke", &setting, rate, "Mbit/s");
    report.push(one.runs(samples[0].len()));
    let paper = Measurement::value(BENCH, case, "thesis", &setting, published, "Mbit/s");
    report.push(paper);
    Ok(())
}

/// Case `r36`: methods that hide the addresses of all IPv4 packets, for few packets in the caches and for many in
/// sequence.
pub fn addresses(bench: &Bench<'_>, report: &mut Report) -> Result<(), BenchError> {
    let all = &bench.packets[..];
    for (place, packets) in [("cache", &all[..all.len().min(CACHE_FRAMES / 2)]), ("memory", all)] {
        hide(bench, packets, place, report)?;
    }
    Ok(())
}

fn hide(
    bench: &Bench<'_>,
    all: &[&[u8]],
    place: &str,
    report: &mut Report,
) -> Result<(), BenchError> {
    let ways = [
        ("header only, zeroed", "src=0, dest=0", "", true),
        ("zeroed", "src=0, dest=0", "", false),
        ("zeroed, checksums", "src=0, dest=0", "fix checksums", false),
        (
            "prefix-preserving, checksums",
            "src=prefix(src), dest=prefix(dest)",
            "fix checksums",
            false,
        ),
    ];
    for (way, overwrites, fix, header_only) in ways {
        let text = format!(
            "include \"layouts.rli\" filter f eh:Ethernet_IPv4 ih:IPv4 p:* =>
             eh ih with [{overwrites}] p {fix}; * => accept;"
        );
        let program = Program::from_text(&text);
        let program = program.map_err(|error| BenchError::Other(error.to_string()))?;
        let anonymiser = Anonymiser::new(&[1; 32], &[2; 16]);
        let ruler = Ruler::new(program, Limits::default(), anonymiser);
        let mut ruler = ruler.map_err(|error| BenchError::Other(error.to_string()))?;
        let most = if header_only { 66 } else { usize::MAX };
        let packets: Vec<&[u8]> =
            all.iter().map(|packet| &packet[..packet.len().min(most)]).collect();
        let mut out = Vec::new();
        let mut rewritten = 0u64;
        let samples = rounds(
            &mut (),
            1,
            bench.rounds(),
            |()| {},
            |(), _| {
                rewritten = 0;
                let time = time_of(true, || {
                    for packet in &packets {
                        let (verdict, _) = ruler.run(0, packet, LinkType::EN10MB, &mut out);
                        rewritten += u64::from(verdict == Verdict::Rewrite);
                        black_box(&out);
                    }
                });
                Turn { time, units: packets.len() }
            },
        );
        let ns = samples[0].median();
        let bytes: usize = packets.iter().map(|packet| packet.len()).sum();
        let setting = format!("{way}, {place}, {}", bench.source);
        let mut one = Measurement::per_packet(BENCH, "r36", "fyke", &setting, ns);
        one.accepted = Some(rewritten);
        report.push(one.runs(samples[0].len()));
        let setting = format!("{setting}, rate");
        let rate = mbit(bytes / packets.len().max(1), ns);
        let own = Measurement::value(BENCH, "r36", "fyke", &setting, rate, "Mbit/s");
        report.push(own);
        let paper = Measurement::value(BENCH, "r36", "thesis", &setting, ANONYMISING, "Mbit/s");
        report.push(paper);
    }
    Ok(())
}
