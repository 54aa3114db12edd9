//! Checked views of headers: the constructor checks the layer; the getters cannot fail.
//!
//! `View::new(data, layer)` returns `None` if the layer has another protocol or if `data` are not
//! the bytes in which the layer was found. Values are in host order. A getter returns an `Option`
//! exactly if the walk may have recorded the layer without that field (see the invariants in
//! [`walk`](mod@crate::walk)).

mod ip;
mod link;
mod transport;
mod tunnel;

pub use ip::{IpView, Ipv4View, Ipv6View};
pub use link::{ArpView, EthernetView, Label, MacAddr, MplsStack, PppoeView, Tag, VlanStack};
pub use transport::{IcmpView, SctpView, TcpOption, TcpOptions, TcpView, UdpView, tcp_flags};
pub use tunnel::{GeneveView, GreView, GtpuView, VxlanView};

use super::{Layer, Protocol};

/// Header and payload of a layer of this protocol.
fn parts<'a>(data: &'a [u8], layer: &Layer, protocol: Protocol) -> Option<(&'a [u8], &'a [u8])> {
    (layer.protocol == protocol)
        .then(|| Some((data.get(layer.header_range())?, data.get(layer.payload_range())?)))?
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}
