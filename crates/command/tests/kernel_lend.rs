//! `fyke lend`: a filter for a client over a Unix socket, revoked when fyke ends; other users are refused.

use fyke_kernel::{Borrowed, OpenError, Options, Space};
use fyke_lab::net::{self, World, WorldError};
use fyke_pass::{Instruction, Opcode};
use fyke_testkit::skip::unless_missing;
use socket2::Socket;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PORT: u16 = 7001;

fn lend(world: &World, socket: &Path, user: Option<&str>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.args(["lend", "-i", net::SERVERS_DEVICE, "--clients", "1"]).arg(socket);
    if let Some(user) = user {
        command.args(["--user", user]);
    }
    world.servers.inside(move || command.spawn().unwrap()).unwrap()
}

fn connect(socket: &PathBuf) -> UnixStream {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "nobody listens: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Counts the frames of both ports that reach the client.
fn received(world: &World, socket: &mut Socket) -> usize {
    let work = || {
        let sender = UdpSocket::bind((net::client_address(0), 0)).unwrap();
        for port in [PORT, PORT + 1] {
            while sender.send_to(b"x", (net::server_address(0), port)).is_err() {}
        }
    };
    world.clients.inside(work).unwrap();
    let mut frame = [0; 2048];
    std::iter::from_fn(|| socket.read(&mut frame).ok()).count()
}

#[test]
fn a_filter_is_lent_to_a_client_until_fyke_ends() {
    if unless_missing(Space::open(Options::default()), OpenError::is_unavailable).is_none() {
        return;
    }
    let world = World::create(1, 1);
    let Some(world) = unless_missing(world, WorldError::is_refused) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lend.sock");
    let mut fyke = lend(&world, &path, None);
    let stream = connect(&path);
    let mut borrowed = Borrowed::receive(&stream).unwrap();
    let to_port = Instruction::new(Opcode::DSeq, 36).with_operands(&[PORT.into()]).unwrap();
    borrowed.passes.add(&[to_port]).unwrap();
    let mut socket = Socket::from(borrowed.socket.try_clone().unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while socket.read(&mut [0; 2048]).is_ok() {}
    assert_eq!(received(&world, &mut socket), 1);
    let second = connect(&path);
    assert!(Borrowed::receive(&second).is_err(), "one client is the limit");
    Command::new("kill").arg(fyke.id().to_string()).status().unwrap();
    assert!(fyke.wait().unwrap().success());
    assert_eq!(received(&world, &mut socket), 0, "taken back");
    assert!(!path.exists());
}

/// While fyke runs, the owner of the parent puts another folder in the place of the one with the socket.
#[test]
fn only_the_socket_itself_is_removed_when_its_folder_is_exchanged() {
    if unless_missing(Space::open(Options::default()), OpenError::is_unavailable).is_none() {
        return;
    }
    let world = World::create(1, 1);
    let Some(world) = unless_missing(world, WorldError::is_refused) else { return };
    let folder = tempfile::tempdir().unwrap();
    let [there, moved] = ["there", "moved"].map(|name| folder.path().join(name));
    std::fs::create_dir(&there).unwrap();
    let path = there.join("lend.sock");
    let mut fyke = lend(&world, &path, None);
    drop(connect(&path));
    std::fs::rename(&there, &moved).unwrap();
    std::fs::create_dir(&there).unwrap();
    std::fs::write(&path, "precious").unwrap();
    Command::new("kill").arg(fyke.id().to_string()).status().unwrap();
    assert!(fyke.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    assert!(!moved.join("lend.sock").exists());
}
