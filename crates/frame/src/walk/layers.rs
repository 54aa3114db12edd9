//! Result of a walk: up to [`MAX_LAYERS`] headers, and views of them per level.
//!
//! A [`Layers`] is 550 bytes, is on the stack and borrows the frame's bytes. A [`Scope`] is a run
//! of its layers: all of them, or those of one level. Accessors of a scope return the *last* layer
//! of their kind, so the accessors of [`Layers`] refer to the innermost packet; use
//! [`Layers::level`] for another one.

use super::view::{
    ArpView, EthernetView, IcmpView, IpView, Ipv4View, Ipv6View, MplsStack, SctpView, TcpView,
    UdpView, VlanStack,
};
use super::{Layer, MAX_LAYERS, Protocol, Stop};

/// The headers of one frame, outermost first.
#[derive(Debug, Clone)]
pub struct Layers<'a> {
    data: &'a [u8],
    layers: [Layer; MAX_LAYERS],
    len: u8,
    stop: Stop,
}

/// Some consecutive headers of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'l, 'a> {
    data: &'a [u8],
    layers: &'l [Layer],
}

/// Source and destination port, and the transport they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// TCP, UDP, UDP-Lite, SCTP or DCCP.
    pub protocol: Protocol,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// Position of a fragment in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentInfo {
    /// Identification, 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Offset of this fragment's payload in the whole payload, in bytes.
    pub offset: u32,
    /// True if more fragments follow.
    pub more: bool,
    /// Protocol of the whole payload (IPv6: the number in the fragment header).
    pub protocol: u8,
}

impl FragmentInfo {
    /// True if the fragment starts the packet: ports and other headers are here.
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// True if the whole packet is in one fragment (RFC 6946).
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

impl<'a> Layers<'a> {
    /// The layers of no frame, for [`walk_again`](super::walk_again).
    pub fn new() -> Self {
        Layers { data: &[], layers: [Layer::default(); MAX_LAYERS], len: 0, stop: Stop::Done }
    }

    /// Clears the layers. Offsets have 32 bits; no source captures frames of 4 GiB.
    pub(super) fn restart(&mut self, data: &'a [u8]) {
        self.data = &data[..data.len().min(u32::MAX as usize)];
        self.len = 0;
        self.stop = Stop::Done;
    }

    /// Appends a layer; the caller has checked the capacity.
    pub(super) fn push(&mut self, layer: Layer) {
        self.layers[usize::from(self.len)] = layer;
        self.len += 1;
    }

    pub(super) fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// The frame's captured bytes.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The headers, outermost first.
    pub fn as_slice(&self) -> &[Layer] {
        &self.layers[..usize::from(self.len)]
    }

    /// The headers, outermost first.
    pub fn iter(&self) -> std::slice::Iter<'_, Layer> {
        self.as_slice().iter()
    }

    /// Number of headers.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// True if no header could be read.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The reason why the walk ended.
    pub fn stop(&self) -> Stop {
        self.stop
    }

    /// The last header.
    pub fn innermost(&self) -> Option<&Layer> {
        self.as_slice().last()
    }

    /// All headers as one scope.
    pub fn all(&self) -> Scope<'_, 'a> {
        Scope { data: self.data, layers: self.as_slice() }
    }

    /// The headers of one level; `None` if there is no such level.
    pub fn level(&self, level: u8) -> Option<Scope<'_, 'a>> {
        let layers = self.as_slice();
        let start = layers.partition_point(|layer| layer.level < level);
        let end = layers.partition_point(|layer| layer.level <= level);
        (start < end).then(|| Scope { data: self.data, layers: &layers[start..end] })
    }

    /// Levels from the outermost packet inwards.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = Scope<'_, 'a>> {
        let deepest = self.innermost().map_or(0, |layer| layer.level + 1);
        (0..deepest).filter_map(|level| self.level(level))
    }

    /// The deepest level; `None` if no header could be read.
    pub fn innermost_level(&self) -> Option<Scope<'_, 'a>> {
        self.level(self.innermost()?.level)
    }

    /// The first IP header.
    pub fn outermost_ip(&self) -> Option<IpView<'a>> {
        self.iter().find_map(|layer| IpView::new(self.data, layer))
    }

    /// The last IP header.
    pub fn innermost_ip(&self) -> Option<IpView<'a>> {
        self.all().ip()
    }

    /// The last TCP header.
    pub fn tcp(&self) -> Option<TcpView<'a>> {
        self.all().tcp()
    }

    /// The last UDP header, which may be a tunnel's if the packet inside is cut or unknown.
    pub fn udp(&self) -> Option<UdpView<'a>> {
        self.all().udp()
    }

    /// Ports of the innermost packet, see [`Scope::ports`].
    pub fn ports(&self) -> Option<Ports> {
        self.all().ports()
    }

    /// The captured bytes after the last header, without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.innermost().map_or(self.data, |layer| slice(self.data, layer.payload_range()))
    }
}

impl Default for Layers<'_> {
    fn default() -> Self {
        Layers::new()
    }
}

impl<'l, 'a> IntoIterator for &'l Layers<'a> {
    type Item = &'l Layer;
    type IntoIter = std::slice::Iter<'l, Layer>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn slice(data: &[u8], range: std::ops::Range<usize>) -> &[u8] {
    data.get(range).unwrap_or(&[])
}

impl<'l, 'a> Scope<'l, 'a> {
    /// The headers of this scope, outermost first.
    pub fn layers(&self) -> &'l [Layer] {
        self.layers
    }

    /// The last header of this kind.
    pub fn find(&self, protocol: Protocol) -> Option<&'l Layer> {
        self.layers.iter().rev().find(|layer| layer.protocol == protocol)
    }

    /// True if there is a header of this kind.
    pub fn has(&self, protocol: Protocol) -> bool {
        self.find(protocol).is_some()
    }

    /// The last header.
    pub fn last(&self) -> Option<&'l Layer> {
        self.layers.last()
    }

    /// The last header that `view` can decode.
    fn view<V>(&self, view: impl Fn(&'a [u8], &Layer) -> Option<V>) -> Option<V> {
        self.layers.iter().rev().find_map(|layer| view(self.data, layer))
    }

    /// Ethernet header.
    pub fn ethernet(&self) -> Option<EthernetView<'a>> {
        self.view(EthernetView::new)
    }

    /// Stack of VLAN tags.
    pub fn vlan(&self) -> Option<VlanStack<'a>> {
        self.view(VlanStack::new)
    }

    /// Stack of MPLS labels.
    pub fn mpls(&self) -> Option<MplsStack<'a>> {
        self.view(MplsStack::new)
    }

    /// ARP.
    pub fn arp(&self) -> Option<ArpView<'a>> {
        self.view(ArpView::new)
    }

    /// IPv4 or IPv6 header.
    pub fn ip(&self) -> Option<IpView<'a>> {
        self.view(IpView::new)
    }

    /// IPv4 header.
    pub fn ipv4(&self) -> Option<Ipv4View<'a>> {
        self.view(Ipv4View::new)
    }

    /// IPv6 header.
    pub fn ipv6(&self) -> Option<Ipv6View<'a>> {
        self.view(Ipv6View::new)
    }

    /// TCP header.
    pub fn tcp(&self) -> Option<TcpView<'a>> {
        self.view(TcpView::new)
    }

    /// UDP header.
    pub fn udp(&self) -> Option<UdpView<'a>> {
        self.view(UdpView::new)
    }

    /// SCTP header.
    pub fn sctp(&self) -> Option<SctpView<'a>> {
        self.view(SctpView::new)
    }

    /// ICMP or ICMPv6 header.
    pub fn icmp(&self) -> Option<IcmpView<'a>> {
        self.view(IcmpView::new)
    }

    /// Ports of this scope's deepest level; `None` if that has no transport with ports, or it is
    /// not in the frame (a later fragment, a cut). Ports of a tunnel's own UDP header are returned
    /// only if the walk could not enter the tunnel.
    pub fn ports(&self) -> Option<Ports> {
        let level = self.last()?.level;
        let mut innermost = self.layers.iter().rev().take_while(|layer| layer.level == level);
        let layer = innermost.find(|layer| layer.protocol.has_ports())?;
        let &[a, b, c, d] = self.data.get(layer.header_range())?.first_chunk()?;
        Some(Ports {
            protocol: layer.protocol,
            source: u16::from_be_bytes([a, b]),
            destination: u16::from_be_bytes([c, d]),
        })
    }

    /// The fragmentation data of the last IP header of this scope, or of its fragment header;
    /// `None` for a packet that is not fragmented.
    pub fn fragment(&self) -> Option<FragmentInfo> {
        let ip = self.layers.iter().rposition(|layer| layer.protocol.is_ip())?;
        if let Some(v4) = Ipv4View::new(self.data, &self.layers[ip]) {
            return v4.fragment();
        }
        let header = self.layers[ip..].iter().find(|layer| layer.protocol == Protocol::Fragment)?;
        let bytes: &[u8; 8] = self.data.get(header.header_range())?.first_chunk()?;
        let place = u16::from_be_bytes([bytes[2], bytes[3]]);
        Some(FragmentInfo {
            id: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            offset: u32::from(place & 0xfff8),
            more: place & 1 == 1,
            protocol: bytes[0],
        })
    }

    /// The protocol number at the end of the chain of IP headers: the transport, known or not. In
    /// fragments, the protocol of the whole packet.
    pub fn ip_protocol(&self) -> Option<u8> {
        let ip = self.layers.iter().rposition(|layer| layer.protocol.is_ip())?;
        let chain = self.layers[ip + 1..].iter().take_while(|l| l.protocol.is_ip_extension());
        let number_at = |layer: &Layer, at: usize| {
            self.data.get(layer.header_range()).and_then(|header| header.get(at)).copied()
        };
        let first = &self.layers[ip];
        match chain.last() {
            Some(extension) => number_at(extension, 0),
            None => number_at(first, if first.protocol == Protocol::Ipv4 { 9 } else { 6 }),
        }
    }
}
