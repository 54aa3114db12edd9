//! A pre-filter: an expression of the pcap language that is never weaker than the rules of a text.
//!
//! It accepts every frame that a rule may need, so an engine after it gives the alerts that it gives without it. It is
//! computed from the headers of all rules, those that are not judged here included, because another engine may
//! judge them. Rules with `pass` only take alerts away and are left out, unless they set names for hosts.
//!
//! - Both directions of a header are accepted: an engine needs the handshake and the answers of a connection.
//! - A protocol of an application is represented by its transport: an application is found by content, not by port.
//! - Only plain packets are tested: TCP, UDP and ICMP directly over IP, in one piece. Fragments, extension headers,
//!   tags and tunnels are accepted, for their inner packets are not seen by such an expression.
//! - In an expression, a load after the end of the frame rejects the frame. Tests of ports come last, so a cut frame
//!   passes by a rule for all ports.
//!
//! Cost: one part of the expression for each different header, after headers that differ in one side are joined.

use crate::endpoints::{Addresses, Ports, Variables};
use crate::error::Refused;
use crate::read::{RawRule, Rules};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most different headers that are compared with each other.
const MAX_COMPARED: usize = 4096;
/// Ports of tunnels in UDP: VXLAN (three), Geneve, GTP-U, Teredo.
const TUNNELS: [u16; 6] = [4789, 4790, 8472, 6081, 2152, 3544];
/// Packets that the parts of the rules do not test.
const NOT_PLAIN: &str = "not (ip or ip6 or arp or rarp) \
     or (ip and (ip[6:2] & 0x3fff != 0 or not (ip[9] = 6 or ip[9] = 17 or ip[9] = 1))) \
     or (ip6 and not (ip6[6] = 6 or ip6[6] = 17 or ip6[6] = 58))";
/// Accepts every frame.
const ALL: &str = "len >= 0";

/// The pre-filter of a text of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefilter {
    /// The expression.
    pub expression: String,
    /// Rules that it is made for.
    pub rules: usize,
    /// Different headers, after joining.
    pub headers: usize,
}

/// A condition on a frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// Holds always.
    All,
    /// Holds never.
    Nothing,
    /// An expression without `or` and `and` outside parentheses.
    Text(String),
}

impl Condition {
    /// Holds if one of some conditions does.
    pub(crate) fn any(parts: impl IntoIterator<Item = Condition>) -> Condition {
        Condition::join(parts, " or ", &Condition::All, Condition::Nothing)
    }

    /// Holds if all of some conditions do.
    pub(crate) fn every(parts: impl IntoIterator<Item = Condition>) -> Condition {
        Condition::join(parts, " and ", &Condition::Nothing, Condition::All)
    }

    /// Holds if this one does not.
    pub(crate) fn negated(self) -> Condition {
        match self {
            Condition::All => Condition::Nothing,
            Condition::Nothing => Condition::All,
            Condition::Text(text) => Condition::Text(format!("not {text}")),
        }
    }

    /// Joins conditions; `decided` alone decides the result, and `neutral` is the result of none.
    fn join(
        parts: impl IntoIterator<Item = Condition>,
        word: &str,
        decided: &Condition,
        neutral: Condition,
    ) -> Condition {
        let mut texts = Vec::new();
        for part in parts {
            match part {
                part if part == *decided => return part,
                Condition::Text(text) if !texts.contains(&text) => texts.push(text),
                _ => {}
            }
        }
        match texts.len() {
            0 => neutral,
            1 => Condition::Text(texts.remove(0)),
            _ => Condition::Text(format!("({})", texts.join(word))),
        }
    }
}

/// Transport of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Transport {
    Ip,
    Tcp,
    Udp,
    Icmp,
}

impl Transport {
    /// The transport of a protocol in a header; none if the rule is about all frames.
    fn of(protocol: &str) -> Option<Transport> {
        Some(match protocol {
            "tcp" | "tcp-pkt" | "tcp-stream" | "http" | "http1" | "http2" | "tls" | "ssl"
            | "smb" | "ssh" | "smtp" | "ftp" | "imap" | "pop3" | "modbus" | "mqtt" | "pgsql"
            | "rdp" | "rfb" | "telnet" | "websocket" => Transport::Tcp,
            "udp" | "dhcp" | "ike" | "ntp" | "quic" | "snmp" | "tftp" => Transport::Udp,
            "icmp" | "icmpv4" | "icmpv6" => Transport::Icmp,
            "pkthdr" | "arp" | "ether" => return None,
            // What may be over either, and what is not known.
            _ => Transport::Ip,
        })
    }

    fn text(self) -> Condition {
        match self {
            Transport::Ip => Condition::All,
            Transport::Tcp => Condition::Text("tcp".to_owned()),
            Transport::Udp => Condition::Text("udp".to_owned()),
            Transport::Icmp => Condition::Text("(icmp or icmp6)".to_owned()),
        }
    }
}

/// Ranges of ports in order, none touching the next; all ports are one range.
type Ranges = Vec<(u16, u16)>;

/// One side of a header: addresses as sender and as receiver, and ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Side {
    addresses: [Condition; 2],
    ports: Ranges,
}

const ANY_PORT: (u16, u16) = (0, u16::MAX);

impl Side {
    fn new(addresses: &Addresses, ports: &Ports) -> Side {
        let addresses = ["src", "dst"].map(|end| addresses.condition(end));
        Side { addresses, ports: ports.ranges() }
    }

    fn any_address(&mut self) {
        self.addresses = [Condition::All, Condition::All];
    }

    fn has_any_port(&self) -> bool {
        self.ports == [ANY_PORT]
    }

    fn covers(&self, other: &Side) -> bool {
        (self.addresses[0] == Condition::All || self.addresses == other.addresses)
            && (self.has_any_port() || self.ports == other.ports)
    }

    /// The side as sender (0) or as receiver (1).
    fn condition(&self, end: usize) -> Condition {
        Condition::every([self.addresses[end].clone(), ports(&self.ports, ["src", "dst"][end])])
    }
}

/// A test of ports; ranges that are left out are named if they are fewer.
fn ports(ranges: &[(u16, u16)], end: &str) -> Condition {
    let texts = |ranges: &[(u16, u16)]| {
        Condition::any(ranges.iter().map(|(first, last)| {
            Condition::Text(match first == last {
                true => format!("{end} port {first}"),
                false => format!("{end} portrange {first}-{last}"),
            })
        }))
    };
    let others = complement(ranges);
    match others.len() {
        0 => Condition::All,
        count if count < ranges.len() => texts(&others).negated(),
        _ => texts(ranges),
    }
}

fn complement(ranges: &[(u16, u16)]) -> Ranges {
    let mut found = Vec::new();
    let mut next = Some(0u16);
    for (first, last) in ranges {
        if let Some(start) = next.filter(|start| start < first) {
            found.push((start, first - 1));
        }
        next = last.checked_add(1);
    }
    found.extend(next.map(|start| (start, u16::MAX)));
    found
}

/// The ports of both.
fn union(one: &[(u16, u16)], other: &[(u16, u16)]) -> Ranges {
    let mut all = [one, other].concat();
    all.sort_unstable();
    let mut found: Ranges = Vec::new();
    for (first, last) in all {
        match found.last_mut() {
            Some(before) if u32::from(first) <= u32::from(before.1) + 1 => {
                before.1 = before.1.max(last)
            }
            _ => found.push((first, last)),
        }
    }
    found
}

/// A header without direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    transport: Transport,
    sides: [Side; 2],
}

impl Entry {
    fn covers(&self, other: &Entry) -> bool {
        let [left, right] = &self.sides;
        (self.transport == other.transport || self.transport == Transport::Ip)
            && ((left.covers(&other.sides[0]) && right.covers(&other.sides[1]))
                || (left.covers(&other.sides[1]) && right.covers(&other.sides[0])))
    }

    /// The sides in both directions.
    fn ends(&self) -> Condition {
        let [left, right] = &self.sides;
        Condition::any([
            Condition::every([left.condition(0), right.condition(1)]),
            Condition::every([left.condition(1), right.condition(0)]),
        ])
    }

    /// The parts that test no ports, and those that do.
    fn conditions(&self) -> [Condition; 2] {
        if self.sides.iter().all(Side::has_any_port) {
            return [Condition::every([self.transport.text(), self.ends()]), Condition::Nothing];
        }
        match self.transport {
            Transport::Tcp | Transport::Udp => {
                [Condition::Nothing, Condition::every([self.transport.text(), self.ends()])]
            }
            Transport::Ip | Transport::Icmp => {
                // A packet without ports has the port 0.
                let has_zero =
                    |side: &Side| side.ports.first().is_some_and(|(first, _)| *first == 0);
                let mut plain = Condition::Nothing;
                if self.sides.iter().all(has_zero) {
                    let mut without = self.clone();
                    without.transport = Transport::Icmp;
                    without.sides.iter_mut().for_each(|side| side.ports = vec![ANY_PORT]);
                    plain = without.conditions()[0].clone();
                }
                let with = Condition::Text("(tcp or udp)".to_owned());
                let with = Condition::every([with, self.ends()]);
                [plain, if self.transport == Transport::Ip { with } else { Condition::Nothing }]
            }
        }
    }
}

/// Computes the pre-filter of a text of rules.
///
/// # Errors
/// The first rule with a header that cannot be read: no filter is known that is not weaker than it.
pub fn prefilter(text: &[u8], variables: &Variables) -> Result<Prefilter, Refused> {
    let mut entries = BTreeSet::new();
    // Most sides are those of other rules, too.
    let mut known: HashMap<(String, String), Side> = HashMap::new();
    let (mut count, mut all) = (0, false);
    // A text in memory has no errors.
    for (line, text) in Rules::new(text).map_while(Result::ok) {
        let rule = RawRule::parse(&text, line)?;
        // A rule that lets pass may alert, or set names for others.
        let counts = |name: &str| matches!(name, "alert" | "xbits" | "hostbits");
        let header = &rule.header;
        if header.action == "pass" && !rule.options.iter().any(|option| counts(&option.name)) {
            continue;
        }
        count += 1;
        let refuse = |reason| Refused { line, sid: rule.sid(), reason };
        let Some(transport) = Transport::of(&header.protocol) else {
            all = true;
            continue;
        };
        let mut side = |addresses: &String, ports: &String| {
            let key = (addresses.clone(), ports.clone());
            if let Some(side) = known.get(&key) {
                return Ok(side.clone());
            }
            let side = Side::new(
                &Addresses::parse(addresses, variables).map_err(refuse)?,
                &Ports::parse(ports, variables).map_err(refuse)?,
            );
            known.insert(key, side.clone());
            Ok(side)
        };
        let mut sides = [
            side(&header.source, &header.source_port)?,
            side(&header.destination, &header.destination_port)?,
        ];
        // A rule about the data of FTP needs the connection that announces them, on other ports.
        if header.protocol == "ftp-data" || header.protocol == "file" {
            sides.iter_mut().for_each(|side| side.ports = vec![ANY_PORT]);
        }
        sides.sort();
        entries.insert(Entry { transport, sides });
    }
    if count == 0 {
        let reason = "the text has no rule that gives alerts".to_owned();
        return Err(Refused { line: 1, sid: None, reason });
    }
    let entries = joined(entries.into_iter().collect());
    let headers = entries.len();
    let expression = if all { ALL.to_owned() } else { expression(&entries) };
    Ok(Prefilter { expression, rules: count, headers })
}

/// Joins entries that differ in the ports or the addresses of one side only, and drops those that others cover.
fn joined(mut entries: Vec<Entry>) -> Vec<Entry> {
    for (side, addresses) in [(1, false), (0, false), (1, true), (0, true)] {
        let mut groups: BTreeMap<Entry, Vec<Side>> = BTreeMap::new();
        for entry in entries {
            let mut key = entry.clone();
            match addresses {
                true => key.sides[side].any_address(),
                false => key.sides[side].ports.clear(),
            }
            let [left, right] = entry.sides;
            groups.entry(key).or_default().push(if side == 0 { left } else { right });
        }
        entries = groups
            .into_iter()
            .map(|(mut key, mut members)| {
                members.sort();
                members.dedup();
                key.sides[side] = match addresses {
                    true => Side {
                        addresses: [0, 1].map(|end| {
                            Condition::any(members.iter().map(|one| one.addresses[end].clone()))
                        }),
                        ports: members[0].ports.clone(),
                    },
                    false => Side {
                        addresses: members[0].addresses.clone(),
                        ports: members
                            .iter()
                            .fold(Vec::new(), |ports, one| union(&ports, &one.ports)),
                    },
                };
                key
            })
            .collect();
    }
    if entries.len() > MAX_COMPARED {
        return entries;
    }
    let mut kept: Vec<Entry> = Vec::new();
    for entry in entries {
        if !kept.iter().any(|other| other.covers(&entry)) {
            kept.retain(|other| !entry.covers(other));
            kept.push(entry);
        }
    }
    kept
}

fn expression(entries: &[Entry]) -> String {
    let parts: Vec<[Condition; 2]> = entries.iter().map(Entry::conditions).collect();
    let of = |at: usize| Condition::any(parts.iter().map(|part| part[at].clone()));
    let tunnels = TUNNELS.map(|port| Condition::Text(format!("udp port {port}")));
    let not_plain = Condition::Text(format!("({NOT_PLAIN})"));
    match Condition::any([not_plain, of(0), Condition::any(tunnels), of(1)]) {
        Condition::Text(text) => text,
        Condition::All | Condition::Nothing => ALL.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Prefilter {
        prefilter(text.as_bytes(), &Variables::default()).unwrap()
    }

    #[test]
    fn headers_are_joined_and_apply_in_both_directions() {
        let found = of("alert tcp any any -> 10.1.2.3/8 80 (sid:1;)\n\
             drop tcp any any -> 10.0.0.0/8 [81,8000:] (smb.share; sid:2;)\n\
             alert tls [1.2.3.4,!10.0.0.0/8] any -> any !443 (sid:3;)\n\
             pass ip any any -> any any (sid:4;)\n");
        assert_eq!((found.rules, found.headers), (3, 2));
        for part in [
            "(src net 10.0.0.0/8 and (src portrange 80-81 or src portrange 8000-65535))",
            "(dst net 10.0.0.0/8 and (dst portrange 80-81 or dst portrange 8000-65535))",
            "(not dst port 443 and (src host 1.2.3.4 and not src net 10.0.0.0/8))",
            "ip[6:2] & 0x3fff != 0",
            "udp port 4789",
        ] {
            assert!(found.expression.contains(part), "{part} in {}", found.expression);
        }
    }

    #[test]
    fn a_rule_that_covers_others_is_the_only_part() {
        let found =
            of("alert tcp any any -> any 80 (sid:1;)\nalert http any any -> any any (sid:2;)\n\
             alert tcp 1.2.3.4-1.2.3.6 any <> any 9 (sid:3;)\n");
        assert_eq!(found.headers, 1);
        assert!(found.expression.contains(" or tcp or (udp port"), "{}", found.expression);
        assert_eq!(of("alert pkthdr any any -> any any (sid:1;)").expression, ALL);
        assert_eq!(of("alert ip any any -> any any (sid:1;)").expression, ALL);
        // An ICMP packet has the port 0.
        let ports = of("alert ip any any -> any !80 (sid:1;)").expression;
        assert!(ports.contains("or (icmp or icmp6) or"), "{ports}");
        assert!(!of("alert ip any any -> any 80 (sid:1;)").expression.contains("or icmp6"));
    }

    #[test]
    fn a_header_that_cannot_be_read_is_an_error() {
        let of = |text: &str| prefilter(text.as_bytes(), &Variables::default()).unwrap_err();
        let refused = of("# x\nalert tcp $NOBODY any -> any any (sid:7;)");
        assert_eq!((refused.line, refused.sid), (2, Some(7)));
        assert!(refused.reason.contains("--set NOBODY"), "{refused}");
        assert!(of("alert tcp any any -> any (sid:7;)").reason.contains("6 words"));
        assert!(of("pass tcp any any -> any any (sid:7;)").reason.contains("no rule"));
    }

    #[test]
    fn ports_are_named_by_the_shorter_list() {
        assert_eq!(complement(&[(0, 79), (81, 90), (100, 65535)]), [(80, 80), (91, 99)]);
        assert_eq!(complement(&[ANY_PORT]), []);
        assert_eq!(
            union(&[(1, 5), (9, 9)], &[(6, 7), (65535, 65535)]),
            [(1, 7), (9, 9), (65535, 65535)]
        );
    }
}
