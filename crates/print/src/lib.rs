//! One readable line per frame, in tcpdump's format.
//!
//! A [`Printer`] turns frames into text; it does no input or output and resolves no names over the
//! network. Every frame gives one line, and more only on request: `-v` breaks lines where tcpdump
//! breaks them, `-x` and its relatives add dumps. Bytes of the frame are escaped: the text contains
//! no control characters except the line breaks and tabs of the format itself.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_print as print}; }
//! use fyke::frame::{Frame, LinkType};
//! use fyke::print::{PrintOptions, Printer, TimeStyle};
//!
//! let options = PrintOptions { time: TimeStyle::None, ..PrintOptions::default() };
//! let bytes = [
//!     0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
//!     0x03, 0xe8, 0x03, 0xe9, 0, 8, 0, 0, // UDP
//! ];
//! let mut text = String::new();
//! Printer::new(options).line(&Frame::new(LinkType::RAW, &bytes), &mut text);
//! assert_eq!(text, "IP 10.0.0.1.1000 > 10.0.0.2.1001: UDP, length 0");
//! ```
//!
//! The text is built layer by layer from the header walk
//! ([`walk`](mod@fyke_frame::walk)), so it shows the same headers that the scoped
//! reading of filters uses. A header cut by the snapshot length is shown as `[|tcp]`; a length
//! field that contradicts its packet is marked. Departures from tcpdump: no dump of unknown payload
//! unless requested, the packets in more tunnels, on the same line, and no host names;
//! [`PrintOptions::like_tcpdump`] leaves those packets out. `docs/lines.md` lists the protocols and
//! the differences that remain.
//!
//! Cost: about 0.3 µs per line; one growing table of TCP conversations with a limit (see [`PrintOptions`]).
#![forbid(unsafe_code)]

mod application;
mod arp;
mod body;
mod color;
mod dump;
mod icmp;
mod icmp6;
mod ip;
mod json;
mod link;
mod memory;
mod names;
mod options;
mod ppp;
mod routing;
mod sctp;
mod sequence;
mod show;
mod tcp;
mod text;
mod time;
mod tunnel;
mod udp;

pub use json::Credit;
pub use names::Services;
pub use options::{Hex, PrintOptions, TimeStyle};

use body::Body;
use fyke_frame::{Frame, LinkType, walk};
use memory::Memory;
use std::fmt::Write;
use time::Clock;

/// The packet in a PPP frame that starts with the protocol number, without address and control;
/// `None` for any other frame.
fn without_ppp<'a>(frame: &Frame<'a>) -> Option<Frame<'a>> {
    match (frame.link, frame.data) {
        (LinkType::PPP, [0, 0x21 | 0x57, packet @ ..]) => Some(Frame {
            data: packet,
            wire_len: frame.wire_len.saturating_sub(2),
            link: LinkType::RAW,
            ..*frame
        }),
        _ => None,
    }
}

/// Turns frames into text. Keeps the data of earlier frames that a line needs: times and TCP's
/// first sequence numbers.
#[derive(Debug)]
pub struct Printer {
    options: PrintOptions,
    clock: Clock,
    memory: Memory,
    frame_count: u64,
    /// Buffer for the text of an object.
    text: String,
}

impl Printer {
    /// A printer that has seen no frame yet.
    pub fn new(options: PrintOptions) -> Self {
        Printer {
            options,
            clock: Clock::default(),
            memory: Memory::default(),
            frame_count: 0,
            text: String::new(),
        }
    }

    /// Appends the text of a frame, without a line break at its end.
    pub fn line(&mut self, frame: &Frame, out: &mut String) {
        self.frame_count += 1;
        if self.options.number {
            let _ = write!(out, "{:5}  ", self.frame_count);
        }
        if self.options.lengths {
            let _ = write!(out, "caplen {} len {} ", frame.data.len(), frame.wire_len);
        }
        self.clock.print(frame.timestamp_ns, &self.options, out);
        let unframed = without_ppp(frame);
        let shown = unframed.as_ref().unwrap_or(frame);
        let layers = walk(shown);
        let (link, wire_len) = (shown.link, shown.wire_len as usize);
        if self.options.color {
            out.push_str(color::of(&layers));
        }
        Body::new(&self.options, &mut self.memory, &layers, link, wire_len, out).print();
        if self.options.color {
            out.push_str(color::END);
        }
        match &unframed {
            Some(inner) if !self.options.hex_link_header => {
                dump::print(inner, &layers, &self.options, out);
            }
            _ => dump::print(frame, &layers, &self.options, out),
        }
    }

    /// Appends a frame as a JSON object on one line, without a line break at its end:
    /// `docs/lines.schema.json` describes it. The text in it has no time and no colours. `credit`
    /// is the pass that accepted the frame, if it is known.
    pub fn object(&mut self, frame: &Frame, credit: Option<Credit>, out: &mut String) {
        self.frame_count += 1;
        let unframed = without_ppp(frame);
        let layers = walk(unframed.as_ref().unwrap_or(frame));
        let shown = unframed.as_ref().unwrap_or(frame);
        let mut line = std::mem::take(&mut self.text);
        line.clear();
        let (link, wire_len) = (shown.link, shown.wire_len as usize);
        Body::new(&self.options, &mut self.memory, &layers, link, wire_len, &mut line).print();
        json::print(frame, &layers, self.frame_count, credit, &line, out);
        self.text = line;
    }
}
