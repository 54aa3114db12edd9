//! Answers about frames of the past as text, for `fyke ctl try` and `why`.

use super::super::one_line;
use super::super::past::GRAPH_IN;
use super::log::clock;
use fyke_control::{Frames, Past, Reason, Rejected, ShownFrame, Tried, Verdict};
use std::io::{self, Write};

/// Writes what a filter would accept.
pub fn tried(out: &mut impl Write, tried: &Tried) -> io::Result<()> {
    let Tried { past, accepted, new, in_force, first } = tried;
    writeln!(
        out,
        "would accept {accepted} of {}, {new} of them new; the filters in force accept {in_force}",
        frames(past)
    )?;
    if !first.is_empty() {
        writeln!(out, "first{}:", if *new > 0 { " of the new ones" } else { "" })?;
        first.iter().try_for_each(|frame| line(out, frame))?;
    }
    in_kernel(out, past)
}

/// Writes why frames were rejected.
pub fn rejected(out: &mut impl Write, rejected: &Rejected) -> io::Result<()> {
    let Rejected { past, frames: list, more_filters } = rejected;
    if list.is_empty() {
        writeln!(out, "none of {} is rejected", frames(past))?;
    }
    for one in list {
        line(out, &one.frame)?;
        reasons(out, &one.reasons)?;
    }
    more(out, *more_filters)?;
    in_kernel(out, past)
}

/// Writes frames with their bytes.
pub fn with_bytes(out: &mut impl Write, frames: &Frames) -> io::Result<()> {
    let Frames { past, frames: list, more_filters } = frames;
    if list.is_empty() {
        writeln!(out, "none among {}", self::frames(past))?;
    }
    for one in list {
        line(out, &one.frame)?;
        reasons(out, &one.reasons)?;
        // Two digits for each byte; anything else is no answer of fyke.
        let digits: Vec<_> = one.bytes.bytes().filter(u8::is_ascii_hexdigit).collect();
        for (number, bytes) in digits.chunks(32).enumerate() {
            let words: Vec<_> = bytes.chunks(4).map(String::from_utf8_lossy).collect();
            writeln!(out, "    0x{:04x}:  {}", number * 16, words.join(" "))?;
        }
        if let Some(rest @ 1..) = one.captured.checked_sub(digits.len() as u64 / 2) {
            writeln!(out, "    … {rest} more bytes")?;
        }
    }
    if list.iter().any(|one| one.verdict == Verdict::Rejected) {
        more(out, *more_filters)?;
    }
    in_kernel(out, past)
}

fn reasons(out: &mut impl Write, reasons: &[Reason]) -> io::Result<()> {
    reasons
        .iter()
        .try_for_each(|reason| writeln!(out, "    filter {}: {}", reason.filter, decided(reason)))
}

fn more(out: &mut impl Write, more_filters: u64) -> io::Result<()> {
    if more_filters == 0 {
        return Ok(());
    }
    writeln!(out, "{more_filters} more filters reject them, too; only the first are explained")
}

fn decided(reason: &Reason) -> String {
    match &reason.decided {
        None => one_line(&reason.result).into_owned(),
        Some(decided) => {
            let (decided, result) = (one_line(decided), one_line(&reason.result));
            match reason.before {
                0 => format!("{decided}: {result}"),
                1 => format!("{decided}: {result} (after 1 other)"),
                before => format!("{decided}: {result} (after {before} others)"),
            }
        }
    }
}

/// Names the frames that an answer is about.
pub fn frames(past: &Past) -> String {
    let Past { frames, arrived, span_ms, .. } = past;
    let span = format!("{}.{} s", span_ms / 1_000, span_ms / 100 % 10);
    match arrived > frames {
        false => format!("the last {frames} frames ({span})"),
        true => format!("{frames} frames, a sample of the last {arrived} ({span})"),
    }
}

fn line(out: &mut impl Write, frame: &ShownFrame) -> io::Result<()> {
    writeln!(out, "  {} {}", clock(frame.timestamp_ns), one_line(&frame.line))
}

fn in_kernel(out: &mut impl Write, past: &Past) -> io::Result<()> {
    let Some(rejected) = past.rejected_in_kernel else { return Ok(()) };
    writeln!(out, "{}", not_judged(rejected, past.rejected_by.as_deref()))
}

/// Tells of frames that were rejected before they arrived at the filters, so that no filter can be tried on them.
pub fn not_judged(rejected: u64, by: Option<&str>) -> String {
    let (by, advice) = match by {
        Some(graph) if graph.starts_with(GRAPH_IN) => {
            (one_line(graph), "a reader without --serve-graph gets them")
        }
        Some(service) => (one_line(service), "`fyke dump --keep 30s` lets them arrive"),
        None => ("the kernel".into(), "`fyke dump --count-all` lets them arrive"),
    };
    format!(
        "{by} has rejected {rejected} frames since the start; they are not among these ({advice})"
    )
}
