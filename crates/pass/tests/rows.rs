//! Rows of declared shapes and passes that become rows automatically: each reader sees exactly the rows of its epoch,
//! even an old one; edits are whole; refusals change nothing.

mod support;

use fyke_filter::{Options, compile};
use fyke_frame::condition::{Load, Width};
use fyke_frame::{Batch, Condition, Frame, LinkType};
use fyke_pass::{
    Edit, EditError, Epoch, MatchMode, Matches, PassId, PassSet, Reader, RowId, ShapeId, primitive,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::Random;

const HOSTS: u32 = 16;
const PORTS: u32 = 8;

fn udp_to(host: u32, port: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 17);
    bytes[30..34].copy_from_slice(&host.to_be_bytes());
    bytes[36..38].copy_from_slice(&(port as u16).to_be_bytes());
    bytes
}

/// A shape of hosts and ports, and one of hosts alone.
fn shapes(set: &mut PassSet) -> [ShapeId; 2] {
    let (udp, host) = (primitive::ether_ip_udp_nonfrag(), primitive::ip_dst_host(0));
    let port = primitive::ip_port_dst(&[1]).unwrap();
    let both = set.new_shape(&[udp, host, port], &[1, 2]).unwrap();
    [both, set.new_shape(&[udp, host], &[1]).unwrap()]
}

/// Every frame that the rows distinguish.
fn all_frames() -> Vec<Vec<u8>> {
    (0..HOSTS * PORTS).map(|n| udp_to(n / PORTS, n % PORTS)).collect()
}

fn frames_of(bytes: &[Vec<u8>]) -> Vec<Frame<'_>> {
    bytes.iter().map(|bytes| Frame::new(LinkType::EN10MB, bytes)).collect()
}

/// The rows of one epoch: pass, shape, host, port.
type Model = BTreeMap<PassId, (usize, u32, u32)>;

fn matching(model: &Model, host: u32, port: u32) -> Vec<PassId> {
    let matches = |row: &(usize, u32, u32)| row.1 == host && (row.0 == 1 || row.2 == port);
    model.iter().filter(|(_, row)| matches(row)).map(|(&pass, _)| pass).collect()
}

/// Compares a reader with the model of its epoch, frame by frame and pass by pass.
fn check(reader: &mut Reader, batch: &Batch, model: &Model, mode: MatchMode, seed: u64) {
    let mut matches = Matches::new(mode);
    let accepted = reader.evaluate_matches(batch, batch.all(), &mut matches);
    for (at, frame) in batch.frames().iter().enumerate() {
        let mut expected = matching(model, at as u32 / PORTS, at as u32 % PORTS);
        let one = reader.judge_one(frame);
        assert_eq!((one.accepted, one.pass), (!expected.is_empty(), expected.first().copied()));
        if mode == MatchMode::First {
            expected.truncate(1);
        }
        let found: Vec<PassId> = matches.of(at).map(|found| found.pass).collect();
        assert_eq!(found, expected, "seed {seed} epoch {} frame {at}", reader.epoch());
        assert_eq!(accepted.get(at), !expected.is_empty());
    }
}

/// One to six rows added, removed or changed.
fn some_changes(
    random: &mut Random,
    edit: &mut Edit,
    ids: [ShapeId; 2],
    rows: &mut BTreeMap<PassId, RowId>,
    model: &mut Model,
) {
    for _ in 0..1 + random.below(6) {
        let shape = random.below(4) as usize / 3;
        let (host, port) = (random.below(3) as u32, random.below(PORTS.into()) as u32);
        let operands = &[host, port][..2 - shape];
        let old = rows.keys().nth(random.below(20) as usize).copied();
        let result = match (random.below(3), old) {
            (0, Some(pass)) => {
                edit.remove_row(rows.remove(&pass).unwrap()).unwrap();
                model.remove(&pass);
                continue;
            }
            (1, Some(pass)) if model[&pass].0 == shape => {
                let changed = edit.change_row(rows[&pass], operands);
                if changed.is_ok() {
                    rows.remove(&pass);
                    model.remove(&pass);
                }
                changed
            }
            _ => edit.add_row(ids[shape], operands),
        };
        match result {
            Ok(row) => {
                rows.insert(row.pass, row);
                model.insert(row.pass, (shape, host, port));
            }
            Err(error) => {
                // Rows that end in this edit take room until it is committed.
                assert_eq!(error, EditError::SameRow { limit: 8 });
            }
        }
    }
}

#[test]
fn every_reader_sees_the_rows_of_its_epoch_however_far_it_is_behind() {
    let bytes = all_frames();
    let frames = frames_of(&bytes);
    let batch = support::batch(&frames);
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut set = PassSet::new(LinkType::EN10MB);
        let ids = shapes(&mut set);
        // A row that matches nothing here, so that the set is never empty.
        let mut edit = set.edit();
        edit.add_row(ids[1], &[u32::MAX]).unwrap();
        edit.commit();
        let mut rows: BTreeMap<PassId, RowId> = BTreeMap::new();
        let mut model = Model::new();
        let mut readers: Vec<(Reader, Model)> = vec![(set.reader(), model.clone())];
        for step in 0..400 {
            let mut edit = set.edit();
            let (mut new_rows, mut new_model) = (rows.clone(), model.clone());
            some_changes(&mut random, &mut edit, ids, &mut new_rows, &mut new_model);
            if random.chance(85) {
                edit.commit();
                (rows, model) = (new_rows, new_model);
            } else {
                drop(edit);
            }
            assert_eq!(set.pass_count(), model.len() + 1);
            match random.below(10) {
                0 if readers.len() < 8 => readers.push((set.reader(), model.clone())),
                1 if readers.len() < 8 => {
                    let (reader, known) = &readers[random.below(readers.len() as u64) as usize];
                    readers.push((reader.clone(), known.clone()));
                }
                2 if readers.len() > 1 => {
                    readers.swap_remove(random.below(readers.len() as u64) as usize);
                }
                3..6 => {
                    let at = random.below(readers.len() as u64) as usize;
                    readers[at].0.refresh();
                    assert_eq!(readers[at].0.epoch(), set.epoch());
                    readers[at].1 = model.clone();
                }
                _ => {}
            }
            if step % 8 == 0 {
                for (reader, known) in &mut readers {
                    let mode = random.pick(&[MatchMode::First, MatchMode::All]);
                    check(reader, &batch, known, mode, seed);
                }
            }
        }
        let views: usize = set.shapes().map(|shape| shape.rows().count()).sum();
        assert_eq!(views, model.len() + 1);
    }
}

/// Each edit moves the accepted host between the rows of two shapes; a reader must see one of them, never none and
/// never two.
#[test]
fn an_edit_is_whole_for_readers_on_other_threads() {
    const EDITS: u64 = 40_000;
    let mut set = PassSet::new(LinkType::EN10MB);
    let ids = shapes(&mut set);
    let mut edit = set.edit();
    let mut row = edit.add_row(ids[0], &[0, 1]).unwrap();
    edit.commit();
    let first = set.epoch();
    let (committed, done) = (Arc::new(AtomicU64::new(first.0)), Arc::new(AtomicBool::new(false)));
    let moved = Arc::new([const { AtomicBool::new(false) }; 2]);
    let readers: Vec<_> = (0..2)
        .map(|number| {
            let (mut reader, committed, done) = (set.reader(), committed.clone(), done.clone());
            let moved = moved.clone();
            std::thread::spawn(move || {
                let bytes: Vec<Vec<u8>> = (0..HOSTS).map(|host| udp_to(host, 1)).collect();
                let frames = frames_of(&bytes);
                let batch = support::batch(&frames);
                let (mut judged, mut epochs) = (0_u64, 0_u64);
                while !done.load(Ordering::Acquire) {
                    let at_least = committed.load(Ordering::Acquire);
                    let before = reader.epoch();
                    let epoch = reader.refresh();
                    assert!(epoch.0 >= at_least && epoch >= before);
                    epochs += u64::from(epoch > before);
                    moved[number].store(epochs > 0, Ordering::Release);
                    let accepted = reader.evaluate(&batch, batch.all());
                    let expected = (epoch.0 - first.0) as usize % HOSTS as usize;
                    assert!(accepted.iter().eq([expected]), "{accepted:?} at {epoch}");
                    judged += 1;
                }
                (judged, epochs)
            })
        })
        .collect();
    let mut counted = 0;
    // On a busy machine a reader may be late: edits continue until both have seen one, up to a limit.
    let waited_for = || moved.iter().any(|moved| !moved.load(Ordering::Acquire));
    for number in 1..=100 * EDITS {
        if number > EDITS && !waited_for() {
            break;
        }
        let host = number as u32 % HOSTS;
        let shape = usize::from(number % 3 == 0);
        let mut edit = set.edit();
        edit.remove_row(row).unwrap();
        row = edit.add_row(ids[shape], &[host, 1][..2 - shape]).unwrap();
        let epoch = edit.commit();
        assert_eq!(epoch, Epoch(first.0 + number));
        committed.store(epoch.0, Ordering::Release);
        if number % 64 == 0 {
            std::thread::yield_now();
        }
    }
    done.store(true, Ordering::Release);
    for reader in readers {
        let (judged, epochs) = reader.join().unwrap();
        assert!(judged > 0 && epochs > 0);
        counted += judged;
    }
    assert!(counted > 0);
    let rows: Vec<_> = set.shapes().flat_map(|shape| shape.rows()).collect();
    assert_eq!(rows.len(), 1);
}

/// Texts become rows; editing one, giving it a child and removing it keep order, verdicts and counters.
#[test]
fn passes_become_rows_and_leave_tables_without_losing_counts() {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    for host in 0..40 {
        let text = format!("dst host 0.0.0.{host} and udp dst port 1");
        edit.add_filter(&compile(&text, &Options::default()).unwrap()).unwrap();
    }
    edit.commit();
    assert_eq!((set.layout().shapes, set.layout().rows, set.layout().loose), (1, 40, 0));
    let bytes: Vec<Vec<u8>> = (0..HOSTS).map(|host| udp_to(host, 1)).collect();
    let frames = frames_of(&bytes);
    let batch = support::batch(&frames);
    let (mut reader, mut behind) = (set.reader(), set.reader());
    assert_eq!(reader.evaluate(&batch, batch.all()).count(), HOSTS as usize);
    let views: Vec<(PassId, usize)> =
        set.passes().map(|pass| (pass.id, pass.instructions.len())).collect();
    let (pass, length) = views[3];
    assert!(set.pass(pass).unwrap().is_row());
    let mut edit = set.edit();
    let child = edit.duplicate_pass(pass).unwrap();
    edit.commit();
    assert_eq!(set.pass(pass).unwrap().accepted(), 1);
    assert!(!set.pass(pass).unwrap().is_row());
    reader.refresh();
    reader.evaluate(&batch, batch.all());
    behind.evaluate(&batch, batch.all());
    assert_eq!(set.pass(pass).unwrap().accepted(), 3, "the reader that is behind counts too");
    let mut edit = set.edit();
    edit.set_instruction(pass, length, primitive::never()).unwrap();
    edit.commit();
    reader.refresh();
    let mut matches = Matches::new(MatchMode::All);
    reader.evaluate_matches(&batch, batch.all(), &mut matches);
    assert!(matches.of(3).map(|found| found.pass).eq([child]));
    behind.evaluate(&batch, batch.all());
    assert_eq!(set.pass(pass).unwrap().accepted(), 4);
    assert_eq!(set.pass(child).unwrap().accepted(), 1);
    let mut edit = set.edit();
    edit.delete_pass(pass).unwrap();
    edit.commit();
    let ids: Vec<PassId> = set.passes().map(|pass| pass.id).collect();
    assert_eq!(ids[3], child);
}

/// Passes with the same host that differ in a range, a set or an exclusion share a table.
#[test]
fn what_is_no_single_value_is_tested_after_the_look_up() {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let mut texts = Vec::new();
    for n in 0..60_u32 {
        let (host, low) = (n / 3, n % 7);
        let text = format!("dst host 0.0.0.{host} and udp dst portrange {low}-{}", low + 1);
        let predicate = compile(&text, &Options::default()).unwrap();
        texts.push((edit.add_filter(&predicate).unwrap(), predicate));
    }
    edit.commit();
    assert_eq!((set.layout().shapes, set.layout().rows), (1, 60), "{:?}", set.layout());
    let bytes = all_frames();
    let frames = frames_of(&bytes);
    let batch = support::batch(&frames);
    let mut matches = Matches::new(MatchMode::All);
    set.reader().evaluate_matches(&batch, batch.all(), &mut matches);
    for (at, frame) in frames.iter().enumerate() {
        let expected = texts.iter().filter(|(_, text)| text.accepts(frame)).map(|(id, _)| *id);
        assert!(matches.of(at).filter_map(|found| found.filter).eq(expected), "frame {at}");
    }
}

#[test]
fn refusals_are_typed_and_change_nothing() {
    let mut set = PassSet::new(LinkType::EN10MB);
    let [both, host] = shapes(&mut set);
    let range = primitive::ip_portrange_either(1, 5).unwrap();
    let refused = set.new_shape(&[range], &[0]);
    assert_eq!(refused, Err(EditError::NotExact { given: 0 }));
    assert!(matches!(set.new_shape(&[range], &[]), Err(EditError::KeyWidth { .. })));
    let missing = set.new_shape(&[range], &[7]);
    assert_eq!(missing, Err(EditError::NoInstruction { given: 7, length: 1 }));
    let mut edit = set.edit();
    let operands = edit.add_row(both, &[1]);
    assert_eq!(operands, Err(EditError::Operands { given: 1, expected: 2 }));
    assert_eq!(edit.add_row(ShapeId(9), &[1]), Err(EditError::NoShape { given: 9 }));
    let rows: Vec<RowId> = (0..8).map(|_| edit.add_row(host, &[5]).unwrap()).collect();
    assert_eq!(edit.add_row(host, &[5]), Err(EditError::SameRow { limit: 8 }));
    edit.remove_row(rows[2]).unwrap();
    let gone = EditError::NoPass { given: rows[2].pass };
    assert_eq!(edit.remove_row(rows[2]), Err(gone));
    assert_eq!(edit.change_row(rows[2], &[6]), Err(gone));
    assert_eq!(edit.change_row(rows[3], &[]), Err(EditError::Operands { given: 0, expected: 1 }));
    edit.commit();
    assert_eq!(set.pass_count(), 7);
    let in_use = EditError::ShapeInUse { given: host.0, rows: 7 };
    assert_eq!(set.drop_shape(host), Err(in_use));
    let mut edit = set.edit();
    edit.clear();
    edit.commit();
    assert!(set.is_empty());
    assert_eq!(set.drop_shape(host), Ok(()));
    assert_eq!(set.drop_shape(host), Err(EditError::NoShape { given: host.0 }));
    let bytes = [vec![], udp_to(1, 1)];
    let frames = frames_of(&bytes);
    let batch = support::batch(&frames);
    assert_eq!(set.reader().evaluate(&batch, batch.all()).count(), 2, "empty again");
    let mut many = Vec::new();
    let full = loop {
        match set.new_shape(&[primitive::ip_dst_host(0)], &[0]) {
            Ok(shape) => many.push(shape),
            Err(error) => break error,
        }
    };
    assert_eq!((full, many.len()), (EditError::TooManyShapes { limit: 64 }, 63));
}

/// Frames without bytes and frames of 64 KiB in one batch: short ones match no row, long ones theirs.
#[test]
fn empty_and_huge_frames() {
    let mut set = PassSet::new(LinkType::EN10MB);
    let [both, _] = shapes(&mut set);
    let mut edit = set.edit();
    for port in 0..300 {
        edit.add_row(both, &[7, port]).unwrap();
    }
    edit.commit();
    let huge = |port| {
        let mut bytes = udp_to(7, port);
        bytes.resize(65_536, 0xff);
        bytes
    };
    let bytes: Vec<Vec<u8>> = (0..256_u32)
        .map(|n| match n % 4 {
            0 => Vec::new(),
            1 => huge(n),
            2 => udp_to(7, n)[..30 + n as usize % 8].to_vec(),
            _ => udp_to(8, n),
        })
        .collect();
    let frames = frames_of(&bytes);
    let batch = support::batch(&frames);
    let mut reader = set.reader();
    let accepted = reader.evaluate(&batch, batch.all());
    assert!(accepted.iter().eq((0..256).filter(|n| n % 4 == 1)));
    assert!(frames.iter().enumerate().all(|(n, f)| reader.judge_one(f).accepted == (n % 4 == 1)));
}

/// Sixty-five kinds of passes: one has no table, and the layout shows this.
#[test]
fn passes_beyond_the_last_table_are_told_of() {
    let mut set = PassSet::new(LinkType::EN10MB);
    for kind in 0..=fyke_pass::MAX_SHAPES as u32 {
        let mut edit = set.edit();
        for row in 0..20 {
            let load = Load::equal(20 + kind, Width::Four, u32::MAX, 0x0a00_0000 + row);
            edit.add_condition(Arc::new(Condition::Load(load)), "").unwrap();
        }
        edit.commit();
        let layout = set.layout();
        let left = if kind == fyke_pass::MAX_SHAPES as u32 { 20 } else { 0 };
        assert_eq!((layout.loose, layout.capped), (left, left), "{kind} kinds: {layout:?}");
    }
}

/// Truncated frames, for a text of many rows: the same verdicts as the text's own evaluation, which runs only for the
/// frames that the rows could accept.
#[test]
fn short_frames_ask_a_large_text_only_when_its_rows_could_accept_them() {
    let pairs = (0..3_000_u32).map(|n| {
        let host = std::net::Ipv4Addr::from(0x0a00_0000 + n % 1_000);
        format!("(ip host {host} and tcp port {})", 1_024 + n % 701)
    });
    let text = pairs.collect::<Vec<_>>().join(" or ") + " or udp port 53";
    let predicate = compile(&text, &Options::default()).unwrap();
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let filter = edit.add_filter(&predicate).unwrap();
    edit.commit();
    assert_eq!(set.layout().rows, 3_000);
    let mut reader = set.reader();
    let mut matches = Matches::new(MatchMode::First);
    let (mut accepted, mut judged) = (0, 0);
    let ports = [(1_030, 9), (9, 1_030), (1_024, 53), (7, 7)];
    for (host, (from, to)) in
        [6_u32, 0, 999, 5_000].into_iter().flat_map(|host| ports.map(|p| (host, p)))
    {
        for words in [5_u8, 8, 15] {
            let mut bytes = vec![0; 14];
            bytes[12] = 8;
            bytes.extend([0x40 | words, 0, 0, 60, 0, 1, 0, 0, 64, 6, 0, 0]);
            bytes.extend([0xc0, 0, 2, 1]);
            bytes.extend((0x0a00_0000 + host).to_be_bytes());
            bytes.resize(14 + 4 * usize::from(words), 1);
            bytes.extend([u16::to_be_bytes(from), u16::to_be_bytes(to)].concat());
            let cuts: Vec<Frame> =
                (0..=bytes.len()).map(|len| Frame::new(LinkType::EN10MB, &bytes[..len])).collect();
            let batch = support::batch(&cuts);
            let verdicts = reader.evaluate_matches(&batch, batch.all(), &mut matches);
            for (at, frame) in cuts.iter().enumerate() {
                let shown = (host, from, to, words, at);
                assert_eq!(verdicts.get(at), predicate.accepts(frame), "{shown:?}");
                let named = matches.of(at).next().and_then(|found| found.filter);
                assert_eq!(named, verdicts.get(at).then_some(filter), "{shown:?}");
                accepted += usize::from(verdicts.get(at));
                judged += 1;
            }
        }
    }
    let asked = reader.work().ordered;
    println!("{judged} frames, {accepted} accepted, the text was asked {asked} times");
    assert!(accepted > 10 && asked < judged / 20);
}

/// Rows and unindexed passes that accept the same frames: the first in the order of evaluation gets them, also if a
/// pass that is older than all others becomes a row. Frames of passes that come before all rows are not looked up.
#[test]
fn of_rows_and_other_passes_the_first_has_the_frame() {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let mut add = |text: &str| {
        let filter = compile(text, &Options::default()).unwrap();
        edit.add_filter(&filter).unwrap()
    };
    let old = add("ip src host 9.9.9.9 and ip dst net 0.1.0.0/16");
    let early = add("udp dst port 3 and ip");
    let row = |host: u32| format!("ip proto 17 and ip dst host 0.0.0.{host}");
    (0..20).for_each(|host| _ = add(&row(host)));
    let late = add("udp dst port 5 and ip");
    edit.commit();
    assert_eq!((set.layout().shapes, set.layout().rows), (1, 20), "{:?}", set.layout());
    let bytes: Vec<Vec<u8>> = (0..200).map(|n| udp_to(n / 8, n % 8)).collect();
    let frames = frames_of(&bytes);
    let batch = support::batch(&frames);
    let mut reader = set.reader();
    let seen = |reader: &mut Reader| {
        let mut matches = Matches::new(MatchMode::First);
        let accepted = reader.evaluate_matches(&batch, batch.all(), &mut matches);
        for (at, frame) in batch.frames().iter().enumerate() {
            let one = reader.judge_one(frame);
            assert_eq!(one.accepted, accepted.get(at), "frame {at}");
            assert_eq!(matches.of(at).map(|found| found.pass).next(), one.pass, "frame {at}");
        }
    };
    seen(&mut reader);
    let counts = |set: &PassSet| [old, early, late].map(|id| set.filter(id).unwrap().accepted());
    assert_eq!(counts(&set), [0, 25, 5]);

    let port_3: Vec<Frame> = frames.iter().skip(3).step_by(8).copied().collect();
    let only = support::batch(&port_3);
    let mut alone = PassSet::new(LinkType::EN10MB);
    let mut edit = alone.edit();
    for filter in set.filters().take(2) {
        edit.add_filter(&compile(filter.text(), &Options::default()).unwrap()).unwrap();
    }
    edit.commit();
    let work = [set.reader(), alone.reader()].map(|mut reader| {
        assert_eq!(reader.evaluate(&only, only.all()).count(), 25);
        reader.work().instructions
    });
    assert_eq!(work[0], work[1], "nothing is looked up");

    // The oldest pass becomes a row of the table, before the early one.
    let [host_9, oldest] = [&row(9), "ip src host 9.9.9.9 and ip dst net 0.1.0.0/16"].map(|text| {
        let is_it = |filter: &fyke_pass::FilterView| filter.text() == text;
        set.filters().find(is_it).unwrap().passes().next().unwrap().id
    });
    let model = set.pass(host_9).unwrap().instructions.to_vec();
    let mut edit = set.edit();
    for (at, instruction) in model.into_iter().enumerate() {
        edit.set_instruction(oldest, at, instruction).unwrap();
    }
    edit.commit();
    assert_eq!(set.layout().rows, 21, "{:?}", set.layout());
    reader.refresh();
    seen(&mut reader);
    assert_eq!(counts(&set), [8, 24 + 50, 10]);
}
