//! Seeded generator of filter expressions: a random walk through the grammar, with values that frames are likely to
//! have.
//!
//! Most expressions are valid, some are not, so that tests can compare both results of a parser. The expressions use
//! the part of pcap-filter(7) for Ethernet and IP.

use crate::random::Random;
use std::net::Ipv6Addr;

/// Values for the expressions; take them from the frames to be filtered.
#[derive(Debug, Clone, Default)]
pub struct Values {
    /// IPv4 addresses.
    pub ip: Vec<[u8; 4]>,
    /// IPv6 addresses.
    pub ip6: Vec<[u8; 16]>,
    /// Ethernet addresses.
    pub ether: Vec<[u8; 6]>,
    /// TCP and UDP ports.
    pub ports: Vec<u16>,
    /// Complete terms, used as often as all generated terms together; see [`SPECIAL`].
    pub terms: &'static [&'static str],
}

/// Terms of particular link types, of live captures and of tunnels.
#[rustfmt::skip]
pub const SPECIAL: &[&str] = &[
    "protochain 6", "ip protochain 17", "ip6 protochain 58", "ip6 protochain \\udp", "geneve",
    "geneve 5", "geneve 0x1000000", "pppoes 5", "mpls 100", "vlan 5", "vlan", "lane", "metac", "bcc",
    "oamf4sc", "oamf4ec", "sc", "ilmic", "oam", "oamf4", "connectmsg", "metaconnect", "vpi 0",
    "vpi > 0", "vpi != 1", "vci 5", "vci (3 or 4 or 16)", "vci <= 16", "llc", "llc i", "llc u",
    "fisu", "lssu", "msu", "hfisu", "hlssu", "hmsu", "sio 3", "sio 256", "opc 5", "dpc > 3",
    "sls (1 or 2)", "hsio 2", "hopc != 3", "hdpc 1", "hsls < 4", "opc 16384",
    "type mgt", "type ctl", "type data", "type mgt subtype beacon", "subtype qos-data",
    "subtype ack", "type 0x08 subtype 0x80", "type 0x0c", "type 3", "wlan type data", "dir tods",
    "dir 3", "direction fromds", "dir 7", "link type mgt",
    "on em0", "ifname em", "ruleset anchor", "rset x", "rulenum 1", "srnr 2", "reason match",
    "reason 3", "action pass", "action block", "action 1", "on averyverylongname",
    "inbound", "outbound", "ifindex 3", "broadcast", "multicast", "link broadcast",
    "wlan host ff:ff:ff:ff:ff:ff", "wlan addr1 ff:ff:ff:ff:ff:ff", "wlan ra 0:1:2:3:4:5",
    "wlan addr2 host 0:1:2:3:4:5", "wlan addr3 0:1:2:3:4:5", "wlan addr4 0:1:2:3:4:5",
    "wlan ta 0:1:2:3:4:5", "wlan src ff:ff:ff:ff:ff:ff", "addr1 10.0.0.1", "addr2 port 80",
    "link host $02", "link src $1", "link dst host $ff", "host $5", "gateway gw",
    "radio[0] = 0", "radio[2:2] > 5", "link[0] = 8", "wlan[0] & 0x0c = 0x08", "link[4:2] > 60",
    "iso", "iso proto \\isis", "isis", "clnp", "l2", "stp", "ipx", "netbeui", "atalk",
    "decnet dst 10.15", "ip[8] < 64", "tcp[13] & 2 != 0", "ip6[6] = 6", "icmp6[0] = 135",
    "udp[2:2] = 53", "arp[6:2] = 1", "net 0.0.0.0/0", "ip6 net ::/0", "ip6 src net fe80::/10",
    "vlan 5 and vlan 6", "mpls 1 and mpls 2", "mpls and mpls and ip6", "vlan and mpls", "pppoes and ip6",
    "portrange ftp-ssh", "dst and src port domain", "src and dst portrange 1-1023", "type 0 subtype 0x40",
    "type mgt subtype assoc-req", "wlan dir tods", "llc rej", "llc sabme", "net 10 mask 255.0.0.0", "dst net 10/8",
    "ether proto \\sca", "iso proto 0x82", "isis proto \\l1", "csnp", "lsp", "es-is", "mopdl", "lsu",
    "icmp6[icmp6type] = icmp6-echo", "icmp[icmpcode] != 0", "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "host ::ffff:10.0.0.1", "ether src 0001.0203.0405", "ether dst 0-1-2-3-4-5", "length >= 64", "ip proto \\ospf",
    "wlan address1 ff:ff:ff:ff:ff:ff", "ta 0:1:2:3:4:5", "srnr 0", "port 80 or 443 or http", "dpc (1 or 2 or 3)",
];

impl Values {
    /// Returns a few values of each kind, for tests without frames.
    pub fn common() -> Values {
        Values {
            ip: vec![[10, 0, 0, 1], [192, 168, 1, 2], [224, 0, 0, 5], [255, 255, 255, 255]],
            ip6: vec![[0x20; 16], [0; 16]],
            ether: vec![[0xff; 6], [0, 1, 2, 3, 4, 5]],
            ports: vec![22, 53, 80, 443, 5060],
            terms: &[],
        }
    }

    /// Adds the values of an Ethernet frame with IPv4 or IPv6.
    pub fn learn(&mut self, frame: &[u8]) {
        fn array<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
            frame.get(at..at + N)?.try_into().ok()
        }
        self.ether.extend(array::<6>(frame, 6));
        match array::<2>(frame, 12) {
            Some([0x08, 0x00]) => {
                self.ip.extend(array::<4>(frame, 26));
                self.ip.extend(array::<4>(frame, 30));
                self.ports.extend(array(frame, 34).map(u16::from_be_bytes));
                self.ports.extend(array(frame, 36).map(u16::from_be_bytes));
            }
            Some([0x08, 0x06]) => self.ip.extend(array::<4>(frame, 28)),
            Some([0x86, 0xdd]) => {
                self.ip6.extend(array::<16>(frame, 22));
                self.ports.extend(array(frame, 54).map(u16::from_be_bytes));
            }
            _ => {}
        }
    }
}

/// Protocols that form a term on their own.
const PROTOCOLS: &[&str] = &[
    "ip", "ip6", "arp", "rarp", "tcp", "udp", "icmp", "icmp6", "sctp", "igmp", "pim", "vrrp", "ah",
    "esp", "carp", "igrp", "atalk", "aarp", "ipx", "netbeui", "stp", "iso", "lat", "moprc", "isis",
    "esis", "clnp", "l1", "iih", "snp", "psnp", "decnet", "llc", "llc s", "llc ui",
];
/// Headers with indexable bytes.
const HEADERS: &[&str] = &[
    "ip", "ip", "ip", "tcp", "tcp", "udp", "icmp", "ip6", "ip6", "icmp6", "ether", "link", "arp",
    "sctp", "igmp", "rarp",
];
const SIDES: &[&str] =
    &["", "", "src ", "dst ", "src or dst ", "src and dst ", "dst or src ", "dst and src "];

/// Generates one expression.
pub fn filter_text(random: &mut Random, values: &Values) -> String {
    let mut text = String::new();
    match random.chance(16) {
        true => exceptions(random, values, &mut text, 2),
        false => chain(random, values, &mut text, 3),
    }
    if random.chance(40) {
        spoil(random, &mut text);
    }
    text
}

/// Generates a list of exceptions, some of which have exceptions: `tcp and not (…) and not (…) …`.
pub fn exceptions(random: &mut Random, values: &Values, text: &mut String, depth: usize) {
    if random.chance(2) {
        term(random, values, text);
        text.push_str(" and ");
    }
    for index in 0..random.pick(&[2, 3, 5, 8, 9, 13]) {
        text.push_str(if index > 0 { " and not (" } else { "not (" });
        for part in 0..random.pick(&[1, 2, 2, 2, 3]) {
            if part > 0 {
                text.push_str(if random.chance(6) { " or " } else { " and " });
            }
            match depth > 0 && random.chance(12) {
                true => {
                    text.push('(');
                    exceptions(random, values, text, depth - 1);
                    text.push(')');
                }
                false => drop(term(random, values, text)),
            }
        }
        text.push(')');
    }
}

/// Generates operands joined by `and` and `or`.
fn chain(random: &mut Random, values: &Values, text: &mut String, depth: usize) {
    let operands = random.pick(&[1, 1, 2, 2, 3, 4]);
    let mut inherited = None;
    for index in 0..operands {
        if index > 0 {
            text.push_str(random.pick(&[" and ", " or ", " && ", " || ", " and ", " or "]));
        }
        while random.chance(6) {
            text.push_str(random.pick(&["not ", "! ", "!"]));
        }
        match inherited {
            Some(kind) if random.chance(3) => {
                text.push_str(&identifiers(random, values, kind, 2));
            }
            _ if depth > 0 && random.chance(5) => {
                text.push('(');
                chain(random, values, text, depth - 1);
                text.push(')');
            }
            _ if !values.terms.is_empty() && random.chance(2) => {
                text.push_str(random.pick(values.terms));
                inherited = None;
            }
            _ => inherited = term(random, values, text),
        }
    }
}

/// Kind of an identifier, if the operand after it may inherit the identifier's qualifiers.
#[derive(Clone, Copy)]
enum Kind {
    Host,
    Host6,
    Net,
    Port,
    PortRange,
    Protocol,
    Ether,
}

fn term(random: &mut Random, values: &Values, text: &mut String) -> Option<Kind> {
    let side = random.pick(SIDES);
    let (words, kind) = match random.below(19) {
        0 | 1 => {
            let family = random.pick(&["", "", "ip ", "arp ", "rarp "]);
            let host = if side.is_empty() { "host " } else { random.pick(&["", "host "]) };
            (format!("{family}{side}{host}"), Kind::Host)
        }
        2 => (format!("{}{side}host ", random.pick(&["", "ip6 "])), Kind::Host6),
        3 => (format!("{}{side}net ", random.pick(&["", "ip ", "arp ", "ip6 "])), Kind::Net),
        4 | 5 => {
            (format!("{}{side}port ", random.pick(&["", "tcp ", "udp ", "sctp "])), Kind::Port)
        }
        6 => (format!("{}{side}portrange ", random.pick(&["", "tcp ", "udp "])), Kind::PortRange),
        7 => (format!("{}proto ", random.pick(&["", "ip ", "ip6 ", "ether "])), Kind::Protocol),
        8 => (format!("ether {side}host "), Kind::Ether),
        9 | 10 => {
            text.push_str(random.pick(PROTOCOLS));
            return None;
        }
        11 => {
            text.push_str(random.pick(&[
                "broadcast",
                "multicast",
                "ether broadcast",
                "llc",
                "llc i",
                "llc rnr",
                "iso proto 131",
                "isis proto 17",
                "decnet src host 10.15",
                "ether multicast",
                "ip broadcast",
                "ip multicast",
                "ip6 multicast",
                "pppoed",
                "inbound",
                "outbound",
            ]));
            return None;
        }
        12 => {
            let length = random.pick(&[0, 1, 60, 64, 100, 1500, 4_000_000_000_u32]);
            text.push_str(&format!("{} {length}", random.pick(&["less", "greater"])));
            return None;
        }
        13 => {
            let word = random.pick(&["vlan", "vlan", "mpls", "pppoes"]);
            text.push_str(word);
            if random.chance(2) {
                text.push_str(&format!(" {}", random.pick(&[0, 1, 5, 10, 32, 100, 4095])));
            }
            return None;
        }
        14 => {
            let sign = random.pick(&["=", "<", ">"]);
            text.push_str(&format!("byte {} {sign} {}", random.below(60), random.below(300)));
            return None;
        }
        _ => {
            arithmetic(random, text, 3);
            text.push_str(random.pick(&[" = ", " != ", " > ", " < ", " >= ", " <= ", " == "]));
            arithmetic(random, text, 2);
            return None;
        }
    };
    text.push_str(&words);
    text.push_str(&identifiers(random, values, kind, 2));
    Some(kind)
}

/// Generates one identifier, or several in parentheses.
fn identifiers(random: &mut Random, values: &Values, kind: Kind, depth: usize) -> String {
    if depth == 0 || !random.chance(6) {
        let not = if random.chance(12) { "not " } else { "" };
        return format!("{not}{}", identifier(random, values, kind));
    }
    let mut text = format!("({}", identifier(random, values, kind));
    for _ in 0..random.below(3) {
        text.push_str(random.pick(&[" or ", " and "]));
        text.push_str(&identifiers(random, values, kind, depth - 1));
    }
    text + ")"
}

fn identifier(random: &mut Random, values: &Values, kind: Kind) -> String {
    let dotted = |address: &[u8]| address.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    let ip = random.pick(&values.ip);
    match kind {
        Kind::Host => match random.below(8) {
            0 => u32::from_be_bytes(ip).to_string(),
            1 => dotted(&ip[..2 + random.below(2)]),
            _ => dotted(&ip),
        },
        Kind::Host6 => Ipv6Addr::from(random.pick(&values.ip6)).to_string(),
        Kind::Net => match random.below(6) {
            0 => u32::from(ip[0]).to_string(),
            1 => dotted(&ip[..3]),
            2 => format!("{} mask 255.255.0.0", dotted(&[ip[0], ip[1], 0, 0])),
            3 => format!("{}/{}", dotted(&ip), 24 + random.below(9)),
            4 => {
                let length = random.below(129) as u32;
                let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                let network = u128::from_be_bytes(random.pick(&values.ip6)) & mask;
                format!("{}/{length}", Ipv6Addr::from(network))
            }
            _ => {
                let length = random.below(33) as u32;
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                let network = u32::from_be_bytes(ip) & mask;
                format!("{}/{length}", dotted(&network.to_be_bytes()))
            }
        },
        Kind::Port => match random.below(8) {
            0 => {
                random.pick(&["http", "domain", "ssh", "ntp", "sip", "snmp", "bootps"]).to_string()
            }
            _ => random.pick(&values.ports).to_string(),
        },
        Kind::PortRange => {
            format!("{}-{}", random.pick(&values.ports), random.pick(&values.ports))
        }
        Kind::Protocol => random
            .pick(&[
                "1", "6", "17", "58", "44", "2048", "34525", "6", "66", "0xe0", "\\tcp", "\\ip",
                "256",
            ])
            .to_string(),
        Kind::Ether => {
            let bytes = random.pick(&values.ether);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        }
    }
}

/// Generates a byte expression.
fn arithmetic(random: &mut Random, text: &mut String, depth: usize) {
    match random.below(if depth == 0 { 6 } else { 12 }) {
        0 | 1 => {
            let number = match random.below(4) {
                0 => random.below(8),
                1 => random.below(70),
                2 => random.below(300),
                _ => random.pick(&[0x800, 0x86dd, 0xff, 0xffff, 0x1fff, 0x45, 0xffff_ffff]),
            };
            text.push_str(&number.to_string());
        }
        2 => {
            text.push_str(random.pick(&["len", "tcp-syn", "icmp-echo", "tcpflags", "0x1f", "010"]))
        }
        3..=5 => {
            text.push_str(random.pick(HEADERS));
            text.push('[');
            if depth > 0 && random.chance(5) {
                arithmetic(random, text, depth - 1);
            } else {
                text.push_str(&random.below(48).to_string());
            }
            text.push_str(random.pick(&["]", "]", ":1]", ":2]", ":4]"]));
        }
        6 => {
            text.push_str("- ");
            arithmetic(random, text, depth - 1);
        }
        7 => {
            text.push('(');
            arithmetic(random, text, depth - 1);
            text.push(')');
        }
        _ => {
            arithmetic(random, text, depth - 1);
            let signs = ["+", "-", "*", "/", "%", "&", "&", "&", "|", "^", "<<", ">>"];
            text.push_str(&format!(" {} ", random.pick(&signs)));
            arithmetic(random, text, depth - 1);
        }
    }
}

/// Probably makes an expression invalid: removes, inserts or doubles a word.
fn spoil(random: &mut Random, text: &mut String) {
    let mut words: Vec<&str> = text.split(' ').collect();
    let place = random.below(words.len());
    match random.below(4) {
        0 => drop(words.remove(place)),
        1 => words.insert(place, words[place]),
        2 => {
            words.insert(place, random.pick(&["(", ")", "not", "port", "80", "host", "and", "ip"]))
        }
        _ => words.swap(place, 0),
    }
    *text = words.join(" ");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_differ_and_depend_on_the_seed() {
        let texts = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| filter_text(&mut random, &Values::common())).collect::<Vec<_>>()
        };
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
    }
}
