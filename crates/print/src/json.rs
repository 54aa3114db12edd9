//! A frame as one JSON object: when and where it was captured, the headers with their addresses, and the text of its
//! line. `docs/lines.schema.json` describes the object. Every value is made of ASCII, so no byte of a packet reaches
//! a terminal.

use crate::names;
use crate::show::{Padded, Show, say};
use fyke_frame::Frame;
use fyke_frame::walk::view::{
    EthernetView, GeneveView, GreView, GtpuView, IcmpView, IpView, MplsStack, TcpView, UdpView,
    VlanStack, VxlanView,
};
use fyke_frame::walk::{Layer, Layers, Protocol};

/// The pass that accepted a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Number of the filter; `None` for a pass that belongs to none.
    pub filter: Option<u64>,
    /// Number of the pass, if there is a filter.
    pub pass: Option<u64>,
    /// Number of edits at the time of the verdict.
    pub epoch: u64,
}

/// Writes an object field by field.
struct Object<'o> {
    out: &'o mut String,
    first: bool,
}

impl<'o> Object<'o> {
    fn open(out: &'o mut String) -> Object<'o> {
        out.push('{');
        Object { out, first: true }
    }

    fn name(&mut self, name: &str) {
        let comma = if self.first { "\"" } else { ",\"" };
        self.first = false;
        say!(self, comma, name, "\":");
    }

    fn number(&mut self, name: &str, value: impl Show) {
        self.name(name);
        value.show(self.out);
    }

    fn text(&mut self, name: &str, value: impl Show) {
        self.name(name);
        say!(self, '"', value, '"');
    }

    fn list(&mut self, name: &str, values: impl Iterator<Item = u32>) {
        self.name(name);
        self.out.push('[');
        for (at, value) in values.enumerate() {
            say!(self, if at > 0 { "," } else { "" }, value);
        }
        self.out.push(']');
    }
}

/// A line's text with the characters escaped that JSON needs escaped.
struct Escaped<'a>(&'a str);

impl Show for Escaped<'_> {
    fn show(&self, out: &mut String) {
        for letter in self.0.chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                ' '..='~' => out.push(letter),
                _ => out.push('?'),
            }
        }
    }
}

/// Appends the object of a frame; `line` is its text.
pub(crate) fn print(
    frame: &Frame,
    layers: &Layers,
    number: u64,
    credit: Option<Credit>,
    line: &str,
    out: &mut String,
) {
    let mut object = Object::open(out);
    object.number("number", number);
    object.name("time");
    let (seconds, ns) = (frame.timestamp_ns / 1_000_000_000, frame.timestamp_ns % 1_000_000_000);
    say!(object, '"', seconds, '.', Padded(ns as u32, 9), '"');
    object.number("interface", frame.interface);
    object.text("link", Escaped(&frame.link.to_string()));
    object.number("length", frame.wire_len);
    object.number("captured", frame.data.len());
    if let Some(credit) = credit {
        for (name, value) in [("filter", credit.filter), ("pass", credit.pass)] {
            match value {
                Some(value) => object.number(name, value),
                None => object.number(name, "null"),
            }
        }
        object.number("epoch", credit.epoch);
    }
    object.name("layers");
    object.out.push('[');
    for (at, header) in layers.iter().enumerate() {
        object.out.push_str(if at > 0 { "," } else { "" });
        layer(layers, header, object.out);
    }
    object.out.push(']');
    object.text("text", Escaped(line));
    out.push('}');
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::ControlWord => "control-word",
        other => names::cut(other),
    }
}

fn layer(layers: &Layers, header: &Layer, out: &mut String) {
    let data = layers.data();
    let mut object = Object::open(out);
    object.text("protocol", name(header.protocol));
    object.number("offset", header.offset);
    object.number("length", header.header_len);
    match header.protocol {
        Protocol::Ethernet => {
            if let Some(view) = EthernetView::new(data, header) {
                object.text("source", view.source());
                object.text("destination", view.destination());
                object.number("type", view.ethertype());
            }
        }
        Protocol::Vlan => {
            if let Some(view) = VlanStack::new(data, header) {
                object.list("ids", view.tags().map(|tag| tag.id.into()));
            }
        }
        Protocol::Mpls => {
            if let Some(view) = MplsStack::new(data, header) {
                object.list("labels", view.labels().map(|label| label.label));
            }
        }
        Protocol::Ipv4 | Protocol::Ipv6 => {
            if let Some(view) = IpView::new(data, header) {
                object.text("source", view.source());
                object.text("destination", view.destination());
            }
        }
        Protocol::Udp => {
            if let Some(view) = UdpView::new(data, header) {
                object.number("source_port", view.source_port());
                object.number("destination_port", view.destination_port());
            }
        }
        Protocol::Tcp => tcp(&mut object, TcpView::new(data, header)),
        Protocol::UdpLite | Protocol::Sctp | Protocol::Dccp => {
            let start = header.offset as usize;
            if let Some(&[a, b, c, d]) = data.get(start..start + 4) {
                object.number("source_port", u16::from_be_bytes([a, b]));
                object.number("destination_port", u16::from_be_bytes([c, d]));
            }
        }
        Protocol::Icmp | Protocol::Icmpv6 => {
            if let Some(view) = IcmpView::new(data, header) {
                object.number("type", view.kind());
                object.number("code", view.code());
            }
        }
        _ => tunnel(&mut object, data, header),
    }
    out.push('}');
}

fn tunnel(object: &mut Object, data: &[u8], header: &Layer) {
    match header.protocol {
        Protocol::Gre => {
            if let Some(view) = GreView::new(data, header) {
                object.number("type", view.protocol());
            }
        }
        Protocol::Vxlan => {
            if let Some(view) = VxlanView::new(data, header) {
                object.number("vni", view.vni());
            }
        }
        Protocol::Geneve => {
            if let Some(view) = GeneveView::new(data, header) {
                object.number("vni", view.vni());
            }
        }
        Protocol::Gtpu => {
            if let Some(view) = GtpuView::new(data, header) {
                object.number("teid", view.teid());
            }
        }
        _ => {}
    }
}

fn tcp(object: &mut Object, view: Option<TcpView>) {
    let Some(view) = view else { return };
    object.number("source_port", view.source_port());
    object.number("destination_port", view.destination_port());
    let numbers = [("sequence", view.sequence()), ("acknowledgement", view.acknowledgement())];
    for (name, value) in numbers {
        if let Some(value) = value {
            object.number(name, value);
        }
    }
    if let Some(flags) = view.flags() {
        object.number("flags", flags);
    }
    if let Some(window) = view.window() {
        object.number("window", window);
    }
}
