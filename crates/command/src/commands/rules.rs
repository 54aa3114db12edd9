//! `fyke rules`: edits the Bloom pre-filter of an interface, or owns it.
//!
//! | owner of the rules | way to them |
//! |---|---|
//! | `fyke rules IF --own`, `--tcx`, `--drop` ([`owner`]) | the control socket, or pipes ([`pipes`]) |
//! | a capture with `--rules`, a graph with `(bloom)` | the control socket |
//! | any other dump, track or graph | its own rules, in user space only |
//!
//! Source of the rule syntax: Deri, *High-Speed Dynamic Packet Filtering*, where rules are written to
//! `/proc/net/ethX/rules`.

mod owner;
mod pipes;
mod remover;

use super::Failure;
use super::ctl::{connect, refused};
use crate::cli::RulesArgs;
use anyhow::Context;
use fyke_control::{CallError, Request, Response};
use std::io::{Read, Write};
use std::path::Path;

/// Most bytes of a file of commands.
const MAX_FILE_BYTES: u64 = 15 << 20;

/// Runs the command.
pub fn run(args: RulesArgs) -> Result<(), Failure> {
    let command = commands(&args)?;
    if args.own || args.tcx || args.drop {
        check(&args)?;
        return owner::run(&args, command);
    }
    let given = [
        ("--bits", args.bits.is_some()),
        ("--hash-pairs", args.hash_pairs.is_some()),
        ("--prefixes", args.prefixes.is_some()),
        ("--arrays", args.arrays.is_some()),
    ];
    if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
        let what =
            "arrays are sized at the start of their owner; give it with --own, --tcx or --drop";
        return Err(Failure::Usage(format!("{name}: {what}")));
    }
    let (pid, interface) = running_on(&args.interface)?;
    let (command, interface) = (command.unwrap_or_default(), Some(interface));
    let request = Request::Rules { command, interface };
    let answer = connect(Some(pid))?.call(request).map_err(|error| match error {
        CallError::Refused(message) => wrong(message),
        other => refused(other),
    });
    match answer? {
        Response::Rules { text } => write!(super::output(), "{text}")?,
        other => {
            return Err(Failure::Running(anyhow::anyhow!("unexpected answer: {other:?}")));
        }
    }
    Ok(())
}

/// Refuses options that this kind of owner does not have.
fn check(args: &RulesArgs) -> Result<(), Failure> {
    let problem = match (args.take, args.copy_to.is_some()) {
        (true, _) if !args.drop => {
            "--take: only --drop takes frames from the host, --own and --tcx leave it all of them; omit --take"
        }
        (_, true) if !args.tcx => {
            "--copy-to: only --tcx copies frames; give --tcx in place of --own or --drop, or omit --copy-to"
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(problem.to_owned()))
}

/// The failure of a command that was refused. Its line begins at the left edge, for the caret below it.
fn wrong(message: String) -> Failure {
    match message.contains('\n') && !message.starts_with("line ") {
        true => Failure::Usage(format!("this command is wrong:\n{message}")),
        false => Failure::Usage(message),
    }
}

/// Returns the commands of the arguments and of the file; `None` if there is none.
fn commands(args: &RulesArgs) -> Result<Option<String>, Failure> {
    let words = (!args.command.is_empty()).then(|| args.command.join(" "));
    let Some(path) = &args.file else { return Ok(words) };
    if words.is_some() {
        return Err(Failure::Usage("-F: the file has the commands; omit COMMAND".to_owned()));
    }
    let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
    // One line more, so that a file of one line is all commands, too.
    Ok(Some(format!("{}\n#\n", text.trim_end())))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let source: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path)?),
    };
    source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        anyhow::bail!("it has more than {} MiB", MAX_FILE_BYTES >> 20);
    }
    Ok(super::without_mark(text))
}

/// Returns the process id of the fyke that has the rules of an interface, and the name of the interface there: it may
/// have been renamed since.
fn running_on(interface: &str) -> Result<(u32, String), Failure> {
    if let Some((pid, rules)) = super::space::owner_of(interface) {
        return Ok((pid, rules.interface));
    }
    let namespace = super::space::namespace().ok();
    let on_it = |it: &fyke_control::Description| {
        it.source.split(", ").any(|name| name == interface)
            && it.namespace.is_none_or(|of_it| Some(of_it) == namespace)
    };
    let running: Vec<u32> = fyke_control::list()
        .into_iter()
        .filter(|found| found.description.as_ref().is_some_and(on_it))
        .map(|found| found.pid)
        .collect();
    match running[..] {
        [pid] => Ok((pid, interface.to_owned())),
        [] => Err(Failure::Running(anyhow::anyhow!(
            "no fyke of yours has the rules of {interface} in this network namespace, or captures there; have \
             them: fyke rules {interface} --own, or capture: fyke dump -i {interface} --rules"
        ))),
        _ => Err(Failure::Running(anyhow::anyhow!(
            "several fykes capture on {interface} (process ids {running:?}), and none of them has its rules, so a rule \
             would reach only one; have the rules: fyke rules {interface} --own, then start captures with --rules"
        ))),
    }
}
