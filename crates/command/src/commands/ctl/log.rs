//! The log of edits as text, for `fyke ctl log`.
//!
//! ```text
//! epoch 2  2026-03-01 12:00:07  root (fyke ctl, process 4711)
//!     + filter 2 voip: 12 accepted, until 12:05:07  udp port 5060
//! ```

use super::super::one_line;
use super::show;
use fyke_control::{EditAuthor, LogEntry, LoggedChange};
use std::io::{self, Write};

/// Writes the edits, oldest first.
pub fn write(
    out: &mut impl Write,
    entries: &[LogEntry],
    forgotten: u64,
    full: bool,
) -> io::Result<()> {
    if forgotten > 0 {
        writeln!(out, "{forgotten} earlier edits are no longer kept")?;
    }
    if entries.is_empty() {
        writeln!(out, "no edit yet")?;
    }
    entries.iter().try_for_each(|one| entry(out, one, full))
}

fn entry(out: &mut impl Write, entry: &LogEntry, full: bool) -> io::Result<()> {
    let time = date_and_time(entry.unix_ms);
    write!(out, "epoch {}  {time}  {}", entry.epoch, author(&entry.author))?;
    match entry.pause {
        Some(true) => write!(out, ", pauses the capture")?,
        Some(false) => write!(out, ", ends the pause")?,
        None => {}
    }
    match (entry.edits, &entry.author) {
        (1, EditAuthor::Tracker { .. }) => write!(out, ", 1 edit")?,
        (edits @ 2.., _) => write!(out, ", {edits} edits up to here")?,
        _ => {}
    }
    match entry.calls {
        Some(1) => write!(out, ", 1 call on passes")?,
        Some(calls) => write!(out, ", {calls} calls on passes")?,
        None => {}
    }
    if let Some(epoch) = entry.undoes {
        write!(out, ", takes back epoch {epoch}")?;
    }
    if let Some(epoch) = entry.undone {
        write!(out, ", taken back in epoch {epoch}")?;
    }
    writeln!(out)?;
    entry.changes.iter().try_for_each(|one| change(out, one, full))?;
    if entry.more_changes > 0 {
        let (more, accepted) = (entry.more_changes, entry.accepted);
        writeln!(out, "    and {more} more changes; {accepted} accepted by what it added")?;
    }
    Ok(())
}

fn change(out: &mut impl Write, change: &LoggedChange, full: bool) -> io::Result<()> {
    let sign = if change.added { '+' } else { '-' };
    let label = change.label.clone().unwrap_or_default();
    let name = label.name.map(|name| format!(" {}", one_line(&name))).unwrap_or_default();
    let until = label.expires_unix_ms.map(|end| format!(", until {}", date_and_time(end)));
    let until = until.unwrap_or_default();
    let bytes = label.snaplen.map(|bytes| format!(", at most {bytes} bytes each"));
    let bytes = bytes.unwrap_or_default();
    let shown = show::text(&change.text, full);
    let cut = change.chars > change.text.chars().count() as u64;
    let cut = if cut { format!(" … ({} characters)", change.chars) } else { String::new() };
    let (id, accepted) = (change.id, change.accepted);
    writeln!(out, "    {sign} filter {id}{name}: {accepted} accepted{bytes}{until}  {shown}{cut}")
}

fn author(author: &EditAuthor) -> String {
    match author {
        EditAuthor::Program => "the command line".to_owned(),
        EditAuthor::Tracker { name } => format!("tracker {}", one_line(name)),
        EditAuthor::Resumed => "fyke resume, after a killed capture".to_owned(),
        EditAuthor::Expiry => "the end of its time".to_owned(),
        EditAuthor::Other => "an author that this version does not know".to_owned(),
        EditAuthor::Client { uid, pid, program } => {
            let name = fyke_privilege::user::name_of(*uid);
            // As in the refusals of the running fyke.
            let user = match name {
                Some(name) if *uid > 0 => format!("{name}, user {uid}"),
                Some(name) => name,
                None => format!("user {uid}"),
            };
            let program = program.as_deref().map(one_line);
            let process = (*pid > 0).then(|| format!("process {pid}").into());
            let parts: Vec<_> = program.into_iter().chain(process).collect();
            match parts.is_empty() {
                true => user,
                false => format!("{user} ({})", parts.join(", ")),
            }
        }
    }
}

/// A time of day in the zone of this machine: `12:00:07.123456`.
pub fn clock(unix_ns: u64) -> String {
    let text = date_and_time(unix_ns / 1_000_000);
    let time = text.split(' ').next_back().unwrap_or_default();
    format!("{time}.{:06}", unix_ns / 1_000 % 1_000_000)
}

/// A time in the zone of this machine: `2026-03-01 12:00:07`.
fn date_and_time(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1_000).unwrap_or(i64::MAX);
    let local = seconds.saturating_add(i64::from(fyke_capture::local_offset_s(seconds)));
    let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar. Years begin in March, so that the
/// leap day is the last one.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, of_month)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_are_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_512, (2026, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
    }
}
