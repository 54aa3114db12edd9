//! The things that a service leaves to the process after it: descriptors that a service manager keeps (systemd's
//! descriptor store).
//!
//! | name | descriptor |
//! |---|---|
//! | `capture` | the packet socket with its ring, which the kernel continues filling |
//! | `state` | logs of the capture ([`fyke_capture::handover`]) and of readers ([`table`](mod@crate::table)) |
//! | `counts-N` | counters of the filter in the kernel |
//! | `reader-N-link` | the connection of a reader |
//! | `reader-N-index` | its index; the last entry tells where the next one begins |
//! | `reader-N-page`, `reader-N-event` | its page, and the socket that wakes it |
//! | `reader-N-text` | its texts, terms and counts at the last edit: [`Saved`] |
//!
//! Each name ends with `/` and the name of the capture ([`key_of`]), because a service may have several.
//!
//! The memory of rings cannot be written by another process, because it is sealed. So the next process makes new rings,
//! in which the numbers of entries continue, and tells the readers
//! ([`Response::Moved`]). A reader reads the old ring to its end first.
//!
//! Cost: nothing for a frame beyond the log; a message for each descriptor of a reader that comes or goes, and a write
//! of its texts for an edit.

use crate::message::{Counts, Response, Text};
use crate::policy::MAX_READERS;
use crate::table::{Elsewhere, Meter, SLOT_WORDS};
use crate::wire::send_json;
use fyke_capture::{Handover, handover};
use fyke_privilege::given::Keeper;
use fyke_ring::protocol::Words;
use fyke_ring::{Memory, RingError};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Version of the names, the log and [`Saved`]. A process that finds another one begins anew.
pub const VERSION: u64 = 2;
/// Most bytes of a reader's state.
const MAX_SAVED: usize = 256 << 20;
/// Bytes before the state in its file: its place and its length.
const HEAD: u64 = 16;

/// Words of the memory: version, then the frames that the kernel had rejected for processes before.
const OWN: usize = handover::LOG_WORDS + MAX_READERS * SLOT_WORDS;
const BELOW: usize = OWN + 1;
const PARTIAL: usize = OWN + 2;
const WORDS: usize = OWN + 8;

/// State of a reader that changes with its edits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Version of the protocol that it speaks.
    pub version: u32,
    /// Its words of the log.
    pub slot: usize,
    /// Name of its program.
    pub program: String,
    /// Most bytes of a frame; 0 = as many as it may have.
    pub snaplen: u32,
    /// Its texts.
    pub texts: Vec<Text>,
    /// Its graph in place of texts.
    pub graph: Option<String>,
    /// True while it has paused itself.
    pub is_paused: bool,
    /// Its counts.
    pub meter: Meter,
}

/// A reader of the process before.
#[derive(Debug)]
pub struct KeptReader {
    /// Its number.
    pub number: u64,
    /// Its connection.
    pub link: OwnedFd,
    /// Its old index.
    pub index: OwnedFd,
    /// Its page and the socket that wakes it.
    pub waker: Option<(OwnedFd, OwnedFd)>,
    /// The file with its state.
    pub text: File,
    /// Its state.
    pub saved: Saved,
}

/// All that the process before has left of a capture.
#[derive(Debug, Default)]
pub struct Left {
    state: Option<OwnedFd>,
    capture: Option<OwnedFd>,
    /// Counters of its filter in the kernel, in their order.
    pub counts: BTreeMap<usize, OwnedFd>,
    readers: BTreeMap<u64, BTreeMap<String, OwnedFd>>,
    /// Names that mean nothing to this version.
    unknown: Vec<String>,
}

impl Left {
    /// Sorts the descriptors of a service manager by their names, for each [key](key_of) of a capture; also returns
    /// those that are not of the store.
    pub fn sort(given: Vec<(String, OwnedFd)>) -> (BTreeMap<String, Left>, Vec<OwnedFd>) {
        let (mut all, mut others) = (BTreeMap::<String, Left>::new(), Vec::new());
        for (name, descriptor) in given {
            let Some((name, key)) = name.split_once('/') else {
                others.push(descriptor);
                continue;
            };
            let left = all.entry(key.to_owned()).or_default();
            let words: Vec<&str> = name.split('-').collect();
            match words[..] {
                ["capture"] => left.capture = Some(descriptor),
                ["state"] => left.state = Some(descriptor),
                ["counts", number] if number.parse::<usize>().is_ok() => {
                    left.counts.insert(number.parse().unwrap_or_default(), descriptor);
                }
                ["reader", number, part] if number.parse::<u64>().is_ok() => {
                    let number = number.parse().unwrap_or_default();
                    left.readers.entry(number).or_default().insert(part.to_owned(), descriptor);
                }
                _ => others.push(descriptor),
            }
        }
        (all, others)
    }

    /// Ends what the process before has left of a capture that this one does not have: its readers get the reason, and
    /// the service manager keeps nothing of it.
    ///
    /// # Errors
    /// The service manager does not answer.
    pub fn discard(mut self, key: &str, keeper: &Keeper, reason: &str) -> io::Result<()> {
        for one in self.take_readers() {
            let ended = Response::Ended { counts: Counts::default(), reason: reason.to_owned() };
            let _gone = send_json(&one.link, &ended, &[], Duration::from_millis(1));
            self.unknown.extend(PARTS.map(|part| format!("reader-{}-{part}", one.number)));
        }
        self.unknown.extend(["state", "capture"].map(str::to_owned));
        self.unknown.extend(self.counts.keys().map(|number| format!("counts-{number}")));
        self.unknown.iter().try_for_each(|name| keeper.forget(&format!("{name}/{key}")))
    }

    /// Takes the readers with all of their descriptors. The connections of others are closed.
    fn take_readers(&mut self) -> Vec<KeptReader> {
        let whole = |(number, mut parts): (u64, BTreeMap<String, OwnedFd>)| {
            let text = File::from(parts.remove("text")?);
            let saved = load(&text).ok()?;
            let waker = parts.remove("page").zip(parts.remove("event"));
            let (link, index) = (parts.remove("link")?, parts.remove("index")?);
            Some(KeptReader { number, link, index, waker, text, saved })
        };
        let all = std::mem::take(&mut self.readers);
        for number in all.keys() {
            self.unknown.extend(PARTS.map(|part| format!("reader-{number}-{part}")));
        }
        let whole: Vec<KeptReader> = all.into_iter().filter_map(whole).collect();
        let is_whole = |name: &String| {
            whole.iter().any(|one| name.starts_with(&format!("reader-{}-", one.number)))
        };
        self.unknown.retain(|name| !is_whole(name));
        whole
    }
}

const PARTS: [&str; 5] = ["link", "index", "page", "event", "text"];

/// The end of the names of a capture's descriptors: its name, with `%` and two digits for each byte that a service
/// manager does not take in a name (sd_pid_notify_with_fds(3)).
pub fn key_of(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b":%".contains(&byte);
    name.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02x}"),
        })
        .collect()
}

/// The store of a capture of this process.
#[derive(Debug)]
pub struct Store {
    keeper: Arc<Keeper>,
    /// The end of all names.
    key: String,
    memory: Arc<Memory>,
    capture: Arc<Handover>,
    /// Slots of the log that readers have.
    slots: Mutex<Vec<bool>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens the store; returns it with the readers that the process before has left. The next capture ring that this
    /// process opens is the one that was kept, if it fits.
    ///
    /// # Errors
    /// The memory cannot be allocated, or the service manager does not answer.
    pub fn open(
        keeper: Arc<Keeper>,
        key: String,
        left: &mut Left,
    ) -> Result<(Store, Vec<KeptReader>), RingError> {
        let full = |name: &str| format!("{name}/{key}");
        let found = left.state.take().and_then(|state| Memory::take_up(state).ok());
        let is_ours = |memory: &Memory| {
            memory.words() == WORDS && memory.load(OWN, Ordering::Acquire) == VERSION
        };
        let found = found.filter(is_ours);
        let mut readers = left.take_readers();
        let sending = |source| RingError::Call { what: "the service manager".to_owned(), source };
        let memory = match found {
            Some(memory) => memory,
            None => {
                // Nothing of another version is used.
                let all = readers
                    .drain(..)
                    .flat_map(|one| PARTS.map(|part| format!("reader-{}-{part}", one.number)));
                left.unknown.extend(all);
                left.capture = None;
                left.counts.clear();
                for name in ["state", "capture"] {
                    keeper.forget(&full(name)).map_err(sending)?;
                }
                let memory = Memory::handed_on(WORDS)?;
                memory.store(OWN, VERSION, Ordering::Release);
                keeper.keep(&full("state"), memory.fd()).map_err(sending)?;
                memory
            }
        };
        for name in std::mem::take(&mut left.unknown) {
            keeper.forget(&full(&name)).map_err(sending)?;
        }
        let memory = Arc::new(memory);
        let capture = Handover::new(Arc::clone(&memory), left.capture.take());
        handover::offer(Arc::clone(&capture));
        let slots = Mutex::new(vec![false; MAX_READERS]);
        Ok((Store { keeper, key, memory, capture, slots }, readers))
    }

    fn keep_as(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.keeper.keep(&format!("{name}/{}", self.key), descriptor)
    }

    fn forget_name(&self, name: &str) -> io::Result<()> {
        self.keeper.forget(&format!("{name}/{}", self.key))
    }

    /// Has the capture kept, once its source is open; if it is not the one that was kept, that one is forgotten.
    ///
    /// # Errors
    /// The service manager does not answer.
    pub fn keep_capture(&self) -> io::Result<()> {
        if self.capture.resumed().is_some() {
            return Ok(());
        }
        self.forget_name("capture")?;
        self.capture.socket().map_or(Ok(()), |socket| self.keep_as("capture", socket))
    }

    /// Has the counters of the filter in the kernel kept, in place of those before.
    ///
    /// # Errors
    /// The service manager does not answer.
    pub fn keep_counts(&self, maps: &[BorrowedFd<'_>], before: usize) -> io::Result<()> {
        for number in 0..before.max(maps.len()) {
            self.forget_name(&format!("counts-{number}"))?;
        }
        for (number, map) in maps.iter().enumerate() {
            self.keep_as(&format!("counts-{number}"), *map)?;
        }
        Ok(())
    }

    /// Frames that the kernel had rejected for processes before this one; true if not all are counted.
    pub fn below(&self) -> (u64, bool) {
        let word = |at| self.memory.load(at, Ordering::Relaxed);
        (word(BELOW), word(PARTIAL) != 0)
    }

    /// Sets what [`below`](Self::below) returns to the next process.
    pub fn set_below(&self, count: u64, is_partial: bool) {
        self.memory.store(BELOW, count, Ordering::Relaxed);
        self.memory.store(PARTIAL, is_partial.into(), Ordering::Relaxed);
    }

    /// Frames in processes before this one: delivered, and elsewhere; and those that this one has lost at its start.
    /// `None` if the capture has begun anew.
    pub fn resumed(&self) -> Option<(u64, Elsewhere, u64)> {
        let resumed = self.capture.resumed()?;
        let (below, is_partial) = self.below();
        let before = Elsewhere { below, is_partial, dropped: resumed.dropped };
        Some((resumed.delivered, before, resumed.lost))
    }

    /// The memory of the log.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The capture.
    pub fn capture(&self) -> &Handover {
        &self.capture
    }

    /// Takes a slot of the log for a reader.
    pub fn slot(&self) -> Option<usize> {
        let mut slots = lock(&self.slots);
        let free = slots.iter().position(|taken| !taken)?;
        slots[free] = true;
        Some(free)
    }

    /// Takes the slot that a reader had in the process before.
    pub fn take_slot(&self, slot: usize) -> bool {
        let mut slots = lock(&self.slots);
        slots.get_mut(slot).is_some_and(|taken| !std::mem::replace(taken, true))
    }

    /// Has a reader kept: its connection, its index, and its page and event if it has them. Returns the file for its
    /// state.
    ///
    /// # Errors
    /// The service manager does not answer, or there is no memory; it keeps nothing of the reader then.
    pub fn keep(
        &self,
        number: u64,
        link: BorrowedFd<'_>,
        own: &[OwnedFd],
        saved: &Saved,
    ) -> io::Result<File> {
        let text = File::from(memfd_create("fyke-reader", MemfdFlags::CLOEXEC)?);
        save(&text, saved)?;
        let kept = || {
            // The state last: without it nothing of a reader is used.
            let own =
                own.iter().zip(["index", "page", "event"]).map(|(fd, part)| (fd.as_fd(), part));
            let all = [(link, "link")].into_iter().chain(own).chain([(text.as_fd(), "text")]);
            for (descriptor, part) in all {
                self.keep_as(&format!("reader-{number}-{part}"), descriptor)?;
            }
            Ok(())
        };
        let kept: io::Result<()> = kept();
        kept.inspect_err(|_| self.forget_parts(number)).map(|()| text)
    }

    /// Has the new index of a reader kept in place of the old one.
    ///
    /// # Errors
    /// The service manager does not answer.
    pub fn keep_index(&self, number: u64, index: BorrowedFd<'_>) -> io::Result<()> {
        let name = format!("reader-{number}-index");
        self.forget_name(&name)?;
        self.keep_as(&name, index)
    }

    fn forget_parts(&self, number: u64) {
        for part in PARTS {
            // If it does not answer, the next process finds a connection that is closed.
            let _not_there = self.forget_name(&format!("reader-{number}-{part}"));
        }
    }

    /// Ends the keeping of a reader.
    pub fn forget(&self, number: u64, slot: usize) {
        self.forget_parts(number);
        if let Some(taken) = lock(&self.slots).get_mut(slot) {
            *taken = false;
        }
    }
}

/// Writes the state of a reader into its file: to a free place, then the place to the head, so that it is whole
/// whenever the process is killed.
///
/// # Errors
/// There is no memory.
pub fn save(file: &File, saved: &Saved) -> io::Result<()> {
    let bytes = serde_json::to_vec(saved).map_err(io::Error::other)?;
    let len = bytes.len() as u64;
    let place = match head(file) {
        Ok((place, _)) if HEAD + len <= place => HEAD,
        Ok((place, old)) => place + old,
        Err(_) => HEAD,
    };
    file.write_all_at(&bytes, place)?;
    let mut words = [0; HEAD as usize];
    words[..8].copy_from_slice(&place.to_le_bytes());
    words[8..].copy_from_slice(&len.to_le_bytes());
    file.write_all_at(&words, 0)
}

fn head(file: &File) -> io::Result<(u64, u64)> {
    let mut words = [0; HEAD as usize];
    file.read_exact_at(&mut words, 0)?;
    let (place, len) = words.split_at(8);
    let number = |half: &[u8]| half.try_into().map_or(0, u64::from_le_bytes);
    Ok((number(place), number(len)))
}

/// Reads the state of a reader.
///
/// # Errors
/// The file has no state of this version.
pub fn load(file: &File) -> io::Result<Saved> {
    let (place, len) = head(file)?;
    let is_inside = place.checked_add(len).is_some_and(|end| {
        place >= HEAD
            && len as usize <= MAX_SAVED
            && file.metadata().is_ok_and(|it| end <= it.len())
    });
    if !is_inside {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, place)?;
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(text: &str) -> Saved {
        let texts = vec![Text { id: 1, text: text.to_owned() }];
        let (program, meter) = ("p".to_owned(), Meter::default());
        let (graph, is_paused) = (None, true);
        Saved { version: 2, slot: 3, program, snaplen: 96, texts, graph, is_paused, meter }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_last() {
        let file = tempfile::tempfile().unwrap();
        assert!(load(&file).is_err(), "an empty file");
        for len in [10, 1000, 3, 70_000, 1, 1] {
            let one = saved(&"x".repeat(len));
            save(&file, &one).unwrap();
            assert_eq!(load(&file).unwrap(), one);
        }
        assert!(file.metadata().unwrap().len() < 200_000, "places are used again");
        for wrong in [[0u64, 5], [16, u64::MAX], [u64::MAX, 2], [16, 3]] {
            let bytes: Vec<u8> = wrong.iter().flat_map(|word| word.to_le_bytes()).collect();
            file.write_all_at(&bytes, 0).unwrap();
            assert!(load(&file).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn descriptors_are_sorted_by_their_names() {
        let any = || OwnedFd::from(tempfile::tempfile().unwrap());
        let text = tempfile::tempfile().unwrap();
        save(&text, &saved("udp")).unwrap();
        let mut given = vec![("fyke-serve@v1.socket".to_owned(), any())];
        given.extend(
            ["capture", "state", "counts-1", "reader-7-link"].map(|n| (format!("{n}/a%3a"), any())),
        );
        given.push(("reader-7-index/a%3a".to_owned(), any()));
        given.push(("reader-7-text/a%3a".to_owned(), text.into()));
        given.push(("reader-9-link/a%3a".to_owned(), any()));
        given.push(("capture//run/b.sock".to_owned(), any()));
        let (mut all, others) = Left::sort(given);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["/run/b.sock", "a%3a"]);
        assert_eq!(
            [key_of("a:"), key_of("/run/b.sock"), key_of("é%\n")].join(" "),
            "a%3a /run/b.sock %c3%a9%25%0a"
        );
        let mut left = all.remove(&key_of("a:")).unwrap();
        assert_eq!((others.len(), left.counts.len()), (1, 1));
        let readers = left.take_readers();
        assert_eq!((readers.len(), readers[0].number), (1, 7));
        assert!(left.unknown.iter().all(|name| name.starts_with("reader-9-")), "without a state");
        assert_eq!(left.unknown.len(), PARTS.len());
    }
}
