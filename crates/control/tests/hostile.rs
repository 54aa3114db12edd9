//! Clients that are broken, slow, too many or not allowed do not affect other clients.

mod common;

use common::serve;
use fyke_control::{CallError, Client, MAX_CLIENTS, MAX_REQUEST_BYTES, Request, Response, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

fn raw(server: &Server) -> UnixStream {
    let stream = UnixStream::connect(server.path()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Asserts that a request is answered well before any time-out of a bad client ends.
fn assert_answers(server: &Server) {
    let start = Instant::now();
    let mut client = Client::connect_to(server.path()).unwrap();
    assert!(matches!(client.call(Request::Stats).unwrap(), Response::Stats(_)));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

fn answer_line(reader: &mut impl BufRead) -> Response {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// The seeded generator of the tests, xorshift64*.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[test]
fn garbage_is_refused_line_by_line() {
    let (_base, _dir, server) = serve();
    let mut stream = raw(&server);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut seed = 0x00f1_7e5e_ed00_0001_u64;
    for _ in 0..300 {
        let length = random(&mut seed) % 400;
        let bytes =
            (0..length).map(|_| random(&mut seed) as u8).map(|b| if b == 10 { 11 } else { b });
        let mut line: Vec<u8> = bytes.collect();
        line.push(b'\n');
        stream.write_all(&line).unwrap();
        assert!(matches!(answer_line(&mut reader), Response::Error { .. }), "{line:?}");
    }
    for line in ["GET / HTTP/1.1\r\n", "\n", "{\"request\":\"show\"\n", &"[".repeat(100_000), "\n"]
    {
        stream.write_all(line.as_bytes()).unwrap();
    }
    for _ in 0..4 {
        match answer_line(&mut reader) {
            Response::Error { message } => assert!(message.starts_with("not a request: ")),
            other => panic!("{other:?}"),
        }
    }
    for request in ["stats", "show", "describe"] {
        let line = format!("{{\"request\":\"{request}\",\"x\":1}}\n");
        stream.write_all(line.as_bytes()).unwrap();
        match answer_line(&mut reader) {
            Response::Error { message } => assert!(message.contains("unknown field"), "{message}"),
            other => panic!("a field that {request} does not know: {other:?}"),
        }
    }
    stream.write_all(b"{\"request\":\"stats\"}\n").unwrap();
    assert!(matches!(answer_line(&mut reader), Response::Stats(_)), "still usable");
}

#[test]
fn a_line_beyond_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let (_base, _dir, server) = serve();
    let mut stream = raw(&server);
    let mut sender = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let chunk = vec![b'x'; 1 << 20];
        (0..64).take_while(|_| sender.write_all(&chunk).is_ok()).count()
    });
    assert_answers(&server);
    let mut text = String::new();
    BufReader::new(&mut stream).read_line(&mut text).unwrap();
    assert!(text.contains("a request has at most 16777216 bytes"), "{text}");
    assert!(sending.join().unwrap() < 64, "the rest was not read");

    let mut client = Client::connect_to(server.path()).unwrap();
    let frame = serde_json::to_vec(&Request::Add { text: String::new() }).unwrap().len();
    let text = "x".repeat(MAX_REQUEST_BYTES - frame);
    let too_long = Request::Add { text: text.clone() + "x" };
    assert!(matches!(client.call(too_long), Err(CallError::TooLong { .. })));
    assert!(matches!(client.call(Request::Add { text }).unwrap(), Response::Ok { .. }));
}

#[test]
fn connections_left_open_lock_nobody_out() {
    let (_base, _dir, server) = serve();
    let mut idle: Vec<UnixStream> = (0..MAX_CLIENTS * 3).map(|_| raw(&server)).collect();
    for stream in idle.iter_mut().step_by(2) {
        // Clients that lost their seat are closed by now.
        let _closed = stream.write_all(b"{\"request\":");
    }
    assert_answers(&server);
    assert_answers(&server);
}

#[test]
fn all_seats_watching_is_said_to_who_comes_next() {
    let (_base, dir, server) = serve();
    let connect = || Client::connect_to(server.path()).unwrap();
    let mut watches: Vec<_> = (0..MAX_CLIENTS).map(|_| connect().watch(10).unwrap()).collect();
    for watch in &mut watches {
        watch.next().unwrap().unwrap();
    }
    match connect().call(Request::Show) {
        Err(CallError::Refused(message)) => assert!(message.contains("64 clients"), "{message}"),
        other => panic!("{other:?}"),
    }
    // A client that looks for the running fyke first gets the same reason.
    for _ in 0..20 {
        let refused = Client::connect_in(std::slice::from_ref(&dir), None).unwrap_err().to_string();
        assert!(refused.contains("64 clients are being answered; try again"), "{refused}");
    }
    watches.pop();
    let mut tries = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        connect().call(Request::Show)
    });
    assert!(tries.any(|answer| answer.is_ok()), "a watcher that left gives its seat back");
}

#[test]
fn a_client_that_does_not_read_delays_only_itself() {
    let (_base, _dir, server) = serve();
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(Request::Add { text: "big".into() }).unwrap();
    let mut deaf = raw(&server);
    deaf.write_all(b"{\"request\":\"show\"}\n").unwrap();
    let mut first = [0; 16];
    deaf.read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"{\"response\":"));
    assert_answers(&server);
}

#[test]
fn a_bug_in_an_answer_costs_that_connection_only() {
    let (_base, _dir, server) = serve();
    let mut client = Client::connect_to(server.path()).unwrap();
    let panicking = client.call(Request::Add { text: "panic".into() });
    assert!(matches!(panicking, Err(CallError::Closed)), "{panicking:?}");
    assert_answers(&server);
}

#[test]
fn clients_that_left_before_their_answers_are_forgotten() {
    // The client sends many requests, reads no answer and closes: the answers meet a closed socket.
    let (_base, _dir, server) = serve();
    for _ in 0..20 {
        let mut stream = raw(&server);
        stream.write_all("{\"request\":\"stats\"}\n".repeat(200).as_bytes()).unwrap();
    }
    assert_answers(&server);
}

/// Runs itself again as the user `nobody`, with the folder and the socket open to all users, so
/// that only the check of the peer's credentials can refuse it.
#[test]
fn another_user_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    const NOBODY: u32 = 65534;
    const SOCKET: &str = "FYKE_TEST_SOCKET";
    if let Some(socket) = std::env::var_os(SOCKET) {
        let answer = Client::connect_to(socket.as_ref()).unwrap().call(Request::Show);
        match answer {
            Err(CallError::Refused(message)) => println!("refused: {message}"),
            other => panic!("{other:?}"),
        }
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to become another user");
        return;
    }
    let (base, dir, server) = serve();
    for (path, mode) in [(base.path(), 0o755), (dir.path(), 0o755), (server.path(), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    // The test program itself may be in a folder that the user `nobody` cannot enter.
    let program = base.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut child = std::process::Command::new(&program);
    child.args(["--exact", "another_user_is_refused", "--nocapture"]).env(SOCKET, server.path());
    let output = child.current_dir(base.path()).uid(NOBODY).gid(NOBODY).output();
    let output = match output {
        Ok(output) => output,
        Err(e) => {
            println!("skipped: cannot become another user here: {e}");
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("refused: this fyke runs as user 0"), "{text}");
    assert!(text.contains("not user 65534"), "{text}");
}
