//! What a reader and a writer do to each other: wake-ups, heartbeats, held frames, values, and
//! clients that do not keep to the protocol.

use super::{LINK, again, bytes, frame, number, reader};
use crate::protocol::Words;
use crate::{Held, Value, Values};
use crate::{Index, Lending, Memory, Origin, Packets, Publication, Read, Reader, RingError};
use fyke_frame::{Frame, LinkType};
use std::io::{Read as _, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A ring that is published in a folder of its own.
struct Ring {
    published: Publication,
    packets: Packets,
    index: Index,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ring {
    fn new() -> Ring {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ring");
        let packets = Packets::create(8192).unwrap();
        let index = Index::create(16, LINK).unwrap();
        let published = Publication::new(&path, &packets, &index).unwrap();
        Ring { published, packets, index, path, _folder: folder }
    }

    /// Connects a reader, and waits until its page has arrived.
    fn reader(&self) -> Reader {
        let reader = Reader::connect(&self.path).unwrap();
        until("the page arrives", || self.published.pages() == self.published.readers());
        reader
    }

    fn put(&mut self, step: u64) {
        let data = bytes(step);
        let held = self.published.held(&self.index);
        match self.packets.put_from(&frame(step, &data), None, held) {
            Ok(placed) => self.index.push_as(0, &placed, Default::default()),
            Err(RingError::Held) => self.index.refuse(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_reader_that_sleeps_is_woken_and_others_are_not() {
    let mut ring = Ring::new();
    let (mut asleep, mut awake) = (ring.reader(), ring.reader());
    assert_eq!(ring.published.readers(), 2);
    let (ready, wakes) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let mut data = Vec::new();
        ready.send(()).unwrap();
        let start = Instant::now();
        loop {
            if let Read::Frame(copied) = asleep.next(&mut data) {
                return (start.elapsed(), number(&data, &copied));
            }
            asleep.wait(Duration::from_secs(15));
        }
    });
    wakes.recv().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    ring.put(3);
    ring.published.wake();
    let (waited, found) = waiting.join().unwrap();
    assert_eq!(found, 3);
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert!(matches!(awake.next(&mut Vec::new()), Read::Frame(_)));
    // The end of the writer wakes a reader, too.
    let ending = std::thread::spawn(move || {
        let start = Instant::now();
        awake.wait(Duration::from_secs(15));
        (start.elapsed(), awake.next(&mut Vec::new()))
    });
    std::thread::sleep(Duration::from_millis(50));
    let Ring { published, index, .. } = ring;
    drop(index);
    drop(published);
    let (waited, end) = ending.join().unwrap();
    assert_eq!(end, Read::End);
    assert!(waited < Duration::from_secs(10), "{waited:?}");
}

#[test]
fn slow_readers_hold_frames_until_they_stop_for_a_second() {
    let mut ring = Ring::new();
    let mut slow = ring.reader();
    let mut fast = ring.reader();
    let mut data = Vec::new();
    for step in 0..300 {
        ring.put(step);
        while let Read::Frame(_) = fast.next(&mut data) {}
        data.clear();
        // Every third time, so that the writer has to refuse frames.
        if step % 3 == 0 {
            let _ = slow.next(&mut Vec::new());
        }
    }
    assert!(slow.refused() > 50, "{}", slow.refused());
    assert_eq!(fast.refused(), slow.refused());
    assert_eq!(fast.read() + fast.refused(), 300);
    assert_eq!((fast.lost(), slow.lost()), (0, 0), "no frame that was stored is overwritten");
    let start = Instant::now();
    let before = ring.index.pushed();
    let mut step = 300;
    while ring.index.pushed() < before + 50 {
        ring.put(step);
        step += 1;
        assert!(start.elapsed() < Duration::from_secs(20), "a reader holds frames for ever");
        std::thread::sleep(Duration::from_millis(2));
    }
    while slow.next(&mut Vec::new()) != Read::Nothing {}
    assert!(slow.lost() > 0);
    assert_eq!(slow.read() + slow.lost() + slow.refused(), step);
    // It reads again, so it is preferred again.
    let lost = slow.lost();
    for step in 0..100 {
        ring.put(step);
        if step % 4 == 0 {
            let _ = slow.next(&mut Vec::new());
        }
    }
    assert_eq!(slow.lost(), lost);
}

#[test]
fn without_a_connection_the_heartbeat_tells_that_the_writer_is_gone() {
    let packets = Packets::create(8192).unwrap();
    let mut index = Index::create(16, LINK).unwrap();
    let mut reader = reader(&packets, &index);
    assert_eq!(reader.next(&mut Vec::new()), Read::Nothing, "a writer without a heartbeat");
    index.beat();
    assert_eq!(reader.next(&mut Vec::new()), Read::Nothing);
    let mut lent = Vec::new();
    let start = Instant::now();
    until("the silence is noticed", || reader.next(&mut Vec::new()) == Read::Gone);
    assert!(start.elapsed() > Duration::from_millis(500));
    assert_eq!(reader.lend(&mut lent, 1), Lending::Gone);
    index.beat();
    assert_eq!(reader.next(&mut Vec::new()), Read::Nothing, "it was only stopped");
    let again = Index::create(16, LINK).unwrap();
    assert_ne!(again.generation(), index.generation());
    assert_eq!(reader.generation(), index.generation());
    index.close();
    assert_eq!(reader.next(&mut Vec::new()), Read::End);
}

#[test]
fn a_published_ring_has_a_heartbeat() {
    let ring = Ring::new();
    let mut reader = reader(&ring.packets, &ring.index);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(reader.next(&mut Vec::new()), Read::Nothing);
}

#[test]
fn interfaces_are_in_the_ring_before_their_frames() {
    let (mut packets, mut index) =
        (Packets::create(1 << 16).unwrap(), Index::create(64, LINK).unwrap());
    let mut reader = reader(&packets, &index);
    let other = Index::create(64, LINK).unwrap();
    let long = "a long name ".repeat(9);
    let origins = [
        Origin { netmask: 0xffff_ff00, snaplen: 96, ..Origin::new("eth0", LINK) },
        Origin { nanoseconds: false, ..Origin::new(&long, LinkType::RAW) },
    ];
    for (step, origin) in origins.iter().enumerate() {
        let number = packets.origin(origin);
        assert_eq!((number, packets.origin(origin)), (Some(step as u32), number));
        index.comes_from(0, number.unwrap());
        let frame = Frame::new(origin.link, &[7; 60]);
        let placed = packets.put_from(&frame, number, Held::Nothing).unwrap();
        index.push_as(0, &placed, Default::default());
        let Read::Frame(copied) = reader.next(&mut Vec::new()) else { panic!("{step}") };
        let cut = Origin { name: origin.name.chars().take(64).collect(), ..origin.clone() };
        assert_eq!(reader.origin(0, copied.origin.unwrap()), Some(cut));
    }
    assert!(reader.origins().eq([(0, 0), (0, 1)]));
    let nobody = super::reader(&packets, &other);
    assert_eq!(nobody.origins().count(), 0, "no frame of another index");
    for number in 2..80 {
        let known = packets.origin(&Origin::new(&number.to_string(), LINK));
        assert_eq!(known.is_some(), number < 64);
    }
}

#[test]
fn values_have_names_and_types() {
    let shown = Values::create(3).unwrap();
    let seen = Values::open(again(shown.fd())).unwrap();
    assert!(seen.is_empty());
    shown.set(0, "packets", Value::Count(7));
    shown.set(1, "bytes_per_s", Value::Number(0.5));
    shown.set(0, "another name", Value::Count(8));
    shown.set(2, &"x".repeat(100), Value::Count(u64::MAX));
    shown.set(3, "too many", Value::Count(1));
    seen.set(0, "packets", Value::Count(1));
    assert_eq!(seen.named("packets"), Some(Value::Count(8)));
    assert_eq!(seen.named("bytes_per_s"), Some(Value::Number(0.5)));
    assert_eq!(seen.get(2), Some(("x".repeat(40), Value::Count(u64::MAX))));
    assert_eq!((seen.len(), seen.get(3)), (3, None));
    let none = Memory::create(64).unwrap();
    assert!(Values::open(again(none.fd())).is_err());
}

/// Unexpected bytes, a page that is none, a connection that ends: the writer continues.
#[test]
fn clients_that_do_not_keep_to_the_protocol_change_nothing() {
    let mut ring = Ring::new();
    let mut flood = UnixStream::connect(&ring.path).unwrap();
    flood.set_nonblocking(true).unwrap();
    while flood.write(&[7; 65_536]).is_ok() {}
    let closed: Vec<_> = (0..200).map(|_| UnixStream::connect(&ring.path).unwrap()).collect();
    drop(closed);
    let stranger = UnixStream::connect(&ring.path).unwrap();
    let file: std::os::fd::OwnedFd = tempfile::tempfile().unwrap().into();
    crate::publish::lend_page(&stranger, std::os::fd::AsFd::as_fd(&file)).unwrap();
    let liar = UnixStream::connect(&ring.path).unwrap();
    let page = Memory::create(8).unwrap();
    page.store(0, u64::from_le_bytes(*b"fykepin1"), Ordering::Relaxed);
    page.store(1, 1, Ordering::Relaxed);
    page.store(2, u64::MAX, Ordering::Relaxed);
    crate::publish::lend_page(&liar, page.fd()).unwrap();
    until("the page of the liar arrives", || ring.published.pages() == 1);
    let mut reader = Reader::connect(&ring.path).unwrap();
    for step in 0..500 {
        page.store(2, step * 0x0123_4567_89ab, Ordering::Relaxed);
        ring.put(step);
        ring.published.wake();
        while let Read::Frame(_) = reader.next(&mut Vec::new()) {}
    }
    assert_eq!(reader.read() + reader.refused(), 500);
    assert_eq!(reader.lost(), 0);
    drop((liar, flood));
    until("they are gone", || ring.published.readers() == 2);
    drop(stranger);
    until("it is gone", || ring.published.readers() == 1);
}

#[test]
fn a_writer_of_another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.ring");
    let listener = UnixListener::bind(&path).unwrap();
    let old = std::thread::spawn(move || {
        for greeting in [b"fyke-ring 1\n".as_slice(), b"fyke-ring 2\n\x01\x00", b"hello"] {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(greeting).unwrap();
            let _closed = stream.read(&mut [0; 1]);
        }
    });
    for expected in ["version of its protocol is 1, expected 2", "the answer", "the answer"] {
        let refused = Reader::connect(&path).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    old.join().unwrap();
}
