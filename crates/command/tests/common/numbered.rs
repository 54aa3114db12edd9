//! Numbered frames on `v0`, so that a test knows which of them are in a file, and how often.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::datagram;
use fyke_capture::{Interface, InterfaceSink, Next, Sink, Source};
use fyke_frame::{Frame, LinkType};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sends numbered frames until it is told to stop: every other one to port 5001. Returns their number, which `sent` has
/// meanwhile.
pub fn send_numbered(stop: &AtomicBool, sent: &AtomicU64) -> u64 {
    let mut sink = InterfaceSink::open("v0").unwrap();
    let interface = Interface::new("v0", LinkType::EN10MB);
    let frames = [datagram(5001, 80), datagram(5002, 80)];
    let mut count = 0u64;
    while !stop.load(Ordering::Relaxed) && count < 2_000_000 {
        for _ in 0..20 {
            let mut data = frames[count as usize % 2].clone();
            let at = data.len() - 8;
            data[at..].copy_from_slice(&count.to_be_bytes());
            sink.write(&interface, &Frame::new(LinkType::EN10MB, &data)).unwrap();
            count += 1;
        }
        sent.store(count, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
    count
}

/// The bytes of the frames of a file.
pub fn data_of(path: &Path) -> Vec<Vec<u8>> {
    let mut source = fyke_capture::open_file(path).unwrap();
    let mut all = Vec::new();
    loop {
        match source.next().unwrap() {
            Next::Frames(batch, _) => {
                all.extend(batch.frames().iter().map(|frame| frame.data.to_vec()));
            }
            Next::Idle => {}
            Next::End => return all,
        }
    }
}

/// The numbers of the frames of a file, and how often each is there.
pub fn numbers_of(path: &Path) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for data in data_of(path) {
        let number = data.last_chunk().copied().map(u64::from_be_bytes).unwrap();
        *all.entry(number).or_default() += 1;
    }
    all
}

/// Waits until some more frames were sent.
pub fn pass(sent: &AtomicU64) {
    let (start, limit) = (sent.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(20));
    while sent.load(Ordering::Relaxed) < start + 200 {
        assert!(Instant::now() < limit, "nothing is sent");
        std::thread::sleep(Duration::from_millis(1));
    }
}
