//! AF_XDP sockets and the memory that they share with the kernel. Source: the kernel's af_xdp.rst.
//!
//! The memory ([`Umem`]) is divided into frames. A frame belongs to the kernel while its number is in a fill ring or a
//! frame is being received, and to this process once its descriptor was read from a receive ring. Then there is one
//! [`Received`] for it, which cannot be copied: only its owner reads or changes the bytes, and [`FillRing::put`], which
//! returns the frame to the kernel, takes it. So threads may share the memory and the fill rings, and no thread can
//! access a frame of another one or of the kernel.
//!
//! A queue may have several sockets with a receive ring each. They have one fill ring, which is bound with the first.
//! Each ring has one producer and one consumer: the kernel at one end, this process at the other; a lock makes the
//! threads that fill a ring one producer.
//!
//! Minimum kernel versions: 5.4 (need_wakeup), 5.10 (one memory for the sockets of several queues), 6.6 (packets in
//! several frames).

use super::option::{self, Plain};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a frame of the memory: a page, so that the kernel accepts it on every machine with such pages.
pub(crate) const FRAME: usize = 4096;
/// Bytes that the kernel reserves at the start of each frame.
const KERNEL_HEADROOM: usize = 256;
/// Bytes reserved after them: with a link header of 14 bytes, the IP header begins at a multiple of 16.
const HEADROOM: usize = 2;
/// Offset of a packet in its frame.
pub(crate) const PACKET_AT: usize = KERNEL_HEADROOM + HEADROOM;
/// Bytes before a packet in which the programs at XDP store facts about it. `kernel/bpf/arrival.h` is the other side.
const ARRIVAL_LEN: usize = 32;
/// Mark at the end of them.
const ARRIVAL: u64 = 0x6679_6b65_7469_6d65;
const MARK_LEN: usize = 8;
/// Bytes of a VLAN tag, and of the header before it.
const TAG_LEN: usize = 4;
const BEFORE_TAG: usize = 12;
/// Most bytes of a packet in one frame.
pub(crate) const LONGEST: u32 = (FRAME - PACKET_AT) as u32;
/// Entries of a ring for frames to send; the kernel requires one.
const COMPLETIONS: u32 = 64;

/// The frames of all sockets.
pub(crate) struct Umem {
    memory: NonNull<u8>,
    /// Number of this memory, which each of its frames has.
    number: u32,
    /// True for the frames of this process.
    ours: Box<[AtomicBool]>,
    /// Keeps the memory's name for other processes that map it read-only.
    _memory_file: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone and can be used and unmapped from any thread.
unsafe impl Send for Umem {}

// SAFETY: bytes are accessed through the `Received` of their frame only: there is one for each frame of this process,
// and none for those of the kernel. So threads with `&self` access different frames.
unsafe impl Sync for Umem {}

impl Umem {
    /// Makes memory of `frames` frames, and returns all of them. No other process can ever map it writable.
    pub(crate) fn new(frames: u32) -> io::Result<(Arc<Umem>, Vec<Received>)> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let next = |last: u32| last.checked_add(1);
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = 1 + last.map_err(|_last| io::Error::other("no number for the memory"))?;
        let len = frames as usize * FRAME;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with zero.
        let file = unsafe { libc::memfd_create(c"fyke-frames".as_ptr(), flags) };
        let file = owned(file)?;
        let size = libc::off_t::try_from(len).map_err(io::Error::other)?;
        // SAFETY: no memory is passed.
        done(unsafe { libc::ftruncate(file.as_raw_fd(), size) })?;
        let memory = map(file.as_fd(), len, 0)?;
        let ours = (0..frames).map(|_| AtomicBool::new(true)).collect();
        let umem = Umem { memory, number, ours, _memory_file: file };
        let seals =
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
        let file = umem._memory_file.as_raw_fd();
        // SAFETY: no memory is passed.
        done(unsafe { libc::fcntl(file, libc::F_ADD_SEALS, seals) })?;
        let all = (0..frames).map(|frame| Received { memory: number, frame, ..Received::NONE });
        Ok((Arc::new(umem), all.collect()))
    }

    /// The bytes of a packet, or of a part of one.
    pub(crate) fn packet<'a>(&'a self, part: &'a Received) -> &'a [u8] {
        let at = usize::from(part.at);
        &self.bytes(part)[at..at + usize::from(part.len)]
    }

    /// All bytes of a frame.
    fn bytes<'a>(&'a self, part: &'a Received) -> &'a [u8] {
        let start = self.start(part);
        // SAFETY: the frame is in the mapping and is not the kernel's. Its only `Received` is borrowed, so nothing
        // changes the bytes meanwhile.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), FRAME) }
    }

    fn bytes_mut<'a>(&'a self, part: &'a mut Received) -> &'a mut [u8] {
        let start = self.start(part);
        // SAFETY: the frame is in the mapping and is not the kernel's. Its only `Received` is borrowed mutably, so
        // nothing else accesses the bytes meanwhile.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), FRAME) }
    }

    /// The facts about a packet; `None` if the driver had no room for them.
    pub(crate) fn arrival(&self, part: &Received) -> Option<Arrival> {
        let end = usize::from(part.at);
        let start = end.checked_sub(ARRIVAL_LEN)?;
        let words = self.bytes(part)[start..end].as_chunks::<8>().0;
        let &[ns, device_ns, [p0, p1, t0, t1, k0, k1, r0, r1], mark] = words.first_chunk()?;
        let told = u64::from_ne_bytes(mark) == ARRIVAL;
        let [c0, c1] = u16::from_ne_bytes([t0, t1]).to_be_bytes();
        told.then(|| Arrival {
            monotonic_ns: u64::from_ne_bytes(ns),
            device_ns: Some(u64::from_ne_bytes(device_ns)).filter(|&ns| ns != 0),
            tag: Some([p0, p1, c0, c1]).filter(|_| [p0, p1] != [0, 0]),
            class: u16::from_ne_bytes([k0, k1]),
            row: u16::from_ne_bytes([r0, r1]),
        })
    }

    /// Reinserts a tag that the device removed from a packet, at its original position; false if the packet is too
    /// short. The facts about the packet are overwritten.
    pub(crate) fn insert_tag(&self, part: &mut Received, tag: [u8; TAG_LEN]) -> bool {
        let at = usize::from(part.at);
        if usize::from(part.len) < BEFORE_TAG || at < TAG_LEN {
            return false;
        }
        let bytes = self.bytes_mut(part);
        bytes.copy_within(at..at + BEFORE_TAG, at - TAG_LEN);
        bytes[at - TAG_LEN + BEFORE_TAG..at + BEFORE_TAG].copy_from_slice(&tag);
        part.at -= TAG_LEN as u16;
        part.len += TAG_LEN as u16;
        true
    }

    /// The bytes of a packet that came in parts.
    pub(crate) fn gathered(&self, parts: &[Received]) -> Box<[u8]> {
        let all: Vec<&[u8]> = parts.iter().map(|part| self.packet(part)).collect();
        all.concat().into_boxed_slice()
    }

    fn start(&self, part: &Received) -> NonNull<u8> {
        assert_eq!(part.memory, self.number, "a frame of this memory");
        let frame = part.frame as usize;
        assert!(frame < self.ours.len(), "a frame within the memory");
        // SAFETY: `ours` has an entry for each frame of the mapping, so the address is within it.
        unsafe { self.memory.add(frame * FRAME) }
    }

    /// Takes a frame over from the kernel; `None` if there is none of this number or it is not the kernel's.
    fn take(&self, place: u64, len: u32, continues: bool) -> Option<Received> {
        let frame = u32::try_from(place / FRAME as u64).ok()?;
        let at = (place % FRAME as u64) as u16;
        let len = u16::try_from(len).ok()?;
        if usize::from(at) + usize::from(len) > FRAME {
            return None;
        }
        let was_ours = self.ours.get(frame as usize)?.swap(true, Ordering::AcqRel);
        (!was_ours).then_some(Received { memory: self.number, frame, at, len, continues })
    }

    /// Leaves a frame to the kernel.
    fn leave(&self, part: Received) {
        self.ours[part.frame as usize].store(false, Ordering::Release);
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        let len = self.ours.len() * FRAME;
        // SAFETY: mapped with this length in `new`; no borrow outlives `self`, and sockets hold the pages themselves.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), len) };
    }
}

/// Facts about a packet that are not in its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Time of the monotonic clock, in nanoseconds.
    pub(crate) monotonic_ns: u64,
    /// Time of the device's own clock, if it told one.
    pub(crate) device_ns: Option<u64>,
    /// The tag that the device removed, with its protocol.
    pub(crate) tag: Option<[u8; TAG_LEN]>,
    /// Class of the text that accepted the packet at the driver, and the number of its counter; 0 = none.
    pub(crate) class: u16,
    pub(crate) row: u16,
}

/// A frame of this process, with a packet or a part of one. No other value is for the same frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Number of the memory.
    memory: u32,
    /// Number of the frame in it.
    frame: u32,
    /// Offset of the packet in the frame.
    at: u16,
    /// Bytes of the packet, or of this part of it.
    len: u16,
    /// True if the next one has more of the packet.
    continues: bool,
}

impl Received {
    /// No frame of any memory.
    const NONE: Received = Received { memory: 0, frame: 0, at: 0, len: 0, continues: false };

    /// Number of the frame in the memory.
    pub(crate) fn frame(&self) -> u32 {
        self.frame
    }

    /// True if the next one has more of the packet.
    pub(crate) fn continues(&self) -> bool {
        self.continues
    }

    /// A frame of no memory, for tests of order; `frame` and `at` identify it.
    #[cfg(test)]
    pub(crate) fn of_no_memory(frame: u32, at: u16, continues: bool) -> Received {
        Received { frame, at, continues, ..Received::NONE }
    }

    /// Offset of the packet in the frame.
    #[cfg(test)]
    pub(crate) fn at(&self) -> u16 {
        self.at
    }
}

/// The way in which the kernel stores frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storing {
    /// The driver stores them in the memory itself.
    ZeroCopy,
    /// The kernel copies them, packets longer than a frame of the memory into several ones. Linux 6.6.
    CopyParts,
    /// The kernel copies them; it drops longer packets.
    Copy,
}

impl Storing {
    fn flags(self) -> u16 {
        match self {
            Storing::ZeroCopy => libc::XDP_ZEROCOPY,
            Storing::CopyParts => libc::XDP_COPY | libc::XDP_USE_SG,
            Storing::Copy => libc::XDP_COPY,
        }
    }
}

/// One end of a ring.
struct Ring {
    memory: NonNull<u8>,
    len: usize,
    offsets: libc::xdp_ring_offset,
    mask: u32,
}

// SAFETY: the mapping belongs to this value alone and can be used and unmapped from any thread.
unsafe impl Send for Ring {}

// SAFETY: through `&self` only atomic words are read, and addresses of entries made.
unsafe impl Sync for Ring {}

impl Ring {
    fn map(
        socket: &OwnedFd,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        entry_len: usize,
        place: libc::off_t,
    ) -> io::Result<Ring> {
        let len = offsets.desc as usize + entries as usize * entry_len;
        let memory = map(socket.as_fd(), len, place)?;
        Ok(Ring { memory, len, offsets, mask: entries - 1 })
    }

    /// A word of the ring's head.
    fn word(&self, at: u64) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at as usize + 4 <= self.len, "word outside of the ring");
        // SAFETY: inside the mapping and aligned (checked; the start is a page); the kernel and this process access it
        // as one word.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(at as usize).cast()) }
    }

    /// Address of an entry.
    fn entry<T>(&self, position: u32) -> *mut T {
        let at = self.offsets.desc as usize + (position & self.mask) as usize * mem::size_of::<T>();
        assert!(at + mem::size_of::<T>() <= self.len, "entry outside of the ring");
        // SAFETY: inside the mapping (checked); entries are aligned as the kernel's structure is.
        unsafe { self.memory.as_ptr().add(at).cast() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped with this length in `map`; no reference outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

/// Counts of a socket since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Frames dropped without a free frame in the fill ring, or longer than a frame of the memory.
    pub(crate) dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub(crate) ring_full: u64,
    /// Times that the fill ring was empty; part of `dropped`.
    pub(crate) fill_empty: u64,
    /// Entries of the fill ring that the kernel refused.
    pub(crate) invalid: u64,
}

/// The fill ring of a queue: the frames that the kernel may use for any socket of the queue.
pub(crate) struct FillRing {
    umem: Arc<Umem>,
    ring: Ring,
    /// The position of this process. Its holder is the producer of the ring.
    at: Mutex<u32>,
}

impl FillRing {
    /// Returns frames to the kernel.
    ///
    /// # Panics
    /// If the frames are of another memory, or the ring has no room: it needs an entry for each frame of the queue.
    pub(crate) fn put(&self, frames: impl IntoIterator<Item = Received>) {
        let ring = &self.ring;
        // After a panic, the entries before the position are whole.
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        for mut frame in frames {
            let consumed = ring.word(ring.offsets.consumer).load(Ordering::Acquire);
            let used = at.wrapping_sub(consumed);
            assert!(used <= ring.mask, "the ring has an entry for each frame of the queue");
            // The place of the mark of a packet that comes next.
            self.umem.bytes_mut(&mut frame)[PACKET_AT - MARK_LEN..PACKET_AT].fill(0);
            let place = u64::from(frame.frame) * FRAME as u64;
            self.umem.leave(frame);
            let entry: *mut u64 = ring.entry(*at);
            // SAFETY: an aligned entry of the mapping. The lock makes this thread the only writer, and the kernel reads
            // the entry only after the store of the position.
            unsafe { entry.write(place) };
            *at = at.wrapping_add(1);
        }
        ring.word(ring.offsets.producer).store(*at, Ordering::Release);
    }

    /// Number of frames that the kernel can fill.
    pub(crate) fn free(&self) -> u32 {
        // The consumer's position first: the producer's, which is read later, is not before it.
        let consumed = self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire);
        let produced = self.ring.word(self.ring.offsets.producer).load(Ordering::Acquire);
        produced.wrapping_sub(consumed).min(self.ring.mask + 1)
    }

    /// True if the driver sleeps until a call of `poll` for a socket of the queue.
    pub(crate) fn needs_wakeup(&self) -> bool {
        let flags = self.ring.word(self.ring.offsets.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// An AF_XDP socket that receives frames of a queue.
pub(crate) struct XdpSocket {
    socket: OwnedFd,
    umem: Arc<Umem>,
    receive: Ring,
    /// The position of this process in the ring.
    at: u32,
}

impl XdpSocket {
    /// Opens a socket with a receive ring of `entries` entries, a power of two.
    pub(crate) fn open(umem: &Arc<Umem>, entries: u32) -> io::Result<XdpSocket> {
        // SAFETY: no memory is passed.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let socket = owned(socket)?;
        set(&socket, libc::XDP_RX_RING, &entries)?;
        let offsets = offsets(&socket)?.rx;
        let entry_len = mem::size_of::<libc::xdp_desc>();
        let receive = Ring::map(&socket, offsets, entries, entry_len, libc::XDP_PGOFF_RX_RING)?;
        Ok(XdpSocket { socket, umem: Arc::clone(umem), receive, at: 0 })
    }

    /// Registers the memory, for the first socket that uses it; others have it from their `bind`.
    pub(crate) fn register(&self) -> io::Result<()> {
        let request = libc::xdp_umem_reg_v1 {
            addr: self.umem.memory.as_ptr() as u64,
            len: (self.umem.ours.len() * FRAME) as u64,
            chunk_size: FRAME as u32,
            headroom: HEADROOM as u32,
        };
        set(&self.socket, libc::XDP_UMEM_REG, &request)
    }

    /// Makes the fill ring of a queue, with `entries` entries, a power of two; for the first socket of the queue.
    pub(crate) fn make_fill_ring(&self, entries: u32) -> io::Result<FillRing> {
        set(&self.socket, libc::XDP_UMEM_FILL_RING, &entries)?;
        set(&self.socket, libc::XDP_UMEM_COMPLETION_RING, &COMPLETIONS)?;
        let offsets = offsets(&self.socket)?.fr;
        let place = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let ring = Ring::map(&self.socket, offsets, entries, mem::size_of::<u64>(), place)?;
        Ok(FillRing { umem: Arc::clone(&self.umem), ring, at: Mutex::new(0) })
    }

    /// Binds to a queue of an interface; EBUSY if another socket has it or has just left it. `first` is a bound socket
    /// of the same memory: of the same queue, for a socket without a fill ring, else of another one. After a refusal
    /// of `storing`, another way may be tried.
    pub(crate) fn bind(
        &self,
        ifindex: u32,
        queue: u32,
        storing: Storing,
        first: Option<&XdpSocket>,
    ) -> io::Result<()> {
        let is_same = |first: &XdpSocket| Arc::ptr_eq(&first.umem, &self.umem);
        assert!(first.is_none_or(is_same), "sockets of one memory");
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: match first {
                // The kernel takes the other flags from the first socket.
                Some(_) => libc::XDP_SHARED_UMEM,
                None => libc::XDP_USE_NEED_WAKEUP | storing.flags(),
            },
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: first.map_or(0, |first| first.socket.as_raw_fd() as u32),
        };
        let len = mem::size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: `address` is a sockaddr_xdp, which begins as every sockaddr does, and `len` is its size.
        done(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), len) })
    }

    fn received(&self) -> u32 {
        let produced = self.receive.word(self.receive.offsets.producer).load(Ordering::Acquire);
        produced.wrapping_sub(self.at).min(self.receive.mask + 1)
    }

    /// True if no received packet waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.received() == 0
    }

    /// Takes over received packets, at most `limit`, each with all of its parts. Fails with the descriptor's position
    /// if the kernel has written one that names no frame of its own.
    pub(crate) fn receive(&mut self, limit: usize, to: &mut Vec<Received>) -> Result<(), u32> {
        let (mut packets, mut whole) = (0, to.len());
        let mut at = self.at;
        for _ in 0..self.received() {
            if packets == limit {
                break;
            }
            let entry: *const libc::xdp_desc = self.receive.entry(at);
            // SAFETY: an aligned entry of the mapping, which the kernel has written before it moved its position; any
            // bytes are a descriptor. `&mut self`, so no other thread moves the position of this process.
            let given = unsafe { entry.read_volatile() };
            let continues = given.options & libc::XDP_PKT_CONTD != 0;
            to.push(self.umem.take(given.addr, given.len, continues).ok_or(at)?);
            at = at.wrapping_add(1);
            if !continues {
                (packets, whole, self.at) = (packets + 1, to.len(), at);
            }
        }
        // The rest of a packet comes later: until then, its parts are the kernel's.
        to.drain(whole..).for_each(|part| self.umem.leave(part));
        self.receive.word(self.receive.offsets.consumer).store(self.at, Ordering::Release);
        Ok(())
    }

    /// Counts of the kernel since the socket was opened.
    pub(crate) fn counts(&self) -> io::Result<Counts> {
        // SAFETY: all zeros is a valid xdp_statistics.
        let mut counts: libc::xdp_statistics = unsafe { mem::zeroed() };
        get(&self.socket, libc::XDP_STATISTICS, &mut counts)?;
        Ok(Counts {
            dropped: counts.rx_dropped,
            ring_full: counts.rx_ring_full,
            fill_empty: counts.rx_fill_ring_empty_descs,
            invalid: counts.rx_invalid_descs,
        })
    }

    /// Reads the pending error, if any, which clears it: ENETDOWN once the interface is gone.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let mut number: libc::c_int = 0;
        option::get(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut number)?;
        Ok((number != 0).then(|| io::Error::from_raw_os_error(number)))
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    done(fd)?;
    // SAFETY: the caller's call has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all zeros is a valid xdp_mmap_offsets.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    get(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

/// Maps `len` bytes of a descriptor, shared, all pages present.
fn map(fd: BorrowedFd<'_>, len: usize, place: libc::off_t) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: a new mapping at an address that the kernel chooses; nothing is overwritten.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd.as_raw_fd(), place) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(memory.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    option::set(socket, libc::SOL_XDP, option, value)
}

fn get<T: Plain>(socket: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    option::get(socket, libc::SOL_XDP, option, value)
}

impl Plain for libc::xdp_mmap_offsets {}

impl Plain for libc::xdp_statistics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_from_the_kernel_once() {
        let (umem, mut all) = Umem::new(4).unwrap();
        let place = |frame: u64, at: u64| frame * FRAME as u64 + at;
        assert_eq!(umem.take(place(3, 258), 60, false), None, "it is not the kernel's");
        umem.leave(all.pop().unwrap());
        assert_eq!(umem.take(place(3, 258), 3_839, false), None, "longer than the frame");
        assert_eq!(umem.take(place(3, 0), u32::MAX, false), None);
        assert_eq!(umem.take(place(4, 258), 60, false), None, "outside of the memory");
        assert_eq!(umem.take(u64::MAX, 0, false), None);
        let taken = umem.take(place(3, 258), 3_838, true).unwrap();
        assert_eq!((taken.frame(), taken.at(), taken.continues()), (3, 258, true));
        assert_eq!(umem.packet(&taken).len(), 3_838);
        assert_eq!(umem.take(place(3, 258), 60, false), None, "it has been taken");
    }

    #[test]
    #[should_panic(expected = "a frame of this memory")]
    fn a_frame_of_another_memory_is_refused() {
        let (_first, frames) = Umem::new(2).unwrap();
        let (second, _) = Umem::new(2).unwrap();
        let _bytes = second.packet(&frames[0]);
    }

    #[test]
    fn a_tag_is_inserted_before_the_packet() {
        let (umem, mut frames) = Umem::new(1).unwrap();
        let mut part = Received { at: 258, len: 60, ..frames.remove(0) };
        let packet: Vec<u8> = (0..60).collect();
        umem.bytes_mut(&mut part)[258..318].copy_from_slice(&packet);
        assert!(umem.insert_tag(&mut part, [0x81, 0, 0, 7]));
        assert_eq!(umem.packet(&part), [&packet[..12], &[0x81, 0, 0, 7], &packet[12..]].concat());
        part.len = 11;
        assert!(!umem.insert_tag(&mut part, [0x81, 0, 0, 7]), "too short");
    }
}
