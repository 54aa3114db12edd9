//! Readers that lie, flood, send descriptors, stay silent or belong to another user.

mod common;

use common::{PATIENCE, Raw, World, ports};
use fyke_serve::message::{Response, Text};
use fyke_serve::policy::{MAX_OF_USER, MAX_READERS};
use fyke_serve::wire::{Assembler, Incoming, MAX_PACKET, send};
use fyke_testkit::random::Random;
use rustix::net::{RecvFlags, recv};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// True if a reader that keeps to the rules is served.
fn serves_others(world: &mut World) -> bool {
    let one = world.connect();
    let texts = vec![Text { id: 1, text: "port 1".to_owned() }];
    let mut reader = one.buffers(texts, 0).unwrap();
    world.send(&[1, 2]);
    ports(&mut reader) == [1]
}

#[test]
fn a_reader_that_breaks_the_protocol_is_told_and_others_are_served() {
    let mut world = World::new();
    let mut raw = Raw::connect(&world.path());
    raw.send(r#"{"request":"open"}"#);
    assert_eq!(raw.error(), "a reader greets first");
    raw.send(r#"{"request":"hello","versions":[7,9]}"#);
    assert!(raw.error().contains("versions [7, 9] are not spoken here"));
    raw.greet();
    raw.send(r#"{"request":"counts"}"#);
    assert_eq!(raw.error(), "no buffers are open; open them first");
    for wrong in ["", "{", "[]", r#"{"request":"open","mode":7}"#, "\u{0}\u{1}", "\"hello\""] {
        raw.send(wrong);
        let error = raw.error();
        assert!(error.starts_with("not a request: "), "{error}");
    }
    raw.send(&"[".repeat(MAX_PACKET / 2));
    assert!(raw.error().starts_with("not a request: "));
    raw.send(r#"{"request":"open"}"#);
    assert!(matches!(raw.answer(), Some((Response::Opened(_), buffers)) if buffers.len() == 2));
    raw.send(r#"{"request":"open"}"#);
    assert_eq!(raw.error(), "the buffers are open already");
    assert!(serves_others(&mut world));
    // A message beyond the limit ends the connection.
    raw.send(&"x".repeat(4 << 20));
    assert!(raw.error().contains("too long"));
    assert!(raw.answer().is_none());
    assert!(serves_others(&mut world));
}

#[test]
fn descriptors_of_a_reader_are_closed_unread() {
    let mut world = World::new();
    let mut raw = Raw::connect(&world.path());
    raw.greet();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let file = tempfile::tempfile().unwrap();
    let before = open();
    for _ in 0..200 {
        let two = [file.as_fd(), file.as_fd()];
        send(&raw.socket, br#"{"request":"counts"}"#, &two, PATIENCE).unwrap();
        assert_eq!(raw.error(), "no buffers are open; open them first");
    }
    assert!(open() < before + 100, "{} descriptors, {before} before", open());
    assert!(serves_others(&mut world));
}

#[test]
fn a_reader_that_does_not_read_its_answers_is_closed() {
    let mut world = World::new();
    let raw = Raw::connect(&world.path());
    let start = Instant::now();
    let mut requests = 0;
    while raw.send(r#"{"request":"hello","versions":[1]}"#) {
        requests += 1;
        assert!(start.elapsed() < Duration::from_secs(60), "{requests} requests were taken");
    }
    assert!(serves_others(&mut world));
}

#[test]
fn a_thousand_connections_are_answered_or_refused_and_leave_nothing() {
    let mut world = World::new();
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..1000 {
        let mut raw = Raw::connect(&world.path());
        raw.send(r#"{"request":"hello","versions":[1]}"#);
        match raw.answer() {
            Some((Response::Hello(_), _)) => {
                raw.send(r#"{"request":"open","texts":[{"id":1,"text":"udp"}]}"#);
                assert!(matches!(raw.answer(), Some((Response::Opened(_), _))));
                open.push(raw);
            }
            Some((Response::Error { message }, _)) => {
                assert!(message.contains("readers are served, and no more are"), "{message}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // Tests of this process that run at the same time have services of their own.
    assert_eq!((open.len(), refused), (MAX_READERS, 1000 - MAX_READERS));
    const { assert!(MAX_OF_USER <= MAX_READERS) };
    // The first thing that a program reads is the reason, also if it has sent its greeting before it was refused.
    for _ in 0..200 {
        let raw = Raw::connect(&world.path());
        raw.send(r#"{"request":"hello","versions":[1]}"#);
        let mut packet = [0; 1 << 10];
        let (_, len) = recv(&raw.socket, &mut packet[..], RecvFlags::empty()).unwrap();
        let said = String::from_utf8_lossy(&packet[..len]);
        assert!(said.contains("readers are served, and no more are"), "{said}");
    }
    world.send(&[1]);
    world.wait_for("readers", MAX_READERS as u64);
    drop(open);
    world.wait_for("readers", 0);
    world.wait_for("groups", 0);
    assert!(serves_others(&mut world));
}

/// Seeded packets: whatever arrives, the assembler keeps its limit and loses no byte of a message.
#[test]
fn packets_in_any_order_and_size_keep_the_limits() {
    let mut random = Random::new(20);
    for _ in 0..2_000 {
        let limit = random.below(5_000);
        let mut assembler = Assembler::new(limit);
        let mut whole = Vec::new();
        for _ in 0..random.below(30) {
            let mut packet: Vec<u8> =
                (0..1 + random.below(400)).map(|_| b'a' + random.below(26) as u8).collect();
            if random.below(4) == 0 {
                packet.push(b'\n');
            }
            let fits = whole.len() + packet.len() <= limit + 1;
            match assembler.push(&packet) {
                Incoming::TooLong => {
                    assert!(!fits);
                    break;
                }
                Incoming::More => whole.extend_from_slice(&packet),
                Incoming::Message(message) => {
                    whole.extend_from_slice(&packet);
                    whole.pop();
                    assert_eq!(message, whole);
                    assert!(message.len() <= limit);
                    whole.clear();
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Seeded requests against a service: each is answered or ends its connection, and others are served.
#[test]
fn damaged_requests_never_end_the_service() {
    let mut world = World::new();
    let samples = [
        r#"{"request":"hello","versions":[1],"program":"x"}"#,
        r#"{"request":"open","texts":[{"id":1,"text":"udp"}],"snaplen":96}"#,
        r#"{"request":"edit","remove":[1],"add":[{"id":2,"text":"tcp port 80 or host 10.0.0.1"}]}"#,
        r#"{"request":"counts","read":1,"lost":0}"#,
        r#"{"request":"pause"}"#,
        r#"{"request":"start"}"#,
    ];
    let mut random = Random::new(4);
    let mut raw = Raw::connect(&world.path());
    raw.greet();
    for _ in 0..1_500 {
        let mut bytes = samples[random.below(samples.len())].as_bytes().to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.below(128) as u8),
            }
        }
        // A line end within would make two messages of it.
        bytes.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        send(&raw.socket, &bytes, &[], PATIENCE).unwrap();
        assert!(raw.answer().is_some(), "{}", String::from_utf8_lossy(&bytes));
    }
    assert!(serves_others(&mut world));
}

/// Another user gets an error, and no descriptor.
#[test]
fn another_user_gets_nothing() {
    use std::os::unix::process::CommandExt;
    const STRANGER: u32 = 4711;
    const SOCKET: &str = "FYKE_TEST_SOCKET";
    if let Some(path) = std::env::var_os(SOCKET) {
        let mut raw = Raw::connect(path.as_ref());
        println!("refused: {}", raw.error());
        raw.send(r#"{"request":"hello","versions":[1]}"#);
        assert!(raw.answer().is_none(), "the connection is closed");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to become another user");
        return;
    }
    let mut world = World::new();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.folder.path(), mode).unwrap();
    // The test program itself may be in a folder that the user cannot enter.
    let program = world.folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut child = std::process::Command::new(&program);
    child.args(["--exact", "another_user_gets_nothing", "--nocapture"]).env(SOCKET, world.path());
    let output = match child.current_dir(world.folder.path()).uid(STRANGER).gid(STRANGER).output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: cannot become another user here: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("refused: this service runs as user 0"), "{said}");
    assert!(said.contains("not user 4711"), "{said}");
    assert!(serves_others(&mut world));
}
