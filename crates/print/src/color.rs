//! Colours of lines on a terminal, by protocol and flags. The text between the escape sequences is unchanged.

use fyke_frame::walk::view::{TcpView, tcp_flags};
use fyke_frame::walk::{Layers, Protocol, Stop};

/// The sequence that ends a colour.
pub(crate) const END: &str = "\x1b[0m";

/// The sequence that begins the colour of a frame.
pub(crate) fn of(layers: &Layers) -> &'static str {
    const RED: &str = "\x1b[31m";
    const BOLD_GREEN: &str = "\x1b[1;32m";
    if matches!(layers.stop(), Stop::LengthLies | Stop::WrongVersion(_)) {
        return RED;
    }
    let Some(last) = layers.innermost() else { return "\x1b[2m" };
    match last.protocol {
        Protocol::Tcp => {
            let flags = TcpView::new(layers.data(), last).and_then(|view| view.flags());
            match flags.unwrap_or_default() {
                flags if flags & tcp_flags::RST != 0 => RED,
                flags if flags & (tcp_flags::SYN | tcp_flags::FIN) != 0 => BOLD_GREEN,
                _ => "\x1b[32m",
            }
        }
        Protocol::Udp | Protocol::UdpLite => "\x1b[36m",
        Protocol::Sctp | Protocol::Dccp => "\x1b[34m",
        Protocol::Icmp | Protocol::Icmpv6 | Protocol::Igmp => "\x1b[35m",
        Protocol::Arp => "\x1b[33m",
        _ => "\x1b[0m",
    }
}
