//! Tests with one writer at full speed and readers in other threads: permanent rows are never missed, temporary rows
//! are never seen half-written, even while the table grows.

use fyke_frame::Mask;
use fyke_table::{Column, RowTable, Seed};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of permanent rows; Miri takes milliseconds for each look-up.
const STEADY: u32 = if cfg!(miri) { 8 } else { 256 };
/// Number of temporary rows at a time: enough for several growths.
const CHURN: u32 = if cfg!(miri) { 24 } else { 20_000 };
/// Number of times that they are added and removed.
const ROUNDS: u32 = if cfg!(miri) { 2 } else { 10 };

/// Computes the value of a key, so that a reader knows the expected value.
fn value(key: [u32; 3]) -> u32 {
    key[0] ^ key[1].rotate_left(7) ^ key[2].rotate_left(13)
}

fn steady(n: u32) -> [u32; 3] {
    [n, n * 7, !n]
}

fn churning(n: u32) -> [u32; 3] {
    [0x8000_0000 | n, n / 3, n]
}

fn columns(key: impl Fn(u32) -> [u32; 3]) -> [Column; 3] {
    std::array::from_fn(|word| std::array::from_fn(|lane| key(lane as u32)[word]))
}

#[test]
fn steady_rows_are_never_missed_and_others_never_torn() {
    let mut table = RowTable::new(3, Seed::random());
    for n in 0..STEADY {
        table.insert(&steady(n), value(steady(n))).unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (mut reader, done) = (table.reader(), Arc::clone(&done));
            std::thread::spawn(move || {
                let [a, b, c] = &columns(steady);
                let (mut rounds, mut seen, mut found) = (0u32, 0, [0; 256]);
                let lanes = Mask::first(STEADY as usize);
                while !done.load(Ordering::Acquire) || rounds == 0 {
                    let hits = reader.find_columns(&[a, b, c], lanes, &mut found);
                    assert_eq!(hits.unwrap().count(), STEADY as usize, "round {rounds}");
                    assert!((0..STEADY).all(|n| found[n as usize] == value(steady(n))));
                    let base = rounds * STEADY % CHURN;
                    let [x, y, z] = &columns(|lane| churning(base + lane));
                    let hits = reader.find_columns(&[x, y, z], lanes, &mut found);
                    for lane in hits.unwrap().iter() {
                        assert_eq!(found[lane], value(churning(base + lane as u32)));
                        seen += 1;
                    }
                    let key = churning(base);
                    assert!(reader.find(&key).is_none_or(|found| found == value(key)));
                    rounds += 1;
                }
                seen
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        for n in 0..CHURN {
            table.insert(&churning(n), value(churning(n))).unwrap();
        }
        for n in 0..CHURN {
            assert_eq!(table.remove(&churning(n)), Some(value(churning(n))));
        }
    }
    done.store(true, Ordering::Release);
    let seen: u32 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    // Miri may run the readers only before or after the writer.
    assert!(seen > 0 || cfg!(miri), "the readers met no row that came and went");
    assert!(table.stats().growths > 2 || cfg!(miri));
}
