//! A world with real FTP, observed through a plain packet socket by the FTP tracker: the tracker finds every data
//! connection in the clients' log, from its first SYN on, with all its bytes.
//!
//! Needs namespaces, as root or as a user; prints a skip if they are refused.

use fyke_frame::{Frame, LinkType};
use fyke_lab::background::{self, Background};
use fyke_lab::ftp::{self, Exercise, Stop};
use fyke_lab::net::{World, WorldError};
use fyke_track::{Closed, Event, Ftp, Limits, Reason, Tracker};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::time::{Duration, Instant};

const ETH_P_ALL: u16 = 3;

fn world() -> Option<World> {
    match World::create(4, 4) {
        Ok(world) => Some(world),
        Err(refused @ WorldError::Refused { .. }) => {
            eprintln!("skipped: {refused}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Feeds all packets at this end of the wire to a tracker; returns closed connections and the number of oversized
/// frames.
/// frames.
fn watch(stop: &Stop) -> (Vec<Closed>, u64) {
    let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
    socket.set_recv_buffer_size(64 << 20).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut ftp = Ftp::new(21, Limits { linger_ns: 200_000_000, ..Limits::default() });
    let (mut events, mut closed, mut too_long) = (Vec::new(), Vec::new(), 0);
    let (begin, mut buffer) = (Instant::now(), vec![0; 65_536]);
    while !stop.is_over() {
        let now_ns = begin.elapsed().as_nanos() as u64;
        match socket.read(&mut buffer) {
            Ok(len) => {
                too_long += u64::from(len > 1_514);
                let frame = Frame::new(LinkType::EN10MB, &buffer[..len]);
                ftp.frame(&Frame { timestamp_ns: now_ns, ..frame }, &mut events);
            }
            Err(_) => ftp.expire(now_ns, &mut events),
        }
        closed.extend(events.drain(..).filter_map(|event| match event {
            Event::Close(closed) => Some(closed),
            Event::Open(_) => None,
        }));
    }
    (closed, too_long)
}

#[test]
fn the_tracker_finds_every_logged_transfer_on_the_wire() {
    let Some(world) = world() else { return };
    let watching = Stop::after(Duration::from_secs(15));
    let until = watching.clone();
    let watcher = world.clients.spawn("watch", move || watch(&until)).unwrap();
    std::thread::sleep(Duration::from_millis(100));

    let options = ftp::Options {
        servers: 3,
        connections: 10,
        interval: Duration::from_millis(60),
        size_bytes: 40_000,
        burst_bytes: 16_000,
        bytes_per_second: 80_000,
    };
    let stop = Stop::after(Duration::from_secs(10));
    let quiet = background::Options { packets_per_second: 1_000, ..Default::default() };
    let background = Background::start(&world, quiet, stop.clone()).unwrap();
    let log = Exercise::start(&world, options, stop).unwrap().finish();
    assert!(log.failures.is_empty(), "{:?}", log.failures);
    assert_eq!(log.transfers.len(), 30);
    assert!(background.finish().unwrap() > 100);
    std::thread::sleep(Duration::from_millis(500));
    watching.order();

    let (closed, too_long) = watcher.join().unwrap().unwrap();
    assert_eq!(too_long, 0, "frames are as on a wire");
    assert_eq!(closed.len(), 30);
    for transfer in &log.transfers {
        let found = closed.iter().find(|closed| {
            closed.connection.server == transfer.server.ip()
                && closed.connection.port == transfer.server.port()
        });
        let found = found.unwrap_or_else(|| panic!("not seen: {transfer:?}"));
        assert_eq!(found.client_port, Some(transfer.client.port()));
        assert_eq!(found.connection.client, transfer.client.ip());
        assert!(found.from_syn && found.reason == Reason::Finished, "{found:?}");
        let least = transfer.bytes + found.frame_count * 54;
        assert!(found.wire_bytes >= least, "{found:?} {transfer:?}");
    }
    assert!(log.transfers.iter().any(|transfer| transfer.extended));
    assert!(log.transfers.iter().any(|transfer| transfer.upload));
}
