//! Many passes of few shapes become rows of tables: verdicts, matched passes, counters and look-back are the same as
//! without tables, at every level of the processor, also for truncated frames and for passes with the same meaning.

mod support;

use fyke_filter::{Options, compile};
use fyke_frame::condition::Compare;
use fyke_frame::{Condition, Frame, LinkType};
use fyke_pass::{Epoch, FilterId, Level, MatchMode, Matches, PassSet, Reader, Sharing};
use fyke_testkit::packet::Packet;
use std::sync::Arc;
use support::{End, HOSTS, Random};

/// A few texts of few shapes: among two hundred of them some always have the same meaning.
fn row(random: &mut Random) -> Condition {
    let end = random.pick(&[End::Source, End::Destination, End::Either]);
    let compare = Compare::Equal(random.pick(&[22, 53, 80, 99]));
    let host = support::ip_net(end, u32::MAX, random.pick(&HOSTS) + random.below(3) as u32);
    let port_end = random.pick(&[End::Destination, End::Either]);
    let port = support::port(random.pick(&[&[6_u32][..], &[17]]), port_end, &compare);
    match random.below(8) {
        0 => support::condition(random, 2),
        1 | 2 => host,
        3 => support::ip_net(end, 0xffff_ff00, random.pick(&HOSTS) + random.below(700) as u32),
        _ => Condition::All(vec![host, port]),
    }
}

fn counters(set: &PassSet) -> Vec<u64> {
    set.passes().map(|pass| pass.accepted()).collect()
}

#[test]
fn tables_change_nothing_but_the_time() {
    let (mut rows, mut several) = (0, 0);
    for seed in 0..150_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut set = PassSet::new(LinkType::EN10MB);
        let mut half = set.epoch();
        for part in 0..2 {
            let mut edit = set.edit();
            for _ in 0..100 {
                let _refused = edit.add_condition(Arc::new(row(&mut random)), "random");
            }
            let epoch = edit.commit();
            if part == 0 {
                half = epoch;
            }
        }
        let bytes: Vec<Vec<u8>> = (0..200).map(|_| support::frame_bytes(&mut random)).collect();
        let frames = support::frames(&mut random, &bytes);
        let batch = support::batch(&frames);
        let mut plain = set.reader();
        plain.set_sharing(Sharing::Nothing);
        assert_eq!(plain.layout().shapes, 0);
        let expected = plain.evaluate(&batch, batch.all());
        for sharing in [Sharing::Instructions, Sharing::SingleOperands, Sharing::Copied] {
            let mut other = set.reader();
            other.set_sharing(sharing);
            assert_eq!(other.evaluate(&batch, batch.all()), expected, "seed {seed} {sharing:?}");
        }
        for mode in [MatchMode::First, MatchMode::All] {
            for level in Level::all() {
                let mut tables = set.reader();
                tables.set_level(level);
                rows += tables.layout().rows;
                several += usize::from(tables.layout().shapes > 1);
                let (mut expected, mut found) = (Matches::new(mode), Matches::new(mode));
                let before = counters(&set);
                let verdict = plain.evaluate_matches(&batch, batch.all(), &mut expected);
                let between = counters(&set);
                let again = tables.evaluate_matches(&batch, batch.all(), &mut found);
                assert_eq!(verdict, again, "seed {seed} {level}");
                for (at, frame) in frames.iter().enumerate() {
                    assert!(expected.of(at).eq(found.of(at)), "seed {seed} frame {at} {level}");
                    assert_eq!(plain.judge_one(frame).accepted, again.get(at));
                }
                let raised = |old: &[u64], new: &[u64]| -> Vec<u64> {
                    old.iter().zip(new).map(|(old, new)| new - old).collect()
                };
                let after = counters(&set);
                assert_eq!(raised(&before, &between), raised(&between, &after), "seed {seed}");
                let late = plain.evaluate_changed(&batch, batch.all(), half, Some(&mut expected));
                let too = tables.evaluate_changed(&batch, batch.all(), half, Some(&mut found));
                assert_eq!(late, too, "seed {seed} {level}");
                for at in 0..frames.len() {
                    assert!(expected.of(at).eq(found.of(at)), "seed {seed} frame {at} {level}");
                }
            }
        }
    }
    assert!(rows > 10_000 && several > 100, "{rows} rows, {several} sets of several shapes");
}

/// From a fixed number of passes of one shape on, they are rows; a frame finds its row among many.
#[test]
fn rows_are_found_among_thousands() {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let mut ids = Vec::new();
    for address in 0..5_000_u32 {
        let condition = support::ip_net(End::Destination, u32::MAX, 0x0a00_0000 + address * 3);
        ids.push(edit.add_condition(Arc::new(condition), "row").unwrap());
    }
    edit.commit();
    let mut reader = set.reader();
    assert_eq!((reader.layout().shapes, reader.layout().loose), (1, 0));
    let bytes: Vec<Vec<u8>> = (0..256_u32)
        .map(|number| {
            let mut bytes = vec![0; 60];
            bytes[12] = 8;
            bytes[14] = 0x45;
            bytes[30..34].copy_from_slice(&(0x0a00_0000 + number * 58).to_be_bytes());
            bytes
        })
        .collect();
    let mut random = Random(1);
    let frames = support::frames(&mut random, &bytes);
    let batch = support::batch(&frames);
    let mut matches = Matches::new(MatchMode::All);
    let verdict = reader.evaluate_matches(&batch, batch.all(), &mut matches);
    for at in 0..256 {
        let row = (at * 58 % 3 == 0 && at * 58 / 3 < 5_000).then(|| ids[at * 58 / 3]);
        assert_eq!(verdict.get(at), row.is_some());
        assert!(matches.of(at).filter_map(|found| found.filter).eq(row), "frame {at}");
    }
}

/// Frames that the texts below distinguish, some of them truncated.
fn tagged_and_ip6(random: &mut Random) -> Vec<Vec<u8>> {
    let address = |low: u16| std::net::Ipv6Addr::new(0x2001, low % 40, 0, 0, 0, 0, 7, low);
    (0..240)
        .map(|number| {
            let low = random.below(70) as u16;
            let packet = Packet::ethernet();
            let packet = match number % 3 {
                0 => packet.vlan(low).ipv4([10, 0, 0, low as u8], [10, 0, 1, 1]),
                1 => packet.ipv6(address(low), address(random.below(70) as u16)),
                _ => packet.ipv4([10, 0, 0, low as u8], [10, 0, 1, 1]),
            };
            // Filters with VLAN tags name the port after their tag.
            let port = 6_000 + if number % 2 == 0 { low } else { random.below(140) as u16 };
            let ends = if number % 2 == 0 { (port, 9) } else { (9, port) };
            let mut bytes = packet.tcp(ends.0, ends.1).payload(b"abc").build();
            bytes.truncate(if number % 5 == 0 { 20 + random.below(50) as usize } else { 200 });
            bytes
        })
        .collect()
}

/// Compares a reader by tables with one that judges pass by pass, and with the filters that accept each frame alone.
fn check_filters(set: &PassSet, frames: &[Frame], what: &str) {
    let batch = support::batch(frames);
    for mode in [MatchMode::First, MatchMode::All] {
        let (mut expected, mut found) = (Matches::new(mode), Matches::new(mode));
        let mut plain = set.reader();
        plain.set_sharing(Sharing::Nothing);
        let verdict = plain.evaluate_matches(&batch, batch.all(), &mut expected);
        let mut tables: Reader = set.reader();
        assert_eq!(tables.evaluate_matches(&batch, batch.all(), &mut found), verdict, "{what}");
        for at in 0..frames.len() {
            assert!(expected.of(at).eq(found.of(at)), "{what}: frame {at}");
        }
        assert!(!verdict.is_empty(), "{what}: no frame is accepted");
    }
}

/// Words that an instruction implies find its row: prefixes of IPv6 at either end, intervals of ports.
#[test]
fn prefixes_and_intervals_become_rows() {
    type Case = (&'static str, usize, fn(usize) -> String);
    let texts: [Case; 7] = [
        ("hosts", 0, |k| format!("ip6 host 2001:{:x}::7:{k:x}", k % 40)),
        ("last words alike", 0, |k| format!("ip6 host 2001:{k:x}::7:1")),
        ("sources", 0, |k| format!("ip6 src 2001:{:x}::7:{k:x}", k % 40)),
        ("nets", 0, |k| format!("ip6 net 2001:{k:x}::/32")),
        ("intervals", 60, |k| format!("portrange {}-{} and tcp", 6_000 + k, 6_001 + k)),
        ("with a host", 1, |k| format!("ip host 10.0.0.{k} and portrange {}-6100", 6_000 + k)),
        ("tags", 0, |k| format!("vlan {k} and tcp port {}", 6_000 + k)),
    ];
    let options = Options::default();
    for (what, loose, text) in texts {
        let mut random = Random(7);
        let bytes = tagged_and_ip6(&mut random);
        let frames: Vec<Frame> =
            bytes.iter().map(|bytes| Frame::new(LinkType::EN10MB, bytes)).collect();
        let mut set = PassSet::new(LinkType::EN10MB);
        let add = |set: &mut PassSet, k: usize| -> FilterId {
            let mut edit = set.edit();
            let id = edit.add_filter(&compile(&text(k), &options).unwrap()).unwrap();
            edit.commit();
            id
        };
        let mut ids: Vec<FilterId> = (1..200).map(|k| add(&mut set, k)).collect();
        let layout = set.layout();
        assert!(layout.loose <= loose && layout.rows > 100, "{what}: {layout:?}");
        check_filters(&set, &frames, what);
        for id in ids.drain(20..) {
            let mut edit = set.edit();
            edit.remove_filter(id).unwrap();
            edit.commit();
        }
        check_filters(&set, &frames, what);
    }
}

/// Rows with residual tests are added and removed many times: the memory of removed ones is released, while a reader
/// that does not advance sees the same as before.
#[test]
fn tests_of_rows_that_are_gone_are_given_back() {
    let options = Options::default();
    let mut set = PassSet::new(LinkType::EN10MB);
    let add = |set: &mut PassSet, low: u32| -> (FilterId, Epoch) {
        let text = format!("ip6 host 2001::{:x}:{:x}", low >> 16, low & 0xffff);
        let mut edit = set.edit();
        let id = edit.add_filter(&compile(&text, &options).unwrap()).unwrap();
        (id, edit.commit())
    };
    let kept: Vec<FilterId> = (0..40).map(|low| add(&mut set, low).0).collect();
    let mut behind = set.reader();
    let address = |low: u16| std::net::Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, low);
    let bytes: Vec<Vec<u8>> =
        (0..80).map(|low| Packet::ethernet().ipv6(address(low), address(999)).build()).collect();
    let frames: Vec<Frame> =
        bytes.iter().map(|bytes| Frame::new(LinkType::EN10MB, bytes)).collect();
    let batch = support::batch(&frames);
    for low in 0..10_000 {
        let (id, _) = add(&mut set, 100_000 + low);
        let mut edit = set.edit();
        edit.remove_filter(id).unwrap();
        edit.commit();
    }
    let mut matches = Matches::new(MatchMode::All);
    for reader in [&mut behind, &mut set.reader()] {
        let verdict = reader.evaluate_matches(&batch, batch.all(), &mut matches);
        assert_eq!(verdict.count(), 40);
        for (at, id) in kept.iter().enumerate() {
            assert!(matches.of(at).filter_map(|found| found.filter).eq([*id]), "frame {at}");
        }
    }
}
