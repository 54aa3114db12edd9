//! `-i xdp:IF`: frames that are taken at the driver. Real interfaces in namespaces; needs root.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Functions for the scripts. `listens` waits for the start line, `ends` stops a capture and waits for its end.
const FUNCTIONS: &str = r#"
    set -eu
    veth
    listens() { wait_for grep -q "listening on" "$1"; }
    ends() { kill -INT $1; wait $1; }
    refuse() { set +e; "$FYKE" "$@" > /dev/null 2>> refused; echo $? >> status; set -e; }
    free() { ! ip -d link show far | grep -q prog/xdp; }
    arrived() { ip -s -j link show $1 | grep -o '"tx":{[^}]*' | grep -o '"packets":[0-9]*' | grep -o '[0-9]*'; }
"#;

/// Writes frames to two UDP ports, 100 of each, in turn.
fn frames(folder: &Path) {
    let frame = |port| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, port);
        packet.payload(&[7; 30]).build()
    };
    let frames: Vec<_> = (0..200).map(|n| frame(5001 + n % 2)).collect();
    std::fs::write(folder.join("frames.pcap"), pcap::file(1, &frames)).unwrap();
}

/// Runs a script as root; `None` if the machine does not permit it.
fn run(folder: &Path, script: &str) -> Option<()> {
    frames(folder);
    let script = format!("{FUNCTIONS}{script}");
    let output = Script::new(FYKE, folder).as_root().run(&script)?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let logs = ["log", "log2"].map(|name| read(folder, name)).join("\n");
    if logs.contains("needs root or CAP_BPF") {
        println!("skipped: {logs}");
        return None;
    }
    assert!(output.status.success(), "{told}\n{logs}");
    Some(())
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default()
}

fn count(folder: &Path, file: &str, expression: &str) -> u32 {
    let file = folder.join(file);
    let arguments = ["dump", "--count", "-r", file.to_str().unwrap(), expression];
    let output = Command::new(FYKE).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// Reads the sum of a log: seen, accepted, rejected, lost.
fn sum(folder: &Path, log: &str) -> [u64; 4] {
    let text = read(folder, log);
    let line = text.lines().find(|line| line.contains(" seen = ")).unwrap_or_default();
    let mut sum = [0; 4];
    for part in line.split(" = ").flat_map(|side| side.split(" + ")) {
        let mut words = part.split([' ', ';']);
        let number: u64 = words.next().unwrap_or_default().parse().unwrap_or(0);
        let place = ["seen", "accepted", "rejected", "lost"];
        let what = words.next().unwrap_or_default();
        let at = place.iter().position(|name| *name == what);
        sum[at.unwrap_or_else(|| panic!("{part}: {text}"))] += number;
    }
    sum
}

/// The frames are captured and filtered, edits work, the host gets nothing while the capture runs and everything
/// after it, and the interface is in promiscuous mode only meanwhile.
#[test]
fn frames_are_taken_filtered_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" dump -i far -w host.pcapng 2> log2 &
        host=$!
        listens log2
        "$FYKE" dump -i xdp:far -w out.pcapng 'udp port 5001' 2> log &
        taker=$!
        listens log
        ip -d link show far > during
        send frames.pcap
        saw_all() { "$FYKE" ctl --pid $taker stats | grep -q " $1 seen"; }
        wait_for saw_all 200
        "$FYKE" ctl --pid $taker set 'udp port 5002'
        send frames.pcap
        wait_for saw_all 400
        set +e
        "$FYKE" ctl --pid $taker add outbound 2> refused; echo $? > status
        set -e
        ends $taker
        ip -d link show far > after
        send frames.pcap
        wait_for sh -c '"$FYKE" ctl --pid '$host' stats | grep -q " 400 seen"'
        ends $host
    "#;
    let Some(()) = run(folder, script) else { return };
    assert_eq!(count(folder, "out.pcapng", "udp port 5001"), 100);
    assert_eq!(count(folder, "out.pcapng", "udp port 5002"), 100);
    assert_eq!(sum(folder, "log"), [400, 200, 200, 0]);
    let log = read(folder, "log");
    for part in [
        "far: native XDP",
        "copy mode",
        "incoming frames only",
        "those that a filter at the driver rejects",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(read(folder, "during").contains("fyke_redirect"), "{}", read(folder, "during"));
    assert!(!read(folder, "after").contains("prog/xdp"), "{}", read(folder, "after"));
    assert_eq!(read(folder, "status"), "2\n");
    assert!(
        read(folder, "refused").contains("incoming frames only"),
        "{}",
        read(folder, "refused")
    );
    // The host got the 200 rejected frames, and 200 after the capture.
    assert_eq!(sum(folder, "log2"), [400, 400, 0, 0]);
    assert_eq!(count(folder, "host.pcapng", "udp port 5001"), 200);
}

/// Every frame that was sent has an outcome, also if the memory is small and the reader stops.
#[test]
fn the_sum_is_exact_under_overload() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" dump -i xdp:far -B 2048 -w out.pcapng 2> log &
        taker=$!
        listens log
        for round in $(seq 10); do send frames.pcap; done
        kill -STOP $taker
        for round in $(seq 10); do send frames.pcap; done
        kill -CONT $taker
        for round in $(seq 5); do send frames.pcap; done
        sleep 0.3
        ends $taker
        arrived near > sent
    "#;
    let Some(()) = run(folder, script) else { return };
    let sent: u64 = read(folder, "sent").trim().parse().unwrap();
    let [seen, accepted, rejected, lost] = sum(folder, "log");
    assert_eq!((seen, sent, rejected), (5_000, 5_000, 0), "{}", read(folder, "log"));
    assert_eq!(accepted + lost, seen);
    assert!(lost > 0, "512 frames fit, 2,000 came while the reader stood still");
    assert!(read(folder, "log").contains("lost (no free frame"), "{}", read(folder, "log"));
    assert_eq!(u64::from(count(folder, "out.pcapng", "")), accepted);
}

/// The time of a frame is that of its arrival, also if it is read later.
#[test]
fn times_are_those_of_the_arrival() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" dump -i xdp:far -w out.pcap 2> log &
        taker=$!
        listens log
        kill -STOP $taker
        date +%s%N > before
        send frames.pcap
        sleep 0.5
        date +%s%N > after
        sleep 0.5
        kill -CONT $taker
        ends $taker
    "#;
    let Some(()) = run(folder, script) else { return };
    let (_, frames) = pcap::read(&folder.join("out.pcap"), 1_000).unwrap();
    let [before, after]: [u64; 2] =
        ["before", "after"].map(|name| read(folder, name).trim().parse().unwrap());
    let times: Vec<u64> = frames.iter().map(|frame| frame.timestamp_ns).collect();
    assert_eq!(times.len(), 200, "{}", read(folder, "log"));
    assert!(times.is_sorted(), "one queue is read in order");
    // Files have microseconds.
    assert!(before - 1_000 <= times[0] && times[199] <= after, "{before} {times:?} {after}");
}

/// Interfaces that the host uses, programs and sockets of others, wrong names, texts that never hold.
#[test]
fn what_the_host_needs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        refuse dump -i xdp:
        refuse dump -i xdp:far:one
        refuse dump -i xdp:far -i near
        refuse dump -i far --take
        refuse dump -i xdp:far outbound
        refuse dump -i xdp:far -Q out
        refuse dump -i xdp:far -y RAW
        refuse dump -i xdp:none
        refuse dump -i xdp:far:7
        ip addr add 10.9.0.1/24 dev far
        refuse dump -i xdp:far
        "$FYKE" dump -i xdp:far --take -c 200 -w taken.pcapng 2> log &
        taker=$!
        listens log
        refuse dump -i xdp:far --take
        send frames.pcap
        wait $taker
        ip addr del 10.9.0.1/24 dev far
        wait_for free
        ip route add 10.8.0.0/24 dev far
        refuse dump -i xdp:far
        ip route del 10.8.0.0/24 dev far
        ip link add bridge type bridge
        ip link set far master bridge
        refuse run --no-control '(device,xdp:far) > (packetcount)'
        ip link set far nomaster
        ip link set far down
        refuse dump -i xdp:far
        ip link set far up
        set +e
        setpriv --bounding-set=-bpf,-sys_admin,-perfmon "$FYKE" dump -i xdp:far 2> denied; echo $? >> status
        set -e
        "$FYKE" dump -i xdp:far -y EN10MB -L > links
    "#;
    let Some(()) = run(folder, script) else { return };
    let status: String = read(folder, "status").split_whitespace().collect();
    let refused = read(folder, "refused");
    assert_eq!(status, "222222211111111", "{refused}");
    let denied = read(folder, "denied");
    for part in ["far: frames cannot be taken at the driver: ", "CAP_BPF", "copies of them: -i far"]
    {
        assert!(denied.contains(part), "{part}: {denied}");
    }
    let links = read(folder, "links");
    assert!(links.contains("EN10MB (Ethernet)"), "{links}");
    let reasons = [
        "the name of the interface is missing",
        "\"one\" is not the number of a queue",
        "cannot be captured together",
        "--take: it is for -i xdp:IF",
        "incoming frames only",
        "-Q out: -i xdp:far captures incoming frames only",
        "both directions with -i far",
        "xdp:far does not offer link type RAW; xdp:far offers EN10MB (Ethernet)",
        "no such interface",
        "far has no queue 7",
        "far has the address 10.9.0.1",
        "runs the XDP program fyke_redirect",
        "far carries the route to 10.8.0.0/24",
        "far is a port of the bridge bridge",
        "far: the interface is down",
    ];
    for reason in reasons {
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    assert_eq!(count(folder, "taken.pcapng", ""), 200);
}

/// All queues of an interface, one of them, and queues that come and go meanwhile: `ethtool` cannot remove a queue in
/// use, and the frames of a new one are counted as lost.
#[test]
fn queues_are_captured_together_or_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        ip link del near
        ip link add near numtxqueues 4 numrxqueues 4 type veth peer name far numtxqueues 4 numrxqueues 4
        for end in near far; do
            sysctl -qw net.ipv6.conf.$end.disable_ipv6=1
            ethtool -L $end rx 2 tx 2
            ip link set $end up
        done
        "$FYKE" dump -i xdp:far -w all.pcapng 2> log &
        taker=$!
        listens log
        send frames.pcap
        set +e
        ethtool -L far rx 1 2> shrink; echo $? > status
        set -e
        ethtool -L far rx 4 tx 4
        send frames.pcap
        sleep 0.3
        ends $taker
        wait_for free
        "$FYKE" dump -i xdp:far:1 -w one.pcapng 2> log2 &
        taker=$!
        listens log2
        send frames.pcap
        sleep 0.3
        ends $taker
    "#;
    let Some(()) = run(folder, script) else { return };
    let log = read(folder, "log");
    assert!(log.contains("all 2 queues"), "{log}");
    assert_ne!(read(folder, "status"), "0\n", "a queue with a socket stays");
    let [seen, accepted, rejected, lost] = sum(folder, "log");
    assert_eq!((seen, accepted + lost, rejected), (400, 400, 0), "{log}");
    assert_eq!(u64::from(count(folder, "all.pcapng", "")), accepted);
    let [seen, accepted, ..] = sum(folder, "log2");
    assert_eq!(seen, accepted);
    assert!(read(folder, "log2").contains("queue 1;"), "{}", read(folder, "log2"));
}

/// One thread reads all queues, and frames are in the order of time: both queues have many when they are read.
#[test]
fn the_frames_of_several_queues_are_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let flow = |port| Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(port, 9).build();
    let flows: Vec<_> = (4_000..4_200).map(flow).collect();
    std::fs::write(folder.join("flows.pcap"), pcap::file(1, &flows)).unwrap();
    let script = r#"
        ip link del near
        ip link add near numtxqueues 2 numrxqueues 2 type veth peer name far numtxqueues 2 numrxqueues 2
        for end in near far; do
            sysctl -qw net.ipv6.conf.$end.disable_ipv6=1
            ip link set $end up
        done
        "$FYKE" dump -i xdp:far -w out.pcap 2> log &
        taker=$!
        listens log
        kill -STOP $taker
        for round in $(seq 10); do send flows.pcap; done
        kill -CONT $taker
        saw_all() { "$FYKE" ctl --pid $taker stats | grep -q " 2000 seen"; }
        wait_for saw_all
        ethtool -S far > queues
        ends $taker
    "#;
    let Some(()) = run(folder, script) else { return };
    let queues = read(folder, "queues");
    for queue in [0, 1] {
        let name = format!("rx_queue_{queue}_xdp_redirect:");
        let mut words = queues.split_whitespace().skip_while(|word| *word != name).skip(1);
        let count: u64 = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
        assert!(count > 100, "{name} {queues}");
    }
    assert_eq!(sum(folder, "log"), [2_000, 2_000, 0, 0], "{}", read(folder, "log"));
    let (_, frames) = pcap::read(&folder.join("out.pcap"), 5_000).unwrap();
    let times: Vec<u64> = frames.iter().map(|frame| frame.timestamp_ns).collect();
    let wrong = times.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!((times.len(), wrong), (2_000, 0), "frames out of order");
}

/// A queue that is new while a capture runs: its frames go to the host, are counted as lost, and the user is told.
#[test]
fn new_queues_are_told_and_their_frames_counted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let flow = |port| Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(port, 9).build();
    let flows: Vec<_> = (4_000..4_200).map(flow).collect();
    std::fs::write(folder.join("flows.pcap"), pcap::file(1, &flows)).unwrap();
    let script = r#"
        ip link del near
        ip link add near numtxqueues 2 numrxqueues 2 type veth peer name far numtxqueues 2 numrxqueues 2
        for end in near far; do
            sysctl -qw net.ipv6.conf.$end.disable_ipv6=1
            ethtool -L $end rx 1 tx 1
            ip link set $end up
        done
        "$FYKE" dump -i xdp:far -w out.pcapng 2> log &
        taker=$!
        listens log
        send frames.pcap
        for end in far near; do ethtool -L $end rx 2 tx 2; done
        wait_for grep -q "far: it has more queues now" log
        # A veth runs the program on new queues from its next start on.
        ip link set far down
        wait_for grep -q "far: the interface is down" log
        ip link set far up
        wait_for grep -q "the interface is up again" log
        send flows.pcap
        ends $taker
    "#;
    let Some(()) = run(folder, script) else { return };
    let log = read(folder, "log");
    let [seen, accepted, _, lost] = sum(folder, "log");
    assert_eq!((seen, accepted + lost), (400, 400), "{log}");
    assert!(lost > 0 && log.contains("lost (queue without a socket"), "{log}");
    assert_eq!(u64::from(count(folder, "out.pcapng", "")), accepted);
}

/// Frames that do not fit into one of the memory arrive whole, and are filtered by their last bytes.
#[test]
fn long_frames_arrive_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sizes = [30, 3_796, 3_797, 7_600, 8_900];
    let frame = |n: usize| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(4000, 5003);
        packet.payload(&vec![n as u8 | 1; sizes[n % 5]]).build()
    };
    let frames: Vec<_> = (0..100).map(frame).collect();
    std::fs::write(folder.join("long.pcap"), pcap::file(1, &frames)).unwrap();
    let script = r#"
        for end in near far; do ip link set $end mtu 9000; done
        "$FYKE" dump -i xdp:far --look-back -w out.pcapng 'less 200 or (udp port 5003 and ip[8900] & 1 = 1)' 2> log &
        taker=$!
        listens log
        send long.pcap
        saw_all() { "$FYKE" ctl --pid $taker stats | grep -q " 100 seen"; }
        wait_for saw_all
        ends $taker
        "$FYKE" dump -i xdp:far -w all.pcap 2> log2 &
        taker=$!
        listens log2
        send long.pcap
        send frames.pcap
        sleep 0.3
        ends $taker
    "#;
    let Some(()) = run(folder, script) else { return };
    let log = read(folder, "log");
    assert_eq!(sum(folder, "log"), [100, 40, 60, 0], "{log}");
    // Such frames need generic XDP, which cannot ask the driver.
    assert!(log.contains("tags that the device removes are lost"), "{log}");
    assert_eq!(sum(folder, "log2"), [300, 300, 0, 0], "{}", read(folder, "log2"));
    let (_, written) = pcap::read(&folder.join("all.pcap"), 1_000).unwrap();
    let written: Vec<_> = written.into_iter().take(100).map(|record| record.data).collect();
    assert!(written == frames, "the bytes are those that were sent");
}

/// The end of the process, however it ends, and of the interface.
#[test]
fn nothing_stays_behind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" dump -i xdp:far -w out.pcapng 2> killed &
        taker=$!
        listens killed
        kill -KILL $taker
        wait_for free
        wait_for sh -c 'ip -d link show far | grep -q "promiscuity 0"'
        "$FYKE" dump -i xdp:far -w out.pcapng 2> log &
        taker=$!
        listens log
        send frames.pcap
        ip link set far down
        wait_for grep -q "far: the interface is down" log
        ip link set far up
        wait_for grep -q "the interface is up again" log
        send frames.pcap
        sleep 0.3
        ip link del far
        set +e
        wait $taker; echo $? > status
    "#;
    let Some(()) = run(folder, script) else { return };
    assert_eq!(read(folder, "status"), "1\n", "{}", read(folder, "log"));
    let log = read(folder, "log");
    let told = "far: the interface has disappeared; at the driver, fyke cannot continue";
    assert!(log.contains(told), "{log}");
    assert_eq!(sum(folder, "log"), [400, 400, 0, 0]);
    assert_eq!(count(folder, "out.pcapng", ""), 400);
}

/// Program at the exit of an interface: frames leave with a tag that is not in their bytes, as from a device that
/// removes tags. Those for port 5001 have 802.1Q's 5, others 802.1ad's 6.
const TAGGER: &str = r#"
    #include <linux/bpf.h>
    static long (*const push)(struct __sk_buff *skb, __u16 protocol, __u16 tag) = (void *)BPF_FUNC_skb_vlan_push;
    static long (*const load)(const void *skb, __u32 at, void *to, __u32 len) = (void *)BPF_FUNC_skb_load_bytes;
    __attribute__((section("classifier"), used)) int tag(struct __sk_buff *skb)
    {
        unsigned char port = 0;

        load(skb, 37, &port, 1);
        if (port == (5001 & 0xff))
            push(skb, __builtin_bswap16(0x8100), 5);
        else
            push(skb, __builtin_bswap16(0x88a8), 6);
        return 0;
    }
    char terms[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
"#;

/// A tag that the device removed is in the frame again, as with a copying capture; filters at XDP judge by it, and the
/// host gets rejected frames with it.
#[test]
fn tags_that_the_device_removed_are_reinserted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("tagger.c"), TAGGER).unwrap();
    let script = r#"
        clang -O2 -g -target bpf -I"/usr/include/$(uname -m)-linux-gnu" -c tagger.c -o tagger.o 2> untagged &&
            tc qdisc add dev near clsact 2>> untagged &&
            tc filter add dev near egress bpf da obj tagger.o sec classifier 2>> untagged || exit 0
        take() { # FILE LOG ARGUMENTS...
            file=$1; log=$2; shift 2
            "$FYKE" dump -w $file "$@" 2> $log &
            taker=$!
            listens $log
        }
        read_all() { wait_for sh -c '"$FYKE" ctl --pid '$1' stats | grep -q " 200 seen"'; ends $1; }
        take copies.pcap copied -i far; send frames.pcap; read_all $taker
        take taken.pcap log -i xdp:far; send frames.pcap; read_all $taker
        wait_for free
        take host.pcap log2 -i far; host=$taker
        take taken5.pcap log5 -i xdp:far 'vlan 5 and udp port 5001'; send frames.pcap; read_all $taker
        ends $host
    "#;
    let Some(()) = run(folder, script) else { return };
    let log = read(folder, "log");
    if log.is_empty() || log.contains("tags that the device removes are lost") {
        println!("skipped: no driver here removes tags: {log}{}", read(folder, "untagged"));
        return;
    }
    assert!(log.contains("tags that the device removes are reinserted"), "{log}");
    let frames = |name: &str| -> Vec<_> {
        let (_, frames) = pcap::read(&folder.join(name), 1_000).unwrap();
        frames.into_iter().map(|frame| frame.data).collect()
    };
    let with = |frames: &[Vec<u8>], tag: [u8; 4]| -> Vec<_> {
        frames.iter().filter(|frame| frame[12..16] == tag).cloned().collect()
    };
    let copies = frames("copies.pcap");
    let [first, second] = [with(&copies, [0x81, 0, 0, 5]), with(&copies, [0x88, 0xa8, 0, 6])];
    assert_eq!([copies.len(), first.len(), second.len()], [200, 100, 100]);
    assert!(frames("taken.pcap") == copies, "{log}");
    assert!(frames("taken5.pcap") == first, "{}", read(folder, "log5"));
    assert_eq!(sum(folder, "log5"), [200, 100, 100, 0]);
    assert!(frames("host.pcap") == second, "{}", read(folder, "log2"));
}
