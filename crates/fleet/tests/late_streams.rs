//! A server that accepts connections and drops requests to its streams, as one does that has just been started: an edit
//! that begins then is made once the streams answer, without an error and once.
//!
//! Between the client and a real server is a relay that drops these requests while it is told to.

use fyke_fleet::Name;
use fyke_fleet::broker::{Broker, Options};
use fyke_fleet::edit::{Change, Labels};
use fyke_fleet::keys::{Author, Trusted};
use fyke_fleet::operator::Operator;
use fyke_testkit::nats::NatsServer;
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

#[tokio::test]
async fn an_edit_waits_for_streams_that_do_not_answer_yet() {
    if !NatsServer::is_installed() {
        println!("skipped: nats-server is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let _server = NatsServer::start(&folder.path().join("store"), port);
    let dropping = Arc::new(Dropping::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = listener.local_addr().unwrap().port();
    let shared = Arc::clone(&dropping);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let dropping = Arc::clone(&shared);
            std::thread::spawn(move || relay(client, port, &dropping));
        }
    });
    let author = Author::create(&folder.path().join("key"), Name::new("anna").unwrap()).unwrap();
    let trusted = Trusted::from_text(&author.public_line()).unwrap();
    let options = Options { server: format!("nats://127.0.0.1:{between}"), ..Options::default() };
    let broker = Broker::connect(&options, Name::new("edge").unwrap(), "operator").await.unwrap();
    let mut operator = Operator::new(broker, trusted).await.unwrap();
    for number in 1..=3 {
        dropping.is_on.store(true, Ordering::SeqCst);
        let before = dropping.dropped.load(Ordering::SeqCst);
        let shared = Arc::clone(&dropping);
        let answers = tokio::spawn(async move {
            tokio::time::sleep(SILENCE).await;
            shared.is_on.store(false, Ordering::SeqCst);
        });
        let changes = vec![Change::Add { text: format!("udp port {number}") }];
        let made = operator.edit(&author, &Labels::new(), changes, None, Duration::ZERO).await;
        assert_eq!(made.expect("the edit is made").sequence, number);
        answers.await.unwrap();
        let dropped = dropping.dropped.load(Ordering::SeqCst) - before;
        assert!(dropped >= 2, "a request was repeated: {dropped}");
    }
    assert_eq!(operator.state().filters.len(), 3);
    assert_eq!(operator.log().len(), 3);
}
