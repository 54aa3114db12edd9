//! The WebSocket of `fyke web`: what a program gets from it, and what hostile ones get.
#![cfg(feature = "web")]

mod common;
#[path = "common/web.rs"]
mod served;

use common::{FYKE, Running, folder, inside, send, veth};
use fyke_testkit::browser::Browser;
use serde_json::{Value, json};
use served::{Socket, Web, capture, stats};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

/// A name and a time are for the change of an edit.
fn names_are_for_changes(socket: &mut Socket, running: &Running, pid: u32) {
    let named = json!({"text": "arp", "name": "a", "for_ms": 60_000});
    let with = |part: &str, word: &str| {
        let mut named = named.clone();
        named[part] = json!(word);
        named
    };
    let refused = socket.call(pid, with("request", "add"));
    assert!(refused["message"].as_str().unwrap().contains("unknown field"), "{refused}");
    let edit = json!({"request": "edit", "changes": [with("change", "add")]});
    assert_eq!(socket.call(pid, edit)["response"], "ok");
    assert_eq!(stats(running)["filters"][1]["label"]["name"], "a");
}

#[test]
fn a_program_follows_and_edits_over_one_socket() {
    if !inside("a_program_follows_and_edits_over_one_socket") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"));
    let pid = running.child.id();
    let web = Web::start(&[]);
    let mut socket = web.open_with_token().ok().unwrap();
    let subscribed = socket.ask(json!({"subscribe": [pid]}));
    assert_eq!(subscribed["answer"]["subscribed"], json!([pid]));
    send(40, 20);
    running.settle(40);
    // Events are the lines of `ctl watch --json`.
    let event =
        socket.next(|it| it["event"] == "counts" && it["counts"]["accounting"]["seen"] == 40);
    let counted = stats(&running);
    for part in ["response", "epoch", "accounting", "filters", "nodes", "kernel", "kept_at"] {
        assert_eq!(event["counts"][part], counted[part], "{part}");
    }
    assert_eq!((&event["pid"], &event["more_filters"]), (&json!(pid), &json!(0)));
    let tried = socket.call(pid, json!({"request": "try", "text": "udp"}));
    assert_eq!((&tried["accepted"], &tried["new"]), (&json!(40), &json!(20)));
    let explained = socket.ask(json!({"explain": "udp port 53"}));
    let args = ["explain", "--json", "udp port 53"];
    let printed = Command::new(FYKE).args(args).output().unwrap();
    assert_eq!(explained["answer"], serde_json::from_slice::<Value>(&printed.stdout).unwrap());
    let wrong = socket.ask(json!({"explain": "udp dst prot 9"}));
    assert!(wrong["error"].as_str().unwrap().contains('^'), "{wrong}");
    let why = socket.call(pid, json!({"request": "why", "last": 5}));
    assert_eq!(why["frames"].as_array().unwrap().len(), 5, "{why}");
    let frames = socket.call(pid, json!({"request": "frames", "last": 5}));
    assert_eq!(frames["frames"].as_array().unwrap().len(), 5, "{frames}");
    socket.call(pid, json!({"request": "add", "text": "udp port 5002"}));
    socket.next(|it| it["event"] == "counts" && it["counts"]["epoch"] == 2);
    assert_eq!(stats(&running)["epoch"], 2);
    socket.call(pid, json!({"request": "undo"}));
    let after = stats(&running);
    let filters = after["filters"].as_array().unwrap().iter();
    let texts: Vec<_> = filters.map(|one| &one["text"]).collect();
    assert_eq!(texts, ["udp port 5001"], "{after}");
    // The last filter stays, because without one every frame is accepted.
    let deleted = socket.call(pid, json!({"request": "delete", "id": 1}));
    assert_eq!((&deleted["response"], &stats(&running)["epoch"]), (&json!("error"), &json!(3)));
    let set = socket.call(pid, json!({"request": "set", "text": "udp"}));
    assert_eq!(stats(&running)["epoch"], 4, "{set}");
    // What is refused leaves the socket open.
    let refused = socket.call(pid, json!({"request": "add", "text": "udp dst prot 9"}));
    assert_eq!(refused["response"], "error");
    assert!(refused["message"].as_str().unwrap().contains('^'), "{refused}");
    names_are_for_changes(&mut socket, &running, pid);
    assert!(socket.ask(json!({"pid": pid}))["error"].as_str().unwrap().contains("one of"));
    let many: Vec<u32> = (1..18).collect();
    assert!(socket.ask(json!({"subscribe": many}))["error"].as_str().unwrap().contains("16"));
    socket.send_frame(0x81, b"{").unwrap();
    assert!(socket.next(|it| it["id"].is_null() && !it["error"].is_null())["error"].is_string());
    socket.send_frame(0x89, b"there?").unwrap();
    while socket.frame().unwrap() != (0x8a, b"there?".to_vec()) {}
    // The capture ends.
    running.signal("INT");
    assert!(running.end().success());
    let ended = socket.next(|it| it["event"] == "ended");
    assert_eq!(ended["pid"], pid);
    socket.send_frame(0x88, &[]).unwrap();
    assert_eq!(socket.close_status(), Some(1000));
    assert_eq!(socket.frame(), None);
    web.end();
}

/// A fyke that does not answer at the moment, here because it has too many clients, is followed as soon as it does.
#[test]
fn counts_come_again_after_a_refusal() {
    if !inside("counts_come_again_after_a_refusal") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"));
    let pid = running.child.id();
    let web = Web::start(&[]);
    let place = common::runtime().join(format!("{pid}.sock"));
    let watch = |_| {
        let mut client = UnixStream::connect(&place).unwrap();
        client.write_all(b"{\"request\":\"watch\",\"interval_ms\":1000}\n").unwrap();
        assert!(client.read(&mut [0; 64]).unwrap() > 0);
        client
    };
    let watchers: Vec<_> = (0..64).map(watch).collect();
    let mut socket = web.open_with_token().ok().unwrap();
    socket.ask(json!({"subscribe": [pid]}));
    let ended = socket.next(|it| it["event"] == "ended");
    assert_eq!(ended["pid"], pid);
    drop(watchers);
    let counts = socket.next(|it| it["event"] == "counts");
    assert_eq!(counts["pid"], pid);
    // A fyke that is stopped sends no counts.
    running.signal("STOP");
    socket.next(|it| it["event"] == "ended");
    running.signal("CONT");
    socket.next(|it| it["event"] == "counts");
    running.signal("INT");
    assert!(running.end().success());
    socket.next(|it| it["event"] == "ended" && it["reason"] == "it has ended");
    web.end();
}

#[test]
fn a_script_in_a_browser_uses_it() {
    if !inside("a_script_in_a_browser_uses_it") {
        return;
    }
    let (_folder, path) = folder();
    let Some(mut browser) = Browser::start(&path("profile")) else { return };
    veth();
    let mut running = capture(&path("out.pcapng"));
    let web = Web::start(&[]);
    browser.open(&web.url());
    browser.wait_for("document.body.dataset.state === 'runs'");
    let pid = running.child.id();
    browser.value(&format!(
        "{{ window.got = []; window.socket = new WebSocket('ws://' + location.host + '/api/socket', \
         ['fyke', location.hash.slice(1) || '{token}']); \
         socket.onmessage = one => got.push(JSON.parse(one.data)); \
         socket.onopen = () => socket.send(JSON.stringify({{id: 1, subscribe: [{pid}]}})); }}",
        token = web.token
    ));
    browser.wait_for("got.some(one => one.event === 'counts')");
    browser.wait_for("socket.protocol === 'fyke'");
    send(4, 20);
    running.settle(4);
    browser.wait_for("got.some(one => one.counts?.accounting.seen === 4)");
    browser.value("socket.close()");
    browser.wait_for("socket.readyState === 3");
    running.signal("INT");
    assert!(running.end().success());
    web.end();
}

#[test]
fn hostile_sockets_get_nothing_and_the_capture_notices_nothing() {
    if !inside("hostile_sockets_get_nothing_and_the_capture_notices_nothing") {
        return;
    }
    veth();
    let (_folder, path) = folder();
    let mut running = capture(&path("out.pcapng"));
    let pid = running.child.id();
    let web = Web::start(&[]);
    let secret = format!("Bearer {}", web.token);
    let own = ("Authorization", secret.as_str());
    for (header, status) in [
        (("Origin", "http://evil.example"), 403),
        (("Origin", "null"), 403),
        (("Sec-Fetch-Site", "cross-site"), 403),
        (("Host", "evil.example"), 421),
    ] {
        assert_eq!(web.open(&[own, header]).err(), Some(status), "{header:?}");
    }
    let swapped = format!("{}, fyke", web.token);
    for header in [
        ("X-Nothing", "1"),
        ("Authorization", "Bearer 00000000000000000000000000000000"),
        ("Sec-WebSocket-Protocol", "fyke, 00000000000000000000000000000000"),
        ("Sec-WebSocket-Protocol", "fyke"),
        ("Sec-WebSocket-Protocol", swapped.as_str()),
    ] {
        assert_eq!(web.open(&[header]).err(), Some(401), "{header:?}");
    }
    // Frames that are none, and huge messages: the head is enough.
    for (first, length, content, status) in [
        (0x81, (256 << 10) + 1, &b" "[..], 1009),
        (0x81, usize::MAX, b" ", 1009),
        (0x82, 4, &[0; 4], 1003),
        (0x81, 1, b"\xff", 1007),
        (0xf1, 1, b"x", 1002),
    ] {
        let mut socket = web.open_with_token().ok().unwrap();
        socket.send_part(first, length, content).unwrap();
        assert_eq!(socket.close_status(), Some(status), "{first:x}, {length}");
        assert_eq!(socket.frame(), None);
    }
    // A thousand sockets: the first stays, and others are refused or closed.
    let mut first = web.open_with_token().ok().unwrap();
    first.ask(json!({"subscribe": [pid]}));
    let opened: Vec<_> = (0..500).flat_map(|_| [web.open(&[]), web.open_with_token()]).collect();
    let open = opened.iter().filter(|one| one.is_ok()).count();
    assert_eq!(open, 15, "the first has one of 16 places");
    let full = opened.iter().filter(|one| matches!(one, Err(503))).count();
    assert_eq!((full, opened.len() - open - full), (485, 500));
    assert_eq!(first.call(pid, json!({"request": "stats"}))["response"], "stats");
    drop(opened);
    slow(&web);
    send(20, 20);
    running.settle(20);
    first.next(|it| it["event"] == "counts" && it["counts"]["accounting"]["seen"] == 20);
    assert_eq!(stats(&running)["epoch"], 1);
    running.signal("INT");
    assert!(running.end().success());
    let sum = running.sum();
    assert_eq!((sum.seen, sum.accepted, sum.lost), (20, 10, 0));
    drop(first);
    let said = web.end();
    assert!(said.contains("1 WebSockets were closed"), "{said}");
}

/// A program that asks and takes no answer is dropped.
fn slow(web: &Web) {
    let mut slow = loop {
        // The places of the thousand become free.
        match web.open_with_token() {
            Ok(slow) => break slow,
            Err(status) => assert_eq!(status, 503),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let explain = json!({"id": 1, "explain": "udp port 53 or tcp port 80"}).to_string();
    let failed = (0..10_000_000).find_map(|_| slow.send_frame(0x81, explain.as_bytes()).err());
    let kind = failed.expect("the socket is closed").kind();
    let closed = [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::BrokenPipe];
    assert!(closed.contains(&kind), "{kind}");
}
