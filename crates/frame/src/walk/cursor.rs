//! State of a walk: the offset of the next header and the ends that the headers so far have set.
//!
//! Invariant: `at <= end <= wire_end` and `end <= data.len()`. All reads go through
//! [`Cursor::rest`], all moves through [`Cursor::note`].

use super::{Layer, Layers, MAX_LAYERS, MAX_LEVELS, Protocol, Stop};

/// The next header.
pub(super) enum Next {
    Ethernet,
    Llc,
    EtherType(u16),
    Ppp,
    IpByVersion,
    Ip { protocol: u8, v6: bool },
}

pub(super) struct Cursor<'l, 'a> {
    layers: &'l mut Layers<'a>,
    data: &'a [u8],
    at: usize,
    end: usize,
    wire_end: usize,
    level: u8,
    first_fragment: bool,
}

impl<'l, 'a> Cursor<'l, 'a> {
    pub(super) fn new(layers: &'l mut Layers<'a>, wire_len: usize) -> Self {
        let data = layers.data();
        Cursor {
            layers,
            data,
            at: 0,
            end: data.len(),
            wire_end: wire_len.clamp(data.len(), u32::MAX as usize),
            level: 0,
            first_fragment: false,
        }
    }

    /// The captured bytes from the next header on.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.data.get(self.at..self.end).unwrap_or(&[])
    }

    /// The fixed part of the next header.
    #[inline]
    pub(super) fn fixed<const N: usize>(&self) -> Result<&'a [u8; N], Stop> {
        self.rest().first_chunk().ok_or_else(|| self.cut(N))
    }

    /// The 16-bit field at `offset` of the next header.
    pub(super) fn be16(&self, offset: usize) -> Result<u16, Stop> {
        match self.rest().get(offset..offset + 2) {
            Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
            _ => Err(self.cut(offset + 2)),
        }
    }

    /// The reason why the next header does not have `len` bytes.
    #[cold]
    pub(super) fn cut(&self, len: usize) -> Stop {
        if self.at + len <= self.wire_end {
            Stop::Truncated
        } else if self.first_fragment {
            Stop::Fragment
        } else {
            Stop::LengthLies
        }
    }

    /// Applies a length field: the next header and its payload are `len` bytes together.
    pub(super) fn narrow(&mut self, len: usize) {
        self.wire_end = self.wire_end.min(self.at + len);
        self.end = self.end.min(self.wire_end);
    }

    /// Records the next header and moves after it. A header that is cut is recorded with its
    /// captured length, and the walk ends.
    #[inline]
    pub(super) fn note(&mut self, protocol: Protocol, header_len: usize) -> Result<(), Stop> {
        let captured = header_len.min(self.end - self.at);
        let layer = Layer {
            offset: self.at as u32,
            end: self.end as u32,
            wire_end: self.wire_end as u32,
            header_len: u16::try_from(captured).map_err(|_| Stop::TooDeep)?,
            protocol,
            level: self.level,
        };
        if self.layers.len() == MAX_LAYERS {
            return Err(Stop::TooDeep);
        }
        self.layers.push(layer);
        let cut = (captured < header_len).then(|| self.cut(header_len));
        self.at += captured;
        cut.map_or(Ok(()), Err)
    }

    /// Starts a packet inside the current one.
    pub(super) fn enter(&mut self) -> Result<(), Stop> {
        if self.level + 1 == MAX_LEVELS {
            return Err(Stop::TooDeep);
        }
        self.level += 1;
        Ok(())
    }

    /// Starts a packet that continues in other fragments.
    pub(super) fn enter_first_fragment(&mut self) {
        self.first_fragment = true;
    }
}
