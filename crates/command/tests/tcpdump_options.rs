//! Every option of tcpdump 4.99, short and long: `fyke dump` takes it with its meaning, or refuses it and names what to
//! use instead. Unknown options are answered with the nearest known one.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn fyke(folder: &Path, words: &str) -> Output {
    let mut command = Command::new(FYKE);
    command.current_dir(folder).env("FYKE_RUNTIME_DIR", folder.join("run"));
    command.arg("dump").args(words.split(' ')).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Result of a command line.
enum Shows {
    /// Exit status 0, and a part of standard output.
    Taken(&'static str),
    /// Exit status 0; the file `out.pcap` or the like is written, in this number.
    Files(usize),
    /// Exit status 2, and a part of the advice.
    Refused(&'static str),
}

use Shows::{Files, Refused, Taken};

/// The letters in the option string of tcpdump 4.99.3; a colon follows those with a value.
const LETTERS: &str = "aAbB:c:C:dDeE:fF:G:hHi:Ij:JKlLm:M:nNOpqQ:r:s:StT:uUvV:w:W:xXy:Yz:Z:#";

/// The long names of tcpdump 4.99.3.
const LONG: &str = "buffer-size list-interfaces help interface monitor-mode time-stamp-type \
    list-time-stamp-types time-stamp-precision micro nano dont-verify-checksums \
    list-data-link-types no-optimize no-promiscuous-mode direction snapshot-length \
    absolute-tcp-sequence-numbers packet-buffered linktype immediate-mode relinquish-privileges \
    fp-type number print version count";

/// Options with a command line each. Those of a capture are in [`LIVE`].
const OF_FILES: &[(&str, &str, Shows)] = &[
    ("-a", "-anr in.pcap -c 1", Taken("00:00:00.000000 IP 10.0.0.1.4000 > 10.0.0.2.53")),
    ("-A", "-Anr in.pcap -c 1", Taken("\nE..")),
    ("-b", "-bnr in.pcap -c 1", Taken("10.0.0.1.4000 > 10.0.0.2.53")),
    ("-c", "-nr in.pcap -c 2 --count", Taken("2\n")),
    ("--count", "-r in.pcap --count", Taken("5\n")),
    ("-C", "-r in.pcap -C 1 -w out.pcap -Z root", Files(1)),
    ("-d", "-d ip", Taken("(000) ldh      [12]\n(001) jeq      #0x800           jt 2\tjf 3\n")),
    ("-d", "-dd ip", Taken("{ 0x28, 0, 0, 0x0000000c },\n{ 0x15, 0, 1, 0x00000800 },\n")),
    ("-d", "-ddd ip", Taken("4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n")),
    ("-d", "-dr raw.pcap udp", Taken("(000) ldb      [0]\n")),
    ("-d", "-d", Taken("(000) ret      #262144\n")),
    ("-d", "-d -s 96 ip", Taken("ret      #96\n")),
    ("-e", "-enr in.pcap -c 1", Taken("ethertype IPv4 (0x0800)")),
    ("-E", "-r in.pcap -E 0x1@10.0.0.1", Refused("tshark -o esp")),
    ("-f", "-fnr in.pcap --count", Taken("5\n")),
    ("-F", "-r in.pcap -F expression --count", Taken("0\n")),
    ("-G", "-r in.pcap -G 9 -w out.pcap -Z root", Files(1)),
    ("-h", "-h", Taken("Usage: fyke dump")),
    ("--help", "--help", Taken("Usage: fyke dump")),
    ("-H", "-Hr in.pcap", Refused("--dissect")),
    ("-I", "-I", Refused("iw dev")),
    ("--monitor-mode", "--monitor-mode", Refused("iw dev")),
    ("--micro", "-ttnr in.pcap -c 1 --nano --micro", Taken("0.000000 IP")),
    ("--nano", "-ttnr in.pcap -c 1 --nano", Taken("0.000000000 IP")),
    (
        "--time-stamp-precision",
        "-ttnr in.pcap -c 1 --micro --time-stamp-precision nano",
        Taken("0.000000000 IP"),
    ),
    ("--time-stamp-precision", "-r in.pcap --time-stamp-precision=pico", Refused("micro, nano")),
    ("-K", "-Kr in.pcap --count", Taken("5\n")),
    ("--dont-verify-checksums", "-r in.pcap --count --dont-verify-checksums", Taken("5\n")),
    ("-l", "-lnr in.pcap -c 1", Taken("10.0.0.2.53")),
    ("-m", "-r in.pcap -m mib", Refused("--dissect")),
    ("-M", "-r in.pcap -M secret", Refused("tshark")),
    ("-n", "-nr in.pcap -c 1", Taken("10.0.0.2.53")),
    ("-N", "-Nr in.pcap -c 1", Taken("10.0.0.2.")),
    ("-#", "-#nr in.pcap", Taken("    2  ")),
    ("--number", "-nr in.pcap --number", Taken("    5  ")),
    ("-O", "-ddd -O ip", Taken("4\n40 0 0 12\n")),
    ("--no-optimize", "-ddd --no-optimize ip", Taken("4\n40 0 0 12\n")),
    ("--print", "-nr in.pcap --print -w out.pcap", Taken("10.0.0.2.53")),
    ("-q", "-qnr in.pcap -c 1", Taken("UDP, length ")),
    ("-r", "-r in.pcap --count", Taken("5\n")),
    ("-S", "-Snr tcp.pcap", Taken("seq 7777:7779")),
    (
        "--absolute-tcp-sequence-numbers",
        "-nr tcp.pcap --absolute-tcp-sequence-numbers",
        Taken("seq 7777:7779"),
    ),
    ("-s", "-nr in.pcap -s 0 --count", Taken("5\n")),
    ("--snapshot-length", "-nr in.pcap --snapshot-length=0 --count", Taken("5\n")),
    ("-T", "-r in.pcap -T domain", Refused("tshark -d")),
    ("-t", "-tnr in.pcap -c 1", Taken("IP 10.0.0.1.4000")),
    ("-t", "-ttttnr in.pcap -c 1", Taken("1970-01-01 ")),
    ("-u", "-ur in.pcap --count", Taken("5\n")),
    ("-U", "-Ur in.pcap -w out.pcap", Files(1)),
    ("--packet-buffered", "-nr in.pcap --packet-buffered", Taken("10.0.0.2.53")),
    ("-v", "-vnr in.pcap -c 1", Taken("ttl 64")),
    ("-w", "-r in.pcap -w out.pcap", Files(1)),
    ("-W", "-r in.pcap -w out.pcap -C 1 -W 3 -Z root", Files(1)),
    ("-x", "-xnr in.pcap -c 1", Taken("0x0000:  4500 001c")),
    ("-X", "-Xnr in.pcap -c 1", Taken("0x0000:  4500 001c")),
    ("-y", "-d -y RAW ip", Taken("(000) ldb      [0]\n")),
    ("-y", "-d -y NOSUCH ip", Refused("unknown link type \"NOSUCH\"")),
    ("--linktype", "-ddd --linktype=EN10MB ip", Taken("40 0 0 12\n")),
    ("-Y", "-Y -r in.pcap", Refused("fyke explain")),
    ("-Z", "-r in.pcap -Z root --count", Taken("5\n")),
    ("--relinquish-privileges", "-r in.pcap --relinquish-privileges=root --count", Taken("5\n")),
    ("--version", "--version", Taken("fyke")),
    ("--fp-type", "--fp-type", Refused("omit this option")),
    // Of tcpdump 5, and of others.
    ("--lengths", "-nr in.pcap --lengths -c 1", Taken("caplen 42 len 42 00:00:00.000000 IP")),
    ("-R", "-R -r in.pcap", Refused("no more")),
    ("-P", "-P -r in.pcap", Refused("pcapng")),
    ("-g", "-g -r in.pcap", Refused("macOS")),
    ("-k", "-k -r in.pcap", Refused("macOS")),
    // Of a capture, with a file.
    ("-Q", "-r in.pcap -Q in", Refused("-Q: for a capture")),
    ("-j", "-r in.pcap -j host", Refused("for interfaces")),
    ("-J", "-r in.pcap -J", Refused("for interfaces")),
    ("--immediate-mode", "-r in.pcap --immediate-mode", Refused("for a capture")),
];

/// Options of a capture on the loopback interface, with datagrams to port 9 and the answers.
const LIVE: &[(&str, &str, Shows)] = &[
    ("-B", "-B 4096 -nc 1 -i lo", Taken("127.0.0.1")),
    ("--buffer-size", "--buffer-size=4096 -nc 1 -i lo", Taken("127.0.0.1")),
    ("-D", "-D", Taken("lo (EN10MB)")),
    ("--list-interfaces", "--list-interfaces", Taken("lo (EN10MB)")),
    ("-d", "-d -i lo ip", Taken("(000) ldh      [12]")),
    ("-d", "-d -i any ip", Taken("(000) ldh      [0]")),
    ("-i", "-nc 1 -i lo", Taken("127.0.0.1")),
    ("--interface", "-nc 1 --interface lo", Taken("127.0.0.1")),
    ("--immediate-mode", "--immediate-mode -nc 1 -i lo", Taken("127.0.0.1")),
    ("-j", "-j host -nc 1 -i lo", Taken("127.0.0.1")),
    ("-j", "-j adapter -i lo", Refused("use -j host")),
    ("-j", "-j nosuch -i lo", Refused("unknown time stamp type")),
    ("--time-stamp-type", "--time-stamp-type=host -nc 1 -i lo", Taken("127.0.0.1")),
    ("-J", "-J -i lo", Taken("  host (Host)\n")),
    ("--list-time-stamp-types", "--list-time-stamp-types -i lo", Taken("  host (Host)\n")),
    ("-L", "-L -i lo", Taken("  EN10MB (Ethernet)\n")),
    ("--list-data-link-types", "--list-data-link-types -i lo", Taken("  EN10MB (Ethernet)\n")),
    ("-p", "-p -nc 1 -i lo", Taken("127.0.0.1")),
    ("--no-promiscuous-mode", "--no-promiscuous-mode -nc 1 -i lo", Taken("127.0.0.1")),
    ("-Q", "-Q in -nc 1 -i lo", Taken("127.0.0.1")),
    ("-Q", "-Q out -nc 1 -i near arp", Taken("who-has 10.9.0.2")),
    ("-Q", "-Q in -nc 1 -i far arp", Taken("who-has 10.9.0.2")),
    ("-Q", "-Q out -nc 1 -i any arp", Taken("near  Out")),
    ("--direction", "--direction=inout -nc 1 -i lo", Taken("127.0.0.1")),
    ("-s", "-s 20 -nc 1 -i lo", Taken("[|")),
    ("-y", "-y LINUX_SLL -nec 1 -i any", Taken("127.0.0.1")),
];

/// Options that read several files or run commands; they are tested where they are made.
const ELSEWHERE: &[&str] = &["-V", "-z"];

fn files(folder: &Path) {
    let datagram = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 53).build();
    let raw = Packet::raw().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 53).build();
    let segment = |sequence| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 80);
        packet.flags(0x18).seq_ack(sequence, 1).payload(b"ab").build()
    };
    let write = |name: &str, contents: &[u8]| std::fs::write(folder.join(name), contents).unwrap();
    write("in.pcap", &pcap::file(1, &vec![datagram; 5]));
    write("raw.pcap", &pcap::file(101, &[raw]));
    write("tcp.pcap", &pcap::file(1, &[segment(7775), segment(7777)]));
    write("expression", b"tcp\n");
}

fn check(line: &str, shows: &Shows, status: Option<i32>, out: &str, said: &str, written: usize) {
    match shows {
        Taken(part) => {
            assert_eq!(status, Some(0), "{line}: {said}");
            assert!(out.contains(part), "{line}: {part:?} is not in {out}{said}");
        }
        Files(count) => {
            assert_eq!(status, Some(0), "{line}: {said}");
            assert_eq!(written, *count, "{line}: {said}");
        }
        Refused(part) => {
            assert_eq!(status, Some(2), "{line}: {out}{said}");
            assert!(said.contains(part), "{line}: {part:?} is not in {said}");
            assert!(out.is_empty(), "{line}: {out}");
        }
    }
}

#[test]
fn options_of_files() {
    for (_, line, shows) in OF_FILES {
        let folder = tempfile::tempdir().unwrap();
        files(folder.path());
        let done = fyke(folder.path(), line);
        let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
        let written = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("out.pcap"))
            .filter(|entry| entry.metadata().unwrap().len() > 100)
            .count();
        check(line, shows, done.status.code(), &text(&done.stdout), &text(&done.stderr), written);
    }
}

#[test]
fn options_of_captures() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = "ip link set lo up
        veth
        ip address add 10.9.0.1/24 dev near
        (while sleep 0.02; do
            echo x > /dev/udp/127.0.0.1/9
            echo x > /dev/udp/10.9.0.2/9
        done) 2> /dev/null & sender=$!\n"
        .to_owned();
    for (number, (_, line, _)) in LIVE.iter().enumerate() {
        script += &format!(
            "timeout 20 \"$FYKE\" dump {line} > {number}.out 2> {number}.err; \
             echo $? > {number}.status\n"
        );
    }
    let script = script + "kill $sender\n";
    let Some(output) = Script::new(FYKE, folder.path()).limit_s(300).run(&script) else { return };
    let read = |number: usize, what: &str| {
        std::fs::read_to_string(folder.path().join(format!("{number}.{what}")))
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
    };
    for (number, (_, line, shows)) in LIVE.iter().enumerate() {
        let status = read(number, "status").trim().parse().ok();
        check(line, shows, status, &read(number, "out"), &read(number, "err"), 0);
    }
}

/// No option of tcpdump is forgotten: neither one of 4.99.3 nor one that the tcpdump of this machine names in its help.
#[test]
fn the_table_is_complete() {
    let mut known: BTreeSet<String> =
        LONG.split_whitespace().map(|long| format!("--{long}")).collect();
    known
        .extend(LETTERS.chars().filter(|letter| *letter != ':').map(|letter| format!("-{letter}")));
    let mut add = |name: &str| {
        let name = name.split('=').next().unwrap_or_default();
        known.insert(
            name.trim_matches(|letter: char| !letter.is_alphanumeric() && !"-#".contains(letter))
                .to_owned(),
        );
    };
    match Command::new("tcpdump").arg("--help").output() {
        Ok(help) => {
            let usage = text(&help.stdout);
            let usage = usage.split_once("Usage:").map(|(_, usage)| usage).unwrap_or_default();
            for word in usage.split_whitespace().map(|word| word.trim_matches(['[', ']'])) {
                match word.strip_prefix('-') {
                    Some(rest) if rest.starts_with('-') => add(word),
                    Some(letters) => letters.chars().for_each(|letter| add(&format!("-{letter}"))),
                    None => {}
                }
            }
        }
        Err(error) => println!("skipped: the help of tcpdump: {error}"),
    }
    let tested: BTreeSet<&str> =
        OF_FILES.iter().chain(LIVE).map(|row| row.0).chain(ELSEWHERE.iter().copied()).collect();
    let missing: Vec<_> = known.iter().filter(|name| !tested.contains(&***name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn unknown_options_are_answered_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    for (words, says) in [
        (&["dump", "-j"][..], "a value is required"),
        (&["dump", "-o"], "nearest: -O, --no-optimize"),
        (&["dump", "-nnod"], "there is no option -o"),
        (&["dump", "--snaplenn", "3"], "nearest: -s, --snaplen"),
        (&["dump", "--list-timestamps"], "nearest: -J, --list-time-stamp-types"),
        (&["dump", "--imediate-mode=3"], "nearest: --immediate-mode"),
        (&["track", "ftp", "-Q", "in"], "fyke track: there is no option -Q"),
        (
            &["machine", "run", "--cuont"],
            "fyke machine: there is no option --cuont\n  nearest: --count",
        ),
        (&["--verison"], "fyke: there is no option --verison\n  nearest: -V, --version"),
        (&["dump", "-\u{1b}"], "there is no option -\\u001b"),
    ] {
        let mut command = Command::new(FYKE);
        let refused = command.args(words).current_dir(folder.path()).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        assert!(!said.contains("as a value"), "{words:?}: {said}");
        assert!(said.contains("--help"), "{words:?}: {said}");
    }
}
