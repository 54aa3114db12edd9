//! Names of numbers: EtherTypes, IP protocols, ports.

use crate::text::name_of;
use fyke_frame::walk::Protocol;
use std::collections::HashMap;

/// Names of TCP and UDP ports, as `/etc/services` lists them.
#[derive(Debug, Clone, Default)]
pub struct Services {
    tcp: HashMap<u16, String>,
    udp: HashMap<u16, String>,
}

impl Services {
    /// Reads the text of `/etc/services`: a name, `port/protocol`, aliases, `#` starts a comment.
    /// The first name of a port is used; other lines are skipped, and so are names with characters
    /// that are not allowed in a name.
    pub fn parse(text: &str) -> Services {
        let mut services = Services::default();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or("").split_ascii_whitespace();
            let (Some(name), Some(place)) = (words.next(), words.next()) else { continue };
            let Some((port, protocol)) = place.split_once('/') else { continue };
            let (Ok(port), true) = (port.parse(), name.bytes().all(|b| b.is_ascii_graphic()))
            else {
                continue;
            };
            let names = match protocol {
                "tcp" => &mut services.tcp,
                "udp" => &mut services.udp,
                _ => continue,
            };
            names.entry(port).or_insert_with(|| name.to_string());
        }
        services
    }

    /// Name of a TCP port.
    pub fn tcp(&self, port: u16) -> Option<&str> {
        self.tcp.get(&port).map(String::as_str)
    }

    /// Name of a UDP port.
    pub fn udp(&self, port: u16) -> Option<&str> {
        self.udp.get(&port).map(String::as_str)
    }
}

/// Name of an EtherType.
pub(crate) fn ethertype(number: u16) -> Option<&'static str> {
    name_of(ETHERTYPES, number)
}

const ETHERTYPES: &[(u16, &str)] = &[
    (0x0800, "IPv4"),
    (0x86dd, "IPv6"),
    (0x0806, "ARP"),
    (0x8035, "Reverse ARP"),
    (0x8100, "802.1Q"),
    (0x88a8, "802.1Q-QinQ"),
    (0x9100, "802.1Q-9100"),
    (0x9200, "802.1Q-9200"),
    (0x8847, "MPLS unicast"),
    (0x8848, "MPLS multicast"),
    (0x8863, "PPPoE D"),
    (0x8864, "PPPoE S"),
    (0x880b, "PPP"),
    (0x88e5, "802.1AE MACsec"),
    (0x6558, "TEB"),
    (0x809b, "Appletalk"),
    (0x80f3, "Appletalk ARP"),
    (0x8137, "IPX"),
    (0x6001, "MOP DL"),
    (0x6002, "MOP RC"),
    (0x6003, "DN"),
    (0x6004, "LAT"),
    (0x6007, "SCA"),
    (0x8809, "Slow Protocols"),
    (0x888e, "EAPOL"),
    (0x8899, "Realtek protocols"),
    (0x894f, "NSH"),
    (0x9000, "Loopback"),
    (0x8902, "CFM"),
    (0x88cc, "LLDP"),
    (0x88ca, "TIPC"),
    (0x88a2, "AoE"),
    (0x88f7, "PTP"),
    (0x8808, "MPCP"),
    (0xd28b, "Arista Vendor Specific Protocol"),
];

/// Name of an IP protocol as the verbose IP header shows it.
pub(crate) fn ip_protocol(number: u8) -> &'static str {
    let known: &[(u8, &str)] = &[
        (0, "Options"),
        (1, "ICMP"),
        (2, "IGMP"),
        (4, "IPIP"),
        (6, "TCP"),
        (8, "EGP"),
        (9, "IGRP"),
        (17, "UDP"),
        (33, "DCCP"),
        (41, "IPv6"),
        (43, "Routing"),
        (44, "Fragment"),
        (46, "RSVP"),
        (47, "GRE"),
        (50, "ESP"),
        (51, "AH"),
        (55, "Mobile IP"),
        (58, "ICMPv6"),
        (59, "no next header"),
        (88, "EIGRP"),
        (89, "OSPF"),
        (97, "EtherIP"),
        (103, "PIM"),
        (108, "Compressed IP"),
        (112, "VRRP"),
        (113, "PGM"),
        (132, "SCTP"),
        (135, "Mobility"),
        (143, "Ethernet"),
    ];
    name_of(known, number).unwrap_or("unknown")
}

/// Name of a protocol in the text for a cut header.
pub(crate) fn cut(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Ethernet => "ether",
        Protocol::Link => "link",
        Protocol::Llc => "llc",
        Protocol::Vlan => "vlan",
        Protocol::Mpls | Protocol::ControlWord => "mpls",
        Protocol::Pppoe => "pppoe",
        Protocol::Ppp => "ppp",
        Protocol::Arp => "arp",
        Protocol::Ipv4 => "ip",
        Protocol::Ipv6 => "ip6",
        Protocol::HopByHop => "hbhopt",
        Protocol::Routing => "rt6",
        Protocol::Fragment => "frag6",
        Protocol::DestinationOptions => "dstopt",
        Protocol::Mobility => "mobility",
        Protocol::Hip => "hip",
        Protocol::Shim6 => "shim6",
        Protocol::Authentication => "ah",
        Protocol::Esp => "esp",
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::UdpLite => "udp-lite",
        Protocol::Sctp => "sctp",
        Protocol::Dccp => "dccp",
        Protocol::Icmp => "icmp",
        Protocol::Icmpv6 => "icmp6",
        Protocol::Igmp => "igmp",
        Protocol::Gre => "gre",
        Protocol::Erspan => "erspan",
        Protocol::Vxlan => "vxlan",
        Protocol::Geneve => "geneve",
        Protocol::Gtpu => "gtp-u",
        Protocol::EtherIp => "etherip",
    }
}

/// Name of an IP protocol number in the text for a cut header.
pub(crate) fn cut_ip(number: u8) -> &'static str {
    let known: &[(u8, &str)] = &[
        (0, "hbhopt"),
        (1, "icmp"),
        (2, "igmp"),
        (4, "ip"),
        (6, "tcp"),
        (17, "udp"),
        (33, "dccp"),
        (41, "ip6"),
        (43, "rt6"),
        (44, "frag6"),
        (47, "gre"),
        (50, "esp"),
        (51, "ah"),
        (58, "icmp6"),
        (60, "dstopt"),
        (97, "etherip"),
        (132, "sctp"),
        (135, "mobility"),
        (136, "udp-lite"),
        (137, "mpls"),
    ];
    name_of(known, number).unwrap_or("header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_take_the_first_name() {
        let text = "# comment\nhttp 80/tcp www # web\nwww 80/tcp\ndomain 53/udp\nbad x/tcp\nodd\n\
                    ev\u{1b}il 81/tcp\nddp 1/ddp\n";
        let services = Services::parse(text);
        assert_eq!(services.tcp(80), Some("http"));
        assert_eq!((services.udp(53), services.udp(80)), (Some("domain"), None));
        assert_eq!((services.tcp(81), services.tcp(1)), (None, None));
    }
}
