//! Views of GRE, VXLAN, Geneve and GTP-U.

use super::{be16, be32, parts};
use crate::walk::{Layer, Protocol};

/// A GRE header.
#[derive(Debug, Clone, Copy)]
pub struct GreView<'a> {
    header: &'a [u8],
}

impl<'a> GreView<'a> {
    /// The view of a GRE layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Gre)?;
        (header.len() >= 4).then_some(GreView { header })
    }

    /// Flags and version: the first two bytes.
    pub fn flags(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Version: 0, or 1 in PPTP.
    pub fn version(&self) -> u8 {
        self.header[1] & 7
    }

    /// EtherType of the payload.
    pub fn protocol(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Checksum, if the header has one.
    pub fn checksum(&self) -> Option<u16> {
        (self.version() == 0 && self.flags() & 0x8000 != 0).then(|| be16(self.header, 4))?
    }

    /// Key, if the header has one. In PPTP the lower half is the call number.
    pub fn key(&self) -> Option<u32> {
        let at = if self.version() == 0 && self.flags() & 0xc000 != 0 { 8 } else { 4 };
        (self.flags() & 0x2000 != 0).then(|| be32(self.header, at))?
    }

    /// Sequence number, if the header has one.
    pub fn sequence(&self) -> Option<u32> {
        let checksum = self.version() == 0 && self.flags() & 0xc000 != 0;
        let at = 4 + if checksum { 4 } else { 0 } + if self.flags() & 0x2000 != 0 { 4 } else { 0 };
        (self.flags() & 0x1000 != 0).then(|| be32(self.header, at))?
    }

    /// Acknowledgement number of PPTP, if the header has one.
    pub fn acknowledgement(&self) -> Option<u32> {
        let there = self.version() == 1 && self.flags() & 0x0080 != 0;
        let at = 4 + [0x2000, 0x1000].iter().filter(|bit| self.flags() & **bit != 0).count() * 4;
        there.then(|| be32(self.header, at))?
    }
}

/// A VXLAN header.
#[derive(Debug, Clone, Copy)]
pub struct VxlanView<'a> {
    header: &'a [u8; 8],
}

impl<'a> VxlanView<'a> {
    /// The view of a VXLAN layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Vxlan)?;
        Some(VxlanView { header: header.first_chunk()? })
    }

    /// Flags: the first byte.
    pub fn flags(&self) -> u8 {
        self.header[0]
    }

    /// Network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        u32::from_be_bytes([0, self.header[4], self.header[5], self.header[6]])
    }
}

/// A Geneve header.
#[derive(Debug, Clone, Copy)]
pub struct GeneveView<'a> {
    fixed: &'a [u8; 8],
    options: &'a [u8],
}

impl<'a> GeneveView<'a> {
    /// The view of a Geneve layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Geneve)?;
        let (fixed, options) = header.split_first_chunk()?;
        Some(GeneveView { fixed, options })
    }

    /// True for a control packet.
    pub fn control(&self) -> bool {
        self.fixed[1] & 0x80 != 0
    }

    /// True if it has options that a receiver must understand.
    pub fn critical(&self) -> bool {
        self.fixed[1] & 0x40 != 0
    }

    /// EtherType of the payload.
    pub fn protocol(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        u32::from_be_bytes([0, self.fixed[4], self.fixed[5], self.fixed[6]])
    }

    /// Captured options.
    pub fn options(&self) -> &'a [u8] {
        self.options
    }
}

/// A GTP-U header.
#[derive(Debug, Clone, Copy)]
pub struct GtpuView<'a> {
    fixed: &'a [u8; 8],
    optional: &'a [u8],
}

impl<'a> GtpuView<'a> {
    /// The view of a GTP-U layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Gtpu)?;
        let (fixed, optional) = header.split_first_chunk()?;
        Some(GtpuView { fixed, optional })
    }

    /// Flags: the first byte.
    pub fn flags(&self) -> u8 {
        self.fixed[0]
    }

    /// Message type, 255 for user data.
    pub fn message(&self) -> u8 {
        self.fixed[1]
    }

    /// Length after the first eight bytes according to the header.
    pub fn length(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Tunnel endpoint identifier.
    pub fn teid(&self) -> u32 {
        u32::from_be_bytes([self.fixed[4], self.fixed[5], self.fixed[6], self.fixed[7]])
    }

    /// Sequence number, if the header has one.
    pub fn sequence(&self) -> Option<u16> {
        (self.fixed[0] & 0x02 != 0).then(|| be16(self.optional, 0))?
    }
}
