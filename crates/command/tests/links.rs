//! Link types in the built command: an expression is checked against the link types of the opened source and evaluates
//! the frames that it fits; other frames are rejected, counted and reported.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");
const EN10MB: u16 = 1;
const IEEE802_11: u16 = 105;
const RAW: u16 = 101;

fn fyke(args: &[&str]) -> Output {
    Command::new(FYKE).args(args).stdin(Stdio::null()).output().expect("fyke runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn datagram() -> Packet {
    Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 53).payload(&[7; 30])
}

/// A beacon and an acknowledgement.
fn wlan() -> Vec<Vec<u8>> {
    let mut beacon = vec![0x80, 0, 0, 0];
    beacon.extend([0xff; 6]);
    beacon.extend([2; 60]);
    vec![beacon, vec![0xd4, 0, 0, 0, 2, 2, 2, 2, 2, 2]]
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = (padded as u32 + 12).to_le_bytes();
    let mut block = [&kind.to_le_bytes()[..], &len, body].concat();
    block.resize(8 + padded, 0);
    block.extend(len);
    block
}

/// Builds a pcapng file of interfaces (link types) and frames (number of the interface, bytes), in this order.
enum Part {
    Interface(u16),
    Frame(u32, Vec<u8>),
}

fn pcapng(path: PathBuf, parts: &[Part]) -> String {
    let order = 0x1a2b_3c4du32.to_le_bytes();
    let mut file = block(0x0a0d_0d0a, &[&order[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    for part in parts {
        file.extend(match part {
            Part::Interface(link) => {
                let words = [u32::from(*link).to_le_bytes(), 262_144u32.to_le_bytes()];
                block(1, &words.concat())
            }
            Part::Frame(interface, data) => {
                let len = (data.len() as u32).to_le_bytes();
                let head = [interface.to_le_bytes(), [0; 4], [0; 4], len, len].concat();
                block(6, &[&head[..], data].concat())
            }
        });
    }
    std::fs::write(&path, file).unwrap();
    path.to_str().unwrap().to_owned()
}

fn file(path: PathBuf, link: u16, frames: &[Vec<u8>]) -> String {
    std::fs::write(&path, pcap::file(link, frames)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Three datagrams on Ethernet, then two 802.11 frames of an interface that is described after the Ethernet frames.
fn mixed(folder: &Path) -> String {
    let ether = || Part::Frame(0, datagram().build());
    let [beacon, acknowledgement] = &wlan()[..] else { unreachable!() };
    let parts = [
        Part::Interface(EN10MB),
        ether(),
        ether(),
        Part::Interface(IEEE802_11),
        Part::Frame(1, beacon.clone()),
        ether(),
        Part::Frame(1, acknowledgement.clone()),
    ];
    pcapng(folder.join("mixed.pcapng"), &parts)
}

#[test]
fn a_text_is_read_for_the_link_type_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let wifi = file(folder.path().join("wifi.pcap"), IEEE802_11, &wlan());
    let raw = Packet::raw().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 53).build();
    let raw = file(folder.path().join("raw.pcap"), RAW, &[raw]);
    let beacons = "wlan type mgt";
    let dumped = fyke(&["dump", "--count", "-r", &wifi, beacons]);
    assert_eq!(text(&dumped.stdout), "1\n", "{}", text(&dumped.stderr));
    let graph = format!("(pcapin,'{wifi}') > (bpf,'{beacons}') > (packetcount, export=y)");
    let ran = fyke(&["run", &graph]);
    assert_eq!(text(&ran.stdout), "packetcount\tpackets\t1\n", "{}", text(&ran.stderr));
    let out = folder.path().join("out.pcap");
    let rule = format!("{beacons} => {}", out.display());
    let dispatched = fyke(&["demux", "-r", &wifi, &rule]);
    assert_eq!(text(&dispatched.stdout), "1\twlan type mgt\n1\treject\n");
    let scoped = fyke(&["demux", "--scoped", "-r", &raw, &format!("udp => {}", out.display())]);
    assert_eq!(text(&scoped.stdout), "1\tudp\n0\treject\n", "{}", text(&scoped.stderr));
    // An expression that no link type of the file fits is refused, with the error for that link type.
    std::fs::write(&out, "untouched").unwrap();
    let rule = format!("{beacons} => {}", out.display());
    let graph = format!("(pcapin,'{raw}') > (bpf,'{beacons}')");
    let commands: [&[&str]; 4] = [
        &["dump", "--count", "-r", &raw, beacons],
        &["dump", "-w", out.to_str().unwrap(), "-r", &raw, beacons],
        &["demux", "-r", &raw, &rule],
        &["run", &graph],
    ];
    for command in commands {
        let refused = fyke(command);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains("need 802.11 headers, but this is raw IP"), "{command:?}: {said}");
        assert!(said.contains("  ^^^^"), "{command:?}: {said}");
    }
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "untouched");
}

#[test]
fn a_text_is_good_for_any_link_type_while_nothing_is_open() {
    let checked = fyke(&["run", "--check", "(pcapin,nowhere.pcap) > (bpf,'wlan type mgt')"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let explained = fyke(&["explain", "wlan type mgt"]);
    assert!(
        text(&explained.stdout).contains("link    IEEE802_11\n"),
        "{}",
        text(&explained.stderr)
    );
    assert_eq!(fyke(&["explain", "--link", "EN10MB", "wlan type mgt"]).status.code(), Some(2));
    assert_eq!(fyke(&["explain", "inbound"]).status.code(), Some(2), "not known for a file");
    for wrong in ["tcp[0 = 1", "fddi host 1.2.3.4 and no such words"] {
        let graph = format!("(pcapin,nowhere.pcap) > (bpf,'{wrong}')");
        assert_eq!(fyke(&["run", "--check", &graph]).status.code(), Some(2), "{wrong}");
        // The refusal comes before the file is opened, which does not exist.
        assert_eq!(fyke(&["dump", "-r", "nowhere.pcap", wrong]).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn frames_that_the_text_does_not_fit_are_rejected_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let mixed = mixed(folder.path());
    // Two sources for one file: each expression fits one of its link types.
    for (expression, count, unfit) in
        [("udp or mpls", "3\n", "IEEE802_11: 2"), ("wlan type mgt", "1\n", "EN10MB: 3")]
    {
        let dumped = fyke(&["dump", "--stats", "--count", "-r", &mixed, expression]);
        let said = text(&dumped.stderr);
        assert_eq!(
            (text(&dumped.stdout).as_str(), dumped.status.code()),
            (count, Some(0)),
            "{said}"
        );
        let note = format!("the filter does not fit link type {unfit} frames rejected");
        assert_eq!(said.matches(&note).count(), 1, "{expression}: {said}");
        assert!(said.contains("5 seen = "), "{said}");
        assert!(said.contains(" + 0 lost"), "{said}");
    }
    let graph =
        format!("(pcapin,'{mixed}') > (bpf,'udp or mpls',export=y) > (packetcount, export=y)");
    for workers in ["1", "3"] {
        let ran = fyke(&["run", "--workers", workers, &graph]);
        let (out, said) = (text(&ran.stdout), text(&ran.stderr));
        assert!(out.contains("bpf\tunfit_IEEE802_11\t2\n"), "{out}{said}");
        assert!(out.contains("packetcount\tpackets\t3\n"), "{out}{said}");
        assert!(said.contains("link type IEEE802_11: 2 frames rejected"), "{said}");
    }
    let rule = format!("udp or mpls => {}", folder.path().join("out.pcap").display());
    let dispatched = fyke(&["demux", "-r", &mixed, &rule]);
    assert_eq!(text(&dispatched.stdout), "3\tudp or mpls\n2\treject\n");
    assert!(text(&dispatched.stderr).contains("link type IEEE802_11: 2 frames rejected"));
    // Expression and link type are both valid: no note is printed.
    let plain = fyke(&["dump", "--count", "-r", &mixed, "greater 1"]);
    assert_eq!((text(&plain.stdout), text(&plain.stderr)), ("5\n".into(), String::new()));
}

#[test]
fn a_link_type_is_asked_for_as_in_tcpdump_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Script::new(FYKE, folder.path());
    let inside = |args: &str| namespace.run(&format!("exec $FYKE {args}"));
    let Some(listed) = inside("dump -L -i lo") else { return };
    assert!(text(&listed.stdout).contains("  EN10MB (Ethernet)"), "{}", text(&listed.stdout));
    for (link, why) in
        [("PPP", "lo does not offer link type PPP"), ("NONSENSE", "unknown link type")]
    {
        let refused = inside(&format!("dump -y {link} -i lo")).unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.contains("lo offers EN10MB"), "{said}");
    }
    let script = r#"ip link set lo up; (sleep 0.5; echo x > /dev/udp/127.0.0.1/9) &
        timeout 20 "$FYKE" dump --no-control --count -c 1 -y en10mb -i lo udp"#;
    assert_eq!(text(&namespace.run(script).unwrap().stdout), "1\n");
    let file = fyke(&["dump", "-y", "EN10MB", "-r", "any.pcap"]);
    assert_eq!(file.status.code(), Some(2));
    assert!(text(&file.stderr).contains("omit these options"), "{}", text(&file.stderr));
}

/// Edits of a running capture are checked against its link type too; a refused edit changes nothing.
#[test]
fn an_edit_for_another_link_type_is_refused_and_the_capture_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        ip link set lo up
        "$FYKE" dump --count -i lo 'udp dst port 5001' > counted 2> log &
        dump=$!
        answers
        "$FYKE" ctl add 'wlan type mgt' 2> added; echo "$?" >> added
        "$FYKE" ctl set 'wlan type mgt' 2> changed; echo "$?" >> changed
        echo x > /dev/udp/127.0.0.1/5001
        sleep 0.5
        kill -INT $dump; wait $dump
        "$FYKE" run '(device,lo) > {f}(bpf,"udp dst port 5001") > {n}(packetcount,export=y)' > ran 2> log2 &
        graph=$!
        answers
        "$FYKE" ctl set '(device,lo) > {f}(bpf,"wlan type mgt") > {n}(packetcount,export=y)' 2> edited
        echo "$?" >> edited
        echo x > /dev/udp/127.0.0.1/5001
        sleep 0.5
        kill -INT $graph; wait $graph
    "#;
    let namespace = Script::new(FYKE, folder.path());
    let Some(output) = namespace.run(script) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = text(&output.stderr) + &read("log") + &read("log2");
    for name in ["added", "changed", "edited"] {
        let answer = read(name);
        assert!(
            answer.contains("but this is Ethernet") && answer.contains("^^^^"),
            "{answer}{said}"
        );
        assert!(!answer.ends_with("\n0\n"), "{name}: {answer}");
    }
    assert_eq!(read("counted"), "1\n", "{said}");
    assert!(read("ran").contains("\t1\n"), "{}{said}", read("ran"));
}

/// `any` with both cooked link types: the list, the frames and the verdicts of filters are those of tcpdump.
#[test]
fn all_interfaces_offer_both_cooked_link_types() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Script::new(FYKE, folder.path()).as_root().limit_s(120);
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: tcpdump is not installed");
        return;
    }
    let script = r#"
        set -eu
        veth
        ip link set lo up
        "$FYKE" dump -L -i any > ours; tcpdump -L -i any > theirs 2>&1
        for link in LINUX_SLL LINUX_SLL2; do
            ids=""
            number=0
            while read -r text; do
                "$FYKE" dump --no-control -Z root -i any -y $link -w ours.$link.$number.pcap "$text" \
                    2> log.$link.$number &
                ids="$ids $!"
                tcpdump -Z root -i any -y $link -U -w theirs.$link.$number.pcap "$text" \
                    2> their.$link.$number &
                ids="$ids $!"
                wait_for grep -q 'listening on' log.$link.$number
                wait_for grep -q 'listening on' their.$link.$number
                number=$((number + 1))
            done < texts
            "$FYKE" run --no-control '(pcapin,in.pcap) > (tointerface,near)' 2> in.log
            echo x > /dev/udp/127.0.0.1/9 || true
            sleep 1.5
            kill -INT $ids
            wait
        done
    "#;
    let packet = |port| Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(7, port).build();
    let frames: Vec<Vec<u8>> = (0..20).map(|number| packet(50 + number % 4)).collect();
    std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
    let texts = ["udp", "port 53", "udp and inbound", "link[0:2] = 4", "not udp", "less 40"];
    std::fs::write(folder.path().join("texts"), texts.join("\n") + "\n").unwrap();
    let Some(output) = namespace.run(script) else { return };
    let said = text(&output.stderr);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap_or_default();
    let offered = |name| {
        let listed = String::from_utf8_lossy(&read(name)).into_owned();
        listed.lines().filter(|line| line.starts_with("  ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered("ours"), offered("theirs"), "{said}");
    assert_eq!(offered("ours").len(), 2);
    for (link, number) in [("LINUX_SLL", 113u32), ("LINUX_SLL2", 276)] {
        for (place, one) in texts.iter().enumerate() {
            let [ours, theirs] = ["ours", "theirs"].map(|whose| {
                let file = read(&format!("{whose}.{link}.{place}.pcap"));
                let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
                assert_eq!(word(20), number, "{whose} {link} {one}");
                let (mut at, mut frames) = (24, Vec::new());
                while at < file.len() {
                    let len = word(at + 8) as usize;
                    frames.push(file[at + 16..at + 16 + len].to_vec());
                    at += 16 + len;
                }
                frames.sort_unstable();
                frames
            });
            assert_eq!(ours, theirs, "{link} {one}: {said}");
            assert!(place > 1 || ours.len() >= 10, "{link} {one}: {} frames", ours.len());
        }
    }
}
