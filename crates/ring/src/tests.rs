//! Written frames are read whole and in order, or counted as lost; and no data from a peer is
//! trusted.

mod places;
mod sharing;

use crate::protocol::Words;
use crate::{Index, Memory, Packets, Publication, Read, Reader, RingError};
use fyke_frame::{Direction, Frame, LinkType};
use fyke_testkit::random::Random;
use std::fs::File;
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

const LINK: LinkType = LinkType::EN10MB;

fn again(fd: BorrowedFd<'_>) -> OwnedFd {
    fd.try_clone_to_owned().unwrap()
}

fn reader(packets: &Packets, index: &Index) -> Reader {
    Reader::open(again(packets.fd()), again(index.fd())).unwrap()
}

/// Bytes that identify their frame, so that a torn frame is detected.
fn bytes(number: u64) -> Vec<u8> {
    let words = 1 + number as usize % 40;
    (0..words).flat_map(|_| number.to_le_bytes()).collect()
}

fn frame(number: u64, bytes: &[u8]) -> Frame<'_> {
    let mut frame = Frame::new(LINK, bytes);
    frame.meta.vlan = (number % 2 == 1).then_some(number as u16);
    frame.meta.direction = direction(number);
    (frame.meta.ifindex, frame.meta.late) = (number as u32 % 7, number.is_multiple_of(5));
    Frame { timestamp_ns: number, wire_len: number as u32, ..frame }
}

fn direction(number: u64) -> Direction {
    [Direction::Unknown, Direction::Inbound, Direction::Outbound][number as usize % 3]
}

/// The number of the frame, if all bytes are of the same frame.
fn number(data: &[u8], copied: &crate::packets::Copied) -> u64 {
    let number = copied.timestamp_ns;
    assert_eq!(data, bytes(number), "frame {number} is torn");
    assert_eq!((copied.wire_len, copied.link), (number as u32, LINK));
    assert_eq!(copied.vlan, (number % 2 == 1).then_some(number as u16));
    let from = (copied.direction, copied.ifindex, copied.late, copied.len);
    let late = number.is_multiple_of(5);
    assert_eq!(from, (direction(number), number as u32 % 7, late, data.len()));
    number
}

#[test]
fn endpoints_share_packets_and_every_frame_is_read_or_counted() {
    let (mut random, seed) = Random::seeded(21);
    println!("seed {seed}");
    let mut packets = Packets::create(8192).unwrap();
    let mut indexes = [16, 1024].map(|places| Index::create(places, LINK).unwrap());
    let mut readers: Vec<Reader> = indexes.iter().map(|index| reader(&packets, index)).collect();
    let mut last = [None; 2];
    for step in 0..20_000 {
        let data = bytes(step);
        let place = packets.put(&frame(step, &data)).unwrap();
        indexes[0].push(place);
        if step % 3 == 0 {
            indexes[1].push(place);
        }
        for (which, reader) in readers.iter_mut().enumerate() {
            for _ in 0..random.below(3) {
                let mut data = b"before".to_vec();
                match reader.next(&mut data) {
                    Read::Frame(copied) => {
                        let number = number(&data[6..], &copied);
                        assert!(
                            last[which] < Some(number) && (which == 0 || number.is_multiple_of(3))
                        );
                        last[which] = Some(number);
                    }
                    other => assert_eq!((other, data.len()), (Read::Nothing, 6)),
                }
            }
        }
    }
    for (mut index, reader) in indexes.into_iter().zip(&mut readers) {
        index.close();
        while reader.next(&mut Vec::new()) != Read::End {}
        assert_eq!(reader.read() + reader.lost(), index.pushed());
        assert!(reader.read() > 1000);
    }
    assert!(readers[0].lost() > 0);
    let limit = packets.largest();
    let large = vec![0; limit + 1];
    let refused = packets.put(&Frame::new(LINK, &large));
    assert!(matches!(refused, Err(RingError::TooLarge { given, .. }) if given == limit + 1));
}

#[test]
fn a_reader_in_another_thread_never_sees_a_torn_frame() {
    let mut packets = Packets::create(8192).unwrap();
    let mut index = Index::create(64, LINK).unwrap();
    let mut reader = reader(&packets, &index);
    let reading = std::thread::spawn(move || {
        let (mut data, mut last) = (Vec::new(), None);
        loop {
            data.clear();
            match reader.next(&mut data) {
                Read::Frame(copied) => {
                    let number = number(&data, &copied);
                    assert!(last < Some(number));
                    last = Some(number);
                }
                Read::Nothing => std::thread::yield_now(),
                Read::End | Read::Gone => return (reader.read(), reader.lost()),
            }
        }
    });
    for step in 0..200_000 {
        let place = packets.put(&frame(step, &bytes(step))).unwrap();
        index.push(place);
    }
    index.close();
    let (read, lost) = reading.join().unwrap();
    assert_eq!(read + lost, 200_000);
    assert!(read > 0, "{read} {lost}");
}

#[test]
fn the_reader_after_the_last_is_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ring");
    let packets = Packets::create(1 << 16).unwrap();
    let index = Index::create(64, LINK).unwrap();
    let _published = Publication::new(&path, &packets, &index).unwrap();
    let readers: Vec<_> =
        (0..crate::MAX_READERS).map(|_| Reader::connect(&path).unwrap()).collect();
    let refused = Reader::connect(&path).unwrap_err().to_string();
    assert!(refused.contains("serves at most 64 at a time"), "{refused}");
    drop(readers);
    Reader::connect(&path).unwrap();
}

#[test]
fn who_asks_gets_both_buffers_to_read_only_until_the_writer_ends() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ring");
    let mut packets = Packets::create(1 << 16).unwrap();
    let mut index = Index::create(64, LINK).unwrap();
    assert!(Reader::connect(&path).is_err());
    let published = Publication::new(&path, &packets, &index).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let taken = Publication::new(&path, &packets, &index);
    assert!(matches!(taken, Err(RingError::Taken { .. })));
    let mut reader = Reader::connect(&path).unwrap();
    assert_eq!((reader.link(), reader.next(&mut Vec::new())), (LINK, Read::Nothing));
    index.push(packets.put(&frame(7, &bytes(7))).unwrap());
    let mut data = Vec::new();
    assert!(matches!(reader.next(&mut data), Read::Frame(copied) if number(&data, &copied) == 7));
    // Neither the descriptor nor a new mapping of it can be written.
    assert!(File::from(again(packets.fd())).write_all(b"x").is_err());
    index.push(packets.put(&frame(8, &bytes(8))).unwrap());
    drop(published);
    assert!(!path.exists());
    drop(index);
    assert!(matches!(reader.next(&mut Vec::new()), Read::Frame(_)));
    assert_eq!(reader.next(&mut Vec::new()), Read::End);
}

#[test]
fn what_is_no_ring_is_refused_and_garbage_is_survived() {
    let packets = Packets::create(8192).unwrap();
    let index = Index::create(16, LINK).unwrap();
    let open = |one: BorrowedFd<'_>, other: BorrowedFd<'_>| Reader::open(again(one), again(other));
    assert!(open(packets.fd(), packets.fd()).is_err());
    assert!(open(index.fd(), index.fd()).is_err());
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    assert!(Memory::open(file).is_err());
    let odd = Memory::create(8 + 17).unwrap();
    odd.store(0, packets_magic(&packets), Ordering::Relaxed);
    assert!(Reader::open(again(odd.fd()), again(index.fd())).is_err());
    let (mut random, seed) = Random::seeded(22);
    println!("seed {seed}");
    for _ in 0..200 {
        let memories = [packets.fd(), index.fd()].map(|of| {
            let real = Memory::open(again(of)).unwrap();
            let memory = Memory::create(real.words()).unwrap();
            memory.store(0, real.load(0, Ordering::Relaxed), Ordering::Relaxed);
            memory
        });
        let [packets, index] = memories.each_ref().map(|memory| again(memory.fd()));
        let mut reader = Reader::open(packets, index).unwrap();
        for _ in 0..50 {
            for memory in &memories {
                for _ in 0..20 {
                    // The words that steer a reader more often than the others.
                    let below = if random.chance(2) { 64 } else { memory.words() - 1 };
                    let word = 1 + random.below(below.min(memory.words() - 1));
                    let value = random.number() >> random.below(64);
                    memory.store(word, value, Ordering::Relaxed);
                }
            }
            let (mut data, mut lent) = (Vec::new(), Vec::new());
            let _ = reader.next(&mut data);
            assert!(data.len() <= 8192);
            let _ = reader.lend(&mut lent, 4);
            lent.iter().for_each(|one| reader.copy_lent(one, &mut data));
            reader.settle(&mut lent);
            assert!(lent.len() <= 4 && data.len() <= 5 * 8192);
            let origins: Vec<_> = reader.origins().collect();
            assert!(origins.iter().all(|&(at, number)| reader.origin(at, number).is_some()));
        }
    }
}

fn packets_magic(packets: &Packets) -> u64 {
    Memory::open(again(packets.fd())).unwrap().load(0, Ordering::Relaxed)
}

/// Whoever finds the socket is let in: its name is not there before it listens.
#[test]
fn the_name_appears_when_the_socket_listens() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..300).map(|number| folder.path().join(number.to_string())).collect();
    let found = paths.clone();
    let client = std::thread::spawn(move || {
        found.iter().find_map(|path| {
            let start = std::time::Instant::now();
            loop {
                match std::os::unix::net::UnixStream::connect(path) {
                    Ok(_) => return None,
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Some(error);
                    }
                    Err(_) => assert!(start.elapsed().as_secs() < 20, "nobody listens"),
                }
            }
        })
    });
    let listening: Vec<_> = paths.iter().map(|path| crate::listen(path).unwrap()).collect();
    assert!(client.join().unwrap().is_none(), "nobody is refused");
    assert_eq!(listening.len(), std::fs::read_dir(folder.path()).unwrap().count(), "no other name");
    // The name of one that has gone is taken over; a name too long for another beside it is bound as it is.
    drop(listening);
    assert!(crate::listen(&paths[0]).is_ok());
    let short = folder.path().as_os_str().len();
    let long = folder.path().join("x".repeat(106 - short));
    assert!(crate::listen(&long).is_ok());
}
