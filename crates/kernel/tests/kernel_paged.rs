//! Frames with bytes that are not contiguous: every form of the program reads the bytes after the linear part.
//!
//! A datagram of 40,000 bytes over loopback has its payload in pages, after 42 bytes of headers. The filter tests a
//! word of the payload; a program that reads past the linear part would find other bytes there.

use fyke_kernel::direct::Access;
use fyke_kernel::{OpenError, Options, Space, sockets};
use fyke_pass::{Instruction, Opcode, primitive};
use fyke_testkit::skip::{is_unprivileged, unless_missing};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const MARK: u32 = 0x6b65_6570;
/// Offsets from the frame's start, all after the linear part of a large datagram.
const MARKS_AT: [usize; 3] = [42, 60, 100];
const PAYLOAD_AT: usize = 42;
const SIZES: [usize; 2] = [200, 40_000];
const TIMES: u64 = 20;

#[test]
fn bytes_after_the_linear_part_are_found() {
    let best: fn() -> Access = Access::best;
    let copied: fn() -> Access = || Access::Copied;
    for (access, form) in [(best, None), (copied, None), (best, Some(best)), (best, Some(copied))] {
        let options = Options { access: access(), ..Options::default() };
        let opened = Space::open(options);
        let Some(mut space) = unless_missing(opened, OpenError::is_unavailable) else { return };
        if space.access() != access() {
            println!("skipped: programs that read frames where they are need Linux 6.17");
            continue;
        }
        let Some(tap) = unless_missing(sockets::open("lo"), is_unprivileged) else { return };
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        let passes = MARKS_AT.map(|at| {
            let ports = Instruction::new(Opcode::L1Seq, 2).with_operands(&[port.into()]).unwrap();
            let mark = Instruction::new(Opcode::DEq, at as u16).with_operands(&[MARK]).unwrap();
            space.passes().add(&[primitive::ether_ip(), with_header(ports), mark]).unwrap()
        });
        if let Some(form) = form {
            let made = space.snapshot().unwrap().specialise_with(form()).unwrap();
            assert_eq!(made.covered(), passes.len());
            if made.access() != form() {
                println!("skipped: programs that read frames where they are need Linux 6.17");
            }
            space.adopt(made).unwrap();
        }
        space.attach(tap.as_fd()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(("127.0.0.1", port)).unwrap();
        for at in MARKS_AT {
            for size in SIZES {
                send(&sender, size, at);
            }
        }
        // Each datagram passes the device twice: sent and received.
        let expected = 2 * TIMES * SIZES.len() as u64;
        let deadline = Instant::now() + Duration::from_secs(5);
        let counts = || passes.map(|pass| space.view().accepted(pass).unwrap());
        while counts().iter().any(|&count| count < expected) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(counts(), [expected; 3], "{:?}", form.map(|form| form()));
    }
}

/// Sends datagrams with the mark at one offset of the frame, and the same number with the mark next to it.
fn send(sender: &UdpSocket, size: usize, at: usize) {
    for wrong in [false, true] {
        let mut payload = vec![0; size];
        let place = at - PAYLOAD_AT + usize::from(wrong);
        payload[place..place + 4].copy_from_slice(&MARK.to_be_bytes());
        for _ in 0..TIMES {
            sender.send(&payload).unwrap();
        }
    }
}

/// Sets the start of the IPv4 header to the end of the Ethernet header.
fn with_header(mut instruction: Instruction) -> Instruction {
    instruction.params[6] = fyke_pass::layout::header_word(14);
    instruction
}
