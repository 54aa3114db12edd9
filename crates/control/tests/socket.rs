//! Server and client together: requests, several clients, watching, finding, starting and ending.

mod common;

use common::{Fake, serve};
use fyke_control::{
    CallError, Client, ConnectError, Listening, Request, Response, RuntimeDir, Server, StartError,
    list_in,
};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn add(client: &mut Client, text: &str) -> (u64, Vec<u64>) {
    match client.call(Request::Add { text: text.into() }).unwrap() {
        Response::Ok { epoch, ids, .. } => (epoch, ids),
        other => panic!("{other:?}"),
    }
}

fn filter_ids(client: &mut Client) -> Vec<u64> {
    match client.call(Request::Show).unwrap() {
        Response::Passes { filters, .. } => filters.iter().map(|filter| filter.id).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_request_gets_its_answer() {
    let (_base, dir, server) = serve();
    assert_eq!(server.path().metadata().unwrap().mode() & 0o777, 0o600);
    let mut client = Client::connect_in(std::slice::from_ref(&dir), None).unwrap();
    assert_eq!(add(&mut client, "port 80"), (1, vec![1]));
    assert_eq!(add(&mut client, "quotes \" and\nlines \u{1F41F}"), (2, vec![2]));
    match client.call(Request::Describe).unwrap() {
        Response::Description(who) => assert_eq!(who.pid, std::process::id()),
        other => panic!("{other:?}"),
    }
    match client.call(Request::Stats).unwrap() {
        Response::Stats(stats) => {
            assert!(stats.accounting.is_exact());
            assert_eq!(stats.filters[1].text, "quotes \" and\nlines \u{1F41F}");
        }
        other => panic!("{other:?}"),
    }
    client.call(Request::Delete { id: 1 }).unwrap();
    assert_eq!(filter_ids(&mut client), [2]);
    client.call(Request::Set { text: "udp".into() }).unwrap();
    assert_eq!(filter_ids(&mut client), [3]);
}

#[test]
fn a_refusal_keeps_its_caret_and_changes_nothing() {
    let (_base, dir, _server) = serve();
    let mut client = Client::connect_in(&[dir], Some(std::process::id())).unwrap();
    match client.call(Request::Set { text: "bad".into() }) {
        Err(CallError::Refused(message)) => {
            assert_eq!(message, "bad\n^~~\nexpected a primitive");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(client.call(Request::Delete { id: 9 }), Err(CallError::Refused(_))));
    assert_eq!(add(&mut client, "ip"), (1, vec![1]));
}

#[test]
fn clients_at_once_each_get_their_own_answers() {
    const CLIENTS: u64 = 12;
    const EDITS: u64 = 50;
    let (_base, dir, _server) = serve();
    let ids: Vec<u64> = std::thread::scope(|scope| {
        let one = |number: u64| {
            let dir = dir.clone();
            move || {
                let mut client = Client::connect_in(&[dir], None).unwrap();
                let edit = |edit| add(&mut client, &format!("port {number}{edit}")).1[0];
                (0..EDITS).map(edit).collect::<Vec<u64>>()
            }
        };
        let threads: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(one(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(distinct, (1..=CLIENTS * EDITS).collect());
    let mut client = Client::connect_in(&[dir], None).unwrap();
    assert_eq!(filter_ids(&mut client).len() as u64, CLIENTS * EDITS);
}

#[test]
fn watching_sees_edits_and_ends_with_the_server() {
    let (_base, dir, server) = serve();
    let dirs = [dir];
    let watcher = Client::connect_in(&dirs, None).unwrap();
    let mut watch = watcher.watch(0).unwrap();
    assert_eq!(watch.next().unwrap().unwrap().epoch, 0);
    let mut editor = Client::connect_in(&dirs, None).unwrap();
    add(&mut editor, "ip");
    let seen = watch.by_ref().take(1000).find(|stats| stats.as_ref().unwrap().epoch == 1);
    assert!(seen.is_some());
    drop(server);
    let rest = watch.take(1000).collect::<Result<Vec<_>, _>>().unwrap();
    assert!(rest.len() < 1000, "ends by itself");
}

#[test]
fn a_watch_keeps_its_interval() {
    let (_base, dir, _server) = serve();
    let watch = Client::connect_in(&[dir], None).unwrap().watch(20).unwrap();
    let start = Instant::now();
    assert_eq!(watch.take(6).filter(Result::is_ok).count(), 6);
    assert!(start.elapsed() >= Duration::from_millis(95), "{:?}", start.elapsed());
}

#[test]
fn a_dropped_server_is_gone() {
    let (_base, dir, server) = serve();
    let dirs = [dir];
    let path = server.path().to_path_buf();
    let mut client = Client::connect_in(&dirs, None).unwrap();
    drop(server);
    assert!(!path.exists());
    assert!(matches!(client.call(Request::Show), Err(CallError::Closed)));
    match Client::connect_in(&dirs, None) {
        Err(error @ ConnectError::NoneRunning { .. }) => {
            assert!(error.to_string().contains("/run"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        Client::connect_in(&dirs, Some(1)),
        Err(ConnectError::NoSuchPid { pid: 1, .. })
    ));
}

#[test]
fn what_a_killed_process_left_is_cleaned_up() {
    let (_base, dir, server) = serve();
    // No process can have this id: the kernel's largest is 4,194,304.
    let dead = dir.socket(4_194_305);
    drop(UnixListener::bind(&dead).unwrap());
    // Process 1 has the number of an ended one: a socket gets its name when it already listens.
    let reused = dir.socket(1);
    drop(UnixListener::bind(&reused).unwrap());
    let unrelated = dir.path().join("notes.sock");
    std::fs::write(&unrelated, "mine").unwrap();
    let found = list_in(std::slice::from_ref(&dir));
    assert_eq!(found.iter().map(|i| i.pid).collect::<Vec<_>>(), [std::process::id()]);
    assert_eq!(found[0].socket, server.path());
    assert!(found[0].description.is_some());
    assert!(!dead.exists() && !reused.exists() && unrelated.exists());
}

#[test]
fn a_server_takes_the_place_of_a_dead_one_but_not_of_a_living_one() {
    let (_base, dir, server) = serve();
    let second = Server::start_in(&dir, Arc::new(Fake::default()));
    assert!(matches!(second, Err(StartError::Taken { .. })), "{second:?}");
    let path = server.path().to_path_buf();
    drop(server);
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::start_in(&dir, Arc::new(Fake::default())).unwrap();
    assert!(Client::connect_in(&[dir], None).is_ok());
    // Another process put another socket there: this server must not remove it.
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
}

#[test]
fn with_several_running_one_must_be_named() {
    let (_base, dir, _server) = serve();
    // A second socket, which accepts and never answers.
    let _silent = UnixListener::bind(dir.socket(1)).unwrap();
    let dirs = [dir];
    match Client::connect_in(&dirs, None) {
        Err(error @ ConnectError::Several(_)) => {
            let text = error.to_string();
            assert!(
                text.starts_with("2 live captures are running, name one with --pid N:\n"),
                "{text}"
            );
            assert!(text.contains("      1  (does not answer)"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let mut client = Client::connect_in(&dirs, Some(std::process::id())).unwrap();
    client.call(Request::Show).unwrap();
    let mut silent = Client::connect_in(&dirs, Some(1)).unwrap();
    silent.set_answer_limit(Duration::from_millis(50));
    assert!(matches!(silent.call(Request::Show), Err(CallError::Silent { .. })));
}

#[test]
fn folders_that_anybody_can_write_are_not_searched() {
    use std::os::unix::fs::PermissionsExt;
    let (base, dir, _server) = serve();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    assert_eq!(list_in(&[dir, RuntimeDir::at(base.path().join("none"))]), []);
}

/// A client that finds the socket is served, because the name does not exist before the socket listens.
#[test]
fn the_name_appears_when_the_socket_listens() {
    let base = tempfile::tempdir().unwrap();
    let folders: Vec<_> = (0..200).map(|number| base.path().join(number.to_string())).collect();
    let paths: Vec<_> =
        folders.iter().map(|folder| folder.join(format!("{}.sock", std::process::id()))).collect();
    let client = std::thread::spawn(move || {
        paths.iter().find_map(|path| {
            let start = Instant::now();
            loop {
                match std::os::unix::net::UnixStream::connect(path) {
                    Ok(_) => return None,
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Some(error);
                    }
                    Err(_) if start.elapsed() > Duration::from_secs(20) => panic!("no server"),
                    Err(_) => {}
                }
            }
        })
    });
    let servers: Vec<_> = (folders.iter())
        .map(|folder| Server::start_in(&RuntimeDir::at(folder), Arc::new(Fake::default())).unwrap())
        .collect();
    assert!(client.join().unwrap().is_none(), "nobody is refused");
    drop(servers);
    for folder in folders {
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "nothing is left");
    }
}

/// A stopped process finds requests of clients that have given up: it carries none of their edits out.
#[test]
fn an_edit_of_a_client_that_has_gone_is_not_carried_out() {
    let base = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::at(base.path().join("run"));
    let socket = Listening::open_in(&dir).unwrap();
    let send = || {
        let mut stream = UnixStream::connect(socket.path()).unwrap();
        stream.write_all(b"{\"request\":\"add\",\"text\":\"udp\"}\n").unwrap();
        stream
    };
    let gone = send();
    drop(gone);
    // One that only sends no more waits for its answer.
    let mut waits = send();
    waits.shutdown(std::net::Shutdown::Write).unwrap();
    let _server = Server::serve(vec![socket], Arc::new(Fake::default())).unwrap();
    let mut answer = String::new();
    waits.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"epoch\":1"), "{answer}");
    let mut client = Client::connect_in(&[dir], None).unwrap();
    assert_eq!(add(&mut client, "tcp"), (2, vec![2]));
}
