//! `fyke resume`: takes a killed capture up again, with the filters that were in force last.

use super::Failure;
use super::record::{self, Found, Resumed};
use crate::cli::{Cli, Command, ResumeArgs};
use anyhow::Context;
use clap::Parser;
use std::io::Write;

/// Runs the command.
pub fn run(args: &ResumeArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else { return list() };
    let found = record::find(name)?;
    if args.forget {
        found.remove();
        return Ok(());
    }
    take_up(found)
}

fn list() -> Result<(), Failure> {
    let mut out = super::output();
    let (found, unusable) = record::all();
    for one in &found {
        let (name, words) = (&one.name, one.fixed.args.join(" "));
        let count = one.state.filters.len();
        let filters = if count == 1 { "1 filter" } else { &format!("{count} filters") };
        writeln!(out, "{name:>7}  {}  ({filters})", super::safe(&format!("fyke {words}")))?;
    }
    for text in &unusable {
        note!("fyke: {text}");
    }
    if found.is_empty() {
        note!("fyke: no killed capture of this user can be taken up");
    }
    Ok(())
}

/// Frames of `-c` that the file of the capture does not have yet; `None` if it has no file, or another one is in its
/// place.
fn left(found: &Found, limit: u64) -> Option<u64> {
    let (path, identity) = found.output()?;
    let before = fyke_capture::frames_before(path, identity.parse().ok()?).ok()?;
    Some(limit.saturating_sub(before))
}

fn take_up(found: Found) -> Result<(), Failure> {
    let words = std::iter::once("fyke").chain(found.fixed.args.iter().map(String::as_str));
    let wrong = || anyhow::anyhow!("{}: its arguments are not those of fyke dump", found.name);
    let Ok(Cli { command: Command::Dump(mut args), .. }) = Cli::try_parse_from(words) else {
        return Err(wrong().into());
    };
    let folder = &found.fixed.folder;
    std::env::set_current_dir(folder)
        .with_context(|| format!("the capture's working folder {}", folder.display()))?;
    if let Some(limit) = args.count_limit {
        match left(&found, limit) {
            Some(0) => {
                note!("fyke: the file has the {limit} frames of -c already; nothing is captured");
                found.remove();
                return Ok(());
            }
            Some(left) => {
                note!("fyke: the file has {} of the {limit} frames of -c", limit - left);
                args.count_limit = Some(left);
            }
            None => {
                note!("fyke: -c {limit} counts from now on, without the frames before the kill")
            }
        }
    }
    args.resumed = Some(Resumed::of(found));
    super::dump::run(*args)
}
