//! `fyke ctl`: shows and edits the filters of a running fyke from another terminal.

mod batch;
mod hosts;
mod log;
mod pass;
pub mod past;
mod save;
mod show;

use super::{Failure, one_line};
use crate::cli::{AddArgs, CtlAction, CtlArgs};
use anyhow::Context;
use fyke_control::{CallError, Change, Client, ConnectError, Request, Response, Verdict};
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

#[cfg(feature = "top")]
pub use show::ids;

/// Runs the command.
pub fn run(args: CtlArgs) -> Result<(), Failure> {
    let mut out = super::output();
    let mut shown = Shown { json: args.json, full: false };
    let request = match args.action {
        CtlAction::List => return list(&mut out, args.json),
        CtlAction::Watch { interval_ms, full } => {
            let client = connect(args.pid)?;
            let target = Target::of(&client);
            for stats in client.watch(interval_ms)? {
                let response = Response::Stats(stats?);
                write_response(&mut out, &response, &target, Shown { full, ..shown })?;
                out.flush()?;
            }
            return Ok(());
        }
        CtlAction::Save { file, last, expression } => {
            let text = expression.join(" ");
            return save::run(&mut out, args.pid, &file, last, &text, shown);
        }
        CtlAction::Pass { calls, node } => {
            let request = pass::request(&calls, node)?;
            let mut client = connect(args.pid)?;
            let response = pass::check(&calls, call(&mut client, request)?)?;
            return write_response(&mut out, &response, &Target::of(&client), shown);
        }
        CtlAction::Batch { file } => return batch(&mut out, args.pid, &file, shown),
        CtlAction::Del { filter } => return delete(&mut out, args.pid, &filter, shown),
        CtlAction::Show { full } => {
            shown.full = full;
            Request::Show
        }
        CtlAction::Stats { full } => {
            shown.full = full;
            Request::Stats
        }
        CtlAction::Log { last, full } => {
            shown.full = full;
            Request::Log { last }
        }
        CtlAction::Set { expression_file: Some(file), expression }
            if expression.is_empty() && has_rules(&file) =>
        {
            return load(&mut out, args.pid, &file, shown);
        }
        CtlAction::Set { expression_file, expression } => {
            Request::Set { text: text(&expression, expression_file.as_deref())? }
        }
        CtlAction::Add(args) => add(&args)?,
        CtlAction::Undo { epoch } => Request::Undo { epoch },
        CtlAction::Try { expression_file, last, expression } => {
            Request::Try { text: super::expression(&expression, expression_file.as_deref())?, last }
        }
        CtlAction::Pause { reader: None } => Request::Pause,
        CtlAction::Start { reader: None } => Request::Start,
        CtlAction::Pause { reader: Some(id) } => Request::PauseReader { id, is_paused: true },
        CtlAction::Start { reader: Some(id) } => Request::PauseReader { id, is_paused: false },
        CtlAction::Why { last } => Request::Why { last: Some(last) },
        CtlAction::Frames { last, accepted, rejected } => {
            let rejected = rejected.then_some(Verdict::Rejected);
            let verdict = accepted.then_some(Verdict::Accepted).or(rejected);
            Request::Frames { last: Some(last), verdict }
        }
    };
    let mut client = connect(args.pid)?;
    let response = call(&mut client, request)?;
    write_response(&mut out, &response, &Target::of(&client), shown)
}

/// The form of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    json: bool,
    /// Whole texts, and all passes.
    full: bool,
}

/// Sends a request; before an edit or a pause, the name of this program for the log.
fn call(client: &mut Client, request: Request) -> Result<Response, Failure> {
    if !request.only_reads() {
        client.hello(&program())?;
    }
    client.call(request).map_err(refused)
}

/// The name of this program in the log, with the user that ran sudo.
pub fn program() -> String {
    match fyke_privilege::user::User::of_sudo() {
        Ok(Some(user)) => format!("fyke ctl, sudo by {}", user.name),
        _ => "fyke ctl".to_owned(),
    }
}

/// A filter or rules, as words or from a file. In rules, `#` begins a comment only at the beginning of a line, so they
/// are sent as they are.
fn text(words: &[String], file: Option<&Path>) -> Result<String, Failure> {
    super::expression_by(words, file, "the filter or the rules", |text| {
        match fyke_ids::read::is_rules(text) {
            true => text.to_owned(),
            false => super::without_comments(text),
        }
    })
}

/// The request of `add`.
fn add(args: &AddArgs) -> Result<Request, Failure> {
    let text = match &args.hosts {
        None => text(&args.expression, args.expression_file.as_deref())?,
        Some(file) => {
            let (name, list) = read(file, "the list")?;
            hosts::text(&name, &list, &args.expression.join(" "))?
        }
    };
    if args.name.is_none() && args.lifetime.is_none() && args.snaplen.is_none() {
        return Ok(Request::Add { text });
    }
    let for_ms = args.lifetime.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let (name, snaplen) = (args.name.clone(), args.snaplen);
    Ok(Request::Edit { changes: vec![Change::Add { text, name, for_ms, snaplen }] })
}

/// True if a regular file begins with a rule of Snort or Suricata.
fn has_rules(file: &Path) -> bool {
    let is_regular = std::fs::metadata(file).is_ok_and(|data| data.is_file());
    is_regular && std::fs::File::open(file).is_ok_and(fyke_ids::read::begins_with_rules)
}

/// Replaces the rules of a running `fyke ids` by those of a file, which may be longer than a request.
fn load(out: &mut impl Write, pid: Option<u32>, file: &Path, shown: Shown) -> Result<(), Failure> {
    let cannot = || format!("cannot read the rules from {}", file.display());
    let open = std::fs::File::open(file).with_context(cannot)?;
    let mut client = connect(pid)?;
    client.hello(&program())?;
    let response = client.call_with(&Request::Load, open.as_fd()).map_err(refused)?;
    write_response(out, &response, &Target::of(&client), shown)
}

/// Reads a file or, for `-`, standard input; returns its name for errors, too.
fn read(file: &Path, what: &str) -> Result<(String, String), Failure> {
    let name = file.display().to_string();
    let (name, text) = match name.as_str() {
        "-" => ("standard input".to_owned(), super::read_limited(std::io::stdin().lock())),
        _ => (name, super::read_text(file)),
    };
    let text = text.with_context(|| format!("cannot read {what} from {name}"))?;
    Ok((name, text))
}

/// Makes the edits of a file as one.
fn batch(out: &mut impl Write, pid: Option<u32>, file: &Path, shown: Shown) -> Result<(), Failure> {
    let (name, text) = read(file, "the edits")?;
    let mut client = connect(pid)?;
    let edits = batch::read(&name, &text, || names(&mut client))?;
    let response = call(&mut client, Request::Edit { changes: edits.changes })?;
    if let Response::Refused { change, message } = &response {
        let line = edits.lines.get(*change).copied().unwrap_or_default();
        return Err(Failure::Usage(format!("{name}:{line}: {message}\nno edit was made")));
    }
    write_response(out, &response, &Target::of(&client), shown)
}

/// Removes a filter by its id or its name.
fn delete(
    out: &mut impl Write,
    pid: Option<u32>,
    filter: &str,
    shown: Shown,
) -> Result<(), Failure> {
    let mut client = connect(pid)?;
    let id = match filter.parse() {
        Ok(id) => id,
        Err(_) => names(&mut client)?.remove(filter).ok_or_else(|| {
            let message = "no filter has this name or id; `fyke ctl show` lists them";
            Failure::Usage(format!("{filter:?}: {message}"))
        })?,
    };
    let response = call(&mut client, Request::Delete { id })?;
    write_response(out, &response, &Target::of(&client), shown)
}

/// The ids of the filters in force by their names.
fn names(client: &mut Client) -> Result<HashMap<String, u64>, Failure> {
    let Response::Stats(stats) = client.call(Request::Stats).map_err(refused)? else {
        return Err(Failure::Running(anyhow::anyhow!("expected counters")));
    };
    let named = stats.filters.into_iter();
    Ok(named.filter_map(|filter| Some((filter.label?.name?, filter.id))).collect())
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
    target: &Target,
    shown: Shown,
) -> Result<(), Failure> {
    if let Response::Error { message } | Response::Refused { message, .. } = response {
        return Err(Failure::Usage(message.clone()));
    }
    if let Response::Failed { message } = response {
        return Err(Failure::Running(anyhow::anyhow!(message.clone())));
    }
    if shown.json {
        writeln!(out, "{}", serde_json::to_string(&Answer { response, target })?)?;
        return Ok(());
    }
    match response {
        Response::Ok { epoch, ids, latency_ns, notes } => {
            let ids = show::ids(ids);
            writeln!(out, "{ids}epoch {epoch}, {}", show::duration(*latency_ns))?;
            notes.iter().for_each(|note| note!("fyke: {note}"));
        }
        Response::Passes { .. } => show::passes(out, response, shown.full)?,
        Response::Rules { text } => write!(out, "{text}")?,
        Response::Stats(stats) => show::stats(out, stats, shown.full)?,
        Response::Log { entries, forgotten } => log::write(out, entries, *forgotten, shown.full)?,
        Response::Saved { .. } => save::write(out, response)?,
        Response::Tried(tried) => past::tried(out, tried)?,
        Response::Rejected(rejected) => past::rejected(out, rejected)?,
        Response::Frames(frames) => past::with_bytes(out, frames)?,
        Response::Description(description) => writeln!(out, "{}", one_line(&description.source))?,
        Response::Error { .. } | Response::Failed { .. } | Response::Refused { .. } => {}
    }
    Ok(())
}
