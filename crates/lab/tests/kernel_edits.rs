//! Passes edited by stores while real frames arrive: no half-written pass is ever executed, and other passes are
//! not affected.
//!
//! Two threads send numbered UDP packets over a veth pair as fast as they can, a packet socket on the other end
//! runs passes in the kernel, a fourth thread edits. The sender determines the correct verdict of each packet:
//!
//! | packet | fields | verdict |
//! |---|---|---|
//! | every eighth | marked `KEEP` | accepted, by the pass that is never edited |
//! | all others | two different words | rejected: the edited pass requires two equal words, whatever their value |
//!
//! A torn edit would require two different words for a moment. The last test makes torn edits and must detect them.

use fyke_kernel::{KernelPassId, OpenError, Options, Space, Tuner};
use fyke_lab::net::{self, World, WorldError};
use fyke_pass::{Instruction, Opcode};
use fyke_testkit::skip::unless_missing;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::RefCell;
use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PORT: u16 = 20_555;
const KEEP: u32 = 0x6b65_6570;
const SENDERS: u32 = 2;
/// Frame offsets after the Ethernet, IPv4 and UDP headers.
const SENDER_AT: usize = 42;
const NUMBER_AT: usize = 46;
const MARK_AT: usize = 50;
const WORDS_AT: usize = 54;

struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    kept: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<std::io::Result<()>>>,
}

fn send(world: &World) -> Traffic {
    let (sent, kept) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let threads = (0..SENDERS)
        .map(|sender| {
            let (stop, sent, kept) = (stop.clone(), sent.clone(), kept.clone());
            let work = move || {
                // On a processor of its own, because each has a queue of frames: a sender that moves to another one
                // may overtake itself.
                let mut own = CpuSet::new();
                let _stays = own
                    .set(sender as usize)
                    .and_then(|()| sched_setaffinity(Pid::from_raw(0), &own));
                let socket = UdpSocket::bind((net::client_address(sender as usize), 0)).unwrap();
                socket.connect((net::server_address(0), PORT)).unwrap();
                // Frames sent before the neighbour's address is known wait for it, and later ones overtake them. This
                // frame is too short for every pass.
                socket.send(&[]).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                let mut payload = [0; 32];
                for number in 0_u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let keep = number.is_multiple_of(8);
                    let (mark, word) = (if keep { KEEP } else { 0 }, number / 8 % 2);
                    let words = [sender, number, mark, word, 1 - word];
                    for (place, word) in payload.chunks_mut(4).zip(words) {
                        place.copy_from_slice(&word.to_be_bytes());
                    }
                    if socket.send(&payload).is_ok() {
                        sent.fetch_add(1, Ordering::Relaxed);
                        kept.fetch_add(u64::from(keep), Ordering::Relaxed);
                    }
                }
            };
            world.clients.spawn("sender", work).unwrap()
        })
        .collect();
    Traffic { stop, sent, kept, threads }
}

/// Frames received.
#[derive(Default)]
struct Seen {
    kept: u64,
    /// Numbers that did not increase: frames delivered twice or late.
    out_of_order: u64,
    wrong: u64,
}

fn receive(mut socket: Socket, done: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut last = [None; SENDERS as usize];
    let mut frame = [0; 2048];
    while let Ok(len) = read(&mut socket, &mut frame, done) {
        if len < WORDS_AT + 8 {
            seen.wrong += 1;
            continue;
        }
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        if word(MARK_AT) != KEEP {
            seen.wrong += 1;
            continue;
        }
        seen.kept += 1;
        let last = &mut last[word(SENDER_AT) as usize];
        seen.out_of_order += u64::from(last.is_some_and(|last| word(NUMBER_AT) <= last));
        *last = Some(word(NUMBER_AT));
    }
    seen
}

/// Reads a frame; an error if no more frames come.
fn read(socket: &mut Socket, frame: &mut [u8], done: &AtomicBool) -> std::io::Result<usize> {
    loop {
        let was_done = done.load(Ordering::Acquire);
        match socket.read(frame) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !was_done => {}
            other => return other,
        }
    }
}

/// The edited pass: the two words are equal to `value`.
fn equal_words(value: u32) -> Instruction {
    let words = [value, u32::MAX, value, u32::MAX];
    Instruction::new(Opcode::DLeqM, WORDS_AT as u16).with_operands(&words).unwrap()
}

struct Outcome {
    seen: Seen,
    sent: u64,
    kept: u64,
    kept_in_kernel: u64,
    edits: u64,
}

/// Runs traffic for a while and edits the second pass repeatedly; `None` if there is no kernel space.
fn exercise(
    limit: Duration,
    edit: impl Fn(&mut Space, BorrowedFd<'_>, KernelPassId, Instruction),
    enough: impl Fn(&Space) -> bool,
) -> Option<Outcome> {
    let world = unless_missing(World::create(SENDERS as usize, 1), WorldError::is_refused)?;
    let mut space = unless_missing(Space::open(Options::default()), OpenError::is_unavailable)?;
    let keep = Instruction::new(Opcode::DEq, MARK_AT as u16).with_operands(&[KEEP]).unwrap();
    let keep = space.passes().add(&[keep]).unwrap();
    let edited = space.passes().add(&[equal_words(0)]).unwrap();
    let opened = world.servers.inside(|| {
        let all = Protocol::from(i32::from(0x0003_u16.to_be()));
        let sink = UdpSocket::bind((net::server_address(0), PORT)).unwrap();
        (Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap(), sink)
    });
    let (socket, _sink) = opened.unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let _smaller_is_fine = socket.set_recv_buffer_size(16 << 20);
    space.attach(socket.as_fd()).unwrap();
    let same = socket.try_clone().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let receiver = {
        let done = done.clone();
        std::thread::spawn(move || receive(socket, &done))
    };
    let traffic = send(&world);
    let (started, mut edits) = (Instant::now(), 0);
    while started.elapsed() < limit && !enough(&space) {
        for value in 0..2 {
            edit(&mut space, same.as_fd(), edited, equal_words(value));
            edits += 1;
        }
    }
    traffic.stop.store(true, Ordering::Relaxed);
    for thread in traffic.threads {
        thread.join().unwrap().unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    done.store(true, Ordering::Release);
    let seen = receiver.join().unwrap();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Some(Outcome {
        seen,
        sent: count(&traffic.sent),
        kept: count(&traffic.kept),
        kept_in_kernel: space.passes().accepted(keep).unwrap(),
        edits,
    })
}

#[test]
fn edits_under_full_load_tear_nothing_and_disturb_no_other_pass() {
    let edit = |space: &mut Space, _: BorrowedFd<'_>, id, instruction| {
        space.passes().set_instruction(id, 0, instruction).unwrap();
    };
    let Some(outcome) = exercise(Duration::from_secs(3), edit, |_| false) else { return };
    println!(
        "{} edits, {} packets, {} to keep, {} read (the queue had no room for the others)",
        outcome.edits, outcome.sent, outcome.kept, outcome.seen.kept
    );
    assert!(outcome.edits > 10_000 && outcome.kept > 1_000);
    assert_eq!(outcome.kept_in_kernel, outcome.kept, "frames of the pass that was not edited");
    assert_eq!(outcome.seen.wrong, 0, "frames accepted by a pass that was never written");
    assert_eq!(outcome.seen.out_of_order, 0);
}

/// Bursts of edits. After each burst the passes are stable for a moment and become a generated program, and they
/// are edited again while that program runs.
#[test]
fn specialised_programs_come_and_go_under_full_load_without_a_gap() {
    let tuner = RefCell::new(Tuner::after(Duration::from_millis(1)));
    let (count, swaps, whole) = (RefCell::new(0_u32), RefCell::new(0_u32), RefCell::new(0_u32));
    let edit = |space: &mut Space, socket: BorrowedFd<'_>, id, instruction| {
        space.passes().set_instruction(id, 0, instruction).unwrap();
        *count.borrow_mut() += 1;
        if !count.borrow().is_multiple_of(50) {
            return;
        }
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            if tuner.borrow_mut().step(space, &[socket]).unwrap() {
                *swaps.borrow_mut() += 1;
                assert!(space.is_specialised());
                // Passes edited during the generation of the program are interpreted after it.
                *whole.borrow_mut() += u32::from(space.view().interpreted() == 0);
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        // Some edits occur while the new program runs, some while the interpreter runs after it.
        std::thread::sleep(Duration::from_millis(2));
    };
    let Some(outcome) = exercise(Duration::from_secs(4), edit, |_| false) else { return };
    let (swaps, refused) = (swaps.into_inner(), tuner.into_inner());
    println!(
        "{swaps} programs swapped in, {} edits, {} packets, {} to keep",
        outcome.edits, outcome.sent, outcome.kept
    );
    assert_eq!(refused.refused(), None);
    if cfg!(target_arch = "x86_64") {
        assert!(swaps > 5 && whole.into_inner() > 0, "{swaps} swaps");
    }
    assert_eq!(outcome.kept_in_kernel, outcome.kept, "frames of the pass that was not edited");
    assert_eq!(outcome.seen.wrong, 0, "frames accepted by a pass that was never written");
    assert_eq!(outcome.seen.out_of_order, 0);
}

#[test]
fn a_torn_publish_is_seen_by_the_same_test() {
    let edit = |space: &mut Space, _: BorrowedFd<'_>, id, instruction| {
        space.passes().tear(id, 0, instruction, std::hint::spin_loop).unwrap();
    };
    let Some(outcome) = exercise(Duration::from_secs(3), edit, |_| false) else { return };
    println!("{} torn edits, {} frames wrongly accepted", outcome.edits, outcome.seen.wrong);
    assert!(outcome.seen.wrong > 0, "torn edits went unnoticed: the test could not fail");
}
