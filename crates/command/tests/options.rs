//! Options without effect are refused: exit status 2, and a message with advice. Accepted options have their effect.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use fyke_testkit::pcapng::Pcapng;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn fyke(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(FYKE);
    command.current_dir(folder).env("FYKE_RUNTIME_DIR", folder.join("run"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Five datagrams, and valid and invalid rules and programs.
fn files(folder: &Path) {
    let datagram = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 53).build();
    let write = |name: &str, contents: &[u8]| std::fs::write(folder.join(name), contents).unwrap();
    write("in.pcap", &pcap::file(1, &vec![datagram; 5]));
    write("ret.bpf", b"ret #1\n");
    write("numbers.bpf", b"1\n6 0 0 1\n");
    write("wrong.mpf", b"ldx nonsense\n");
    write("wrong.cspf", b"pushnonsense\n");
    write("wrong.rul", b"filter x\n* (\"a\" => accept;\n");
    write("two.rul", b"filter a * => accept;\nfilter b * => accept;\n");
    write("link.rul", b"filter a for NOSUCH: * => accept;\n");
    write("large.rul", b"filter x\n* ((\"a\".{1,60000}){1,60000}) * => accept;\n");
}

/// Command lines, each with a part of its refusal.
const REFUSED: &[(&str, &str)] = &[
    ("machine asm --isa bpf ret.bpf -r in.pcap", "use `machine run`"),
    ("machine asm --isa bpf ret.bpf --count", "use `machine run`"),
    ("machine check --isa bpf ret.bpf -r in.pcap", "use `machine run`"),
    ("machine check --isa bpf ret.bpf --count", "use `machine run`"),
    ("machine check --isa bpf ret.bpf --interpret", "use `machine run`"),
    ("machine check --isa bpf ret.bpf --format c", "use `machine asm` or `machine disasm`"),
    ("machine disasm --isa bpf numbers.bpf -r in.pcap", "use `machine run`"),
    ("machine disasm --isa bpf numbers.bpf --count", "use `machine run`"),
    ("machine run --isa bpf ret.bpf -r in.pcap --format c", "use `machine asm`"),
    ("machine run --isa bpf ret.bpf -r in.pcap --little-endian", "is for programs of CSPF"),
    ("machine run --isa mpf ret.bpf -r in.pcap --little-endian", "is for programs of CSPF"),
    ("machine run --isa bpf ret.bpf -r in.pcap -D port=1", "no program has a name `port`"),
    ("demux -r in.pcap --patience-seconds 5 udp=>count", "add --scoped"),
    ("run --check (pcapin,in.pcap)>(demux,\"udp=>1\",patience=5)", "needs `scoped=y`"),
    ("dump -r in.pcap --look-back udp", "read the file again"),
    ("dump -i ring:x --look-back udp", "capture on the interface itself"),
    ("dump -r in.pcap --count --nano", "leave one of them out"),
    ("dump -r in.pcap -y EN10MB", "omit these options"),
    ("dump -r in.pcap -p --count", "-p: -r reads a file"),
    ("dump -r in.pcap -B 4096 --count", "-B: -r reads a file"),
    ("demux -r in.pcap -p udp=>count", "-p: -r reads a file"),
    ("track ftp -r in.pcap -B 64 -w out.pcap", "-B: -r reads a file"),
    ("dump -i ring:x -p", "a ring is captured by the fyke that publishes it"),
    ("dump -i ring:x -B 64", "a ring is captured by the fyke that publishes it"),
    ("dump -i lo --ring-user root", "it is for -i ring:PATH and -i serve:NAME"),
    ("run --check (device,lo,user=root)>(accept)", "is for `ring:PATH`"),
    ("run --check (device,ring:x,user=nosuch)>(accept)", "no user nosuch"),
    ("dump -r in.pcap -D", "-D lists interfaces, -r reads a file"),
    ("dump -i lo -B 0 --count", "0 is not in 1..=4194304"),
    ("dump -i lo -B 4294967295 --count", "4294967295 is not in 1..=4194304"),
    ("dump -r in.pcap --count --print", "with --count no frame is printed"),
    ("dump --interface= --count", "-i: the name of an interface is missing"),
    ("run --dot --json (pcapin,in.pcap)>(packetcount)", "--dot runs nothing"),
    ("run --check --stats (pcapin,in.pcap)>(packetcount)", "--check runs nothing"),
    ("run --classes --all", "--classes runs nothing"),
    ("run --svg x.svg --json (pcapin,in.pcap)>(packetcount)", "--svg without --live-svg runs"),
    ("dump -r in.pcap -W 3 -w out.pcap", "give one of them, too"),
    ("dump -r in.pcap -C 1 -w -", "needs a file name"),
    ("dump -r in.pcap -G 1 -w -", "needs a file name"),
    ("dump -i any -y NOSUCH", "any offers LINUX_SLL (Linux cooked v1), LINUX_SLL2"),
    ("run --check (device,any,link=NOSUCH)>(accept)", "unknown link type"),
    ("exec -- ", "the name of the program is empty"),
    ("dump -i ring: --count", "the path of the ring is missing"),
    ("run --check (device,ring:)>(accept)", "the path of the ring is missing"),
    ("run -f -", "no graph given"),
    ("run --dot --svg x.svg (pcapin,in.pcap)>(packetcount)", "omit one of them"),
    ("run --check --svg x.svg (pcapin,in.pcap)>(packetcount)", "omit one of them"),
    ("explain --no-sandbox udp", "without -r"),
    ("explain -Z root udp", "without -r"),
    ("explain -F ret.bpf --graph -- dump -i lo", "--graph takes a command line"),
    ("dump -i 4000000 --count", "as `fyke dump -D` lists them"),
    ("dump -i 0 --count", "the numbers are 1 to"),
    ("run --classes nosuch", "there are: accept, "),
    ("run --check (pcapin,in.pcap)>(accept,mbufsize=8)", "classes that take it: bucket, bytecount"),
    ("run --check (pcapin,in.pcap)>(sampler,2,8)", "sampler has no memory"),
    ("run (pcapin,in.pcap)>(sampler,2,8)", "sampler has no memory"),
];

#[test]
fn options_that_would_do_nothing_are_refused_with_what_to_use_instead() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    for (line, says) in REFUSED {
        let refused = fyke(folder.path(), &line.split(' ').collect::<Vec<_>>());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(says), "{line}: {said}");
        assert!(refused.stdout.is_empty(), "{line}: {}", text(&refused.stdout));
    }
}

#[cfg(feature = "lab")]
#[test]
fn benches_refuse_what_they_do_not_read() {
    let folder = tempfile::tempdir().unwrap();
    for (line, says) in [
        ("bench bloom --trace in.pcap", "these do: static, ruler, ids, workers, streams, scan"),
        ("bench demux --trace in.pcap", "these do: static, ruler, ids, workers, streams, scan"),
        ("bench graph --trace in.pcap", "these do: static, ruler, ids, workers, streams, scan"),
        ("bench update --trace in.pcap", "these do: static, ruler, ids, workers, streams, scan"),
        ("bench dynamic --trace in.pcap", "these do: static, ruler, ids, workers, streams, scan"),
        ("bench bloom --real-filters in.pcap", "these do: static, ruler, ids"),
        ("bench scan --live", "these do: bloom"),
        (
            "bench bloom --engine fyke-blocked --engine TYPO",
            "there are: af_packet, fyke, fyke-blocked",
        ),
        ("bench graph --engine TYPO", "there are: fyke, per-packet, source"),
        ("bench demux --engine TYPO", "there are: bpf, "),
        ("bench dynamic --engine TYPO", "there are: fyke-kernel, "),
        ("bench ruler --engine TYPO", "there are: aho-corasick, "),
        ("bench static --engine TYPO", "there are: floor, "),
        ("bench update --engine TYPO", "there are: fyke, fyke-texts"),
        ("bench workers --engine TYPO", "there are: fyke, fyke-fan"),
        ("bench all --engine TYPO", "no such engine in any bench"),
    ] {
        let refused =
            fyke(folder.path(), &format!("{line} --smoke").split(' ').collect::<Vec<_>>());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(says), "{line}: {said}");
    }
}

/// Programs and rules are checked before anything runs: `--check` prints what the start prints, with the same status.
#[test]
fn wrong_rules_and_programs_are_found_by_check_and_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    for (node, says) in [
        ("(ruler,wrong.rul)", "wrong.rul:2"),
        ("(ruler,two.rul)", "name one of: a, b"),
        ("(ruler,two.rul,filter=c)", "name one of: a, b"),
        ("(ruler,link.rul)", "unknown link type NOSUCH"),
        ("(ruler,large.rul)", "over 4194304"),
        ("(ruler,nosuch.rul)", "No such file"),
        ("(ruler,pattern=\"(\")", "without its `)`"),
        ("(mpf,wrong.mpf)", "`nonsense` has no value"),
        ("(cspf,wrong.cspf)", "there is no action `pushnonsense`"),
    ] {
        let graph = format!("(pcapin,in.pcap) > {node} > (tofile,out.pcap)");
        for options in [&["run", "--check"][..], &["run"], &["run", "--dot"]] {
            // A drawing does not check for errors that take long to find.
            if options.contains(&"--dot") && node.contains("large") {
                continue;
            }
            let refused = fyke(folder.path(), &[options, &[&graph]].concat());
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{options:?} {node}: {said}");
            assert!(said.contains(says) && said.contains("^"), "{options:?} {node}: {said}");
            assert!(!folder.path().join("out.pcap").exists(), "{options:?} {node}");
        }
    }
    let good = "(pcapin,in.pcap) > (ruler,two.rul,filter=a)";
    assert!(fyke(folder.path(), &["run", "--check", good]).status.success());
}

#[test]
fn classes_are_shown_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |names: &[&str]| {
        text(&fyke(folder.path(), &[&["run", "--classes"], names].concat()).stdout)
    };
    let one = shown(&["tofile"]);
    assert!(one.starts_with("tofile  ") && one.contains("    snaplen ") && one.contains("export"));
    assert!(!one.contains("mbufsize") && !one.contains("sampler"), "{one}");
    // Under each of its names, and only for classes with memory of a given size.
    let two = shown(&["pkt_counter", "sampler"]);
    assert!(two.starts_with("packetcount  ") && two.contains("\nsampler  "), "{two}");
    assert_eq!(two.matches("mbufsize").count(), 1, "{two}");
    let all = shown(&[]);
    assert!(all.contains("\ntofile  ") && all.contains("\nsampler  "), "{all}");
}

/// Times of a frame in a file and in the output: microseconds as in tcpdump, nanoseconds with `--nano`.
#[test]
fn pcap_files_have_microseconds_unless_nanoseconds_are_asked_for() {
    const NANOSECONDS: [u8; 4] = 0xa1b2_3c4d_u32.to_ne_bytes();
    const MICROSECONDS: [u8; 4] = 0xa1b2_c3d4_u32.to_ne_bytes();
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    // The same file with nanoseconds: frame 1 at 1 s and 123,456,789 ns.
    let mut file = std::fs::read(folder.path().join("in.pcap")).unwrap();
    file[..4].copy_from_slice(&NANOSECONDS);
    file[24..28].copy_from_slice(&1_u32.to_ne_bytes());
    file[28..32].copy_from_slice(&123_456_789_u32.to_ne_bytes());
    std::fs::write(folder.path().join("nano.pcap"), file).unwrap();
    std::fs::write(folder.path().join("all.rul"), "filter a * => accept;\n").unwrap();
    for line in [
        "dump -r nano.pcap -w out.pcap",
        "ruler run all.rul -r nano.pcap -w out.pcap --no-control",
        "demux -r nano.pcap udp=>out.pcap --no-control",
    ] {
        for (option, magic, fraction) in
            [(None, MICROSECONDS, 123_456_u32), (Some("--nano"), NANOSECONDS, 123_456_789)]
        {
            let words: Vec<_> = line.split(' ').chain(option).collect();
            let done = fyke(folder.path(), &words);
            assert!(done.status.success(), "{line}: {}", text(&done.stderr));
            let out = std::fs::read(folder.path().join("out.pcap")).unwrap();
            assert_eq!(out[..4], magic, "{line} {option:?}");
            assert_eq!(out[28..32], fraction.to_ne_bytes(), "{line} {option:?}");
        }
    }
    let printed = |options: &[&str]| {
        let words = [&["dump", "-tt", "-r", "nano.pcap", "-c", "1"], options].concat();
        text(&fyke(folder.path(), &words).stdout)
    };
    assert!(printed(&[]).starts_with("1.123456 IP "), "{}", printed(&[]));
    assert!(printed(&["--nano"]).starts_with("1.123456789 IP "), "{}", printed(&["--nano"]));
    // pcapng always has nanoseconds.
    assert!(fyke(folder.path(), &["dump", "-r", "nano.pcap", "-w", "o.pcapng"]).status.success());
    let again = fyke(folder.path(), &["dump", "--nano", "-tt", "-r", "o.pcapng", "-c", "1"]);
    assert!(text(&again.stdout).starts_with("1.123456789 IP "), "{}", text(&again.stdout));
}

/// The start line names `fyke ctl` only where there is a control socket; texts of clients are escaped by `fyke ctl`.
#[test]
fn hints_and_texts_of_the_control_socket() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        ip link set lo up
        until_said() { for try in $(seq 400); do grep -q "$1" "$2" && return; sleep 0.05; done; cat "$2"; exit 9; }
        "$FYKE" dump -i lo --no-control 2> none & pid=$!
        until_said listening none; kill -INT $pid; wait $pid
        "$FYKE" run --no-control '(device,lo) > (packetcount)' 2>> none & pid=$!
        until_said running none; kill -INT $pid; wait $pid
        "$FYKE" dump -i lo udp --stats 2> with & pid=$!
        until_said 'edit: fyke ctl' with
        "$FYKE" ctl add $'udp or\nudp port 7' > edits; "$FYKE" ctl show > show; "$FYKE" ctl stats >> show
        "$FYKE" ctl add $'tcp port \u202e7' 2> wrong
        kill -INT $pid; wait $pid
    "#;
    let Some(output) = Script::new(FYKE, folder.path()).run(script) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let none = read("none");
    assert!(none.contains("listening on lo") && none.contains("running"), "{none} {output:?}");
    assert!(!none.contains("fyke ctl"), "{none}");
    for name in ["show", "with"] {
        let shown = read(name);
        assert!(shown.contains(r"udp or\u000audp port 7"), "{shown} {}", read("with"));
    }
    let wrong = read("wrong");
    assert!(wrong.contains(r"\u202e") && !wrong.contains('\u{202e}'), "{wrong}");
}

/// A file that this user may not read: the error has advice.
#[test]
fn a_file_without_permission_is_explained() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let mode = |name: &str, mode| {
        let path = folder.path().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("in.pcap", 0o000);
    mode("", 0o755);
    std::fs::copy(FYKE, folder.path().join("fyke")).unwrap();
    let mut plain = Command::new("setpriv");
    plain.args(["--reuid=4711", "--regid=4711", "--clear-groups", "./fyke"]);
    let is_root = Command::new("setpriv").args(["--reuid=4711", "true"]).status();
    let mut command = match is_root {
        Ok(status) if status.success() => plain,
        _ => Command::new("./fyke"),
    };
    let graph = "(pcapin,in.pcap) > (packetcount)";
    let output = command.args(["run", graph]).current_dir(folder.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("become its owner or root"), "{said}");
}

/// A number means the interface that `-D` lists under it, in every command with an interface.
#[test]
fn interfaces_are_known_by_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Script::new(FYKE, folder.path());
    let script = r#"
        set -eu
        ip link set lo up
        veth
        "$FYKE" dump -D > listed
        number=$(sed -n 's/^\([0-9]*\)\.far .*/\1/p' listed)
        "$FYKE" explain --graph -- dump -i $number > graph
        "$FYKE" dump -L -i $number > links
        any=$(sed -n 's/^\([0-9]*\)\.any .*/\1/p' listed)
        "$FYKE" explain --graph -- demux -i $any 'udp => count' >> graph
        ip link add 7 type veth peer name 70
        "$FYKE" explain --graph -- dump -i 7 >> graph
    "#;
    let Some(output) = namespace.run(script) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let graph = read("graph");
    for name in ["far", "any", "7"] {
        assert!(graph.contains(&format!("(device, expression={name}, ")), "{name}: {graph}");
    }
    assert!(read("links").contains("for far"), "{}", read("links"));
}

/// As in tcpdump.
#[test]
fn the_last_value_of_an_option_counts() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let lines = |words: &str| {
        let output = fyke(folder.path(), &words.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words}: {said}");
        text(&output.stdout).lines().count()
    };
    assert_eq!(lines("dump -nr in.pcap -c 3 -c 1"), 1);
    assert_eq!(lines("dump -n -r in.pcap -s 10 -s 0 -c 1 -c 5"), 5);
    assert_eq!(lines("dump -nr in.pcap -w a.pcap -w b.pcap -Z root -Z root"), 0);
    assert_eq!(lines("dump -nr b.pcap"), 5);
    assert!(!folder.path().join("a.pcap").exists());
    // Without value, and counted.
    assert_eq!(lines("dump -nn -UU -vv -tt -r in.pcap"), 10);
}

/// A timestamp before 1970 or after 2554 becomes the nearest time between, with a note.
#[test]
fn times_that_do_not_fit_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let frame = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 53).build();
    let mut file = Pcapng::new(false);
    let before = (-86_400i64).to_le_bytes();
    // An offset of a day before 1970, and a resolution of seconds.
    file.interface(1, 0, &[(14, &before)]).interface(1, 0, &[(9, &[0])]);
    let whole = (&frame[..], frame.len() as u32);
    file.packet(0, 5, whole, &[]).packet(1, 20_000_000_000, whole, &[]).packet(1, 5, whole, &[]);
    std::fs::write(folder.path().join("in.pcapng"), file.bytes()).unwrap();
    let output = fyke(folder.path(), &["dump", "-nttr", "in.pcapng"]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let times: Vec<_> = out.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(times, ["0.000000", "18446744073.709551", "5.000000"]);
    assert_eq!(said.matches("2 frames have times outside of 1970 to 2554").count(), 1, "{said}");
}
