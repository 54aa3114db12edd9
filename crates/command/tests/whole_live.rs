//! Losses, counts and files of live runs: pauses of the process, sums at every stop, statistics in files, and
//! expressions with another meaning in a live capture. The built command on real interfaces, in its own namespaces.

mod common;

use common::{FYKE, Running, datagram, folder, frames_of, inside, send, tool, veth};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Sends this number of frames, one by one with pauses.
fn send_slowly(count: u64, pause: Duration) {
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    let data = datagram(5001, 60);
    for _ in 0..count {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, &data)).unwrap();
        std::thread::sleep(pause);
    }
}

/// Waits until a packet socket is open in this namespace, for commands that do not announce that they listen.
fn capture_is_open() {
    // Its socket is bound to an interface and running.
    let is_open = || {
        let sockets = std::fs::read_to_string("/proc/net/packet").unwrap();
        sockets.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[4] != "0" && fields[5] == "1"
        })
    };
    for _ in 0..2_000 {
        if is_open() {
            return std::thread::sleep(Duration::from_millis(300));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing captures");
}

/// Starts a command, and waits until it captures.
fn start(words: &[&str]) -> Running {
    let running = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
    match words[0] {
        // A graph does not announce itself.
        "run" => capture_is_open(),
        _ => running.hear("listening on"),
    }
    running
}

#[test]
fn a_pause_at_low_rates_loses_nothing() {
    if !inside("a_pause_at_low_rates_loses_nothing") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let mut dump = Running::dump(&["-w", file.to_str().unwrap()], Stdio::null());
    dump.signal("STOP");
    let begin = std::time::Instant::now();
    let mut sent = 0;
    while begin.elapsed() < Duration::from_millis(2_500) {
        send_slowly(50, Duration::from_millis(2));
        sent += 50;
    }
    dump.signal("CONT");
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
    let sum = dump.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (sent, sent, 0), "{}", dump.said());
    assert_eq!(frames_of(&file), sent);
}

/// A frame of 64 KiB, the longest of most interfaces, is captured whole.
#[test]
fn a_frame_of_64_kib_is_whole() {
    if !inside("a_frame_of_64_kib_is_whole") {
        return;
    }
    tool("ip link set lo up");
    let (_folder, at) = folder();
    let file = at("out.pcap");
    let words =
        ["dump", "--no-control", "-i", "lo", "-w", file.to_str().unwrap(), "-c", "3", "udp"];
    let mut dump = Running::start(Command::new(FYKE).args(words).stdout(Stdio::null()));
    dump.hear("listening on");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    for _ in 0..3 {
        socket.send_to(&[7; 65_000], to).unwrap();
    }
    assert!(dump.end().success(), "{}", dump.said());
    let full = ["dump", "--count", "-r", file.to_str().unwrap(), "udp[65007] = 7 and len > 65000"];
    let output = Command::new(FYKE).args(full).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\n");
}

#[test]
fn every_live_command_closes_its_sum() {
    if !inside("every_live_command_closes_its_sum") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("out.pcapng");
    let file = file.to_str().unwrap();
    let rule = format!("udp port 5001 => {file}");
    let graph = format!("(device,v1) > (filter,udp port 5001) > (tofile,{file})");
    let commands: [&[&str]; 3] = [
        &["demux", "--no-control", "-i", "v1", &rule],
        &["run", "--no-control", &graph],
        &["ruler", "run", "anonymise.rul", "--no-control", "-i", "v1", "-w", file],
    ];
    for words in commands {
        let mut running = start(words);
        running.signal("STOP");
        send(400, 60);
        running.signal("CONT");
        running.signal("INT");
        assert!(running.end().success(), "{words:?}: {}", running.said());
        let sum = running.sum();
        assert_eq!((sum.seen, sum.lost), (400, 0), "{words:?}: {}", running.said());
        assert_eq!(sum.accepted, frames_of(Path::new(file)), "{words:?}: {}", running.said());
        let statistics = statistics_of(Path::new(file));
        assert_eq!(statistics, vec![(400, sum.accepted, sum.accepted)], "{words:?}");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn what_a_full_disk_does_not_take_is_counted_by_every_command() {
    if !inside("what_a_full_disk_does_not_take_is_counted_by_every_command") {
        return;
    }
    veth();
    let (folder, _) = folder();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    tool(&format!("mount -t tmpfs -o size=256k none {}", disk.display()));
    let file = disk.join("out.pcap");
    let name = file.to_str().unwrap();
    let rule = format!("udp => {name}");
    let commands: [&[&str]; 3] = [
        &["demux", "--no-control", "-i", "v1", &rule],
        &["ruler", "run", "anonymise.rul", "--no-control", "-i", "v1", "-w", name],
        &["dump", "--no-control", "-nqi", "v1", "--print", "-w", name],
    ];
    for words in commands {
        let mut running = start(words);
        send(1_000, 1_000);
        assert_eq!(running.end().code(), Some(1), "{words:?}: {}", running.said());
        let (sum, said) = (running.sum(), running.said());
        let written = frames_of(&file);
        assert_eq!(said.matches("No space left on device").count(), 1, "{said}");
        assert!(said.contains("out.pcap: No space left"), "{said}");
        assert!(written > 50 && written < 1_000, "{words:?}: {said}");
        // A frame that was printed, but is not in the file, is lost, too.
        assert_eq!(sum.accepted, written, "{words:?}: {said}");
        assert!(sum.lost > 0 && said.contains("lost (writer)"), "{words:?}: {said}");
        std::fs::remove_file(&file).unwrap();
    }
    tool(&format!("umount {}", disk.display()));
}

/// Received, accepted and delivered of each statistics block of a pcapng file.
fn statistics_of(path: &Path) -> Vec<(u64, u64, u64)> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let (kind, len) = (word(at), word(at + 4) as usize);
        let (mut option, mut counts) = (at + 20, BTreeMap::new());
        while kind == 5 && option + 8 < at + len {
            let code = word(option) as u16;
            let size = (word(option) >> 16) as usize;
            if size == 8 {
                let value = u64::from_ne_bytes(bytes[option + 4..option + 12].try_into().unwrap());
                counts.insert(code, value);
            }
            option += 4 + size.next_multiple_of(4);
        }
        if kind == 5 {
            found.push((counts[&4], counts[&6], counts[&8]));
        }
        at += len;
    }
    found
}

#[test]
fn each_file_of_a_rotation_has_its_own_statistics() {
    if !inside("each_file_of_a_rotation_has_its_own_statistics") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let name = at("a.pcapng");
    let mut dump =
        Running::dump(&["-Z", "root", "-C", "1", "-w", name.to_str().unwrap()], Stdio::null());
    for _ in 0..6 {
        send(1_000, 900);
        // The counts that nodes are told are up to a second old.
        std::thread::sleep(Duration::from_millis(400));
    }
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
    let (files, sums) = sums_of(&name);
    assert!(files >= 5, "{files} files");
    assert_eq!(sums, (6_000, 6_000, 6_000), "{}", dump.said());
}

/// Number of files of a rotation by size; sums of received, accepted and delivered frames over all of them. The
/// statistics of each file agree with its number of frames.
fn sums_of(name: &Path) -> (usize, (u64, u64, u64)) {
    let (mut files, mut sums) = (0, (0, 0, 0));
    for number in 0..100 {
        let mut file = name.as_os_str().to_owned();
        if number > 0 {
            file.push(number.to_string());
        }
        let file = Path::new(&file);
        if !file.exists() {
            break;
        }
        files += 1;
        let statistics = statistics_of(file);
        let [(received, accepted, delivered)] = statistics[..] else {
            panic!("{}: {statistics:?}", file.display());
        };
        assert_eq!((accepted, delivered), (frames_of(file), frames_of(file)), "{}", file.display());
        sums = (sums.0 + received, sums.1 + accepted, sums.2 + delivered);
    }
    (files, sums)
}

/// Every other frame is rejected: each file counts its own time, and all files together agree with the summary.
#[test]
fn rejected_frames_are_in_the_statistics_of_their_file() {
    if !inside("rejected_frames_are_in_the_statistics_of_their_file") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let name = at("b.pcapng");
    let words = ["-Z", "root", "-C", "1", "-w", name.to_str().unwrap(), "udp port 5001"];
    let mut dump = Running::dump(&words, Stdio::null());
    for _ in 0..10 {
        send(1_000, 900);
    }
    std::thread::sleep(Duration::from_millis(300));
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
    let sum = dump.sum();
    let (files, sums) = sums_of(&name);
    assert!(files >= 4, "{files} files");
    assert_eq!(sums, (sum.seen, sum.accepted, sum.accepted), "{}", dump.said());
    // What the kernel has rejected counts in the file that is open when its counter is read, ten times a second.
    let first = statistics_of(&name)[0];
    assert!(first.0 >= first.1, "{first:?}");
    assert_eq!(sum.accepted, 5_000, "{}", dump.said());
}

/// An interface that takes only a part of the frames: the rest is lost, with the reason, and the graph continues.
#[test]
fn a_full_queue_loses_frames_and_nothing_else() {
    if !inside("a_full_queue_loses_frames_and_nothing_else") {
        return;
    }
    veth();
    tool("tc qdisc replace dev v0 root tbf rate 8mbit burst 3000 limit 6000");
    let (_folder, at) = folder();
    let file = at("in.pcap");
    std::fs::write(&file, pcap::file(1, &vec![datagram(5001, 1_000); 2_000])).unwrap();
    let graph = format!("(pcapin,{}) > {{out}}(tointerface,v0,export)", file.to_str().unwrap());
    let output = Command::new(FYKE).args(["run", "--no-control", &graph]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("2000 seen = ") && said.contains(" lost (writer)"), "{said}");
    let counter = |name: &str| {
        let mut words = said.split_whitespace();
        words.find(|word| word.trim_end_matches([':', '=']) == name).unwrap_or_else(|| {
            panic!("no {name} in {said}");
        });
        words.next().and_then(|count| count.parse::<u64>().ok())
    };
    let (sent, lost) = (counter("sent").unwrap(), counter("queue_full").unwrap());
    assert!(sent > 0 && lost > 0 && sent + lost == 2_000, "{said}");
    assert!(said.contains(&format!("= {sent} accepted + 0 rejected + {lost} lost")), "{said}");
}

/// While the interface is down or gone, frames are lost; when it is up again, sending continues.
#[test]
fn an_interface_that_is_up_again_sends_again() {
    if !inside("an_interface_that_is_up_again_sends_again") {
        return;
    }
    veth();
    tool("ip link add v2 type veth peer name v3");
    tool("ip link set v2 up");
    tool("ip link set v3 up");
    let mut run = start(&["run", "--no-control", "(device,v1) > (tointerface,v2)"]);
    let settle = || std::thread::sleep(Duration::from_millis(400));
    for change in ["set v2 down", "set v2 up", "delete v2"] {
        send(100, 60);
        settle();
        tool(&format!("ip link {change}"));
    }
    send(100, 60);
    settle();
    run.signal("INT");
    assert!(run.end().success(), "{}", run.said());
    let sum = run.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (400, 200, 200), "{}", run.said());
}

/// `ip broadcast` uses the netmask of the interface, and 0 if there is none, as in tcpdump.
#[test]
fn a_broadcast_is_that_of_the_interface() {
    if !inside("a_broadcast_is_that_of_the_interface") {
        return;
    }
    veth();
    tool("ip addr add 10.9.0.1/24 dev v1");
    for (interface, expected) in [("v1", 2), ("any", 1)] {
        let text = "udp dst port 5003 and ip broadcast and inbound";
        let words = ["dump", "--no-control", "-i", interface, "--count", text];
        let mut dump = Running::start(Command::new(FYKE).args(words).stdout(Stdio::piped()));
        dump.hear("listening on");
        let mut sink = InterfaceSink::open("v0").unwrap();
        for to in [[10, 9, 0, 255], [10, 9, 0, 254], [255, 255, 255, 255]] {
            let packet = Packet::ethernet().ipv4([10, 9, 0, 7], to).udp(4000, 5003);
            let data = packet.payload(b"x").build();
            let from = Interface::new("v0", LinkType::EN10MB);
            sink.write(&from, &Frame::new(LinkType::EN10MB, &data)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        dump.signal("INT");
        assert!(dump.end().success(), "{}", dump.said());
        let counted = String::from_utf8_lossy(&common::rest(&mut dump)).into_owned();
        assert_eq!(counted, format!("{expected}\n"), "{interface}: {}", dump.said());
    }
}

/// A file that is being read is not written to, under any name: it stays unchanged, and the exit status is 2.
#[test]
fn no_command_writes_over_its_input() {
    let (_folder, at) = folder();
    let frames = vec![datagram(5001, 60); 20];
    let file = at("in.pcap");
    std::fs::write(&file, pcap::file(1, &frames)).unwrap();
    let (soft, hard, name) = (at("soft.pcap"), at("hard.pcap"), file.to_str().unwrap());
    std::os::unix::fs::symlink(&file, &soft).unwrap();
    std::fs::hard_link(&file, &hard).unwrap();
    // The name of a second file of a rotation.
    let large = at("large");
    let frames = vec![datagram(5001, 1_400); 2_000];
    std::fs::write(at("large1"), pcap::file(1, &frames)).unwrap();
    let (large, second) = (large.to_str().unwrap(), at("large1"));
    let before = [&file, &second].map(|file| std::fs::read(file).unwrap());
    let [soft, hard, second] = [&soft, &hard, &second].map(|path| path.to_str().unwrap());
    let rule = format!("udp => {hard}");
    let graph = format!("(pcapin,{name}) > (tofile,{soft})");
    let commands: [&[&str]; 8] = [
        &["dump", "-r", name, "-w", name],
        &["dump", "-r", name, "-w", soft, "udp"],
        &["dump", "-r", soft, "-w", hard],
        &["track", "ftp", "-r", name, "-w", soft],
        &["demux", "-r", name, &rule],
        &["ruler", "run", "anonymise.rul", "-r", name, "-w", soft],
        &["run", &graph],
        &["dump", "-Z", "root", "-r", second, "-C", "1", "-w", large],
    ];
    for words in commands {
        let output = Command::new(FYKE).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("this file is being read"), "{words:?}: {said}");
        // A file that is opened later, after a rotation, is a failure at run time.
        let status = if words.contains(&"-C") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        let after = [name, second].map(|file| std::fs::read(file).unwrap());
        assert!(before == after, "{words:?} has changed the input");
    }
    let input = std::fs::File::open(&file).unwrap();
    let mut command = Command::new(FYKE);
    let output = command.args(["dump", "-r", "-", "-w", soft]).stdin(input).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "standard input");
    let other = at("other.pcap");
    let copied = ["dump", "-r", name, "-w", other.to_str().unwrap()];
    assert!(Command::new(FYKE).args(copied).status().unwrap().success());
    assert_eq!(frames_of(&other), 20);
}

/// The kernel leaves such frames out, and counts them nowhere, if a socket of all interfaces has no program.
#[test]
fn frames_of_a_link_header_only_are_captured_on_all_interfaces() {
    if !inside("frames_of_a_link_header_only_are_captured_on_all_interfaces") {
        return;
    }
    veth();
    let (_folder, at) = folder();
    let file = at("any.pcapng");
    let mut dump = start(&["dump", "-i", "any", "-w", file.to_str().unwrap()]);
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    let bytes = [[0xff; 6].as_slice(), &[2, 0, 0, 0, 0, 2], &[8, 0]].concat();
    for _ in 0..100 {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, &bytes)).unwrap();
    }
    // Each is sent at one end and arrives at the other.
    dump.settle(200);
    dump.signal("INT");
    assert!(dump.end().success(), "{}", dump.said());
    assert_eq!(frames_of(&file), 200);
}
