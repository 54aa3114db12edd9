//! Many edits while long texts are brought into the kernel: one thread does it, and they do not make it begin again.
//! Alone in this file, because the test counts the threads of the process. Needs root.

use fyke_filter::Options;
use fyke_filters::{Change, FilterSet, KernelStage, Superset};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_kernel::OpenError;
use fyke_testkit::packet::Packet;
use fyke_testkit::skip::unless_missing;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of threads that bring texts into the kernel.
fn fillers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "fyke-fill").count()
}

#[test]
fn edits_do_not_delay_the_texts_before_them() {
    let reading = Options { live: true, ..Options::default() };
    let stage = unless_missing(KernelStage::open(reading, u32::MAX), OpenError::is_unavailable);
    let Some(stage) = stage else { return };
    let set = FilterSet::new(reading);
    set.add("udp dst port 9").unwrap();
    set.add_superset(Arc::new(stage.clone()));
    stage.begin();
    let text = |n: u32| format!("udp dst port {} and src host 10.0.{}.{}", n + 10, n >> 8, n & 255);
    let texts: Vec<_> = (0..8_000).map(text).collect();
    let many: Vec<_> = texts.iter().map(|text| Change::Add(text)).collect();
    set.edit(&many).unwrap();
    let mut most = fillers();
    let mut added = Vec::new();
    for n in 0..40 {
        added.push(set.add(&format!("udp dst port {} and src host 11.0.0.1", 30_000 + n)).unwrap());
        most = most.max(fillers());
    }
    // Some of them go again before they are in the kernel.
    for id in added.drain(..10) {
        set.remove(id).unwrap();
        most = most.max(fillers());
    }
    assert!(most <= 1, "{most} threads brought texts into the kernel at a time");
    let began = Instant::now();
    while let Some(reason) = stage.reason() {
        assert!(reason.contains("taking over"), "{reason}");
        assert!(began.elapsed() < Duration::from_secs(60), "the kernel takes them");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(stage.texts(), Some(1 + texts.len() + added.len()));
    let mut reader = set.reader();
    reader.refresh();
    for (from, port, passes) in [
        ([10, 0, 31, 63], 8_009, true),
        ([11, 0, 0, 1], 30_039, true),
        ([11, 0, 0, 1], 30_009, false),
        ([10, 0, 0, 0], 11, false),
    ] {
        let frame = Packet::ethernet().ipv4(from, [10, 9, 9, 9]).udp(4_000, port).build();
        let run = stage.kernel().space(|space| space.test_run(&frame, 1));
        let kernel = run.unwrap().returned != 0;
        let mut batch = Batch::new();
        batch.push(Frame::new(LinkType::EN10MB, &frame)).unwrap();
        let user = !reader.evaluate(&batch, batch.all()).unwrap().is_empty();
        assert_eq!((kernel, user), (passes, passes), "{from:?} {port}");
    }
}
