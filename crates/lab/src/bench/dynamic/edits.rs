//! Ten thousand edits under full load: fyke must lose nothing; libpcap loses packets while it replaces filters.
//!
//! Two threads send numbered packets as fast as they can. Every eighth is marked, and every filter accepts it. None
//! of the others is ever accepted: the edited part requires two equal words, and these packets have two different
//! ones. So the numbers of lost and wrong packets are exact: lost packets are the marked packets sent, minus those
//! received, minus those dropped because the queue was full.

use super::ways::{each_frame, packet_socket};
use crate::ftp::Stop;
use crate::net::{self, CLIENTS_DEVICE, World};
use crate::peers::libpcap_live::LiveCapture;
use fyke_frame::Frame;
use fyke_kernel::{Options, Space};
use fyke_pass::{Instruction, Opcode};
use socket2::Socket;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 20_555;
const SENDERS: usize = 2;
const MARK: u32 = 0x6b65_6570;
/// Frame offsets after the Ethernet, IPv4 and UDP headers.
const MARK_AT: u16 = 42;
const WORDS_AT: u16 = 46;
/// Pause between two edits.
const PAUSE: Duration = Duration::from_micros(100);
const SETTLE: Duration = Duration::from_millis(100);
const TIME_LIMIT: Duration = Duration::from_secs(30);
const RING_BYTES: i32 = 64 << 20;

/// Counts of the marked packets.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Outcome {
    pub edits: u64,
    pub sent: u64,
    pub marked: u64,
    pub received: u64,
    /// Packets dropped because the queue was full.
    pub queue: u64,
    pub wrong: u64,
    pub seconds: f64,
}

impl Outcome {
    /// Number of marked packets that were neither received nor counted as dropped.
    pub fn lost(&self) -> u64 {
        self.marked.saturating_sub(self.received + self.queue)
    }
}

/// Runs fyke's passes in the kernel, edited by stores.
pub(super) fn kernel(edits: u64) -> Result<Outcome, String> {
    let world = World::create(SENDERS, 1).map_err(|error| error.to_string())?;
    let mut space = Space::open(Options::default()).map_err(|error| error.to_string())?;
    let marked = Instruction::new(Opcode::DEq, MARK_AT).with_operands(&[MARK]);
    let marked = marked.map_err(|error| error.to_string())?;
    let add = |space: &mut Space, pass| space.passes().add(&[pass]).map_err(|e| e.to_string());
    let kept = add(&mut space, marked)?;
    let edited = add(&mut space, equal_words(0)?)?;
    let stop = Stop::after(TIME_LIMIT);
    let opened = world.clients.inside(move || {
        let attach =
            |socket: &Socket| space.attach(socket.as_fd()).map_err(|error| error.to_string());
        packet_socket(attach).map(|socket| (socket, space))
    });
    let (socket, mut space) = opened.map_err(|error| error.to_string())??;
    let reader = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut seen = Outcome::default();
            each_frame(&socket, &stop, |frame| {
                if let Some(frame) = frame {
                    seen.count(frame);
                }
            })?;
            Ok::<_, String>(seen)
        })
    };
    let load = Load::start(&world)?;
    let begin = Instant::now();
    for number in 0..edits {
        let instruction = equal_words(number as u32)?;
        let done = space.passes().set_instruction(edited, 0, instruction);
        done.map_err(|error| error.to_string())?;
        std::thread::sleep(PAUSE);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let (sent, marked) = load.finish()?;
    std::thread::sleep(SETTLE);
    stop.order();
    let seen = reader.join().map_err(|_| "the reader panicked")??;
    let accepted = space.passes().accepted(kept).unwrap_or(0);
    let queue = accepted.saturating_sub(seen.received);
    Ok(Outcome { edits, sent, marked, queue, seconds, ..seen })
}

/// Runs libpcap, which compiles and replaces the filter.
pub(super) fn libpcap(edits: u64) -> Result<Outcome, String> {
    let world = World::create(SENDERS, 1).map_err(|error| error.to_string())?;
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (stop, ending) = (Stop::after(TIME_LIMIT), Stop::after(TIME_LIMIT));
    let (over, done) = (stop.clone(), ending.clone());
    let capture = move || -> Result<Outcome, String> {
        let mut capture = LiveCapture::open(CLIENTS_DEVICE, RING_BYTES)?;
        capture.set_filter(&filter_text(0))?;
        let _ = ready.send(());
        let mut seen = Outcome::default();
        let show = |seen: &mut Outcome, bytes: &[u8]| {
            seen.count(&Frame::new(fyke_frame::LinkType::EN10MB, bytes));
        };
        let begin = Instant::now();
        while seen.edits < edits && !over.is_over() {
            capture.set_filter(&filter_text(seen.edits as u32 + 1))?;
            seen.edits += 1;
            let until = Instant::now() + PAUSE;
            while capture.next(|bytes| show(&mut seen, bytes))? || Instant::now() < until {}
        }
        seen.seconds = begin.elapsed().as_secs_f64();
        over.order();
        let mut last = Instant::now();
        while last.elapsed() < SETTLE || !done.is_over() {
            if capture.next(|bytes| show(&mut seen, bytes))? {
                last = Instant::now();
            }
        }
        seen.queue = capture.dropped();
        Ok(seen)
    };
    let thread = world.clients.spawn("libpcap", capture).map_err(|error| error.to_string())?;
    // If the thread fails, its sender is dropped, so this call always returns.
    let _ = is_ready.recv();
    let load = Load::start(&world)?;
    while !stop.is_over() && !thread.is_finished() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (sent, marked) = load.finish()?;
    ending.order();
    let seen = thread.join().map_err(|_| "libpcap's thread panicked")?;
    let seen = seen.map_err(|error| error.to_string())??;
    Ok(Outcome { sent, marked, ..seen })
}

impl Outcome {
    fn count(&mut self, frame: &Frame<'_>) {
        let at = usize::from(MARK_AT);
        match frame.data.get(at..at + 4) {
            Some(mark) if mark == MARK.to_be_bytes() => self.received += 1,
            _ => self.wrong += 1,
        }
    }
}

/// Creates the edited instruction: both words equal `number`.
fn equal_words(number: u32) -> Result<Instruction, String> {
    let words = [number % 2, u32::MAX, number % 2, u32::MAX];
    let instruction = Instruction::new(Opcode::DLeqM, WORDS_AT).with_operands(&words);
    instruction.map_err(|error| error.to_string())
}

/// Creates the same test for libpcap.
fn filter_text(number: u32) -> String {
    let word = number % 2;
    let (mark, words) = (MARK_AT, WORDS_AT);
    format!(
        "ether[{mark}:4] = {MARK:#x} or (ether[{words}:4] = {word} and ether[{}:4] = {word})",
        words + 4
    )
}

/// Running senders.
struct Load {
    stop: Stop,
    sent: Arc<AtomicU64>,
    marked: Arc<AtomicU64>,
    threads: Vec<JoinHandle<std::io::Result<std::io::Result<()>>>>,
    _sink: UdpSocket,
}

impl Load {
    fn start(world: &World) -> Result<Load, String> {
        let sink = world.servers.inside(|| UdpSocket::bind((net::server_address(0), PORT)));
        let sink = sink.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let (sent, marked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Stop::after(TIME_LIMIT);
        let threads = (0..SENDERS).map(|sender| {
            let (stop, sent, marked) = (stop.clone(), sent.clone(), marked.clone());
            world.clients.spawn("sender", move || send(sender, &stop, &sent, &marked))
        });
        let threads = threads.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        Ok(Load { stop, sent, marked, threads, _sink: sink })
    }

    fn finish(self) -> Result<(u64, u64), String> {
        self.stop.order();
        for thread in self.threads {
            let done = thread.join().map_err(|_| "a sender panicked")?;
            done.and_then(|done| done).map_err(|error| error.to_string())?;
        }
        Ok((self.sent.load(Ordering::Relaxed), self.marked.load(Ordering::Relaxed)))
    }
}

fn send(sender: usize, stop: &Stop, sent: &AtomicU64, marked: &AtomicU64) -> std::io::Result<()> {
    let socket = UdpSocket::bind((net::client_address(sender), 0))?;
    socket.connect((net::server_address(0), PORT))?;
    for number in 0_u32.. {
        if number.is_multiple_of(64) && stop.is_over() {
            break;
        }
        let keep = number.is_multiple_of(8);
        let word = number / 8 % 2;
        let mut payload = [0; 32];
        for (place, word) in
            payload.chunks_mut(4).zip([if keep { MARK } else { 0 }, word, 1 - word])
        {
            place.copy_from_slice(&word.to_be_bytes());
        }
        // Packets that the device's queue had no room for were not sent, so they are not counted.
        if socket.send(&payload).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
            marked.fetch_add(u64::from(keep), Ordering::Relaxed);
        }
    }
    Ok(())
}
