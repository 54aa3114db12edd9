//! The kernel before a set of filters: it passes what they accept, before, during and after every edit. Needs root.

use fyke_filter::Options;
use fyke_filters::{Change, FilterSet, FilterView, KernelStage, Superset};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_kernel::{OpenError, Space};
use fyke_testkit::random::Random;
use fyke_testkit::skip::unless_missing;
use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A set of live texts with the kernel before it, or `None` with a printed reason.
fn open(texts: &[&str]) -> Option<(FilterSet, KernelStage)> {
    let reading = Options { live: true, ..Options::default() };
    let stage = KernelStage::open(reading, u32::MAX);
    let stage = unless_missing(stage, OpenError::is_unavailable)?;
    let set = FilterSet::new(reading);
    for text in texts {
        set.add(text).unwrap();
    }
    set.add_superset(Arc::new(stage.clone()));
    stage.begin();
    Some((set, stage))
}

/// Texts that are too long for an edit to wait for them are in the kernel when the capture begins, as a program of
/// their own: it cannot be loaded later.
#[test]
fn long_texts_of_the_start_become_a_program() {
    let reading = Options { live: true, ..Options::default() };
    let stage = KernelStage::open(reading, u32::MAX);
    let Some(stage) = unless_missing(stage, OpenError::is_unavailable) else { return };
    let set = FilterSet::new(reading);
    let pair = |n: u32| format!("(dst host 10.1.{}.{} and udp port {n})", n >> 8, n & 0xff);
    let text: Vec<_> = (0..1_000).map(pair).collect();
    set.add(&text.join(" or ")).unwrap();
    set.add_superset(Arc::new(stage.clone()));
    let socket = socket(AddressFamily::PACKET, SocketType::RAW, None).unwrap();
    stage.attach(socket.as_fd(), LinkType::EN10MB).unwrap();
    let is_specialised = stage.kernel().space(Space::is_specialised);
    assert_eq!(is_specialised, cfg!(target_arch = "x86_64"));
    assert_eq!((stage.reason(), stage.texts()), (None, Some(1)));
    stage.begin();
    let to = |n: u16, port| {
        let mut frame = udp(port);
        frame[30..34].copy_from_slice(&[10, 1, (n >> 8) as u8, n as u8]);
        frame
    };
    let frames = [to(7, 7), to(7, 8), to(999, 999), to(1_000, 1_000)];
    settles(&set, &stage, &frames);
    assert_eq!(accepted(&set, &frames), [true, false, true, false]);
    set.add("udp port 8").unwrap();
    settles(&set, &stage, &frames);
}

/// Texts that come and go while the capture runs: generated programs take each other's place, and at every moment the
/// kernel passes what the set accepts.
#[test]
fn later_texts_become_programs_that_pass_a_superset_during_edits() {
    let reading = Options { live: true, ..Options::default() };
    let stage = KernelStage::open(reading, u32::MAX);
    let Some(stage) = unless_missing(stage, OpenError::is_unavailable) else { return };
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: programs are generated on x86-64 only");
    }
    let socket = Arc::new(socket(AddressFamily::PACKET, SocketType::RAW, None).unwrap());
    let (programs, to) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&socket));
    let set = FilterSet::new(reading);
    set.add_superset(Arc::new(stage.clone()));
    stage.attach(socket.as_fd(), LinkType::EN10MB).unwrap();
    stage.begin();
    let counted = Arc::clone(&programs);
    let other = stage.clone();
    stage.generate_later(move || {
        let is_generated = other.kernel().space(Space::is_specialised);
        counted.fetch_add(usize::from(is_generated), Ordering::Relaxed);
        other.attach(to.as_fd(), LinkType::EN10MB).map_err(|error| error.to_string())
    });
    let (mut random, frames) = (Random::new(9), (0..16).map(udp).collect::<Vec<_>>());
    let mut ids = vec![set.add("udp dst port 3").unwrap()];
    for step in 0..600 {
        match random.below(3) {
            0 if ids.len() > 1 => set.remove(ids.swap_remove(random.below(ids.len()))).unwrap(),
            _ if ids.len() < 12 => {
                let port = random.below(16);
                let text = ["udp dst port", "udp port", "udp and port"][random.below(3)];
                ids.push(set.add(&format!("{text} {port}")).unwrap());
            }
            _ => {}
        }
        // Edits meet a generation, which begins 0.3 s after the last one, at different moments.
        let pause = if step % 60 == 59 { 300 + step as u64 / 20 } else { random.below(2) as u64 };
        std::thread::sleep(Duration::from_millis(pause));
        if step % 120 == 119 {
            is_generated(&stage);
        }
        let after = accepted(&set, &frames);
        for (index, frame) in frames.iter().enumerate() {
            assert!(passed(&stage, frame) || !after[index], "port {index} {:?}", stage.program());
        }
    }
    is_generated(&stage);
    settles(&set, &stage, &frames);
    // The interpreter has the same verdicts for the same passes.
    for frame in &frames {
        let interpreted = |space: &Space| space.test_run_interpreted(frame, 1).unwrap().returned;
        assert_eq!(stage.kernel().space(interpreted) != 0, passed(&stage, frame));
    }
    let programs = programs.load(Ordering::Relaxed);
    println!("{programs} programs");
    assert!(programs >= 3, "{programs} programs");
}

/// Texts of one form that come while the capture runs are rows of a table: a frame costs one look-up for all.
#[test]
fn later_texts_of_one_form_share_a_table() {
    let Some((set, stage)) = open(&["udp dst port 1"]) else { return };
    let frames: Vec<_> = (0..16).map(udp).collect();
    // A pass of its own has a number; the text in its own order, for short frames, has none.
    let is_single = |view: &FilterView| view.passes.iter().any(|pass| pass.id != 0);
    let single = || stage.kernel().view().iter().filter(|view| is_single(view)).count();
    assert_eq!(single(), 1);
    let ids: Vec<u64> =
        (2..10).map(|port| set.add(&format!("udp dst port {port}")).unwrap()).collect();
    settles(&set, &stage, &frames);
    assert_eq!(single(), 0, "{:?}", stage.kernel().view());
    for id in ids {
        set.remove(id).unwrap();
        settles(&set, &stage, &frames);
    }
    assert_eq!(single(), 1);
}

/// Waits until a generated program evaluates all texts.
fn is_generated(stage: &KernelStage) {
    let began = Instant::now();
    while stage.program().as_deref() != Some("its program is generated from them") {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", stage.program());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A UDP datagram to a port.
fn udp(port: u16) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 17);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes
}

fn accepted(set: &FilterSet, frames: &[Vec<u8>]) -> Vec<bool> {
    let mut reader = set.reader();
    reader.refresh();
    let mut batch = Batch::new();
    for frame in frames {
        batch.push(Frame::new(LinkType::EN10MB, frame)).unwrap();
    }
    let mask = reader.evaluate(&batch, batch.all()).unwrap();
    (0..frames.len()).map(|index| mask.get(index)).collect()
}

fn passed(stage: &KernelStage, frame: &[u8]) -> bool {
    stage.kernel().space(|space| space.test_run(frame, 1)).unwrap().returned != 0
}

/// Waits until the kernel passes exactly what the set accepts.
fn settles(set: &FilterSet, stage: &KernelStage, frames: &[Vec<u8>]) {
    let began = Instant::now();
    let expected = accepted(set, frames);
    while frames.iter().map(|frame| passed(stage, frame)).collect::<Vec<_>>() != expected {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?} {expected:?}", stage.reason());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn random_edits_leave_the_kernel_with_a_superset_and_then_with_the_same() {
    let Some((set, stage)) = open(&["udp dst port 3"]) else { return };
    let mut random = Random::new(7);
    let frames: Vec<_> = (0..16).map(udp).collect();
    let (mut ids, mut text) = (vec![1], String::new());
    for _ in 0..300 {
        let port = random.below(16);
        match random.below(6) {
            0..=2 => ids.push(set.add(&format!("udp dst port {port}")).unwrap()),
            3 | 4 if ids.len() > 1 => {
                let id = ids.swap_remove(random.below(ids.len()));
                set.remove(id).unwrap();
            }
            _ => {
                text.clear();
                // Now and then a text that the kernel gets later, or none.
                let long = [0, 0, 300][random.below(3)];
                for n in 0..long {
                    text += &format!("udp dst port {} or ", 1_000 + n);
                }
                text += &format!("udp dst port {port}");
                let text = if random.below(5) == 0 { "" } else { &text };
                let id = set.set(text).unwrap();
                ids = id.into_iter().collect();
            }
        }
        let after = accepted(&set, &frames);
        for (index, frame) in frames.iter().enumerate() {
            assert!(passed(&stage, frame) || !after[index], "port {index} {:?}", stage.reason());
        }
    }
    settles(&set, &stage, &frames);
    set.set("").unwrap();
    assert!(passed(&stage, &frames[0]));
    assert_eq!(stage.reason().as_deref(), Some("no filter rejects a frame"));
}

#[test]
fn while_texts_change_a_frame_that_old_and_new_accept_always_passes() {
    let Some((set, stage)) = open(&["udp dst port 3"]) else { return };
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let long: String =
                (0..400).map(|n| format!("udp dst port {} or ", 2_000 + n)).collect();
            for n in 0..200 {
                set.set(&format!("udp dst port 3 or udp dst port {n}")).unwrap();
                set.set(&format!("{long} udp dst port 3")).unwrap();
                let group = [Change::Set("udp"), Change::Add("arp")];
                set.edit(&group).unwrap();
                if n % 5 == 0 {
                    set.set("").unwrap();
                }
            }
            set.set("udp dst port 3").unwrap();
            done.store(true, Ordering::Relaxed);
        });
        let mut runs = 0;
        while !done.load(Ordering::Relaxed) {
            assert!(passed(&stage, &udp(3)), "run {runs}");
            runs += 1;
        }
        assert!(runs > 100, "{runs} runs");
    });
    settles(&set, &stage, &(0..8).map(udp).collect::<Vec<_>>());
}

#[test]
fn what_no_text_accepts_opens_the_kernel_for_good() {
    let Some((set, stage)) = open(&["udp dst port 3"]) else { return };
    assert!(!passed(&stage, &udp(4)) && passed(&stage, &udp(3)));
    assert_eq!((stage.reason(), stage.texts()), (None, Some(1)));
    set.edit_passes(LinkType::EN10MB, |_| ()).unwrap();
    assert!(passed(&stage, &udp(4)));
    set.set("udp dst port 5").unwrap();
    assert!(passed(&stage, &udp(4)), "it stays open");
    assert!(stage.reason().unwrap().contains("tracker"));
}

#[test]
fn a_text_that_the_kernel_refuses_opens_it_until_the_text_is_gone() {
    let Some((set, stage)) = open(&["udp dst port 3"]) else { return };
    let exceptions = |n: u32| format!("not (ip host 10.0.{}.{} and tcp port {n})", n >> 8, n & 255);
    let long: Vec<_> = (1..6_000).map(exceptions).collect();
    let id = set.add(&long.join(" and ")).unwrap();
    let began = Instant::now();
    while stage.reason().is_none_or(|reason| reason.contains("taking over")) {
        assert!(passed(&stage, &udp(4)), "it is open while it tries");
        assert!(stage.reason().is_some(), "it says why");
        assert!(began.elapsed() < Duration::from_secs(60), "the kernel takes it");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(passed(&stage, &udp(4)));
    set.remove(id).unwrap();
    settles(&set, &stage, &(0..8).map(udp).collect::<Vec<_>>());
    assert_eq!((stage.reason(), stage.texts()), (None, Some(1)));
}

#[test]
fn frames_that_the_kernel_rejects_are_counted_there() {
    let Some((_set, stage)) = open(&["udp dst port 3"]) else { return };
    let before = stage.rejected();
    for _ in 0..5 {
        assert!(!passed(&stage, &udp(4)) && passed(&stage, &udp(3)));
    }
    assert_eq!(stage.rejected() - before, 5);
}

#[test]
fn a_sample_of_the_rejected_frames_passes_and_counts_once() {
    let Some((set, stage)) = open(&["udp dst port 3"]) else { return };
    let (mut reader, frame) = (set.reader(), udp(4));
    reader.refresh();
    let mut run = |one_in, times: u64| {
        stage.set_sample(one_in);
        let (rejected, sampled) = (stage.rejected(), stage.sampled());
        let mut came = 0;
        for _ in 0..times {
            assert!(passed(&stage, &udp(3)), "what a text accepts always passes");
            if passed(&stage, &frame) {
                let mut batch = Batch::new();
                batch.push(Frame::new(LinkType::EN10MB, &frame)).unwrap();
                assert!(reader.evaluate(&batch, batch.all()).unwrap().is_empty());
                came += 1;
            }
        }
        assert_eq!(stage.sampled() - sampled, came);
        assert_eq!(stage.rejected() - rejected + came, times, "each frame is counted once");
        came
    };
    assert_eq!((run(0, 500), run(1, 500)), (0, 500));
    let came = run(4, 4_000);
    assert!((700..1_300).contains(&came), "{came} of 4,000 are not one in four");
    assert_eq!(run(0, 100), 0);
}
