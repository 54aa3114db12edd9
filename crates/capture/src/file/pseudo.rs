//! Link types with header fields in the byte order of the capturing machine.
//!
//! In a file from a machine of the other byte order these fields are reversed. They are converted to this machine's
//! order, as libpcap does, so that the same filter works on both. Source: the descriptions of these link types.

use fyke_frame::LinkType;

const ETHERTYPE_CAN: u16 = 0x000c;
const ETHERTYPE_CANFD: u16 = 0x000d;

/// True if frames of this link type have such fields.
pub(super) fn has_host_order_fields(link: LinkType) -> bool {
    use LinkType as L;
    matches!(
        link,
        L::LINUX_SLL | L::LINUX_SLL2 | L::PFLOG | L::USB_LINUX | L::USB_LINUX_MMAPPED | L::NFLOG
    )
}

/// Converts the fields, as far as they were captured.
pub(super) fn swap(link: LinkType, data: &mut [u8], wire_len: u32) {
    match link {
        LinkType::LINUX_SLL => swap_can(data, wire_len, 14, 16),
        LinkType::LINUX_SLL2 => swap_can(data, wire_len, 0, 20),
        LinkType::PFLOG => swap_pflog(data, wire_len),
        LinkType::USB_LINUX => swap_usb(data, false),
        LinkType::USB_LINUX_MMAPPED => swap_usb(data, true),
        LinkType::NFLOG => swap_nflog(data, wire_len),
        _ => {}
    }
}

/// Reverses the bytes of a field. False if it was not captured completely.
fn reverse(data: &mut [u8], at: usize, len: usize) -> bool {
    let field = at.checked_add(len).and_then(|end| data.get_mut(at..end));
    field.map(<[u8]>::reverse).is_some()
}

/// Converts a CAN identifier after a cooked header.
fn swap_can(data: &mut [u8], wire_len: u32, protocol_at: usize, header_len: usize) {
    let Some(&[high, low]) = data.get(protocol_at..protocol_at + 2) else { return };
    let protocol = u16::from_be_bytes([high, low]);
    let whole = wire_len as usize >= header_len + 4;
    if whole && matches!(protocol, ETHERTYPE_CAN | ETHERTYPE_CANFD) {
        reverse(data, header_len, 4);
    }
}

/// Converts user and process numbers; the length byte tells which of them a header has.
fn swap_pflog(data: &mut [u8], wire_len: u32) {
    const FIELDS: [(usize, usize); 4] = [(44, 48), (48, 52), (52, 56), (56, 60)];
    let Some(&header_len) = data.first() else { return };
    for (at, end) in FIELDS {
        let there = (wire_len as usize) >= end && usize::from(header_len) >= end;
        if !there || !reverse(data, at, 4) {
            return;
        }
    }
}

/// Converts a fixed header (32 bytes without the transfer-specific part) and, if memory-mapped, isochronous
/// descriptors.
fn swap_usb(data: &mut [u8], mapped: bool) {
    const ISOCHRONOUS: u8 = 0;
    const FIXED: [(usize, usize); 7] =
        [(0, 8), (12, 2), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4)];
    const MAPPED: [(usize, usize); 4] = [(48, 4), (52, 4), (56, 4), (60, 4)];
    if !FIXED.into_iter().all(|(at, len)| reverse(data, at, len)) {
        return;
    }
    let isochronous = data[9] == ISOCHRONOUS;
    if isochronous && !(reverse(data, 40, 4) && reverse(data, 44, 4)) {
        return;
    }
    if !mapped || !MAPPED.into_iter().all(|(at, len)| reverse(data, at, len)) || !isochronous {
        return;
    }
    let mut at = 64;
    let descriptors = u32::from_ne_bytes([data[60], data[61], data[62], data[63]]);
    for _ in 0..descriptors {
        if !(reverse(data, at, 4) && reverse(data, at + 4, 4) && reverse(data, at + 8, 4)) {
            return;
        }
        at += 16;
    }
}

/// Converts type and length of every attribute.
fn swap_nflog(data: &mut [u8], wire_len: u32) {
    const HEADER_LEN: usize = 4;
    let total = data.len().min(wire_len as usize);
    if total < HEADER_LEN || data[1] != 0 {
        return;
    }
    let mut at = HEADER_LEN;
    while data.len() >= at + 4 {
        reverse(data, at, 2);
        reverse(data, at + 2, 2);
        let len = u16::from_ne_bytes([data[at], data[at + 1]]);
        let padded = usize::from(len).next_multiple_of(4);
        if padded < 4 || total < at + padded {
            return;
        }
        at += padded;
    }
}
