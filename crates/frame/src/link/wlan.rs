//! 802.11, with and without the radio headers that capture drivers put before it. Data frames have
//! an LLC header.
//!
//! The lengths of radio and MAC headers are computed as in libpcap: a fourth address is not
//! considered, quality of service adds two bytes, and padding is taken from radiotap's first word
//! of flags. Source: IEEE 802.11, radiotap.org.

use super::{Header, LLC, LinkType, NextLayer};

/// Shortest MAC header of a data frame.
const DATA_HEADER_LEN: usize = 24;
/// Length of a Prism header.
const PRISM_LEN: usize = 144;

pub(super) const BARE: Header = Header::of(|data| llc(0, false, data));
pub(super) const RADIOTAP: Header = Header::of(|data| llc(little_endian_len(data)?, true, data));
pub(super) const AVS: Header = Header::of(|data| llc(avs_len(data)?, false, data));
pub(super) const PRISM: Header = Header::of(|data| llc(prism_len(data)?, false, data));
/// Only 802.11 is decoded after this header.
pub(super) const PPI: Header = Header::of(|data| {
    let link = u32::from_le_bytes(data.get(4..8)?.try_into().ok()?);
    let start = (link == u32::from(LinkType::IEEE802_11.0)).then(|| little_endian_len(data))??;
    llc(start, false, data)
});

fn little_endian_len(data: &[u8]) -> Option<usize> {
    Some(u16::from_le_bytes(data.get(2..4)?.try_into().ok()?).into())
}

fn avs_len(data: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(data.get(4..8)?.try_into().ok()?)).ok()
}

/// The header length of this link type: drivers use either of two headers.
fn prism_len(data: &[u8]) -> Option<usize> {
    let cookie = u32::from_be_bytes(data.get(..4)?.try_into().ok()?);
    if cookie & 0xffff_f000 == 0x8021_1000 { avs_len(data) } else { Some(PRISM_LEN) }
}

/// The LLC header of a data frame that is neither empty nor encrypted.
fn llc(start: usize, radiotap: bool, data: &[u8]) -> Option<NextLayer> {
    let control = data.get(start..start.checked_add(2)?)?;
    let (data_frame, empty, secret) =
        (control[0] & 0x0c == 0x08, control[0] & 0x40 != 0, control[1] & 0x40 != 0);
    if !data_frame || empty || secret {
        return None;
    }
    let qos = if control[0] & 0x80 != 0 { 2 } else { 0 };
    let mut offset = start.checked_add(DATA_HEADER_LEN + qos)?;
    if radiotap && padded(data)? {
        offset = offset.checked_next_multiple_of(4)?;
    }
    Some(NextLayer { offset, ethertype: LLC })
}

/// True if radiotap's flags state that the MAC header is padded to a multiple of four bytes.
fn padded(data: &[u8]) -> Option<bool> {
    let present = u32::from_le_bytes(data.get(4..8)?.try_into().ok()?);
    if present & 2 == 0 || present >> 31 == 1 {
        return Some(false);
    }
    let flags = data.get(if present & 1 == 1 { 16 } else { 8 })?;
    Some(flags & 0x20 != 0)
}
