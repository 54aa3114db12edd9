//! A capture ring (TPACKET_V3) of which a reader only counts the frames: the floor of every capture on Linux.
//!
//! The kernel fills blocks; the reader takes the number of frames from a block's header and hands the block back. No
//! frame is read. Memory that the kernel writes is read by volatile loads of whole words, never borrowed.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

const BLOCK_SIZE: usize = 1 << 20;
const BLOCKS: usize = 8;
/// Milliseconds after which the kernel hands over a block that is not full.
const RETIRE_MS: u32 = 64;
/// Offsets of `block_status` and `num_pkts` in `tpacket_block_desc`. Source: linux/if_packet.h.
const STATUS: usize = 8;
const FRAMES: usize = 12;
const TO_READER: u32 = 1;

/// A mapped ring on a device.
pub struct CountingRing {
    socket: OwnedFd,
    memory: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone, and no thread is bound to it.
unsafe impl Send for CountingRing {}

impl CountingRing {
    /// Opens a ring of 8 MiB that receives nothing yet.
    ///
    /// # Errors
    /// The error of the system, such as a missing privilege.
    pub fn open() -> io::Result<CountingRing> {
        let socket = super::packet_socket()?;
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        super::set(&socket, libc::PACKET_VERSION, &version)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_SIZE as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: BLOCK_SIZE as u32,
            tp_frame_nr: BLOCKS as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        super::set(&socket, libc::PACKET_RX_RING, &request)?;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, socket.as_raw_fd());
        let len = BLOCK_SIZE * BLOCKS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(mapped.cast());
        let memory = memory.ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(CountingRing { socket, memory, next: 0 })
    }

    /// Starts to receive all frames of a device of this thread's namespace.
    ///
    /// # Errors
    /// The error of the system.
    pub fn start(&self, device: &str) -> io::Result<()> {
        super::bind(&self.socket, device, (libc::ETH_P_ALL as u16).to_be())
    }

    /// Waits at most this long for a block, then takes all full ones; returns their frames.
    ///
    /// # Errors
    /// The error of the system.
    pub fn take(&mut self, wait_ms: u16) -> io::Result<u64> {
        let mut wanted =
            libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one descriptor.
        if unsafe { libc::poll(&raw mut wanted, 1, i32::from(wait_ms)) } < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
        }
        let mut frames = 0;
        for _ in 0..BLOCKS {
            // SAFETY: `next` is below BLOCKS, so the header of this block is in the mapping.
            let block = unsafe { self.memory.as_ptr().add(self.next * BLOCK_SIZE) };
            // SAFETY: as above; a block is aligned to its size, and only this field is shared with the kernel, which
            // changes it as a whole.
            let status = unsafe { AtomicU32::from_ptr(block.add(STATUS).cast()) };
            if status.load(Ordering::Acquire) & TO_READER == 0 {
                break;
            }
            // SAFETY: as above; the block belongs to the reader until its status is stored.
            frames += u64::from(unsafe { ptr::read_volatile(block.add(FRAMES).cast::<u32>()) });
            status.store(0, Ordering::Release);
            self.next = (self.next + 1) % BLOCKS;
        }
        Ok(frames)
    }

    /// Frames that found no room since the last call.
    ///
    /// # Errors
    /// The error of the system.
    pub fn lost(&self) -> io::Result<u64> {
        // SAFETY: all zeros is a valid tpacket_stats_v3.
        let mut counts: libc::tpacket_stats_v3 = unsafe { mem::zeroed() };
        let mut len = mem::size_of_val(&counts) as libc::socklen_t;
        let (fd, to) = (self.socket.as_raw_fd(), (&raw mut counts).cast());
        let option = libc::PACKET_STATISTICS;
        // SAFETY: the pointer and the length are those of `counts`.
        match unsafe { libc::getsockopt(fd, libc::SOL_PACKET, option, to, &raw mut len) } {
            0 => Ok(u64::from(counts.tp_drops)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for CountingRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for CountingRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and is unmapped once.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK_SIZE * BLOCKS) };
    }
}
