//! The words of the language: keywords, which cannot be used as names unless escaped with a
//! backslash, and named constants.
//! Matching is exact and case-sensitive. The sets are those of libpcap 1.10.3; a word that later
//! versions added is an ordinary name here, as in that version. Source: pcap-filter(7).

/// Declares the keywords: one variant each, with all its spellings.
macro_rules! keywords {
    ($($variant:ident = $first:literal $(| $other:literal)*;)+) => {
        /// A keyword.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Keyword { $(#[doc = $first] $variant,)+ }

        impl Keyword {
            /// The keyword that is spelled like this.
            pub(crate) fn from_text(text: &str) -> Option<Keyword> {
                match text {
                    $($first $(| $other)* => Some(Keyword::$variant),)+
                    _ => None,
                }
            }

            /// The usual spelling.
            pub(crate) fn text(self) -> &'static str {
                match self { $(Keyword::$variant => $first,)+ }
            }
        }

        /// Every spelling of every keyword, for suggestions.
        const SPELLINGS: &[&str] = &[$($first, $($other,)*)+];
    };
}

keywords! {
    // Directions.
    Dst = "dst"; Src = "src";
    // Link layer, under all its names.
    Link = "ether" | "link" | "ppp" | "slip" | "fddi" | "tr" | "wlan";
    // Protocols.
    Arp = "arp"; Rarp = "rarp"; Ip = "ip"; Sctp = "sctp"; Tcp = "tcp"; Udp = "udp"; Icmp = "icmp";
    Igmp = "igmp"; Igrp = "igrp"; Pim = "pim"; Vrrp = "vrrp"; Carp = "carp"; Radio = "radio";
    Ip6 = "ip6"; Icmp6 = "icmp6"; Ah = "ah"; Esp = "esp"; Atalk = "atalk"; Aarp = "aarp";
    Decnet = "decnet"; Lat = "lat"; Sca = "sca"; Moprc = "moprc"; Mopdl = "mopdl"; Iso = "iso";
    Esis = "esis" | "es-is"; Isis = "isis" | "is-is"; L1 = "l1"; L2 = "l2"; Iih = "iih";
    Lsp = "lsp"; Snp = "snp"; Csnp = "csnp"; Psnp = "psnp"; Clnp = "clnp"; Stp = "stp"; Ipx = "ipx";
    Netbeui = "netbeui";
    // Kinds of identifiers.
    Host = "host"; Net = "net"; Mask = "mask"; Port = "port"; Portrange = "portrange";
    Proto = "proto"; Protochain = "protochain"; Gateway = "gateway";
    // 802.11.
    Type = "type"; Subtype = "subtype"; Dir = "dir" | "direction"; Addr1 = "addr1" | "address1";
    Addr2 = "addr2" | "address2"; Addr3 = "addr3" | "address3"; Addr4 = "addr4" | "address4";
    Ra = "ra"; Ta = "ta";
    // Whole primitives.
    Less = "less"; Greater = "greater"; Byte = "byte"; Broadcast = "broadcast";
    Multicast = "multicast"; Len = "len" | "length"; Inbound = "inbound"; Outbound = "outbound";
    Ifindex = "ifindex"; Vlan = "vlan"; Mpls = "mpls"; Pppoed = "pppoed"; Pppoes = "pppoes";
    Geneve = "geneve"; Llc = "llc";
    // Operators.
    And = "and"; Or = "or"; Not = "not";
    // ATM.
    Lane = "lane"; Metac = "metac"; Bcc = "bcc"; Oam = "oam"; Oamf4 = "oamf4"; Oamf4ec = "oamf4ec";
    Oamf4sc = "oamf4sc"; Sc = "sc"; Ilmic = "ilmic"; Vpi = "vpi"; Vci = "vci";
    Connectmsg = "connectmsg"; Metaconnect = "metaconnect";
    // Packet-filter logs.
    Ifname = "ifname" | "on"; Ruleset = "ruleset" | "rset"; Rulenum = "rulenum" | "rnr";
    Subrulenum = "subrulenum" | "srnr"; Reason = "reason"; Action = "action";
    // Signalling system 7.
    Fisu = "fisu"; Lssu = "lssu" | "lsu"; Msu = "msu"; Hfisu = "hfisu"; Hlssu = "hlssu";
    Hmsu = "hmsu"; Sio = "sio"; Opc = "opc"; Dpc = "dpc"; Sls = "sls"; Hsio = "hsio"; Hopc = "hopc";
    Hdpc = "hdpc"; Hsls = "hsls";
}

/// Named constants: indices into headers and values found there.
const CONSTANTS: &[(&str, u32)] = &[
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-routerrenum", 138),
    ("icmp6-nodeinformationquery", 139),
    ("icmp6-nodeinformationresponse", 140),
    ("icmp6-ineighbordiscoverysolicit", 141),
    ("icmp6-ineighbordiscoveryadvert", 142),
    ("icmp6-multicastlistenerreportv2", 143),
    ("icmp6-homeagentdiscoveryrequest", 144),
    ("icmp6-homeagentdiscoveryreply", 145),
    ("icmp6-mobileprefixsolicit", 146),
    ("icmp6-mobileprefixadvert", 147),
    ("icmp6-certpathsolicit", 148),
    ("icmp6-certpathadvert", 149),
    ("icmp6-multicastrouteradvert", 151),
    ("icmp6-multicastroutersolicit", 152),
    ("icmp6-multicastrouterterm", 153),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
];

/// The value of a named constant.
pub(crate) fn constant(text: &str) -> Option<u32> {
    // Every name begins like this; this saves the search for nearly all words.
    if !(text.starts_with("icmp") || text.starts_with("tcp")) {
        return None;
    }
    CONSTANTS.iter().find(|(name, _)| *name == text).map(|&(_, value)| value)
}

/// The keyword or constant that is most similar to an unknown word, if one is similar enough.
pub(crate) fn nearest(word: &str) -> Option<&'static str> {
    let lower = word.to_ascii_lowercase();
    let limit = match lower.len() {
        0..=2 => return None,
        3..=4 => 1,
        _ => 2,
    };
    let names = SPELLINGS.iter().copied().chain(CONSTANTS.iter().map(|&(name, _)| name));
    names
        .filter(|name| name.len().abs_diff(lower.len()) <= limit)
        .map(|name| (distance(lower.as_bytes(), name.as_bytes()), name))
        .filter(|&(distance, name)| distance <= limit && name != word)
        .min()
        .map(|(_, name)| name)
}

/// Advice on words of other languages: Wireshark's display filters, and later versions of libpcap.
pub(crate) fn elsewhere(word: &str) -> Option<&'static str> {
    Some(match word {
        "vxlan" => {
            "later versions have \"vxlan\"; use \"udp port 4789\", or the scoped reading for the inner packet"
        }
        "ip.addr" | "ipv6.addr" => "this is a Wireshark display filter; write \"host ADDRESS\"",
        "ip.src" | "ipv6.src" => "this is a Wireshark display filter; write \"src host ADDRESS\"",
        "ip.dst" | "ipv6.dst" => "this is a Wireshark display filter; write \"dst host ADDRESS\"",
        "tcp.port" => "this is a Wireshark display filter; write \"tcp port NUMBER\"",
        "udp.port" => "this is a Wireshark display filter; write \"udp port NUMBER\"",
        "tcp.srcport" | "udp.srcport" => {
            "this is a Wireshark display filter; write \"src port NUMBER\""
        }
        "tcp.dstport" | "udp.dstport" => {
            "this is a Wireshark display filter; write \"dst port NUMBER\""
        }
        "eth.addr" => "this is a Wireshark display filter; write \"ether host ADDRESS\"",
        "vlan.id" => "this is a Wireshark display filter; write \"vlan NUMBER\"",
        "frame.len" => "this is a Wireshark display filter; write \"len\"",
        _ => return None,
    })
}

/// Edit distance where swapping two neighbours counts one. Words are short, so the square is cheap.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let width = right.len() + 1;
    let mut rows: Vec<usize> = (0..width).collect();
    rows.resize((left.len() + 1) * width, 0);
    for row in 1..=left.len() {
        rows[row * width] = row;
        for column in 1..width {
            let same = usize::from(left[row - 1] != right[column - 1]);
            let mut best = (rows[(row - 1) * width + column] + 1)
                .min(rows[row * width + column - 1] + 1)
                .min(rows[(row - 1) * width + column - 1] + same);
            let swapped = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if swapped {
                best = best.min(rows[(row - 2) * width + column - 2] + 1);
            }
            rows[row * width + column] = best;
        }
    }
    rows[left.len() * width + right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_unique_and_lead_back() {
        for (index, spelling) in SPELLINGS.iter().enumerate() {
            assert!(Keyword::from_text(spelling).is_some());
            assert!(!SPELLINGS[..index].contains(spelling), "{spelling} twice");
            assert_eq!(constant(spelling), None);
        }
        assert_eq!(Keyword::from_text("Host"), None);
        assert_eq!(Keyword::from_text("address3"), Some(Keyword::Addr3));
        assert_eq!(constant("tcp-syn"), Some(2));
    }

    #[test]
    fn suggestions_are_near() {
        assert_eq!(nearest("prot"), Some("port"));
        assert_eq!(nearest("hots"), Some("host"));
        assert_eq!(nearest("TCP"), Some("tcp"));
        assert_eq!(nearest("tcp-snc"), Some("tcp-syn"));
        assert_eq!(nearest("wikipedia"), None);
    }
}
