//! `fyke machine` and the classes `mpf` and `cspf` in typical use: verdicts that add up, values per program, options
//! that take effect or are refused.

use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HERE: [u8; 4] = [10, 0, 0, 1];

/// Recalls byte 14 of a frame and byte 15, whichever was registered; frames of kind 1 register one of them.
const TWO: &str = "begin
        ldb [12]
        jeq #1, REG, L
L:      jeq #2, USE, F
REG:    ldb [13]
        st M[0]
        jmp_match_imm #1, Y, F
        key #who
Y:      ldb [14]
        st M[0]
        register_data #1, #10000
        ret #ALL
USE:    ldb [14]
        st M[0]
        ret_match_data #1, #ALL
        ldb [15]
        st M[0]
        ret_match_data #1, #ALL
        postpone #10000
F:      ret #0
";

const PORT: &str = "begin\nldh [36]\njeq #port, Y, N\nY: ret #ALL\nN: ret #0\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let paper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/machine");
        for name in ["appendix_a.bpf", "appendix_b.mpf", "figure3.mpf"] {
            std::fs::copy(paper.join(name), folder.path(name)).unwrap();
        }
        folder.write("two.mpf", TWO);
        folder.write("port.mpf", PORT);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn frames(&self, frames: &[Vec<u8>]) {
        std::fs::write(self.path("in.pcap"), pcap::file(1, frames)).unwrap();
    }

    fn fyke(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
        command.current_dir(self.0.path()).args(line.split_whitespace()).output().unwrap()
    }

    fn out(&self, line: &str) -> String {
        let output = self.fyke(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}\n{error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, line: &str, part: &str) {
        let output = self.fyke(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}\n{error}");
        assert!(error.contains(part), "{line}: no {part:?} in {error}");
        assert_eq!(output.stdout, b"", "{line}");
    }
}

fn of_kind(kind: u8, rest: [u8; 3]) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..16].copy_from_slice(&[kind, rest[0], rest[1], rest[2]]);
    frame
}

/// TCP from 10.0.0.`host`, port 4000, to a port.
fn tcp(host: u8, port: u16) -> Vec<u8> {
    Packet::ethernet().ipv4([10, 0, 0, host], HERE).tcp(4000, port).payload(&[7; 10]).build()
}

/// Three fragments of such a packet, the first one last.
fn fragments(host: u8) -> Vec<Vec<u8>> {
    let packet = || Packet::ethernet().ipv4([10, 0, 0, host], HERE);
    let rest =
        |part: u16| packet().fragment(7, part * 24, part < 2).ip_payload(6, &[2; 24]).build();
    let first = packet().fragment(7, 0, true).tcp(4000, 80).payload(&[1; 4]).build();
    vec![rest(2), rest(1), first]
}

#[test]
fn a_packet_that_missed_two_data_comes_with_either() {
    let folder = Folder::new();
    let (early, late) = (of_kind(1, [9, 5, 0]), of_kind(2, [0, 5, 6]));
    for (frames, accepted) in [
        (vec![early.clone(), late.clone(), late.clone()], 3),
        (vec![late.clone(), late.clone(), early], 3),
        (vec![late.clone(), late.clone(), of_kind(1, [9, 6, 0])], 3),
        (vec![late.clone(), late, of_kind(1, [8, 6, 0])], 0),
    ] {
        folder.frames(&frames);
        let lines = format!("accept\t{accepted}\nreject\t{}\n", 3 - accepted);
        assert_eq!(folder.out("machine run -D who=9 two.mpf -r in.pcap"), lines);
        assert_eq!(
            folder.out("machine run --count two.mpf:who=9 -r in.pcap"),
            format!("{accepted}\n")
        );
    }
}

#[test]
fn every_recipient_is_counted_and_lines_add_up() {
    let folder = Folder::new();
    let mut frames = [fragments(2), fragments(3), fragments(4)].concat();
    frames.extend([tcp(2, 80), tcp(5, 80), tcp(2, 81)]);
    folder.frames(&frames);
    let own = |host: u8| format!("appendix_b.mpf:src_addr=10.0.0.{host}");
    let shared = "-D dest_addr=10.0.0.1 -D src_port=4000 -D dst_port=80";
    let run = |rest: &str| folder.out(&format!("machine run {shared} {rest} -r in.pcap"));
    let (two, three) = (own(2), own(3));
    // Twice the same keys in a group: late fragments go to both. Whole packets too.
    let both = format!("{two}#1+{two}#3");
    let expected = format!("{three}\t3\n{two}#1\t0\n{both}\t4\n{two}#3\t0\nreject\t5\n");
    let mut lines: Vec<_> = expected.lines().collect();
    lines.sort_unstable();
    assert_eq!(run(&format!("{two} {three} {two}")).lines().collect::<Vec<_>>(), lines);
    // A program without a match accepts fragments at once that a group has postponed.
    folder.write("tcp.bpf", "ldb [23]\njeq #6, Y, N\nY: ret #1\nN: ret #0\n");
    let expected = "appendix_b\t0\nreject\t0\ntcp\t8\ntcp+appendix_b\t4\n";
    assert_eq!(run(&format!("tcp.bpf {two}")), expected);
    assert_eq!(run(&format!("--count tcp.bpf {two}")), "12\n");
    assert_eq!(run(&format!("--count {two}")), "4\n");
    // The graph gives the same result.
    let graph = format!(
        "(pcapin,in.pcap)>[{{m}}(mpf,expression=tcp.bpf,expression=\"{two},{}\")-1->\
         {{one}}(packetcount,export)]|[{{m}}()-2->{{two}}(packetcount,export)]|[{{m}}()>\
         {{all}}(packetcount,export)]",
        "dest_addr=10.0.0.1,src_port=4000,dst_port=80"
    );
    let counts = folder.out(&format!("run --no-control {graph}"));
    for line in ["one\tpackets\t12\n", "two\tpackets\t4\n", "all\tpackets\t12\n"] {
        assert!(counts.contains(line), "{counts}");
    }
}

#[test]
fn the_first_word_decides_and_translated_is_interpreted() {
    let folder = Folder::new();
    folder.frames(&[tcp(2, 80), tcp(2, 81), tcp(3, 80), tcp(2, 80), vec![0; 60]]);
    let values = "dst_addr=10.0.0.1,src_addr=10.0.0.2,src_port=4000,dst_port=80";
    folder.write("stack.cspf", "pushword P[18]\npushlit | eq #port\n");
    let all =
        format!("figure3.mpf:{values} appendix_a.bpf:{values} stack.cspf:port=80 port.mpf:port=81");
    let expected = "appendix_a\t0\nfigure3\t0\nfigure3+appendix_a+stack\t2\nport\t1\n\
                    reject\t1\nstack\t1\n";
    for option in ["", "--interpret"] {
        assert_eq!(folder.out(&format!("machine run {option} {all} -r in.pcap")), expected);
    }
    folder.write("unmarked", "ldh [36]\nst M[0]\nret_match_imm #1, #ALL\nkey #80\n");
    folder.refused("machine run unmarked -r in.pcap", "--isa mpf");
    assert_eq!(folder.out("machine run --isa mpf --count unmarked -r in.pcap"), "3\n");
    folder.write("unclear", "and #1\nret #1\n");
    folder.refused("machine check unclear", "`and` is an instruction of several machines");
    folder.write("nothing", "frobnicate\n");
    folder.refused("machine check nothing", "--isa cspf, bpf or mpf");
    folder.write(
        "literal.mpf",
        "begin\nldh [20]\nand #!0x4000\njeq #0, Y, N\nY: ret #ALL\nN: ret #0\n",
    );
    assert_eq!(folder.out("machine run --count literal.mpf -r in.pcap"), "5\n");
}

#[test]
fn what_would_do_nothing_is_refused() {
    let folder = Folder::new();
    folder.frames(&[tcp(2, 80)]);
    for action in ["asm", "disasm", "check"] {
        let line = |option: &str| format!("machine {action} {option} port.mpf:port=80");
        folder.refused(&line("-r in.pcap"), "use `machine run`");
        folder.refused(&line("--count"), "use `machine run`");
        folder.refused(&line("--interpret"), "use `machine run`");
    }
    let advice = "use `machine asm` or `machine disasm`";
    folder.refused("machine run --format c port.mpf:port=80 -r in.pcap", advice);
    folder.refused("machine check --format c port.mpf:port=80", advice);
    folder.refused("machine run port.mpf:port=80", "-r FILE");
    for isa in ["", "--isa bpf", "--isa mpf"] {
        let line = format!("machine run {isa} --little-endian port.mpf:port=80 -r in.pcap");
        folder.refused(&line, "--little-endian is for programs of CSPF");
    }
    let run = |values: &str| format!("machine run {values} -r in.pcap");
    folder.refused(&run("-D prot=1 port.mpf:port=80"), "no program has a name `prot`");
    folder.refused(&run("-D port=1 port.mpf:port=80"), "no program has a name `port`");
    folder.refused(&run("port.mpf:port=80,prot=1"), "no name `prot`");
    folder.refused(&run("-D port=1 -D port=2 port.mpf"), "`port` has two values");
    folder.refused(&run("port.mpf:port=1,port=2"), "`port` has two values");
    folder.refused(&run("port.mpf"), "`port` has no value");
    assert_eq!(
        folder.out(&run("-D port=80 port.mpf port.mpf:port=81")),
        "port.mpf\t1\nport.mpf:port=81\t0\nreject\t0\n"
    );
}

#[test]
fn check_reads_the_programs_of_a_graph() {
    let folder = Folder::new();
    folder.frames(&[tcp(2, 80)]);
    folder.write("good.cspf", "pushword P[6]\npushlit | eq #8\n");
    folder.write("bad", "begin\nldh [12\nret #0\n");
    let graph = |node: &str| format!("(pcapin,in.pcap)>{node}>(packetcount,export)");
    for good in ["(mpf,\"port.mpf:port=80\")", "(cspf,good.cspf)", "(mpf,good.cspf)"] {
        folder.out(&format!("run --check {}", graph(good)));
        folder.out(&format!("run --no-control {}", graph(good)));
    }
    for (bad, part) in [
        ("(mpf,nowhere)", "No such file"),
        ("(cspf,nowhere)", "No such file"),
        ("(mpf,bad)", "line 2"),
        ("(cspf,bad)", "there is no action `begin`"),
        ("(mpf,port.mpf)", "`port` has no value"),
        ("(mpf,\"port.mpf:port=80\",define=\"x=1\")", "no program has a name `x`"),
        ("(cspf,good.cspf,define=\"x=1\")", "no program has a name `x`"),
    ] {
        for check in ["--check", "--no-control"] {
            folder.refused(&format!("run {check} {}", graph(bad)), part);
        }
    }
}
