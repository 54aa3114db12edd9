//! Output of a demonstration's result, for readers and for programs.

use super::latency::Nanoseconds;
use super::side::{Side, Spread};
use super::{Mode, Outcome};
use serde_json::{Value, json};
use std::io::{self, Write};

const LABEL_WIDTH: usize = 34;
const COLUMN_WIDTH: usize = 20;
/// Maximum number of connections listed one by one.
const LISTED: usize = 10;

/// Writes the table.
pub(super) fn table(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", heading(outcome))?;
    writeln!(out)?;
    let sides: Vec<&Side> = std::iter::once(&outcome.fyke).chain(&outcome.old_way).collect();
    row(out, "", sides.iter().map(|side| side.name.clone()))?;
    row(out, "filter updates by", sides.iter().map(|side| side.method.to_string()))?;
    writeln!(out, " {}", "─".repeat(LABEL_WIDTH + COLUMN_WIDTH * sides.len()))?;
    let lines: [(&str, Cell); 14] = [
        ("data connections seen", |side| number(side.announced)),
        ("  captured from the first packet", |side| number(side.from_first() as u64)),
        ("  captured whole", |side| number(side.whole() as u64)),
        ("packets of data connections", |side| number(side.on_wire())),
        ("  missed", |side| number(side.missed())),
        ("  missed per connection ¹", |side| spread(side.missed_spread())),
        ("  missed before the first one ¹", |side| spread(side.before_first_spread())),
        ("control packets missed", |side| number(side.control.missed)),
        ("filter updates", |side| number(side.updates.len() as u64)),
        ("  latency, median", |side| latency(side, 50)),
        ("  latency, p99", |side| latency(side, 99)),
        ("  latency, largest", |side| latency(side, 100)),
        ("  refused", |side| number(side.failed_updates)),
        ("largest filter", |side| side.largest.clone()),
    ];
    for (label, cell) in lines {
        row(out, label, sides.iter().map(|side| cell(side)))?;
    }
    writeln!(out, "\n ¹ median / p99 / largest")?;
    writeln!(out)?;
    footer(outcome, out)
}

type Cell = fn(&Side) -> String;

fn heading(outcome: &Outcome) -> String {
    let options = &outcome.options;
    let place = match &outcome.mode {
        Mode::Wire { privilege } => {
            format!("over real sockets in network namespaces ({privilege})")
        }
        Mode::Memory { reason } => {
            format!("REPLAYED FROM MEMORY, because {reason}; no packet was on a wire")
        }
    };
    format!(
        "Passive-mode FTP {place}\n{} servers with {} data connections each of {} bytes, {:.1} s; \
         background {} packets/s; {} frames seen",
        options.servers,
        options.connections,
        number(options.size_bytes),
        outcome.duration.as_secs_f64(),
        number(options.background_pps),
        number(outcome.accounting.seen),
    )
}

fn footer(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let counts = &outcome.accounting;
    let sign = if outcome.is_accounted_for() { "exact" } else { "WRONG" };
    writeln!(
        out,
        "accounting   {} seen = {} delivered ({} late) + {} rejected; {} lost: {sign}",
        number(counts.seen),
        number(counts.delivered),
        number(counts.late),
        number(counts.rejected),
        number(counts.lost),
    )?;
    if let Some(placement) = &outcome.placement {
        let count = number(counts.in_kernel);
        writeln!(out, "placement    {placement}; {count} frames rejected there")?;
    }
    if let Some(written) = &outcome.written {
        let path = written.path.display();
        writeln!(out, "written      {} packets to {path}", number(written.frame_count))?;
    }
    if let (Some(old), false) = (&outcome.old_way, outcome.fyke.updates.is_empty()) {
        let ratio = old.updates.percentile(50) / outcome.fyke.updates.percentile(50).max(1);
        writeln!(out, "difference   an update takes {} times as long the old way", number(ratio))?;
    }
    if let Some(reason) = &outcome.no_old_way {
        writeln!(out, "old way      not shown: {reason}")?;
    }
    for side in std::iter::once(&outcome.fyke).chain(&outcome.old_way) {
        if let Some(failure) = &side.failure {
            writeln!(out, "refused      {}: {failure}", side.name)?;
        }
        if side.ring_lost > 0 {
            writeln!(out, "ring full    {}: {} frames lost", side.name, number(side.ring_lost))?;
        }
    }
    missed(outcome, out)?;
    for problem in &outcome.problems {
        writeln!(out, "PROBLEM      {problem}")?;
    }
    if outcome.problems.is_empty() {
        writeln!(out, "result       nothing of a data connection was missed")?;
    }
    Ok(())
}

fn missed(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let damaged = outcome.fyke.data.iter().filter(|connection| !connection.frames.is_whole());
    let more = damaged.clone().count().saturating_sub(LISTED);
    for connection in damaged.take(LISTED) {
        let frames = &connection.frames;
        let (missed, all) = (number(frames.missed), number(frames.on_wire));
        let (server, client) = (connection.server, connection.client);
        write!(out, "MISSED       {server} ↔ {client}: {missed} of {all} packets")?;
        match frames.foreign {
            0 => writeln!(out)?,
            foreign => writeln!(out, ", and {} more than there were", number(foreign))?,
        }
    }
    if more > 0 {
        writeln!(out, "             and {more} more")?;
    }
    Ok(())
}

fn row(out: &mut dyn Write, label: &str, cells: impl Iterator<Item = String>) -> io::Result<()> {
    write!(out, " {label:<LABEL_WIDTH$}")?;
    for cell in cells {
        write!(out, "{cell:>COLUMN_WIDTH$}")?;
    }
    writeln!(out)
}

fn spread(spread: Spread) -> String {
    format!("{} / {} / {}", number(spread.p50), number(spread.p99), number(spread.max))
}

fn latency(side: &Side, per_cent: u32) -> String {
    match side.updates.is_empty() {
        true => "–".to_string(),
        false => Nanoseconds(side.updates.percentile(per_cent)).to_string(),
    }
}

/// Formats a number with a comma every three digits.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the result as one JSON object.
pub(super) fn json(outcome: &Outcome) -> Value {
    let (mode, reason) = match &outcome.mode {
        Mode::Wire { privilege } => (format!("namespaces ({privilege})"), None),
        Mode::Memory { reason } => ("memory".to_string(), Some(reason)),
    };
    let counts = &outcome.accounting;
    json!({
        "demo": "ftp",
        "mode": mode,
        "reason": reason,
        "servers": outcome.options.servers,
        "connections": outcome.options.connections,
        "seconds": outcome.duration.as_secs_f64(),
        "seen": counts.seen,
        "delivered": counts.delivered,
        "late": counts.late,
        "rejected": counts.rejected,
        "rejected_in_kernel": counts.in_kernel,
        "placement": outcome.placement,
        "lost": counts.lost,
        "accounting_exact": outcome.is_accounted_for(),
        "fyke": outcome.fyke.json(),
        "old_way": outcome.old_way.as_ref().map(Side::json),
        "no_old_way": outcome.no_old_way,
        "written": outcome.written.as_ref().map(|written| written.path.display().to_string()),
        "problems": outcome.problems,
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_commas() {
        let texts = [0, 999, 1_000, 12_345, 1_234_567].map(number);
        assert_eq!(texts, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }
}
