//! Texts that no frame can match are refused where libpcap 1.10.3 refuses them, and nowhere else.

use fyke_filter::{Options, Predicate, compile};
use fyke_frame::{Frame, LinkType};

#[test]
fn contradictions_that_libpcap_sees() {
    for text in [
        "ip and arp",
        "tcp[0] = 1 and ip6",
        "tcp and udp",
        "(ip or ip6) and len > 60 and arp",
        "ip[9] = 6 and ip[9] = 17",
        "not tcp and tcp",
        "1 = 2",
        "port 80 and not port 80",
        "ip[0] & 0xf = 5 and ip[0] & 0xf = 6",
        "vlan and ip and arp",
    ] {
        let error = compile(text, &Options::default()).expect_err(text);
        assert_eq!(error.message(), "no frame can match this filter", "{text}");
    }
}

#[test]
fn contradictions_that_it_does_not_see() {
    for text in [
        "ip[9] = 6 and ip proto 17",
        "ip and 1 + 1 = 3",
        "len > 5 and len < 3",
        "less 5 and greater 10",
    ] {
        compile(text, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_division_by_zero_counts_where_a_frame_comes_by() {
    assert!(compile("ip[0] / (1 - 1) = 1", &Options::default()).is_err());
    assert!(compile("ip[0] / (1 - 1) = ip[1] or ip", &Options::default()).is_ok());
    // Zero divided by a value that is found to be zero only later is zero.
    assert!(compile("len = 0 % 4 << ip[24:2] & 0", &Options::default()).is_ok());
    assert!(compile("len = 1 % 4 << ip[24:2] & 0", &Options::default()).is_err());
}

/// Rules found by long runs against libpcap; each text is minimal.
#[test]
fn rules_of_single_link_types() {
    let on = |name: &str| {
        let link = LinkType::from_name(name).expect(name);
        Options { link, ..Options::default() }
    };
    // After per-packet information the optimiser runs as usual.
    let error = compile("len >> (- 10) <= 273", &on("PPI")).unwrap_err();
    assert_eq!(error.message(), "shift by more than 31 bits");
    assert!(compile("link[0] = 1 and link[0] = 2", &on("PPI")).is_err());
    // In a text that begins with a constant of the link type, a part without effect is never
    // reached.
    assert!(compile("ip6 or len % (1 - 1) = len or not ip6", &on("LTALK")).is_ok());
    assert!(compile("len % (1 - 1) = len or not ip6", &on("LTALK")).is_err());
}

#[test]
fn both_ends_of_a_port_range_are_asked() {
    // "At least 0" is a test too, so libpcap does not see that this text accepts everything: it
    // reads the frame.
    let text = "not udp src portrange 443-443 or udp src portrange 0-443";
    let predicate = compile(text, &Options::default()).unwrap();
    assert!(predicate.holds(&Frame::new(LinkType::EN10MB, &[0; 6])).is_err());
    assert!(predicate.accepts(&Frame::new(LinkType::EN10MB, &[0; 60])));
}

#[test]
fn what_accepts_every_frame_may_still_read_it() {
    // Libpcap's optimiser inverts tests of bits for zero and confuses their outcomes after other
    // tests: it does not see that the first text accepts everything, and both its programs reject a
    // frame without the byte.
    let link = LinkType::from_name("JUNIPER_FRELAY").unwrap();
    let accepts = |text: &str, bytes: &[u8]| {
        let predicate = compile(text, &Options { link, ..Options::default() }).unwrap();
        predicate.accepts(&Frame::new(link, bytes))
    };
    for (text, on_nothing) in [
        ("outbound or udp or not outbound", false),
        ("not outbound or udp or outbound", false),
        ("outbound or not outbound", true),
        ("inbound or udp or not inbound", true),
    ] {
        assert_eq!(accepts(text, &[0x4d]), on_nothing, "{text}");
        assert!(accepts(text, &[0; 60]) && accepts(text, &[1; 60]), "{text}");
    }
}

#[test]
fn any_address_of_a_version_asks_for_the_version_at_each_end() {
    // After two paths to "it is IPv6" libpcap does not know that it is: the last term is evaluated,
    // and reads the frame.
    let text = "not (ip6 and udp) and byte 5 = 9 or not ip6 net ::/0 or not (byte 1 = 0 and ip)";
    let predicate = compile(text, &Options::default()).unwrap();
    assert!(!predicate.accepts(&Frame::new(LinkType::EN10MB, &[0; 5])));
    assert!(predicate.accepts(&Frame::new(LinkType::EN10MB, &[0; 60])));
    // With one path libpcap knows it.
    let text =
        "not (ip6 and udp) and byte 5 = 9 or not ip6 dst net ::/0 or not (byte 1 = 0 and ip)";
    let predicate = compile(text, &Options::default()).unwrap();
    assert!(predicate.accepts(&Frame::new(LinkType::EN10MB, &[0; 5])));
}

#[test]
fn predicates_go_anywhere() {
    fn everywhere<T: Clone + Send + Sync + 'static>() {}
    everywhere::<Predicate>();
}
