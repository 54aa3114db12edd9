//! Readers of a service: one copy for a group, exact counts, exact edits, and nothing left after them.

mod common;

use common::{World, counts, datagram, ports};
use fyke_capture::FrameServer;
use fyke_ring::Read;
use fyke_serve::message::{Counts, Edited, Request, Response, Text};

fn text(id: u64, text: &str) -> Text {
    Text { id, text: text.to_owned() }
}

#[test]
fn readers_of_a_group_share_one_copy_and_have_exact_counts() {
    let mut world = World::new();
    let connections = [world.connect(), world.connect(), world.connect()];
    let texts = ["udp", "udp port 1", "udp port 2"];
    let mut readers: Vec<_> = connections
        .iter()
        .zip(texts)
        .map(|(connection, one)| connection.buffers(vec![text(1, one)], 0).unwrap())
        .collect();
    world.send(&[1, 2, 3, 1]);
    world.send(&[2, 2]);
    let expected: [&[u16]; 3] = [&[1, 2, 3, 1, 2, 2], &[1, 1], &[2, 2, 2]];
    for ((reader, connection), expected) in readers.iter_mut().zip(&connections).zip(expected) {
        assert_eq!(ports(reader), expected);
        let accepted = expected.len() as u64;
        let all = Counts { accepted, rejected: 6 - accepted, ..Counts::default() };
        assert_eq!(counts(connection), all);
    }
    assert_eq!(world.counter("copied_bytes"), 6 * datagram(1).len() as u64);
    assert_eq!((world.counter("readers"), world.counter("groups")), (3, 1));
}

#[test]
fn a_frame_that_a_reader_wants_shorter_is_stored_shorter() {
    let mut world = World::new();
    let (whole, short) = (world.connect(), world.connect());
    let mut readers = [whole.buffers(vec![text(1, "")], 0), short.buffers(vec![text(1, "")], 20)]
        .map(Result::unwrap);
    world.send(&[1]);
    let frame = datagram(1);
    for (reader, len) in readers.iter_mut().zip([frame.len(), 20]) {
        let mut bytes = Vec::new();
        let Read::Frame(copied) = reader.next(&mut bytes) else { panic!("there is a frame") };
        assert_eq!(bytes, frame[..len]);
        assert_eq!(copied.wire_len as usize, frame.len());
    }
}

#[test]
fn an_edit_falls_between_two_batches_and_names_the_first_frame() {
    let mut world = World::new();
    let (one, other) = (world.connect(), world.connect());
    let mut reader = one.buffers(vec![text(1, "port 1")], 0).unwrap();
    let mut unmoved = other.buffers(vec![text(9, "port 1")], 0).unwrap();
    world.send(&[1, 2, 3]);
    let edit = Request::Edit { remove: vec![1], add: vec![text(2, "port 2"), text(3, "port 3")] };
    let Response::Edited(Edited { epoch, from }) = one.request(&edit).unwrap() else {
        panic!("it is an edit")
    };
    assert_eq!(from, 3);
    world.send(&[1, 2, 3]);
    let Response::Edited(again) =
        one.request(&Request::Edit { remove: vec![3], add: vec![] }).unwrap()
    else {
        panic!("it is an edit")
    };
    assert!(again.epoch > epoch && again.from == 6, "{again:?} after {epoch}");
    world.send(&[1, 2, 3]);
    assert_eq!(ports(&mut reader), [1, 2, 3, 2]);
    assert_eq!(ports(&mut unmoved), [1, 1, 1]);
    assert_eq!(counts(&one), Counts { accepted: 4, rejected: 5, ..Counts::default() });
}

#[test]
fn counts_begin_with_the_first_text_and_stop_in_a_pause() {
    let mut world = World::new();
    let one = world.connect();
    let mut reader = one.buffers(Vec::new(), 0).unwrap();
    world.send(&[1, 2]);
    assert_eq!(counts(&one), Counts::default());
    one.edit(&[], &[(1, "port 1")]).unwrap();
    world.send(&[1, 2]);
    one.request(&Request::Pause {}).unwrap();
    world.send(&[1, 2]);
    assert_eq!(counts(&one), Counts { accepted: 1, rejected: 1, ..Counts::default() });
    let Response::Edited(start) = one.request(&Request::Start {}).unwrap() else { panic!() };
    assert_eq!(start.from, 2);
    world.send(&[1, 1, 2]);
    assert_eq!(ports(&mut reader), [1, 1, 1]);
    assert_eq!(counts(&one), Counts { accepted: 3, rejected: 2, ..Counts::default() });
}

#[test]
fn what_is_refused_changes_nothing_and_says_why() {
    let mut world = World::new();
    let one = world.connect();
    let mut reader = one.buffers(vec![text(1, "port 1")], 0).unwrap();
    let many = (100..200).map(|id| text(id, "udp")).collect();
    let refused = [
        (vec![], vec![text(2, "udp prot 1")], "\"prot\""),
        // A text is read alone, so that it cannot leave the parentheses of another.
        (vec![], vec![text(2, "udp) or (tcp")], "^"),
        (vec![7], vec![], "there is no text 7; the texts are: 1"),
        (vec![], vec![text(1, "tcp")], "text 1 is there already"),
        (vec![1], many, "100 texts are more than the 64"),
        (vec![1], vec![text(2, &"x".repeat((1 << 20) + 1))], "this service takes at most 1048576"),
    ];
    for (remove, add, why) in refused {
        let error = one.request(&Request::Edit { remove, add }).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(why), "{error}");
    }
    world.send(&[1, 2]);
    assert_eq!(ports(&mut reader), [1]);
    let wrong = world.connect().buffers(vec![text(1, "host")], 0).unwrap_err().to_string();
    assert!(wrong.contains('^'), "{wrong}");
    world.wait_for("readers", 1);
}

#[test]
fn what_a_reader_opened_is_gone_with_it() {
    let mut world = World::new();
    let (one, other) = (world.connect(), world.connect());
    let reader = one.buffers(vec![text(1, "port 1"), text(2, "port 2")], 0).unwrap();
    let mut stays = other.buffers(vec![text(1, "port 2")], 0).unwrap();
    let filters = |world: &World| {
        let view = world.handle.snapshot();
        let filters = view.node("serve").unwrap().filters.clone();
        filters.map(|counts| counts.filters.len())
    };
    drop((one, reader));
    world.wait_for("readers", 1);
    world.send(&[1, 2]);
    assert_eq!(ports(&mut stays), [2]);
    assert_ne!(filters(&world), Some(3), "the filter of port 1 is still there");
    drop(other);
    world.wait_for("groups", 0);
    assert_eq!(ports(&mut stays), [0_u16; 0], "the mapping of a reader outlives its connection");
}

#[test]
fn the_end_of_a_reader_and_of_the_service_close_the_index_with_the_last_counts() {
    let mut world = World::new();
    let (one, other) = (world.connect(), world.connect());
    let mut reader = one.buffers(vec![text(1, "port 1")], 0).unwrap();
    let mut last = other.buffers(vec![text(1, "port 2")], 0).unwrap();
    world.send(&[1, 2, 2]);
    let Response::Ended { counts: ended, .. } = one.request(&Request::End {}).unwrap() else {
        panic!()
    };
    assert_eq!(ended, Counts { accepted: 1, rejected: 2, ..Counts::default() });
    world.send(&[1, 2]);
    assert_eq!(ports(&mut reader), [1]);
    assert_eq!(reader.next(&mut Vec::new()), Read::End);
    assert!(!other.is_gone());
    world.end();
    assert_eq!(ports(&mut last), [2, 2, 2]);
    assert_eq!(last.next(&mut Vec::new()), Read::End);
    let served = other.counts(3, 0);
    assert_eq!(served.rejected, 2);
    assert!(other.end() && other.is_gone());
}

#[test]
fn what_a_stopped_reader_has_lost_is_seen_before_it_reads_again() {
    let mut world = World::new();
    let one = world.connect();
    let mut reader = one.buffers(vec![text(1, "")], 0).unwrap();
    world.send(&[1, 2]);
    assert_eq!(ports(&mut reader), [1, 2]);
    let frames = vec![vec![0x11; 1000]; 256];
    // More than the index has entries, and more than the packet buffer holds.
    for _ in 0..300 {
        world.send_frames(frames.clone());
    }
    let all = 300 * 256;
    let views = world.server.as_ref().unwrap().readers();
    let all_views = views();
    let [view] = &all_views[..] else { panic!("there is one reader") };
    assert_eq!(view.unread + view.overwritten, all);
    let mut left = 0;
    while let Read::Frame(_) = reader.next(&mut Vec::new()) {
        left += 1;
    }
    assert_eq!((left, reader.lost()), (view.unread, view.overwritten));
    assert!(view.overwritten >= all - (64 << 20) / 1000, "{view:?}");
    let after = views();
    assert_eq!((after[0].unread, after[0].overwritten), (0, 0), "it has passed them");
}

#[test]
fn counts_that_cannot_be_are_no_harm_to_those_who_ask_the_service() {
    let world = World::new();
    let one = world.connect();
    let _reader = one.buffers(vec![text(1, "")], 0).unwrap();
    let _served = one.counts(u64::MAX, u64::MAX);
    let views = world.server.as_ref().unwrap().readers()();
    assert_eq!(views.len(), 1);
    assert!(views[0].read > 0 && views[0].read.checked_add(views[0].lost).is_some(), "{views:?}");
}
