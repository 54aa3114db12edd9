//! Link headers and all headers before the network layer. Tags and addresses are shown with `-e`
//! only, as in tcpdump.

mod bridge;
mod ipx;
mod isis;
mod llc;
mod lldp;
mod wlan;

pub(crate) use llc::print as llc;
pub(crate) use wlan::{is_wireless, print as wireless};

use crate::body::{Body, Flow, Step, put};
use crate::text::{self, Cut, Piece, Printed, name_of};
use crate::{names, routing};
use fyke_frame::walk::view::{EthernetView, MacAddr, MplsStack, Tag, VlanStack};
use fyke_frame::walk::{Layer, Protocol};
use fyke_frame::{LinkType, ethertype};

pub(crate) fn ethernet(body: &mut Body, index: usize) -> Step {
    if body.options.link_header {
        let layer = body.at(index).ok_or(Cut)?;
        let view = EthernetView::new(body.layers.data(), layer).ok_or(Cut)?;
        put!(body, "{} > {}, ", view.source(), view.destination());
        let frame_len = body.end - layer.offset as usize;
        let mut length = Some(frame_len);
        let mut number = view.ethertype();
        for tag in following_tags(body, index) {
            ether_type(body, number);
            part_length(body, &mut length);
            put!(body, "{}, ", TagText(tag));
            number = tag.ethertype;
        }
        if number < ethertype::MIN_ETHERTYPE && body.kind(index + 1) != Some(Protocol::Vlan) {
            put!(body, "802.3");
            put!(body, ", length {}: ", usize::from(number).min(frame_len - 14));
        } else if number < ethertype::MIN_ETHERTYPE {
            put!(body, "802.3");
        } else {
            ether_type(body, number);
            part_length(body, &mut length);
        }
    }
    Ok(Flow::Next)
}

/// Prints the frame's length after the first type, a comma after the others.
fn part_length(body: &mut Body, length: &mut Option<usize>) {
    match length.take() {
        Some(length) => put!(body, ", length {length}: "),
        None => put!(body, ", "),
    }
}

fn following_tags<'a>(body: &Body<'_, 'a>, index: usize) -> impl Iterator<Item = Tag> + use<'a> {
    let stack = body.at(index + 1).and_then(|next| VlanStack::new(body.layers.data(), next));
    stack.into_iter().flat_map(|stack| stack.tags())
}

struct TagText(Tag);

impl std::fmt::Display for TagText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dei = if self.0.drop_eligible { ", DEI" } else { "" };
        write!(f, "vlan {}, p {}{dei}", self.0.id, self.0.priority)
    }
}

fn ether_type(body: &mut Body, number: u16) {
    match (names::ethertype(number), body.options.quiet) {
        (name, false) => put!(body, "ethertype {} ({number:#06x})", name.unwrap_or("Unknown")),
        (Some(name), true) => put!(body, "{name}"),
        (None, true) => put!(body, "Unknown Ethertype ({number:#06x})"),
    }
}

/// Prints tags. After Ethernet, they have been printed with it.
pub(crate) fn vlan(body: &mut Body, index: usize) -> Step {
    if index > 0 && body.kind(index - 1) == Some(Protocol::Ethernet) {
        return Ok(Flow::Next);
    }
    let layer = body.at(index).ok_or(Cut)?;
    let stack = VlanStack::new(body.layers.data(), layer).ok_or(Cut)?;
    for tag in stack.tags() {
        if body.options.link_header {
            put!(body, "{}, ", TagText(tag));
        }
        if !body.options.quiet {
            let name = names::ethertype(tag.ethertype).unwrap_or("Unknown");
            put!(body, "ethertype {name}, ");
        }
    }
    Ok(Flow::Next)
}

/// Prints an EtherType that the walk does not follow. Without a printer for it: the addresses and
/// the number, with or without `-e`.
pub(crate) fn unknown_ethertype(body: &mut Body, number: u16) -> Printed {
    let rest = body.rest();
    let Some(last) = body.layers.innermost().copied() else { return Ok(()) };
    let mut layers = body.layers.iter().filter(|layer| layer.level == last.level);
    let ethernet = layers.rfind(|layer| layer.protocol == Protocol::Ethernet);
    let view = ethernet.and_then(|layer| EthernetView::new(body.layers.data(), layer));
    if last.protocol == Protocol::Gre {
        put!(body, "gre-proto-{number:#x}");
        return Ok(());
    }
    if over_ethernet(body, number, &rest, view)? {
        return Ok(());
    }
    match (view, last.protocol) {
        (view, Protocol::Llc) => {
            if let (Some(view), false) = (view, body.options.link_header) {
                put!(body, "{} > {} ", view.source(), view.destination());
            }
            if !body.options.link_header {
                let name = names::ethertype(number).unwrap_or("Unknown");
                put!(body, "SNAP, ethertype {name} ({number:#06x}), length {}: ", rest.wire_len);
            }
        }
        (Some(_), _) | (None, Protocol::Link) if body.options.link_header => {}
        (Some(view), _) => {
            put!(body, "{} > {}, ", view.source(), view.destination());
            ether_type(body, number);
            put!(body, ", length {}: ", body.end - ethernet.map_or(0, |e| e.offset as usize));
        }
        (None, Protocol::Geneve) => put!(body, "geneve-proto-{number:#x}"),
        _ => {
            ether_type(body, number);
            put!(body, ", length {}: ", rest.wire_len);
        }
    }
    Ok(())
}

/// Prints the payload of an EtherType that the walk does not follow; false for an unknown one.
fn over_ethernet(
    body: &mut Body,
    number: u16,
    packet: &Piece,
    view: Option<EthernetView>,
) -> Result<bool, Cut> {
    match number {
        0x88cc => lldp::print(body, packet)?,
        0x9000 => bridge::loopback(body, packet)?,
        0x8137 => {
            put!(body, "(NOV-ETHII) ");
            ipx::print(body, packet)?;
        }
        0x8899 => {
            if let Some(view) = view {
                put!(body, "{} > {}, ", view.source(), view.destination());
            }
            bridge::realtek(body, packet)?;
        }
        _ => return routing::over_ethernet(body, number, packet),
    }
    Ok(true)
}

const DIRECTIONS: &[(u16, &str)] = &[(0, "In"), (1, "B"), (2, "M"), (3, "P"), (4, "Out")];

pub(crate) fn other(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let header = body.whole(layer);
    let frame_len = body.end;
    match body.link {
        LinkType::LINUX_SLL if !body.options.link_header => {}
        LinkType::LINUX_SLL => {
            let direction = name_of(DIRECTIONS, header.be16(0)?).unwrap_or("?");
            put!(body, "{direction:>3} ");
            if header.be16(4)? == 6 {
                put!(body, "{} ", mac(header.take(6, 6)?));
            }
            cooked_type(body, header.be16(14)?, frame_len);
        }
        LinkType::LINUX_SLL2 => {
            let ifindex = header.be32(4)?;
            let name = (body.options.interface_name)(ifindex);
            let direction = name_of(DIRECTIONS, header.u8(10)?.into()).unwrap_or("?");
            match name {
                Some(name) => {
                    let start = body.out.len();
                    text::escape(name.as_bytes(), body.out);
                    let width = body.out.len() - start;
                    body.out.extend(std::iter::repeat_n(' ', 5usize.saturating_sub(width)));
                }
                None if body.options.like_tcpdump => put!(body, "?    "),
                None => put!(body, "{:<5}", format!("if{ifindex}")),
            }
            put!(body, " {direction:<3} ");
            if body.options.link_header {
                put!(body, "ifindex {ifindex} ");
                if header.u8(11)? == 6 {
                    put!(body, "{} ", mac(header.take(12, 6)?));
                }
                cooked_type(body, header.be16(0)?, frame_len);
            }
        }
        LinkType::NULL | LinkType::LOOP if body.options.link_header => {
            let raw = header.be32(0)?;
            let family = raw.min(raw.swap_bytes());
            let known = [(2, "IPv4"), (24, "IPv6"), (28, "IPv6"), (30, "IPv6")];
            let name = name_of(&known, family).unwrap_or("Unknown");
            match body.options.quiet {
                true => put!(body, "{name}, length {frame_len}: "),
                false => put!(body, "AF {name} ({family}), length {frame_len}: "),
            }
        }
        link if is_wireless(link) => {}
        _ if body.options.link_header => put!(body, "link header, length {frame_len}: "),
        _ => {}
    }
    Ok(Flow::Next)
}

fn cooked_type(body: &mut Body, number: u16, frame_len: usize) {
    if body.options.quiet {
        return;
    }
    match number {
        1 => put!(body, "802.3"),
        4 => put!(body, "802.2"),
        _ => {
            let name = names::ethertype(number).unwrap_or("Unknown");
            put!(body, "ethertype {name} ({number:#06x})");
        }
    }
    put!(body, ", length {frame_len}: ");
}

/// The EtherType in a link header other than Ethernet's.
pub(crate) fn announced(body: &Body, layer: &Layer) -> Option<u16> {
    let header = body.whole(layer);
    match body.link {
        LinkType::LINUX_SLL => header.be16(14).ok(),
        LinkType::LINUX_SLL2 => header.be16(0).ok(),
        LinkType::NULL | LinkType::LOOP => {
            match header.be32(0).ok().map(|raw| raw.min(raw.swap_bytes())) {
                Some(2) => Some(ethertype::IPV4),
                Some(_) => Some(ethertype::IPV6),
                None => None,
            }
        }
        _ => None,
    }
}

fn mac(bytes: &[u8]) -> MacAddr {
    MacAddr(bytes.try_into().unwrap_or_default())
}

pub(crate) fn mpls(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let stack = MplsStack::new(body.layers.data(), layer).ok_or(Cut)?;
    put!(body, "MPLS");
    for (depth, label) in stack.labels().enumerate() {
        let separator = if depth > 0 && body.options.verbose > 0 { "\n\t" } else { " " };
        put!(body, "{separator}(label {}", label.label);
        if body.options.verbose > 0 && label.label < 16 {
            let known = [
                (0, "IPv4 explicit NULL"),
                (1, "router alert"),
                (2, "IPv6 explicit NULL"),
                (3, "implicit NULL"),
            ];
            put!(body, " ({})", name_of(&known, label.label).unwrap_or("rsvd"));
        }
        put!(body, ", tc {}", label.traffic_class);
        put!(body, "{}, ttl {})", if label.bottom { ", [S]" } else { "" }, label.ttl);
    }
    let next = body.kind(index + 1);
    let hidden = next == Some(Protocol::ControlWord) && body.options.like_tcpdump;
    if next.is_some() && !hidden {
        body.break_or(" ");
    }
    Ok(Flow::Next)
}

pub(crate) fn control_word(body: &mut Body, index: usize) -> Step {
    if body.options.like_tcpdump {
        return Ok(Flow::End);
    }
    let layer = body.at(index).ok_or(Cut)?;
    put!(body, "control word {:#010x}, ", body.whole(layer).be32(0)?);
    Ok(Flow::Next)
}
