//! Several filters over the same packets: all in one pass, compared with one after the other.

use super::patterns::Contents;
use super::{BENCH, Bench};
use crate::bench::BenchError;
use crate::bench::measure::{Turn, rounds, time_of};
use crate::bench::report::{Measurement, Report};
use fyke_ruler::matcher::Room;
use fyke_ruler::{Limits, Matcher, Program};
use std::fmt::Write;
use std::hint::black_box;

const PORTS: [u16; 12] = [80, 443, 53, 22, 25, 21, 123, 161, 110, 143, 5060, 8080];

/// Creates filters on headers: ports and networks.
fn headers(count: usize) -> String {
    let mut text = "include \"layouts.rli\"\n".to_owned();
    for filter in 0..count {
        let port = |at: usize| PORTS[(filter * 3 + at) % PORTS.len()];
        // A write to a string cannot fail.
        let _ = writeln!(
            text,
            "filter f{filter}
               Ethernet_IPv4 IPv4_TCP with [src=10.{filter}.0.0/16] * => accept 1;
               Ethernet_IPv4 IPv4_TCP TCP with [dest={}] * => accept 2;
               Ethernet_IPv4 IPv4_TCP TCP with [src={}] * => accept 3;
               Ethernet_IPv4 IPv4_UDP UDP with [dest={}] * => accept 4;
               Ethernet_IPv4 IPv4 with [dest=192.168.{filter}.0/24] * => accept 5;",
            port(0),
            port(1),
            port(2),
        );
    }
    text
}

/// Creates filters on payload bytes, with twenty patterns each.
fn payloads(count: usize, contents: &Contents) -> String {
    let mut text = String::new();
    for (number, pattern) in contents.literals(count * 20).iter().enumerate() {
        if number % 20 == 0 {
            let _ = writeln!(text, "filter f{}", number / 20);
        }
        let _ = writeln!(text, "{} => accept {number};", pattern.ruler());
    }
    text
}

/// Runs the case.
pub fn run(bench: &Bench<'_>, contents: &Contents, report: &mut Report) -> Result<(), BenchError> {
    for count in [2, 4, 8] {
        one(bench, &headers(count), &format!("{count} filters over headers"), report)?;
        let text = payloads(count, contents);
        one(bench, &text, &format!("{count} filters over payload"), report)?;
    }
    Ok(())
}

fn one(bench: &Bench<'_>, text: &str, what: &str, report: &mut Report) -> Result<(), BenchError> {
    let other = |error: &dyn std::fmt::Display| BenchError::Other(error.to_string());
    let program = Program::from_text(text).map_err(|error| other(&error))?;
    let rules: Vec<_> = program.filters.iter().map(|filter| &filter.rules[..]).collect();
    let large = |error: fyke_ruler::nfa::TooLarge| other(&format!("{} states", error.states));
    let together = Matcher::of_filters(&rules, Limits::default()).map_err(large)?;
    let apart: Result<Vec<Matcher>, _> =
        rules.iter().map(|rules| Matcher::new(rules, Limits::default())).collect();
    let apart = apart.map_err(large)?;
    let filters = rules.len();
    let setting = format!("{what}, {}", bench.source);
    let (mut room, mut rooms) =
        (Room::default(), apart.iter().map(|_| Room::default()).collect::<Vec<_>>());
    let mut accepted = 0;
    for (frame, packet) in bench.packets.iter().enumerate() {
        together.matches(&mut room, packet);
        for (filter, (matcher, own)) in apart.iter().zip(&mut rooms).enumerate() {
            let (expected, found) =
                (matcher.first_match(own, packet), together.winner(&room, filter));
            accepted += u64::from(found.is_some());
            if expected != found {
                return Err(BenchError::Mismatch {
                    case: "filters".to_owned(),
                    setting,
                    engine: "fyke".to_owned(),
                    reference: "fyke-one-by-one".to_owned(),
                    frame,
                    frames: bench.packets.len(),
                    accepted: found.is_some(),
                });
            }
        }
    }
    let samples = rounds(
        &mut (),
        2,
        bench.rounds(),
        |()| {},
        |(), engine| {
            let time = time_of(true, || {
                for packet in &bench.packets {
                    if engine == 0 {
                        together.matches(&mut room, packet);
                        (0..filters).for_each(|filter| {
                            black_box(together.winner(&room, filter));
                        });
                    } else {
                        for (matcher, room) in apart.iter().zip(&mut rooms) {
                            black_box(matcher.first_match(room, packet));
                        }
                    }
                }
            });
            Turn { time, units: bench.packets.len() }
        },
    );
    for (engine, samples) in ["fyke", "fyke-one-by-one"].iter().zip(samples) {
        let mut one = bench.per_packet("filters", engine, &setting, &samples);
        one.accepted = Some(accepted);
        report.push(one);
    }
    // There are no parts if the search for bytes decides all rules.
    if together.parts().is_empty() {
        return Ok(());
    }
    let automata = together.parts().len() as f64;
    let setting = format!("{what}, automata that every packet goes through");
    report.push(Measurement::value(BENCH, "filters", "fyke", &setting, automata, ""));
    Ok(())
}
