//! A packet as it would be without IPv6 extension headers, for expressions that look for ports right behind the IPv6
//! header, as libpcap's do.

use fyke_frame::Frame;
use fyke_frame::walk::{Layers, Protocol};

/// The bytes of such a packet.
pub struct Whole {
    bytes: Vec<u8>,
    removed: usize,
}

/// Where IPv6 says what follows it.
const NEXT_HEADER: usize = 6;

impl Whole {
    /// The outermost IPv6 packet without its extension headers; `None` when it has none, or when it is a fragment that
    /// is not the first.
    pub fn of(frame: &Frame<'_>, layers: &Layers<'_>) -> Option<Whole> {
        let headers = layers.as_slice();
        let ip = headers.iter().position(|layer| layer.protocol == Protocol::Ipv6)?;
        let extensions = headers[ip + 1..].iter().take_while(|layer| {
            layer.protocol.is_ip_extension() && layer.protocol != Protocol::Authentication
        });
        let last = extensions.last()?;
        let later = |layer: &&fyke_frame::Layer| layer.protocol == Protocol::Fragment;
        if let Some(fragment) = headers[ip + 1..].iter().find(later) {
            let field = frame.data.get(fragment.offset as usize + 2..)?.first_chunk()?;
            if u16::from_be_bytes(*field) & 0xfff8 != 0 {
                return None;
            }
        }
        let (start, end) = (headers[ip].offset as usize, last.header_end());
        let next = *frame.data.get(last.offset as usize)?;
        let mut bytes = frame.data.get(..headers[ip].header_end())?.to_vec();
        *bytes.get_mut(start + NEXT_HEADER)? = next;
        let removed = end - bytes.len();
        bytes.extend_from_slice(frame.data.get(end..)?);
        Some(Whole { bytes, removed })
    }

    /// As a frame, with the metadata of the one it was.
    pub fn frame<'a>(&'a self, was: &Frame<'a>) -> Frame<'a> {
        let wire_len = was.wire_len.saturating_sub(self.removed as u32);
        Frame { data: &self.bytes, wire_len, ..*was }
    }
}
