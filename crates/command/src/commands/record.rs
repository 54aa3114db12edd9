//! The resume files of a live capture: what it needs to be taken up after it has been killed.
//!
//! `NAME.resume` has what does not change: the arguments and the output file. It is written before the process drops
//! its rights, and kept open for reading only and locked, so that it is known to run; a process that has been taken
//! over cannot change what `fyke resume` will run. `NAME.resume.0` and `.1` have the filters, in turns: they are opened
//! before, too, because the sandbox opens nothing. The first line of each is a whole state, and each line after it is
//! an edit. Once the edits are longer than the state, the next whole state goes to the other file, so one of the two is
//! always complete up to its last line end.
//!
//! The thread of the client that edits writes, before the client gets its answer, and only if a filter has changed; a
//! packet loop never does. An edit costs a comparison of the numbers of all filters, and the bytes of what it changes;
//! a whole state is written once for as many bytes of edits. Texts of more than 16 MiB are not recorded, which is
//! reported. A record that cannot be written is reported once, and the next edit tries again.
//!
//! At an end that is no kill, the files are emptied and removed, by the helper process if the rights are dropped. If
//! that fails, the next capture or `fyke resume` of the same user removes the empty files.

use super::Failure;
use anyhow::Context;
use fyke_capture::FileIdentity;
use fyke_control::RuntimeDir;
use fyke_filters::{Author, Change, Edit, FilterSet, Label};
use fyke_privilege::helper;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const VERSION: u32 = 1;
const ENDING: &str = ".resume";
/// Most bytes of a file of a record.
const MAX_BYTES: u64 = 64 << 20;
/// Most bytes of the texts of a state, with [`FILTER_BYTES`] for each.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Bytes of a filter besides its text.
const FILTER_BYTES: usize = 64;
/// Bytes of edits, besides as many as the state has, after which a whole state is written.
const SPARE_BYTES: u64 = 64 << 10;
/// Most records that are listed.
const MAX_LISTED: usize = 1_000;

/// The part of a record that stays the same while a capture runs.
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

/// An edit of the filters, after a state or another edit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// One more than that of the line before.
    sequence: u64,
    epoch: u64,
    unix_ms: u64,
    by_hand: bool,
    /// Numbers of filters that are no longer in force.
    removed: BTreeSet<u64>,
    added: Vec<Filter>,
}

/// A filter in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Its number in the capture that was killed.
    id: u64,
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
    written: Mutex<Written>,
    /// Locked while this process runs.
    _fixed: File,
}

/// The content of the files.
#[derive(Debug, Default)]
struct Written {
    /// Number of the last line.
    sequence: u64,
    /// The file with the last line.
    slot: usize,
    /// Bytes of its first line, and of all lines.
    bytes: (u64, u64),
    /// Numbers of the filters.
    ids: BTreeSet<u64>,
    by_hand: bool,
    too_long: bool,
    /// True after a failure: the last line may be incomplete, and the failure has been reported.
    failed: bool,
    /// True at the end.
    ended: bool,
}

impl Record {
    /// Makes the files of a capture with these arguments; `output` is the file that it has open. `None` without a
    /// folder for them, which is that of the control socket, and for a pipe or device, which cannot be continued.
    pub fn start(args: Vec<String>, output: Option<&Path>) -> anyhow::Result<Option<Record>> {
        let Ok(dir) = RuntimeDir::usable() else { return Ok(None) };
        sweep(dir.path());
        if output.is_some_and(|path| path.metadata().is_ok_and(|found| !found.is_file())) {
            return Ok(None);
        }
        let output = output.map(open_identity).transpose()?;
        let folder = std::env::current_dir()?;
        let fixed = Fixed { version: VERSION, pid: std::process::id(), args, folder, output };
        let mut bytes = serde_json::to_vec(&fixed)?;
        bytes.push(b'\n');
        for number in 0..MAX_LISTED {
            let more = if number == 0 { String::new() } else { format!("-{number}") };
            let path = dir.path().join(format!("{}{more}{ENDING}", fixed.pid));
            match new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                draft => {
                    let record = Record::fill(&path, &draft?, &bytes);
                    return record.inspect_err(|_| remove(&path)).map(Some);
                }
            }
        }
        anyhow::bail!("{}: too many resume files", dir.path().display())
    }

    fn fill(path: &Path, mut draft: &File, bytes: &[u8]) -> anyhow::Result<Record> {
        draft.write_all(bytes)?;
        let fixed = File::open(path)?;
        fixed.try_lock().map_err(|_| anyhow::anyhow!("{} is locked", path.display()))?;
        // After the lock: files that are empty and not locked are those of a capture that has ended.
        let slots = [new(&slot(path, 0))?, new(&slot(path, 1))?];
        will_remove(path);
        Ok(Record { path: path.to_owned(), slots, written: Mutex::default(), _fixed: fixed })
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what has changed since the last call; `by_hand` after an edit of passes.
    pub fn write(&self, filters: &FilterSet, by_hand: bool) {
        let mut written = self.lock();
        let epoch = filters.epoch();
        // What an edit removes in between is written by the call for that edit.
        let (listed, mut labels) = (filters.counts(), filters.labels());
        let ids: BTreeSet<u64> = listed.iter().map(|one| one.id).collect();
        let sizes = listed.iter().map(|one| one.text.len() + FILTER_BYTES);
        let too_long = sizes.sum::<usize>() > MAX_TEXT_BYTES;
        let by_hand = by_hand || written.by_hand;
        let whole = written.sequence == 0 || written.failed || too_long != written.too_long;
        let is_same = ids == written.ids && by_hand == written.by_hand;
        if written.ended || (!whole && (is_same || too_long)) {
            return;
        }
        if too_long && !written.too_long {
            note!("fyke: the texts of the filters are too long to be recorded for `fyke resume`");
        }
        let mut filter = |one: &fyke_filters::FilterCount| {
            recorded(one.id, &one.text, labels.remove(&one.id).unwrap_or_default())
        };
        let (sequence, unix_ms) = (written.sequence + 1, now_ms());
        let is_new = |one: &&fyke_filters::FilterCount| !written.ids.contains(&one.id);
        let saved = match whole || written.bytes.1 > 2 * written.bytes.0 + SPARE_BYTES {
            true => {
                let filters = listed.iter().filter(|_| !too_long).map(&mut filter).collect();
                let state = State { sequence, epoch, unix_ms, by_hand, too_long, filters };
                self.save_whole(&mut written, &state)
            }
            false => {
                let removed = written.ids.difference(&ids).copied().collect();
                let added = listed.iter().filter(is_new).map(&mut filter).collect();
                let step = Step { sequence, epoch, unix_ms, by_hand, removed, added };
                self.save_step(&mut written, &step)
            }
        };
        let failed_before = std::mem::replace(&mut written.failed, saved.is_err());
        (written.sequence, written.ids) = (sequence, ids);
        (written.by_hand, written.too_long) = (by_hand, too_long);
        if let Err(error) = saved
            && !failed_before
        {
            note!("fyke: {}: {error}; `fyke resume` has older filters", self.path.display());
        }
    }

    fn save_whole(&self, written: &mut Written, state: &State) -> io::Result<()> {
        let line = line(state)?;
        // If it fails, the complete lines of the other file stay, and the next call tries again.
        let slot = 1 - written.slot;
        self.slots[slot].set_len(0)?;
        append(&self.slots[slot], &line, 0)?;
        (written.slot, written.bytes) = (slot, (line.len() as u64, line.len() as u64));
        Ok(())
    }

    fn save_step(&self, written: &mut Written, step: &Step) -> io::Result<()> {
        let line = line(step)?;
        append(&self.slots[written.slot], &line, written.bytes.1)?;
        written.bytes.1 += line.len() as u64;
        Ok(())
    }

    /// Ends the record without a kill.
    pub fn end(&self) {
        let mut written = self.lock();
        if !std::mem::replace(&mut written.ended, true) {
            for file in &self.slots {
                let _ = file.set_len(0);
            }
            remove(&self.path);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end();
    }
}

fn new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes at this place, the end of a file; a part of a line would take the room of the next attempt.
fn append(file: &File, line: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(line, at).inspect_err(|_| drop(file.set_len(at)))
}

fn line(of: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(of)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Removes the files of captures that have ended without a kill, and could not do so themselves.
fn sweep(dir: &Path) {
    let is_empty = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.len() == 0);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_record = path.to_str().is_some_and(|name| name.ends_with(ENDING));
        if is_record && is_empty(&slot(&path, 0)) && is_empty(&slot(&path, 1)) {
            let file = read(&path, OFlags::RDONLY);
            if file.is_ok_and(|(file, _)| file.try_lock().is_ok()) {
                remove(&path);
            }
        }
    }
}

fn files(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), slot(path, 0), slot(path, 1)]
}

/// Lets the files of a record be removed after the rights are dropped.
fn will_remove(path: &Path) {
    // Without it, they are emptied.
    files(path).iter().for_each(|file| drop(helper::may_remove(file)));
}

fn remove(path: &Path) {
    for path in files(path) {
        let _ = helper::remove_file(&path);
    }
}

fn slot(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn recorded(id: u64, text: &str, label: fyke_filters::InForce) -> Filter {
    let expires = label.expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Filter {
        id,
        text: text.to_owned(),
        name: label.name.as_deref().map(str::to_owned),
        expires_unix_ms: expires.and_then(|at| u64::try_from(at.as_millis()).ok()),
        snaplen: label.snaplen,
    }
}

/// The last state in a file; an edit that is not complete is left out.
fn last_state(bytes: &[u8]) -> Option<State> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|one| one.ends_with(b"\n"));
    let mut state: State = serde_json::from_slice(lines.next()?).ok()?;
    let numbered = std::mem::take(&mut state.filters).into_iter().map(|one| (one.id, one));
    let mut filters: BTreeMap<u64, Filter> = numbered.collect();
    for line in lines {
        let Ok(step) = serde_json::from_slice::<Step>(line) else { break };
        if Some(step.sequence) != state.sequence.checked_add(1) {
            break;
        }
        step.removed.iter().for_each(|id| drop(filters.remove(id)));
        filters.extend(step.added.into_iter().map(|filter| (filter.id, filter)));
        (state.sequence, state.epoch) = (step.sequence, step.epoch);
        (state.unix_ms, state.by_hand) = (step.unix_ms, step.by_hand);
    }
    state.filters = filters.into_values().collect();
    Some(state)
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
    slots: Vec<File>,
    _lock: File,
}

impl Found {
    /// The capture file, and its identity.
    pub fn output(&self) -> Option<(&Path, &str)> {
        self.fixed.output.as_ref().map(|(path, identity)| (path.as_path(), &**identity))
    }

    /// Removes its files. They are emptied before: this process may have dropped the rights to remove them.
    pub fn remove(&self) {
        self.slots.iter().for_each(|file| drop(file.set_len(0)));
        remove(&self.path);
    }
}

/// Reads a file of a record: private, of this user, and no link.
fn read(path: &Path, access: OFlags) -> anyhow::Result<(File, Vec<u8>)> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
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
    Ok((file, bytes))
}

/// Opens a record; `None` if its capture has ended without being killed.
fn open(path: &Path, name: &str) -> anyhow::Result<Option<Found>> {
    let (lock, bytes) = read(path, OFlags::RDONLY)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            anyhow::bail!("{name}: this capture is still running: `fyke ctl --pid {name}` edits it")
        }
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    let damaged = "the resume file is damaged";
    let fixed: Fixed = serde_json::from_slice(&bytes).context(damaged)?;
    anyhow::ensure!(fixed.version == VERSION, "it is of another version of fyke");
    let slots = [0, 1].map(|number| read(&slot(path, number), OFlags::RDWR));
    let ended = |slot: &anyhow::Result<(File, _)>| match slot {
        Ok((file, _)) => file.metadata().is_ok_and(|found| found.len() == 0),
        Err(_) => false,
    };
    if slots.iter().all(ended) {
        remove(path);
        return Ok(None);
    }
    let (slots, bytes): (Vec<_>, Vec<_>) = slots.into_iter().flatten().unzip();
    let states = bytes.iter().filter_map(|bytes| last_state(bytes));
    let state = states.max_by_key(|state| state.sequence).context(damaged)?;
    Ok(Some(Found {
        name: name.to_owned(),
        fixed,
        state,
        path: path.to_owned(),
        slots,
        _lock: lock,
    }))
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

    /// Lets the record be removed after the rights are dropped.
    pub fn will_be_removed(&self) {
        will_remove(&self.found.path);
    }

    /// The arguments of the killed capture.
    pub fn args(&self) -> &[String] {
        &self.found.fixed.args
    }

    /// The file to continue, and its identity.
    pub fn output(&self) -> Option<(&Path, &str)> {
        self.found.output()
    }

    /// Puts the filters in force that were so last; those that have expired are left out.
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

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_filter::Options;

    fn one_filter() -> FilterSet {
        let filters = FilterSet::new(Options::default());
        filters.add("udp port 1").unwrap();
        filters
    }

    fn states(path: &Path) -> [Option<State>; 2] {
        [0, 1].map(|number| last_state(&std::fs::read(slot(path, number)).unwrap()))
    }

    fn last(path: &Path) -> State {
        states(path).into_iter().flatten().max_by_key(|state| state.sequence).unwrap()
    }

    fn texts(state: &State) -> Vec<(u64, String)> {
        state.filters.iter().map(|filter| (filter.id, filter.text.clone())).collect()
    }

    fn in_force(filters: &FilterSet) -> Vec<(u64, String)> {
        filters.counts().into_iter().map(|one| (one.id, one.text.to_string())).collect()
    }

    fn record(folder: &Path) -> (PathBuf, Record) {
        let path = folder.join("7.resume");
        let record = Record::fill(&path, &new(&path).unwrap(), b"{}\n").unwrap();
        (path, record)
    }

    #[test]
    fn the_files_have_what_is_in_force_after_each_edit() {
        let folder = tempfile::tempdir().unwrap();
        let (path, record) = record(folder.path());
        let filters = one_filter();
        record.write(&filters, false);
        let (mut slots, mut seen) = (BTreeSet::new(), vec![in_force(&filters)]);
        for number in 0..600_u64 {
            let long = " or udp port 7".repeat(number as usize % 40);
            match number % 3 {
                0 => drop(filters.add(&format!("tcp port {number}{long}")).unwrap()),
                1 => drop(filters.add("arp").unwrap()),
                _ => filters.remove(filters.counts()[number as usize % 2].id).unwrap(),
            }
            record.write(&filters, false);
            assert_eq!(texts(&last(&path)), in_force(&filters), "edit {number}");
            seen.push(in_force(&filters));
            slots.insert(record.lock().slot);
        }
        assert_eq!(slots.len(), 2, "whole states are written in turns");
        let before = record.lock().sequence;
        record.write(&filters, false);
        assert_eq!(record.lock().sequence, before, "without a change, nothing is written");
        record.write(&filters, true);
        assert!(last(&path).by_hand);
        // A kill in the middle of a line.
        let current = slot(&path, record.lock().slot);
        let bytes = std::fs::read(&current).unwrap();
        for len in (0..bytes.len()).rev().step_by(97) {
            std::fs::write(&current, &bytes[..len]).unwrap();
            assert!(seen.contains(&texts(&last(&path))), "cut at {len}");
        }
        record.end();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        record.write(&filters, false);
    }

    #[test]
    fn ended_records_are_swept_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (path, record) = record(folder.path());
        sweep(folder.path());
        assert!(path.exists(), "it is locked");
        let filters = one_filter();
        record.write(&filters, false);
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        // As after a kill: not locked, with filters.
        let killed = folder.path().join("8.resume");
        std::fs::copy(&path, &killed).unwrap();
        for number in [0, 1] {
            std::fs::copy(slot(&path, number), slot(&killed, number)).unwrap();
        }
        sweep(folder.path());
        assert_eq!(files(), 6);
        for number in [0, 1] {
            std::fs::write(slot(&killed, number), "").unwrap();
        }
        sweep(folder.path());
        assert_eq!(files(), 3);
    }
}
