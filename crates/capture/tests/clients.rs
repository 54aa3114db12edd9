//! The sink `tcp:ADDRESS:PORT`: what each client reads, and the counts of those that are too slow.

mod common;

use common::drain;
use fyke_capture::{Format, Interface, Sink, WriteError, WriteOptions};
use fyke_capture::{client_address, create_file, open_file};
use fyke_frame::{Frame, LinkType};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn sink(port: u16, format: Format) -> (Box<dyn Sink>, Interface) {
    let interface = Interface::new("lo", LinkType::EN10MB);
    let interfaces = vec![interface.clone()];
    let options =
        WriteOptions { interfaces, format: Some(format), waits: false, ..WriteOptions::default() };
    let mut sink = create_file(Path::new(&format!("tcp:127.0.0.1:{port}")), options).unwrap();
    sink.flush().unwrap();
    (sink, interface)
}

fn write(sink: &mut dyn Sink, interface: &Interface, number: u32, len: usize) {
    let mut data = vec![0; len];
    data[..4].copy_from_slice(&number.to_be_bytes());
    let frame = Frame::new(LinkType::EN10MB, &data);
    sink.write(interface, &frame).unwrap();
}

/// Waits until the sink has accepted this number of clients.
fn await_clients(sink: &dyn Sink, count: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while sink.stats().clients.unwrap().connected != count {
        assert!(Instant::now() < deadline, "{:?}", sink.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The numbers of the frames that a client gets until the end.
fn numbers(mut client: TcpStream) -> Vec<u32> {
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("got.pcapng");
    std::fs::write(&file, bytes).unwrap();
    let (frames, error) = drain(&mut open_file(&file).unwrap());
    assert!(error.is_none(), "{error:?}");
    let number = |data: &[u8]| u32::from_be_bytes(data[..4].try_into().unwrap());
    frames.iter().map(|frame| number(&frame.data)).collect()
}

#[test]
fn clients_get_the_stream_from_their_first_frame_on() {
    for format in [Format::Pcapng, Format::Pcap] {
        let port = free_port();
        let (mut sink, interface) = sink(port, format);
        let first = TcpStream::connect(("127.0.0.1", port)).unwrap();
        await_clients(&*sink, 1);
        (0..100).for_each(|number| write(&mut *sink, &interface, number, 60));
        sink.flush().unwrap();
        let second = TcpStream::connect(("127.0.0.1", port)).unwrap();
        await_clients(&*sink, 2);
        (100..150).for_each(|number| write(&mut *sink, &interface, number, 60));
        let readers = [first, second].map(|client| std::thread::spawn(move || numbers(client)));
        let stats = sink.finish().unwrap();
        let [first, second] = readers.map(|reader| reader.join().unwrap());
        assert_eq!(first, (0..150).collect::<Vec<u32>>(), "{format:?}");
        assert_eq!(second, (100..150).collect::<Vec<u32>>(), "{format:?}");
        let clients = stats.clients.unwrap();
        assert_eq!((stats.frames, stats.lost), (150, 0));
        assert_eq!((clients.sent, clients.lost), (200, 0), "{clients:?}");
    }
}

#[test]
fn a_client_that_does_not_read_loses_frames_and_the_sink_does_not_wait() {
    const FRAMES: u32 = 20_000;
    let port = free_port();
    let (mut sink, interface) = sink(port, Format::Pcapng);
    let slow = TcpStream::connect(("127.0.0.1", port)).unwrap();
    await_clients(&*sink, 1);
    let quick = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let quick = std::thread::spawn(move || numbers(quick));
    await_clients(&*sink, 2);
    let begun = Instant::now();
    for number in 0..FRAMES {
        write(&mut *sink, &interface, number, 1_400);
        // At a pace that a client can follow which reads.
        if number % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    sink.flush().unwrap();
    let lost = sink.stats().clients.unwrap().lost;
    assert!(lost > 0, "28 MB are more than the socket and the queue take");
    let slow = std::thread::spawn(move || numbers(slow));
    let stats = sink.finish().unwrap();
    let (slow, quick) = (slow.join().unwrap(), quick.join().unwrap());
    assert_eq!(stats.frames, u64::from(FRAMES));
    assert_eq!(stats.lost, 0, "what a client loses is not lost by the capture");
    let clients = stats.clients.unwrap();
    let got = (slow.len() + quick.len()) as u64;
    assert_eq!(clients.sent, got, "{clients:?}");
    assert_eq!(clients.sent + clients.lost, 2 * u64::from(FRAMES), "{clients:?}");
    assert!(slow.is_sorted() && slow.len() < FRAMES as usize);
}

#[test]
fn a_client_that_leaves_and_one_too_many_do_no_harm() {
    let port = free_port();
    let (mut sink, interface) = sink(port, Format::Pcapng);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let all: Vec<TcpStream> = (0..16).map(|_| connect()).collect();
    await_clients(&*sink, 16);
    let mut refused = connect();
    refused.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(refused.read(&mut [0; 1]).unwrap(), 0, "the seventeenth is closed");
    drop(all);
    // A new client takes the place of one that has left, though no frame has found that out.
    let late = connect();
    let deadline = Instant::now() + Duration::from_secs(20);
    let late = std::thread::spawn(move || numbers(late));
    while sink.stats().clients.unwrap().connected > 1 {
        assert!(Instant::now() < deadline, "{:?}", sink.stats());
        write(&mut *sink, &interface, 7, 60);
        sink.flush().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    write(&mut *sink, &interface, 8, 60);
    sink.finish().unwrap();
    assert_eq!(late.join().unwrap().last(), Some(&8));
}

#[test]
fn names_that_are_no_addresses_are_refused_with_an_example() {
    let address = |name: &str| client_address(Path::new(name));
    assert_eq!(address("tcp.pcap").unwrap(), None);
    assert_eq!(address("./tcp:1").unwrap(), None);
    assert_eq!(address("tcp:57012").unwrap().unwrap().to_string(), "127.0.0.1:57012");
    assert_eq!(address("tcp:[::1]:57012").unwrap().unwrap().to_string(), "[::1]:57012");
    for wrong in ["tcp:", "tcp:0", "tcp:localhost:1", "tcp:1.2.3.4", "tcp:70000", "tcp:127.0.0.1:0"]
    {
        let error = address(wrong).unwrap_err().to_string();
        assert!(error.contains("such as tcp:127.0.0.1:57012"), "{wrong}: {error}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("tcp:{}", taken.local_addr().unwrap());
    let Err(refused) = create_file(Path::new(&name), WriteOptions::default()) else {
        panic!("the port is taken");
    };
    assert!(matches!(refused, WriteError::Create { .. }) && refused.to_string().contains(&name));
}
