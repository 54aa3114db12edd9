//! The rows of an interval for people: a table with columns of equal width.

use crate::row::{Kind, Row};
use fyke_flow::clock;
use std::fmt::Write;

/// Formats the rows of an interval, with a line on its time and an empty line at the end. The first columns are left
/// out where they repeat those of the line before.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut out = format!("{} to {}\n", second(first.begin_ns), second(first.end_ns));
    let mut lines: Vec<[String; 6]> =
        vec![["interface", "direction", "count", "frames", "bytes", "share"].map(str::to_owned)];
    let mut last = ("", "");
    for row in rows {
        let now = (&*row.interface, row.way.word());
        let seen = rows
            .iter()
            .find(|of| of.kind == Kind::Seen && of.interface == row.interface && of.way == row.way);
        let share = seen.filter(|_| matches!(row.kind, Kind::Filter | Kind::Class));
        lines.push([
            if now.0 == last.0 { String::new() } else { now.0.to_owned() },
            if now == last { String::new() } else { now.1.to_owned() },
            match row.kind {
                Kind::Filter | Kind::Class => format!("{} {}", row.kind.word(), row.name),
                kind => kind.word().to_owned(),
            },
            row.frames.to_string(),
            row.bytes.map_or_else(String::new, |bytes| bytes.to_string()),
            share.map_or_else(String::new, |seen| percent(row.bytes, seen.bytes)),
        ]);
        last = now;
    }
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for line in &lines {
        let mut text = String::from(" ");
        for (at, (field, width)) in line.iter().zip(widths).enumerate() {
            // Writing to memory does not fail.
            let _ = match at {
                0..=2 => write!(text, " {field:<width$} "),
                _ => write!(text, " {field:>width$} "),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out.push('\n');
    out
}

/// A time with milliseconds.
fn second(time_ns: u64) -> String {
    let text = clock::date_time(time_ns);
    text.get(..23).map_or_else(|| text.clone(), |start| format!("{start}Z"))
}

/// Part of the bytes, in percent.
fn percent(part: Option<i64>, whole: Option<i64>) -> String {
    match (part, whole) {
        (Some(part), Some(whole @ 1..)) => {
            format!("{:.1}%", part as f64 * 100.0 / whole as f64)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Way;

    #[test]
    fn columns_are_aligned_and_repetitions_left_out() {
        let row = |kind, name: &str, frames, bytes| Row {
            begin_ns: 1_700_000_000_000_000_000,
            end_ns: 1_700_000_010_500_000_000,
            interface: "eth0".into(),
            way: Way::Sent,
            kind,
            name: name.into(),
            frames,
            bytes,
        };
        let rows = [
            row(Kind::Filter, "web", 10, Some(750)),
            row(Kind::Seen, "", 12, Some(1_000)),
            Row { way: Way::Unknown, ..row(Kind::Lost, "", 0, None) },
        ];
        let expected = "\
2023-11-14T22:13:20.000Z to 2023-11-14T22:13:30.500Z
  interface  direction  count       frames  bytes  share
  eth0       sent       filter web      10    750  75.0%
                        seen            12   1000
             unknown    lost             0

";
        assert_eq!(text(&rows), expected);
        assert_eq!(text(&[]), "");
    }
}
