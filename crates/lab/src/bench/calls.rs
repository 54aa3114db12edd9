//! `fyke bench calls`: SIP calls followed by the tracker.
//!
//! | case | measures |
//! |---|---|
//! | `live` | `fyke track sip` on a veth pair at 500 calls a second: packets missed, and captured too late |
//! | `frames` | a frame of media in the graph `filter > track`, with 100 and with 100,000 ends expected |
//!
//! Engines: `fyke`; `no-look-back`, the same with `--no-look-back` (`live` only). A call of `live` has 13 frames: five
//! of signalling, seven of media of which the first comes directly after the INVITE that announces its end, and one a
//! second after the BYE, which is not part of the call: too late. Every call has ports of its own.

mod frames;
mod live;

pub(super) use live::{Order, Run, follow};

use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};

/// The bench's name in reports.
pub const BENCH: &str = "calls";
/// Engines of this bench.
pub const ENGINES: [&str; 2] = ["fyke", "no-look-back"];
const CASES: [&str; 2] = ["frames", "live"];

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]; without namespaces or privilege the message states what is missing.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let mut report = Report::new(options);
    for (number, case) in CASES.into_iter().enumerate() {
        if !options.wants_case(case) {
            continue;
        }
        progress(case, number, CASES.len());
        match case {
            "frames" => frames::measure(options, &mut report)?,
            _ => live::measure(options, &mut report)?,
        }
    }
    progress("done", CASES.len(), CASES.len());
    if report.measurements.is_empty() {
        let there = format!("cases {}; engines {}", CASES.join(", "), ENGINES.join(", "));
        return Err(BenchError::NothingChosen { there });
    }
    Ok(report)
}

fn other(error: impl std::fmt::Display) -> BenchError {
    BenchError::Other(error.to_string())
}

/// A count or a ratio.
fn value(case: &str, engine: &str, setting: &str, value: f64, unit: &str) -> Measurement {
    Measurement::value(BENCH, case, engine, setting, value, unit)
}

/// Hosts and media ports of a call: caller, callee. No two calls of the first 800,000 share an end.
fn ends(call: u32) -> [([u8; 4], u16); 2] {
    let host = (call / 12_000) as u8;
    let port = 10_000 + (call % 12_000 * 4) as u16;
    [([10, 20, 0, host], port), ([10, 21, 0, host], port)]
}

/// An INVITE or its answer, with a description.
fn description(call: u32, answer: bool) -> String {
    let (host, port) = ends(call)[usize::from(answer)];
    let [a, b, c, d] = host;
    let body = format!(
        "v=0\r\no=x {port} 1 IN IP4 {a}.{b}.{c}.{d}\r\ns=-\r\nc=IN IP4 {a}.{b}.{c}.{d}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0\r\n"
    );
    let start = if answer { "SIP/2.0 200 OK" } else { "INVITE sip:b@x SIP/2.0" };
    message(start, call, "INVITE", answer, &body)
}

fn message(start: &str, call: u32, method: &str, answered: bool, body: &str) -> String {
    let tag = if answered { ";tag=2" } else { "" };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    format!(
        "{start}\r\nCall-ID: {call}@bench\r\nFrom: <sip:a@x>;tag=1\r\nTo: <sip:b@x>{tag}\r\nCSeq: 1 {method}\r\n\
         {kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A datagram on Ethernet; its checksums are zero.
fn datagram(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
    frame.extend((28 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(from.0);
    frame.extend(to.0);
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// A packet of RTP with this payload type.
fn media(from: ([u8; 4], u16), to: ([u8; 4], u16), number: u16, payload_type: u8) -> Vec<u8> {
    let mut payload = vec![0x80, payload_type];
    payload.extend(number.to_be_bytes());
    payload.extend((u32::from(number) * 160).to_be_bytes());
    payload.extend([0, 0, 0, 9]);
    payload.resize(172, 0x55);
    datagram(from, to, &payload)
}

const SIGNALLING: [([u8; 4], u16); 2] = [([10, 20, 0, 250], 5_060), ([10, 21, 0, 250], 5_060)];
