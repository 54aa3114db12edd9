//! A server that accepts connections and drops requests to its streams, as one does that has just been started: what
//! begins then is done once the streams answer, without an error and once. And servers that do not listen yet, that
//! have no streams, or no room for them.
//!
//! Between the client and a real server is a relay that drops these requests while it is told to.

mod common;

use common::{Served, at, edge};
use fyke_fleet::Name;
use fyke_fleet::archive::{Queue, ScanId};
use fyke_fleet::broker::{Broker, BrokerError, Options};
use fyke_fleet::edit::{Change, Labels};
use fyke_fleet::exchange::Exchange;
use fyke_fleet::operator::Operator;
use fyke_fleet::scan::Scan;
use fyke_testkit::nats::NatsServer;
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Time in which the streams do not answer.
const SILENCE: Duration = Duration::from_secs(1);

/// The switch that drops requests to streams, and the number of dropped ones.
#[derive(Default)]
struct Dropping {
    is_on: AtomicBool,
    dropped: AtomicUsize,
}

/// Passes one connection on, in both directions.
fn relay(client: TcpStream, server: u16, dropping: &Dropping) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    let (mut back, mut from) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || io::copy(&mut from, &mut back));
    let (mut requests, mut server) = (BufReader::new(client), server);
    let mut line = Vec::new();
    while requests.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_message = matches!(words.first(), Some(&("PUB" | "HPUB")));
        if let (true, Some(Ok(bytes))) = (is_message, words.last().map(|word| word.parse())) {
            let bytes: usize = bytes;
            let start = line.len();
            line.resize(start + bytes + 2, 0);
            requests.read_exact(&mut line[start..])?;
        }
        let is_of_streams =
            |subject: &&str| subject.starts_with("$JS.") || subject.ends_with(".edits");
        if is_message
            && dropping.is_on.load(Ordering::SeqCst)
            && words.get(1).is_some_and(is_of_streams)
        {
            dropping.dropped.fetch_add(1, Ordering::SeqCst);
        } else {
            server.write_all(&line)?;
        }
        line.clear();
    }
    Ok(())
}

/// A server, and a relay before it.
struct Relayed {
    served: Served,
    dropping: Arc<Dropping>,
    /// The address of the relay.
    options: Options,
}

impl Relayed {
    /// Starts both; `None`, with the reason, without the program.
    fn start() -> Option<Relayed> {
        let served = Served::start()?;
        let dropping = Arc::new(Dropping::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = at(listener.local_addr().unwrap().port());
        let (shared, port) = (Arc::clone(&dropping), served.server.port());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let dropping = Arc::clone(&shared);
                std::thread::spawn(move || relay(client, port, &dropping));
            }
        });
        Some(Relayed { served, dropping, options })
    }

    /// Does something while the streams do not answer at first; a request was repeated then.
    async fn while_silent<T>(&self, what: impl Future<Output = T>) -> T {
        self.dropping.is_on.store(true, Ordering::SeqCst);
        let before = self.dropping.dropped.load(Ordering::SeqCst);
        let shared = Arc::clone(&self.dropping);
        let answers = tokio::spawn(async move {
            tokio::time::sleep(SILENCE).await;
            shared.is_on.store(false, Ordering::SeqCst);
        });
        let done = what.await;
        answers.await.unwrap();
        let dropped = self.dropping.dropped.load(Ordering::SeqCst) - before;
        assert!(dropped >= 2, "a request was repeated: {dropped}");
        done
    }
}

#[tokio::test]
async fn an_edit_waits_for_streams_that_do_not_answer_yet() {
    let Some(relayed) = Relayed::start() else { return };
    let broker = Broker::connect(&relayed.options, edge(), "operator").await.unwrap();
    let mut operator = Operator::new(broker, relayed.served.trusted()).await.unwrap();
    for number in 1..=3 {
        let changes = vec![Change::Add { text: format!("udp port {number}") }];
        let (author, all) = (&relayed.served.author, Labels::new());
        let made = operator.edit(author, &all, changes, None, Duration::ZERO);
        let made = relayed.while_silent(made).await;
        assert_eq!(made.expect("the edit is made").sequence, number);
    }
    assert_eq!(operator.state().filters.len(), 3);
    assert_eq!(operator.log().len(), 3);
}

/// Streams, buckets and consumers are made, and found again, by requests that are repeated, too.
#[tokio::test]
async fn a_connection_waits_for_streams_that_do_not_answer_yet() {
    let Some(relayed) = Relayed::start() else { return };
    let to = &relayed.options;
    let name = || Name::new("dns").unwrap();
    relayed.while_silent(Broker::connect(to, edge(), "one")).await.expect("a group");
    relayed.while_silent(Broker::open(to, edge(), "one")).await.expect("the same group");
    let queue = relayed.while_silent(Queue::connect(to, edge(), "one")).await.expect("jobs");
    relayed.while_silent(Queue::open(to, edge(), "one")).await.expect("the same jobs");
    let exchange = relayed.while_silent(Exchange::connect(to, edge(), name(), "one")).await;
    let exchange = exchange.expect("a queue");
    assert_eq!(relayed.while_silent(exchange.waiting()).await.expect("batches"), 0);
    let none = ScanId::random().unwrap();
    let none = relayed.while_silent(Scan::resume(queue, none)).await.unwrap_err().to_string();
    assert!(none.contains("has no scan"), "{none}");
}

/// A server that is started again does not listen for a while.
#[tokio::test]
async fn a_connection_waits_for_a_server_that_does_not_listen_yet() {
    let Some(mut served) = Served::start() else { return };
    served.server.kill();
    let options = served.options.clone();
    let connecting = tokio::spawn(async move { Broker::connect(&options, edge(), "one").await });
    tokio::time::sleep(SILENCE).await;
    assert!(!connecting.is_finished(), "it gave up at once");
    served.server.start_again();
    connecting.await.unwrap().expect("a group");
}

#[tokio::test]
async fn a_server_without_streams_or_without_room_for_them_is_told() {
    let Some(served) = Served::start() else { return };
    let port = served.server.port();
    drop(served);
    let server = NatsServer::with(port, &[]);
    let to = at(port);
    let told = [
        Broker::connect(&to, edge(), "one").await.unwrap_err(),
        Broker::open(&to, edge(), "one").await.unwrap_err(),
        Queue::open(&to, edge(), "one").await.unwrap_err(),
    ];
    for why in told {
        assert!(matches!(why, BrokerError::NoStreams), "{why}");
    }
    drop(server);
    let folder = tempfile::tempdir().unwrap();
    let store = |name: &str| folder.path().join(name);
    // Streams have less room then, in which all fit.
    let server = NatsServer::with_room(&store("little"), port, "3GB");
    Broker::connect(&to, edge(), "one").await.expect("a group");
    Queue::connect(&to, edge(), "one").await.expect("jobs");
    let dns = Name::new("dns").unwrap();
    Exchange::connect(&to, edge(), dns, "one").await.expect("a queue");
    drop(server);
    let _server = NatsServer::with_room(&store("none"), port, "1MB");
    let why = Broker::connect(&to, edge(), "one").await.unwrap_err();
    assert!(matches!(why, BrokerError::NoRoom { .. }), "{why}");
}
