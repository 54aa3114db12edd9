//! Names of sources, and sockets of several workers: real interfaces in namespaces; needs root.

use super::*;
use crate::commands::space::Kernel;
use fyke_capture::{
    DriverMark, FlowHash, Interface, InterfaceSink, Next, Sink, SocketFilter, SourceStats,
};
use fyke_filter::Options;
use fyke_filters::Listing;
use fyke_frame::{Frame, LinkType};
use fyke_graph::placement::{LowerFilter, Space};
use fyke_testkit::namespace;
use fyke_testkit::packet::Packet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn names_have_an_interface_and_perhaps_a_queue() {
    assert_eq!(parse("eth0"), None);
    assert_eq!(parse("xdp:eth0"), Some(Ok(("eth0", None))));
    assert_eq!(parse("xdp:eth0:3"), Some(Ok(("eth0", Some(3)))));
    for wrong in ["xdp:", "xdp::1", "xdp:eth0:", "xdp:eth0:-1", "xdp:eth0:1:2"] {
        assert!(matches!(parse(wrong), Some(Err(_))), "{wrong}");
    }
}

/// True in a network namespace of its own, into which the test goes.
fn inside(test: &str) -> bool {
    namespace::inside(&format!("commands::xdp::tests::{test}"), &["-n"], None)
}

fn tool(line: &str) {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes `near` and `far`, both with this number of queues.
fn veth(queues: u32) {
    let _none = Command::new("ip").args(["link", "delete", "near"]).output();
    let each = format!("numtxqueues {queues} numrxqueues {queues}");
    tool(&format!("ip link add near {each} type veth peer name far {each}"));
    for end in ["near", "far"] {
        let _without = Command::new("sysctl")
            .args(["-qw", &format!("net.ipv6.conf.{end}.disable_ipv6=1")])
            .output();
        tool(&format!("ip link set {end} up"));
    }
    let limit = Instant::now() + Duration::from_secs(20);
    let is_up = |end| {
        let shown = Command::new("ip").args(["-o", "link", "show", "dev", end]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains(" state UP ")
    };
    while !["near", "far"].into_iter().all(is_up) {
        assert!(Instant::now() < limit, "no carrier");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn options(buffer_kib: u32) -> XdpOptions {
    XdpOptions {
        interface: "far".to_owned(),
        queue: None,
        snaplen: 262_144,
        buffer_kib,
        look_back: false,
        promiscuous: true,
        by_class: true,
    }
}

/// The sources of several workers; `None` without the rights for them.
fn sources(options: &XdpOptions, workers: u32) -> Option<Vec<XdpSource>> {
    match open(options, true, workers) {
        Err(error) if error.to_string().contains("needs root or CAP_BPF") => {
            println!("skipped: {error}");
            None
        }
        opened => Some(opened.unwrap()),
    }
}

fn send<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) {
    let mut sink = InterfaceSink::open("near").unwrap();
    let interface = Interface::new("near", LinkType::EN10MB);
    for frame in frames {
        sink.write(&interface, &Frame::new(LinkType::EN10MB, frame)).unwrap();
    }
}

/// Reads what has arrived, until nothing comes for some time.
fn read_all(source: &mut XdpSource) -> Vec<(Vec<u8>, DriverMark)> {
    let mut all = Vec::new();
    source.set_patience(Duration::from_millis(100));
    loop {
        let frames: Vec<_> = match source.next().unwrap() {
            Next::Frames(batch, _) => batch.frames().iter().map(|one| one.data.to_vec()).collect(),
            Next::Idle | Next::End => return all,
        };
        let marks: Vec<_> = source.marks().collect();
        assert_eq!(frames.len(), marks.len());
        all.extend(frames.into_iter().zip(marks));
    }
}

fn udp(number: u32, port: u16) -> Vec<u8> {
    let pair = (number % 61) as u8;
    let packet = Packet::ethernet().ipv4([10, 0, 0, pair], [10, 0, 1, pair]).udp(4000, port);
    packet.payload(&number.to_be_bytes()).build()
}

/// The worker by the addresses of a frame.
fn by_addresses(frame: &[u8], workers: u32) -> usize {
    FlowHash::of_process().worker(&Frame::new(LinkType::EN10MB, frame), workers as usize)
}

/// Texts, the class of each, and the port of the frames that it accepts.
const TEXTS: [(&str, u32, u16); 5] = [
    ("udp dst port 5001", 1, 5001),
    ("udp dst port 5002", 2, 5002),
    // Without a class, evaluated as code, and with a class that has no room before the frame.
    ("udp dst port 5003", 0, 5003),
    ("udp dst port 5004 and ip[3] - 1 < 200", 7, 5004),
    ("udp dst port 5005", 70_000, 5005),
];

/// A filter at the driver with the texts.
fn filter(interface: &Interface) -> Arc<dyn LowerFilter> {
    let reading =
        Options { link: LinkType::EN10MB, netmask: Some(0), live: true, ..Options::default() };
    let lower = Kernel { count_all: None }.filter(interface, reading).unwrap();
    let classes = TEXTS.iter().map(|(text, class, _)| ((*text).to_owned(), *class));
    lower.set_classes(classes.collect()).unwrap();
    let texts =
        || -> Listing { (1..).zip(TEXTS.iter().map(|(text, ..)| (*text).into())).collect() };
    lower.narrow(&texts, &[]);
    lower
}

/// Every frame has the class and the row of its text before it, and is at the worker of its class or, without one, of
/// its addresses.
#[test]
fn class_and_row_go_with_a_frame_and_select_its_worker() {
    if !inside("class_and_row_go_with_a_frame_and_select_its_worker") {
        return;
    }
    for (queues, workers) in [(1, 2), (2, 2), (2, 4)] {
        veth(queues);
        let Some(mut sources) = sources(&options(32_768), workers) else { return };
        let lower = filter(&sources[0].interfaces()[0]);
        for source in &mut sources {
            source.set_filter(Arc::clone(&lower) as Arc<dyn SocketFilter>).unwrap();
        }
        let frames: Vec<_> = (0..1_200).map(|n| udp(n, 5001 + (n % 6) as u16)).collect();
        send(&frames);
        let mut rows: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();
        let mut count = 0;
        for (worker, source) in sources.iter_mut().enumerate() {
            for (frame, mark) in read_all(source) {
                let port = u16::from_be_bytes([frame[36], frame[37]]);
                let (_, class, _) = TEXTS.iter().find(|(.., of)| *of == port).unwrap();
                let stored = u16::try_from(*class).unwrap_or(0);
                assert_eq!(mark.class, stored, "port {port}");
                let wanted = match stored {
                    0 => by_addresses(&frame, workers),
                    class => (u32::from(class) - 1) as usize % workers as usize,
                };
                assert_eq!(worker, wanted, "port {port}, {workers} workers");
                rows.entry(port).or_default().insert(mark.row);
                count += 1;
            }
        }
        assert_eq!(count, 1_000, "{queues} queues, {workers} workers");
        let rows: BTreeSet<u16> = rows
            .into_values()
            .map(|of_port| {
                assert_eq!(of_port.len(), 1, "a text has one row");
                of_port.into_iter().next().unwrap()
            })
            .collect();
        assert!(rows.len() == TEXTS.len() && !rows.contains(&0), "{rows:?}");
        assert_eq!(lower.rejected(), Some(200));
    }
}

/// Without a filter, the program and user space select the same worker, also for tags, fragments and other protocols.
#[test]
fn a_conversation_has_the_worker_that_user_space_computes() {
    if !inside("a_conversation_has_the_worker_that_user_space_computes") {
        return;
    }
    veth(2);
    let Some(mut sources) = sources(&options(32_768), 3) else { return };
    let six = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    let mut frames = Vec::new();
    for n in 0..40_u8 {
        let (near, far) = ([10, 0, 0, n], [10, 0, 1, n]);
        frames.extend([
            Packet::ethernet().ipv4(near, far).tcp(1000, 80).build(),
            Packet::ethernet().ipv4(far, near).tcp(80, 1000).build(),
            Packet::ethernet().vlan(7).ipv4(near, far).udp(5, 6).build(),
            Packet::ethernet().vlan(7).vlan(8).ipv4(far, near).icmp(8, 0, 0).build(),
            Packet::ethernet()
                .ipv4(near, far)
                .fragment(9, 185, false)
                .ip_payload(6, &[0; 9])
                .build(),
            Packet::ethernet().ipv6(six(n.into()), six(1_000)).udp(9, 2).build(),
            Packet::ethernet().vlan(1).ipv6(six(1_000), six(n.into())).tcp(2, 9).build(),
        ]);
    }
    let mut arp = vec![0; 60];
    (arp[12], arp[13]) = (8, 6);
    // A header that ends in the frame's last byte but one.
    let cut = frames[0][..33].to_vec();
    frames.extend([arp, cut]);
    send(&frames);
    let mut seen = Vec::new();
    for (worker, source) in sources.iter_mut().enumerate() {
        let all = read_all(source);
        assert!(!all.is_empty(), "worker {worker}");
        for (frame, mark) in all {
            assert_eq!(worker, by_addresses(&frame, 3), "{frame:02x?}");
            assert_eq!(mark, DriverMark::default());
            seen.push(frame);
        }
    }
    frames.sort();
    seen.sort();
    assert_eq!(seen, frames);
}

/// A worker that leaves takes no memory with it: the frames in its ring are counted, the host gets new ones.
#[test]
fn the_memory_of_a_worker_that_leaves_is_used_by_the_others() {
    if !inside("the_memory_of_a_worker_that_leaves_is_used_by_the_others") {
        return;
    }
    veth(1);
    // 512 frames for each of two workers.
    let Some(mut sources) = sources(&options(1), 2) else { return };
    let of = |worker: usize, count: usize| -> Vec<Vec<u8>> {
        (0..)
            .map(|n| udp(n, 5001))
            .filter(|one| by_addresses(one, 2) == worker)
            .take(count)
            .collect()
    };
    let mut second = sources.remove(1);
    send(&of(1, 256));
    second.set_patience(Duration::from_secs(10));
    let Next::Frames(lent, _) = second.next().unwrap() else { panic!("frames have come") };
    let lent = lent.len();
    // Its held frames and its full ring would leave less than 500 of the 1,023 frames.
    send(&of(1, 800 - 256));
    let before = second.stats();
    drop(second);
    let mut first = sources.remove(0);
    for _ in 0..4 {
        send(&of(0, 500));
        assert_eq!(read_all(&mut first).len(), 500);
    }
    // The host gets these.
    send(&of(1, 100));
    first.set_patience(Duration::from_millis(300));
    assert!(matches!(first.next().unwrap(), Next::Idle), "no notice of a new queue, no frame");
    assert_eq!(first.take_notice(), None);
    let SourceStats { delivered, dropped, .. } = first.stats();
    assert_eq!((delivered, dropped), (2_000, 0));
    assert_eq!(before.delivered, lent as u64);
}

/// The counts of a group: each frame once, also those that a worker leaves in its ring, and those of no worker.
#[test]
fn the_counts_of_a_group_are_exact_when_workers_leave() {
    if !inside("the_counts_of_a_group_are_exact_when_workers_leave") {
        return;
    }
    veth(2);
    let Some(sources) = sources(&options(1), 3) else { return };
    let (mut group, mut shares) = RingGroup::at_driver(sources).unwrap();
    let frames: Vec<_> = (0..6_000).map(|n| udp(n, 5001)).collect();
    send(&frames[..1_500]);
    drop(shares.remove(1));
    send(&frames[1_500..]);
    group.stop();
    let (mut read, mut rest) = (0, shares);
    let mut last = rest.pop().unwrap();
    // One reads its ring to the end after the stop, the other one does not.
    loop {
        match last.next().unwrap() {
            Next::Frames(batch, _) => read += batch.len() as u64,
            Next::Idle => {}
            Next::End => break,
        }
    }
    rest[0].stop();
    drop((rest, last));
    assert!(matches!(group.next().unwrap(), Next::End));
    let stats = group.stats();
    assert_eq!((stats.received, stats.delivered), (6_000, read));
    let reasons: BTreeMap<_, _> = stats.lost().collect();
    let unread = stats.received - stats.delivered - stats.dropped;
    assert!(unread > 0 && stats.dropped > 0, "{stats:?}");
    assert!(reasons["queue without a socket"] > 500, "{reasons:?}");
    assert!(!reasons.contains_key("not taken by the socket"), "{reasons:?}");
    let rings = group.stats_by_ring();
    assert_eq!(rings.iter().map(|one| one.delivered).sum::<u64>(), read);
}
