//! Sockets that share the frames of an interface: opened from a plan that also fits into a message to the helper.

use crate::flow::FlowHash;
use crate::rebind;
use crate::sys::packet::{PacketSocket, RingSize};
use fyke_privilege::helper::{Opened, Presence};
use std::io;

/// In the place of the factor of a hash, which is odd: there is no hash.
const BY_PROGRAM: u32 = 0;

/// Options of the sockets of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupPlan {
    /// True for sockets that deliver link headers.
    pub(crate) raw: bool,
    /// Bytes in front of every packet.
    pub(crate) reserve: u32,
    pub(crate) ring: RingSize,
    /// `None` for a group that a loaded program distributes; the first socket has all frames until there is one.
    pub(crate) hash: Option<FlowHash>,
}

impl GroupPlan {
    /// The plan as bytes, for a helper.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let RingSize { block_size, block_count, retire_ms } = self.ring;
        let hash = self.hash.map_or(BY_PROGRAM, |hash| hash.factor());
        let words = [u32::from(self.raw), self.reserve, block_size, block_count, retire_ms, hash];
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }

    fn of_bytes(bytes: &[u8]) -> Option<GroupPlan> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let [raw, reserve, block_size, block_count, retire_ms, hash] = *words else { return None };
        let word = u32::from_ne_bytes;
        let [block_size, block_count, retire_ms] = [block_size, block_count, retire_ms].map(word);
        Some(GroupPlan {
            raw: word(raw) != 0,
            reserve: word(reserve),
            ring: RingSize { block_size, block_count, retire_ms },
            hash: (word(hash) != BY_PROGRAM).then(|| FlowHash::of_factor(word(hash))),
        })
    }
}

/// Opens the sockets of a group from its plan; they deliver nothing yet.
pub(crate) fn open_group(
    plan: &[u8],
    count: usize,
    to: &Presence,
    promiscuous: bool,
) -> io::Result<Vec<Opened>> {
    let plan = GroupPlan::of_bytes(plan).ok_or(io::ErrorKind::InvalidInput)?;
    let is_loopback = to.ifindex == to.loopback;
    let open = || {
        let socket = PacketSocket::open(plan.raw)?;
        socket.reserve(plan.reserve)?;
        if is_loopback {
            // Older kernels do not know this option; the source then ignores the copies.
            let _ = socket.ignore_outgoing();
        }
        socket.show_nothing()?;
        let blocks = create_ring(&socket, plan.ring)?;
        rebind::bind(&socket, to, promiscuous)?;
        Ok((socket, blocks))
    };
    let sockets = (0..count).map(|_| open()).collect::<io::Result<Vec<_>>>()?;
    let members: Vec<_> = sockets.iter().map(|(socket, _)| socket).collect();
    join(&members, is_loopback, plan.hash)?;
    let opened =
        sockets.into_iter().map(|(socket, blocks)| Opened { socket: socket.into(), blocks });
    Ok(opened.collect())
}

/// Makes sockets share the frames of their interface, all of a conversation by one socket, or as a program decides.
pub(crate) fn join(
    sockets: &[&PacketSocket],
    incoming_only: bool,
    hash: Option<FlowHash>,
) -> io::Result<()> {
    let [first, others @ ..] = sockets else { return Ok(()) };
    // Kernels that do not know this option deliver copies that the source ignores.
    let by_program = hash.is_none();
    let group = first.share(None, incoming_only, by_program);
    let is_known = group.is_ok();
    let group = group.or_else(|_| first.share(None, false, by_program))?;
    for other in others {
        other.share(Some(group), incoming_only && is_known, by_program)?;
    }
    hash.map_or(Ok(()), |hash| first.share_by(&hash.program()))
}

/// Creates the ring of a socket, with fewer blocks if memory is short; returns their number.
pub(crate) fn create_ring(socket: &PacketSocket, size: RingSize) -> io::Result<u32> {
    let mut size = size;
    loop {
        match socket.create_ring(size) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && size.block_count >= 8 => {
                size.block_count -= size.block_count / 4;
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(size.block_count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_privilege::helper;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let ring = RingSize { block_size: 1 << 17, block_count: 256, retire_ms: 20 };
        for hash in [Some(FlowHash::random()), None] {
            let plan = GroupPlan { raw: true, reserve: 4, ring, hash };
            let bytes = plan.to_bytes();
            assert!(bytes.len() <= helper::MAX_PLAN);
            assert_eq!(GroupPlan::of_bytes(&bytes), Some(plan));
            assert_eq!(GroupPlan::of_bytes(&bytes[1..]), None);
            assert_eq!(GroupPlan::of_bytes(&bytes[4..]), None);
        }
    }
}
