//! The resume files of a live capture: what it needs to be taken up after it has been killed.
//!
//! `NAME.resume` has what does not change: the arguments and the output file. It is written before the process drops
//! its rights, and kept open for reading only and locked, so that it is known to run; a process that has been taken over
//! cannot change what `fyke resume` will run. `NAME.resume.0` and `.1` have the filters, in turns: they are opened
//! before, too, because the sandbox opens nothing. A state is emptied, written and ended by a line end, so one of the
//! two is always complete. Written by the thread of the client that edits, before it gets its answer; never by a packet
//! loop. Cost: O(bytes of all texts) for an edit; texts of more than 16 MiB are not recorded, which is reported.

use crate::commands::Failure;
use anyhow::Context;
use fyke_capture::FileIdentity;
use fyke_control::RuntimeDir;
use fyke_filters::{Author, Change, Edit, FilterSet, Label};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const VERSION: u32 = 1;
const ENDING: &str = ".resume";
/// Most bytes of a file of a record.
const MAX_BYTES: u64 = 64 << 20;
/// Most bytes of the texts of a state.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Most records that are listed.
const MAX_LISTED: usize = 1_000;

/// What does not change while a capture runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    version: u32,
    /// Process of the capture.
    pub pid: u32,
    /// Its arguments, without the name of the program.
    pub args: Vec<String>,
    /// Its working folder.
    pub folder: PathBuf,
    /// The file that it had open, by its path without links.
    output: Option<(PathBuf, String)>,
}

/// The filters in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Number of this state, from 1.
    sequence: u64,
    epoch: u64,
    unix_ms: u64,
    /// True if passes were edited by hand; they are not recorded.
    by_hand: bool,
    /// True if the texts are too long, so that the filters are not those in force.
    too_long: bool,
    /// The filters, oldest first.
    pub filters: Vec<Filter>,
}

/// A filter in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snaplen: Option<u32>,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The record of this process, removed at an end that is no kill.
#[derive(Debug)]
pub struct Record {
    /// Path of the fixed part.
    path: PathBuf,
    slots: [File; 2],
    sequence: Mutex<u64>,
    /// Locked while this process runs.
    _fixed: File,
}

impl Record {
    /// Makes the files of a capture with these arguments; `output` is the file that it has open.
    pub fn start(args: Vec<String>, output: Option<&Path>) -> anyhow::Result<Record> {
        let dir = RuntimeDir::usable()?;
        let output = output.map(open_identity).transpose()?;
        let folder = std::env::current_dir()?;
        let fixed = Fixed { version: VERSION, pid: std::process::id(), args, folder, output };
        let bytes = serde_json::to_vec(&fixed)?;
        let new =
            |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        for number in 0..MAX_LISTED {
            let more = if number == 0 { String::new() } else { format!("-{number}") };
            let path = dir.path().join(format!("{}{more}{ENDING}", fixed.pid));
            let draft = match new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            (&draft).write_all(&bytes)?;
            (&draft).write_all(b"\n")?;
            drop(draft);
            let fixed = File::open(&path)?;
            fixed.try_lock().map_err(|_| anyhow::anyhow!("{} is locked", path.display()))?;
            let slots = [new(&slot(&path, 0))?, new(&slot(&path, 1))?];
            return Ok(Record { path, slots, sequence: Mutex::new(0), _fixed: fixed });
        }
        anyhow::bail!("{}: too many resume files", dir.path().display())
    }

    /// Writes the filters in force.
    pub fn write(&self, filters: &FilterSet) {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence += 1;
        let state = state_of(filters, *sequence);
        let file = &self.slots[usize::from(*sequence % 2 == 0)];
        let written = serde_json::to_vec(&state).map_err(io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            file.set_len(0)?;
            file.write_all_at(&bytes, 0)
        });
        if let Err(error) = written {
            note!("fyke: {}: {error}; `fyke resume` has older filters", self.path.display());
        }
    }
}

impl Drop for Record {
    /// Removes the files, or empties them if this process may not remove them; empty ones are removed by the next
    /// `fyke resume`.
    fn drop(&mut self) {
        for file in &self.slots {
            let _ = file.set_len(0);
        }
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    for path in [path.to_owned(), slot(path, 0), slot(path, 1)] {
        let _ = std::fs::remove_file(path);
    }
}

fn slot(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn state_of(filters: &FilterSet, sequence: u64) -> State {
    let (epoch, mut labels, counts) = (filters.epoch(), filters.labels(), filters.counts());
    let too_long = counts.iter().map(|one| one.text.len()).sum::<usize>() > MAX_TEXT_BYTES;
    if too_long && sequence % 64 == 1 {
        note!("fyke: the texts of the filters are too long to be recorded for `fyke resume`");
    }
    let by_hand = filters.log(usize::MAX).records.iter().any(|record| record.calls.is_some());
    let filter = |one: fyke_filters::FilterCount| {
        let label = labels.remove(&one.id).unwrap_or_default();
        let expires = label.expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Filter {
            text: one.text.to_string(),
            name: label.name.as_deref().map(str::to_owned),
            expires_unix_ms: expires.and_then(|at| u64::try_from(at.as_millis()).ok()),
            snaplen: label.snaplen,
        }
    };
    let filters = counts.into_iter().filter(|_| !too_long).map(filter).collect();
    State { sequence, epoch, unix_ms: now_ms(), by_hand, too_long, filters }
}

/// The path without links and the identity of a file that this process has open for writing.
fn open_identity(path: &Path) -> anyhow::Result<(PathBuf, String)> {
    let path = path.canonicalize()?;
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        // The file that is open, not the one that has its name by now.
        if std::fs::read_link(entry.path()).is_ok_and(|target| target == path)
            && let Some(found) = FileIdentity::of(&std::fs::metadata(entry.path())?)
        {
            return Ok((path, found.to_string()));
        }
    }
    anyhow::bail!("{} is no regular file", path.display())
}

/// The record of a killed capture, locked by this process.
#[derive(Debug)]
pub struct Found {
    /// Its name in the list.
    pub name: String,
    pub fixed: Fixed,
    pub state: State,
    path: PathBuf,
    _lock: File,
}

impl Found {
    /// Removes its files.
    pub fn remove(&self) {
        remove(&self.path);
    }
}

/// Reads a file of a record: private, of this user, no link, and one complete line.
fn read(path: &Path) -> anyhow::Result<(File, Option<Vec<u8>>)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    anyhow::ensure!(found.is_file(), "it is no regular file");
    anyhow::ensure!(found.uid() == user, "it belongs to user {}, expected {user}", found.uid());
    let mode = found.mode() & 0o777;
    anyhow::ensure!(mode.trailing_zeros() >= 6, "mode {mode:03o}, expected 600");
    anyhow::ensure!(found.len() <= MAX_BYTES, "it is longer than {MAX_BYTES} bytes");
    let mut bytes = Vec::new();
    (&mut file).take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok((file, bytes.ends_with(b"\n").then_some(bytes)))
}

/// Opens a record; `None` if its capture has ended without being killed.
fn open(path: &Path, name: &str) -> anyhow::Result<Option<Found>> {
    let (lock, bytes) = read(path)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            anyhow::bail!("{name}: this capture is still running: `fyke ctl --pid {name}` edits it")
        }
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    let damaged = "the resume file is damaged";
    let fixed: Fixed = serde_json::from_slice(&bytes.context(damaged)?).context(damaged)?;
    anyhow::ensure!(fixed.version == VERSION, "it is of another version of fyke");
    let slots = [0, 1].map(|number| read(&slot(path, number)));
    let ended = |slot: &anyhow::Result<(File, _)>| match slot {
        Ok((file, _)) => file.metadata().is_ok_and(|found| found.len() == 0),
        Err(_) => false,
    };
    if slots.iter().all(ended) {
        remove(path);
        return Ok(None);
    }
    let states = slots.into_iter().filter_map(|slot| slot.ok()?.1);
    let states = states.filter_map(|bytes| serde_json::from_slice::<State>(&bytes).ok());
    let state = states.max_by_key(|state| state.sequence).context(damaged)?;
    Ok(Some(Found { name: name.to_owned(), fixed, state, path: path.to_owned(), _lock: lock }))
}

/// The records of killed captures of this user, and why others cannot be taken up.
pub fn all() -> (Vec<Found>, Vec<String>) {
    let (mut found, mut unusable) = (Vec::new(), Vec::new());
    for dir in RuntimeDir::candidates().into_iter().filter(RuntimeDir::is_private) {
        for entry in std::fs::read_dir(dir.path()).into_iter().flatten().flatten() {
            let file = entry.file_name();
            let Some(name) = file.to_str().and_then(|name| name.strip_suffix(ENDING)) else {
                continue;
            };
            match open(&entry.path(), name) {
                _ if found.len() >= MAX_LISTED => break,
                Ok(one) => found.extend(one),
                Err(error) => unusable.push(format!("{}: {error:#}", entry.path().display())),
            }
        }
    }
    unusable.retain(|text| !text.contains("still running"));
    unusable.truncate(MAX_LISTED);
    found.sort_by(|one, other| one.name.cmp(&other.name));
    (found, unusable)
}

/// The record with this name.
pub fn find(name: &str) -> Result<Found, Failure> {
    let none = || Failure::Usage(format!("resume: there is no killed capture {name}"));
    if name.contains('/') || name.is_empty() {
        return Err(none());
    }
    let file = format!("{name}{ENDING}");
    for dir in RuntimeDir::candidates().into_iter().filter(RuntimeDir::is_private) {
        let path = dir.path().join(&file);
        if path.symlink_metadata().is_ok() {
            let opened = open(&path, name).with_context(|| path.display().to_string())?;
            return opened.ok_or_else(none);
        }
    }
    Err(none())
}

/// A killed capture that is being taken up.
#[derive(Debug)]
pub struct Resumed {
    found: Found,
}

impl Resumed {
    /// Takes a record over.
    pub fn of(found: Found) -> Resumed {
        Resumed { found }
    }

    /// The arguments of the killed capture.
    pub fn args(&self) -> &[String] {
        &self.found.fixed.args
    }

    /// The file to continue, and its identity.
    pub fn output(&self) -> Option<(&Path, &str)> {
        self.found.fixed.output.as_ref().map(|(path, identity)| (path.as_path(), &**identity))
    }

    /// Puts the filters in force that were so last; those whose time is over are left out.
    pub fn apply(&self, filters: &FilterSet) -> Result<(), Failure> {
        let (state, now) = (&self.found.state, now_ms());
        if state.too_long {
            let why = "its filters were too long to be recorded";
            return Err(anyhow::anyhow!("{}: {why}", self.found.name).into());
        }
        let lasts = |filter: &&Filter| filter.expires_unix_ms.is_none_or(|end| end > now);
        let kept: Vec<_> = state.filters.iter().filter(lasts).collect();
        let over = state.filters.len() - kept.len();
        if kept.is_empty() && over > 0 {
            let why = "the time of all its filters is over, so every frame would be accepted";
            return Err(anyhow::anyhow!("{}: {why}; start a new capture", self.found.name).into());
        }
        let changes: Vec<_> = kept.iter().map(|filter| Change::Add(&filter.text)).collect();
        let labels: Vec<_> = kept.iter().map(|filter| label(filter, now)).collect();
        if !changes.is_empty() {
            let edit = Edit { changes: &changes, labels: &labels, author: Author::Resumed };
            filters.edit_as(&edit).map_err(|refused| anyhow::anyhow!(refused.error.to_string()))?;
        }
        let output = self.output().and_then(|(path, _)| path.metadata().ok()?.modified().ok());
        let written = output.and_then(|at| SystemTime::now().duration_since(at).ok());
        let age = written.unwrap_or(Duration::from_millis(now.saturating_sub(state.unix_ms)));
        note!(
            "fyke: resumed capture {}: {} of epoch {}{}; not seen: frames since it was killed, and those that it had \
             not written (its last write or edit was {:.1} s ago)",
            self.found.name,
            if kept.len() == 1 { "1 filter".to_owned() } else { format!("{} filters", kept.len()) },
            state.epoch,
            if over > 0 { format!(", {over} more had ended") } else { String::new() },
            age.as_secs_f64()
        );
        if state.by_hand {
            note!("fyke: passes that were edited by hand are not in force again");
        }
        Ok(())
    }

    /// Removes the record of the killed capture, once the new one has its own.
    pub fn done(&self) {
        self.found.remove();
    }
}

fn label(filter: &Filter, now: u64) -> Label {
    let left = filter.expires_unix_ms.map(|end| Duration::from_millis(end.saturating_sub(now)));
    Label { name: filter.name.as_deref().map(Into::into), lifetime: left, snaplen: filter.snaplen }
}
