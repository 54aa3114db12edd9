//! Counters that wrap around, places that would be mistaken for others, several packet buffers,
//! and schedules in which the writer crashes: loss reported is loss true.

use super::{LINK, again, bytes, frame, number, reader};
use crate::{Entry, Held, Index, Lending, Mark, Packets, Read, Reader};
use fyke_testkit::random::Random;

/// Starts of the counters: from the beginning, and shortly before 32 bits wrap around.
const STARTS: [u64; 3] = [0, (1 << 32) - 700, (1 << 40) - 1];
/// Schedules of a test run.
const SCHEDULES: usize = 10_000;

#[test]
fn counters_wrap_around_without_a_loss() {
    for start in STARTS {
        let mut packets = Packets::starting_at(1 << 16, start).unwrap();
        let mut index = Index::starting_at(64, LINK, start).unwrap();
        let mut readers = [reader(&packets, &index), reader(&packets, &index)];
        let mut lent = Vec::new();
        for step in 0..2_000 {
            let data = bytes(step);
            let placed = packets.put_from(&frame(step, &data), None, Held::Nothing).unwrap();
            assert_eq!(placed.number, start + step);
            index.push_as(0, &placed, Mark { class: 7, epoch: step as u32, pass: 9 });
            let mut data = Vec::new();
            let Read::Frame(copied) = readers[0].next(&mut data) else { panic!("{start} {step}") };
            assert_eq!(number(&data, &copied), step);
            let Entry { class, epoch, pass, sequence, length, .. } = copied.entry;
            assert_eq!((class, epoch, pass), (7, step as u32, 9));
            assert_eq!((sequence, length), ((start + step) as u32, data.len() as u32));
            assert_eq!(readers[1].lend(&mut lent, 10), Lending::Frames);
            assert_eq!(lent.len(), 1);
            readers[1].settle(&mut lent);
            assert!(lent[0].is_whole());
        }
        assert!(readers.iter().all(|reader| (reader.read(), reader.lost()) == (2_000, 0)));
    }
}

/// The lower half of the place is equal, so only the last place and the floor tell the two frames
/// apart.
#[test]
fn a_place_that_was_passed_by_2_to_the_32_words_is_not_taken_for_the_old_one() {
    for pushes_new in [false, true] {
        let mut packets = Packets::create(8192).unwrap();
        let mut index = Index::create(16, LINK).unwrap();
        let mut reader = reader(&packets, &index);
        let old = packets.put(&frame(1, &bytes(1))).unwrap();
        index.push(old);
        packets.announce(old + (1 << 32));
        let new = packets.put(&frame(2, &bytes(2))).unwrap();
        assert_eq!(new as u32, old as u32);
        if pushes_new {
            index.push(new);
        }
        let mut data = Vec::new();
        match (pushes_new, reader.next(&mut data)) {
            (true, Read::Frame(copied)) => assert_eq!(number(&data, &copied), 2),
            (false, Read::Nothing) => {}
            (_, other) => panic!("{pushes_new}: {other:?}"),
        }
        assert_eq!((reader.read(), reader.lost()), (u64::from(pushes_new), 1));
    }
}

#[test]
fn entries_name_their_packet_buffer() {
    let mut buffers = [8192, 1 << 16].map(|size| Packets::create(size).unwrap());
    let mut index = Index::create(1024, LINK).unwrap();
    let fds = buffers.each_ref().map(|buffer| again(buffer.fd()));
    let mut reader = Reader::of(fds.into(), again(index.fd())).unwrap();
    // A reader that has the first buffer only cannot read the frames of the second one.
    let mut poor = Reader::open(again(buffers[0].fd()), again(index.fd())).unwrap();
    for step in 0..100 {
        let which = step as usize % 2;
        let data = bytes(step % 8);
        let data = frame(step % 8, &data);
        let placed = buffers[which].put_from(&data, None, Held::Nothing).unwrap();
        index.push_as(which as u8, &placed, Mark::default());
        let mut data = Vec::new();
        let Read::Frame(copied) = reader.next(&mut data) else { panic!("{step}") };
        assert_eq!(number(&data, &copied), step % 8);
        assert_eq!(usize::from(copied.entry.buffer), which);
        let _ = poor.next(&mut Vec::new());
    }
    assert_eq!((poor.read(), poor.lost()), (50, 50));
    let none = Reader::of(Vec::new(), again(index.fd()));
    assert!(none.unwrap_err().to_string().contains("1 to 16"));
}

/// The entries of the writer, to compare with the reports of readers.
struct Truth {
    /// Frame and place of every entry, from the first.
    entries: Vec<(u64, u64)>,
    first: u64,
    capacity: u64,
}

impl Truth {
    /// The entries from `next` on that can be read when the intent is `intent`.
    fn whole(&self, next: u64, intent: u64, packets: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pushed = self.first + self.entries.len() as u64;
        let oldest = pushed.saturating_sub(self.capacity - 1).max(next);
        let all =
            (oldest..pushed).map(|entry| (entry, self.entries[(entry - self.first) as usize]));
        let whole = move |(_, (_, place)): &(u64, (u64, u64))| intent - place <= packets;
        all.filter(whole).map(|(entry, (number, _))| (entry, number))
    }
}

/// A schedule: the writer puts frames into two indexes, and crashes at the end while it stores one;
/// readers copy, or look at frames in place, whenever it is their turn.
fn schedule(random: &mut Random) {
    let start = random.pick(&STARTS);
    let mut packets = Packets::starting_at(8192, start).unwrap();
    let capacity = packets.bytes() as u64 / 8;
    let mut end = start;
    let mut indexes = [16, 64].map(|size| Index::starting_at(size, LINK, start).unwrap());
    let truth = |capacity| Truth { entries: Vec::new(), first: start, capacity };
    let mut truths = [truth(16), truth(64)];
    let mut copying = indexes.each_ref().map(|index| reader(&packets, index));
    let mut lending = indexes.each_ref().map(|index| reader(&packets, index));
    let mut lent = [Vec::new(), Vec::new()];
    for step in 0..20 + random.below(150) as u64 {
        let which = random.below(2);
        match random.below(6) {
            0..3 => {
                let data = bytes(step * 7);
                let placed =
                    packets.put_from(&frame(step * 7, &data), None, Held::Nothing).unwrap();
                end = placed.place + 4 + data.len() as u64 / 8;
                for which in 0..2 {
                    if which == 0 || random.chance(2) {
                        indexes[which].push_as(0, &placed, Mark::default());
                        truths[which].entries.push((step * 7, placed.place));
                    }
                }
            }
            3..5 => copy_one(&mut copying[which], &truths[which], (end, capacity)),
            _ if lent[which].is_empty() => {
                let most = 1 + random.below(20);
                let _ = lending[which].lend(&mut lent[which], most);
            }
            _ => {
                let reader = &mut lending[which];
                let mut copies: Vec<Vec<u8>> = vec![Vec::new(); lent[which].len()];
                for (lent, copy) in lent[which].iter().zip(&mut copies) {
                    reader.copy_lent(lent, copy);
                }
                reader.settle(&mut lent[which]);
                for (lent, copy) in
                    lent[which].iter().zip(&copies).filter(|(one, _)| one.is_whole())
                {
                    number(copy, &lent.head);
                }
                lent[which].clear();
            }
        }
    }
    // The crash: the intent is announced, some words are stored, and nothing is pushed.
    let torn = bytes(4711);
    end += 4 + torn.len() as u64 / 8;
    packets.announce(end);
    packets.store(end - 20, &frame(4711, &torn[..8]), Default::default(), None);
    for which in 0..2 {
        lending[which].settle(&mut lent[which]);
        while lending[which].lend(&mut lent[which], 7) == Lending::Frames {
            lending[which].settle(&mut lent[which]);
        }
        let pushed = truths[which].entries.len() as u64;
        while copying[which].waiting() > 0 {
            copy_one(&mut copying[which], &truths[which], (end, capacity));
        }
        for reader in [&copying[which], &lending[which]] {
            assert_eq!(reader.read() + reader.lost(), pushed);
            assert_eq!(reader.waiting(), 0);
        }
        assert!(lending[which].read() <= pushed);
    }
}

/// Reads a frame: exactly the oldest one that is whole, and all before it are lost.
fn copy_one(reader: &mut Reader, truth: &Truth, (end, capacity): (u64, u64)) {
    let next = truth.first + reader.read() + reader.lost();
    let expected = truth.whole(next, end, capacity).next();
    let (read, lost) = (reader.read(), reader.lost());
    let mut data = Vec::new();
    match (expected, reader.next(&mut data)) {
        (Some((entry, expected)), Read::Frame(copied)) => {
            assert_eq!(number(&data, &copied), expected);
            assert_eq!((reader.read(), reader.lost()), (read + 1, lost + entry - next));
        }
        (None, Read::Nothing) => {
            let pushed = truth.first + truth.entries.len() as u64;
            assert_eq!((reader.read(), reader.lost()), (read, lost + pushed - next));
        }
        (expected, other) => panic!("{expected:?} {other:?}"),
    }
}

#[test]
fn loss_reported_is_loss_true_in_every_schedule() {
    let (mut random, seed) = Random::seeded(20);
    for schedules in 0..SCHEDULES {
        let one = random.number();
        let run = std::panic::catch_unwind(|| schedule(&mut Random::new(one)));
        assert!(run.is_ok(), "schedule {schedules} of seed {seed}: Random::new({one})");
    }
}
