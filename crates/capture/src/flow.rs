//! Assignment of frames to workers by their conversation: the frames of one stay in order on one worker.
//!
//! A conversation is a pair of IP addresses, the outermost ones, in either direction. Ports do not count, so
//! fragments are assigned like their first fragment. Frames without an address are assigned to worker 0. The rule is
//! implemented twice: here for frames in memory, and as a classic BPF program that the kernel runs for a ring
//! (PACKET_FANOUT_CBPF). The kernel's own hash (PACKET_FANOUT_HASH) uses ports for complete packets but not for
//! fragments, so it would split such a conversation.
//!
//! Each address is mixed, then both are added: the sum is symmetric, and hosts of the same number in two networks do
//! not all collide. The factor is random, so that addresses cannot be chosen to meet on one worker. Cost: a few
//! nanoseconds if IP follows Ethernet directly, otherwise a header walk. The kernel's program skips one tag that is
//! left in the bytes (the kernel removes the outermost itself); it assigns frames with more encapsulation to worker
//! 0. Source: packet(7), filter.txt of the kernel.

use fyke_frame::bpf::code::{
    self, JEQ, LD_H_ABS, LD_W_ABS, LD_W_IND, LDX_IMM, LDX_MEM, RET_A, RET_K, ST, STX, TAX,
};
use fyke_frame::{Frame, LinkType, walk};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;

/// Assigns frames to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowHash {
    /// Odd number.
    factor: u32,
}

/// Folds the words of an address into one.
fn fold(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
    words.fold(0, |sum, word| sum ^ u32::from_be_bytes(word))
}

/// Both addresses of a frame, folded.
fn ends(frame: &Frame<'_>) -> Option<[u32; 2]> {
    if frame.link == LinkType::EN10MB {
        // Short path for most frames; a header walk for the others.
        match frame.data.get(12..15) {
            Some([0x08, 0x00, version]) if version >> 4 == 4 => {
                let bytes = frame.data.get(26..34)?;
                return Some([fold(&bytes[..4]), fold(&bytes[4..])]);
            }
            Some([0x86, 0xdd, version]) if version >> 4 == 6 => {
                let bytes = frame.data.get(22..54)?;
                return Some([fold(&bytes[..16]), fold(&bytes[16..])]);
            }
            _ => {}
        }
    }
    let ip = walk(frame).outermost_ip()?;
    let folded = |address| match address {
        IpAddr::V4(v4) => fold(&v4.octets()),
        IpAddr::V6(v6) => fold(&v6.octets()),
    };
    Some([folded(ip.source()), folded(ip.destination())])
}

impl FlowHash {
    /// Creates a hash with a random factor.
    pub fn random() -> FlowHash {
        FlowHash { factor: RandomState::new().hash_one(0) as u32 | 1 }
    }

    /// Returns the hash of this process: a pair of addresses has the same worker on all interfaces.
    pub fn of_process() -> FlowHash {
        static HASH: OnceLock<FlowHash> = OnceLock::new();
        *HASH.get_or_init(FlowHash::random)
    }

    /// The factor, for [`FlowHash::of_factor`].
    pub(crate) fn factor(self) -> u32 {
        self.factor
    }

    /// The hash with the factor of another one.
    pub(crate) fn of_factor(factor: u32) -> FlowHash {
        FlowHash { factor: factor | 1 }
    }

    fn mixed(self, address: u32) -> u32 {
        let product = address.wrapping_mul(self.factor);
        product ^ product >> 15
    }

    /// The worker of a frame, below `workers`; 0 if `workers` is 0.
    #[inline]
    pub fn worker(self, frame: &Frame<'_>, workers: usize) -> usize {
        let Some([one, other]) = ends(frame) else { return 0 };
        let sum = self.mixed(one).wrapping_add(self.mixed(other));
        (sum.wrapping_mul(self.factor) >> 16) as usize % workers.max(1)
    }

    /// The same rule as a program for the kernel, which takes the result modulo the number of sockets.
    pub(crate) fn program(self) -> Vec<libc::sock_filter> {
        let mut program = Program::default();
        // The type of the payload after the link header: as the kernel reports it, then as a tag reports it.
        program.put(LDX_IMM, 0);
        program.put(LD_W_ABS, AD_PROTOCOL);
        let tags = [0x8100, 0x88a8].map(|tag| program.jump_if(tag));
        let (four, six) = (program.jump_if(0x0800), program.jump_if(0x86dd));
        program.put(RET_K, 0);
        tags.into_iter().for_each(|jump| program.set_target(jump));
        program.put(LDX_IMM, 4);
        program.put(LD_H_ABS, NET + 2);
        let (tagged_four, tagged_six) = (program.jump_if(0x0800), program.jump_if(0x86dd));
        program.put(RET_K, 0);
        [four, tagged_four].into_iter().for_each(|jump| program.set_target(jump));
        self.answer(&mut program, 12, 1);
        [six, tagged_six].into_iter().for_each(|jump| program.set_target(jump));
        self.answer(&mut program, 8, 4);
        program.0
    }

    /// Computes the result from two addresses of `words` words each, at offset `at` of a header that starts at X.
    fn answer(self, program: &mut Program, at: u32, words: u32) {
        const OFFSET: u32 = 0;
        const FOLDED: u32 = 1;
        const FIRST: u32 = 2;
        program.put(STX, OFFSET);
        for side in 0..2 {
            for word in 0..words {
                program.put(LDX_MEM, OFFSET);
                program.put(LD_W_IND, NET + at + 4 * (side * words + word));
                if word > 0 {
                    program.put(LDX_MEM, FOLDED);
                    program.put(XOR_X, 0);
                }
                program.put(ST, FOLDED);
            }
            program.put(MUL_IMM, self.factor);
            program.put(TAX, 0);
            program.put(RSH_IMM, 15);
            program.put(XOR_X, 0);
            if side == 0 {
                program.put(ST, FIRST);
            }
        }
        program.put(LDX_MEM, FIRST);
        program.put(ADD_X, 0);
        program.put(MUL_IMM, self.factor);
        program.put(RSH_IMM, 16);
        program.put(RET_A, 0);
    }
}

/// Base of offsets that count from the network header (SKF_NET_OFF).
const NET: u32 = -0x10_0000_i32 as u32;
/// Protocol of the packet as the kernel reports it (SKF_AD_OFF + SKF_AD_PROTOCOL).
const AD_PROTOCOL: u32 = -0x1000_i32 as u32;

const ADD_X: u16 = code::ALU | code::ADD | code::X;
const MUL_IMM: u16 = code::ALU | code::MUL;
const RSH_IMM: u16 = code::ALU | code::RSH;
const XOR_X: u16 = code::ALU | code::XOR | code::X;

/// A classic BPF program under construction.
#[derive(Default)]
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn put(&mut self, code: u16, k: u32) {
        self.0.push(libc::sock_filter { code, jt: 0, jf: 0, k });
    }

    /// Adds a jump that is taken if A is `value`; [`Program::set_target`] sets its target.
    fn jump_if(&mut self, value: u32) -> usize {
        self.put(JEQ, value);
        self.0.len() - 1
    }

    fn set_target(&mut self, jump: usize) {
        // All programs made here are shorter than the range of a jump.
        self.0[jump].jt = (self.0.len() - jump - 1) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_testkit::packet::Packet;
    use std::net::Ipv6Addr;

    #[test]
    fn a_conversation_has_one_worker() {
        let hash = FlowHash::random();
        let worker = |packet: &Packet| {
            let data = packet.build();
            let place = hash.worker(&Frame::new(LinkType::EN10MB, &data), 7);
            assert!(place < 7);
            place
        };
        let mut used = [0; 7];
        for n in 0..100_u8 {
            let (near, far) = ([10, 0, 0, n], [10, 0, 1, n]);
            let plain = |outer: Packet| outer.ipv4(near, far).tcp(1000, 80);
            let place = worker(&plain(Packet::ethernet()));
            used[place] += 1;
            let same = [
                plain(Packet::ethernet().vlan(7)),
                plain(Packet::ethernet().mpls(9)),
                Packet::ethernet().ipv4(far, near).tcp(80, 1000),
                Packet::ethernet().ipv4(near, far).fragment(9, 185, false).ip_payload(6, &[0; 9]),
                Packet::ethernet().ipv4(near, far).icmp(8, 0, 0),
            ];
            same.iter().for_each(|packet| assert_eq!(worker(packet), place, "{near:?}"));
            let six = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            let (a, b) = (six(n.into()), six(1_000));
            let place = worker(&Packet::ethernet().ipv6(a, b).udp(1, 2));
            assert_eq!(worker(&Packet::ethernet().vlan(3).ipv6(b, a).tcp(3, 4)), place);
        }
        assert!(used.iter().all(|&count| (1..40).contains(&count)), "{used:?}");
    }

    #[test]
    fn what_has_no_address_goes_to_the_first() {
        let data = Packet::ethernet().ipv4([1, 2, 3, 4], [5, 6, 7, 8]).tcp(1, 2).build();
        for length in 0..34 {
            let frame = Frame::new(LinkType::EN10MB, &data[..length]);
            assert_eq!(FlowHash::random().worker(&frame, 5), 0, "{length}");
        }
        assert_eq!(FlowHash::random().worker(&Frame::new(LinkType::EN10MB, &data), 0), 0);
    }
}
