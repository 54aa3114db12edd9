//! Properties of a reader of shared memory that hold whatever the writer does: shared by the fuzz target and
//! `cargo test`.

use fyke_ring::protocol::Words;
use fyke_ring::{Index, Memory, Packets, Reader, Value, Values};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Bytes of the packet buffer; no frame is longer.
const BYTES: usize = 8192;

fn own(fd: BorrowedFd<'_>) -> OwnedFd {
    fd.try_clone_to_owned().expect("a descriptor")
}

/// Memory of a writer, and a copy in which any word may be changed.
struct Copied {
    real: Memory,
    memory: Memory,
}

impl Copied {
    fn of(fd: BorrowedFd<'_>) -> Copied {
        let real = Memory::open(own(fd)).expect("our own memory");
        let memory = Memory::create(real.words()).expect("memory");
        let copied = Copied { real, memory };
        copied.copy();
        copied
    }

    fn copy(&self) {
        for word in 0..self.real.words() {
            let value = self.real.load(word, Ordering::Relaxed);
            self.memory.store(word, value, Ordering::Relaxed);
        }
    }
}

/// A writer that stores frames, and then any words that the bytes say, in turn with readers: they never fail. Returns
/// the number of frames that they read.
pub fn hostile(data: &[u8]) -> u64 {
    let link = fyke_frame::LinkType::EN10MB;
    let mut packets = Packets::create(BYTES).expect("memory");
    let mut index = Index::create(16, link).expect("memory");
    let shown = Values::create(4).expect("memory");
    let memories = [packets.fd(), index.fd(), shown.fd()].map(Copied::of);
    let [of_packets, of_index, of_values] = memories.each_ref().map(|one| own(one.memory.fd()));
    let mut reader =
        Reader::open(of_packets, of_index).expect("their sizes and magic numbers are right");
    let values = Values::open(of_values).expect("its magic number is right");
    let (mut bytes, mut lent) = (Vec::new(), Vec::new());
    for (number, [which, low, high, shift, rest @ ..]) in data.as_chunks::<8>().0.iter().enumerate()
    {
        if which & 0x80 != 0 {
            let frame = vec![*low; usize::from(*low) + 8 * usize::from(high & 0x3f)];
            let placed = packets.put(&fyke_frame::Frame::new(link, &frame));
            index.push(placed.expect("it is not too large"));
            shown.set(usize::from(low % 6), "a name", Value::Number(f64::from(*high)));
            memories.iter().for_each(Copied::copy);
        }
        let memory = &memories[usize::from(which % 3)].memory;
        // The words that steer readers lie at the beginning.
        let word = usize::from(*low) | usize::from(high & 1) << 8;
        let last = memory.words() - 1;
        let word = if which & 0x40 == 0 { word } else { last - word.min(last) };
        let value = u64::from(u32::from_le_bytes(*rest)) << (shift % 40);
        if word > 0 {
            memory.store(word, value, Ordering::Relaxed);
        }
        bytes.clear();
        match number % 3 {
            0 => _ = reader.next(&mut bytes),
            1 => _ = reader.lend(&mut lent, 5),
            _ => {
                lent.iter().for_each(|one| reader.copy_lent(one, &mut bytes));
                let looked = lent.iter().filter_map(|one| reader.byte(one, one.head.len / 2));
                assert!(looked.count() <= 5);
                reader.settle(&mut lent);
            }
        }
        assert!(bytes.len() <= 5 * BYTES && lent.len() <= 5);
        assert!(reader.read().checked_add(reader.lost()).is_some());
        let origins: Vec<_> = reader.origins().collect();
        assert!(origins.iter().all(|&(buffer, number)| reader.origin(buffer, number).is_some()));
        assert!(values.iter().all(|(name, _)| name.len() <= 3 * 40));
        let _ = (reader.waiting(), reader.refused(), reader.generation());
        if which & 0x20 != 0 && reader.waiting() == 0 {
            // A ring that claims to continue anywhere; the counts of the reader never go back.
            let before = reader.read() + reader.lost();
            let [next_packets, next_index] = [0, 1].map(|at| own(memories[at].memory.fd()));
            let _refused =
                reader.move_to(next_packets, next_index, u64::from(*low) << (shift % 60));
            assert!(reader.read() + reader.lost() >= before);
        }
    }
    reader.read()
}
