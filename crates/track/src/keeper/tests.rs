//! The keeper on a real pass set, tested with frames.

use super::*;
use crate::ftp::PASSIVE;
use crate::{Closed, Reason};
use fyke_frame::{Batch, Frame};

fn connection(id: u64, server: &str, port: u16) -> Connection {
    Connection {
        id,
        server: server.parse().unwrap(),
        port,
        client: "10.0.1.1".parse().unwrap(),
        protocol: Protocol::Tcp,
        pair: false,
        call: 1,
        label: "FTP data",
        cause: PASSIVE,
        announced_ns: 0,
    }
}

fn closed(connection: Connection) -> Event {
    Event::Close(Closed {
        connection,
        reason: Reason::Finished,
        client_port: None,
        frame_count: 0,
        wire_bytes: 0,
        from_syn: true,
    })
}

fn frame(source: (&str, u16), destination: (&str, u16)) -> Vec<u8> {
    let ethernet = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = match (source.0.parse().unwrap(), destination.0.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => ethernet.ipv6(from.octets(), to.octets(), 64),
        _ => panic!("one family"),
    };
    let mut bytes = Vec::new();
    ip.tcp(source.1, destination.1, 1, 100).write(&mut bytes, b"data").unwrap();
    bytes
}

/// A pass set with the start filter, as in FTPCap.
fn start() -> PassSet {
    let mut passes = PassSet::new(LinkType::EN10MB);
    let control = fyke_filter::compile("ip and tcp port ftp", &Options::default()).unwrap();
    let mut edit = passes.edit();
    edit.add_filter(&control).unwrap();
    edit.commit();
    passes
}

fn accepts(passes: &PassSet, source: (&str, u16), destination: (&str, u16)) -> bool {
    let bytes = frame(source, destination);
    let mut batch = Batch::new();
    batch.push(Frame::new(LinkType::EN10MB, &bytes)).unwrap();
    let mut reader = passes.reader();
    reader.refresh();
    !reader.evaluate(&batch, batch.all()).is_empty()
}

#[test]
fn connections_are_accepted_from_opening_to_closing_in_both_directions() {
    let (mut passes, mut keeper) = (start(), PassKeeper::new(LinkType::EN10MB));
    let client = ("10.0.1.1", 4_000);
    let ends = [("10.0.0.1", 5_001), ("10.0.0.1", 5_002), ("10.0.0.2", 5_001), ("2001:db8::1", 7)];
    for (id, (server, port)) in (1..).zip(ends) {
        let applied = keeper.apply(&[Event::Open(connection(id, server, port))], &mut passes);
        assert_eq!((applied.changes, applied.failures.len()), (1, 0), "{:?}", applied.failures);
    }
    for end in &ends[..3] {
        assert!(accepts(&passes, client, *end) && accepts(&passes, *end, client));
    }
    assert!(accepts(&passes, ("2001:db8::2", 4_000), ends[3]));
    assert!(!accepts(&passes, client, ("10.0.0.2", 5_002)), "ports belong to their server");
    assert!(accepts(&passes, client, ("10.0.0.9", 21)), "control connections stay");
    for (id, (server, port)) in (1..).zip(ends) {
        let applied = keeper.apply(&[closed(connection(id, server, port))], &mut passes);
        assert_eq!((applied.changes, applied.failures.len()), (1, 0));
        let from = if server.contains(':') { ("2001:db8::2", 4_000) } else { client };
        assert!(!accepts(&passes, from, (server, port)));
    }
    assert!(accepts(&passes, client, ("10.0.0.9", 21)));
    assert_eq!((keeper.pass_count(), keeper.connection_count()), (0, 0));
    assert_eq!(passes.passes().count(), start().passes().count(), "nothing is left");
}

/// A pass of its own for each end keeps ends apart, and all of them are rows of one table: an edit of one does not
/// depend on the others.
#[test]
fn thousands_of_ends_of_one_server_are_rows_of_a_table() {
    let (mut passes, mut keeper) = (start(), PassKeeper::new(LinkType::EN10MB));
    let before = passes.passes().count();
    let open = |id: u64| Event::Open(connection(id, "10.0.0.1", 5_000 + id as u16));
    let events: Vec<Event> = (1..=3_000).map(open).collect();
    assert_eq!(keeper.apply(&events, &mut passes).changes, 3_000);
    assert_eq!(passes.passes().count(), before + 3_000);
    assert!(passes.passes().all(|pass| pass.parent.is_none()));
    let layout = passes.layout();
    assert!(layout.rows >= 3_000 && layout.loose <= before, "{layout:?}");
    let client = ("10.0.1.1", 4_000);
    let is_open = |passes: &PassSet, port| accepts(passes, client, ("10.0.0.1", port));
    assert!(is_open(&passes, 5_001) && is_open(&passes, 8_000) && !is_open(&passes, 8_001));
    // The first one made is removed, the others stay.
    let close: Vec<Event> =
        (1..=12u64).map(|id| closed(connection(id, "10.0.0.1", 5_000 + id as u16))).collect();
    assert_eq!(keeper.apply(&close, &mut passes).failures.len(), 0);
    assert!(!is_open(&passes, 5_001) && !is_open(&passes, 5_012) && is_open(&passes, 5_013));
    assert_eq!(passes.passes().count(), before + 2_988);
}

#[test]
fn an_event_is_one_edit_and_nothing_is_changed_for_what_is_held() {
    let (mut passes, mut keeper) = (start(), PassKeeper::new(LinkType::EN10MB));
    let open = |id| Event::Open(connection(id, "10.0.0.1", 5_001));
    assert_eq!(keeper.apply(&[open(1)], &mut passes).changes, 1);
    assert_eq!(keeper.apply(&[open(2)], &mut passes).changes, 0);
    let first = keeper.apply(&[closed(connection(1, "10.0.0.1", 5_001))], &mut passes);
    assert_eq!(first.changes, 0);
    assert!(accepts(&passes, ("10.0.1.1", 4_000), ("10.0.0.1", 5_001)));
    let unknown = keeper.apply(&[closed(connection(9, "10.0.0.1", 5_001))], &mut passes);
    assert_eq!((unknown.changes, unknown.failures.len()), (0, 0));
}
