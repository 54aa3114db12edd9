//! A packet socket, and the calls that make the kernel fill a ring for it. Source: packet(7), the kernel's
//! packet_mmap.rst.

use super::option::{self, Plain};
use fyke_frame::bpf::Instruction;
use fyke_frame::bpf::code::RET_K;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A socket that receives every packet of one interface, or of all.
pub(crate) struct PacketSocket(OwnedFd);

/// Size of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingSize {
    pub(crate) block_size: u32,
    pub(crate) block_count: u32,
    /// Time after which the kernel hands over a block that is not full.
    pub(crate) retire_ms: u32,
}

/// Counts of the kernel since the last query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// Packets, including dropped ones.
    pub(crate) packets: u32,
    pub(crate) drops: u32,
    pub(crate) freezes: u32,
}

impl PacketSocket {
    /// Opens an unbound socket, which receives nothing. A raw socket delivers link headers.
    pub(crate) fn open(raw: bool) -> io::Result<Self> {
        let kind = if raw { libc::SOCK_RAW } else { libc::SOCK_DGRAM };
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just returned this descriptor, and nothing else owns it.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
        Ok(socket)
    }

    /// Duplicates the descriptor of a packet socket.
    pub(crate) fn copy(socket: BorrowedFd<'_>) -> io::Result<Self> {
        socket.try_clone_to_owned().map(PacketSocket)
    }

    /// Reserves space in front of every packet.
    pub(crate) fn reserve(&self, bytes: u32) -> io::Result<()> {
        self.set(libc::PACKET_RESERVE, &bytes)
    }

    /// Ignores packets that this host sends. Minimum kernel version: 4.20.
    pub(crate) fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::PACKET_IGNORE_OUTGOING, &1i32)
    }

    /// Creates the ring; map it with [`super::ring::Ring`].
    pub(crate) fn create_ring(&self, size: RingSize) -> io::Result<()> {
        let request = libc::tpacket_req3 {
            tp_block_size: size.block_size,
            tp_block_nr: size.block_count,
            // Version 3 does not divide blocks into frames; the kernel only checks that these numbers are consistent.
            tp_frame_size: size.block_size,
            tp_frame_nr: size.block_count,
            tp_retire_blk_tov: size.retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        self.set(libc::PACKET_RX_RING, &request)
    }

    /// Makes the kernel cut packets to `bytes`; the ring then holds more of them.
    pub(crate) fn cut(&self, bytes: u32) -> io::Result<()> {
        self.attach(&[Instruction::new(RET_K, bytes)])
    }

    /// Replaces the socket's filter by a program of classic BPF. Old and new program count against the socket's option
    /// memory together; if there is no room for both, every packet passes for a moment.
    pub(crate) fn attach(&self, program: &[Instruction]) -> io::Result<()> {
        let given =
            |&Instruction { code, jt, jf, k }: &Instruction| libc::sock_filter { code, jt, jf, k };
        let mut code: Vec<_> = program.iter().map(given).collect();
        let len = u16::try_from(code.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len, filter: code.as_mut_ptr() };
        let attach = || option::set(&self.0, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program);
        match attach() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                // Fails only without a filter.
                let _none = self.show_all();
                attach()
            }
            attached => attached,
        }
    }

    /// Makes the kernel deliver nothing until [`PacketSocket::cut`] or [`PacketSocket::show_all`].
    pub(crate) fn show_nothing(&self) -> io::Result<()> {
        self.cut(0)
    }

    /// Undoes [`PacketSocket::cut`] and [`PacketSocket::show_nothing`].
    pub(crate) fn show_all(&self) -> io::Result<()> {
        option::set(&self.0, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
    }

    /// Joins a group of sockets that share the packets of their interface, or creates one; returns its number. A group
    /// ignores packets that this host sends only if it is told so, whatever its sockets were told; this needs kernel
    /// version 5.7. With `by_program` the group is for [`share_by_program`](Self::share_by_program), else for
    /// [`share_by`](Self::share_by). Minimum kernel version: 4.12.
    pub(crate) fn share(
        &self,
        group: Option<u16>,
        incoming_only: bool,
        by_program: bool,
    ) -> io::Result<u16> {
        let unique = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
        let ignore = if incoming_only { libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING } else { 0 };
        let by = if by_program { libc::PACKET_FANOUT_EBPF } else { libc::PACKET_FANOUT_CBPF };
        let kind = by | unique | ignore;
        self.set(libc::PACKET_FANOUT, &(kind << 16 | u32::from(group.unwrap_or(0))))?;
        let mut joined: libc::c_int = 0;
        option::get(&self.0, libc::SOL_PACKET, libc::PACKET_FANOUT, &mut joined)?;
        Ok(joined as u16)
    }

    /// Distributes the group's packets by the result of a classic BPF program, modulo the number of sockets.
    pub(crate) fn share_by(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let len = program.len() as u16;
        // The kernel only reads the program.
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
        self.set(libc::PACKET_FANOUT_DATA, &program)
    }

    /// Distributes the group's packets by the result of a loaded program, modulo the number of sockets.
    pub(crate) fn share_by_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.set(libc::PACKET_FANOUT_DATA, &program.as_raw_fd())
    }

    /// Starts to receive from one interface, or from all (0).
    pub(crate) fn bind(&self, ifindex: u32) -> io::Result<()> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = ifindex as i32;
        let len = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a sockaddr_ll, which begins as every sockaddr does, and `len` is its size.
        let bound = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), len) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// True if the bound interface is gone: the kernel does not bind the socket again by itself.
    pub(crate) fn has_lost_interface(&self) -> io::Result<bool> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut len = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let place = (&raw mut address).cast();
        // SAFETY: `place` has room for `len` bytes, and any bytes make a sockaddr_ll.
        let told = unsafe { libc::getsockname(self.0.as_raw_fd(), place, &raw mut len) };
        if told < 0 { Err(io::Error::last_os_error()) } else { Ok(address.sll_ifindex < 0) }
    }

    /// Receives packets addressed to other hosts too, until the socket is closed.
    pub(crate) fn promiscuous(&self, ifindex: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: ifindex as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Sends a frame, link header included, on an interface. Waits while its queue is full.
    pub(crate) fn send(&self, ifindex: u32, frame: &[u8]) -> io::Result<()> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = ifindex as i32;
        // The kernel uses this field, not the bytes of the frame.
        let protocol = frame.get(12..14).and_then(|field| field.try_into().ok());
        address.sll_protocol = u16::from_ne_bytes(protocol.unwrap_or_default());
        let len = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let (fd, data) = (self.0.as_raw_fd(), frame.as_ptr().cast());
        let address = (&raw const address).cast();
        loop {
            // SAFETY: `data` is `frame`, with its length; `address` is a sockaddr_ll with its.
            if unsafe { libc::sendto(fd, data, frame.len(), 0, address, len) } >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Reads the counters, which resets them to zero.
    pub(crate) fn counts(&self) -> io::Result<Counts> {
        let mut counts = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        option::get(&self.0, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts)?;
        Ok(Counts {
            packets: counts.tp_packets,
            drops: counts.tp_drops,
            freezes: counts.tp_freeze_q_cnt,
        })
    }

    /// Reads the pending error of the socket, if any, which clears it.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let mut number: libc::c_int = 0;
        option::get(&self.0, libc::SOL_SOCKET, libc::SO_ERROR, &mut number)?;
        Ok((number != 0).then(|| io::Error::from_raw_os_error(number)))
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        option::set(&self.0, libc::SOL_PACKET, option, value)
    }
}

/// Waits until no packet is in delivery that the kernel began to deliver before this call. Minimum kernel version:
/// 4.3; on older ones it waits for a time that is long enough unless the machine is overloaded.
pub fn grace_period() {
    const GLOBAL: libc::c_int = 1;
    // SAFETY: no memory is passed.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if done < 0 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

impl Plain for libc::tpacket_stats_v3 {}

impl From<OwnedFd> for PacketSocket {
    /// A packet socket that another process has opened.
    fn from(socket: OwnedFd) -> PacketSocket {
        PacketSocket(socket)
    }
}

impl From<PacketSocket> for OwnedFd {
    fn from(socket: PacketSocket) -> OwnedFd {
        socket.0
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
