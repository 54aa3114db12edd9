//! The predicate: a tree of and, or, not over typed primitives.
//!
//! Chains are flat: `a and b and c` is one [`Node::All`] of three. Since `and` and `or` have the same precedence, a
//! text that alternates between them makes a tree as deep as it is long; nothing in this crate recurses over it, and
//! nobody else should without looking at [`Node::depth`].
//!
//! A [`PrimitiveKind`] says what was meant, [`Primitive::condition`] what libpcap makes of it at that place of the
//! text (after `vlan` and the like all offsets are shifted). Cost: about 1 kB per `host`.

use fyke_frame::condition::Width;
use fyke_frame::{Condition, Frame, OutOfBounds};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

/// A node of the predicate.
pub enum Node {
    /// All hold; evaluated left to right up to the first that does not.
    All(Vec<Node>),
    /// At least one holds; evaluated left to right up to the first that does.
    Any(Vec<Node>),
    /// Does not hold. (A load out of bounds inside still rejects the frame.)
    Not(Box<Node>),
    /// One primitive.
    Primitive(Primitive),
    /// Always or never: the empty text is `Const(true)`.
    Const(bool),
}

/// One primitive of the text, such as `tcp port 80`.
#[derive(Debug, Clone)]
pub struct Primitive {
    /// What was meant, with inherited qualifiers filled in.
    pub kind: PrimitiveKind,
    /// Its place in the text, in bytes.
    pub span: Range<usize>,
    /// Its meaning to libpcap at this place: which bytes are tested, in which order. The scoped reading goes by `kind`
    /// and leaves this at `Const(true)`.
    pub condition: Condition,
}

/// Which end of a packet is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Side {
    /// Source or destination.
    #[default]
    Either,
    /// Source.
    Source,
    /// Destination.
    Destination,
    /// Source and destination.
    Both,
}

/// The protocol whose addresses `host` and `net` look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4, ARP or RARP: what a dotted address means without a qualifier.
    Any,
    /// IPv4.
    Ip,
    /// Sender and target protocol address of ARP.
    Arp,
    /// Sender and target protocol address of RARP.
    Rarp,
    /// IPv6.
    Ip6,
}

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Where a protocol number is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The link header: an EtherType above 1,500, an LLC service access point up to there.
    Link,
    /// The IPv4 header.
    Ip,
    /// The IPv6 header, or a fragment header right after it.
    Ip6,
    /// The IPv4 or the IPv6 header.
    IpOrIp6,
    /// The first byte of an OSI network header.
    Osi,
    /// The type of an IS-IS packet.
    Isis,
}

/// Kinds of LLC frames, by their control field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LlcFrame {
    /// Any.
    Any,
    /// Information.
    Information,
    /// Supervisory, of any type when there is `None`.
    Supervisory(Option<u8>),
    /// Unnumbered, of any type when there is `None`.
    Unnumbered(Option<u8>),
}

/// An address of an 802.11 header, by its number or its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WlanAddress {
    /// `addr1`
    First,
    /// `addr2`
    Second,
    /// `addr3`
    Third,
    /// `addr4`
    Fourth,
    /// `ra`: the first, of data frames.
    Receiver,
    /// `ta`: the second, of data frames.
    Transmitter,
}

/// A field of packet-filter logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogField {
    /// The interface's name.
    Interface,
    /// The rule set's name.
    Ruleset,
    /// The rule's number.
    Rule,
    /// The rule's number in a nested rule set.
    Subrule,
    /// Why it was logged.
    Reason,
    /// What was done.
    Action,
}

/// Declares an enumeration with the words of the language.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $(#[doc = concat!("`", $text, "`")] $variant,)+ }

        impl $name {
            /// The word.
            pub fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// The one with this word.
            pub(crate) fn from_text(text: &str) -> Option<$name> {
                match text { $($text => Some($name::$variant),)+ _ => None }
            }
        }
    };
}

words! {
    /// Circuits and messages of ATM, units of signalling system 7. `Oam…` are maintenance cells; `High…` are those of
    /// high-speed links.
    Signal {
        Lane = "lane", Metac = "metac", Bcc = "bcc", Oamf4ec = "oamf4ec", Oamf4sc = "oamf4sc",
        Sc = "sc", Ilmic = "ilmic", Oam = "oam", Oamf4 = "oamf4", Connectmsg = "connectmsg",
        Metaconnect = "metaconnect", Fisu = "fisu", Lssu = "lssu", Msu = "msu",
        HighFisu = "hfisu", HighLssu = "hlssu", HighMsu = "hmsu",
    }
}

words! {
    /// Fields of ATM and of signalling system 7. `High…` are those of high-speed links.
    Field {
        Vpi = "vpi", Vci = "vci", Sio = "sio", Opc = "opc", Dpc = "dpc", Sls = "sls",
        HighSio = "hsio", HighOpc = "hopc", HighDpc = "hdpc", HighSls = "hsls",
    }
}

impl LogField {
    /// The word.
    pub fn text(self) -> &'static str {
        match self {
            LogField::Interface => "on",
            LogField::Ruleset => "ruleset",
            LogField::Rule => "rulenum",
            LogField::Subrule => "subrulenum",
            LogField::Reason => "reason",
            LogField::Action => "action",
        }
    }
}

/// The header that a byte expression counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Header {
    /// The link header.
    Link,
    /// The radio header before an 802.11 header.
    Radio,
    /// The network header, when its protocol is this EtherType.
    Network(u16),
    /// What follows the IPv4 header in a first fragment, when it is this protocol.
    Transport(u8),
    /// What follows the fixed IPv6 header, when it is ICMPv6.
    Icmp6,
}

pub use crate::scoped::Place;
/// Operators of byte expressions, as in [`fyke_frame::condition::Operator`].
pub use fyke_frame::condition::Operator;

/// A byte expression: arithmetic on wrapping unsigned 32-bit values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arithmetic {
    /// A number.
    Number(u32),
    /// The frame's length on the wire.
    Length,
    /// Bytes of the frame, in network order.
    Load {
        /// What the index counts from.
        header: Header,
        /// The first byte.
        index: Box<Arithmetic>,
        /// How many bytes.
        width: Width,
    },
    /// Two's complement.
    Negate(Box<Arithmetic>),
    /// Two operands.
    Binary(Operator, Box<Arithmetic>, Box<Arithmetic>),
}

impl Arithmetic {
    /// Whether bytes of a transport header are read, as in `tcp[13]`, which IPv4 alone has here.
    pub fn reads_transport(&self) -> bool {
        match self {
            Arithmetic::Number(_) | Arithmetic::Length => false,
            Arithmetic::Load { header: Header::Transport(_), .. } => true,
            Arithmetic::Load { index: inner, .. } | Arithmetic::Negate(inner) => {
                inner.reads_transport()
            }
            Arithmetic::Binary(_, left, right) => left.reads_transport() || right.reads_transport(),
        }
    }
}

/// Comparison of two byte expressions, without sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What a primitive means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrimitiveKind {
    /// An address.
    Host {
        /// Whose address.
        family: AddressFamily,
        /// Which end.
        side: Side,
        /// The address; its version fits the family.
        address: IpAddr,
    },
    /// An IPv4 network.
    Net {
        /// Whose address; not [`AddressFamily::Ip6`].
        family: AddressFamily,
        /// Which end.
        side: Side,
        /// The network; bits outside the mask are zero.
        network: Ipv4Addr,
        /// Bits that count; not all of them.
        mask: Ipv4Addr,
    },
    /// An IPv6 network.
    Net6 {
        /// Which end.
        side: Side,
        /// The network; bits after the prefix are zero.
        network: std::net::Ipv6Addr,
        /// Length of the prefix in bits, 0–127.
        prefix_len: u8,
    },
    /// A port of IPv4 (first fragment) or IPv6 (no extension headers).
    Port {
        /// The transport protocol; `None` = any of them.
        transport: Option<Transport>,
        /// Which end.
        side: Side,
        /// The port.
        port: u16,
    },
    /// A range of ports, both ends included.
    PortRange {
        /// The transport protocol; `None` = any of them.
        transport: Option<Transport>,
        /// Which end.
        side: Side,
        /// The lowest port.
        low: u16,
        /// The highest port, at least `low`.
        high: u16,
    },
    /// A protocol by its number: `ip`, `tcp`, `ether proto 0x88cc`, `ip proto 47`.
    Protocol {
        /// Which header has the number.
        carrier: Carrier,
        /// The number.
        number: u32,
    },
    /// A protocol somewhere in the chain of headers behind IP: `protochain`.
    ProtocolChain {
        /// [`Carrier::Ip`], [`Carrier::Ip6`] or both.
        carrier: Carrier,
        /// The number.
        number: u32,
    },
    /// A DECnet address.
    DecnetHost {
        /// Which end.
        side: Side,
        /// Area (six bits) and node (ten bits).
        address: u16,
    },
    /// A frame with an LLC header.
    Llc(LlcFrame),
    /// An Ethernet address.
    EtherHost {
        /// Which end.
        side: Side,
        /// The address.
        address: [u8; 6],
    },
    /// An ARCnet address.
    ArcnetHost {
        /// Which end.
        side: Side,
        /// The address.
        address: u8,
    },
    /// One of the addresses of an 802.11 header.
    WlanHost {
        /// Which one.
        which: WlanAddress,
        /// The address.
        address: [u8; 6],
    },
    /// Type or subtype of an 802.11 frame.
    WlanType {
        /// The bits, as in the frame's first byte.
        value: u8,
        /// Those of them that count.
        mask: u8,
    },
    /// `dir`: the two bits of an 802.11 frame that say from where to where it goes.
    WlanDirection(u32),
    /// The link-layer broadcast address as destination.
    EtherBroadcast,
    /// A link-layer multicast (or broadcast) address as destination.
    EtherMulticast,
    /// All host bits of the IPv4 destination are zero or one.
    IpBroadcast,
    /// An IPv4 destination of 224.0.0.0 or above.
    IpMulticast,
    /// An IPv6 destination in ff00::/8.
    Ip6Multicast,
    /// A VLAN tag, of any identifier when there is `None`; shifts everything after it.
    Vlan(Option<u16>),
    /// An MPLS label, any when there is `None`; shifts everything after it.
    Mpls(Option<u32>),
    /// PPPoE discovery.
    PppoeDiscovery,
    /// A PPPoE session, any when there is `None`; shifts everything after it.
    PppoeSession(Option<u16>),
    /// A Geneve tunnel, of any network when there is `None`; shifts everything after it.
    Geneve(Option<u32>),
    /// A circuit or message of ATM, or a unit of signalling system 7; `lane` shifts everything after it.
    Signal(Signal),
    /// A field of ATM or signalling system 7.
    Field {
        /// Which.
        field: Field,
        /// The comparison; [`Comparison::NotEqual`] means equal, as with libpcap.
        comparison: Comparison,
        /// The number.
        value: u32,
    },
    /// A number in a packet-filter log.
    LogNumber {
        /// Which; not [`LogField::Interface`] or [`LogField::Ruleset`].
        field: LogField,
        /// The number.
        value: u32,
    },
    /// The beginning of a name in a packet-filter log.
    LogName {
        /// [`LogField::Interface`] or [`LogField::Ruleset`].
        field: LogField,
        /// The name.
        name: Arc<str>,
    },
    /// `less N`: a length on the wire of at most N.
    LengthAtMost(u32),
    /// `greater N`: a length on the wire of at least N.
    LengthAtLeast(u32),
    /// `byte OFFSET = VALUE` and its kin, counted from the link header; only `=`, `<` and `>`.
    Byte {
        /// Offset from the link header.
        offset: u32,
        /// [`Comparison::Equal`], [`Comparison::Less`] or [`Comparison::Greater`].
        comparison: Comparison,
        /// The value.
        value: u32,
    },
    /// Two byte expressions compared.
    Relation {
        /// Left side.
        left: Arithmetic,
        /// The comparison.
        comparison: Comparison,
        /// Right side.
        right: Arithmetic,
    },
    /// Not sent by the capturing machine.
    Inbound,
    /// Sent by the capturing machine.
    Outbound,
    /// Captured on the interface with this index.
    IfIndex(u32),
    /// Only in the scoped reading: all of it, asked about another packet of the frame. No such place inside it.
    Within(Place, Arc<Node>),
}

/// Two primitives are equal when they mean the same, wherever they stand.
impl PartialEq for Primitive {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.condition == other.condition
    }
}

impl Eq for Primitive {}

impl Node {
    /// The levels of the tree, 1 for a single primitive. Costs a visit of every node.
    pub fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut rest = vec![(self, 1)];
        while let Some((node, depth)) = rest.pop() {
            deepest = deepest.max(depth);
            rest.extend(node.children().iter().map(|child| (child, depth + 1)));
        }
        deepest
    }

    /// The primitives, in the order of the text.
    pub fn primitives(&self) -> impl Iterator<Item = &Primitive> {
        let mut rest = vec![self];
        std::iter::from_fn(move || {
            loop {
                let node = rest.pop()?;
                if let Node::Primitive(primitive) = node {
                    return Some(primitive);
                }
                rest.extend(node.children().iter().rev());
            }
        })
    }

    /// The operands of this node.
    pub fn children(&self) -> &[Node] {
        match self {
            Node::All(operands) | Node::Any(operands) => operands,
            Node::Not(inner) => std::slice::from_ref(inner),
            Node::Primitive(_) | Node::Const(_) => &[],
        }
    }

    /// The whole as one condition; `None` when it is nested too deeply for that.
    pub fn condition(&self) -> Option<Condition> {
        const MAX_DEPTH: usize = 200;
        fn convert(node: &Node, depth: usize) -> Option<Condition> {
            let depth = depth.checked_sub(1)?;
            let all = |nodes: &[Node]| -> Option<Vec<Condition>> {
                nodes.iter().map(|node| convert(node, depth)).collect()
            };
            Some(match node {
                Node::All(operands) => Condition::All(all(operands)?),
                Node::Any(operands) => Condition::Any(all(operands)?),
                Node::Not(inner) => Condition::Not(Box::new(convert(inner, depth)?)),
                Node::Primitive(primitive) => primitive.condition.clone(),
                Node::Const(value) => Condition::Const(*value),
            })
        }
        convert(self, MAX_DEPTH)
    }

    /// Judges a frame: left to right, no further than needed; a load out of bounds ends it. Slow and obvious.
    ///
    /// # Errors
    /// [`OutOfBounds`] when a load lay outside the captured bytes: the whole filter rejects the frame.
    pub fn holds(&self, frame: &Frame) -> Result<bool, OutOfBounds> {
        self.judge(&mut |primitive| primitive.condition.holds(frame))
    }

    /// Left to right, no further than needed, with `leaf` for the primitives; the first error ends it.
    pub(crate) fn judge<E>(
        &self,
        leaf: &mut impl FnMut(&Primitive) -> Result<bool, E>,
    ) -> Result<bool, E> {
        // The nodes that were begun and not finished, each with its operand that comes next.
        let mut begun: Vec<(&Node, usize)> = Vec::new();
        let mut node = self;
        loop {
            let mut value = match node {
                Node::Primitive(primitive) => leaf(primitive)?,
                Node::Const(value) => *value,
                Node::All(operands) if operands.is_empty() => true,
                Node::Any(operands) if operands.is_empty() => false,
                Node::All(_) | Node::Any(_) | Node::Not(_) => {
                    begun.push((node, 1));
                    node = &node.children()[0];
                    continue;
                }
            };
            node = loop {
                let Some((parent, next)) = begun.last_mut() else { return Ok(value) };
                let more = match parent {
                    Node::All(_) => value,
                    Node::Any(_) => !value,
                    _ => {
                        value = !value;
                        false
                    }
                };
                let operand = parent.children().get(*next).filter(|_| more);
                *next += 1;
                match operand {
                    Some(operand) => break operand,
                    None => begun.pop(),
                };
            };
        }
    }
}

/// Equal meaning: the places in the text do not count.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        let mut rest = vec![(self, other)];
        while let Some((left, right)) = rest.pop() {
            let same = match (left, right) {
                (Node::All(_), Node::All(_)) | (Node::Any(_), Node::Any(_)) => true,
                (Node::Not(_), Node::Not(_)) => true,
                (Node::Primitive(left), Node::Primitive(right)) => left == right,
                (Node::Const(left), Node::Const(right)) => left == right,
                _ => false,
            };
            if !same || left.children().len() != right.children().len() {
                return false;
            }
            rest.extend(left.children().iter().zip(right.children()));
        }
        true
    }
}

impl Eq for Node {}

/// Deep trees are taken apart level by level.
impl Drop for Node {
    fn drop(&mut self) {
        let mut rest = Vec::new();
        take_operands(self, &mut rest);
        while let Some(mut node) = rest.pop() {
            take_operands(&mut node, &mut rest);
        }
    }
}

/// Moves those operands of a node out that have operands themselves.
fn take_operands(node: &mut Node, into: &mut Vec<Node>) {
    match node {
        Node::All(operands) | Node::Any(operands) => {
            into.extend(operands.extract_if(.., |operand| !operand.children().is_empty()));
        }
        Node::Not(inner) if !inner.children().is_empty() => {
            into.push(std::mem::replace(inner, Node::Const(false)));
        }
        _ => {}
    }
}

/// The canonical text: printing the tree itself could take a page per primitive.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({self})")
    }
}
