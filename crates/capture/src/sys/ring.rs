//! The memory of a receive ring, shared with the kernel.
//!
//! The ring is a sequence of blocks. The status word of a block names its owner, and only the owner accesses the
//! block. [`Ring::take`] records that this process owns a block and allows borrows of its bytes; [`Ring::release`]
//! needs `&mut self`, so no borrow of any block exists when one is returned to the kernel.

use super::packet::PacketSocket;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offset of the status word in a block (`tpacket_block_desc`: version, offset to private area, then the header).
const STATUS_AT: usize = 8;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The mapped ring.
pub(crate) struct Ring {
    memory: NonNull<u8>,
    block_size: usize,
    /// For each block, true if this process owns it.
    taken: Vec<bool>,
}

// SAFETY: the mapping belongs to this value alone and can be used and unmapped from any thread.
unsafe impl Send for Ring {}

// SAFETY: through `&self` memory is only read: taken blocks, which the kernel does not access, and status words,
// which are read atomically.
unsafe impl Sync for Ring {}

impl Ring {
    /// Maps the ring that `socket` has created with this size.
    pub(crate) fn map(socket: &PacketSocket, block_size: u32, count: u32) -> io::Result<Self> {
        let (block_size, count) = (block_size as usize, count as usize);
        let len = block_size.checked_mul(count).ok_or(io::ErrorKind::InvalidInput)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the kernel chooses the address; it refuses unless `len` is exactly the size of the socket's ring.
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

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> u32 {
        self.block_size as u32
    }

    /// True if the kernel has handed over a block.
    pub(crate) fn is_filled(&self, block: u32) -> bool {
        self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Takes over a block, if the kernel has handed it over.
    pub(crate) fn take(&mut self, block: u32) -> bool {
        let filled = self.is_filled(block);
        self.taken[block as usize] = filled;
        filled
    }

    /// Returns a block to the kernel.
    pub(crate) fn release(&mut self, block: u32) {
        assert!(self.taken[block as usize], "only a block that is ours can be given back");
        self.taken[block as usize] = false;
        self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// Leaves a block that was taken to a later [`take`](Self::take).
    pub(crate) fn leave(&mut self, block: u32) {
        self.taken[block as usize] = false;
    }

    /// The bytes of an owned block.
    pub(crate) fn bytes(&self, block: u32) -> &[u8] {
        let start = self.taken_block(block);
        // SAFETY: the block is in the mapping; this process owns it, so nothing writes to it while `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.block_size) }
    }

    /// The bytes of an owned block, mutable.
    pub(crate) fn bytes_mut(&mut self, block: u32) -> &mut [u8] {
        let start = self.taken_block(block);
        // SAFETY: the block is in the mapping; this process owns it, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.block_size) }
    }

    /// Requests bytes of an owned block from memory, before they are read; bytes after its end are ignored.
    pub(crate) fn prefetch(&self, block: u32, bytes: std::ops::Range<usize>) {
        let start = self.taken_block(block);
        for at in (bytes.start..bytes.end.min(self.block_size)).step_by(LINE) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the address is inside the mapping; a prefetch has no other effect than on the caches.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(start.add(at).as_ptr().cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _none = (start, at);
        }
    }

    fn taken_block(&self, block: u32) -> NonNull<u8> {
        assert!(self.taken[block as usize], "only a block that is ours can be read");
        self.block(block)
    }

    fn block(&self, block: u32) -> NonNull<u8> {
        assert!((block as usize) < self.taken.len(), "block of another ring");
        // SAFETY: the block number is in range, so the address is within the mapping.
        unsafe { self.memory.add(block as usize * self.block_size) }
    }

    fn status(&self, block: u32) -> &AtomicU32 {
        let start = self.block(block);
        // SAFETY: blocks start on pages, so the word at 8 is aligned and within the block; the kernel and this
        // process both access it as one word. While a block is owned, slices of it exist only under borrows that
        // `release` ends.
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
