//! Scoped: the same texts, read by meaning instead of by offsets.
//!
//! A frame is a nest of packets; the header [`walk`](fn@fyke_frame::walk) finds them. In this reading
//! every primitive and every byte expression tests *one* of them: the innermost that could be
//! decoded. `outer (…)`, `layer N (…)` and `any (…)` select another one, and the text in the
//! brackets is bound as a whole, `not` included: for `any (tcp and not port 80)` a single packet
//! has to be TCP and not have port 80.
//!
//! Other differences from compat:
//! - Tags, labels and sessions shift nothing: `vlan 5 or tcp` is the same as `tcp or vlan 5`, and `port 80` finds the
//!   port under any number of tags. `vlan N` holds when any tag of the packet is N.
//! - IPv6 extension headers are stepped over; `ip proto`, `ip6 proto` and the names of protocols match every number
//!   in the chain, the last one included.
//! - A later fragment has its first fragment's ports ([`Fragments`]). While those are unknown,
//!   every test of ports or of bytes of the transport header rejects the frame, even under `not`.
//! - Padding is not part of a packet: a byte expression that reads beyond the end of its packet
//!   rejects the frame. So does a division by zero.
//! - A primitive about a header that the packet lacks does not hold (its negation does), whatever the link type.
//! - `ip multicast` is 224.0.0.0/4. `len`, `less` and `greater` are about the whole frame everywhere.
//!
//! Inside `any`, a packet that cannot be decided does not count, and the others are tested.
//!
//! This code is small and simple rather than fast: one walk per frame, then the tree. Not
//! supported: `decnet`, and scopes inside each other.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_filter as filter, fyke_frame as frame}; }
//! use fyke::filter::{Options, Reading, compile};
//! use fyke::frame::{Frame, LinkType};
//!
//! let mut tagged = [0; 60]; // Ethernet with VLAN tag 5, IPv4, protocol 17
//! tagged[12..20].copy_from_slice(&[0x81, 0x00, 0, 5, 0x08, 0x00, 0x45, 0]);
//! tagged[20..22].copy_from_slice(&[0, 42]);
//! tagged[27] = 17;
//! let frame = Frame::new(LinkType::EN10MB, &tagged);
//! let scoped = Options { reading: Reading::Scoped, ..Options::default() };
//! assert!(compile("udp", &scoped)?.accepts(&frame));
//! assert!(!compile("udp", &Options::default())?.accepts(&frame)); // libpcap's reading
//! # Ok::<(), fyke::filter::Error>(())
//! ```

mod bytes;
mod fragments;
mod packet;

use crate::ast::{Node, Place, Primitive, PrimitiveKind};
use fyke_frame::walk::{self, Layers};
use fyke_frame::{Frame, OutOfBounds};

pub use fragments::{Fragments, Part};
use packet::Packet;

/// Evaluates a frame. A first fragment is remembered in `fragments`.
pub(crate) fn holds(
    root: &Node,
    frame: &Frame,
    fragments: &Fragments,
    netmask: Option<u32>,
    asked: &mut dyn FnMut(&Primitive, Result<bool, OutOfBounds>),
) -> Result<bool, OutOfBounds> {
    let layers = walk::walk(frame);
    fragments.observe_walked(frame, &layers);
    let nest = Nest { frame, layers: &layers, fragments, netmask };
    let innermost = layers.innermost().map_or(0, |layer| layer.level);
    root.judge(&mut |primitive| {
        let answer = match &primitive.kind {
            PrimitiveKind::Within(place, inner) => nest.within(*place, inner, innermost),
            kind => nest.packet(innermost).holds(kind),
        };
        asked(primitive, answer);
        answer
    })
}

/// A frame and its packets.
struct Nest<'n, 'a> {
    frame: &'n Frame<'a>,
    layers: &'n Layers<'a>,
    fragments: &'n Fragments,
    netmask: Option<u32>,
}

impl<'n, 'a> Nest<'n, 'a> {
    fn packet(&self, level: u8) -> Packet<'n, 'a> {
        Packet::new(self.frame, self.layers, level, self.fragments, self.netmask)
    }

    /// True if the packet at `place` satisfies all of `inner`; false if the frame has no such
    /// place.
    fn within(&self, place: Place, inner: &Node, innermost: u8) -> Result<bool, OutOfBounds> {
        let at = |level| {
            let packet = self.packet(level);
            inner.judge(&mut |primitive| packet.holds(&primitive.kind))
        };
        match place {
            Place::Level(level) if level > innermost => Ok(false),
            Place::Level(level) => at(level),
            Place::Any => Ok((0..=innermost).any(|level| at(level) == Ok(true))),
        }
    }
}
