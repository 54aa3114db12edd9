//! Intervals: bounds, late frames, sums that close, counters and differences.

use super::*;

const S: u64 = 1_000_000_000;

fn tally(frames: u64) -> Tally {
    Tally { frames, bytes: frames * 100 }
}

fn entry(value: u32, kind: Kind, name: &str) -> Entry {
    Entry { value, kind, name: name.into() }
}

/// Counts a frame of 100 bytes at a time in seconds, for filters by their values.
fn count(account: &mut Account, second: u64, values: &[u32]) {
    let number = account.place(second * S);
    account.read(tally(1));
    let interface = account.interface("eth0");
    let cell = account.interval(number).cell(interface, Way::Received);
    cell.seen.add(tally(1));
    if !values.is_empty() {
        cell.filtered.add(tally(1));
    }
    for value in values {
        cell.entries.entry(*value).or_default().add(tally(1));
    }
}

/// The rows with their times in seconds: begin, end, kind, name, frames.
fn shown(rows: &[Row]) -> Vec<(u64, u64, &str, &str, i64)> {
    let of = |row| {
        let Row { begin_ns, end_ns, kind, name, frames, .. }: &Row = row;
        (begin_ns / S, end_ns / S, kind.word(), &**name, *frames)
    };
    rows.iter().map(of).collect()
}

#[test]
fn intervals_begin_at_multiples_and_the_first_and_last_are_shorter() {
    let filters = vec![entry(1, Kind::Filter, "a"), entry(2, Kind::Filter, "b")];
    let mut account = Account::new(Some(10 * S), false, filters, None);
    for (second, values) in [(1_003, &[1][..]), (1_009, &[1, 2]), (1_010, &[]), (1_025, &[2])] {
        count(&mut account, second, values);
    }
    let mut closed = account.close(account.now_ns());
    assert_eq!(closed.len(), 2);
    closed.extend(account.finish(None));
    let rows: Vec<_> = closed.iter().flat_map(|rows| shown(rows)).collect();
    let of = |begin, end, counts: [i64; 4]| {
        let names = [("filter", "a"), ("filter", "b"), ("filter", OTHER), ("seen", "")];
        names.into_iter().zip(counts).map(move |((kind, name), n)| (begin, end, kind, name, n))
    };
    // An interval without frames has no rows, but for live captures.
    let expected = of(1_003, 1_010, [2, 1, 0, 2]).chain(of(1_010, 1_020, [0, 0, 1, 1])).chain(of(
        1_020,
        1_025,
        [0, 1, 0, 1],
    ));
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

#[test]
fn a_frame_that_is_late_counts_in_the_oldest_open_interval() {
    let mut account = Account::new(Some(10 * S), false, Vec::new(), None);
    for second in [1_005, 1_019, 1_021, 1_020, 1_004] {
        count(&mut account, second, &[]);
        account.close(account.now_ns());
    }
    assert_eq!((account.late(), account.total()), (1, tally(5)));
    let rows = account.finish(None).concat();
    assert_eq!(shown(&rows), [(1_020, 1_021, "seen", "", 3)]);
}

#[test]
fn a_wrong_time_closes_nothing_and_its_frame_is_counted() {
    let mut account = Account::new(Some(10 * S), false, Vec::new(), None);
    for second in [1_005, 9_000_000_000, 1_006] {
        count(&mut account, second, &[]);
        assert!(account.close(account.now_ns()).is_empty());
    }
    let frames: Vec<_> = account.finish(None).concat().iter().map(|row| row.frames).collect();
    assert_eq!((frames, account.late()), (vec![2, 1], 0));
}

#[test]
fn open_intervals_are_bounded() {
    let mut account = Account::new(Some(S), false, Vec::new(), None);
    let mut rows = 0;
    for number in 0..1_000 {
        // Each is further ahead than a packet may take the clock.
        count(&mut account, 10_000 + number, &[]);
        account.clock = Clock::default();
        rows += account.close(0).len();
        assert!(account.open.len() <= MAX_OPEN);
    }
    assert_eq!(rows + account.finish(None).len(), 1_000);
}

#[test]
fn names_of_interfaces_are_bounded_and_have_no_control_characters() {
    let mut account = Account::new(None, false, Vec::new(), None);
    for number in 0..2 * MAX_INTERFACES {
        account.interface(&format!("eth{number}"));
    }
    assert_eq!(account.interface("eth7"), 7);
    assert_eq!(account.interface("eth9999999"), MAX_INTERFACES);
    assert_eq!(
        (account.interfaces.len(), &*account.interfaces[MAX_INTERFACES]),
        (MAX_INTERFACES + 1, FURTHER)
    );
    let mut account = Account::new(None, false, Vec::new(), None);
    let number = account.interface("a\n\u{1b}[2Jb");
    assert_eq!(&*account.interfaces[number], "a\u{fffd}\u{fffd}[2Jb");
}

fn traffic(sent_frames: u64, received_frames: u64) -> Readings {
    let traffic = Traffic {
        sent_frames,
        received_frames,
        sent_bytes: sent_frames * 100,
        received_bytes: received_frames * 100,
    };
    vec![Reading { name: "eth0".to_owned(), index: 2, traffic }]
}

/// The same of an interface of this name that was made later.
fn traffic_of_next(sent_frames: u64, received_frames: u64) -> Readings {
    let readings = traffic(sent_frames, received_frames).into_iter();
    readings.map(|reading| Reading { index: 3, ..reading }).collect()
}

#[test]
fn an_interface_that_is_made_again_is_compared_from_then_on() {
    let begin = Some((1_000 * S, traffic(50, 70)));
    let mut account = Account::new(Some(10 * S), true, Vec::new(), begin);
    count(&mut account, 1_001, &[]);
    account.note(100, traffic(50, 71));
    count(&mut account, 1_012, &[]);
    // Made again in the second interval; it has counted more than the first one had.
    account.note(101, traffic_of_next(90, 91));
    count(&mut account, 1_022, &[]);
    let rows = account.finish(Some((1_024 * S, traffic_of_next(90, 93)))).concat();
    let of = |kind| {
        let rows = rows.iter().filter(move |row| row.kind == kind && row.way == Way::Received);
        rows.map(|row| (row.begin_ns / S, row.frames)).collect::<Vec<_>>()
    };
    assert_eq!(of(Kind::Counter), [(1_000, 1), (1_020, 2)]);
    assert_eq!(of(Kind::Difference), [(1_000, 0), (1_020, 1)]);
}

#[test]
fn differences_are_those_of_the_time_since_the_last_reading() {
    let begin = Some((1_001 * S, traffic(50, 70)));
    let mut account = Account::new(Some(10 * S), true, Vec::new(), begin);
    count(&mut account, 1_000, &[]);
    count(&mut account, 1_002, &[]);
    account.note(100, traffic(51, 72));
    count(&mut account, 1_012, &[]);
    // The counters at the end of the second interval were not read.
    count(&mut account, 1_022, &[]);
    account.lose(0, 3, 1_023 * S);
    let rows = account.finish(Some((1_024 * S, traffic(51, 77)))).concat();
    let of = |kind, way| {
        let rows = rows.iter().filter(move |row| row.kind == kind && row.way == way);
        rows.map(|row| (row.begin_ns / S, row.frames)).collect::<Vec<_>>()
    };
    assert_eq!(of(Kind::Seen, Way::Received), [(1_001, 2), (1_010, 1), (1_020, 1)]);
    assert_eq!(of(Kind::Seen, Way::Sent), [(1_001, 0), (1_010, 0), (1_020, 0)]);
    assert_eq!(of(Kind::Counter, Way::Received), [(1_001, 2), (1_020, 5)]);
    assert_eq!(of(Kind::Difference, Way::Received), [(1_001, 0), (1_020, 3)]);
    assert_eq!(of(Kind::Difference, Way::Sent), [(1_001, 1), (1_020, 0)]);
    assert_eq!(of(Kind::Lost, Way::Unknown), [(1_001, 0), (1_010, 0), (1_020, 3)]);
    assert_eq!((account.total(), account.total_lost(), account.late()), (tally(4), 3, 0));
}

#[test]
fn a_removed_filter_has_a_row_for_its_last_interval() {
    let mut account = Account::new(Some(10 * S), true, vec![entry(1, Kind::Filter, "a")], None);
    count(&mut account, 1_000, &[1]);
    let filters = vec![entry(2, Kind::Filter, "a"), entry(3, Kind::Filter, "b")];
    account.set_entries(filters, 1_000 * S);
    count(&mut account, 1_001, &[2]);
    let rows = account.finish(None).concat();
    // One name is one row.
    assert_eq!(shown(&rows)[0], (1_000, 1_001, "filter", "a", 2));
}

/// An interval is closed a second after its end: an edit in this second does not change its rows.
#[test]
fn intervals_before_an_edit_have_the_rows_of_the_filters_before_it() {
    let filters = vec![entry(1, Kind::Filter, "old"), entry(9, Kind::Filter, "both")];
    let mut account = Account::new(Some(10 * S), false, filters, None);
    for second in [1_000, 1_010] {
        count(&mut account, second, &[]);
        assert!(account.close(account.now_ns()).is_empty());
    }
    let filters = vec![entry(9, Kind::Filter, "both"), entry(2, Kind::Filter, "new")];
    account.set_entries(filters.clone(), 1_010 * S + S / 2);
    count(&mut account, 1_011, &[2]);
    count(&mut account, 1_020, &[2]);
    let mut closed = account.close(account.now_ns());
    // A filter that comes and goes within an interval has a row there, too.
    account.set_entries(vec![entry(3, Kind::Filter, "short")], 1_021 * S);
    account.set_entries(filters, 1_022 * S);
    closed.extend(account.finish(None));
    let named = closed.iter().map(|rows| {
        let rows = rows.iter().filter(|row| row.kind == Kind::Filter && &*row.name != OTHER);
        rows.map(|row| (&*row.name, row.frames)).collect::<Vec<_>>()
    });
    let [first, second, third] = named.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(first, [("both", 0), ("old", 0)]);
    assert_eq!(second, [("both", 0), ("new", 1), ("old", 0)]);
    // `both` and `new` have come back.
    assert_eq!(third, [("both", 0), ("new", 1), ("short", 0)]);
}

#[test]
fn removed_filters_are_bounded_but_for_those_with_frames() {
    let mut account = Account::new(None, false, vec![entry(1, Kind::Filter, "first")], None);
    count(&mut account, 1_000, &[1]);
    for value in 2..2 * MAX_REMOVED as u32 {
        account.set_entries(vec![entry(value, Kind::Filter, &value.to_string())], 1_000 * S);
    }
    assert_eq!(account.entries.len(), MAX_REMOVED + 2);
    let rows = account.finish(None).concat();
    assert!(rows.iter().any(|row| &*row.name == "first" && row.frames == 1));
}
