//! Rotation of files: the time of the next file and its name, as with tcpdump's -C, -G and -W.
//!
//! -C alone: `name`, `name1`, `name2` … With -W too, the number has leading zeros and starts again when the last file
//! is full, overwriting the oldest. -G: the name is a pattern of strftime(3), and -W is the number of files after
//! which writing ends. Both: numbers start again with every new period, and -W bounds the numbers. The size is
//! checked before a frame is written, so a file may be longer by one frame. A name at which no file can be created,
//! because another user has one there, is skipped for the next number, also with -G alone; with -C and -W, for the next
//! number from -W on at which there is no file, so that the ring keeps its number of files. Source: tcpdump(8), and
//! tcpdump 4.99.3 for details that the manual leaves open.

use super::WriteError;
use crate::sys::time;
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most names in a row that are skipped.
const MAX_PASSED_OVER: u32 = 1000;

/// Conditions for starting another file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Size of a file in millions of bytes (-C).
    pub size_millions: Option<u32>,
    /// Duration of a file in seconds (-G); the name is a pattern of strftime(3).
    pub seconds: Option<u32>,
    /// Number of files (-W).
    pub count: Option<u32>,
}

/// Names the files of one sink.
#[derive(Debug)]
pub(super) struct Names {
    pattern: PathBuf,
    rotation: Rotation,
    /// Start of the current period.
    since: u64,
    /// Number of periods that are over.
    periods: u32,
    /// Number of the file in its period.
    number: u32,
    /// Numbers of a ring that cannot be used in this period, with the numbers that replace them. Each has cost
    /// another user a file.
    replaced: HashMap<u32, u32>,
    /// Highest number that replaces another; at first that of the ring's last file.
    highest: u32,
}

/// Decision before a frame: stay in the file, start another one, or end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextFile {
    Stay,
    Next(PathBuf),
    /// All requested files are written.
    Done(u32),
}

impl Names {
    pub(super) fn new(pattern: &Path, rotation: Rotation) -> Result<Self, WriteError> {
        let zero = [rotation.size_millions, rotation.seconds, rotation.count].contains(&Some(0));
        if zero {
            return Err(WriteError::Options("file size, seconds and file count start at 1"));
        }
        if rotation.count.is_some() && rotation.size_millions.or(rotation.seconds).is_none() {
            return Err(WriteError::Options(
                "a file count needs a file size or a number of seconds",
            ));
        }
        Ok(Names {
            pattern: pattern.to_owned(),
            rotation,
            since: now(),
            periods: 0,
            number: 0,
            replaced: HashMap::new(),
            highest: 0,
        })
    }

    /// True if there may be more than one file.
    pub(super) fn rotates(&self) -> bool {
        self.rotation.rotates()
    }

    /// The name of the current file.
    pub(super) fn path(&self) -> PathBuf {
        let mut name = self.pattern.as_os_str().to_owned();
        if self.rotation.seconds.is_some() {
            name = dated(&name, self.since);
        }
        let width = if self.rotation.size_millions.is_some() { self.width() } else { 0 };
        let number = self.replaced.get(&self.number).copied().unwrap_or(self.number);
        if number > 0 || width > 0 {
            name.push(format!("{number:0width$}"));
        }
        PathBuf::from(name)
    }

    /// The open folder of all files; `None` if its name is not fixed or it cannot be opened.
    pub(super) fn folder(&self) -> Option<OwnedFd> {
        let folder = folder_of(&self.pattern, &self.rotation)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(folder, flags, Mode::empty()).ok()
    }

    /// Decides before every frame. `size` is that of the current file.
    pub(super) fn next_file(&mut self, size: u64) -> NextFile {
        self.next_file_at(size, if self.rotation.seconds.is_some() { now() } else { 0 })
    }

    fn next_file_at(&mut self, size: u64, now: u64) -> NextFile {
        let Rotation { size_millions, seconds, count } = self.rotation;
        // If the clock was set back, the period starts again; otherwise it would be longer by that time.
        self.since = self.since.min(now);
        if let Some(seconds) = seconds
            && now.saturating_sub(self.since) >= u64::from(seconds)
        {
            self.since = now;
            self.periods += 1;
            if let (None, Some(count)) = (size_millions, count)
                && self.periods >= count
            {
                return NextFile::Done(count);
            }
            self.number = 0;
            self.replaced.clear();
            self.highest = 0;
            return NextFile::Next(self.path());
        }
        if let Some(millions) = size_millions
            && size > u64::from(millions) * 1_000_000
        {
            self.next_number();
            return NextFile::Next(self.path());
        }
        NextFile::Stay
    }

    /// Returns the name to use instead of the current one; `in_a_row` names have been skipped. `None` if
    /// [`MAX_PASSED_OVER`] names have been tried. See [`Names::must_be_new`].
    pub(super) fn pass_over(&mut self, in_a_row: u32) -> Option<PathBuf> {
        if in_a_row >= MAX_PASSED_OVER {
            return None;
        }
        match self.ring_count() {
            None => self.next_number(),
            Some(count) => {
                self.highest = self.highest.max(count - 1).checked_add(1)?;
                self.replaced.insert(self.number, self.highest);
            }
        }
        Some(self.path())
    }

    /// True if the name that [`Names::pass_over`] has returned is outside of the numbers that the user named. A file
    /// there may be of an earlier capture and must not be overwritten.
    pub(super) fn must_be_new(&self) -> bool {
        self.ring_count().is_some()
    }

    /// Number of files that are written in a circle.
    fn ring_count(&self) -> Option<u32> {
        self.rotation.count.filter(|_| self.rotation.size_millions.is_some())
    }

    fn next_number(&mut self) {
        self.number += 1;
        if self.ring_count().is_some_and(|count| self.number >= count) {
            self.number = 0;
        }
    }

    /// Digits of the largest number, if it is known.
    fn width(&self) -> usize {
        let largest = self.rotation.count.map_or(0, |count| count - 1);
        largest.checked_ilog10().map_or(0, |digits| digits as usize + 1)
    }
}

/// The folder in which a sink creates files; `None` if the time is part of its name.
pub(super) fn folder_of<'p>(pattern: &'p Path, rotation: &Rotation) -> Option<&'p Path> {
    let folder = pattern.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let dated = rotation.seconds.is_some() && folder.as_os_str().as_bytes().contains(&b'%');
    (!dated).then_some(folder)
}

/// Fills in the time (in this machine's time zone). A pattern with an empty result stays unchanged.
fn dated(pattern: &OsStr, seconds: u64) -> OsString {
    time::format_local(pattern.as_bytes(), seconds)
        .map_or_else(|| pattern.to_owned(), OsString::from_vec)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(size_millions: Option<u32>, seconds: Option<u32>, count: Option<u32>) -> Names {
        let rotation = Rotation { size_millions, seconds, count };
        let mut names = Names::new(Path::new("out"), rotation).expect("options that fit");
        names.since = 1000;
        names
    }

    fn next(names: &mut Names, size: u64, now: u64) -> String {
        match names.next_file_at(size, now) {
            NextFile::Next(path) => path.display().to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn by_size() {
        let mut names = names(Some(1), None, None);
        assert_eq!(names.path(), Path::new("out"));
        assert_eq!(next(&mut names, 1_000_000, 0), "Stay");
        assert_eq!(next(&mut names, 1_000_001, 0), "out1");
        assert_eq!(next(&mut names, 2_000_000, 0), "out2");
    }

    #[test]
    fn by_size_in_a_circle() {
        let mut names = names(Some(1), None, Some(11));
        assert_eq!(names.path(), Path::new("out00"));
        let turns: Vec<_> = (0..11).map(|_| next(&mut names, 1_500_000, 0)).collect();
        assert_eq!(turns[0], "out01");
        assert_eq!(turns[9..], ["out10", "out00"]);
    }

    #[test]
    fn by_time() {
        let mut names = names(None, Some(10), Some(2));
        assert_eq!(names.path(), Path::new("out"));
        assert_eq!(next(&mut names, 9_000_000, 1009), "Stay");
        assert_eq!(next(&mut names, 0, 1010), "out");
        assert_eq!(next(&mut names, 0, 1025), "Done(2)");
    }

    #[test]
    fn a_clock_that_is_set_makes_no_period_longer_than_two() {
        let mut names = names(None, Some(10), None);
        assert_eq!(next(&mut names, 0, 1009), "Stay");
        assert_eq!(next(&mut names, 0, 500), "Stay");
        assert_eq!(next(&mut names, 0, 509), "Stay");
        assert_eq!(next(&mut names, 0, 510), "out");
        // Forward by years: only one period ends.
        assert_eq!(next(&mut names, 0, 900_000_000), "out");
        assert_eq!(next(&mut names, 0, 900_000_009), "Stay");
    }

    #[test]
    fn by_time_and_size() {
        let mut names = names(Some(1), Some(10), Some(3));
        assert_eq!(names.path(), Path::new("out0"));
        assert_eq!(next(&mut names, 2_000_000, 1001), "out1");
        assert_eq!(next(&mut names, 2_000_000, 1002), "out2");
        assert_eq!(next(&mut names, 2_000_000, 1003), "out0");
        assert_eq!(next(&mut names, 2_000_000, 1004), "out1");
        assert_eq!(next(&mut names, 0, 1010), "out0");
    }

    #[test]
    fn names_that_cannot_be_used_are_passed_over() {
        let shown = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
        let mut ring = names(Some(1), None, Some(3));
        assert_eq!(next(&mut ring, 2_000_000, 0), "out1");
        assert_eq!(shown(ring.pass_over(1)).as_deref(), Some("out3"));
        assert_eq!(shown(ring.pass_over(2)).as_deref(), Some("out4"));
        let turns: Vec<_> = (0..4).map(|_| next(&mut ring, 2_000_000, 0)).collect();
        assert_eq!(turns, ["out2", "out0", "out4", "out2"], "three files are kept");
        assert_eq!(shown(ring.pass_over(1)).as_deref(), Some("out5"));
        assert_eq!((1..).map_while(|row| ring.pass_over(row)).count(), 999);
        let mut endless = names(Some(1), None, None);
        assert_eq!((1..).map_while(|row| endless.pass_over(row)).count(), 999);
        let mut by_time = names(None, Some(10), Some(2));
        assert_eq!(shown(by_time.pass_over(1)).as_deref(), Some("out1"));
        assert_eq!(next(&mut by_time, 0, 1010), "out", "each period starts with its own name");
    }

    #[test]
    fn contradictions() {
        let rotation = |size_millions, seconds, count| Rotation { size_millions, seconds, count };
        for wrong in [
            rotation(Some(0), None, None),
            rotation(None, Some(0), None),
            rotation(None, None, Some(3)),
        ] {
            assert!(Names::new(Path::new("out"), wrong).is_err(), "{wrong:?}");
        }
    }
}
