//! `fyke demux --scoped` against a full reassembly by etherparse: for every frame of every capture in
//! `fragments` of the corpus, an endpoint gets exactly the frames of the datagrams that belong to it.
//!
//! The reference implementation is independent of fyke: it slices each frame, reassembles, and takes the ports from the
//! reassembled datagram (or from the first fragment, if the datagram stays incomplete). Frames that it cannot slice are
//! omitted on both sides and counted. A fragment without its first fragment within 60 s goes to no endpoint.

use etherparse::defrag::IpDefragBuf;
use etherparse::{InternetSlice, IpFragOffset, Ipv6ExtensionSlice, SlicedPacket, TransportSlice};
use fyke_capture::{Next, Source, open_file};
use fyke_frame::LinkType;
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");
const PATIENCE_NS: u64 = 60_000_000_000;
/// Number of endpoints of one run.
const MOST_ENDPOINTS: usize = 200;

/// A captured frame.
struct Captured {
    link: LinkType,
    timestamp_ns: u64,
    data: Vec<u8>,
}

/// Protocol and destination port.
type To = (u8, u16);

fn read(path: &Path) -> Vec<Captured> {
    let mut source = open_file(path).unwrap();
    let mut frames = Vec::new();
    // A truncated file yields the frames that it has.
    while let Ok(Next::Frames(batch, _)) = source.next() {
        frames.extend(batch.frames().iter().map(|frame| Captured {
            link: frame.link,
            timestamp_ns: frame.timestamp_ns,
            data: frame.data.to_vec(),
        }));
    }
    frames
}

fn slice(frame: &Captured) -> Option<SlicedPacket<'_>> {
    match frame.link {
        LinkType::EN10MB => SlicedPacket::from_ethernet(&frame.data).ok(),
        LinkType::LINUX_SLL => SlicedPacket::from_linux_sll(&frame.data).ok(),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => SlicedPacket::from_ip(&frame.data).ok(),
        _ => None,
    }
}

/// A fragment: the key of its datagram, its offset in units of eight bytes, and the more-fragments flag.
struct Part {
    name: Vec<u8>,
    offset: u16,
    more: bool,
}

fn part(packet: &SlicedPacket<'_>) -> Option<Part> {
    let part = match packet.net.as_ref()? {
        InternetSlice::Ipv4(ip) => {
            let header = ip.header();
            let protocol = [ip.payload().ip_number.0];
            let id = header.identification().to_be_bytes();
            let name = [&header.source()[..], &header.destination(), &id, &protocol].concat();
            let (offset, more) = (header.fragments_offset().value(), header.more_fragments());
            Part { name, offset, more }
        }
        InternetSlice::Ipv6(ip) => ip.extensions().clone().into_iter().find_map(|extension| {
            let Ipv6ExtensionSlice::Fragment(fragment) = extension else { return None };
            let header = ip.header();
            let id = fragment.identification().to_be_bytes();
            let name = [&header.source()[..], &header.destination(), &id].concat();
            // Parsed here, because etherparse 0.19 takes offset and flag from other bits than RFC 8200 specifies.
            let field = u16::from_be_bytes([fragment.slice()[2], fragment.slice()[3]]);
            Some(Part { name, offset: field >> 3, more: field & 1 != 0 })
        })?,
        InternetSlice::Arp(_) => return None,
    };
    (part.offset > 0 || part.more).then_some(part)
}

fn to(protocol: u8, payload: &[u8]) -> Option<To> {
    let port = payload.get(2..4)?;
    matches!(protocol, 6 | 17).then(|| (protocol, u16::from_be_bytes([port[0], port[1]])))
}

fn to_of_ip(packet: &SlicedPacket<'_>) -> Option<To> {
    let payload = packet.ip_payload()?;
    to(payload.ip_number.0, payload.payload)
}

/// Results of etherparse: the endpoint of each frame; frames that it cannot slice; ports of fragmented datagrams;
/// datagrams reassembled.
#[derive(Default)]
struct Expected {
    of: Vec<Option<To>>,
    unknown: BTreeSet<usize>,
    ports: BTreeSet<To>,
    whole: usize,
}

fn expect(frames: &[Captured]) -> Expected {
    let mut expected = Expected { of: vec![None; frames.len()], ..Expected::default() };
    // Datagrams in reassembly, with their frames, and all first fragments with their times.
    let mut open: BTreeMap<Vec<u8>, (IpDefragBuf, Vec<usize>)> = BTreeMap::new();
    let mut firsts: BTreeMap<Vec<u8>, Vec<(u64, Option<To>)>> = BTreeMap::new();
    let mut others = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let Some(packet) = slice(frame) else {
            expected.unknown.insert(index);
            continue;
        };
        let Some(part) = part(&packet) else {
            expected.of[index] = match packet.transport {
                Some(TransportSlice::Tcp(_) | TransportSlice::Udp(_)) => to_of_ip(&packet),
                _ => None,
            };
            continue;
        };
        if part.offset == 0 {
            let seen = firsts.entry(part.name.clone()).or_default();
            seen.push((frame.timestamp_ns, to_of_ip(&packet)));
        }
        others.push((index, part.name.clone()));
        let Some(payload) = packet.ip_payload() else { continue };
        let (buffer, parts) = open.entry(part.name.clone()).or_insert_with(|| {
            (IpDefragBuf::new(payload.ip_number, Vec::new(), Vec::new()), Vec::new())
        });
        parts.push(index);
        let offset = IpFragOffset::try_new(part.offset).unwrap();
        let added = buffer.add(offset, part.more, payload.payload).is_ok();
        if added
            && buffer.is_complete()
            && let Some((buffer, parts)) = open.remove(&part.name)
        {
            expected.whole += 1;
            let to = to(buffer.ip_number().0, buffer.data());
            expected.ports.extend(to);
            parts.iter().for_each(|&part| expected.of[part] = to);
            others.retain(|(other, _)| !parts.contains(other));
        }
    }
    // Fragments of incomplete datagrams belong to the latest first fragment before them, or to the next one.
    for (index, name) in others {
        let now = frames[index].timestamp_ns;
        let known = firsts.get(&name).into_iter().flatten();
        let near = known.filter(|(time, _)| time.abs_diff(now) <= PATIENCE_NS);
        let (before, after): (Vec<_>, Vec<_>) = near.partition(|(time, _)| *time <= now);
        let to = before.last().or(after.first()).and_then(|(_, to)| *to);
        expected.of[index] = to;
        expected.ports.extend(to);
    }
    expected
}

/// Runs the command; returns the frames of each endpoint.
fn dispatch(path: &Path, endpoints: &[To]) -> Vec<Vec<(u64, Vec<u8>)>> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(FYKE);
    command.args(["demux", "--scoped", "-r"]).arg(path);
    let file = |number: usize| folder.path().join(format!("{number}.pcapng"));
    for (number, (protocol, port)) in endpoints.iter().enumerate() {
        let name = if *protocol == 6 { "tcp" } else { "udp" };
        command.arg(format!("outer ({name} dst port {port}) => {}", file(number).display()));
    }
    let done = command.stdin(Stdio::null()).output().unwrap();
    // Exit status 1: the command reports a truncated file after it has dispatched its frames.
    assert!(done.status.code() < Some(2), "{}", String::from_utf8_lossy(&done.stderr));
    let sorted = |number| {
        let frames = read(&file(number)).into_iter();
        let mut got: Vec<_> = frames.map(|frame| (frame.timestamp_ns, frame.data)).collect();
        got.sort();
        got
    };
    (0..endpoints.len()).map(sorted).collect()
}

/// Compares a file; returns the numbers of reassembled datagrams, compared frames and omitted frames.
fn compare(path: &Path) -> (usize, usize, usize) {
    let frames = read(path);
    let expected = expect(&frames);
    let endpoints: Vec<To> = expected.ports.iter().copied().take(MOST_ENDPOINTS).collect();
    let got = if endpoints.is_empty() { Vec::new() } else { dispatch(path, &endpoints) };
    let identity = |frame: &Captured| (frame.timestamp_ns, frame.data.clone());
    let unknown: BTreeSet<_> =
        expected.unknown.iter().map(|&index| identity(&frames[index])).collect();
    for (to, mut got) in endpoints.iter().zip(got) {
        got.retain(|frame| !unknown.contains(frame));
        let of = frames.iter().zip(&expected.of).filter(|(_, of)| **of == Some(*to));
        let mut wanted: Vec<_> = of.map(|(frame, _)| identity(frame)).collect();
        wanted.retain(|frame| !unknown.contains(frame));
        wanted.sort();
        let missing = wanted.iter().filter(|frame| !got.contains(frame)).count();
        let surplus = got.iter().filter(|frame| !wanted.contains(frame)).count();
        assert!(
            got == wanted,
            "{}: {to:?}: {} frames wanted, {} got; {missing} missing, {surplus} not wanted",
            path.display(),
            wanted.len(),
            got.len()
        );
    }
    (expected.whole, frames.len() - unknown.len(), unknown.len())
}

#[test]
fn every_fragment_goes_where_a_reassembly_sends_its_datagram() {
    let corpus = Corpus::open();
    let (mut files, mut whole) = (0, 0);
    for path in corpus.traces("fragments") {
        let (datagrams, compared, left_out) = compare(&path);
        println!(
            "{}: {datagrams} datagrams whole, {compared} frames compared, {left_out} left out",
            path.file_name().unwrap_or_default().display()
        );
        files += 1;
        whole += datagrams;
    }
    assert!(files >= 20 && whole >= 100, "{files} files, {whole} datagrams");
}

/// Fragments of one datagram of 60 bytes, IPv4 or IPv6, as Ethernet frames.
fn fragments(six: bool, id: u16, port: u16) -> Vec<Vec<u8>> {
    let mut datagram = [1u16, port, 60, 0].map(u16::to_be_bytes).concat();
    datagram.extend(vec![id as u8; 52]);
    let parts = datagram.chunks(24).enumerate();
    let parts = parts.map(|(number, part)| {
        let (offset, more) = (24 * number as u16, number < 2);
        let ether = Packet::ethernet();
        match six {
            true => ether.ipv6([0x20; 16], [0x21; 16]).fragment6(id.into(), offset, more),
            false => ether.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(id, offset, more),
        }
        .ip_payload(17, part)
        .build()
    });
    parts.collect()
}

#[test]
fn fragments_in_any_order_and_among_others_are_whole() {
    let mut frames = Vec::new();
    for (id, six) in [(1, false), (2, true)] {
        for (turn, order) in
            [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].iter().enumerate()
        {
            let id = id + 10 * turn as u16;
            let wanted = fragments(six, id, 53);
            let other = fragments(six, id + 500, 54);
            frames.extend(order.iter().flat_map(|&at| [wanted[at].clone(), other[at].clone()]));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    std::fs::write(&path, fyke_testkit::pcap::file(1, &frames)).unwrap();
    let (whole, compared, left_out) = compare(&path);
    assert_eq!((whole, compared, left_out), (24, 72, 0));
}
