//! One readable line per frame, in tcpdump's format.
//!
//! ```
//! use fyke::frame::{Frame, LinkType};
//! use fyke::print::{PrintOptions, Printer, TimeStyle};
//!
//! let mut printer = Printer::new(PrintOptions { time: TimeStyle::None, ..PrintOptions::default() });
//! let bytes = [
//!     0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
//!     0x03, 0xe8, 0x03, 0xe9, 0, 8, 0, 0, // UDP
//! ];
//! let mut text = String::new();
//! printer.line(&Frame::new(LinkType::RAW, &bytes), &mut text);
//! assert_eq!(text, "IP 10.0.0.1.1000 > 10.0.0.2.1001: UDP, length 0");
//! ```

#[doc(inline)]
pub use fyke_print::{Credit, Hex, PrintOptions, Printer, Services, TimeStyle};
