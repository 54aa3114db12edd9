//! `fyke intercept`: captures the frames of users with a warrant, encrypted.
//!
//! It runs the graph `source > filter > intercept`; the node `intercept` edits the filter before it and writes files.

use super::Failure;
use super::dump::{announce, live, serve};
use super::graphs::{self, Started};
use super::privilege::{Doors, Privileges};
use super::signals::{report_on_signal, stop_on_signals};
use crate::cli::{InterceptAction, InterceptArgs};
use anyhow::{Context, anyhow};
use fyke_intercept::age::{Identity, decrypt};
use fyke_intercept::log::{hash_of, verify};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Runs the command.
pub fn run(mut args: InterceptArgs) -> Result<(), Failure> {
    match args.action.take() {
        Some(InterceptAction::Verify { file, last }) => check(&file, last.as_deref()),
        Some(InterceptAction::Key { file }) => make_key(&file),
        Some(InterceptAction::Decrypt { key, file, write }) => decrypt_file(&key, &file, &write),
        None => capture(args),
    }
}

fn capture(mut args: InterceptArgs) -> Result<(), Failure> {
    super::read_list(&mut args.source)?;
    super::enter_namespace(&args.source)?;
    let is_live = args.source.read.is_none();
    if let Some(file) = &args.secret_file {
        check_private(file)?;
    }
    let graph = graphs::intercept(&args)?;
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let started = graphs::start(&graph, privileges, Doors::Look, &args.source, args.stats)?;
    let Started { mut engine, handle, entered, unseen, .. } = started;
    if is_live {
        entered.say_missing();
    }
    // Clients see no frames, which are in clear text, and edit nothing: the log has all that changes the filter.
    let live = live(&engine, handle, is_live, None)?;
    live.refuse_edits(NO_EDITS);
    let _server = serve(&live, entered.sockets, is_live);
    let stop = stop_on_signals()?;
    let counts = std::sync::Arc::clone(&live);
    let drops = unseen.clone();
    report_on_signal(move || counts.summary(args.stats) + &drops.lines(args.stats))?;
    if is_live {
        announce(engine.interfaces(), args.source.snaplen, None);
    }
    let result = engine.run(&stop);
    let view = engine.view();
    let counters = view.node(graphs::INTERCEPT);
    let counters = counters.map(|node| node.counters.as_slice()).unwrap_or_default();
    let count = |name| counters.iter().find(|found| found.name == name).map_or(0.0, |c| c.value);
    note!(
        "{} messages about users, {} changes of addresses, {} frames written",
        count("messages"),
        count("changes"),
        count("frames_written")
    );
    for (name, text) in NOTICES.iter().filter(|(name, _)| count(name) > 0.0) {
        note!("fyke: {} {text}", count(name));
    }
    note!("{}", live.summary(args.stats).trim_end());
    unseen.report(args.stats);
    graphs::say_clamped(&view, args.source.read.as_deref(), "fyke");
    graphs::say_unfit(&view);
    graphs::node_failure(&view)?;
    Ok(result?)
}

/// Refusal of edits by clients.
const NO_EDITS: &str = "the filter of an interception follows its warrants only, so that its log is complete; `show` \
                        and `watch` work. To change what is captured, stop it, change the warrants \
                        and start it again";

/// Counters that people should know of, with the texts that follow the numbers.
const NOTICES: &[(&str, &str)] = &[
    ("wrong_authenticator", "accounting requests with a wrong authenticator changed nothing"),
    ("no_secret", "accounting requests of clients without a secret changed nothing"),
    ("unreadable", "accounting requests could not be read"),
    ("distrusted_servers", "messages of other DHCP servers changed nothing"),
    ("late_messages", "messages about sessions that had ended changed nothing"),
    ("refused_places", "addresses were refused: not those of one user, or too many"),
    ("refused_rows", "addresses cannot be followed on a link type"),
    ("over_limit", "frames were not written: the limit of a warrant (--most)"),
    ("frames_missing", "frames are lost: a file was given them and could not be written"),
];

/// Refuses a file with secrets that others can read. A pipe or a terminal has no mode that matters.
fn check_private(path: &Path) -> Result<(), Failure> {
    let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    match found.mode() & 0o077 {
        0 => Ok(()),
        _ if !found.is_file() => Ok(()),
        _ => Err(Failure::Running(anyhow!(
            "{}: others can read or write this file with secrets; chmod 600 it",
            path.display()
        ))),
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    Ok(file.with_context(|| path.display().to_string())?)
}

fn make_key(path: &Path) -> Result<(), Failure> {
    let identity = Identity::generate().map_err(anyhow::Error::from)?;
    let mut file = create(path)?;
    let text = format!("# public key: {}\n{}\n", identity.recipient(), identity.secret());
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    writeln!(super::output(), "{}", identity.recipient())?;
    Ok(())
}

fn decrypt_file(key: &Path, path: &Path, write: &Path) -> Result<(), Failure> {
    let named = |path: &Path| path.display().to_string();
    check_private(key)?;
    let text = std::fs::read_to_string(key).with_context(|| named(key))?;
    let identity = Identity::parse(&text).with_context(|| named(key))?;
    let input: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path).with_context(|| named(path))?)),
    };
    let decrypted = match write.as_os_str() == "-" {
        true => decrypt(input, &identity, &mut std::io::stdout().lock()),
        false => decrypt(input, &identity, &mut create(write)?),
    };
    match decrypted {
        Ok(_) => Ok(()),
        Err(fyke_intercept::age::AgeError::Io(error))
            if error.kind() == std::io::ErrorKind::BrokenPipe =>
        {
            Err(Failure::Pipe)
        }
        Err(error) => Err(Failure::Running(anyhow!("{}: {error}", named(path)))),
    }
}

fn check(log: &Path, last: Option<&str>) -> Result<(), Failure> {
    let name = log.display();
    let wrong = |problem: String| Failure::Running(anyhow!("{name}: {problem}"));
    let file = File::open(log).with_context(|| name.to_string())?;
    let verified = verify(file, last).map_err(|error| wrong(error.to_string()))?;
    if let (Some(last), false) = (last, verified.has_known) {
        return Err(wrong(format!("no line has the hash {last}: lines at the end are missing")));
    }
    let folder = log.parent().unwrap_or(Path::new(""));
    let mut checked = 0;
    for (file, wanted) in &verified.files {
        // Names in a log that was forged must not lead elsewhere.
        if file.contains('/') {
            return Err(wrong(format!("{file:?} is not the name of a file in this folder")));
        }
        let path = folder.join(file);
        match hash_of(&path) {
            Ok(found) if found == *wanted => checked += 1,
            Ok(_) => return Err(wrong(format!("{} was changed", path.display()))),
            Err(error) => return Err(wrong(format!("{}: {error}", path.display()))),
        }
    }
    let end = match verified.is_ended {
        true => "",
        false => "; it has no end: the capture runs or was killed, or lines at the end are missing",
    };
    let later = match last {
        Some(_) => "no line up to the given one is missing; later ones may be",
        None => {
            "lines that are missing at its end are found only with --last HASH, of an earlier check"
        }
    };
    writeln!(
        super::output(),
        "{} lines and {checked} files are intact{end}\n{later}\nlast line: {}",
        verified.lines,
        verified.last
    )?;
    Ok(())
}
