//! Hostile streams through the built command: SYN floods, holes, resets and ends anywhere, contradicting repetitions.
//! Memory depends on the limits, not on the length of the capture, and every frame is accounted for.

use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use fyke_testkit::random::Random;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const RULES: &str = "filter hide\n\
    before:* \"PA\" word:[^\\r\\n]{1,64} rest:** => before \"PA\" fill(word, \"x\") hide(rest);\n\
    * => accept;\n";

const GRAPH: &str = "(pcapin, -) > (tcp, connections=1000, memory=1000000, held=65536, gap=1) > \
    [[(strsearch, needle, stream=y, conversation=y, waiting=1000000) > (packetcount)] | \
    [(ruler, hide.rul, stream=y, waiting=1000000, wait=2) > (packetcount)]]";

/// Number of frames of a block of the capture.
const BLOCK: usize = 20_000;

fn frame(random: &mut Random) -> Vec<u8> {
    let [a, b] = (random.below(9) as u16 * u16::from(!random.chance(3))).to_be_bytes();
    let (host, port) =
        (if b == 0 { random.below(250) as u8 } else { b }, random.below(60_000) as u16);
    let port = if b == 0 { port } else { 7 };
    let packet = Packet::ethernet().ipv4([10, 0, a, host], [10, 1, 0, 1]);
    let flags = random.pick(&[0x02, 0x12, 0x10, 0x18, 0x18, 0x18, 0x18, 0x11, 0x14, 0x04, 0x29]);
    let edge = random.pick(&[0, 1, u32::MAX, 1 << 31, 100, 70_000]);
    let sequence = edge.wrapping_add(random.below(3_000) as u32);
    let letter = random.pick(b"PPAAneedl\r");
    let payload: Vec<u8> =
        (0..random.below(700)).map(|at| if at % 7 < 3 { letter } else { b'A' }).collect();
    if random.chance(20) {
        return packet.fragment(random.below(9) as u16, 0, true).ip_payload(6, &payload).build();
    }
    let acknowledged = edge.wrapping_add(random.below(70_000) as u32);
    packet.tcp(port, 80).seq_ack(sequence, acknowledged).flags(flags).payload(&payload).build()
}

/// Runs the command over that many blocks; returns the most memory that it had, in bytes.
fn peak(folder: &Path, blocks: usize) -> u64 {
    let (mut random, seed) = Random::seeded(77);
    println!("seed {seed}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.current_dir(folder).args(["run", "--stats", "--no-control", GRAPH]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let (mut now_ns, mut peak) = (0, 0);
    for block in 0..blocks {
        let records: Vec<_> = (0..BLOCK)
            .map(|_| {
                now_ns += 50_000;
                let data = frame(&mut random);
                pcap::Record { timestamp_ns: now_ns, wire_len: data.len() as u32, data }
            })
            .collect();
        let bytes = pcap::encode(1, &records, pcap::Layout::default());
        // The header of the file is there once.
        input.write_all(if block == 0 { &bytes } else { &bytes[24..] }).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        let number = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        peak = number.map_or(peak, |kilobytes: u64| peak.max(kilobytes * 1024));
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let seen = format!("{} seen = ", blocks * BLOCK);
    assert!(said.contains(&seen) && said.contains("+ 0 lost"), "{said}");
    peak
}

#[test]
fn memory_does_not_grow_with_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hide.rul"), RULES).unwrap();
    // 16 and 80 MB; with `FYKE_FULL=1`, 10 GB.
    let full = std::env::var_os("FYKE_FULL").is_some();
    let [short, long] =
        [2, if full { 1_300 } else { 10 }].map(|blocks| peak(folder.path(), blocks));
    println!("{short} and {long} bytes");
    assert!(long < short + short / 4 + (8 << 20), "{short} and {long} bytes");
}
