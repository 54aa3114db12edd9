//! `fyke ctl`: shows and edits the filters of a running fyke from another terminal.

use super::{Failure, counts, one_line};
use crate::cli::{CtlAction, CtlArgs};
use fyke_control::{
    CallError, Client, ConnectError, EntryKind, FilterPasses, NodeCount, OwnFilter, Request,
    Response, Stats,
};
use serde::Serialize;
use std::io::Write;

/// Runs the command.
pub fn run(args: CtlArgs) -> Result<(), Failure> {
    let mut out = super::output();
    let request = match args.action {
        CtlAction::List => return list(&mut out, args.json),
        CtlAction::Watch { interval_ms } => {
            let client = connect(args.pid)?;
            let target = Target::of(&client);
            for stats in client.watch(interval_ms)? {
                write_response(&mut out, &Response::Stats(stats?), args.json, &target)?;
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
    let mut client = connect(args.pid)?;
    let target = Target::of(&client);
    let response = client.call(request).map_err(refused)?;
    write_response(&mut out, &response, args.json, &target)
}

/// Connects to a running fyke and reports which process it is.
pub fn connect(pid: Option<u32>) -> Result<Client, Failure> {
    let client = Client::connect(pid).map_err(|error| match error {
        ConnectError::Several(_) | ConnectError::NoneLive(_) => Failure::Usage(error.to_string()),
        other => Failure::Running(other.into()),
    })?;
    if let Some(target) = client.target() {
        note!("fyke: process {}", target.to_string().trim_start());
    }
    Ok(client)
}

/// The fyke that answers, in JSON.
#[derive(Serialize)]
struct Target {
    pid: Option<u32>,
    source: Option<String>,
}

impl Target {
    fn of(client: &Client) -> Target {
        let target = client.target();
        let description = target.and_then(|target| target.description.as_ref());
        let source = description.map(|description| description.source.clone());
        Target { pid: target.map(|target| target.pid), source }
    }
}

/// An answer in JSON.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    response: &'a Response,
    target: &'a Target,
}

/// Converts an error of the call; a request that the running fyke refuses (invalid expression or id) is exit status 2.
pub fn refused(error: CallError) -> Failure {
    match error {
        CallError::Refused(message) => Failure::Usage(message),
        other => Failure::Running(other.into()),
    }
}

fn list(out: &mut impl Write, json: bool) -> Result<(), Failure> {
    let running = fyke_control::list();
    if running.is_empty() && !json {
        note!("no running fyke owned by you");
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

fn write_response(
    out: &mut impl Write,
    response: &Response,
    json: bool,
    target: &Target,
) -> Result<(), Failure> {
    if json {
        writeln!(out, "{}", serde_json::to_string(&Answer { response, target })?)?;
        return Ok(());
    }
    match response {
        Response::Ok { epoch, ids, latency_ns, notes } => {
            let ids: Vec<_> = ids.iter().map(|id| format!("filter {id}, ")).collect();
            writeln!(out, "{}epoch {epoch}, {}", ids.concat(), duration(*latency_ns))?;
            notes.iter().for_each(|note| note!("fyke: {note}"));
        }
        Response::Passes { filters, no_counts: Some(why), .. } => {
            writeln!(out, "{}", one_line(why))?;
            for filter in filters {
                writeln!(out, "filter {}  {}", filter.id, one_line(&filter.text))?;
            }
        }
        Response::Passes { epoch, filters, nodes, own_filter, no_counts: None, kernel } => {
            write_own_filter(out, own_filter.as_ref())?;
            if let Some(kernel) = kernel {
                writeln!(out, "{}", one_line(kernel))?;
            }
            if filters.is_empty() && own_filter.is_none() {
                writeln!(out, "no filter: every frame is accepted (epoch {epoch})")?;
            }
            filters.iter().try_for_each(|filter| write_filter(out, filter, nodes))?;
        }
        Response::Rules { text } => write!(out, "{text}")?,
        Response::Stats(stats) => write_stats(out, stats)?,
        Response::Description(description) => writeln!(out, "{}", one_line(&description.source))?,
        Response::Error { message } => return Err(Failure::Usage(message.clone())),
    }
    Ok(())
}

/// Reports that the program's own filter is in use; `fyke exec` counts only frames of its own filter.
fn write_own_filter(out: &mut impl Write, own: Option<&OwnFilter>) -> std::io::Result<()> {
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
fn write_filter(
    out: &mut impl Write,
    filter: &FilterPasses,
    nodes: &[NodeCount],
) -> std::io::Result<()> {
    let name = counts::entry(filter.id, filter.kind);
    writeln!(out, "{name}  {:>10} frames  {}", filter.accepted, one_line(&filter.text))?;
    for pass in &filter.passes {
        match nodes.iter().find(|node| node.id == pass.id) {
            Some(node) => {
                let account = counts::account(node);
                writeln!(out, "    node {:<4} {}  {account}", pass.id, one_line(&pass.text))?;
            }
            None => writeln!(
                out,
                "    pass {:<4} {:>10}  {}",
                pass.id,
                pass.accepted,
                one_line(&pass.text)
            )?,
        }
    }
    Ok(())
}

fn write_stats(out: &mut impl Write, stats: &Stats) -> std::io::Result<()> {
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
    write_own_filter(out, stats.own_filter.as_ref())?;
    if let Some(kernel) = &stats.kernel {
        writeln!(out, "            {}", one_line(kernel))?;
    }
    for filter in &stats.filters {
        let name = counts::entry(filter.id, filter.kind);
        writeln!(out, "            {name}: {} {}", filter.accepted, one_line(&filter.text))?;
    }
    let is_graph = stats.filters.iter().any(|filter| filter.kind == EntryKind::Graph);
    for node in stats.nodes.iter().filter(|_| is_graph) {
        writeln!(out, "            node {:<4} {}", node.id, counts::account(node))?;
        for filter in node.filters.iter().filter(|filter| filter.kind != EntryKind::Filter) {
            let name = counts::entry(filter.id, filter.kind);
            writeln!(
                out,
                "                 {name}: {} {}",
                filter.accepted,
                one_line(&filter.text)
            )?;
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
