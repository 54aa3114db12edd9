//! Errors with advice: common mistakes are refused with a useful hint.

use fyke_filter::{Options, compile};
use fyke_frame::LinkType;

#[test]
fn traps_have_hints() {
    for (link, text, advice) in [
        ("EN10MB", "tcp[0] = 1 and ip6", "read IPv4 only"),
        ("EN10MB", "ip and arp", "exclude each other"),
        ("EN10MB", "ip broadcast", "netmask"),
        ("EN10MB", "inbound", "does not record the direction"),
        ("LINUX_SLL", "vlan 5", "ether proto 0x8100"),
        ("LINUX_SLL2", "vlan and tcp", "not from \"any\""),
        ("EN10MB", "tcp 80", "tcp port 80"),
        ("EN10MB", "tcp prot 80", "did you mean \"port\"?"),
        ("EN10MB", "10.0.0.1", "host 10.0.0.1"),
        ("EN10MB", "tcp[13] & 2", "!= 0"),
        ("EN10MB", "byte 5 & 1 = 1", "link[5]"),
        ("EN10MB", "net 10.0.0.1/8", "have to be zero"),
        ("EN10MB", "ip6 net fe80::1/10", "have to be zero"),
        ("EN10MB", "host 10.0.0.0/8", "net 10.0.0.0/8"),
        ("EN10MB", "port 80,443", "(80 or 443)"),
        ("EN10MB", "ip.addr == 10.0.0.1", "host ADDRESS"),
        ("EN10MB", "tcp.port == 80", "tcp port NUMBER"),
        ("EN10MB", "vxlan", "udp port 4789"),
        ("EN10MB", "ip proto tcp", "\\tcp"),
        ("EN10MB", "ether host 10.0.0.1", "six bytes in hexadecimal"),
        ("EN10MB", "ip host ::1", "\"ip6\" has IPv6 addresses"),
        ("EN10MB", "4 / ip[0] = 1 / 0", "division"),
    ] {
        let link = LinkType::from_name(link).unwrap();
        let error = compile(text, &Options { link, ..Options::default() }).expect_err(text);
        let shown = error.to_string();
        assert!(shown.contains(advice) && shown.contains('^'), "{text}: {shown}");
        let hinted = error.hint().is_some_and(|hint| hint.contains(advice));
        assert!(hinted || advice == "division", "{text}: {shown}");
    }
}
