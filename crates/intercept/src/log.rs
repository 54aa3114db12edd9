//! The log: lines of JSON, each with the SHA-256 of the line before it, so that a changed, removed or moved line is
//! found. Lines that are missing at the end are found only if the last hash is known from elsewhere.
//!
//! The file is opened for appending only, and locked, so that two processes do not write one log.

use crate::hex;
use crate::time;
use ring::digest::{Context, SHA256, digest};
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most bytes of a line.
const LINE: u64 = 64 << 10;

/// The hash before the first line.
const FIRST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Error of a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line does not follow the one before it.
    #[error("line {line}: {problem}")]
    Broken {
        /// Number of the line, from 1.
        line: u64,
        /// The fault.
        problem: String,
    },
}

/// A log without a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Number of lines.
    pub lines: u64,
    /// Hash of the last line.
    pub last: String,
    /// True if the last line is the end of a capture; else it was killed, runs, or lines are missing.
    pub is_ended: bool,
    /// True if a line has the hash that is known from elsewhere.
    pub has_known: bool,
    /// Files that were closed, with their SHA-256.
    pub files: Vec<(String, String)>,
}

/// Checks the lines of a log; `known` is the hash of a line that is known from elsewhere.
///
/// # Errors
/// The first line that does not follow the one before it.
pub fn verify(input: impl Read, known: Option<&str>) -> Result<Verified, LogError> {
    let mut input = BufReader::new(input);
    let mut found = Verified {
        lines: 0,
        last: FIRST.to_owned(),
        is_ended: false,
        has_known: false,
        files: Vec::new(),
    };
    loop {
        let mut bytes = Vec::new();
        (&mut input).take(LINE).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(found);
        }
        let line = found.lines + 1;
        let broken = |problem: String| LogError::Broken { line, problem };
        let Some(b'\n') = bytes.pop() else {
            return Err(broken("it has no end: the line was cut, or is too long".to_owned()));
        };
        let entry: Map<String, Value> = serde_json::from_slice(&bytes)
            .map_err(|error| broken(format!("not a line of a log: {error}")))?;
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        if entry.get("number").and_then(Value::as_u64) != Some(line) {
            return Err(broken("its number is another one: a line is missing or moved".to_owned()));
        }
        if text("before") != found.last {
            let message = "it does not have the hash of the line before it: one of the two was \
                           changed, or a line is missing";
            return Err(broken(message.to_owned()));
        }
        found.is_ended = text("event") == "end";
        if text("event") == "file closed" {
            found.files.push((text("file").to_owned(), text("sha256").to_owned()));
        }
        (found.lines, found.last) = (line, hex(digest(&SHA256, &bytes).as_ref()));
        found.has_known |= known == Some(&*found.last);
    }
}

/// The SHA-256 of a file, as in the log.
///
/// # Errors
/// If it cannot be read.
pub fn hash_of(path: &Path) -> io::Result<String> {
    let (mut file, mut hash) = (File::open(path)?, Context::new(&SHA256));
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(hash.finish().as_ref())),
            length => hash.update(&buffer[..length]),
        }
    }
}

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct ChainLog {
    file: File,
    lines: u64,
    last: String,
}

impl ChainLog {
    /// Opens a log and checks the lines that it has.
    pub(crate) fn open(path: &Path) -> Result<ChainLog, LogError> {
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)?;
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&file, lock)
            .map_err(|_| io::Error::other("another fyke writes this log"))?;
        let Verified { lines, last, .. } = verify(&file, None)?;
        Ok(ChainLog { file, lines, last })
    }

    /// Adds a line.
    pub(crate) fn add(
        &mut self,
        time_ns: u64,
        event: &str,
        fields: &[(&str, Value)],
    ) -> io::Result<()> {
        let mut entry = Map::new();
        entry.insert("number".into(), (self.lines + 1).into());
        entry.insert("time".into(), time::text(time_ns).into());
        entry.insert("event".into(), event.into());
        entry.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        entry.insert("before".into(), self.last.clone().into());
        let line = Value::Object(entry).to_string();
        self.file.write_all(format!("{line}\n").as_bytes())?;
        (self.lines, self.last) = (self.lines + 1, hex(digest(&SHA256, line.as_bytes()).as_ref()));
        Ok(())
    }

    /// Waits until the lines are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_changed_removed_or_swapped_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for round in 0..3 {
            let mut log = ChainLog::open(&path).unwrap();
            assert!(ChainLog::open(&path).is_err(), "two writers");
            log.add(round, "begin", &[("warrant", "W".into())]).unwrap();
            log.add(round, "end", &[]).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let good = verify(text.as_bytes(), None).unwrap();
        assert_eq!((good.lines, good.is_ended), (6, true));
        let join =
            |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let bad_at = |text: &str, wanted: u64| match verify(text.as_bytes(), None) {
            Err(LogError::Broken { line, .. }) => assert_eq!(line, wanted, "{text}"),
            other => panic!("{other:?}"),
        };
        for at in 0..5 {
            let mut removed = lines.clone();
            removed.remove(at);
            bad_at(&join(&removed), at as u64 + 1);
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            bad_at(&join(&swapped), at as u64 + 1);
            let changed = lines[at].replace("W", "V").replace("end", "eat");
            let mut other = lines.clone();
            other[at] = &changed;
            bad_at(&join(&other), at as u64 + 2);
        }
        bad_at(&text[..text.len() - 1], 6);
        std::fs::write(&path, join(&lines[1..])).unwrap();
        assert!(ChainLog::open(&path).is_err(), "a broken log is not continued");
    }
}
