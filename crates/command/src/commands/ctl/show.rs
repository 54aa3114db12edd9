//! Filters and counts as text, for `fyke ctl show`, `stats` and `watch`.

use super::super::{counts, one_line, shortened};
use fyke_control::{
    EntryKind, FIRST_EXPECTATION, FilterPasses, NodeCount, OwnFilter, Response, Stats,
};
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most passes of a filter that are listed.
const LISTED_PASSES: usize = 64;
/// Most ids of new filters that are listed.
const LISTED_IDS: usize = 20;

/// A text of a user on one line, cut unless it is wanted in full.
pub fn text(text: &str, full: bool) -> Cow<'_, str> {
    if full { one_line(text) } else { shortened(text) }
}

/// The text of an entry, cut as [`text`] cuts it; the counts at the end of a reader's are never cut.
fn entry(kind: EntryKind, of: &str, full: bool) -> Cow<'_, str> {
    let parted = (kind == EntryKind::Reader && !full).then(|| of.rsplit_once("; ")).flatten();
    let Some((names, counts)) = parted else { return text(of, full) };
    let (texts, program) = names.rsplit_once("  (").unwrap_or((names, ""));
    format!("{}  ({}; {}", shortened(texts), shortened(program), one_line(counts)).into()
}

/// Names new filters.
pub fn ids(ids: &[u64]) -> String {
    match ids {
        [first, .., last] if ids.len() > LISTED_IDS => {
            format!("{} filters, {first} to {last}, ", ids.len())
        }
        _ => ids.iter().map(|id| format!("filter {id}, ")).collect(),
    }
}

/// Writes the answer to a request for the filters and their passes.
pub fn passes(out: &mut impl Write, response: &Response, full: bool) -> io::Result<()> {
    let Response::Passes { epoch, filters, nodes, own_filter, no_counts, kernel } = response else {
        return Ok(());
    };
    if let Some(why) = no_counts {
        writeln!(out, "{}", one_line(why))?;
        let mut filters = filters.iter();
        return filters.try_for_each(|filter| {
            writeln!(out, "filter {}  {}", filter.id, text(&filter.text, full))
        });
    }
    own(out, own_filter.as_ref())?;
    if let Some(kernel) = kernel {
        writeln!(out, "{}", one_line(kernel))?;
    }
    if filters.is_empty() && own_filter.is_none() {
        writeln!(out, "no filter: every frame is accepted (epoch {epoch})")?;
    }
    let (listed, more) = counts::listed(filters, full, |filter| (filter.kind, filter.accepted));
    listed.into_iter().try_for_each(|one| filter(out, one, nodes, full))?;
    more.map_or(Ok(()), |more| writeln!(out, "{more}; --full lists them"))
}

/// Reports that the program's own filter is in use; `fyke exec` counts only frames of its own filter.
fn own(out: &mut impl Write, own: Option<&OwnFilter>) -> io::Result<()> {
    let Some(own) = own else { return Ok(()) };
    let text = own.text.as_deref().map(|text| format!(" ({})", one_line(text))).unwrap_or_default();
    match own.sockets {
        None => writeln!(
            out,
            "the program's own filter{text} is used until the first edit; its frames are not counted"
        ),
        Some(count) => writeln!(
            out,
            "{count} sockets keep the program's own filter{text}; their frames are not counted"
        ),
    }
}

/// Writes a filter with its passes, or a graph with its nodes.
fn filter(
    out: &mut impl Write,
    filter: &FilterPasses,
    nodes: &[NodeCount],
    full: bool,
) -> io::Result<()> {
    let name = counts::entry(filter.id, filter.kind);
    let label = filter.label.as_ref();
    let own = label.and_then(|label| label.name.as_deref());
    let own = own.map(|name| format!(" {}", one_line(name))).unwrap_or_default();
    let left = label.and_then(|label| label.expires_unix_ms).map(left).unwrap_or_default();
    let cut = label.and_then(|label| label.snaplen);
    let cut = cut.map(|bytes| format!(", at most {bytes} bytes each")).unwrap_or_default();
    let shown = entry(filter.kind, &filter.text, full);
    writeln!(out, "{name}{own}  {:>10} frames{cut}{left}  {shown}", filter.accepted)?;
    if filter.passes.len() > LISTED_PASSES && !full {
        let matched = filter.passes.iter().filter(|pass| pass.accepted > 0).count();
        let count = filter.passes.len();
        return writeln!(
            out,
            "    {count} passes, {matched} of them with frames; --full lists them"
        );
    }
    for pass in &filter.passes {
        match nodes.iter().find(|node| node.id == pass.id) {
            Some(node) => {
                let account = counts::account(node);
                writeln!(out, "    node {:<4} {}  {account}", pass.id, one_line(&pass.text))?;
            }
            None => {
                let shown = one_line(&pass.text);
                let expected = filter.kind == EntryKind::Tracker && pass.id >= FIRST_EXPECTATION;
                match expected {
                    true => writeln!(out, "    expected  {:>10}  {shown}", pass.accepted)?,
                    false => {
                        writeln!(out, "    pass {:<4} {:>10}  {shown}", pass.id, pass.accepted)?
                    }
                }
            }
        }
    }
    Ok(())
}

/// The time that a filter has left.
fn left(expires_unix_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let left = u128::from(expires_unix_ms).saturating_sub(now).div_ceil(1_000);
    let (hours, minutes, seconds) = (left / 3_600, left / 60 % 60, left % 60);
    match (hours, minutes) {
        (0, 0) => format!(", {seconds} s left"),
        (0, _) => format!(", {minutes} min {seconds} s left"),
        _ => format!(", {hours} h {minutes} min left"),
    }
}

/// Writes counters.
pub fn stats(out: &mut impl Write, stats: &Stats, full: bool) -> io::Result<()> {
    if let Some(why) = &stats.no_counts {
        return writeln!(out, "{:>8.1} s  {why}", stats.uptime_ms as f64 / 1000.0);
    }
    writeln!(
        out,
        "{:>8.1} s  {}  (epoch {})",
        stats.uptime_ms as f64 / 1000.0,
        counts::sum(&stats.accounting, 0, 0),
        stats.epoch
    )?;
    write!(out, "{}", counts::interface_lines(&stats.accounting, "            "))?;
    own(out, stats.own_filter.as_ref())?;
    if stats.paused {
        writeln!(out, "            paused; `fyke ctl start` continues")?;
    }
    if let Some(kernel) = &stats.kernel {
        writeln!(out, "            {}", one_line(kernel))?;
    }
    let (listed, more) =
        counts::listed(&stats.filters, full, |filter| (filter.kind, filter.accepted));
    for filter in listed {
        let name = counts::named(filter);
        let shown = entry(filter.kind, &filter.text, full);
        writeln!(out, "            {name}: {} {shown}", filter.accepted)?;
    }
    if let Some(more) = more {
        writeln!(out, "            {more}; --full lists them")?;
    }
    let is_graph = stats.filters.iter().any(|filter| filter.kind == EntryKind::Graph);
    for node in stats.nodes.iter().filter(|_| is_graph) {
        writeln!(out, "            node {:<4} {}", node.id, counts::account(node))?;
        for filter in node.filters.iter().filter(|filter| filter.kind != EntryKind::Filter) {
            let name = counts::named(filter);
            let shown = text(&filter.text, full);
            writeln!(out, "                 {name}: {} {shown}", filter.accepted)?;
        }
        if let Some(failed) = &node.failed {
            writeln!(out, "                 has failed: {}", one_line(failed))?;
        }
    }
    Ok(())
}

/// Formats a duration in a suitable unit.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_reader_are_never_cut() {
        let (texts, program) = ("port 1 or ".repeat(1_000), "p".repeat(1_000));
        let who = "3 rejected, 4 unread, 5 lost)";
        let of = format!("{texts}  (user 7, process 8, {program}; {who}");
        let cut = entry(EntryKind::Reader, &of, false);
        assert!(cut.ends_with(who) && cut.contains("(user 7, process 8, p"), "{cut}");
        assert!(cut.len() < 1_000, "{cut}");
        assert_eq!(entry(EntryKind::Reader, &of, true), of);
        assert!(!entry(EntryKind::Filter, &of, false).contains(who));
    }
}
