//! Frames as filters evaluate them: as the device delivered them, or without the tags before the IP header.
//!
//! The capture ring puts a tag that the device removed back into the bytes, for all later nodes. A text for a live
//! capture evaluates the frame as it was received. A tracker's filter ignores all tags. Cost: one look at each frame,
//! and a copy of each frame that must change.

use fyke_frame::{Batch, Frame, LinkType, Protocol, walk};

/// Calls `judge` with the frames as the device delivered them. A tag that the source has put back into the bytes is in
/// the metadata again. For a frame that the kernel delivered without its link header, `len` does not count the cooked
/// header before it; neither does libpcap's filter in the kernel.
pub fn as_received<T>(
    batch: &Batch<'_>,
    room: &mut Vec<u8>,
    judge: impl FnOnce(&Batch<'_>) -> T,
) -> T {
    let is_changed = |frame: &Frame<'_>| frame.meta.restored || cooked_len(frame) > 0;
    if !batch.frames().iter().any(is_changed) {
        return judge(batch);
    }
    changed(batch, room, judge, received)
}

/// The change of a frame to what the device delivered.
fn received(frame: &Frame<'_>, room: &mut Vec<u8>) -> Option<Change> {
    let (start, cut) = (room.len(), cooked_len(frame));
    if !frame.meta.restored {
        return (cut > 0).then_some(Change { bytes: None, vlan: frame.meta.vlan, cut });
    }
    let vlan = Some(frame.without_tag(room)?);
    Some(Change { bytes: Some(start..room.len()), vlan, cut })
}

/// Length of the cooked header that a source has put before the kernel's frame. A frame of a file or of a shared ring
/// came with its header, and has no interface of this machine.
fn cooked_len(frame: &Frame<'_>) -> u32 {
    match frame.link {
        LinkType::LINUX_SLL | LinkType::LINUX_SLL2 if frame.meta.ifindex != 0 => {
            frame.link.description().and_then(|link| link.header_len).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Calls `judge` with the frames without VLAN tags, MPLS labels and other bytes between the link header and the IP
/// header. Tunnels stay. A tag that the device removed is in the metadata.
pub fn without_tags<T>(
    batch: &Batch<'_>,
    room: &mut Vec<u8>,
    judge: impl FnOnce(&Batch<'_>) -> T,
) -> T {
    changed(batch, room, judge, |frame, room| {
        let link = frame.link.description()?;
        let (header, place) = (link.header_len? as usize, link.ethertype_offset? as usize);
        if matches!(frame.data.get(place..place + 2)?, [0x08, 0x00] | [0x86, 0xdd]) {
            return received(frame, room);
        }
        let layers = walk(frame);
        let mut outer = layers.iter().take_while(|layer| layer.level == 0);
        let ip = outer.find(|layer| matches!(layer.protocol, Protocol::Ipv4 | Protocol::Ipv6));
        let ip = ip.filter(|ip| ip.offset as usize > header && place + 2 <= header);
        let Some(ip) = ip else { return received(frame, room) };
        let at = ip.offset as usize;
        let ethertype: u16 = if ip.protocol == Protocol::Ipv6 { 0x86dd } else { 0x0800 };
        let (start, vlan) = (room.len(), frame.meta.vlan);
        let vlan = frame.without_tag(room).or(vlan);
        room.truncate(start);
        room.extend_from_slice(&frame.data[..header]);
        room[start + place..start + place + 2].copy_from_slice(&ethertype.to_be_bytes());
        room.extend_from_slice(&frame.data[at..]);
        Some(Change { bytes: Some(start..room.len()), vlan, cut: cooked_len(frame) })
    })
}

/// Replacement of a frame.
struct Change {
    /// Its bytes, if they differ.
    bytes: Option<std::ops::Range<usize>>,
    vlan: Option<u16>,
    /// Number of bytes by which its length on the wire is shorter.
    cut: u32,
}

fn changed<T>(
    batch: &Batch<'_>,
    room: &mut Vec<u8>,
    judge: impl FnOnce(&Batch<'_>) -> T,
    change: impl Fn(&Frame<'_>, &mut Vec<u8>) -> Option<Change>,
) -> T {
    room.clear();
    let changes: Vec<_> = batch.frames().iter().map(|frame| change(frame, room)).collect();
    if changes.iter().all(Option::is_none) {
        return judge(batch);
    }
    let mut changed = Batch::new();
    for (frame, change) in batch.frames().iter().zip(changes) {
        let mut frame = *frame;
        if let Some(Change { bytes, vlan, cut }) = change {
            if let Some(bytes) = bytes {
                let fewer = (frame.data.len() - bytes.len()) as u32;
                frame.wire_len = frame.wire_len.saturating_sub(fewer);
                frame.data = &room[bytes];
            }
            frame.wire_len = frame.wire_len.saturating_sub(cut);
            (frame.meta.vlan, frame.meta.restored) = (vlan, false);
        }
        // The same number of frames, of the same link type, so there is room.
        let _full = changed.push(frame);
    }
    judge(&changed)
}
