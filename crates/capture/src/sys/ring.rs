//! The memory of a receive ring, shared with the kernel.
//!
//! The ring is a row of blocks. Each has a status word that says whose it is; whoever owns a block is the only one who
//! touches it. [`Ring::take`] notes that a block is ours and lets its bytes be borrowed; [`Ring::release`] needs `&mut
//! self`, so no borrow of any block is left when one goes back to the kernel.

use super::packet::PacketSocket;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the status word lies in a block (`tpacket_block_desc`: version, offset to private area, then the header).
const STATUS_AT: usize = 8;

/// The mapped ring.
pub(crate) struct Ring {
    memory: NonNull<u8>,
    block_size: usize,
    /// Per block: ours.
    taken: Vec<bool>,
}

// SAFETY: the mapping belongs to this value alone and can be used and unmapped from any thread.
unsafe impl Send for Ring {}

// SAFETY: through `&self` memory is only read: taken blocks, which the kernel leaves alone, and status words, which are
// read atomically.
unsafe impl Sync for Ring {}

impl Ring {
    /// Maps the ring that `socket` has made with this size.
    pub(crate) fn map(socket: &PacketSocket, block_size: u32, count: u32) -> io::Result<Self> {
        let (block_size, count) = (block_size as usize, count as usize);
        let len = block_size.checked_mul(count).ok_or(io::ErrorKind::InvalidInput)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the kernel chooses the place; it refuses unless `len` is exactly the size of the socket's ring.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { memory, block_size, taken: vec![false; count] })
    }

    /// Number of blocks.
    pub(crate) fn block_count(&self) -> u32 {
        self.taken.len() as u32
    }

    /// Whether the kernel has handed a block over.
    pub(crate) fn is_filled(&self, block: u32) -> bool {
        self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Takes a block over, if the kernel has handed it over.
    pub(crate) fn take(&mut self, block: u32) -> bool {
        let filled = self.is_filled(block);
        self.taken[block as usize] = filled;
        filled
    }

    /// Gives a block back to the kernel.
    pub(crate) fn release(&mut self, block: u32) {
        assert!(self.taken[block as usize], "only a block that is ours can be given back");
        self.taken[block as usize] = false;
        self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// The bytes of a block that is ours.
    pub(crate) fn bytes(&self, block: u32) -> &[u8] {
        let start = self.taken_block(block);
        // SAFETY: the block lies in the mapping; it is ours, so nobody writes to it as long as `self` is borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.block_size) }
    }

    /// The bytes of a block that is ours, to be changed.
    pub(crate) fn bytes_mut(&mut self, block: u32) -> &mut [u8] {
        let start = self.taken_block(block);
        // SAFETY: the block lies in the mapping; it is ours, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.block_size) }
    }

    fn taken_block(&self, block: u32) -> NonNull<u8> {
        assert!(self.taken[block as usize], "only a block that is ours can be read");
        self.block(block)
    }

    fn block(&self, block: u32) -> NonNull<u8> {
        assert!((block as usize) < self.taken.len(), "block of another ring");
        // SAFETY: the block number is in range, so the place is inside the mapping.
        unsafe { self.memory.add(block as usize * self.block_size) }
    }

    fn status(&self, block: u32) -> &AtomicU32 {
        let start = self.block(block);
        // SAFETY: blocks start on pages, so the word at 8 is aligned and inside; kernel and we both access it as one
        // word. While a block is ours, slices of it exist only under the borrows that `release` ends.
        unsafe { AtomicU32::from_ptr(start.add(STATUS_AT).as_ptr().cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let len = self.block_size * self.taken.len();
        // SAFETY: mapped with this length in `map`; no borrow outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), len) };
    }
}
