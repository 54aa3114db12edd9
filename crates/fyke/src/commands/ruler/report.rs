//! Says what `fyke ruler run` has changed: a line for everybody, and with `--report` all that somebody who shares the
//! result has to know, by kind of field, with what still identifies. On the standard error; with `--json` among the
//! counts. Nothing of the frames or the key is in it.

use super::super::Failure;
use super::{Runner, built_in};
use crate::cli::RulerRunArgs;
use fyke_ruler::Verdict;
use fyke_ruler::anonymise::Applied;
use std::io::Write;
use std::path::Path;

/// Kinds of fields by the function that hides them.
const KINDS: [(&str, &str); 8] = [
    ("mac", "link addresses"),
    ("prefix", "IP addresses"),
    ("cryptopan", "IP addresses, as published"),
    ("hash", "names and numbers"),
    ("hashtext", "names"),
    ("random", "random bytes"),
    ("zero", "contents, now zeros"),
    ("fill", "contents, now a pattern"),
];

/// What `anonymise.rul` lets stand; its header has the same list by rules.
const IDENTIFIES: [(&str, &str); 8] = [
    ("times", "timestamps of frames, in full"),
    ("lengths", "of frames, headers, DNS names and messages"),
    ("conversations", "who talks to whom, when and how much, under new addresses"),
    ("networks", "common prefixes of addresses: one known address tells its neighbours' network"),
    ("systems", "IP identification, TTL and DSCP, TCP numbers, flags and windows"),
    ("services", "ports, protocols, DNS types, names of HTTP and SIP header lines, status numbers"),
    ("link addresses", "the group bit, broadcast and zeros; the maker is not kept"),
    ("the file", "interface names and descriptions of the capture, where it has them"),
];

/// Says what was changed; in detail where it was asked for.
pub(super) fn print(runner: &Runner, args: &RulerRunArgs) -> Result<(), Failure> {
    let applied: Vec<Applied> = runner.ruler.anonymiser().applied().collect();
    let done: Vec<String> = (applied.iter())
        .map(|one| format!("{} {} ({} bytes)", one.function, one.values, one.bytes))
        .collect();
    if !done.is_empty() {
        note!("changed: {}", done.join(", "));
    }
    if !done.is_empty() && args.key_file.is_none() {
        note!("the key was made for this run; --key-file keeps several files consistent");
    }
    if runner.other_link > 0 {
        let count = runner.other_link;
        note!("{count} frames of link types that no filter is for were rejected");
    }
    if args.report {
        report(runner, args, &applied)?;
    }
    Ok(())
}

fn report(runner: &Runner, args: &RulerRunArgs, applied: &[Applied]) -> Result<(), Failure> {
    let frames = |wanted: fn(&Verdict) -> bool| -> u64 {
        let counts = runner.counts.iter().flatten();
        counts.filter(|(verdict, _)| wanted(verdict)).map(|(_, frames)| frames).sum()
    };
    let unchanged = frames(|verdict| matches!(verdict, Verdict::Accept(_)));
    let rewritten = frames(|verdict| *verdict == Verdict::Rewrite);
    let hidden: u64 = applied.iter().map(|one| one.bytes).sum();
    let copied = runner.made_bytes.saturating_sub(hidden);
    let kind = |one: &Applied| {
        KINDS.iter().find(|(name, _)| *name == one.function).map_or("", |(_, kind)| *kind)
    };
    let identifies: &[(&str, &str)] = match built_in(&args.file) {
        Some(_) => &IDENTIFIES,
        // Only their author knows what other rules are meant to let stand.
        None => &[IDENTIFIES[0], IDENTIFIES[1], ("fields", "all that the rules copy or accept")],
    };
    if args.json {
        let fields: Vec<_> = (applied.iter())
            .map(|one| {
                let Applied { function, values, bytes, left } = *one;
                serde_json::json!({
                    "function": function, "kind": kind(one), "values": values,
                    "changed": values - left, "left": left, "bytes": bytes
                })
            })
            .collect();
        let still: Vec<&str> = identifies.iter().map(|(name, _)| *name).collect();
        let line = serde_json::json!({"report": {
            "frames": runner.frames, "rewritten": rewritten, "unchanged": unchanged,
            "bytes": runner.made_bytes, "copied_bytes": copied, "fields": fields,
            "still_identifies": still
        }});
        let to_stdout = args.write.as_deref().is_none_or(|path| path != Path::new("-"));
        match to_stdout {
            true => writeln!(super::super::output(), "{line}")?,
            false => writeln!(std::io::stderr(), "{line}")?,
        }
        return Ok(());
    }
    let mut out = std::io::stderr().lock();
    writeln!(out, "\nreport")?;
    writeln!(
        out,
        "  {} frames: {rewritten} rewritten, {unchanged} passed unchanged",
        runner.frames
    )?;
    let all = runner.made_bytes;
    writeln!(out, "  {all} bytes written anew, of which {copied} are copies or checksums")?;
    for one in applied {
        let (changed, left) = (one.values - one.left, one.left);
        let function = one.function;
        writeln!(out, "  {:<28} {function:<10} {changed} changed, {left} as before", kind(one))?;
    }
    if applied.iter().any(|one| one.function == "cryptopan") {
        writeln!(out, "  the published function keeps about 7 in 100,000 IPv4 addresses")?;
    }
    writeln!(out, "still identifies")?;
    for (name, why) in identifies {
        writeln!(out, "  {name:<16} {why}")?;
    }
    Ok(())
}
