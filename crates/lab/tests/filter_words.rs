//! Every word of libpcap's scanner and tables, at every position where a word is allowed: both sides accept or
//! refuse it, with the same verdicts. The random texts of the other tests rarely contain these words.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod filter_support;

use filter_support::{Reference, Tally, frames, libpcap, options};
use fyke_frame::LinkType;
use fyke_testkit::corpus::Corpus;

/// Words that are a primitive, or nearly.
#[rustfmt::skip]
const ALONE: &[&str] = &[
    "arp", "rarp", "ip", "sctp", "tcp", "udp", "icmp", "igmp", "igrp", "pim", "vrrp", "carp", "ip6",
    "icmp6", "ah", "esp", "atalk", "aarp", "decnet", "lat", "sca", "moprc", "mopdl", "iso", "esis",
    "es-is", "isis", "is-is", "l1", "l2", "iih", "lsp", "snp", "csnp", "psnp", "clnp", "stp", "ipx",
    "netbeui", "link", "ether", "ppp", "slip", "fddi", "tr", "wlan", "radio", "broadcast",
    "multicast", "inbound", "outbound", "vlan", "mpls", "pppoed", "pppoes", "lane", "llc",
    "metac", "bcc", "oam", "oamf4", "oamf4ec", "oamf4sc", "sc", "ilmic", "connectmsg",
    "metaconnect", "fisu", "lssu", "lsu", "msu", "hfisu", "hlssu", "hmsu", "gateway", "host", "net",
    "port", "portrange", "proto", "protochain", "type", "subtype", "dir", "direction", "len",
    "length", "vxlan", "address", "mask", "#", "$", "\\", "not", "!", "loopback",
];

/// Contexts of a name, and names; every context is tried with every name.
#[rustfmt::skip]
const PLACES: &[(&[&str], &[&str])] = &[
    (&["ether proto ", "ether proto \\", "link proto \\", "proto \\", "ip proto \\", "ip6 proto \\", "iso proto \\",
       "isis proto \\", "ip protochain \\", "fddi proto \\", "tr proto \\", "wlan proto \\"],
     &["aarp", "arp", "atalk", "decnet", "ip", "ip6", "lat", "loopback", "mopdl", "moprc", "rarp",
       "sca", "iso", "stp", "ipx", "netbeui", "clnp", "esis", "isis", "l1", "l2", "iih", "lsp",
       "snp", "csnp", "psnp", "igrp", "pim", "ah", "tcp", "ospf", "nonsense", "66", "0x800"]),
    (&["type ", "wlan type ", "type mgt subtype ", "type ctl subtype ", "type data subtype ",
       "type 0 subtype ", "type 0x04 subtype ", "subtype ", "wlan subtype "],
     &["mgt", "management", "ctl", "control", "data", "assocreq", "assoc-req", "assocresp",
       "assoc-resp", "reassocreq", "reassoc-req", "reassocresp", "reassoc-resp", "probereq",
       "probe-req", "proberesp", "probe-resp", "beacon", "atim", "disassoc", "disassociation",
       "auth", "authentication", "deauth", "deauthentication", "ps-poll", "rts", "cts", "ack",
       "cf-end", "cf-end-ack", "data-cf-ack", "data-cf-poll", "data-cf-ack-poll", "null", "cf-ack",
       "cf-poll", "cf-ack-poll", "qos-data", "qos-data-cf-ack", "qos-data-cf-poll",
       "qos-data-cf-ack-poll", "qos", "qos-cf-poll", "qos-cf-ack-poll", "BEACON", "0x80", "7"]),
    (&["llc "],
     &["i", "s", "u", "rr", "rnr", "rej", "ui", "ua", "disc", "dm", "sabme", "test", "xid", "frmr",
       "x"]),
    (&["dir ", "direction ", "wlan dir "],
     &["nods", "tods", "fromds", "dstods", "NODS", "0", "3", "4", "x"]),
    (&["reason "], &["match", "bad-offset", "fragment", "short", "normalize", "memory",
       "bad-timestamp", "congestion", "ip-option", "proto-cksum", "state-mismatch", "state-insert",
       "state-limit", "src-limit", "synproxy", "x", "3", "300"]),
    (&["action "], &["pass", "accept", "block", "drop", "scrub", "noscrub", "nat", "nonat", "binat",
       "nobinat", "rdr", "nordr", "synproxy-drop", "x", "1", "300"]),
    (&["on ", "ifname ", "rset ", "ruleset ", "rnr ", "rulenum ", "srnr ", "subrulenum "],
     &["em0", "anchor", "3", "\\on"]),
    (&["link[", "icmp[", "tcp[0] = ", "icmp6[0] = ", "tcp[13] & ", "0 != "],
     &["icmptype", "icmpcode", "icmp-echoreply", "icmp-unreach", "icmp-sourcequench",
       "icmp-redirect", "icmp-echo", "icmp-routeradvert", "icmp-routersolicit", "icmp-timxceed",
       "icmp-paramprob", "icmp-tstamp", "icmp-tstampreply", "icmp-ireq", "icmp-ireqreply",
       "icmp-maskreq", "icmp-maskreply", "icmp6type", "icmp6code", "icmp6-destinationunreach",
       "icmp6-packettoobig", "icmp6-timeexceeded", "icmp6-parameterproblem", "icmp6-echo",
       "icmp6-echoreply", "icmp6-multicastlistenerquery", "icmp6-multicastlistenerreportv1",
       "icmp6-multicastlistenerdone", "icmp6-routersolicit", "icmp6-routeradvert",
       "icmp6-neighborsolicit", "icmp6-neighboradvert", "icmp6-redirect", "icmp6-routerrenum",
       "icmp6-nodeinformationquery", "icmp6-nodeinformationresponse",
       "icmp6-ineighbordiscoverysolicit", "icmp6-ineighbordiscoveryadvert",
       "icmp6-multicastlistenerreportv2", "icmp6-homeagentdiscoveryrequest",
       "icmp6-homeagentdiscoveryreply", "icmp6-mobileprefixsolicit", "icmp6-mobileprefixadvert",
       "icmp6-certpathsolicit", "icmp6-certpathadvert", "icmp6-multicastrouteradvert",
       "icmp6-multicastroutersolicit", "icmp6-multicastrouterterm", "tcpflags", "tcp-fin",
       "tcp-syn", "tcp-rst", "tcp-push", "tcp-ack", "tcp-urg", "tcp-ece", "tcp-cwr", "len",
       "length"]),
    (&["ether host ", "ether src ", "wlan addr1 ", "wlan addr4 ", "address2 ",
       "wlan ra ", "ether ta "],
     &["00:01:02:03:04:05", "0-1-2-3-4-5", "0001.0203.0405", "000102030405", "0:1:2:3:4", "ff:ff:ff:ff:ff:ff",
       "FF:ff:FF:ff:FF:ff", "0.1.2.3.4.5", "00:01:02:03:04:0g", "\\00:01:02:03:04:05"]),
    (&["host ", "ip6 host ", "src ", "net ", "dst net ", "ip6 net ", "arp net "],
     &["::", "::1", "fe80::1", "::ffff:10.0.0.1", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::/0", "fe80::/10",
       "::1/128", "::1/129", "fe80::1/10", "10", "10.1", "10.1.2", "10.1.2.3", "10.1.2.3.4", "10/8", "10.1/16",
       "10.1.2.3/8", "0x0a000001", "010", "256.1.1.1", "10.0.0.0 mask 255.0.0.0", "10.0.0.1 mask 255.0.0.0",
       "10 mask 255.0.0.0", "0/0", "4294967295", "4294967296"]),
    (&["portrange ", "tcp portrange ", "udp src portrange ", "port ", "sctp port ", "portrange 5-"],
     &["ftp-ssh", "ftp-80", "22-ssh", "80-79", "0-65535", "65536", "0", "http", "domain", "ssh-", "-5", "ftp-data",
       "ftp-data-ssh", "1-2-3", "nonsense", "0x50", "080", "00080"]),
];

/// Returns every text of the tables, and the names of this machine's services and protocols.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = ALONE.iter().map(|word| (*word).to_owned()).collect();
    for (before, names) in PLACES {
        for before in *before {
            let opens = before.ends_with('[');
            let is_bits = before.ends_with("& ");
            texts.extend(names.iter().map(|name| match (opens, is_bits) {
                (true, _) => format!("{before}{name}] = 5"),
                (_, true) => format!("{before}{name} != 0"),
                _ => format!("{before}{name}"),
            }));
        }
    }
    let lines = |path| std::fs::read_to_string(path).unwrap_or_default();
    for line in lines("/etc/services").lines().chain(lines("/etc/protocols").lines()) {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_whitespace();
        let (Some(name), Some(number)) = (words.next(), words.next()) else { continue };
        for name in [name].into_iter().chain(words) {
            match number.contains('/') {
                true => texts.extend(
                    ["port", "tcp port", "udp dst port"].map(|before| format!("{before} {name}")),
                ),
                false => texts.push(format!("ip proto \\{name}")),
            }
        }
    }
    texts
}

#[test]
fn every_word_means_the_same() {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return };
    let texts = texts();
    let mut differences = 0;
    for link in [1, 9, 10, 101, 104, 105, 113, 117, 123, 127, 139, 276].map(LinkType) {
        let frames = frames(&libpcap, &corpus, link, 2);
        let mut tally = Tally::default();
        for text in &texts {
            let options = options(link);
            let reference = Reference::new(&libpcap, &options, text);
            match tally.text(&options, text, &reference) {
                Some(readings) => tally.frames(readings, frames.iter().take(40)),
                None => tally.never(text, &options, &reference, frames.iter()),
            }
        }
        differences += tally.report(&format!("{} words for {link}", texts.len()));
    }
    assert_eq!(differences, 0);
}
