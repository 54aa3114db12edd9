//! The log: lines of JSON, each with the SHA-256 of the line before it (`before`) and its own (`hash`, its last member,
//! of all bytes before this member), so that a changed, removed or moved line is found. Lines that are missing at the
//! end, and hashes that were computed again from some line on, are found only if a later hash is known from elsewhere.
//!
//! The file is opened for appending only, and locked, so that two processes do not write one log.

use crate::{hex, name_of};
use fyke_flow::clock;
use ring::digest::{Context, SHA256, digest};
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes of a line.
const LINE: u64 = 64 << 10;

/// The last member of a line, before and after the digits of its hash.
const HASH_START: &[u8] = b",\"hash\":\"";
const HASH_END: &[u8] = b"\"}";

/// The hash before the first line.
const FIRST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Error of a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line was changed or does not follow the one before it.
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
/// The first line that was changed or does not follow the one before it.
pub fn verify(input: impl Read, known: Option<&str>) -> Result<Verified, LogError> {
    let (found, rest, _) = read(input, known)?;
    match rest.is_empty() {
        true => Ok(found),
        false => Err(LogError::Broken {
            line: found.lines + 1,
            problem:
                "it has no end, as after a kill or on a full disk; the next capture into this \
                      folder moves it to FILE.broken and continues the log"
                    .to_owned(),
        }),
    }
}

/// Checks the lines of a log. Returns also the bytes after the last whole line, and their offset.
fn read(input: impl Read, known: Option<&str>) -> Result<(Verified, Vec<u8>, u64), LogError> {
    let mut input = BufReader::new(input);
    let mut found = Verified {
        lines: 0,
        last: FIRST.to_owned(),
        is_ended: false,
        has_known: false,
        files: Vec::new(),
    };
    let mut offset = 0;
    loop {
        let mut bytes = Vec::new();
        (&mut input).take(LINE).read_until(b'\n', &mut bytes)?;
        let line = found.lines + 1;
        let broken = |problem: String| LogError::Broken { line, problem };
        let length = bytes.len() as u64;
        if bytes.pop_if(|byte| *byte == b'\n').is_none() {
            return match length < LINE {
                true => Ok((found, bytes, offset)),
                false => Err(broken(format!("longer than {LINE} bytes"))),
            };
        }
        offset += length;
        let entry: Map<String, Value> = serde_json::from_slice(&bytes)
            .map_err(|error| broken(format!("not a line of a log: {error}")))?;
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        if entry.get("number").and_then(Value::as_u64) != Some(line) {
            return Err(broken("its number is another one: a line is missing or moved".to_owned()));
        }
        let hash = own_hash(&bytes)
            .ok_or_else(|| broken("it does not have its own hash: it was changed".to_owned()))?;
        if text("before") != found.last {
            let message = "it does not have the hash of the line before it: a line was changed or \
                           is missing";
            return Err(broken(message.to_owned()));
        }
        found.is_ended = text("event") == "end";
        if text("event") == "file closed" {
            found.files.push((text("file").to_owned(), text("sha256").to_owned()));
        }
        (found.lines, found.last) = (line, hash);
        found.has_known |= known == Some(&*found.last);
    }
}

/// The hash of a line, if it has that hash as its last member.
fn own_hash(line: &[u8]) -> Option<String> {
    let end = line.len().checked_sub(HASH_START.len() + FIRST.len() + HASH_END.len())?;
    let (body, member) = line.split_at(end);
    let hash = member.strip_prefix(HASH_START)?.strip_suffix(HASH_END)?;
    let wanted = hex(digest(&SHA256, body).as_ref());
    (hash == wanted.as_bytes()).then_some(wanted)
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
    path: PathBuf,
    bytes: u64,
    lines: u64,
    last: String,
}

impl ChainLog {
    /// Opens a log and checks the lines that it has. A last line without an end is moved to `FILE.broken`; the next
    /// line records that.
    pub(crate) fn open(path: &Path, time_ns: u64) -> Result<ChainLog, LogError> {
        let file = open_to_append(path)?;
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&file, lock)
            .map_err(|_| io::Error::other("another fyke writes this log"))?;
        let (Verified { lines, last, .. }, rest, bytes) = read(&file, None)?;
        let mut log = ChainLog { file, path: path.to_owned(), bytes, lines, last };
        if !rest.is_empty() {
            log.set_aside(&rest, time_ns)?;
        }
        Ok(log)
    }

    fn set_aside(&mut self, rest: &[u8], time_ns: u64) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".broken");
        let path = PathBuf::from(name);
        let named = |error: io::Error| name_of(&path, &error);
        let mut broken = open_to_append(&path).map_err(named)?;
        broken.write_all(rest).and_then(|()| broken.sync_all()).map_err(named)?;
        self.file.set_len(self.bytes)?;
        let fields = [
            ("bytes", Value::from(rest.len())),
            ("sha256", hex(digest(&SHA256, rest).as_ref()).into()),
        ];
        self.add(time_ns, "incomplete line set aside", &fields)
    }

    /// Adds a line. If it cannot be written as a whole, the log is as before.
    pub(crate) fn add(
        &mut self,
        time_ns: u64,
        event: &str,
        fields: &[(&str, Value)],
    ) -> io::Result<()> {
        let mut entry = Map::new();
        entry.insert("number".into(), (self.lines + 1).into());
        entry.insert("time".into(), clock::date_time(time_ns).into());
        entry.insert("event".into(), event.into());
        entry.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        entry.insert("before".into(), self.last.clone().into());
        let mut line = Value::Object(entry).to_string().into_bytes();
        line.pop();
        let hash = hex(digest(&SHA256, &line).as_ref());
        line.extend([HASH_START, hash.as_bytes(), HASH_END, b"\n"].concat());
        if let Err(error) = self.file.write_all(&line) {
            // If this fails, too, the next start sets the line aside.
            let _ = self.file.set_len(self.bytes);
            return Err(name_of(&self.path, &error));
        }
        self.bytes += line.len() as u64;
        (self.lines, self.last) = (self.lines + 1, hash);
        Ok(())
    }

    /// Waits until the lines are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|error| name_of(&self.path, &error))
    }
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_changed_removed_or_swapped_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for round in 0..3 {
            let mut log = ChainLog::open(&path, round).unwrap();
            assert!(ChainLog::open(&path, round).is_err(), "two writers");
            log.add(round, "begin", &[("warrant", "W".into())]).unwrap();
            log.add(round, "end", &[]).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let good = verify(text.as_bytes(), None).unwrap();
        assert_eq!((good.lines, good.is_ended), (6, true));
        assert!(
            lines[5].contains(&good.last)
                && verify(text.as_bytes(), Some(&good.last)).unwrap().has_known
        );
        let join =
            |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let bad_at = |text: &str, wanted: u64| match verify(text.as_bytes(), None) {
            Err(LogError::Broken { line, .. }) => assert_eq!(line, wanted, "{text}"),
            other => panic!("{other:?}"),
        };
        for at in 0..6 {
            if at < 5 {
                let mut removed = lines.clone();
                removed.remove(at);
                bad_at(&join(&removed), at as u64 + 1);
                let mut swapped = lines.clone();
                swapped.swap(at, at + 1);
                bad_at(&join(&swapped), at as u64 + 1);
            }
            let without = lines[at].replacen("\"event\"", "\"other\":1,\"event\"", 1);
            for changed in [
                lines[at].replace("W", "V").replace("end", "eat"),
                without,
                lines[at].replace("hash", "hush"),
            ] {
                let mut other = lines.clone();
                other[at] = &changed;
                bad_at(&join(&other), at as u64 + 1);
            }
        }
        bad_at(&text[..text.len() - 1], 6);
        std::fs::write(&path, join(&lines[1..])).unwrap();
        assert!(ChainLog::open(&path, 0).is_err(), "a broken log is not continued");
    }

    #[test]
    fn a_last_line_without_an_end_is_set_aside_and_the_log_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = ChainLog::open(&path, 0).unwrap();
        log.add(0, "begin", &[]).unwrap();
        log.add(0, "end", &[]).unwrap();
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in [second + 1, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let refused = verify(&whole[..cut], None).unwrap_err().to_string();
            assert!(refused.contains("line 2") && refused.contains(".broken"), "{refused}");
            let mut log = ChainLog::open(&path, 1).unwrap();
            log.add(2, "begin", &[]).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.lines().nth(1).unwrap().contains("incomplete line set aside"), "{text}");
            assert_eq!(verify(text.as_bytes(), None).unwrap().lines, 3);
            let broken = std::fs::read(folder.path().join("log.broken")).unwrap();
            assert!(broken.ends_with(&whole[second..cut]));
        }
    }
}
