//! A filter at an interface, in both directions, edited while packets pass; after its process is killed, nothing of
//! it is left.
//!
//! The killed process is another instance of this program, in the same network.

use fyke_kernel::{OpenError, Options, Space, Way};
use fyke_lab::net::{self, SERVERS_DEVICE, World, WorldError};
use fyke_pass::{Instruction, Opcode, primitive};
use fyke_testkit::skip::unless_missing;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "FYKE_TEST_CHILD";
const PORT: u16 = 7001;
const OTHER_PORT: u16 = 7002;
/// Offset of the UDP destination port after the Ethernet and IPv4 headers.
const PORT_AT: u16 = 36;

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    if unless_missing(Space::open(Options::dropping()), OpenError::is_unavailable).is_none() {
        return;
    }
    let world = World::create(1, 1);
    let Some(world) = unless_missing(world, WorldError::is_refused) else { return };
    let there = world.servers.inside(|| receiver(net::server_address(0))).unwrap();
    let here = world.clients.inside(|| receiver(net::client_address(0))).unwrap();
    frames_received_are_judged(&world, &here, &there);
    frames_sent_are_judged(&world, &here, &there);
    a_killed_process_leaves_nothing(&world, &here, &there);
}

/// Opens sockets at both ports.
fn receiver(address: Ipv4Addr) -> [UdpSocket; 2] {
    [PORT, OTHER_PORT].map(|port| {
        let socket = UdpSocket::bind((address, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket
    })
}

/// Returns at which of the two ports a packet arrives.
fn arrives(from: &[UdpSocket; 2], to: &[UdpSocket; 2], address: Ipv4Addr) -> [bool; 2] {
    for port in [PORT, OTHER_PORT] {
        let _dropped_on_the_way = from[0].send_to(b"x", (address, port));
    }
    [0, 1].map(|index| to[index].recv(&mut [0; 8]).is_ok())
}

/// Adds passes for ARP and for UDP to one port.
fn fill(space: &mut Space) {
    let to_port = Instruction::new(Opcode::DSeq, PORT_AT).with_operands(&[PORT.into()]).unwrap();
    space.passes().add(&[primitive::ether_arp()]).unwrap();
    space.passes().add(&[primitive::ether_ip(), to_port]).unwrap();
}

fn at_servers(world: &World, way: Way) -> Space {
    let attached = world.servers.inside(move || {
        let mut space = Space::open(Options::dropping()).unwrap();
        fill(&mut space);
        space.attach_interface(SERVERS_DEVICE, way).map(|()| space)
    });
    attached.unwrap().unwrap()
}

fn frames_received_are_judged(world: &World, here: &[UdpSocket; 2], there: &[UdpSocket; 2]) {
    let address = net::server_address(0);
    assert_eq!(arrives(here, there, address), [true, true]);
    let mut space = at_servers(world, Way::In);
    assert_eq!(arrives(here, there, address), [true, false], "one port is accepted");
    let last = space.passes().last().unwrap();
    space.passes().add_operand(last, 1, OTHER_PORT.into()).unwrap();
    assert_eq!(arrives(here, there, address), [true, true], "edited in place");
    assert!(space.tallies().accepted >= 3 && space.tallies().rejected >= 1);
    drop(space);
    assert_eq!(arrives(here, there, address), [true, true], "it was removed with its space");
    println!("ok: received frames");
}

fn frames_sent_are_judged(world: &World, here: &[UdpSocket; 2], there: &[UdpSocket; 2]) {
    let address = net::client_address(0);
    let mut space = at_servers(world, Way::Out);
    assert_eq!(arrives(there, here, address), [true, false], "one port is accepted");
    let last = space.passes().last().unwrap();
    space.passes().add_operand(last, 1, OTHER_PORT.into()).unwrap();
    assert_eq!(arrives(there, here, address), [true, true], "edited in place");
    println!("ok: sent frames");
}

fn a_killed_process_leaves_nothing(world: &World, here: &[UdpSocket; 2], there: &[UdpSocket; 2]) {
    let address = net::server_address(0);
    let started = world.servers.inside(|| {
        let mut command = Command::new("/proc/self/exe");
        command.env(CHILD, "1").stdin(Stdio::null()).spawn()
    });
    let mut child = started.unwrap().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while arrives(here, there, address) != [true, false] {
        assert!(Instant::now() < until, "the other process attaches nothing");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel removes links with their last descriptor, shortly after the process has ended.
    let until = Instant::now() + Duration::from_secs(5);
    while arrives(here, there, address) != [true, true] {
        assert!(Instant::now() < until, "the filter of a killed process still drops");
    }
    println!("ok: nothing is left of a killed process");
}

fn child() {
    let mut space = Space::open(Options::dropping()).unwrap();
    fill(&mut space);
    space.attach_interface(SERVERS_DEVICE, Way::In).unwrap();
    // Long enough to be killed, but limited.
    std::thread::sleep(Duration::from_secs(30));
}
