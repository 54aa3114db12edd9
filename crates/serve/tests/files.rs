//! Files that graphs of readers write, to descriptors that the readers have sent.

mod common;

use common::{PATIENCE, Raw, World};
use fyke_capture::{Next, Source, open_file};
use fyke_serve::message::Response;
use fyke_serve::wire::send;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// A reader that has greeted and sent descriptors; and their numbers.
fn reader_with(world: &World, files: &[BorrowedFd<'_>]) -> (Raw, Vec<u64>) {
    let mut raw = Raw::connect(&world.path());
    assert!(raw.send(r#"{"request":"hello","versions":[2]}"#));
    assert!(matches!(raw.answer(), Some((Response::Hello(_), _))));
    send(&raw.socket, br#"{"request":"files"}"#, files, PATIENCE).unwrap();
    match raw.answer() {
        Some((Response::Files { numbers }, _)) => (raw, numbers),
        other => panic!("{other:?}"),
    }
}

fn open(raw: &mut Raw, graph: &str) {
    assert!(raw.send(&format!(r#"{{"request":"open","graph":"{graph}"}}"#)));
    assert!(matches!(raw.answer(), Some((Response::Opened(_), all)) if all.len() == 2));
}

fn frames_of(path: &Path) -> usize {
    let mut source = open_file(path).unwrap();
    let mut count = 0;
    loop {
        match source.next().unwrap() {
            Next::Frames(batch, _) => count += batch.len(),
            Next::Idle => {}
            Next::End => return count,
        }
    }
}

/// Waits until the node of class `tofd` has lost and written these numbers of frames.
fn settle(world: &World, is_done: impl Fn(u64, u64) -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let view = world.handle.snapshot();
        let node = view.nodes.iter().find(|node| node.class == "tofd").expect("its node");
        let counts = format!("{:?}", node.counters);
        let written = node.counters.iter().find(|one| one.name == "written");
        let written = written.map_or(0, |one| one.value as u64);
        if is_done(written, node.counts.lost) {
            return;
        }
        assert!(Instant::now() < limit, "{counts}, {} lost", node.counts.lost);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_graph_writes_to_a_file_of_its_reader() {
    let mut world = World::new();
    let path = world.folder.path().join("own.pcap");
    let file = File::create(&path).unwrap();
    let (mut raw, numbers) = reader_with(&world, &[file.as_fd()]);
    let graph = format!("(filter,port 1) > (tofd,{})", numbers[0]);
    open(&mut raw, &graph);
    world.send(&[1, 2, 1, 3]);
    world.send(&[1]);
    settle(&world, |written, lost| (written, lost) == (3, 0));
    drop(raw);
    assert_eq!(frames_of(&path), 3);
}

#[test]
fn more_files_than_a_message_may_have_are_refused() {
    let world = World::new();
    let file = File::create(world.folder.path().join("own.pcap")).unwrap();
    let (mut raw, numbers) = reader_with(&world, &[file.as_fd(); 8]);
    assert_eq!(numbers.len(), 8);
    let request = br#"{"request":"files"}"#;
    send(&raw.socket, request, &[file.as_fd(); 9], PATIENCE).unwrap();
    assert!(raw.error().contains("more than 8 descriptors"));
    // It continues to answer.
    send(&raw.socket, request, &[file.as_fd()], PATIENCE).unwrap();
    assert!(matches!(raw.answer(), Some((Response::Files { numbers }, _)) if numbers.len() == 1));
}

#[test]
fn a_pipe_that_nobody_reads_delays_no_frame_and_its_losses_are_counted() {
    let mut world = World::new();
    let (kept, end) = std::io::pipe().unwrap();
    let (mut raw, numbers) = reader_with(&world, &[end.as_fd()]);
    open(&mut raw, &format!("(tofd,{})", numbers[0]));
    let other = world.connect();
    let mut beside = other.buffers(vec![], 0).unwrap();
    fyke_capture::FrameServer::edit(&other, &[], &[(1, "")]).unwrap();
    // 12 MB: more than the pipe and the queue hold. Each call waits until the frames are evaluated.
    let mut frame = common::datagram(7);
    frame.resize(60_000, 0);
    for _ in 0..20 {
        world.send_frames(vec![frame.clone(); 10]);
    }
    settle(&world, |written, lost| written <= 2 && (120..=200).contains(&lost));
    let mut read = 0;
    while let fyke_ring::Read::Frame(_) = beside.next(&mut Vec::new()) {
        read += 1;
    }
    assert_eq!(read as u64 + beside.lost(), 200);
    drop((raw, kept));
}

#[test]
fn only_files_and_pipes_for_writing_are_taken_and_numbers_of_others_are_unknown() {
    let world = World::new();
    let mut raw = Raw::connect(&world.path());
    assert!(raw.send(r#"{"request":"hello","versions":[2]}"#));
    raw.answer();
    let path = world.folder.path().join("readable");
    std::fs::write(&path, "").unwrap();
    let readable = File::open(&path).unwrap();
    let folder = File::open(world.folder.path()).unwrap();
    let null = File::options().write(true).open("/dev/null").unwrap();
    for (given, why) in [
        (vec![readable.as_fd()], "not open for writing"),
        (vec![folder.as_fd()], "not open for writing"),
        (vec![null.as_fd()], "expected a file or a pipe"),
        (vec![], "no descriptor came"),
    ] {
        send(&raw.socket, br#"{"request":"files"}"#, &given, PATIENCE).unwrap();
        let said = raw.error();
        assert!(said.contains(why), "{said}");
    }
    let writable = File::options().write(true).open(&path).unwrap();
    let mut taken = 0;
    let said = loop {
        let five = vec![writable.as_fd(); 5];
        send(&raw.socket, br#"{"request":"files"}"#, &five, PATIENCE).unwrap();
        match raw.answer() {
            Some((Response::Files { .. }, _)) => taken += 5,
            Some((Response::Error { message }, _)) => break message,
            other => panic!("{other:?}"),
        }
    };
    assert!(taken == 30 && said.contains("of at most 32"), "{taken}: {said}");
    assert!(raw.send(r#"{"request":"open","graph":"(tofd,12345)"}"#));
    let said = raw.error();
    assert!(said.contains("there is no file of this number"), "{said}");
}
