//! The predicate: a tree of and, or, not over typed primitives.
//!
//! Chains are flat: `a and b and c` is one [`Node::All`] of three. Since `and` and `or` have the
//! same precedence, a text that alternates between them makes a tree as deep as the text is long.
//! Nothing in this crate recurses over the tree; callers should check [`Node::depth`] before they
//! do.
//!
//! A [`PrimitiveKind`] is the meaning of a primitive; [`Primitive::condition`] is what libpcap
//! tests for it at that place of the text (after `vlan` and the like all offsets are shifted).
//! Cost: about 1 kB per `host`.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_filter as filter; }
//! use fyke::filter::{Node, Options, compile};
//!
//! let predicate = compile("tcp port 80 or not ip", &Options::default())?;
//! assert!(matches!(predicate.root(), Node::Any(parts) if parts.len() == 2));
//! let primitives: Vec<_> = predicate.root().primitives().map(ToString::to_string).collect();
//! assert_eq!(primitives, ["tcp port 80", "ip"]);
//! # Ok::<(), fyke::filter::Error>(())
//! ```

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
    /// The operand does not hold. (A load out of bounds inside still rejects the frame.)
    Not(Box<Node>),
    /// One primitive.
    Primitive(Primitive),
    /// Always or never: the empty text is `Const(true)`.
    Const(bool),
}

/// One primitive of the text, such as `tcp port 80`.
#[derive(Debug, Clone)]
pub struct Primitive {
    /// The meaning, with inherited qualifiers filled in.
    pub kind: PrimitiveKind,
    /// Its position in the text, in bytes.
    pub span: Range<usize>,
    /// Libpcap's tests at this place of the text: the tested bytes and their order. The scoped
    /// reading uses `kind` and leaves this at `Const(true)`.
    pub condition: Condition,
}

/// End of a packet that a primitive tests.
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

/// Protocol of the addresses that `host` and `net` test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4, ARP or RARP: the meaning of a dotted address without a qualifier.
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

/// Header that contains a protocol number.
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
    /// Supervisory, of any type for `None`.
    Supervisory(Option<u8>),
    /// Unnumbered, of any type for `None`.
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
#[non_exhaustive]
pub enum LogField {
    /// The interface's name.
    Interface,
    /// The rule set's name.
    Ruleset,
    /// The rule's number.
    Rule,
    /// The rule's number in a nested rule set.
    Subrule,
    /// Reason why the packet was logged.
    Reason,
    /// Action that was taken.
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

            /// The value with this word.
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
    /// Bytes after the IPv4 header in a first fragment, if its protocol is this.
    Transport(u8),
    /// Bytes after the fixed IPv6 header, if its next header is ICMPv6.
    Icmp6,
}

/// Operators of byte expressions, as in conditions on frames.
pub use fyke_frame::condition::Operator;

/// Packet of the nest that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// `layer N`: the packet with N packets around it; `outer` is 0.
    Level(u8),
    /// `any`: each of them; one match is enough.
    Any,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Level(0) => f.write_str("outer"),
            Place::Level(level) => write!(f, "layer {level}"),
            Place::Any => f.write_str("any"),
        }
    }
}

/// A byte expression: arithmetic on wrapping unsigned 32-bit values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arithmetic {
    /// A number.
    Number(u32),
    /// The frame's length on the wire.
    Length,
    /// Bytes of the frame, in network order.
    Load {
        /// The header from which the index counts.
        header: Header,
        /// The first byte.
        index: Box<Arithmetic>,
        /// The number of bytes.
        width: Width,
    },
    /// Two's complement.
    Negate(Box<Arithmetic>),
    /// Two operands.
    Binary(Operator, Box<Arithmetic>, Box<Arithmetic>),
}

impl Arithmetic {
    /// True if the expression reads bytes of a transport header, as in `tcp[13]`, which here means
    /// IPv4 only.
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

/// Meaning of a primitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrimitiveKind {
    /// An address.
    Host {
        /// The protocol of the address.
        family: AddressFamily,
        /// The end of the packet.
        side: Side,
        /// The address; its version fits the family.
        address: IpAddr,
    },
    /// An IPv4 network.
    Net {
        /// The protocol of the network; not [`AddressFamily::Ip6`].
        family: AddressFamily,
        /// The end of the packet.
        side: Side,
        /// The network; bits outside the mask are zero.
        network: Ipv4Addr,
        /// Significant bits; not all of them.
        mask: Ipv4Addr,
    },
    /// An IPv6 network.
    Net6 {
        /// The end of the packet.
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
        /// The end of the packet.
        side: Side,
        /// The port.
        port: u16,
    },
    /// A range of ports, both ends included.
    PortRange {
        /// The transport protocol; `None` = any of them.
        transport: Option<Transport>,
        /// The end of the packet.
        side: Side,
        /// The lowest port.
        low: u16,
        /// The highest port, at least `low`.
        high: u16,
    },
    /// A protocol by its number: `ip`, `tcp`, `ether proto 0x88cc`, `ip proto 47`.
    Protocol {
        /// The header that contains the number.
        carrier: Carrier,
        /// The number.
        number: u32,
    },
    /// A protocol anywhere in the chain of headers after IP: `protochain`.
    ProtocolChain {
        /// [`Carrier::Ip`], [`Carrier::Ip6`] or both.
        carrier: Carrier,
        /// The number.
        number: u32,
    },
    /// A DECnet address.
    DecnetHost {
        /// The end of the packet.
        side: Side,
        /// Area (six bits) and node (ten bits).
        address: u16,
    },
    /// A frame with an LLC header.
    Llc(LlcFrame),
    /// An Ethernet address.
    EtherHost {
        /// The end of the packet.
        side: Side,
        /// The address.
        address: [u8; 6],
    },
    /// An ARCnet address.
    ArcnetHost {
        /// The end of the packet.
        side: Side,
        /// The address.
        address: u8,
    },
    /// One of the addresses of an 802.11 header.
    WlanHost {
        /// The number or role of the address.
        which: WlanAddress,
        /// The address.
        address: [u8; 6],
    },
    /// Type or subtype of an 802.11 frame.
    WlanType {
        /// The bits, as in the frame's first byte.
        value: u8,
        /// The bits of the value that are compared.
        mask: u8,
    },
    /// `dir`: the two bits of an 802.11 frame that give its direction.
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
    /// A VLAN tag, of any identifier for `None`; shifts everything after it.
    Vlan(Option<u16>),
    /// An MPLS label, any for `None`; shifts everything after it.
    Mpls(Option<u32>),
    /// PPPoE discovery.
    PppoeDiscovery,
    /// A PPPoE session, any for `None`; shifts everything after it.
    PppoeSession(Option<u16>),
    /// A Geneve tunnel, of any network for `None`; shifts everything after it.
    Geneve(Option<u32>),
    /// A circuit or message of ATM, or a unit of signalling system 7; `lane` shifts everything after it.
    Signal(Signal),
    /// A field of ATM or signalling system 7.
    Field {
        /// The field.
        field: Field,
        /// The comparison; [`Comparison::NotEqual`] means equal, as in libpcap.
        comparison: Comparison,
        /// The number.
        value: u32,
    },
    /// A number in a packet-filter log.
    LogNumber {
        /// The field; not [`LogField::Interface`] or [`LogField::Ruleset`].
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
    /// The node, evaluated on another packet of the frame; only in the scoped reading. It contains
    /// no further `Within`.
    Within(Place, Arc<Node>),
}

/// Two primitives are equal when they mean the same, wherever they are in the text.
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

    /// The whole tree as one condition; `None` when it is nested too deeply.
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

    /// Evaluates a frame left to right and stops as soon as the result is known; a load out of
    /// bounds ends the evaluation. Slow and simple.
    ///
    /// # Errors
    /// [`OutOfBounds`] when a load lay outside the captured bytes: the whole filter rejects the frame.
    pub fn holds(&self, frame: &Frame) -> Result<bool, OutOfBounds> {
        self.judge(&mut |primitive| primitive.condition.holds(frame))
    }

    /// Evaluates left to right and stops as soon as the result is known, with `leaf` for the
    /// primitives; the first error ends the evaluation.
    pub(crate) fn judge<E>(
        &self,
        leaf: &mut impl FnMut(&Primitive) -> Result<bool, E>,
    ) -> Result<bool, E> {
        // The nodes that are not finished, each with the index of its next operand.
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

/// Nodes are equal when their meaning is equal; positions in the text are ignored.
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

/// Deep trees are dropped level by level, without recursion.
impl Drop for Node {
    fn drop(&mut self) {
        let mut rest = Vec::new();
        take_operands(self, &mut rest);
        while let Some(mut node) = rest.pop() {
            take_operands(&mut node, &mut rest);
        }
    }
}

/// Moves out those operands of a node that have operands themselves.
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

/// Prints the canonical text: the tree itself could take a page per primitive.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({self})")
    }
}
