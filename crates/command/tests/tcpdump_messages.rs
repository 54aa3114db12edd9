//! Messages and headers of a link that is called `tcpdump`, compared with the tcpdump of this machine; and the messages
//! of `fyke dump` for command lines that mean nothing.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap::{self, Layout, Record};
use fyke_testkit::pcapng::Pcapng;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(FYKE, folder.path().join("tcpdump")).unwrap();
    folder
}

/// Runs a program in the folder.
fn run(program: &Path, folder: &Path, words: &str) -> Output {
    let mut command = Command::new(program);
    command.current_dir(folder).env("FYKE_RUNTIME_DIR", folder.join("run")).env("TZ", "UTC");
    command.args(words.split(' ')).stdin(Stdio::null()).output().unwrap()
}

/// A file with frames of 42 bytes.
fn write(folder: &Path, name: &str, link: u16, snaplen: u32, frames: usize) {
    let start = match link {
        1 => Packet::ethernet(),
        _ => Packet::raw(),
    };
    let data = start.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 5001).build();
    let record = |number| Record {
        timestamp_ns: number as u64 * 1_000_000_000,
        wire_len: data.len() as u32,
        data: data.clone(),
    };
    let records: Vec<_> = (0..frames).map(record).collect();
    let layout = Layout { snaplen, ..Layout::default() };
    std::fs::write(folder.join(name), pcap::encode(link, &records, layout)).unwrap();
}

fn write_files(folder: &Path) {
    write(folder, "in.pcap", 1, 8192, 3);
    write(folder, "raw.pcap", 101, 262_144, 1);
    write(folder, "ip4.pcap", 228, 96, 1);
    for (name, link) in [("ip6.pcap", 229), ("none.pcap", 160), ("wide.pcap", 250)] {
        write(folder, name, link, 8192, 0);
    }
    // A section header block alone.
    let mut section = Vec::new();
    for word in [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28_u32] {
        section.extend(word.to_le_bytes());
    }
    std::fs::write(folder.join("empty.pcapng"), section).unwrap();
}

/// Command lines with the same standard output and the same exit status as tcpdump's. True: and the same messages.
const SAME: &[(&str, bool)] = &[
    ("-nr raw.pcap", true),
    ("-nr ip4.pcap", true),
    ("-nr ip6.pcap", true),
    ("-nr none.pcap", true),
    ("-nr wide.pcap", true),
    ("-nr in.pcap -w -", true),
    ("-nr in.pcap -s 100 -w -", true),
    ("-nr in.pcap -w - udp port 1", true),
    ("-ddd -r in.pcap", true),
    ("-ddd -s 100 -r in.pcap", true),
    ("-nr nosuch.pcap", true),
    ("-nr in.pcap -w nosuch/x", true),
    ("-nr empty.pcapng", true),
    ("-r in.pcap frob nicate", false),
    ("-r in.pcap -F nosuch", false),
];

#[test]
fn messages_of_files() {
    let real = Path::new("/usr/bin/tcpdump");
    let version = Command::new(real).arg("--version").output();
    let Ok(version) = version.map(|output| text(&output.stdout) + &text(&output.stderr)) else {
        return println!("skipped: no tcpdump to compare with");
    };
    if !version.contains("4.99") {
        return println!("skipped: another version of tcpdump");
    }
    let folder = folder();
    write_files(folder.path());
    let mut differ = String::new();
    for (words, messages) in SAME {
        let theirs = run(real, folder.path(), words);
        let ours = run(&folder.path().join("tcpdump"), folder.path(), words);
        let (expected, said) = (text(&theirs.stderr), text(&ours.stderr));
        let same_text = match messages {
            true => expected == said,
            false => expected.lines().next() == said.lines().next(),
        };
        let same = theirs.stdout == ours.stdout && theirs.status.code() == ours.status.code();
        if !same || !same_text {
            differ += &format!("{words}\n {theirs:?}\n {ours:?}\n");
        }
        assert!(!said.contains("os error"), "{said}");
    }
    assert!(differ.is_empty(), "{differ}");
}

#[test]
fn messages_of_captures() {
    let folder = folder();
    let script = "ip link set lo up
        send() { for number in 1 2 3; do echo x > /dev/udp/127.0.0.1/7777; done 2> /dev/null; }
        listens() { wait_for grep -q 'listening on' \"$1\"; sleep 0.3; }
        ./tcpdump -ni lo --count udp > count.out 2> count.err & pid=$!
        listens count.err; send; sleep 0.5; kill -INT $pid; wait $pid; echo $? > count.status
        ./tcpdump -ni lo --count --print -w both.pcap -c 1 udp > both.out 2> both.err & pid=$!
        listens both.err; send; wait $pid; echo $? > both.status
        ./tcpdump -ni lo -Z root -G 1 -W 2 -w 'x%S.pcap' udp 2> files.err & pid=$!
        listens files.err; for number in 1 2 3 4 5 6 7 8; do send; sleep 0.4; done
        wait $pid; echo $? > files.status
        ./tcpdump -ni lo -s 100 -w head.pcap -c 1 2> s.err & pid=$!
        listens s.err; send; wait $pid
        ./tcpdump -ni lo -s 100 -w - -c 1 2> p.err > pipe.pcap & pid=$!
        listens p.err; send; wait $pid\n";
    let script = format!("{script}true\n");
    if Script::new(FYKE, folder.path()).as_root().limit_s(120).run(&script).is_none() {
        return;
    }
    let read = |name: &str| text(&std::fs::read(folder.path().join(name)).unwrap());
    // Of --count, only the counts at the end: the empty line is that after ^C.
    assert_eq!(read("count.out"), "\n", "{}", read("count.err"));
    assert!(read("count.err").contains("\n3 packets captured\n"), "{}", read("count.err"));
    assert_eq!(read("count.status"), "0\n");
    assert!(read("both.err").contains("\n1 packet captured\n"), "{}", read("both.err"));
    assert_eq!(read("both.out").matches("> 127.0.0.1.7777: UDP").count(), 1);
    // The line is before the counts.
    let said = read("files.err");
    assert!(said.contains("Maximum file limit reached: 2\n"), "{said}");
    assert!(said.find("Maximum") < said.find("captured"), "{said}");
    assert_eq!(read("files.status"), "0\n");
    let snaplen = |name: &str| std::fs::read(folder.path().join(name)).unwrap()[16..20].to_vec();
    assert_eq!(snaplen("head.pcap"), 100_u32.to_ne_bytes());
    assert_eq!(snaplen("pipe.pcap"), 100_u32.to_ne_bytes());
}

/// Output to a pipe keeps the snapshot length of each input, and refuses what its header cannot hold.
#[test]
fn headers_of_pipes() {
    let folder = folder();
    write(folder.path(), "near.pcap", 1, 96, 2);
    write(folder.path(), "wide.pcap", 1, 8192, 2);
    let ours = folder.path().join("tcpdump");
    std::fs::write(folder.path().join("list"), "near.pcap\nwide.pcap\n").unwrap();
    let both = run(&ours, folder.path(), "-V list -w -");
    assert_eq!(both.status.code(), Some(0), "{both:?}");
    assert_eq!(both.stdout[16..20], 8192_u32.to_ne_bytes());
    assert_eq!(both.stdout.len(), 24 + 4 * (16 + 42));
    // An interface that is described after 20,000 frames.
    let frame = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 5001).build();
    let whole = (&frame[..], frame.len() as u32);
    let mut file = Pcapng::new(false);
    file.interface(1, 96, &[]);
    for time in 0..20_000 {
        file.packet(0, time, whole, &[]);
    }
    file.interface(1, 8192, &[]).packet(1, 20_000, whole, &[]);
    std::fs::write(folder.path().join("late.pcapng"), file.bytes()).unwrap();
    let script = "cat late.pcapng | ./tcpdump -r - -w -";
    let late = Command::new("bash").args(["-c", script]).current_dir(folder.path()).output();
    let late = late.unwrap();
    assert_eq!(late.status.code(), Some(1), "{}", text(&late.stderr));
    assert!(text(&late.stderr).contains("larger snapshot length"), "{}", text(&late.stderr));
    assert_eq!(late.stdout.len(), 24 + 20_000 * (16 + 42));
}

#[test]
fn command_lines_without_meaning() {
    let folder = folder();
    write_files(folder.path());
    for (words, says) in [
        ("dump -r in.pcap --json --dissect", "--json: tshark writes the lines of --dissect"),
        ("dump -r in.pcap -z gzip", "-z runs a command for each file of -C or -G"),
        ("dump -r in.pcap -w x -C 0.1", "not a whole number of million bytes, from 1"),
        ("dump -r in.pcap -w x -C 0", "not a whole number of million bytes, from 1"),
        ("dump --writ", "nearest: -w, --write  Write frames to FILE"),
        ("dump --writ", "`-` = standard output)"),
    ] {
        let refused = run(Path::new(FYKE), folder.path(), words);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
    let said = text(&run(Path::new(FYKE), folder.path(), "dump --frobnicate").stderr);
    assert_eq!(
        said,
        "fyke dump: there is no option --frobnicate\n  all options: fyke dump --help\n"
    );
    let help = text(&run(Path::new(FYKE), folder.path(), "dump --help").stdout);
    assert!(help.contains("Number of threads that capture"), "{help}");
    let empty = run(Path::new(FYKE), folder.path(), "dump -nr empty.pcapng");
    assert_eq!(empty.status.code(), Some(0), "{empty:?}");
    assert!(text(&empty.stderr).contains("no Interface Description Blocks"), "{empty:?}");
}

/// Notes name the file, not the node of the graph that reads it.
#[test]
fn times_that_do_not_fit() {
    let folder = folder();
    let frame = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 53).build();
    let mut file = Pcapng::new(false);
    file.interface(1, 0, &[(9, &[0])]);
    file.packet(0, 20_000_000_000, (&frame[..], frame.len() as u32), &[]);
    std::fs::write(folder.path().join("in.pcapng"), file.bytes()).unwrap();
    for (program, words, name) in [
        (&*folder.path().join("tcpdump"), "-nr in.pcapng", "tcpdump"),
        (Path::new(FYKE), "dump -nr in.pcapng", "fyke"),
    ] {
        let said = text(&run(program, folder.path(), words).stderr);
        let expected = format!("{name}: in.pcapng: 1 frames have times outside of 1970 to 2554");
        assert!(said.contains(&expected), "{said}");
    }
}
