//! `fyke dump -w tcp:ADDRESS:PORT`: tshark and tcpdump read the frames of a running capture over TCP.

mod common;

use common::{FYKE, Running, inside, send, tool, veth};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const ADDRESS: &str = "127.0.0.1:57012";

fn capture() -> Running {
    veth();
    tool("ip link set lo up");
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", "v1", "-w", &format!("tcp:{ADDRESS}"), "udp port 5001"]);
    let capture = Running::start(command.stdout(Stdio::null()));
    capture.hear("listening on");
    capture
}

/// Waits until the node reports this number of clients.
fn await_clients(capture: &Running, count: u64) {
    for _ in 0..400 {
        let stats: serde_json::Value =
            serde_json::from_str(&capture.ctl(&["stats", "--json"])).unwrap();
        let counters = stats["nodes"].to_string();
        if counters.contains(&format!("\"clients\",\"value\":{count}"))
            || counters.contains(&format!("\"clients\":{count}"))
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no {count} clients: {}", capture.ctl(&["stats", "--json"]));
}

#[test]
fn tshark_and_tcpdump_read_a_running_capture() {
    if !inside("tshark_and_tcpdump_read_a_running_capture") {
        return;
    }
    let mut capture = capture();
    let through_bash = format!(
        "exec 3<> /dev/tcp/{}; exec timeout 60 tcpdump -nqt -r - -c 50 <&3",
        ADDRESS.replace(':', "/")
    );
    let tcpdump = Command::new("bash").args(["-c", &through_bash]).stdout(Stdio::piped()).spawn();
    let tshark = Command::new("timeout")
        .args(["60", "tshark", "-n", "-i", &format!("TCP@{ADDRESS}"), "-c", "50", "-T", "fields"])
        .args(["-e", "udp.dstport"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let (tcpdump, tshark) = (tcpdump.unwrap(), tshark.unwrap());
    await_clients(&capture, 2);
    // Every second datagram has port 5001.
    send(100, 100);
    let read = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let lines = read(tcpdump);
    assert_eq!(lines.lines().filter(|line| line.contains(".5001: UDP")).count(), 50, "{lines}");
    assert_eq!(read(tshark).lines().filter(|line| *line == "5001").count(), 50);
    capture.signal("INT");
    assert!(capture.end().success(), "{}", capture.said());
    let told = capture.said();
    assert!(told.contains("100 frames sent to clients, 0 lost by slow ones"), "{told}");
    assert!(told.contains("+ 0 lost"), "{told}");
}

#[test]
fn a_client_that_never_reads_does_not_hold_up_the_end() {
    if !inside("a_client_that_never_reads_does_not_hold_up_the_end") {
        return;
    }
    let mut capture = capture();
    let mut client = TcpStream::connect(ADDRESS).unwrap();
    await_clients(&capture, 1);
    send(20, 100);
    capture.signal("INT");
    assert!(capture.end().success(), "{}", capture.said());
    // The operating system has them.
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() > 10 * 100, "{}", bytes.len());
    assert!(capture.said().contains("10 frames sent to clients, 0 lost"), "{}", capture.said());
}

/// Clients that have sent something and left do not keep the seats, though no frame is written to them.
#[test]
fn clients_that_have_left_make_room() {
    if !inside("clients_that_have_left_make_room") {
        return;
    }
    let mut capture = capture();
    for _ in 0..16 {
        TcpStream::connect(ADDRESS).unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    }
    await_clients(&capture, 16);
    let mut client = TcpStream::connect(ADDRESS).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut head = [0; 4];
    client.read_exact(&mut head).expect("the begin of the stream");
    assert_eq!(head, 0x0a0d_0d0a_u32.to_ne_bytes());
    drop(client);
    capture.signal("INT");
    assert!(capture.end().success(), "{}", capture.said());
}

#[test]
fn what_cannot_be_streamed_is_refused() {
    let refused = |args: &[&str]| {
        let output = Command::new(FYKE).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/readme/lan.pcap");
    let (code, told) = refused(&["dump", "-r", file, "-w", "tcp:nowhere"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("such as tcp:127.0.0.1:57012"), "{told}");
    let (code, told) = refused(&["dump", "-r", file, "-w", "tcp:57012", "-C", "1"]);
    assert!(code != Some(0) && told.contains("rotation needs a file name"), "{code:?} {told}");
    let (code, told) = refused(&["dump", "-r", file, "-w", "tcp:57012", "--compress", "gzip"]);
    assert!(code != Some(0) && told.contains("later clients"), "{code:?} {told}");
}
