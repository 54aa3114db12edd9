//! Edits a filter from one thread while another one evaluates frames: no frame waits, no count is lost.

use fyke::LiveFilter;
use fyke::filters::Change;
use std::sync::atomic::{AtomicBool, Ordering};

/// An Ethernet frame with an IPv4 header from 10.0.0.`host`.
fn from(host: u8) -> [u8; 60] {
    let mut bytes = [0; 60];
    bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    bytes[26..30].copy_from_slice(&[10, 0, 0, host]);
    bytes
}

fn main() -> Result<(), fyke::Error> {
    let filter = LiveFilter::compile("host 10.0.0.1")?;
    let (mut reader, seen) = (filter.reader(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(reader.matches(&from(1)));
            while !reader.matches(&from(2)) {} // until the edit below
            seen.store(true, Ordering::Relaxed);
        });
        filter.add("host 10.0.0.2")
    })?;
    assert!(seen.load(Ordering::Relaxed));

    // A group of changes is one edit: all of it or nothing, and no frame is evaluated in between.
    filter.edit(&[Change::Remove(1), Change::Add("host 10.0.0.3")])?;
    let mut reader = filter.reader();
    assert_eq!([1, 2, 3].map(|host| reader.matches(&from(host))), [false, true, true]);
    for one in filter.counts() {
        println!("{} {:15} accepted {}", one.id, &*one.text, one.accepted);
        assert!(one.accepted > 0);
    }
    Ok(())
}
