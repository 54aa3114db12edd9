//! Readers that sleep are woken by the service, and by nothing else; a hostile page or wake-up holds no other reader.

mod common;

use common::{Raw, World, ports};
use fyke_ring::{Memory, Read, Reader, Sleep};
use fyke_serve::message::{Response, Text};
use fyke_serve::wire::send;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(50);

fn every() -> Vec<Text> {
    vec![Text { id: 1, text: String::new() }]
}

#[test]
fn a_reader_that_sleeps_is_woken_by_frames_and_by_the_end() {
    let mut world = World::new();
    let one = world.connect();
    let mut reader = one.buffers(every(), 0).unwrap();
    assert!(reader.is_woken());
    let (sender, woken) = channel();
    let thread = std::thread::spawn(move || {
        let mut all = Vec::new();
        loop {
            let start = Instant::now();
            reader.wait(LONG);
            assert!(start.elapsed() < LONG, "nobody has woken it");
            all.extend(ports(&mut reader));
            if reader.next(&mut Vec::new()) == Read::End {
                return all;
            }
            sender.send(all.len()).unwrap();
        }
    });
    for port in 1..=3 {
        // Once it has reported the frame before, it goes to sleep, or looks for frames before it does.
        world.send(&[port]);
        while woken.recv().unwrap() < usize::from(port) {}
    }
    world.end();
    assert_eq!(thread.join().unwrap(), [1, 2, 3]);
}

fn open(raw: &mut Raw, descriptors: &[BorrowedFd<'_>]) -> Option<(Response, Vec<OwnedFd>)> {
    raw.greet();
    let open = br#"{"request":"open","texts":[{"id":1,"text":""}]}"#;
    send(&raw.socket, open, descriptors, common::PATIENCE).unwrap();
    raw.answer()
}

#[test]
fn a_descriptor_that_is_no_page_is_refused() {
    let mut world = World::new();
    let file = tempfile::tempfile().unwrap();
    let (small, large) = (Memory::create(8).unwrap(), Memory::create(1 << 16).unwrap());
    for wrong in [file.as_fd(), small.fd(), large.fd()] {
        let mut raw = Raw::connect(&world.path());
        match open(&mut raw, &[wrong]) {
            Some((Response::Error { message }, _)) => {
                assert!(
                    message.contains("the descriptor is not the page of a reader: "),
                    "{message}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    world.wait_for("readers", 0);
    world.send(&[1]);
}

#[test]
fn a_reader_that_never_takes_its_wake_ups_holds_nobody() {
    let mut world = World::new();
    let page = Sleep::create().unwrap();
    let mut raw = Raw::connect(&world.path());
    let Some((Response::Opened(_), buffers)) = open(&mut raw, &[page.fd()]) else { panic!() };
    let [packets, index, event] = <[OwnedFd; 3]>::try_from(buffers).unwrap();
    // Its end is made to block, as far as a reader can do that, and it asks for a wake-up for ever.
    rustix::io::ioctl_fionbio(&event, false).unwrap();
    page.ask();
    for _ in 0..600 {
        world.send(&[1]);
    }
    let mut reader = Reader::open(packets, index).unwrap();
    assert_eq!(reader.next(&mut Vec::new()), Read::Nothing);
    drop(event);
    world.send(&[1, 2]);
    assert_eq!(ports(&mut reader), [1, 2]);
}
