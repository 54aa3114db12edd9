//! What `fyke fleet` prints.

use crate::commands::ctl::past::not_judged;
use crate::commands::one_line;
use fyke_fleet::edit::Labels;
use fyke_fleet::message::{Answers, Entry, Outcome, Tried};
use fyke_fleet::operator::{Logged, Report, shown};
use fyke_fleet::state::State;
use serde_json::json;
use std::io::{self, Write};

/// The sensors that run.
pub fn sensors(out: &mut impl Write, sensors: &[Entry], json: bool) -> io::Result<()> {
    for sensor in sensors {
        if json {
            writeln!(out, "{}", json!(sensor))?;
            continue;
        }
        let at = match &sensor.fyke {
            Some(fyke) => format!(
                "epoch {}  {} seen = {} accepted + {} rejected + {} taken + {} lost  {} (process {})",
                fyke.epoch,
                fyke.seen,
                fyke.accepted,
                fyke.rejected,
                fyke.taken,
                fyke.lost,
                fyke.source,
                fyke.pid
            ),
            None => "no fyke beside it".to_owned(),
        };
        let labels = labels(&sensor.labels);
        let line = format!(
            "{}  on {}{labels}  edit {}, {} refused  {at}",
            sensor.name, sensor.host, sensor.sequence, sensor.refused
        );
        writeln!(out, "{}", one_line(&line))?;
        if let Some(trouble) = &sensor.trouble {
            writeln!(out, "  {}", one_line(trouble))?;
        }
    }
    if sensors.is_empty() && !json {
        writeln!(out, "no sensor of this group runs")?;
    }
    Ok(())
}

/// The filters of the group.
pub fn filters(out: &mut impl Write, state: &State, json: bool) -> io::Result<()> {
    if !json {
        writeln!(out, "edit {}: {} filters", state.sequence, state.filters.len())?;
    }
    for filter in state.filters.values() {
        if json {
            writeln!(out, "{}", json!(filter))?;
            continue;
        }
        let (id, author, text) = (filter.id, &filter.author, &filter.text);
        writeln!(
            out,
            "{}",
            one_line(&format!("{id:>8}  {author}{}  {text}", labels(&filter.only)))
        )?;
    }
    Ok(())
}

/// Edits, oldest first.
pub fn log(out: &mut impl Write, log: &[Logged], json: bool) -> io::Result<()> {
    for logged in log {
        let line = match (&logged.edit, json) {
            (Ok(edit), true) => json!({
                "sequence": logged.sequence,
                "author": edit.author,
                "edit": edit.edit,
            })
            .to_string(),
            (Err(why), true) => json!({"sequence": logged.sequence, "refused": why}).to_string(),
            (Ok(edit), false) => {
                let undoes = edit.edit.undoes.map(|undone| format!(" (takes back {undone})"));
                one_line(&format!(
                    "edit {}  {}{}  {}{}",
                    logged.sequence,
                    edit.author,
                    labels(&edit.edit.only),
                    shown(&edit.edit.changes),
                    undoes.unwrap_or_default()
                ))
                .into_owned()
            }
            (Err(why), false) => {
                with_reason(out, &format!("edit {}  refused: ", logged.sequence), why)?;
                continue;
            }
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The sensors at which an edit is in force.
pub fn report(out: &mut impl Write, report: &Report, json: bool) -> io::Result<()> {
    if json {
        let sensors = report.sensors.iter().map(|(name, told)| match told {
            Some((outcome, time)) => {
                json!({"sensor": name, "answer": outcome, "ns": time.as_nanos() as u64})
            }
            None => json!({"sensor": name, "answer": null}),
        });
        let sensors: Vec<_> = sensors.collect();
        return writeln!(out, "{}", json!({"sequence": report.sequence, "sensors": sensors}));
    }
    let all = report.sensors.len();
    match report.everywhere() {
        Some(_) if all == 0 => {
            writeln!(out, "edit {}: no sensor runs that it is for", report.sequence)?;
        }
        Some(time) => {
            let ms = time.as_secs_f64() * 1e3;
            writeln!(
                out,
                "edit {}: in force everywhere, {all} sensors, after {ms:.1} ms",
                report.sequence
            )?;
        }
        None => {
            let count = report.in_force();
            writeln!(out, "edit {}: in force at {count} of {all} sensors", report.sequence)?;
        }
    }
    for (name, told) in &report.sensors {
        match told {
            Some((Outcome::Refused { message, .. }, _)) => {
                with_reason(out, &format!("  {name} refuses it: "), message)?;
            }
            None => writeln!(out, "{}", one_line(&format!("  {name} has not answered")))?,
            Some(_) => {}
        }
    }
    Ok(())
}

/// Frames that a filter would accept.
pub fn tried(out: &mut impl Write, told: &[Tried], json: bool) -> io::Result<()> {
    for one in told {
        if json {
            writeln!(out, "{}", json!(one))?;
            continue;
        }
        if let Some(why) = &one.failed {
            with_reason(out, &format!("{}: ", one.sensor), why)?;
            continue;
        }
        let line = format!(
            "{}: would accept {} of the last {} frames, {} of them new",
            one.sensor, one.accepted, one.frames, one.new
        );
        writeln!(out, "{}", one_line(&line))?;
        if let Some(rejected) = one.rejected_in_kernel {
            writeln!(out, "  {}", not_judged(rejected, one.rejected_by.as_deref()))?;
        }
    }
    let sum = |of: fn(&Tried) -> u64| told.iter().map(of).sum::<u64>();
    if !json {
        let (accepted, frames) = (sum(|one| one.accepted), sum(|one| one.frames));
        writeln!(out, "{} sensors: {accepted} of {frames} frames", told.len())?;
    }
    Ok(())
}

/// Answers of a sensor.
pub fn answers(out: &mut impl Write, told: &Answers, json: bool) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", json!(told));
    }
    for answer in &told.answers {
        let at = format!("edit {}  at {}: ", answer.sequence, told.sensor);
        let what = match &answer.outcome {
            Outcome::InForce { epoch, frame, .. } => {
                format!("in force as epoch {epoch}, at the latest from frame {} on", frame + 1)
            }
            Outcome::Superseded { by } => format!("superseded by edit {by}"),
            Outcome::NotAddressed => "not for this sensor".to_owned(),
            Outcome::Refused { message, .. } => {
                with_reason(out, &(at + "refused: "), message)?;
                continue;
            }
        };
        writeln!(out, "{}", one_line(&(at + &what)))?;
    }
    Ok(())
}

/// A reason of a sensor; its further lines, such as a text with a caret, are indented. Other control characters are
/// escaped, so that nothing looks like a line of ours.
fn with_reason(out: &mut impl Write, begin: &str, reason: &str) -> io::Result<()> {
    let mut lines = reason.lines();
    let first = lines.next().unwrap_or_default();
    writeln!(out, "{}", one_line(&format!("{begin}{first}")))?;
    lines.try_for_each(|line| writeln!(out, "      {}", one_line(line)))
}

fn labels(labels: &Labels) -> String {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if labels.is_empty() { String::new() } else { format!("  [{}]", labels.join(" ")) }
}
