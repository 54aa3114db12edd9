//! Sealed anonymous memory (Linux 5.1), read and written in whole 64-bit words.
//!
//! The writer seals it against shrinking, growing and any further writable mapping before it gives
//! it to other processes. A reader maps memory only if it is sealed against shrinking, because a
//! page that is removed from a mapping would end the process. The page that a reader lends to the
//! writer has the same seals, so the roles are exchanged there. Access is by checked index, in
//! atomic words; there is never a slice over it.

use crate::RingError;
use crate::protocol::Words;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest memory, in words: 4 GiB.
pub const MAX_WORDS: usize = 1 << 29;
const WORD: usize = 8;

/// A mapping.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<AtomicU64>,
    words: usize,
    file: File,
    /// True if this process has created it or taken it up, so that it is mapped for writing.
    is_ours: bool,
}

// SAFETY: only this value owns the mapping until it is dropped, and all access is by atomic
// operations.
unsafe impl Send for Memory {}
// SAFETY: as above; no method needs the mapping for itself.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory of `words` words, all 0, that only this process may write.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(words: usize) -> Result<Memory, RingError> {
        Memory::named(c"fyke-ring", words)
    }

    /// The same with a name, for readers of the maps of a process.
    pub(crate) fn named(name: &CStr, words: usize) -> Result<Memory, RingError> {
        Memory::sealed(name, words, false)
    }

    /// New memory that a process after this one takes up for writing ([`take_up`](Self::take_up)). It is not for
    /// other processes.
    ///
    /// # Errors
    /// The system refuses.
    pub fn handed_on(words: usize) -> Result<Memory, RingError> {
        Memory::sealed(c"fyke-state", words, true)
    }

    fn sealed(name: &CStr, words: usize, may_follow: bool) -> Result<Memory, RingError> {
        let words = words.clamp(1, MAX_WORDS);
        // SAFETY: the name is a C string; the call has no other conditions.
        let number = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            libc::memfd_create(name.as_ptr(), flags)
        };
        let fd = owned(number).map_err(|error| RingError::call("memfd_create", error))?;
        let file = File::from(fd);
        let size = (words * WORD) as u64;
        file.set_len(size).map_err(|error| RingError::call("ftruncate", error))?;
        let memory = Memory::map(file, words, true)?;
        let write = if may_follow { 0 } else { libc::F_SEAL_FUTURE_WRITE };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL | write;
        // SAFETY: sealing changes no memory; the descriptor is open.
        let sealed = unsafe { libc::fcntl(memory.file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        match sealed {
            0 => Ok(memory),
            _ => Err(RingError::call("sealing", io::Error::last_os_error())),
        }
    }

    /// Maps memory of another process, read-only.
    ///
    /// # Errors
    /// It is not sealed memory of a valid size.
    pub fn open(fd: OwnedFd) -> Result<Memory, RingError> {
        Memory::adopt(fd, false)
    }

    /// Maps memory that a process before this one has [handed on](Self::handed_on), for writing.
    ///
    /// # Errors
    /// It is not sealed memory of a valid size, or must not be written.
    pub fn take_up(fd: OwnedFd) -> Result<Memory, RingError> {
        Memory::adopt(fd, true)
    }

    fn adopt(fd: OwnedFd, is_ours: bool) -> Result<Memory, RingError> {
        let file = File::from(fd);
        // SAFETY: the call only queries; the descriptor is open.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(RingError::NotSealed);
        }
        let size = file.metadata().map_err(|error| RingError::call("fstat", error))?.len();
        let most = (MAX_WORDS * WORD) as u64;
        if size == 0 || size > most || size % WORD as u64 != 0 {
            let expected = format!("a multiple of {WORD} up to {most}");
            return Err(RingError::Foreign { what: "the size", given: size, expected });
        }
        Memory::map(file, size as usize / WORD, is_ours)
    }

    fn map(file: File, words: usize, is_ours: bool) -> Result<Memory, RingError> {
        let write = if is_ours { libc::PROT_WRITE } else { 0 };
        // SAFETY: a fresh shared mapping of a file that has this size and, being sealed or our own, keeps it.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * WORD,
                libc::PROT_READ | write,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast()) {
            Some(base) if address != libc::MAP_FAILED => Ok(Memory { base, words, file, is_ours }),
            _ => Err(RingError::call("mmap", io::Error::last_os_error())),
        }
    }

    /// Number of words.
    pub fn words(&self) -> usize {
        self.words
    }

    /// The descriptor that others receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads a word; 0 outside the memory.
    #[inline]
    pub fn load(&self, word: usize, order: Ordering) -> u64 {
        Words::load(self, word, order)
    }

    /// Has the system provide the pages of these words at once, which costs less than a fault for each
    /// (Linux 5.14). Only a request: without it, the first access provides them.
    pub(crate) fn provide(&self, first: usize, count: usize) {
        const PAGE: usize = 4096;
        let end = (first.saturating_add(count)).min(self.words) * WORD;
        let begin = (first * WORD).next_multiple_of(PAGE);
        if self.is_ours && begin < end {
            // SAFETY: inside the mapping, which is writable; the call changes no byte.
            unsafe {
                let at = self.base.as_ptr().cast::<u8>().add(begin);
                libc::madvise(at.cast(), end - begin, libc::MADV_POPULATE_WRITE);
            }
        }
    }

    /// Appends `len` bytes, from word `first` on, to `into`; nothing if they are not all inside.
    #[inline]
    pub(crate) fn read(&self, first: usize, len: usize, into: &mut Vec<u8>) {
        let count = len.div_ceil(WORD);
        if first.checked_add(count).is_none_or(|end| end > self.words) {
            return;
        }
        into.reserve(count * WORD);
        let begin = into.spare_capacity_mut().as_mut_ptr().cast::<u64>();
        for at in 0..count {
            // SAFETY: the word is inside the mapping, as checked for all words; see `load`.
            let value = unsafe { self.base.add(first + at).as_ref() }.load(Ordering::Relaxed);
            // SAFETY: inside the room that was reserved for `count` words.
            unsafe { begin.add(at).write_unaligned(value.to_le()) };
        }
        // SAFETY: at least `len` bytes after those that were there are initialised.
        unsafe { into.set_len(into.len() + len) };
    }

    /// Writes bytes, padded with zeros to whole words, from word `first` on; nothing if they are
    /// not all inside, or if another process has created the memory.
    pub(crate) fn write(&self, first: usize, bytes: &[u8]) {
        let count = bytes.len().div_ceil(WORD);
        if !self.is_ours || first.checked_add(count).is_none_or(|end| end > self.words) {
            return;
        }
        let (words, rest) = bytes.as_chunks::<WORD>();
        for (at, word) in (first..).zip(words) {
            // SAFETY: inside the mapping, as checked for all words; mapped for writing, see `store`.
            unsafe { self.base.add(at).as_ref() }
                .store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut word = [0; WORD];
            word[..rest.len()].copy_from_slice(rest);
            self.store(first + words.len(), u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }
}

impl Words for Memory {
    #[inline]
    fn load(&self, word: usize, order: Ordering) -> u64 {
        if word >= self.words {
            return 0;
        }
        // SAFETY: inside the mapping, aligned, and this process accesses it only atomically. Writes
        // of another process can change only the value; a 64-bit load is allowed on a mapping that
        // is read-only.
        unsafe { self.base.add(word).as_ref() }.load(order)
    }

    #[inline]
    fn store(&self, word: usize, value: u64, order: Ordering) {
        if word < self.words && self.is_ours {
            // SAFETY: inside the mapping and aligned, and the memory is ours, so it is mapped for
            // writing.
            unsafe { self.base.add(word).as_ref() }.store(value, order);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range, and no reference to it exists any more: references live
        // only within calls.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * WORD) };
    }
}

fn owned(number: libc::c_int) -> io::Result<OwnedFd> {
    match number {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        number => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_sealed_memory_is_named_so() {
        let file = File::open("/dev/null").unwrap();
        let said = Memory::open(file.into()).unwrap_err().to_string();
        assert!(said.contains("sealed against shrinking"), "{said}");
        assert!(!said.contains(char::is_numeric), "{said}");
    }
}
