//! A rule that is translated: what it asks of a packet, of its flow and of named buffers.
//!
//! Everything is resolved: variables have their values, modifiers belong to their contents, contents to their buffers.
//! The tests of one buffer are in order; they are split into segments that no position joins
//! ([`crate::verify`] explains why).

use crate::buffer::{APPLICATIONS, Application, Buffer};
use crate::endpoints::{Addresses, Ports};
use crate::pcre::Pattern;
use crate::transform::Transform;
use memchr::memmem::Finder;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

/// Language of a rule, where the same words mean different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Suricata.
    #[default]
    Suricata,
    /// Snort 2.
    Snort2,
    /// Snort 3.
    Snort3,
}

/// A translated rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Group of the identifier; 1 if none is given.
    pub gid: u32,
    /// Identifier.
    pub sid: u32,
    /// Revision.
    pub rev: u32,
    /// Message for people.
    pub message: String,
    /// Text of the class, empty if there is none.
    pub category: String,
    /// Priority, 1 the highest.
    pub priority: u8,
    /// Pairs of `metadata`.
    pub metadata: Vec<(String, String)>,
    /// The action that Suricata or Snort would take.
    pub action: Action,
    /// Header of the rule.
    pub header: HeaderTest,
    /// Part of a connection that the rule is about.
    pub flow: FlowTest,
    /// Tests of what the flow has carried.
    pub counts: Vec<FlowCount>,
    /// Tests of a packet's headers.
    pub packet: Vec<PacketTest>,
    /// Tests of buffers, in the order in which the buffers are named first.
    pub lists: Vec<List>,
    /// The bytes to which tests of the payload apply.
    pub scope: Scope,
    /// Names that must be set, or not, for the flow or the hosts.
    pub bits: Vec<BitTest>,
    /// Names that a match sets or unsets.
    pub marks: Vec<Mark>,
    /// Tests of numbers of the flow.
    pub numbers: Vec<NumberTest>,
    /// Changes of numbers of the flow by a match.
    pub sums: Vec<NumberChange>,
    /// A match gives no alert.
    pub silent: bool,
    /// Limit of the alerts.
    pub threshold: Option<Threshold>,
    /// Packets after an alert that are recorded.
    pub tag: Option<Tag>,
    /// Number of variables of the byte options.
    pub variables: usize,
    /// The language in which it is read.
    pub dialect: Dialect,
    /// The rule as it is written, in one line.
    pub text: Arc<str>,
}

impl Rule {
    /// True if another rule is the same, with the same variables: it judges as this one.
    pub fn is_same(&self, other: &Rule) -> bool {
        (self.gid, self.sid, self.dialect) == (other.gid, other.sid, other.dialect)
            && self.text == other.text
    }

    /// Frees room that was reserved for more tests.
    pub(crate) fn shrink(&mut self) {
        self.packet.shrink_to_fit();
        self.lists.shrink_to_fit();
        self.lists.iter_mut().for_each(|list| list.tests.shrink_to_fit());
        self.metadata.shrink_to_fit();
    }
}

/// Action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Alert.
    Alert,
    /// The packet is not judged by other rules.
    Pass,
    /// Alert; an inline engine would drop the packet.
    Drop,
    /// Alert; an inline engine would reject the connection.
    Reject,
}

/// Protocol of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Any packet of IP.
    Ip,
    /// IPv4 or IPv6 only.
    IpVersion(u8),
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP of either version.
    Icmp,
    /// ICMP of one version.
    IcmpVersion(u8),
    /// A flow of an application.
    Application(Application),
}

impl Protocol {
    /// True for ICMP.
    pub fn is_icmp(self) -> bool {
        matches!(self, Protocol::Icmp | Protocol::IcmpVersion(_))
    }

    /// True if a packet of this protocol may have the header of another one.
    pub fn may_have(self, header: Protocol) -> bool {
        match (self, header) {
            (Protocol::Ip | Protocol::IpVersion(_), _) | (_, Protocol::Ip) => true,
            (Protocol::Application(Application::Dns), Protocol::Udp)
            | (Protocol::Application(_), Protocol::Tcp) => true,
            (Protocol::Icmp, header) => header.is_icmp(),
            (own, Protocol::Icmp) => own.is_icmp(),
            (own, header) => own == header,
        }
    }
}

/// Header of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTest {
    /// Protocol.
    pub protocol: Protocol,
    /// Addresses of the left side.
    pub source: Addresses,
    /// Ports of the left side.
    pub source_ports: Ports,
    /// Addresses of the right side.
    pub destination: Addresses,
    /// Ports of the right side.
    pub destination_ports: Ports,
    /// The sides may be exchanged.
    pub both: bool,
}

impl HeaderTest {
    /// True if the ends fit.
    pub fn fits(&self, source: (IpAddr, u16), destination: (IpAddr, u16)) -> bool {
        let one = |left: (IpAddr, u16), right: (IpAddr, u16)| {
            self.source_ports.contains(left.1)
                && self.destination_ports.contains(right.1)
                && self.source.contains(left.0)
                && self.destination.contains(right.0)
        };
        one(source, destination) || (self.both && one(destination, source))
    }
}

/// Part of a connection that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowTest {
    /// Established, or not.
    pub established: Option<bool>,
    /// To the server, or to the client.
    pub to_server: Option<bool>,
    /// For each application, whether it must be that of the flow, or must not.
    pub applications: [Option<bool>; APPLICATIONS],
}

/// A test of what a flow has carried, the current packet included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowCount {
    /// The unit.
    pub unit: Unit,
    /// The directions.
    pub side: Side,
    /// The number.
    pub bound: Bound,
}

/// The unit of a [`FlowCount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes of packets.
    PacketBytes,
    /// Numbers of TCP from the SYN to the last byte.
    StreamBytes,
}

/// The directions of a [`FlowCount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Sent by the client.
    Client,
    /// Sent by the server.
    Server,
    /// Each of both.
    Both,
    /// One of both.
    Either,
}

/// The bytes to which tests of the payload apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// To the payload of a packet.
    pub packets: bool,
    /// To the bytes of a stream.
    pub streams: bool,
    /// To the payload of a segment that no stream takes.
    pub alone: bool,
}

/// A bound of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Smallest value.
    pub low: u64,
    /// Largest value.
    pub high: u64,
    /// Outside of them.
    pub negated: bool,
}

impl Bound {
    /// True if a value is within.
    pub fn contains(&self, value: u64) -> bool {
        (self.low..=self.high).contains(&value) != self.negated
    }
}

/// A test of the headers of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketTest {
    /// Length of the payload.
    PayloadLen(Bound),
    /// Flags of TCP: the value, the flags that are compared, and how.
    Flags {
        /// Flags.
        value: u8,
        /// Flags that count.
        mask: u8,
        /// The comparison.
        mode: FlagsMode,
    },
    /// Time to live, or hop limit.
    TimeToLive(Bound),
    /// Type of service, or traffic class.
    TypeOfService(Bound),
    /// Identification of IPv4.
    Identification(u16),
    /// Protocol of IP.
    IpProtocol(Bound),
    /// Source and destination are the same.
    SameAddress,
    /// Type of ICMP.
    IcmpType(Bound),
    /// Code of ICMP.
    IcmpCode(Bound),
    /// Identifier of an ICMP echo.
    IcmpId(u16),
    /// Number of an ICMP echo.
    IcmpSequence(u16),
    /// Sequence number of TCP.
    Sequence(u32),
    /// Acknowledged number of TCP.
    Acknowledged(u32),
    /// Window of TCP.
    Window(u16, bool),
    /// Flags of the fragment: reserved, do not fragment, more fragments.
    FragmentBits {
        /// Bits.
        value: u8,
        /// The comparison.
        mode: FlagsMode,
    },
    /// Offset of the fragment, in units of eight bytes.
    FragmentOffset(Bound),
    /// Option of IPv4; none for any.
    IpOption(Option<u8>),
    /// Largest segment that TCP's option announces.
    MaxSegment(Bound),
    /// MTU of ICMPv6's message about a packet that is too big.
    Mtu(Bound),
}

/// A comparison of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagsMode {
    /// Exactly these.
    Exactly,
    /// All of these, and others.
    All,
    /// At least one of these.
    Any,
    /// Not all of these.
    Not,
}

impl FlagsMode {
    /// True if `flags` compares with `value`.
    pub fn fits(self, flags: u8, value: u8) -> bool {
        match self {
            FlagsMode::Exactly => flags == value,
            FlagsMode::All => flags & value == value,
            FlagsMode::Any => flags & value != 0,
            FlagsMode::Not => flags & value != value,
        }
    }
}

/// The need of a message for a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presence {
    /// It must be there, and its tests must hold.
    #[default]
    Needed,
    /// It is absent, or its tests hold.
    Optional,
    /// It must be absent.
    Absent,
}

/// Tests of one buffer.
#[derive(Debug, Clone)]
pub struct List {
    /// The buffer.
    pub buffer: Buffer,
    /// The need for it in a message.
    pub presence: Presence,
    /// Changes that are made to its bytes first.
    pub transforms: Vec<Transform>,
    /// The tests, in order.
    pub tests: Vec<Test>,
}

/// A number, or a variable that an earlier option reads from the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(i64),
    /// The variable with this index.
    Variable(usize),
}

/// A test of bytes.
#[derive(Debug, Clone)]
pub enum Test {
    /// Certain bytes.
    Content(Arc<Content>),
    /// A regular expression.
    Pcre(Pcre),
    /// A number in the bytes, compared.
    ByteTest(ByteTest),
    /// A number in the bytes, by which the position moves.
    ByteJump(ByteJump),
    /// A number in the bytes, stored.
    ByteExtract(ByteExtract),
    /// A number in the bytes, computed with and stored.
    ByteMath(ByteMath),
    /// There are bytes at a place.
    IsDataAt {
        /// The place.
        at: Value,
        /// From the position, not from the beginning.
        relative: bool,
        /// There are none.
        negated: bool,
    },
    /// Length of the buffer.
    Len(Bound),
    /// The buffer is a number, the highest byte first.
    Number(Bound),
    /// Tests of the bytes that a part in base 64 encodes.
    Base64 {
        /// Most bytes that are decoded.
        bytes: Option<usize>,
        /// Offset of the part.
        offset: usize,
        /// From the position.
        relative: bool,
        /// The tests.
        tests: Vec<Test>,
    },
}

impl Test {
    /// True if the test begins at the position that the last test has left.
    pub fn is_relative(&self) -> bool {
        match self {
            Test::Content(one) => one.relative,
            Test::Pcre(one) => one.relative,
            Test::ByteTest(one) => one.read.relative,
            Test::ByteJump(one) => one.read.relative,
            Test::ByteExtract(one) => one.read.relative,
            Test::ByteMath(one) => one.read.relative,
            Test::IsDataAt { relative, .. } | Test::Base64 { relative, .. } => *relative,
            Test::Len(_) | Test::Number(_) => false,
        }
    }

    /// True if the test leaves a position of its own.
    pub fn moves(&self) -> bool {
        match self {
            Test::Content(one) => !one.negated,
            Test::Pcre(one) => !one.negated,
            Test::ByteJump(_) | Test::ByteExtract(_) | Test::ByteMath(_) => true,
            Test::ByteTest(_)
            | Test::IsDataAt { .. }
            | Test::Len(_)
            | Test::Number(_)
            | Test::Base64 { .. } => false,
        }
    }
}

/// Certain bytes at certain places.
#[derive(Debug, Clone)]
pub struct Content {
    /// The bytes; in lower case if case does not matter.
    pub bytes: Arc<[u8]>,
    /// Finds the bytes, if case matters.
    pub finder: Finder<'static>,
    /// Letters match in both cases.
    pub nocase: bool,
    /// The bytes must not be there.
    pub negated: bool,
    /// Places count from the position.
    pub relative: bool,
    /// First place: `offset` or `distance`.
    pub from: Value,
    /// Number of bytes from the first place in which the content lies: `depth` or `within`.
    pub len: Option<Value>,
    /// The content ends with the buffer.
    pub ends: bool,
    /// The content that the author would search for first.
    pub fast: bool,
}

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Pcre {
    /// The expression.
    pub pattern: Arc<Pattern>,
    /// It must not match.
    pub negated: bool,
    /// It applies to the bytes from the position on.
    pub relative: bool,
}

/// The form and the place of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Number of bytes.
    pub len: Value,
    /// Place of the first.
    pub offset: Value,
    /// From the position, not from the beginning.
    pub relative: bool,
    /// Least significant byte first.
    pub little: bool,
    /// Digits of this base, not a binary number.
    pub text: Option<u32>,
    /// Bits that count; the value is shifted down by the zeros below them.
    pub mask: Option<u32>,
}

/// `byte_test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteTest {
    /// The number.
    pub read: Read,
    /// The comparison.
    pub comparison: Comparison,
    /// It must not hold.
    pub negated: bool,
    /// The other side.
    pub value: Value,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=`
    Equal,
    /// `>=`
    AtLeast,
    /// `>`
    Greater,
    /// `&`: a common bit.
    And,
    /// `^`: a bit that differs.
    Xor,
}

/// `byte_jump`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteJump {
    /// The number.
    pub read: Read,
    /// Factor.
    pub multiplier: u32,
    /// Rounded up to four.
    pub align: bool,
    /// The place from which it jumps.
    pub from: JumpFrom,
    /// Added to the number.
    pub post_offset: Value,
}

/// The place from which a jump is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JumpFrom {
    /// After the number.
    Number,
    /// At the beginning.
    Beginning,
    /// At the end.
    End,
}

/// `byte_extract`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteExtract {
    /// The number.
    pub read: Read,
    /// Factor.
    pub multiplier: u32,
    /// Rounded up to a multiple of this.
    pub align: u32,
    /// The variable.
    pub variable: usize,
}

/// `byte_math`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteMath {
    /// The number.
    pub read: Read,
    /// The operation: `+`, `-`, `*`, `/`, `<` (left) or `>` (right).
    pub operator: u8,
    /// The other number.
    pub value: Value,
    /// The variable.
    pub variable: usize,
}

/// The owner of names that are tested and set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The flow.
    Flow,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The pair of addresses.
    Pair,
}

/// A test of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitTest {
    /// The owner of the names.
    pub owner: Owner,
    /// One of these.
    pub names: Vec<Arc<str>>,
    /// The name must be set; else it must not.
    pub set: bool,
}

/// A change of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The owner of the names.
    pub owner: Owner,
    /// The name.
    pub name: Arc<str>,
    /// The change.
    pub change: Change,
    /// Time for which it stays set, in nanoseconds.
    pub expires_ns: u64,
}

/// A change of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Set.
    Set,
    /// Unset.
    Unset,
    /// The other way round.
    Toggle,
}

/// A number that a rule has, or that the flow has by a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowNumber {
    /// The number.
    Given(u32),
    /// The name; 0 if the flow has none.
    Named(Arc<str>),
}

/// A test of a number of the flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberTest {
    /// Its name.
    pub name: Arc<str>,
    /// The test.
    pub test: NumberKind,
}

/// A kind of test of a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumberKind {
    /// The flow has it.
    IsSet,
    /// The flow does not have it.
    IsNotSet,
    /// It compares; a number that the flow does not have never does.
    Compares(Ordering, FlowNumber),
    /// It does not compare, but the flow has it.
    ComparesNot(Ordering, FlowNumber),
}

/// A change of a number of the flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberChange {
    /// Its name.
    pub name: Arc<str>,
    /// `=`, `+` or `-`.
    pub operator: u8,
    /// The other number.
    pub value: FlowNumber,
}

/// The key by which alerts are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Track {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// Both addresses.
    Both,
    /// The rule.
    Rule,
    /// The flow.
    Flow,
}

/// Limit of the alerts of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// The kind of limit.
    pub kind: ThresholdKind,
    /// The key by which they are counted.
    pub track: Track,
    /// The count.
    pub count: u32,
    /// The time, in nanoseconds.
    pub time_ns: u64,
    /// Matches with this port count once.
    pub unique: Option<UniquePort>,
}

/// Packets after an alert that are recorded, up to the first limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Those of the flow, or of the host that was the source or the destination.
    pub owner: Owner,
    /// Most packets.
    pub packets: u32,
    /// Most bytes.
    pub bytes: u64,
    /// The time, in nanoseconds.
    pub time_ns: u64,
}

/// The port of which different values are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniquePort {
    /// That of the sender.
    Source,
    /// That of the receiver.
    Destination,
}

/// A kind of limit of alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThresholdKind {
    /// The first `count` in the time.
    Limit,
    /// Every `count`-th in the time.
    Every,
    /// One in the time, after `count` matches.
    Both,
    /// All after `count` matches in the time.
    Detection,
}
