//! `fyke serve` is restarted and killed while it captures, by a small service manager that keeps descriptors as systemd
//! does: every frame reaches each reader once, or is counted as lost.

mod common;
#[path = "common/manager.rs"]
mod manager;
#[path = "common/numbered.rs"]
mod numbered;

use common::{Running, Sum, datagram, folder, frames_of, inside, runtime, veth};
use fyke_capture::{Interface, InterfaceSink, Sink};
use fyke_frame::{Frame, LinkType};
use manager::Manager;
use numbered::{data_of, numbers_of, pass, send_numbered};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn stopped(mut reader: Running) -> Sum {
    reader.signal("INT");
    assert!(reader.end().success(), "{}", reader.said());
    reader.sum()
}

/// Sum of a reader, and how often each number is in its file.
type Outcome = (Sum, BTreeMap<u64, u64>);

/// Runs a service with three readers under load, two with texts and one with a graph, and ends it twice by a signal.
/// Returns the number of frames that were sent, and for each reader its sum and the numbers in its file.
fn restarted(signal: &str) -> (u64, Vec<Outcome>) {
    veth();
    let (folder, at) = folder();
    let manager = Manager::of(&["v1"], folder.path());
    let mut service = manager.start();
    let graph = "(filter, udp port 5001, live=y)";
    let words: [&[&str]; 3] = [&["udp port 5001"], &["udp"], &["--serve-graph", graph]];
    let names = ["port", "udp", "graph"].map(|name| at(name).with_extension("pcapng"));
    let readers = words.into_iter().zip(names);
    let readers: Vec<_> = readers.map(|(of, file)| (manager.dump(of, &file), file)).collect();
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (ends, sent) = (Arc::clone(&stop), Arc::clone(&count));
    let sender = std::thread::spawn(move || send_numbered(&ends, &sent));
    for _ in 0..2 {
        pass(&count);
        service.signal(signal);
        let ended = service.end();
        assert_eq!(ended.success(), signal == "TERM", "{}", service.said());
        pass(&count);
        service = manager.start();
        service.hear("with 3 readers");
    }
    pass(&count);
    stop.store(true, Ordering::Relaxed);
    let sent = sender.join().unwrap();
    let results = readers.into_iter().map(|(reader, file)| {
        reader.settle(sent);
        (stopped(reader), numbers_of(&file))
    });
    let results = results.collect();
    // A reader that comes and goes leaves nothing.
    let limit = Instant::now() + Duration::from_secs(20);
    let of_readers = |(name, _): &(String, OwnedFd)| name.starts_with("reader-");
    while manager.kept.lock().unwrap().iter().any(of_readers) {
        assert!(Instant::now() < limit, "the store keeps readers that have ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    (sent, results)
}

#[test]
fn a_restart_under_load_loses_nothing() {
    if !inside("a_restart_under_load_loses_nothing") {
        return;
    }
    let (sent, results) = restarted("TERM");
    for ((sum, numbers), every) in results.into_iter().zip([2, 1, 2]) {
        let accepted = sent / every;
        assert_eq!(sum, Sum { seen: sent, accepted, rejected: sent - accepted, lost: 0 });
        assert!(numbers.values().all(|count| *count == 1), "a frame twice");
        let expected: Vec<u64> = (0..sent).step_by(every as usize).collect();
        assert!(numbers.keys().copied().eq(expected), "{} of {accepted} frames", numbers.len());
    }
}

#[test]
fn a_service_that_is_killed_under_load_loses_at_most_a_batch_and_counts_it() {
    if !inside("a_service_that_is_killed_under_load_loses_at_most_a_batch_and_counts_it") {
        return;
    }
    let (sent, results) = restarted("KILL");
    for ((sum, numbers), every) in results.into_iter().zip([2, 1, 2]) {
        assert_eq!(sum.seen, sent, "{sum:?}");
        // Two kills, each in one batch at most.
        assert!(sum.lost <= 2 * 256, "{sum:?}");
        assert_eq!(sum.accepted, numbers.len() as u64);
        assert!(numbers.values().all(|count| *count == 1), "a frame twice");
        if every == 1 {
            assert_eq!((sum.rejected, sum.accepted + sum.lost), (0, sent));
        }
        assert!(sum.accepted + sum.lost >= sent / every, "{sum:?} of {sent}");
    }
}

#[test]
fn readers_end_in_order_when_the_service_does_not_come_back() {
    if !inside("readers_end_in_order_when_the_service_does_not_come_back") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let manager = Manager::of(&["v1"], folder.path());
    let mut service = manager.start();
    let file = at("a.pcapng");
    let mut reader = manager.dump(&["udp"], &file);
    common::send(500, 60);
    reader.settle(500);
    service.signal("TERM");
    assert!(service.end().success(), "{}", service.said());
    assert_eq!(service.sum().lost, 0);
    assert!(reader.child.try_wait().unwrap().is_none(), "it waits for the next process");
    manager.clear();
    assert!(reader.end().success(), "{}", reader.said());
    assert_eq!(reader.sum(), Sum { seen: 500, accepted: 500, rejected: 0, lost: 0 });
}

#[test]
fn a_graph_a_pause_and_edits_survive_a_restart() {
    if !inside("a_graph_a_pause_and_edits_survive_a_restart") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let manager = Manager::of(&["v1"], folder.path());
    let mut service = manager.start();
    let files = [at("graph.pcapng"), at("edited.pcapng")];
    let graph = manager.dump(&["--serve-graph", "(filter, udp port 5001, live=y)"], &files[0]);
    let edited = manager.dump(&["udp port 5001"], &files[1]);
    common::send(200, 60);
    edited.settle(200);
    edited.ctl(&["set", "udp port 5002"]);
    service.signal("TERM");
    assert!(service.end().success(), "{}", service.said());
    common::send(200, 60);
    service = manager.start();
    service.hear("with 2 readers");
    edited.settle(400);
    edited.ctl(&["set", "udp"]);
    common::send(200, 60);
    for (reader, accepted) in [(graph, 300), (edited, 100 + 100 + 200)] {
        reader.settle(600);
        let rejected = 600 - accepted;
        assert_eq!(stopped(reader), Sum { seen: 600, accepted, rejected, lost: 0 });
    }
    assert!(runtime().exists());
    // The socket of the service manager still takes connections.
    let new = manager.dump(&["udp"], &at("new.pcapng"));
    common::send(100, 60);
    new.settle(100);
    assert_eq!(stopped(new), Sum { seen: 100, accepted: 100, rejected: 0, lost: 0 });
}

/// Ends the service by a signal, does something meanwhile, and starts it again with this number of readers.
fn restart(
    manager: &Manager,
    service: &mut Running,
    signal: &str,
    readers: usize,
    meanwhile: impl Fn(),
) {
    service.signal(signal);
    assert_eq!(service.end().success(), signal == "TERM", "{}", service.said());
    meanwhile();
    *service = manager.start();
    service.hear(&format!("with {readers} readers"));
}

#[test]
fn readers_that_ctl_has_paused_stay_paused_over_restarts() {
    if !inside("readers_that_ctl_has_paused_stay_paused_over_restarts") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let manager = Manager::of(&["v1"], folder.path());
    let mut service = manager.start();
    let files = ["text", "graph", "beside"].map(|name| at(name).with_extension("pcapng"));
    let text = manager.dump(&["udp port 5001"], &files[0]);
    let graph = manager.dump(&["--serve-graph", "(filter, udp port 5001, live=y)"], &files[1]);
    let beside = manager.dump(&["udp"], &files[2]);
    let send = || common::send(100, 60);
    send();
    for reader in [&text, &graph, &beside] {
        reader.settle(100);
    }
    for number in ["1", "2"] {
        service.ctl(&["pause", number]);
    }
    send();
    beside.settle(200);
    for (signal, sent) in [("TERM", 400), ("KILL", 600)] {
        restart(&manager, &mut service, signal, 3, send);
        send();
        beside.settle(sent);
    }
    // A reader that was started again stays so, too.
    for number in ["1", "2"] {
        service.ctl(&["start", number]);
    }
    send();
    for reader in [&text, &graph] {
        reader.settle(200);
    }
    restart(&manager, &mut service, "TERM", 3, send);
    for (reader, file) in [text, graph].into_iter().zip(&files) {
        reader.settle(300);
        assert_eq!(stopped(reader), Sum { seen: 300, accepted: 150, rejected: 150, lost: 0 });
        assert_eq!(frames_of(file), 150);
    }
    beside.settle(800);
    assert_eq!(stopped(beside), Sum { seen: 800, accepted: 800, rejected: 0, lost: 0 });
}

#[test]
fn frames_keep_their_vlan_tags_over_restarts() {
    if !inside("frames_keep_their_vlan_tags_over_restarts") {
        return;
    }
    veth();
    let (folder, at) = folder();
    let manager = Manager::of(&["v1"], folder.path());
    let mut service = manager.start();
    let texts = ["vlan 7", "vlan 7 and vlan 8", "not vlan", ""];
    let readers = texts.map(|text| {
        let file = at(&format!("of {text}")).with_extension("pcapng");
        (manager.dump(if text.is_empty() { &[] } else { std::slice::from_ref(&text) }, &file), file)
    });
    // Of four frames one has a tag, one has two, one has another one, and one has none.
    let send = || {
        let mut sink = InterfaceSink::open("v0").unwrap();
        let interface = Interface::new("v0", LinkType::EN10MB);
        let plain = datagram(5001, 60);
        let tagged = |tags: &[u8]| {
            let tags: Vec<u8> = tags.iter().flat_map(|tag| [0x81, 0, 0, *tag]).collect();
            [&plain[..12], &tags, &plain[12..]].concat()
        };
        let frames = [&[7][..], &[7, 8], &[9], &[]].map(tagged);
        for number in 0..100 {
            let data = &frames[number % 4];
            sink.write(&interface, &Frame::new(LinkType::EN10MB, data)).unwrap();
        }
    };
    send();
    readers.iter().for_each(|(reader, _)| reader.settle(100));
    let mut sent = 100;
    for signal in ["TERM", "KILL"] {
        restart(&manager, &mut service, signal, texts.len(), send);
        send();
        sent += 200;
        readers.iter().for_each(|(reader, _)| reader.settle(sent));
    }
    // Of four frames: accepted ones, and among them those with 7 outside, with 8 inside, and with 9 outside.
    let expected = [[2, 2, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0], [4, 2, 1, 1]];
    for ((reader, file), [accepted, outer_7, inner_8, outer_9]) in readers.into_iter().zip(expected)
    {
        let of_four = |share: u64| sent / 4 * share;
        let (accepted, rejected) = (of_four(accepted), of_four(4 - accepted));
        assert_eq!(stopped(reader), Sum { seen: sent, accepted, rejected, lost: 0 });
        let frames = data_of(&file);
        assert_eq!(frames.len() as u64, accepted, "{}", file.display());
        let count = |place: usize, tag: u8| {
            let is_there = |data: &&Vec<u8>| data[place..].starts_with(&[0x81, 0, 0, tag]);
            frames.iter().filter(is_there).count() as u64
        };
        assert_eq!((count(12, 7), count(16, 8)), (of_four(outer_7), of_four(inner_8)));
        assert_eq!(count(12, 9), of_four(outer_9));
    }
}
