//! A packet as it would be without VLAN tags and IPv6 extension headers, for expressions that look for addresses and
//! ports at the places where they are without those, as libpcap's do.

use fyke_frame::walk::{Layers, Protocol};
use fyke_frame::{Frame, LinkType};

/// The bytes of such a packet.
pub struct Whole {
    bytes: Vec<u8>,
    removed: usize,
}

/// Where IPv6 says what follows it.
const NEXT_HEADER: usize = 6;
/// Where an Ethernet frame says what follows the addresses.
const ETHERTYPE: usize = 12;

impl Whole {
    /// The outermost IP packet without tags before it and extension headers in it; `None` when it has neither, and
    /// when it is a fragment that is not the first.
    pub fn of(frame: &Frame<'_>, layers: &Layers<'_>) -> Option<Whole> {
        let headers = layers.as_slice();
        let ip = headers.iter().position(|layer| layer.protocol.is_ip())?;
        let tagged = frame.link == LinkType::EN10MB
            && headers[..ip].iter().skip(1).all(|layer| layer.protocol == Protocol::Vlan)
            && ip > 1;
        let extensions = headers[ip + 1..].iter().take_while(|layer| {
            layer.protocol.is_ip_extension() && layer.protocol != Protocol::Authentication
        });
        let last = extensions.last();
        if last.is_none() && !tagged {
            return None;
        }
        let later = |layer: &&fyke_frame::Layer| layer.protocol == Protocol::Fragment;
        if let Some(fragment) = headers[ip + 1..].iter().find(later) {
            let field = frame.data.get(fragment.offset as usize + 2..)?.first_chunk()?;
            if u16::from_be_bytes(*field) & 0xfff8 != 0 {
                return None;
            }
        }
        let (start, end) = (headers[ip].offset as usize, headers[ip].header_end());
        let mut bytes = match tagged {
            true => {
                let mut bytes = frame.data.get(..ETHERTYPE)?.to_vec();
                bytes.extend_from_slice(frame.data.get(start.checked_sub(2)?..start)?);
                bytes
            }
            false => frame.data.get(..start)?.to_vec(),
        };
        let at = bytes.len();
        bytes.extend_from_slice(frame.data.get(start..end)?);
        let mut rest = end;
        if let Some(last) = last {
            *bytes.get_mut(at + NEXT_HEADER)? = *frame.data.get(last.offset as usize)?;
            rest = last.header_end();
        }
        let removed = rest - bytes.len();
        bytes.extend_from_slice(frame.data.get(rest..)?);
        Some(Whole { bytes, removed })
    }

    /// As a frame, with the metadata of the one it was.
    pub fn frame<'a>(&'a self, was: &Frame<'a>) -> Frame<'a> {
        let wire_len = was.wire_len.saturating_sub(self.removed as u32);
        Frame { data: &self.bytes, wire_len, ..*was }
    }
}
