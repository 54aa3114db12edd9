//! `fyke ctl`: look at and edit a running fyke from another terminal.

use super::Failure;
use crate::cli::{CtlAction, CtlArgs};
use fyke_control::{CallError, Client, ConnectError, FilterPasses, Request, Response, Stats};
use std::io::Write;

/// Runs the command.
pub fn run(args: CtlArgs) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let request = match args.action {
        CtlAction::List => return list(&mut out, args.json),
        CtlAction::Watch { interval_ms } => {
            for stats in connect(args.pid)?.watch(interval_ms)? {
                write_response(&mut out, &Response::Stats(stats?), args.json)?;
                out.flush()?;
            }
            return Ok(());
        }
        CtlAction::Show => Request::Show,
        CtlAction::Set { expression_file, expression } => {
            Request::Set { text: super::expression(&expression, expression_file.as_deref())? }
        }
        CtlAction::Add { expression_file, expression } => {
            Request::Add { text: super::expression(&expression, expression_file.as_deref())? }
        }
        CtlAction::Del { id } => Request::Delete { id },
        CtlAction::Stats => Request::Stats,
    };
    let response = connect(args.pid)?.call(request).map_err(refused)?;
    write_response(&mut out, &response, args.json)
}

/// Connects to a running fyke.
pub fn connect(pid: Option<u32>) -> Result<Client, Failure> {
    Client::connect(pid).map_err(|error| match error {
        ConnectError::Several(_) => Failure::Usage(error.to_string()),
        other => Failure::Running(other.into()),
    })
}

/// The running fyke says no to what was asked: a wrong expression or number, exit status 2.
pub fn refused(error: CallError) -> Failure {
    match error {
        CallError::Refused(message) => Failure::Usage(message),
        other => Failure::Running(other.into()),
    }
}

fn list(out: &mut impl Write, json: bool) -> Result<(), Failure> {
    let running = fyke_control::list();
    if running.is_empty() && !json {
        note!("no fyke of this user is running");
    }
    for instance in running {
        match (&instance.description, json) {
            (Some(description), true) => {
                writeln!(out, "{}", serde_json::to_string(description)?)?;
            }
            _ => writeln!(out, "{instance}")?,
        }
    }
    Ok(())
}

fn write_response(out: &mut impl Write, response: &Response, json: bool) -> Result<(), Failure> {
    if json {
        writeln!(out, "{}", serde_json::to_string(response)?)?;
        return Ok(());
    }
    match response {
        Response::Ok { epoch, ids, latency_ns, notes } => {
            let ids: Vec<_> = ids.iter().map(|id| format!("filter {id}, ")).collect();
            writeln!(out, "{}epoch {epoch}, {}", ids.concat(), duration(*latency_ns))?;
            notes.iter().for_each(|note| note!("fyke: {note}"));
        }
        Response::Passes { epoch, filters } => write_filters(out, *epoch, filters)?,
        Response::Rules { text } => write!(out, "{text}")?,
        Response::Stats(stats) => write_stats(out, stats)?,
        Response::Description(description) => writeln!(out, "{}", description.source)?,
        Response::Error { message } => return Err(Failure::Usage(message.clone())),
    }
    Ok(())
}

fn write_filters(
    out: &mut impl Write,
    epoch: u64,
    filters: &[FilterPasses],
) -> std::io::Result<()> {
    if filters.is_empty() {
        writeln!(out, "no filter: every frame is accepted (epoch {epoch})")?;
    }
    for filter in filters {
        writeln!(out, "filter {}  {:>10} frames  {}", filter.id, filter.accepted, filter.text)?;
        for pass in &filter.passes {
            writeln!(out, "    pass {:<4} {:>10}  {}", pass.id, pass.accepted, pass.text)?;
        }
    }
    Ok(())
}

fn write_stats(out: &mut impl Write, stats: &Stats) -> std::io::Result<()> {
    let accounting = &stats.accounting;
    let lost: u64 = accounting.lost.values().sum();
    writeln!(
        out,
        "{:>8.1} s  {} seen = {} accepted + {} rejected + {lost} lost  (epoch {})",
        stats.uptime_ms as f64 / 1000.0,
        accounting.seen,
        accounting.delivered,
        accounting.rejected,
        stats.epoch
    )?;
    for (reason, count) in &accounting.lost {
        writeln!(out, "            {count} lost: {reason}")?;
    }
    for filter in &stats.filters {
        writeln!(out, "            filter {}: {} {}", filter.id, filter.accepted, filter.text)?;
    }
    Ok(())
}

/// A duration with the unit that suits it.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}
