//! A client without privilege edits a filter that was lent to it; a hostile client writes noise into it.
//!
//! The client is another instance of this program, as the user `nobody`, with a Unix socket as its standard input.
//! The lender counts with its own filter on the same device, which shows that no action of a client affects others.

use fyke_kernel::{Borrowed, Judge, Lent, OpenError, Options, Space};
use fyke_lab::net::{self, World, WorldError};
use fyke_pass::{Instruction, Opcode};
use fyke_testkit::skip::{is_unprivileged, unless_missing};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLIENT: &str = "FYKE_TEST_CLIENT";
const NOBODY: u32 = 65_534;
const PORT: u16 = 7001;
const OTHER_PORT: u16 = 7002;
const PACKETS: u64 = 2_000;
/// Offset of the UDP destination port after the Ethernet and IPv4 headers.
const PORT_AT: u16 = 36;
/// Longer than 8,192 of the slowest instructions take here.
const LONGEST_RUN_NS: u32 = 20_000_000;

fn main() {
    match std::env::var(CLIENT).as_deref() {
        Ok("honest") => honest(),
        Ok("hostile") => hostile(),
        _ => {
            let Some(world) = possible() else { return };
            an_ordinary_user_edits_and_captures_until_revoked(&world);
            noise_in_the_memory_harms_only_its_writer(&world);
            something_else_on_the_stream_is_refused();
        }
    }
}

fn possible() -> Option<World> {
    unless_missing(Space::open(Options::default()), OpenError::is_unavailable)?;
    unless_missing(World::create(1, 1), WorldError::is_refused)
}

fn to_port(port: u16) -> Instruction {
    Instruction::new(Opcode::DSeq, PORT_AT).with_operands(&[port.into()]).unwrap()
}

fn packet_socket(world: &World) -> Socket {
    let opened = world.servers.inside(|| {
        let all = Protocol::from(i32::from(0x0003_u16.to_be()));
        Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap()
    });
    opened.unwrap()
}

/// Starts a client with a filter lent to it; returns the stream to it, and the program for measured runs.
fn start(world: &World, how: &str) -> Option<(Child, UnixStream, Lent, Judge)> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new("/proc/self/exe");
    command.env(CLIENT, how).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::inherit());
    command.uid(NOBODY).gid(NOBODY);
    let child = unless_missing(command.spawn(), is_unprivileged)?;
    let space = Space::open(Options::default()).unwrap();
    let judge = space.judge().unwrap();
    let socket = packet_socket(world);
    let lent = Lent::lend(space, socket.as_fd(), &ours).unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    Some((child, ours, lent, judge))
}

fn send(world: &World) {
    let work = || {
        let sink = UdpSocket::bind((net::client_address(0), 0)).unwrap();
        for number in 0..PACKETS {
            for port in [PORT, OTHER_PORT] {
                while sink.send_to(&number.to_be_bytes(), (net::server_address(0), port)).is_err() {
                }
            }
            if number % 50 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    };
    world.clients.inside(work).unwrap();
}

fn ask(stream: &mut UnixStream) -> u8 {
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    answer[0]
}

fn an_ordinary_user_edits_and_captures_until_revoked(world: &World) {
    let Some((mut child, mut stream, mut lent, _)) = start(world, "honest") else { return };
    assert_eq!(ask(&mut stream), b'r', "the client is ready");
    send(world);
    stream.write_all(b"s").unwrap();
    assert_eq!(ask(&mut stream), b'c', "the client received its frames");
    assert_eq!(lent.tallies().accepted, PACKETS);
    lent.revoke().unwrap();
    send(world);
    stream.write_all(b"s").unwrap();
    assert_eq!(ask(&mut stream), b'n', "nothing comes after the revocation");
    assert!(child.wait().unwrap().success());
    println!("ok: {PACKETS} packets for an ordinary user, none after the revocation");
}

fn noise_in_the_memory_harms_only_its_writer(world: &World) {
    let mut own = Space::open(Options::default()).unwrap();
    let pass = own.passes().add(&[to_port(PORT)]).unwrap();
    let socket = packet_socket(world);
    own.attach(socket.as_fd()).unwrap();
    let Some((mut child, mut stream, lent, judge)) = start(world, "hostile") else { return };
    assert_eq!(ask(&mut stream), b'r', "the noise has begun");
    let mut frame = vec![0; 60];
    (frame[12], frame[13], frame[14], frame[23]) = (8, 0, 0x45, 17);
    let mut longest = 0;
    for _ in 0..3 {
        send(world);
        for _ in 0..200 {
            longest = longest.max(judge.test_run(&frame, 1).unwrap().duration_ns);
        }
    }
    stream.write_all(b"s").unwrap();
    assert!(child.wait().unwrap().success());
    println!(
        "ok: {} packets for others amid noise, longest run {longest} ns, noise reports {:?}",
        3 * PACKETS,
        lent.tallies()
    );
    assert_eq!(own.passes().accepted(pass), Some(3 * PACKETS), "the lender's own verdicts");
    assert!(longest < LONGEST_RUN_NS, "{longest} ns");
}

fn something_else_on_the_stream_is_refused() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"no greeting here").unwrap();
    let error = Borrowed::receive(&theirs).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    drop(ours);
    assert!(Borrowed::receive(&theirs).is_err());
    println!("ok: something else is refused");
}

/// Standard input is the stream to the lender.
fn lender() -> UnixStream {
    UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap())
}

fn honest() {
    let mut stream = lender();
    let mut borrowed = Borrowed::receive(&stream).unwrap();
    borrowed.passes.add(&[to_port(PORT)]).unwrap();
    let mut socket = Socket::from(borrowed.socket.try_clone().unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // Discards frames from before the first pass.
    let mut frame = [0; 2048];
    socket.set_nonblocking(true).unwrap();
    while socket.read(&mut frame).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    stream.write_all(b"r").unwrap();
    for expected in [PACKETS, 0] {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        let mut count = 0;
        while let Ok(len) = socket.read(&mut frame) {
            assert_eq!(frame[36..38], PORT.to_be_bytes(), "{len} bytes of another port");
            count += 1;
        }
        // Frames that did not fit into the queue of an ordinary user are missing.
        let fine = if expected == 0 { count == 0 } else { count > 0 && count <= expected };
        let answer: &[u8] = match (fine, expected) {
            (false, _) => b"x",
            (true, 0) => b"n",
            (true, _) => b"c",
        };
        // The filter cannot be changed by anyone, including the client.
        assert!(socket.detach_filter().is_err());
        stream.write_all(answer).unwrap();
    }
}

fn hostile() {
    let mut stream = lender();
    let mut borrowed = Borrowed::receive(&stream).unwrap();
    stream.write_all(b"r").unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut number = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut byte, end) = ([0], Instant::now() + Duration::from_secs(20));
    while stream.read(&mut byte).is_err() && Instant::now() < end {
        for _ in 0..10_000 {
            // Control words and the first slots are written more often, since they are executed.
            let (at, value) = (number(), number());
            let at = if at % 4 == 0 { at % 64 } else { at };
            borrowed.scribble(at, value);
        }
    }
}
