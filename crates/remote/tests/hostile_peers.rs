//! Peers that lie, flood, stall or disappear: each gets a clear error, within a limit of time and of memory.

use fyke_capture::{Next, Source};
use fyke_frame::{Frame, LinkType};
use fyke_remote::link::{Kind, Link};
use fyke_remote::message::{Counts, Origin, Request, Response, VERSION};
use fyke_remote::relay::Options;
use fyke_remote::source::{FarKind, WINDOW};
use fyke_remote::{Address, Files, Offer, Relay, RemoteSource, batch};
use fyke_testkit::certificates::{Authority, Certificate};
use rustls::ServerConnection;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

struct Keys {
    _folder: tempfile::TempDir,
    authority: Authority,
    relay: Certificate,
    client: Certificate,
}

impl Keys {
    fn new() -> Option<Keys> {
        if !Authority::is_possible() {
            println!("skipped: openssl is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let (relay, client) =
            (authority.sign("relay", "IP:127.0.0.1"), authority.sign("probe", "DNS:probe"));
        Some(Keys { _folder: folder, authority, relay, client })
    }

    fn files(&self, own: &Certificate) -> Files {
        Files {
            certificate: own.certificate.clone(),
            key: own.key.clone(),
            authorities: self.authority.file(),
        }
    }

    /// A relay that behaves as `play` after the greeting, and the client's source at it.
    fn source(&self, play: impl FnOnce(&mut Link) + Send + 'static) -> RemoteSource {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = self.files(&self.relay).relay().unwrap();
        thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let tls = ServerConnection::new(config).unwrap();
            let mut link = Link::new(socket, tls.into(), 1 << 20).unwrap();
            link.handshake(LIMIT).unwrap();
            let Request::Hello { .. } = request(&mut link) else { panic!() };
            link.send_json(&hello()).unwrap();
            play(&mut link);
        });
        let address = Address { host: "127.0.0.1".to_owned(), port, name: None };
        let files = self.files(&self.client);
        RemoteSource::connect(FarKind::Ring, &address, &files, None).unwrap()
    }
}

fn hello() -> Response {
    let origin = Origin {
        name: "eth0".to_owned(),
        link: LinkType::EN10MB.0,
        snaplen: 65_535,
        nanoseconds: true,
        netmask: 0,
    };
    Response::Hello {
        version: VERSION,
        client: "probe".to_owned(),
        filters: false,
        restricted: false,
        interfaces: vec![origin],
    }
}

fn request(link: &mut Link) -> Request {
    let start = Instant::now();
    loop {
        if let Some((Kind::Json, body)) = link.message().unwrap() {
            return serde_json::from_slice(&body).unwrap();
        }
        assert!(start.elapsed() < LIMIT);
        link.turn(Duration::from_millis(100), &[]).unwrap();
    }
}

fn frames(count: usize, len: usize) -> Vec<u8> {
    let (data, mut bytes) = (vec![7; len], Vec::new());
    (0..count).for_each(|_| batch::append(&Frame::new(LinkType::EN10MB, &data), &mut bytes));
    bytes
}

/// Sends until the peer has closed or all is sent.
fn push(link: &mut Link, kind: Kind, body: &[u8]) {
    let start = Instant::now();
    let mut sent = link.send(kind, body).is_ok();
    while sent && link.is_sending() && start.elapsed() < LIMIT {
        sent = link.turn(Duration::from_millis(50), &[]).is_ok();
    }
}

/// Reads a source to its end; returns the number of its frames and its error.
fn read(source: &mut RemoteSource) -> (u64, Option<String>) {
    let (start, mut count) = (Instant::now(), 0);
    loop {
        assert!(start.elapsed() < LIMIT * 2, "it does not end");
        match source.next() {
            Ok(Next::Frames(batch, _)) => count += batch.frames().len() as u64,
            Ok(Next::Idle) => {}
            Ok(Next::End) => return (count, None),
            Err(error) => {
                let error = error.to_string();
                assert!(matches!(source.next(), Ok(Next::End)), "after an error follows the end");
                return (count, Some(error));
            }
        }
    }
}

#[test]
fn relays_that_lie_end_the_source_with_the_reason() {
    let Some(keys) = Keys::new() else { return };
    type Lie = (&'static str, fn(&mut Link));
    let lies: [Lie; 8] = [
        ("unknown flags", |link| {
            let mut bytes = frames(1, 60);
            bytes[18] = 99;
            push(link, Kind::Frames, &bytes);
        }),
        ("a frame has 999999 bytes", |link| {
            let mut bytes = frames(1, 60);
            bytes[8..12].copy_from_slice(&999_999_u32.to_le_bytes());
            push(link, Kind::Frames, &bytes);
        }),
        ("1000 frames as sent, and 0 have arrived", |link| {
            let counts = Counts { sent: 1000, ..Counts::default() };
            push(link, Kind::Json, &serde_json::to_vec(&Response::Counts(counts)).unwrap());
        }),
        ("its counts go back", |link| {
            for overrun in [7, 3] {
                let counts = Response::Counts(Counts { overrun, ..Counts::default() });
                push(link, Kind::Json, &serde_json::to_vec(&counts).unwrap());
            }
        }),
        ("a message has 1048577 bytes; at most 1048576", |link| {
            push(link, Kind::Frames, &vec![0; (1 << 20) + 1]);
        }),
        ("EOF while parsing", |link| push(link, Kind::Json, b"{")),
        ("there is no edit 5", |link| {
            let edited = Response::Edited { number: 5, refused: None };
            push(link, Kind::Json, &serde_json::to_vec(&edited).unwrap());
        }),
        ("it greets twice", |link| {
            push(link, Kind::Json, &serde_json::to_vec(&hello()).unwrap());
        }),
    ];
    for (why, lie) in lies {
        let mut source = keys.source(move |link| {
            lie(link);
            // The client closes.
            let start = Instant::now();
            while start.elapsed() < LIMIT && link.turn(Duration::from_millis(50), &[]).is_ok() {
                if !matches!(link.message(), Ok(None)) && link.message().is_err() {
                    break;
                }
            }
        });
        let (_, error) = read(&mut source);
        let error = error.expect("an error");
        assert!(error.contains("127.0.0.1") && error.contains(why), "{why}: {error}");
        assert_eq!(source.stats().delivered, 0, "{why}");
    }
}

#[test]
fn a_relay_that_floods_is_stopped_at_the_window() {
    let Some(keys) = Keys::new() else { return };
    let sent = Arc::new(Mutex::new(0_u64));
    let told = Arc::clone(&sent);
    let mut source = keys.source(move |link| {
        let bytes = frames(100, 1400);
        let start = Instant::now();
        while start.elapsed() < LIMIT && link.send(Kind::Frames, &bytes).is_ok() {
            *told.lock().unwrap() += bytes.len() as u64;
            while link.is_sending() && start.elapsed() < LIMIT {
                if link.turn(Duration::from_millis(50), &[]).is_err() || link.message().is_err() {
                    return;
                }
            }
        }
    });
    // Nothing is read meanwhile, as with a slow output.
    source.set_patience(Duration::from_millis(1));
    assert!(source.next().is_ok());
    let start = Instant::now();
    let mut before = 0;
    while start.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(300));
        let now = *sent.lock().unwrap();
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    let (count, error) = read(&mut source);
    let error = error.expect("an error");
    assert!(error.contains("more than it was granted"), "{error}");
    // What had arrived within the window is there.
    let bytes = count * (1400 + batch::HEAD as u64);
    assert!(bytes <= WINDOW + batch::MAX_BYTES as u64, "{bytes}");
}

#[test]
fn a_relay_that_disappears_or_is_silent_is_an_error_and_an_end_is_none() {
    let Some(keys) = Keys::new() else { return };
    let mut gone = keys.source(|link| {
        push(link, Kind::Frames, &frames(3, 60));
        // Unread requests would make the system discard what was sent.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            let _quiet = link.turn(Duration::from_millis(50), &[]);
            while let Ok(Some(_)) = link.message() {}
        }
    });
    let (count, error) = read(&mut gone);
    assert_eq!(count, 3);
    assert!(error.unwrap().contains("closed the connection"));
    let mut silent = keys.source(|link| {
        let start = Instant::now();
        while start.elapsed() < LIMIT * 2 && link.turn(Duration::from_millis(100), &[]).is_ok() {
            while let Ok(Some(_)) = link.message() {}
        }
    });
    let (_, error) = read(&mut silent);
    assert!(error.unwrap().contains("was silent for 15 s"));
    let mut ended = keys.source(|link| {
        push(link, Kind::Frames, &frames(3, 60));
        let counts = Counts { sent: 3, overrun: 2, ..Counts::default() };
        let ended = Response::Ended { counts, reason: None };
        push(link, Kind::Json, &serde_json::to_vec(&ended).unwrap());
        link.close(LIMIT);
    });
    assert_eq!(read(&mut ended), (3, None));
    let stats = ended.stats();
    assert_eq!((stats.received, stats.delivered, stats.dropped), (5, 3, 2));
}

/// A relay without a service.
fn relay(keys: &Keys) -> (u16, Arc<AtomicBool>, Arc<Mutex<String>>, thread::JoinHandle<()>) {
    let said = Arc::new(Mutex::new(String::new()));
    let (stop, heard) = (Arc::new(AtomicBool::new(false)), Arc::clone(&said));
    let options = Options {
        offers: vec![Offer::Service("no-such-service".to_owned())],
        user: None,
        policy: None,
    };
    let report = move |line: String| *heard.lock().unwrap() += &(line + "\n");
    let at = "127.0.0.1:0".parse().unwrap();
    let relay = Relay::bind(at, &keys.files(&keys.relay), options, report).unwrap();
    let (port, stopped) = (relay.address().unwrap().port(), Arc::clone(&stop));
    (port, stop, said, thread::spawn(move || relay.run(&stopped)))
}

/// A connection from an address of loopback.
fn connect_from(address: [u8; 4], port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((address, 0))).unwrap();
    connect(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    TcpStream::from(socket)
}

fn until(said: &Mutex<String>, text: &str) {
    let start = Instant::now();
    while !said.lock().unwrap().contains(text) {
        assert!(start.elapsed() < LIMIT, "{text:?} is not in {}", said.lock().unwrap());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn clients_that_speak_something_else_are_ended_and_others_served() {
    let Some(keys) = Keys::new() else { return };
    let (port, stop, said, running) = relay(&keys);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    // No TLS; a client that is silent; one that closes at once; more than there is room for.
    let mut plain = connect();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    plain.set_read_timeout(Some(LIMIT)).unwrap();
    let _alert = plain.read_to_end(&mut Vec::new());
    until(&said, "TLS: ");
    let mute = connect();
    drop(connect());
    until(&said, "closed the connection");
    until(&said, "was silent for 5 s");
    drop(mute);
    // A crowd of another address takes no place of a client.
    let crowd: Vec<TcpStream> = (0..300).map(|_| connect_from([127, 0, 0, 2], port)).collect();
    until(&said, "16 connections of this address have not greeted yet");
    let address = Address { host: "127.0.0.1".to_owned(), port, name: None };
    let files = keys.files(&keys.client);
    // Served: refused, because there is no service here.
    let refused = RemoteSource::connect(FarKind::Service, &address, &files, None).unwrap_err();
    assert!(refused.to_string().contains("no fyke serves \"no-such-service\""), "{refused}");
    drop(crowd);
    let refused = RemoteSource::connect(FarKind::Ring, &address, &files, None).unwrap_err();
    assert!(refused.to_string().contains("offers no ring"), "{refused}");
    let other = Address { name: Some("x".to_owned()), ..address };
    let refused = RemoteSource::connect(FarKind::Service, &other, &files, None).unwrap_err();
    assert!(refused.to_string().contains("offers no service \"x\""), "{refused}");
    let lines = said.lock().unwrap().lines().count();
    assert!(lines < 250, "{lines} lines for 300 refused connections");
    stop.store(true, Ordering::Relaxed);
    running.join().unwrap();
}
