//! Answers about frames of the past as text, for `fyke ctl try` and `why`.

use super::super::one_line;
use super::log::clock;
use fyke_control::{Past, Reason, Rejected, ShownFrame, Tried};
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
        for reason in &one.reasons {
            writeln!(out, "    filter {}: {}", reason.filter, decided(reason))?;
        }
    }
    if *more_filters > 0 {
        writeln!(
            out,
            "{more_filters} more filters reject them, too; only the first are explained"
        )?;
    }
    in_kernel(out, past)
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
    writeln!(
        out,
        "the kernel has rejected {rejected} frames since the start; they are not among these \
         (`fyke dump --count-all` lets them arrive)"
    )
}
