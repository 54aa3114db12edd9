//! Traffic and rules by an attacker: what rules see is what the receiver reads, and nothing is forgotten in silence.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SYN: u8 = 2;
const ACK: u8 = 16;
const RULES: &str = "alert tcp any any -> any 80 (msg:\"stream\"; flow:to_server; content:\"needle\"; sid:1;)\n\
    alert udp any any -> any 53 (msg:\"datagram\"; content:\"needle\"; sid:2;)\n\
    alert http any any -> any any (msg:\"uri\"; http.uri; content:\"/evil\"; startswith; sid:3;)\n\
    alert http any any -> any any (msg:\"name\"; http.header; content:\"X-Evil|3a| yes\"; sid:4;)\n\
    alert http any any -> any any (msg:\"page\"; flow:to_client; file.data; content:\"bad page\"; sid:5;)\n\
    alert http any any -> any any (msg:\"host\"; http.host; content:\"evil.example\"; sid:6;)\n";

/// Frames of a file, and the next numbers of a connection's client and server.
struct Capture {
    frames: Vec<Vec<u8>>,
    next: [u32; 2],
    port: u16,
}

impl Capture {
    fn new() -> Capture {
        Capture { frames: Vec::new(), next: [1000, 9000], port: 40_000 }
    }

    fn segment(&self, to_server: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (client, server) = ([192, 168, 0, 1], [198, 51, 100, 7]);
        let [own, other] = if to_server { self.next } else { [self.next[1], self.next[0]] };
        let packet = match to_server {
            true => Packet::ethernet().ipv4(client, server).tcp(self.port, 80),
            false => Packet::ethernet().ipv4(server, client).tcp(80, self.port),
        };
        packet.seq_ack(own, other).flags(flags).payload(payload).build()
    }

    fn send(&mut self, to_server: bool, flags: u8, payload: &[u8]) {
        self.frames.push(self.segment(to_server, flags, payload));
        let moved = payload.len() as u32 + u32::from(flags & SYN != 0);
        self.next[usize::from(!to_server)] += moved;
    }

    /// A segment with a wrong checksum, which the receiver drops.
    fn show(&mut self, to_server: bool, flags: u8, payload: &[u8]) {
        let mut frame = self.segment(to_server, flags, payload);
        frame[14 + 20 + 16] ^= 0x55;
        self.frames.push(frame);
    }

    fn open(&mut self) {
        self.send(true, SYN, b"");
        self.send(false, SYN | ACK, b"");
        self.send(true, ACK, b"");
    }

    /// Bytes of a direction in segments of a whole packet.
    fn bytes(&mut self, to_server: bool, bytes: &[u8]) {
        for part in bytes.chunks(1400) {
            self.send(to_server, ACK, part);
        }
    }

    fn write(&self, path: &Path) {
        let mut file = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
        file.extend([2, 0, 4, 0]);
        file.extend([0; 8]);
        file.extend(262_144u32.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        for (number, frame) in (0u32..).zip(&self.frames) {
            let length = (frame.len() as u32).to_le_bytes();
            let time = [1_700_000_000 + number / 1_000_000, number % 1_000_000];
            file.extend([time[0].to_le_bytes(), time[1].to_le_bytes(), length, length].concat());
            file.extend(frame);
        }
        std::fs::write(path, file).unwrap();
    }

    /// Sids of the alerts of `fyke ids`, and its summary.
    fn judge(&self, more: &[&str]) -> (Vec<u64>, String) {
        let folder = tempfile::tempdir().unwrap();
        let (capture, rules) = (folder.path().join("in.pcap"), folder.path().join("my.rules"));
        self.write(&capture);
        std::fs::write(&rules, RULES).unwrap();
        let mut args = vec!["ids", "-r", capture.to_str().unwrap()];
        args.extend(["-S", rules.to_str().unwrap(), "--eve", "-"]);
        args.extend(more);
        let output = fyke(&args);
        let summary = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{summary}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let sid = |line: &str| {
            let alert: serde_json::Value = serde_json::from_str(line).unwrap();
            alert["alert"]["signature_id"].as_u64().unwrap()
        };
        (lines.lines().map(sid).collect(), summary)
    }
}

fn fyke(args: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_fyke");
    Command::new(command).args(args).stdin(Stdio::null()).output().expect("fyke runs")
}

#[test]
fn bytes_with_a_wrong_checksum_do_not_replace_those_that_the_receiver_reads() {
    let mut talk = Capture::new();
    talk.open();
    talk.show(true, ACK, b"harmless");
    talk.send(true, ACK, b"a needle");
    let (sids, summary) = talk.judge(&[]);
    assert_eq!(sids, [1], "{summary}");
    assert!(summary.contains("5 frames: 4 judged, 0 fragments of 0 packets, 1 with a wrong"));
    assert_eq!(talk.judge(&["--checksums", "yes"]).0, [1]);
    // The older copy of bytes counts, so without checks the attacker wins.
    assert_eq!(talk.judge(&["--checksums", "no"]).0, [0; 0]);
}

#[test]
fn a_capture_without_right_checksums_is_judged_and_a_right_one_begins_the_flow_again() {
    let mut talk = Capture::new();
    for (to_server, flags, payload) in
        [(true, SYN, &b""[..]), (false, SYN | ACK, b""), (true, ACK, b""), (true, ACK, b"needle")]
    {
        talk.show(to_server, flags, payload);
        talk.next[usize::from(!to_server)] += u32::from(flags & SYN != 0);
    }
    let (sids, summary) = talk.judge(&[]);
    assert_eq!(sids, [1], "{summary}");
    assert!(summary.contains("4 packets with a wrong checksum are judged"), "{summary}");
    let (sids, summary) = talk.judge(&["--checksums", "yes"]);
    assert_eq!(sids, [0; 0]);
    assert!(summary.contains("4 frames: 0 judged, 0 fragments of 0 packets, 4 with a wrong"));
    // An opening and bytes that the receiver drops, before the true ones with the same numbers.
    let mut hidden = Capture::new();
    hidden.show(true, SYN, b"");
    hidden.next[0] += 1;
    hidden.show(true, ACK, b"harmless");
    hidden.next[0] -= 1;
    hidden.open();
    hidden.show(true, ACK, b"harmless");
    hidden.send(true, ACK, b"a needle");
    let (sids, summary) = hidden.judge(&[]);
    assert_eq!(sids, [1], "{summary}");
}

#[test]
fn segments_that_were_joined_before_they_were_captured_are_judged() {
    for (len, sids) in [(2000, vec![1]), (1200, vec![])] {
        let mut talk = Capture::new();
        talk.open();
        let payload = [b"needle".to_vec(), vec![b'x'; len]].concat();
        let mut joined = talk.segment(true, ACK, &payload);
        // The sum of the pseudo-header only.
        let parts = [&joined[26..34], &[0, 6][..], &(20 + payload.len() as u16).to_be_bytes()];
        let sum = !fyke_testkit::packet::checksum(&parts);
        joined[14 + 20 + 16..][..2].copy_from_slice(&sum.to_be_bytes());
        talk.frames.push(joined);
        let (found, summary) = talk.judge(&[]);
        assert_eq!(found, sids, "{len}: {summary}");
        assert_eq!(talk.judge(&["--checksums", "yes"]).0, [0; 0]);
    }
}

#[test]
fn datagrams_and_headers_of_ip_have_checksums_too() {
    let datagram = |payload: &[u8]| {
        let packet = Packet::ethernet().ipv4([192, 168, 0, 1], [198, 51, 100, 7]);
        packet.udp(40_000, 53).payload(payload).build()
    };
    let mut talk = Capture::new();
    let mut wrong = datagram(b"a needle");
    wrong[14 + 20 + 6] ^= 1;
    let mut header = datagram(b"a needle");
    header[14 + 10] ^= 1;
    let mut without = datagram(b"a needle");
    without[14 + 20 + 6..][..2].fill(0);
    talk.frames = vec![datagram(b"right"), wrong, header, without];
    let (sids, summary) = talk.judge(&[]);
    assert_eq!(sids, [2], "{summary}");
    assert!(summary.contains("4 frames: 2 judged, 0 fragments of 0 packets, 2 with a wrong"));
}

#[test]
fn fragments_are_put_together() {
    let payload = [&[0x9c, 0x40, 0, 53, 0, 32, 0, 0][..], b"the needle in fragments."].concat();
    let part = |offset: u16, more: bool, bytes: &[u8]| {
        let packet = Packet::ethernet().ipv4([192, 168, 0, 1], [198, 51, 100, 7]);
        packet.fragment(7, offset, more).ip_payload(17, bytes).build()
    };
    let mut talk = Capture::new();
    talk.frames = vec![part(16, false, &payload[16..]), part(0, true, &payload[..16])];
    let (sids, summary) = talk.judge(&[]);
    assert_eq!(sids, [2], "{summary}");
    assert!(summary.contains("2 frames: 1 judged, 1 fragments of 1 packets"), "{summary}");
}

#[test]
fn a_flood_of_openings_does_not_push_out_an_open_connection() {
    let mut talk = Capture::new();
    talk.open();
    talk.send(true, ACK, b"a need");
    let mut flood = Capture::new();
    for port in 1..8000 {
        flood.port = port;
        flood.send(true, SYN, b"");
    }
    talk.frames.append(&mut flood.frames);
    talk.send(true, ACK, b"le");
    let (sids, summary) = talk.judge(&["--memory", "1"]);
    assert_eq!(sids, [1], "{summary}");
    let forgotten = summary.split("8000 flows (").nth(1).and_then(|rest| rest.split(' ').next());
    let forgotten: u32 = forgotten.expect(&summary).parse().unwrap();
    assert!((6000..8000).contains(&forgotten), "{summary}");
    assert!(!summary.contains("established ones"), "{summary}");
}

#[test]
fn long_heads_are_judged_as_far_as_they_go_and_later_requests_whole() {
    let filler = |bytes: usize| "X-Filler: abcdefghijklmnopqrstuvwxyz\r\n".repeat(bytes / 38);
    let names: String = (0..2000).map(|name| format!("N{name}: v\r\n")).collect();
    let one_line = "a".repeat(100_000);
    for (number, head) in [
        format!(
            "POST /evil/1 HTTP/1.1\r\n{}Host: evil.example\r\nContent-Length: 6\r\n",
            filler(90_000)
        ),
        format!(
            "POST /evil/1 HTTP/1.1\r\n{names}X-Evil: yes\r\nHost: evil.example\r\n\
             Content-Length: 6\r\n"
        ),
        format!("POST /evil/{one_line} HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 6\r\n"),
        format!(
            "POST /evil/ HTTP/1.1\r\nX: {one_line}\r\nHost: evil.example\r\nContent-Length: 6\r\n"
        ),
    ]
    .iter()
    .enumerate()
    {
        for body in ["needle", "GET / "] {
            let mut talk = Capture::new();
            talk.open();
            talk.bytes(true, head.as_bytes());
            talk.bytes(true, format!("\r\n{body}").as_bytes());
            talk.bytes(true, b"GET /evil/2 HTTP/1.1\r\nX-Evil: yes\r\n\r\n");
            let (mut sids, summary) = talk.judge(&[]);
            sids.sort_unstable();
            let mut expected = vec![3, 3, 4, 6];
            expected.extend((number == 1).then_some(4));
            expected.extend((body == "needle").then_some(1));
            expected.sort_unstable();
            assert_eq!(sids, expected, "{number} {body}: {summary}");
            let is_told = summary.contains(", 1 with a head that is judged in part");
            assert_eq!(is_told, number != 1, "{number}: {summary}");
        }
    }
}

#[test]
fn unusual_heads_and_bodies_do_not_end_the_judgement_of_a_connection() {
    let next = "GET /evil/2 HTTP/1.1\r\nHost: x\r\n\r\n";
    for (first, sids) in [
        // A continuation without a field before it, and one of a field.
        ("GET /evil HTTP/1.1\r\n folded: x\r\nX-Evil:\r\n yes\r\n\r\n", vec![3, 4, 3]),
        // Of two lengths, the first counts.
        ("POST /evil HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 99\r\n\r\nabc", vec![3, 3]),
        ("POST /evil HTTP/1.1\r\nContent-Length: x3\r\n\r\nabc", vec![3, 3]),
        // A chunk without a length, a long extension, a line that begins no request.
        ("POST /evil HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n", vec![3, 3]),
        (
            "POST /evil HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;LONG\r\nabc\r\n0\r\n\r\n",
            vec![3, 3],
        ),
        ("GET /evil HTTP/1.1\r\n\r\nnonsense\r\nmore of it\r\n\r\n", vec![3, 3]),
    ] {
        let mut talk = Capture::new();
        talk.open();
        talk.bytes(true, first.replace("LONG", &"e".repeat(3000)).as_bytes());
        talk.bytes(true, next.as_bytes());
        let (found, summary) = talk.judge(&[]);
        assert_eq!(found, sids, "{first}: {summary}");
    }
    // A client reads a response with such a chunk up to the end of the connection.
    let mut talk = Capture::new();
    talk.open();
    talk.bytes(true, b"GET / HTTP/1.1\r\n\r\n");
    talk.bytes(
        false,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\r\nzz\r\n",
    );
    talk.bytes(false, b"a bad page");
    let (found, summary) = talk.judge(&[]);
    assert_eq!(found, [5], "{summary}");
    assert!(summary.contains(", 1 with a chunk without a length"), "{summary}");
}

#[test]
fn rules_that_explode_together_are_bounded_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, rules) = (folder.path().join("in.pcap"), folder.path().join("my.rules"));
    let mut talk = Capture::new();
    let datagram = || {
        let packet = Packet::ethernet().ipv4([192, 168, 0, 1], [198, 51, 100, 7]);
        packet.udp(40_000, 53).payload(&[&[b'a'; 1200][..], b"needle"].concat()).build()
    };
    talk.frames = (0..60).map(|_| datagram()).collect();
    talk.write(&capture);
    let one = |sid: u32| {
        format!("alert udp any any -> any any (pcre:\"/(a*)*(a*)*\\1b{sid}$/\"; sid:{sid};)\n")
    };
    let text: String = (100..200).map(one).collect();
    std::fs::write(&rules, text + RULES).unwrap();
    let output = fyke(&[
        "ids",
        "-r",
        capture.to_str().unwrap(),
        "-S",
        rules.to_str().unwrap(),
        "--eve",
        "-",
        "--records",
        "stats",
    ]);
    let summary = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{summary}");
    assert!(summary.contains("left out or ended early for all rules together"), "{summary}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let alerts = lines.iter().filter(|line| line["alert"]["signature_id"] == 2);
    assert_eq!(alerts.count(), 60, "{summary}");
    let stats = &lines.last().unwrap()["stats"];
    let count = |name: &str| stats[name].as_u64().unwrap();
    assert!(count("over_budget") > 0, "{stats}");
    // As docs/ids.md has it, with the last verification.
    let bytes = 60 * (14 + 20 + 8 + 1206);
    assert!(count("work") <= (1 << 24) + 4096 * 60 + 128 * bytes + (1 << 20), "{stats}");
}

#[test]
fn overlapping_segments_are_read_as_the_receiver_does() {
    let mut talk = Capture::new();
    talk.open();
    let begin = talk.next[0];
    // The bytes after a gap come twice; then the gap is filled.
    for bytes in [&b"harmless"[..], b"needle!!"] {
        talk.next[0] = begin + 2;
        talk.send(true, ACK, bytes);
    }
    talk.next[0] = begin;
    talk.send(true, ACK, b"a ");
    talk.next[0] = begin + 10;
    talk.send(true, ACK, b" end");
    assert_eq!(talk.judge(&[]).0, [0; 0]);
    assert_eq!(talk.judge(&["--policy", "last"]).0, [1]);
    assert_eq!(talk.judge(&["--policy", "last@198.51.100.0/24"]).0, [1]);
    assert_eq!(talk.judge(&["--policy", "last@192.168.0.0/16"]).0, [0; 0]);
    let output = fyke(&["ids", "-r", "x", "-S", "y", "--policy", "newest"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--policy newest: unknown policy; expected NAME"), "{error}");
}

#[test]
fn a_file_of_junk_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let junk = folder.path().join("junk.rules");
    let good = "alert tcp any any -> any 80 (content:\"needle\"; sid:1;)\n";
    let long = "y".repeat(3 << 20);
    std::fs::write(&junk, format!("{}{good}{long}\n", "junk\n".repeat(1_500_000))).unwrap();
    let limited = "ulimit -v 400000; exec \"$0\" snort2ruler \"$1\" --report json";
    let mut command = Command::new("bash");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_fyke"), junk.to_str().unwrap()]);
    let output = command.output().expect("bash runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let refused = report["refused"].as_array().unwrap();
    assert_eq!(
        (report["rules"].as_u64(), report["translated"].as_u64()),
        (Some(1_500_002), Some(1))
    );
    assert_eq!(refused.len(), 10_000);
    assert_eq!(report["refused_more"], 1_490_001);
    assert_eq!(refused[9_999]["line"], 10_000);
}

/// The file of alerts is moved away and opened again.
const ROTATED: &str = r#"
    set -eu
    ip link set lo up
    udp() { echo "$1" > /dev/udp/127.0.0.1/53; }
    "$FYKE" ids -i lo -S my.rules --eve eve.json 2> ids.log &
    pid=$!
    answers
    udp "needle one"
    wait_for test -s eve.json
    # A file that was not moved is opened again, too.
    test "$(wc -l < eve.json)" = 1
    kill -HUP $pid
    "$FYKE" ctl show > /dev/null
    mv eve.json old.json
    kill -HUP $pid
    wait_for test -e eve.json
    udp "needle two"
    wait_for test -s eve.json
    kill -INT $pid
    wait $pid
    test "$(wc -l < old.json)" = 1
    test "$(wc -l < eve.json)" = 1
"#;

#[test]
fn a_signal_opens_the_file_of_alerts_again() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("my.rules"), RULES).unwrap();
    let script = Script::new(env!("CARGO_BIN_EXE_fyke"), folder.path());
    let Some(output) = script.run(ROTATED) else { return };
    let log = std::fs::read_to_string(folder.path().join("ids.log")).unwrap_or_default();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{log}{error}");
    assert!(!log.contains("cannot open"), "{log}");
}
