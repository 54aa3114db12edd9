//! One readable line per frame, in tcpdump's format.
//!
//! A [`Printer`] turns frames into text; it does no input or output and resolves no names over the
//! network. Every frame gives one line, and more only on request: `-v` breaks lines where tcpdump
//! breaks them, `-x` and its relatives add dumps. Bytes of the frame are escaped: the text contains
//! no control characters except the line breaks and tabs of the format itself.
//!
//! ```
//! # mod fyke { pub use fyke_frame as frame; pub use fyke_print as print; }
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
//! unless requested, the frame in a VXLAN tunnel on the same line, no host names, and fewer
//! application protocols (DNS, DHCP, NTP, TFTP, syslog, and the first line of text protocols).
//!
//! Cost: about 1 µs per line; one growing table of TCP conversations with a limit (see [`PrintOptions`]).
#![forbid(unsafe_code)]

mod application;
mod arp;
mod body;
mod dump;
mod icmp;
mod icmp6;
mod ip;
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
mod wlan;

pub use names::Services;
pub use options::{Hex, PrintOptions, TimeStyle};

use body::Body;
use fyke_frame::{Frame, walk};
use memory::Memory;
use std::fmt::Write;
use time::Clock;

/// Turns frames into text. Keeps the data of earlier frames that a line needs: times and TCP's
/// first sequence numbers.
#[derive(Debug)]
pub struct Printer {
    options: PrintOptions,
    clock: Clock,
    memory: Memory,
    frame_count: u64,
}

impl Printer {
    /// A printer that has seen no frame yet.
    pub fn new(options: PrintOptions) -> Self {
        Printer { options, clock: Clock::default(), memory: Memory::default(), frame_count: 0 }
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
        let layers = walk(frame);
        let (link, wire_len) = (frame.link, frame.wire_len as usize);
        Body::new(&self.options, &mut self.memory, &layers, link, wire_len, out).print();
        dump::print(frame, &layers, &self.options, out);
    }
}
