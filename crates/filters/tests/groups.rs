//! Groups of changes in user space: applied as a whole or not at all, one epoch, and counts of other texts continue.

use fyke_filter::Options;
use fyke_filters::{Change, FilterError, FilterReader, FilterSet};
use fyke_frame::{Batch, Frame, LinkType};

/// An IPv4 header of a protocol, without payload.
fn header(protocol: u8) -> [u8; 20] {
    [0x45, 0, 0, 20, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

fn filters() -> FilterSet {
    FilterSet::new(Options { link: LinkType::IPV4, ..Options::default() })
}

/// Evaluates and counts a frame of the protocol; true if it is accepted.
fn accepts(reader: &mut FilterReader, protocol: u8) -> bool {
    reader.refresh();
    let bytes = header(protocol);
    let mut batch = Batch::new();
    assert!(batch.push(Frame::new(LinkType::IPV4, &bytes)).is_ok());
    let accepted = reader.evaluate(&batch, batch.all()).unwrap();
    reader.count(batch.all());
    accepted.count() == 1
}

#[test]
fn a_group_is_one_epoch() {
    let filters = filters();
    let mut reader = filters.reader();
    let ids = filters.edit(&[Change::Set("icmp"), Change::Add("tcp"), Change::Add("udp")]).unwrap();
    assert_eq!((ids, filters.epoch()), (vec![Some(1), Some(2), Some(3)], 1));
    assert!([TCP, UDP, ICMP].into_iter().all(|protocol| accepts(&mut reader, protocol)));
    let ids = filters.edit(&[Change::Remove(1), Change::Remove(3), Change::Add("icmp")]).unwrap();
    assert_eq!((ids, filters.epoch()), (vec![None, None, Some(4)], 2));
    assert!(accepts(&mut reader, TCP) && accepts(&mut reader, ICMP) && !accepts(&mut reader, UDP));
    let counts: Vec<_> = filters.counts().iter().map(|one| (one.id, one.accepted)).collect();
    assert_eq!(counts, [(2, 2), (4, 1)], "what stays continues counting");
    assert_eq!(filters.edit(&[]).unwrap(), []);
    assert_eq!(filters.epoch(), 2, "no change is no edit");
}

#[test]
fn a_refused_group_changes_nothing() {
    let filters = filters();
    let mut reader = filters.reader();
    filters.set("tcp").unwrap();
    let refused = |group: &[Change<'_>]| {
        let error = filters.edit(group).unwrap_err();
        assert_eq!((filters.epoch(), filters.len()), (1, 1));
        (error.place, error.error)
    };
    let (place, error) = refused(&[Change::Remove(1), Change::Add("udp"), Change::Add("prot 5")]);
    assert!(place == 2 && matches!(error, FilterError::Text(_)), "{place}: {error}");
    let (place, error) = refused(&[Change::Add("udp"), Change::Remove(1), Change::Remove(2)]);
    assert!(place == 2 && matches!(error, FilterError::LastFilter(2)), "{place}: {error}");
    let (place, error) = refused(&[Change::Remove(9), Change::Set("")]);
    assert!(place == 0 && matches!(error, FilterError::NoSuchFilter { given: 9, .. }), "{error}");
    assert!(accepts(&mut reader, TCP) && !accepts(&mut reader, UDP));
    assert_eq!(filters.add("udp").unwrap(), 2, "the number of a refused text is free");
}
