//! `fyke explain`: every typical filter is explained with instructions and cost for each primitive; common
//! misunderstandings get a note; witness packets are built for link types with IP.

use fyke_testkit::corpus::Corpus;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A limit that is much longer than any run takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn explain(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fyke")).arg("explain").args(args).output().unwrap()
}

fn shown(args: &[&str]) -> String {
    let output = explain(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_unknown_link_type_is_answered_with_those_that_are_decoded() {
    let output = explain(&["--link", "NONSENSE", "tcp"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("known: EN10MB, RAW, IPV4, "), "{said}");
    assert!(said.contains(", NETANALYZER_TRANSPARENT. Other libpcap names work too"), "{said}");
}

#[test]
fn every_real_filter_is_explained() {
    let filters = Corpus::open().real_filters();
    assert!(filters.len() > 100);
    for (text, link) in filters {
        let start = Instant::now();
        let table = shown(&["--link", &link, "--", &text]);
        assert!(start.elapsed() < PATIENCE, "{text}: {:?}", start.elapsed());
        // Each primitive shows its instructions; expressions that accept everything have none.
        assert!(table.contains("read as") && table.contains("runs as"), "{text}: {table}");
        assert!(table.contains("  by ") || table.contains("every frame"), "{text}: {table}");
    }
}

#[test]
fn primitives_have_their_instructions_and_cost() {
    let table = shown(&["ip and len > 100"]);
    assert!(table.contains("by ethertype = ip (D_SEQ [12:2])"), "{table}");
    assert!(table.contains("by wire length at least 101 (LEN_RNG)"), "{table}");
    let json = shown(&["--json", "tcp port 80 or arp"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["primitives"][0]["text"], "tcp port 80");
    assert_eq!(json["primitives"][0]["span"], serde_json::json!([0, 11]));
    assert_eq!(json["primitives"][0]["passes"].as_array().unwrap().len(), 2);
    assert_eq!(json["primitives"][1]["tests"], 1);
}

#[test]
fn alternatives_of_one_kind_are_one_line() {
    let table = shown(&["ip and tcp port (22 or 80 or 443)"]);
    assert!(table.contains("tcp port 22, 80 or 443 ") && !table.contains("any of"), "{table}");
    assert!(table.contains("and port in {22, 80, 443} "), "{table}");
    let table = shown(&["not host 10.0.0.1 and not host 10.0.0.2 and tcp"]);
    assert!(table.contains("not\n") && table.contains("host 10.0.0.1 or 10.0.0.2 "), "{table}");
    // Hosts joined by "and" are not alternatives.
    assert!(!shown(&["host 10.0.0.1 and host 10.0.0.2"]).contains("10.0.0.1 or"));
    let hosts: Vec<String> = (0..100).map(|host| format!("host 10.0.0.{host}")).collect();
    let table = shown(&[&hosts.join(" or ")]);
    assert!(table.contains("10.0.0.11, … (100 in all)") && table.contains("each by "), "{table}");
}

#[test]
fn places_have_the_names_of_what_the_pass_says_is_there() {
    let table = shown(&["ip6 proto 77"]);
    let fragment = "ip6 fragment (D_LEQ_M [12:4]) and ip6 fragment's protocol = 77 (D_SMEQ [54:1])";
    assert!(table.contains(fragment), "{table}");
    let table = shown(&["ether src 00:01:02:03:04:06 and tcp[4:4] = 12345678"]);
    assert!(table.contains("ether src 00:01:02:03:04:06 (D_LEQ_M [6:4])"), "{table}");
    assert!(table.contains("[ip end+4:4] = 0x00bc614e"), "{table}");
    assert!(shown(&["vlan and ip src host 10.0.0.1"]).contains("after the tag ip src = 10.0.0.1"));
    // After ICMP there are no ports, and without a fragment there is no test for one.
    assert!(!shown(&["icmp6[0] = 3"]).contains("fragment"));
    for text in ["icmp[0] = 11 and icmp[1] = 0", "icmp6[0] = 3 and icmp6[1] = 1", "ip[42:2] = 22"] {
        assert!(!shown(&[text]).contains("port"), "{text}: {}", shown(&[text]));
    }
}

#[test]
fn traps_are_named() {
    for (text, note) in [
        ("tcp or udp and port 53", "this is \"(tcp or udp) and port 53\""),
        (
            "vlan or tcp port 80",
            "after \"vlan\", the rest of the expression applies after that header",
        ),
        ("not (mpls and ip) and udp", "after \"mpls\""),
        ("tcp[0] = 1", "read IPv4 packets only"),
        ("ip6 proto 50", "\"ip6 protochain\" follows all extension headers"),
        ("less 64", "\"less 64\" means 64 or less"),
        ("host 10.0.0.1", "also finds the address in ARP and RARP"),
        ("port http", "the name \"http\" also requires TCP"),
        ("ip[8] - 5 < 0", "this comparison is never true"),
    ] {
        let table = shown(&[text]);
        assert!(table.contains("note    ") && table.contains(note), "{text}: {table}");
    }
    for text in ["(tcp or udp) and port 53", "vlan 5 and tcp port 80", "tcp and udp port 53 or arp"]
    {
        assert!(!shown(&["--link", "EN10MB", text]).contains("note    "), "{text}");
    }
}

#[test]
fn readings_are_told_apart_on_link_types_that_carry_ip() {
    for (link, text) in [
        ("EN10MB", "vlan or tcp port 80"),
        ("RAW", "udp port 53"),
        ("LINUX_SLL", "udp port 53"),
        ("LINUX_SLL2", "tcp port 80"),
        ("NULL", "udp port 53"),
        ("LOOP", "udp port 53"),
        ("PPP", "udp port 53"),
        ("C_HDLC", "tcp port 80"),
        ("IEEE802_11", "tcp port 80"),
        ("IEEE802_11_RADIO", "udp port 53"),
    ] {
        let packet = shown(&["--link", link, "--witness", text]);
        let apart =
            ["compat accepts", "scoped accepts"].iter().filter(|who| packet.contains(**who));
        assert_eq!(apart.count(), 1, "{link} {text}: {packet}");
    }
    let refused = explain(&["--link", "USBPCAP", "--witness", "len > 5"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_picture_shows_the_passes_and_where_they_run() {
    let drawn = shown(&["--svg", "tcp dst port 80 or tcp dst port 443 && len < 900"]);
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    for part in
        ["&amp;&amp; len &lt; 900", "a frame is accepted if", ">live in<", "and the kernel as eBPF"]
    {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
    let json: serde_json::Value = serde_json::from_str(&shown(&[
        "--json",
        "tcp dst port 80 or tcp dst port 443 && len < 900",
    ]))
    .unwrap();
    let passes = json["passes"].as_array().unwrap();
    let cells = passes.iter().flat_map(|pass| pass["instructions"].as_array().unwrap()).count();
    assert_eq!(drawn.matches("<rect x=").count(), cells, "a cell for each instruction");
    let many: Vec<_> = (1..60).map(|n| format!("(udp port {n} and host 10.0.0.{n})")).collect();
    let long = shown(&["--svg", &many.join(" or ")]);
    assert!(long.contains("more of this form") && long.len() < 200_000, "{long}");
    assert_eq!(explain(&["--svg", "--json", "tcp"]).status.code(), Some(2));
    assert_eq!(explain(&["--svg", "tcp prot 1"]).status.code(), Some(2));
}
