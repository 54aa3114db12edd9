//! Frames that the interface drops before the capture: shown beside the sum by every capturing command. The built
//! command on a real interface, in namespaces of its own.

mod common;

use common::{FYKE, Running, datagram, folder, inside, send, tool, veth};
use fyke_lab::net::sys::send::PacketSender;
use std::process::{Command, Stdio};

/// Sends frames that the other end drops, because they are longer than its MTU permits.
fn send_oversized(count: usize) {
    let sender = PacketSender::open("v0").unwrap();
    let frame = datagram(5_001, 4_000);
    for _ in 0..count {
        // The sender hears of the drop.
        assert!(sender.send(&[&frame]).is_err());
    }
}

#[test]
fn what_the_interface_dropped_is_shown_beside_the_sum() {
    if !inside("what_the_interface_dropped_is_shown_beside_the_sum") {
        return;
    }
    veth();
    tool("ip link set v0 mtu 9000");
    let (_folder, at) = folder();
    let file = at("f.pcap");
    let file = file.to_str().unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["dump", "-i", "v1", "-w", file], "listening on"),
        (&["track", "ftp", "-i", "v1", "-w", file], "listening on"),
        (&["demux", "-i", "v1", "udp => count"], "listening on"),
        (&["run", "(device,v1) > {some}(packetcount,export=y)"], "running"),
    ];
    for (words, ready) in cases {
        for (stats, oversized) in [(false, 0), (false, 5), (true, 0), (true, 5)] {
            let mut command = Command::new(FYKE);
            let option = if stats { &["--stats"][..] } else { &[] };
            command.args(&words[..1]).args(option).args(&words[1..]).stdout(Stdio::null());
            let mut running = Running::start(&mut command);
            running.hear(ready);
            send(10, 100);
            send_oversized(oversized);
            running.signal("INT");
            assert!(running.end().success(), "{}", running.said());
            let said = running.said();
            assert_eq!(running.sum().seen, 10, "{words:?}: {said}");
            let line = format!(
                "{oversized} packets dropped by interface v1, not in the sum ({oversized} rx_dropped \
                 + 0 rx_missed_errors)"
            );
            let is_shown = stats || oversized > 0;
            assert_eq!(said.lines().any(|said| said == line), is_shown, "{words:?}: {said}");
            assert_eq!(said.contains("squeezed"), stats, "{words:?}: {said}");
            // A veth pair merges the segments that its own end sends.
            let advice = "warning: v1 merges frames (";
            assert_eq!(said.contains(advice), stats, "{words:?}: {said}");
        }
    }
    tool("ethtool -K v1 tso off gso off gro off");
    let running = Running::dump(&["--stats", "-w", file], Stdio::null());
    assert!(!running.said().contains("merges frames"), "{}", running.said());
}

#[test]
fn a_file_has_no_interface() {
    let (_folder, at) = folder();
    let frames = vec![datagram(5_001, 10); 3];
    std::fs::write(at("in.pcap"), fyke_testkit::pcap::file(1, &frames)).unwrap();
    let words = ["dump", "--stats", "--count", "-r"];
    let output = Command::new(FYKE).args(words).arg(at("in.pcap")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("3 seen"), "{said}");
    assert!(!said.contains("dropped by"), "{said}");
}
