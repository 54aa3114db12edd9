//! Frames of several capture files, merged by time.
//!
//! The next frame is the earliest of the first unread frames of all files; of equal times, that of the file that was
//! named first. The frames of a file keep their order, also where their times go back. A damaged file ends alone: the
//! frames of the others are all delivered before its error is reported.
//!
//! Cost: a heap operation where the next frame is in another file than the last one; per file a buffer of 256 KiB, and
//! for the few files that are being read at a time the blocks that are read ahead.

use super::input::Patience;
use super::{FileOptions, FileSource, Gathered};
use crate::error::ReadError;
use crate::source::{Interface, LookBack, Next, Source, SourceStats};
use fyke_frame::{BATCH_CAPACITY, Batch};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::Path;
use std::time::Duration;

/// Most files that are read as one capture: all of them are open at the same time.
pub const MAX_FILES: usize = 1000;

/// Most files that are read ahead at the same time.
const MOST_AHEAD: usize = 4;

/// Frames of several capture files.
pub struct MergedFiles {
    files: Vec<Part>,
    /// Time of the first unread frame of each file that has gathered frames.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Files that have to gather frames before another frame can be the earliest.
    empty: Vec<usize>,
    interfaces: Vec<Interface>,
    numbers: HashMap<Interface, u32>,
    ahead: usize,
    delivered: u64,
    failures: Vec<ReadError>,
    read_ahead: bool,
}

/// One of the files.
struct Part {
    source: FileSource,
    /// Number of its gathered frames, and of those that have been lent.
    count: usize,
    read: usize,
    /// Numbers of its interfaces in the merged capture.
    numbers: Vec<u32>,
    is_ahead: bool,
}

impl Part {
    /// Time of its next gathered frame.
    fn head(&self) -> Option<u64> {
        let unread = self.read < self.count;
        unread.then(|| self.source.gathered(self.read, self.count).timestamp_ns)
    }
}

impl MergedFiles {
    /// Opens the files, at most [`MAX_FILES`]. Blocks until all file headers have been read.
    ///
    /// # Errors
    /// If there are none or too many, or one cannot be opened or does not start like a capture file.
    pub fn open(paths: &[&Path], options: &FileOptions) -> Result<MergedFiles, ReadError> {
        if paths.is_empty() || paths.len() > MAX_FILES {
            return Err(ReadError::FileCount { given: paths.len(), limit: MAX_FILES });
        }
        let patience = Patience::default();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let options = FileOptions { look_back_bytes: 0, ..options.clone() };
            let source = FileSource::open_with(path, options, patience.clone())?;
            let numbers = Vec::new();
            files.push(Part { source, count: 0, read: 0, numbers, is_ahead: false });
        }
        let mut merged = MergedFiles {
            empty: (0..files.len()).rev().collect(),
            heads: BinaryHeap::with_capacity(files.len()),
            files,
            interfaces: Vec::new(),
            numbers: HashMap::new(),
            ahead: 0,
            delivered: 0,
            failures: Vec::new(),
            read_ahead: options.read_ahead,
        };
        (0..merged.files.len()).for_each(|index| merged.number_interfaces(index));
        Ok(merged)
    }

    /// True if a file may describe more interfaces after the first frames.
    pub fn may_have_more_interfaces(&self) -> bool {
        self.files.iter().any(|file| file.source.may_have_more_interfaces())
    }

    /// Adds the interfaces of a file that are not known yet. Equal interfaces of several files are one.
    fn number_interfaces(&mut self, index: usize) {
        let file = &mut self.files[index];
        for interface in &file.source.interfaces[file.numbers.len()..] {
            let next = self.interfaces.len() as u32;
            let number = *self.numbers.entry(interface.clone()).or_insert(next);
            if number == next {
                self.interfaces.push(interface.clone());
            }
            file.numbers.push(number);
        }
    }

    /// Has every file gather frames that has none. False if one of them has to be waited for.
    fn gather(&mut self) -> bool {
        while let Some(&index) = self.empty.last() {
            let file = &mut self.files[index];
            if self.read_ahead && !file.is_ahead && self.ahead < MOST_AHEAD {
                file.source.start_ahead();
                file.is_ahead = true;
                self.ahead += 1;
            }
            (file.count, file.read) = (0, 0);
            match file.source.gather() {
                Ok(Gathered::Frames(count)) => file.count = count,
                Ok(Gathered::Idle) => return false,
                Ok(Gathered::End) => {}
                Err(error) => self.failures.push(error),
            }
            self.empty.pop();
            match file.head() {
                Some(time) => {
                    self.heads.push(Reverse((time, index)));
                    self.number_interfaces(index);
                }
                None => {
                    self.ahead -= usize::from(std::mem::take(&mut file.is_ahead));
                    file.source.close();
                }
            }
        }
        true
    }

    /// Chooses the next frames: the file of each run of frames, and the number of frames. Ends where a file has to
    /// gather frames.
    fn choose(&mut self) -> Vec<(usize, usize)> {
        let (mut runs, mut total, mut link) = (Vec::new(), 0, None);
        while let Some(Reverse((_, index))) = self.heads.pop() {
            let until = self.heads.peek().map(|Reverse(head)| *head);
            let file = &mut self.files[index];
            let start = file.read;
            let mut goes_on = true;
            while goes_on && file.read < file.count && total < BATCH_CAPACITY {
                let frame = file.source.gathered(file.read, file.count);
                let is_first = until.is_none_or(|until| (frame.timestamp_ns, index) < until);
                goes_on = is_first && *link.get_or_insert(frame.link) == frame.link;
                file.read += usize::from(goes_on);
                total += usize::from(goes_on);
            }
            if file.read > start {
                runs.push((index, file.read - start));
            }
            match file.head() {
                Some(time) => self.heads.push(Reverse((time, index))),
                None => self.empty.push(index),
            }
            // No file is first any more: the batch is full, has another link type, or needs frames.
            if file.read == start || total == BATCH_CAPACITY || !self.empty.is_empty() {
                break;
            }
        }
        runs
    }
}

impl Source for MergedFiles {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if !self.gather() {
            return Ok(Next::Idle);
        }
        if self.heads.is_empty() {
            let others = self.failures.len().saturating_sub(1);
            let mut failures = self.failures.drain(..);
            return match (failures.next(), others) {
                (None, _) => Ok(Next::End),
                (Some(first), 0) => Err(first),
                (Some(first), _) => {
                    let others = failures.map(|error| error.to_string()).collect();
                    Err(ReadError::Several { first: Box::new(first), others })
                }
            };
        }
        let runs = self.choose();
        let mut batch = Batch::new();
        batch.first_sequence = self.delivered;
        let mut places: HashMap<usize, usize> = HashMap::new();
        for &(index, count) in &runs {
            *places.entry(index).or_default() += count;
        }
        for (index, count) in runs {
            let file = &self.files[index];
            let left = places.entry(index).or_default();
            let first = file.read - *left;
            *left -= count;
            for place in first..first + count {
                let mut frame = file.source.gathered(place, file.count);
                frame.interface = file.numbers[frame.interface as usize];
                let pushed = batch.push(frame);
                debug_assert!(pushed.is_ok(), "chosen frames of one link type, not too many");
            }
        }
        self.delivered += batch.len() as u64;
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let (delivered, mut clamped_times) = (self.delivered, 0);
        self.files.iter().for_each(|file| clamped_times += file.source.clamped_times);
        SourceStats { received: delivered, delivered, clamped_times, ..Default::default() }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.files.iter().for_each(|file| file.source.patience.set(patience));
    }
}
