//! The programs of `fyke dump -d` accept what those of `tcpdump -d` accept, whatever their instructions are.

use fyke_frame::{Frame, LinkType};
use fyke_machine::bpf::run::{Outcome, Program};
use fyke_machine::bpf::{Dialect, numbers};
use fyke_testkit::corpus::Corpus;
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

const EXPRESSIONS: &[&str] = &[
    "",
    "ip",
    "tcp port 80 or udp port 53",
    "host 10.0.0.1 and not port 22",
    "net 192.168.0.0/16",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "ip[2:2] > 576",
    "ether broadcast or ether multicast",
    "arp or icmp or icmp6",
    "vlan and ip",
    "less 100",
    "portrange 1000-2000",
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
];

/// Compiles an expression with a program and its arguments; `None` if the program is missing.
fn program(command: &str, words: &[&str]) -> Option<Program> {
    let output = Command::new(command).args(words).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {words:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(Program::new(numbers::read(&text).unwrap(), Dialect::Bpf).unwrap())
}

#[test]
fn the_programs_accept_the_same() {
    let corpus = Corpus::open();
    let mut frames = Vec::new();
    for path in corpus.busy() {
        if let Some((1, more)) = Corpus::frames(&path, 2000) {
            frames.extend(more);
        }
    }
    assert!(frames.len() > 500, "{}", frames.len());
    let mut accepted = 0;
    for expression in EXPRESSIONS {
        let Some(theirs) = program("tcpdump", &["-ddd", expression]) else {
            return println!("skipped: no tcpdump to compare with");
        };
        let plain = program(FYKE, &["dump", "-ddd", expression]).unwrap();
        let unoptimised = program(FYKE, &["dump", "-ddd", "-O", expression]).unwrap();
        for data in &frames {
            let frame = Frame::new(LinkType::EN10MB, data);
            let expected = theirs.run(&frame);
            assert_eq!(plain.run(&frame), expected, "{expression}: {data:02x?}");
            assert_eq!(unoptimised.run(&frame), expected, "-O {expression}: {data:02x?}");
            accepted += usize::from(expected != Outcome::Reject);
        }
    }
    assert!(accepted > 1000, "{accepted}");
}
