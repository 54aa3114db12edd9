//! The policy of a service: other users get the frames of their rule and no others, whatever they ask for; a reload
//! touches only readers with other terms.

mod common;

use common::{Raw, World, counts, ports};
use fyke_capture::FrameServer;
use fyke_ring::{Read, Reader};
use fyke_serve::Policy;
use fyke_serve::message::{Response, Text};
use fyke_serve::policy::Names;
use std::io::{BufRead, Read as _, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const GUEST: u32 = 4711;
const SOCKET: &str = "FYKE_TEST_SOCKET";

fn policy(text: &str) -> Policy {
    Policy::read(Path::new("policy.toml"), text, &Names::default(), &|_, _| Ok(())).unwrap()
}

fn text(id: u64, text: &str) -> Text {
    Text { id, text: text.to_owned() }
}

/// The guest: opens every text that could reach beyond its filter, waits for a line, and tells what it got.
fn guest(path: &Path) {
    let mut raw = Raw::connect(path);
    raw.greet();
    assert!(raw.send(r#"{"request":"open","texts":[{"id":1,"text":""},{"id":2,"text":"udp"}]}"#));
    let Some((Response::Opened(_), buffers)) = raw.answer() else { panic!("it is not served") };
    // Texts that would leave the parentheses of the policy.
    for escape in ["port 1) or (port 2", ") or (", "port 1) or port 2 or (port 1"] {
        raw.send(&format!(r#"{{"request":"edit","add":[{{"id":9,"text":"{escape}"}}]}}"#));
        assert!(raw.error().contains('^'));
    }
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let mut buffers = buffers.into_iter();
    let (packets, index) = (buffers.next().unwrap(), buffers.next().unwrap());
    let mut memory = Vec::new();
    let mut file = std::fs::File::from(packets.try_clone().unwrap());
    file.read_to_end(&mut memory).unwrap();
    let holds = |marker: &[u8]| memory.windows(marker.len()).any(|bytes| bytes == marker);
    println!("memory {} {}", holds(b"marker-1-"), holds(b"marker-2-"));
    println!("writable {}", file.write_all(b"x").is_ok() || file.set_len(0).is_ok());
    let mut reader = Reader::open(packets, index).unwrap();
    let origin = reader.origins().next().and_then(|(buffer, number)| reader.origin(buffer, number));
    println!("snaplen {}", origin.unwrap().snaplen);
    raw.send(r#"{"request":"counts"}"#);
    let Some((Response::Counts(counts), _)) = raw.answer() else { panic!("it has no counts") };
    println!("rejected {} {}", counts.rejected, counts.is_partial);
    println!("late reader {:?}", reader.next(&mut Vec::new()) == Read::Nothing);
}

#[test]
fn a_guest_gets_the_frames_of_its_rule_and_no_others() {
    if let Some(path) = std::env::var_os(SOCKET) {
        return guest(path.as_ref());
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to become another user");
    }
    let rule = format!("[[rule]]\nusers = [{GUEST}]\nfilter = \"port 1\"\nsnaplen = 60\n");
    let mut world = World::with(policy(&rule));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.folder.path(), mode).unwrap();
    let program = world.folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let name = "a_guest_gets_the_frames_of_its_rule_and_no_others";
    let mut command = Command::new(&program);
    command.args(["--exact", name, "--nocapture"]).env(SOCKET, world.path());
    command.current_dir(world.folder.path()).uid(GUEST).gid(GUEST);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return println!("skipped: cannot become another user here: {error}"),
    };
    let root = world.connect();
    let mut reader = root.buffers(vec![text(1, "port 2")], 0).unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut until = String::new();
    while !until.contains("ready") {
        assert!(said.read_line(&mut until).unwrap() > 0, "{until}");
    }
    world.send(&[1, 2, 2]);
    assert_eq!(ports(&mut reader), [2, 2]);
    assert_eq!(world.counter("groups"), 2);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("memory true false"), "{rest}");
    assert!(rest.contains("writable false"), "{rest}");
    assert!(rest.contains("late reader true"), "{rest}");
    assert!(rest.contains("snaplen 60"), "{rest}");
    assert!(rest.contains("rejected 0 true"), "{rest}");
}

#[test]
fn a_reload_ends_readers_with_other_terms_and_touches_no_others() {
    // Both tests of root: one rule names it, so that its terms are those of the rule.
    let user = rustix::process::geteuid().as_raw();
    let rule =
        |filter: &str| policy(&format!("[[rule]]\nusers = [{user}]\nfilter = \"{filter}\"\n"));
    let mut world = World::with(rule("udp"));
    let one = world.connect();
    let mut reader = one.buffers(vec![text(1, "")], 0).unwrap();
    world.send(&[1, 2]);
    let set = world.server.as_ref().unwrap().set_policy();
    let other = policy("[[rule]]\nusers = [4242]\n[[rule]]\nusers = [4243]\nfilter = \"arp\"\n");
    // The same terms: nothing happens to the reader.
    assert_eq!(set(rule("udp")), (1, 0));
    world.send(&[3]);
    assert_eq!(ports(&mut reader), [1, 2, 3]);
    assert_eq!(counts(&one).accepted, 3);
    assert_eq!(one.end_reason(), None);
    // Other terms, also more rights: the reader is ended, with its counts.
    assert_eq!(set(other), (0, 1));
    assert_eq!(reader.next(&mut Vec::new()), Read::End);
    assert_eq!(one.end_reason().unwrap(), "the policy of the service has changed");
    assert!(one.is_gone());
    world.wait_for("readers", 0);
    let again = world.connect();
    let mut reader = again.buffers(vec![text(1, "port 1")], 0).unwrap();
    world.send(&[1, 2]);
    assert_eq!(ports(&mut reader), [1]);
}

#[test]
fn the_limits_of_a_rule_hold() {
    let user = rustix::process::geteuid().as_raw();
    let rule = format!("[[rule]]\nusers = [{user}]\nreaders = 2\ntexts = 1\ntext_bytes = 10\n");
    let mut world = World::with(policy(&rule));
    let (one, _other) = (world.connect(), world.connect());
    let mut third = Raw::connect(&world.path());
    assert!(third.error().contains(&format!("2 readers of user {user} are served")));
    let mut reader = one.buffers(vec![text(1, "port 1")], 0).unwrap();
    let error = one.edit(&[], &[(2, "udp")]).unwrap_err().to_string();
    assert!(error.contains("2 texts are more than the 1"), "{error}");
    let error = one.edit(&[1], &[(2, "udp port 10")]).unwrap_err().to_string();
    assert!(error.contains("has 11 bytes, and this service takes at most 10"), "{error}");
    world.send(&[1]);
    assert_eq!(ports(&mut reader), [1]);
}

#[test]
fn readers_of_one_process_share_memory_and_those_of_another_do_not() {
    let name = "readers_of_one_process_share_memory_and_those_of_another_do_not";
    if let Some(path) = std::env::var_os(SOCKET) {
        let mut raw = Raw::connect(path.as_ref());
        raw.greet();
        raw.send(r#"{"request":"open","texts":[{"id":1,"text":""}]}"#);
        assert!(matches!(raw.answer(), Some((Response::Opened(_), _))));
        println!("ready");
        std::io::stdin().lock().read_line(&mut String::new()).unwrap();
        return;
    }
    let user = rustix::process::geteuid().as_raw();
    let rule = format!("[[rule]]\nusers = [{user}]\nshare = \"process\"\nmemory_mib = 1\n");
    let mut world = World::with(policy(&rule));
    if Raw::connect(&world.path()).is_refused() {
        return println!("skipped: processes have no unique number here (Linux 6.9)");
    }
    let (one, other) = (world.connect(), world.connect());
    let mut readers = [&one, &other].map(|one| one.buffers(vec![text(1, "")], 0).unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(SOCKET, world.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut until = String::new();
    while !until.contains("ready") {
        assert!(said.read_line(&mut until).unwrap() > 0, "{until}");
    }
    world.send(&[1, 2]);
    assert_eq!((world.counter("readers"), world.counter("groups")), (3, 2));
    for reader in &mut readers {
        assert_eq!(ports(reader), [1, 2]);
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    world.wait_for("groups", 1);
}

#[test]
fn memory_and_the_time_of_compiling_have_limits() {
    let user = rustix::process::geteuid().as_raw();
    let rule =
        |more: &str| policy(&format!("[[rule]]\nusers = [{user}]\nmemory_mib = 8\n{more}\n"));
    let world = World::with(rule("user_mib = 12\n"));
    let _two = [(); 2].map(|()| {
        let one = world.connect();
        let reader = one.buffers(vec![text(1, "udp")], 0).unwrap();
        (one, reader)
    });
    let error = world.connect().buffers(vec![], 0).unwrap_err().to_string();
    let expected = format!("your readers would have 13 MiB of memory, and user {user} may have 12");
    assert!(error.contains(&expected), "{error}");

    let mut world = World::with(rule("compile_ms = 1\n"));
    let one = world.connect();
    let all: Vec<String> =
        (0..2000).map(|host| format!("host 10.1.{}.{}", host / 250, host % 250)).collect();
    let mut reader = one.buffers(vec![text(1, &all.join(" or "))], 0).unwrap();
    let error = one.edit(&[], &[(2, "port 1")]).unwrap_err().to_string();
    assert!(error.contains("to compile, of 1 ms; try again in "), "{error}");
    world.send(&[1]);
    assert_eq!(ports(&mut reader), [0_u16; 0]);
    assert!(counts(&one).rejected == 1, "a refused edit has changed nothing");
}

/// Sends more than a packet buffer holds to a reader that reads nothing; returns the frames that it read at the end,
/// lost, and did not get for want of room. `None` if it was stopped for so long that it may be passed over.
fn stopped_reader(prefer: &str) -> Option<(u64, u64, u64)> {
    const BATCHES: u64 = 8;
    let user = rustix::process::geteuid().as_raw();
    let rule = format!("[[rule]]\nusers = [{user}]\nmemory_mib = 1\nprefer = \"{prefer}\"\n");
    let mut world = World::with(policy(&rule));
    let (slow, fast) = (world.connect(), world.connect());
    let mut reader = slow.buffers(vec![text(1, "")], 0).unwrap();
    let mut other = fast.buffers(vec![text(1, "")], 0).unwrap();
    let began = std::time::Instant::now();
    for _ in 0..BATCHES {
        world.send_frames((0..200).map(|_| vec![0; 1_000]).collect());
        ports(&mut other);
    }
    let is_short = began.elapsed() < fyke_ring::publish::HOLD_LIMIT * 3 / 4;
    let sent = BATCHES * 200;
    for (reader, connection) in [(&mut reader, &slow), (&mut other, &fast)] {
        ports(reader);
        let refused = counts(connection).refused;
        assert_eq!((refused, reader.read() + reader.lost()), (reader.refused(), sent - refused));
    }
    // It has read, so there is room again.
    world.send(&[7]);
    assert_eq!((ports(&mut reader), ports(&mut other)), (vec![7], vec![7]));
    is_short.then(|| (reader.read() - 1, reader.lost(), reader.refused()))
}

#[test]
fn a_slow_reader_loses_nothing_that_it_has_if_its_rule_prefers_it() {
    let mut results = (0..50).filter_map(|_| stopped_reader("slow"));
    let (read, lost, refused) = results.next().expect("a run within the limit of a hold");
    assert_eq!((lost, read + refused), (0, 1_600));
    assert!(refused > 0 && read > 900, "{read} {refused}");
    let mut results = (0..50).filter_map(|_| stopped_reader("fast"));
    let (read, lost, refused) = results.next().expect("a run within the limit of a hold");
    assert_eq!((refused, read + lost), (0, 1_600));
    assert!(lost > 0, "{read} {lost}");
}
