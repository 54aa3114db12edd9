//! Report of what `fyke ruler run` changed: always one line, and with `--report` the details that matter before the
//! result is shared: the changes by kind of field, and the data that can still identify. It goes to standard error, or
//! with `--json` into the counts. It contains no data of the frames or the key.

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

/// Data that `anonymise.rul` leaves unchanged; its header has the same list by rule.
const IDENTIFIES: [(&str, &str); 8] = [
    ("times", "timestamps of frames, in full"),
    ("lengths", "of frames, headers, DNS names and messages"),
    ("conversations", "their endpoints (under new addresses), times and volumes"),
    ("networks", "common prefixes of addresses: one known address reveals its neighbours' network"),
    ("systems", "IP identification, TTL and DSCP, TCP numbers, flags and windows"),
    ("services", "ports, protocols, DNS types, names of HTTP and SIP header lines, status numbers"),
    ("link addresses", "the group bit, broadcast and zeros; the vendor is not kept"),
    ("the file", "interface names and descriptions in the capture file, if any"),
];

/// Prints what was changed; with `--report`, in detail.
pub(super) fn print(runner: &Runner, args: &RulerRunArgs) -> Result<(), Failure> {
    let applied: Vec<Applied> = runner.ruler.anonymiser().applied().collect();
    let done: Vec<String> = (applied.iter())
        .map(|one| format!("{} {} ({} bytes)", one.function, one.values, one.bytes))
        .collect();
    if !done.is_empty() {
        note!("changed: {}", done.join(", "));
    }
    if !done.is_empty() && args.key_file.is_none() {
        note!("a new key was used for this run; --key-file makes several files consistent");
    }
    if runner.other_link > 0 {
        let count = runner.other_link;
        note!("{count} frames were rejected because no filter applies to their link type");
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
        // For other rule files, only the author knows what they leave unchanged on purpose.
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
    writeln!(out, "  {all} bytes rewritten, of which {copied} are copies or checksums")?;
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
