//! Tests of single-threaded behaviour; concurrency is in `tests/`.

use super::*;
use crate::layout::Column;
use fyke_frame::Mask;
use std::collections::HashMap;

/// Number of random edits of a test; Miri is slow.
const STEPS: u32 = if cfg!(miri) { 200 } else { 20_000 };
/// Step between tested widths of a key.
const WIDTHS: usize = if cfg!(miri) { 3 } else { 1 };
/// Number of batches for each width of a key.
const ROUNDS: u64 = if cfg!(miri) { 1 } else { 200 };

fn key_of(number: u32, words: usize) -> Vec<u32> {
    (0..words as u32).map(|word| (number >> (word % 3)).wrapping_mul(0x0101_0000 + word)).collect()
}

/// Random edits give the same result as a map, for every key width, with growth and removal.
#[test]
fn edits_agree_with_a_map() {
    for words in (1..=MAX_KEY_WORDS).step_by(WIDTHS) {
        let mut table = RowTable::new(words, Seed::fixed(words as u64));
        let mut reader = table.reader();
        let mut map = HashMap::new();
        let mut random = Seed::fixed(99);
        for step in 0..STEPS {
            let draw = random.next();
            let key = key_of((draw >> 32) as u32 % 3_000, words);
            if draw & 3 == 0 {
                assert_eq!(table.remove(&key), map.remove(&key));
            } else {
                assert_eq!(table.insert(&key, step), Ok(map.insert(key.clone(), step)));
            }
            assert_eq!(table.get(&key), map.get(&key).copied());
            assert_eq!(reader.find(&key), map.get(&key).copied());
            assert_eq!(table.len(), map.len());
        }
        let mut seen = HashMap::new();
        table.for_each(|key, value| assert!(seen.insert(key.to_vec(), value).is_none()));
        assert_eq!(seen, map);
        assert!(table.stats().growths > 0);
    }
}

/// Every level finds the same rows in the same lanes, for every subset of lanes.
#[test]
fn levels_agree_on_batches() {
    let rows = if cfg!(miri) { 40 } else { 500 };
    for words in (1..=MAX_KEY_WORDS).step_by(WIDTHS) {
        let mut table = RowTable::new(words, Seed::fixed(5));
        for number in 0..rows {
            table.insert(&key_of(number * 2, words), number).unwrap();
        }
        let mut random = Seed::fixed(1);
        for round in 0..ROUNDS {
            let numbers: Vec<u32> = (0..256).map(|_| random.next() as u32 % 1_200).collect();
            let mut columns = vec![[0; 256]; words];
            for (lane, &number) in numbers.iter().enumerate() {
                for (column, part) in columns.iter_mut().zip(key_of(number, words)) {
                    column[lane] = part;
                }
            }
            let columns: Vec<&Column> = columns.iter().collect();
            let lanes = Mask([random.next(), random.next() & random.next(), u64::MAX, round]);
            for level in Level::all() {
                let mut reader = table.reader();
                reader.set_level(level);
                let mut found = [u32::MAX; 256];
                let hits = reader.find_columns(&columns, lanes, &mut found).unwrap();
                for (lane, &number) in numbers.iter().enumerate() {
                    let expected = table.get(&key_of(number, words));
                    let expected = expected.filter(|_| lanes.get(lane));
                    assert_eq!(hits.get(lane).then_some(found[lane]), expected, "{level:?}");
                    if expected.is_none() {
                        assert_eq!(found[lane], u32::MAX);
                    }
                }
            }
        }
    }
}

/// Several rows with one key: the batch too finds each of them, and each can be removed separately.
#[test]
fn rows_of_one_key_are_kept_apart() {
    for words in [1, 2, 5] {
        let mut table = RowTable::new(words, Seed::fixed(8));
        let mut reader = table.reader();
        let mut model: HashMap<u32, (u32, u32)> = HashMap::new();
        let mut random = Seed::fixed(31);
        for value in 0..STEPS {
            let draw = random.next();
            let number = (draw >> 32) as u32 % 900;
            let key = key_of(number, words);
            let same = || model.values().filter(|row| row.0 == number).map(|row| row.1);
            if draw & 3 == 0 {
                let entry = model.iter().find(|row| row.1.0 == number).map(|(&entry, _)| entry);
                assert_eq!(entry.is_some_and(|entry| table.take(entry)), entry.is_some());
                entry.map(|entry| (model.remove(&entry), assert!(!table.take(entry))));
            } else {
                match table.add(&key, value) {
                    Ok(entry) => {
                        assert_eq!(&table.key_of(entry)[..words], key);
                        assert_eq!(model.insert(entry, (number, value)), None);
                    }
                    Err(error) => {
                        assert_eq!(error, TableError::SameKey { limit: MAX_SAME });
                        assert_eq!(same().count(), MAX_SAME);
                    }
                }
            }
            if value % 16 == 0 {
                let mut found = Vec::new();
                reader.find_each(&key, |value| found.push(value));
                let mut expected: Vec<u32> =
                    model.values().filter(|row| row.0 == number).map(|row| row.1).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected);
                let columns: Vec<Column> = key.iter().map(|&word| [word; 256]).collect();
                let keys: Vec<KeyColumn> =
                    columns.iter().map(|words| KeyColumn { words, others: None }).collect();
                let rows = reader.find_rows(&keys, Mask([1 << 7, 0, 0, 2])).unwrap();
                let lanes: Vec<u8> = rows.iter().map(|row| row.lane).collect();
                assert_eq!(lanes, if expected.is_empty() { vec![] } else { vec![7, 193] });
                assert!(rows.iter().all(|row| row.more || expected == [row.value]), "{expected:?}");
                assert!(rows.iter().all(|row| expected.contains(&row.value)));
            }
        }
        assert_eq!(table.len(), model.len());
    }
}

#[test]
fn refusals_change_nothing() {
    let mut table = RowTable::with_capacity(2, Seed::fixed(1), 0, 3);
    let width = TableError::KeyWidth { given: 1, expected: 2 };
    assert_eq!(table.insert(&[1], 1), Err(width));
    assert_eq!(table.remove(&[1]), None);
    assert_eq!(table.get(&[1, 2, 3]), None);
    for n in 0..3 {
        assert_eq!(table.insert(&[n, n], n), Ok(None));
    }
    assert_eq!(table.insert(&[9, 9], 9), Err(TableError::Full { limit: 3 }));
    assert_eq!(table.insert(&[2, 2], 7), Ok(Some(2)), "a change needs no room");
    assert_eq!((table.len(), table.get(&[9, 9])), (3, None));
    let mut reader = table.reader();
    assert!(reader.find_columns(&[&[0; 256]], Mask::first(1), &mut [0; 256]).is_err());
    assert_eq!(reader.find(&[1, 1]), Some(1));
    table.clear();
    assert_eq!((table.len(), reader.find(&[1, 1])), (0, None));
}

/// Words in one of two columns: the rows equal those of a look-up for each combination, each found once.
#[test]
fn keys_at_either_of_two_places_are_found_by_every_level() {
    let mut random = Seed::fixed(23);
    let mut column =
        |limit: u32| -> Column { std::array::from_fn(|_| random.next() as u32 % limit) };
    let columns = [column(40), column(40), column(9), column(9), column(3)];
    let sizes = [(20_u32, [true, true]), (300, [true, false]), (1, [false, false])];
    for (rows, either) in sizes.into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        let mut table = RowTable::new(3, Seed::fixed(5));
        for n in 0..rows {
            table.add(&[n * 7 % 41, n * 3 % 9, n % 3], n).unwrap();
        }
        let [a, b, c, d, e] = &columns;
        let key = |words, others, on: bool| KeyColumn { words, others: on.then_some(others) };
        let keys = [key(a, b, either[0]), key(c, d, either[1]), key(e, e, false)];
        let mut expected = Vec::new();
        let mut single = table.reader();
        for lane in 0..255_u8 {
            let mut known = Vec::new();
            for choice in 0..4_u8 {
                let other = |at: usize| choice >> at & 1 == 1;
                let key = [0, 1, 2].map(|at| keys[at].word(lane, other(at)));
                let possible = (0..2).all(|at| either[at] || !other(at));
                if possible && !known.contains(&key) {
                    known.push(key);
                    single.find_each(&key, |value| expected.push((lane, value)));
                }
            }
        }
        expected.sort_unstable();
        assert!(rows == 1 || !expected.is_empty());
        for level in Level::all() {
            let mut reader = table.reader();
            reader.set_level(level);
            let found = reader.find_rows(&keys, Mask::first(255)).unwrap().to_vec();
            let mut seen = Vec::new();
            for row in found {
                let key = [0, 1, 2].map(|at| keys[at].word(row.lane, row.choice >> at & 1 == 1));
                if row.more {
                    reader.find_each(&key, |value| seen.push((row.lane, value)));
                } else {
                    seen.push((row.lane, row.value));
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, expected, "{level:?}, {rows} rows");
        }
    }
}

/// At the fill limit, the spill bucket is hardly ever needed and never causes a rebuild.
#[test]
fn fills_up_without_reseeding() {
    let (seeds, rows) = if cfg!(miri) { (1, 400_u32) } else { (20, 40_000) };
    for seed in 0..seeds {
        let mut table = RowTable::new(2, Seed::fixed(seed));
        for n in 0..rows {
            table.insert(&[0x0a00_0000 + n, 80 + n % 7], n).unwrap();
        }
        let stats = table.stats();
        assert_eq!(stats.reseeds, 0, "{stats:?}");
        assert!(stats.slots < 8 * rows as usize, "{stats:?}");
    }
}

/// Rows that share both buckets spill, are found, and make the table grow when the spill bucket is full too. Such keys
/// can be constructed only with a known seed, as here.
#[test]
fn crowded_buckets_spill_and_then_the_table_is_built_again() {
    let mut table = RowTable::new(1, Seed::fixed(11));
    let hash = table.publisher.current().hash;
    let home = |key: u32| crate::hash::buckets(hash.hash(&[key]), 4);
    let (wanted, most) = (home(0), if cfg!(miri) { 26 } else { 40 });
    let crowd: Vec<u32> = (0..200_000).filter(|&key| home(key) == wanted).take(most).collect();
    let mut reader = table.reader();
    for (n, &key) in crowd.iter().enumerate() {
        table.insert(&[key], n as u32).unwrap();
        if cfg!(miri) && n + 2 < most {
            continue;
        }
        for (m, &earlier) in crowd[..=n].iter().enumerate() {
            assert_eq!(reader.find(&[earlier]), Some(m as u32));
        }
        let column: &Column = &std::array::from_fn(|lane| crowd[lane % crowd.len()]);
        let hits = reader.find_columns(&[column], Mask::first(most), &mut [0; 256]).unwrap();
        assert_eq!(hits.count(), n + 1);
    }
    assert_eq!(table.stats().reseeds, 1);
    for &key in &crowd {
        assert!(table.remove(&[key]).is_some());
    }
    assert_eq!((table.len(), table.stats().spilled), (0, 0));
}
