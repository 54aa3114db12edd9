//! Names that the papers' programs use, with their values for TCP over IPv4 over Ethernet.
//!
//! Session values (addresses, ports) come from the user. For the register machines, offsets are in bytes from the
//! link header, and port offsets are relative to X, which holds the IP header's length; for CSPF, offsets are in
//! words. The CSPF program of the paper is for a little-endian machine, so there is a set of values for each byte
//! order.

use crate::bpf::ALL;
use crate::cspf::ByteOrder;
use crate::text::Symbols;

/// Values for the register machines: Figure 3 and Appendix A.
pub fn register_machine() -> Symbols {
    Symbols::new(&[
        ("ALL", ALL),
        ("OFF_ETHERTYPE", 12),
        ("OFF_IHL", 14),
        ("OFF_FRAG", 20),
        ("OFF_PROTO", 23),
        ("OFF_SRC_IP", 26),
        ("OFF_DST_IP", 30),
        ("OFF_SRC_PORT", 14),
        ("OFF_DST_PORT", 16),
        ("ETHERTYPE_IP", 0x0800),
        ("IPPROTO_TCP", 6),
        ("IPPROTO_UDP", 17),
        ("Dont_Frag_Bit", 0x4000),
    ])
}

/// Values for CSPF: Appendix C. `OFF_IP` is the word that would hold the port if the IP header had no words;
/// `OFF_DST_PORT` counts from there.
pub fn stack_machine(order: ByteOrder) -> Symbols {
    let mut symbols = Symbols::new(&[
        ("OFF_ETHERTYPE", 6),
        ("OFF_VER_IHL", 7),
        ("OFF_Frag", 10),
        ("OFF_TTL_PROTO", 11),
        ("OFF_SRC_IP_HI", 13),
        ("OFF_SRC_IP_LO", 14),
        ("OFF_SRC_IP_L0", 14),
        ("OFF_DST_IP_HI", 15),
        ("OFF_DST_IP_LO", 16),
        ("OFF_DST_IP_L0", 16),
        ("OFF_IP", 7),
        ("OFF_DST_PORT", 1),
    ]);
    let values = match order {
        ByteOrder::Network => [0x0800, 0x00ff, 6, 17, 0x4000, 0x0f00],
        ByteOrder::Little => [0x0008, 0xff00, 0x0600, 0x1100, 0x0040, 0x000f],
    };
    let names =
        ["ETHERTYPE_IP", "PROTO_MASK", "IPPROTO_TCP", "IPPROTO_UDP", "Dont_Frag_Bit", "IHL_MASK"];
    for (name, value) in names.iter().zip(values) {
        symbols.define(name, value);
    }
    symbols
}
