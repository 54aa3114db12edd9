//! Table II of Deri's paper, as far as one machine can: two interfaces at once, one frame in 256 matches,
//! with and without a few hundred rules that match nothing.
//!
//! ```text
//!   sender ── veth ══ veth ── ring of one engine        one pair of threads for each of two interfaces
//! ```
//!
//! | engine | frames reach the ring |
//! |---|---|
//! | `af_packet` | all of them (the paper's "vanilla, none") |
//! | `fyke-tap` | those that pass the rules, on the socket |
//! | `fyke-xdp` | those that pass the rules, at XDP |
//! | `fyke-kernel` | those that the pass engine accepts, with the same rules as filters |
//! | `libpcap-jit` | those that libpcap's program accepts |
//!
//! As the paper's test program does, the matching frames that were sent on each interface are compared with those
//! that its ring got. The load is the processor time of both senders and rings: on veth, filters run in the sender. The
//! sender is the limit: a veth cannot show what XDP saves.

use super::super::live::classic_program;
use super::super::measure::{Samples, process_time};
use super::super::report::{Measurement, Report};
use super::super::traffic::Random;
use super::super::{BenchError, Options};
use super::BENCH;
use super::live::{other, passes};
use crate::net::sys::count::CountingRing;
use crate::net::sys::send::{MAX_BATCH, PacketSender};
use crate::net::{CLIENTS_DEVICE, SERVERS_DEVICE, World};
use fyke_kernel::prefilter::{Arrays, Dropper, Tap};
use fyke_table::Seed;
use fyke_table::prefilter::{Prefilter, PrefilterOptions, Rule};
use socket2::SockRef;
use std::any::Any;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Cases, by the bytes of a frame; the second has random lengths.
pub(super) const CASES: [(&str, Option<usize>); 3] =
    [("table2-64", Some(64)), ("table2-random", None), ("table2-900", Some(900))];
pub(super) const ENGINES: [&str; 5] =
    ["af_packet", "fyke-tap", "fyke-xdp", "fyke-kernel", "libpcap-jit"];
/// Rules that match no frame, in the second half of the runs.
const MORE: usize = 300;
/// One destination in this number matches.
const SHARE: u64 = 256;
/// Last byte of the matching destination.
const WANTED: u8 = 7;
/// Different frames of a sender, a multiple of [`SHARE`].
const FRAMES: usize = 1024;
/// Number of interfaces.
const INTERFACES: usize = 2;
/// Rate below which no loss is searched, frames per second on each interface.
const FLOOR: f64 = 20_000.0;

/// Measures a case with all engines.
pub(super) fn measure(
    options: &Options,
    case: &str,
    bytes: Option<usize>,
    report: &mut Report,
) -> Result<(), BenchError> {
    let worlds = (0..INTERFACES).map(|_| World::create(0, 0)).collect::<Result<Vec<_>, _>>();
    let worlds = worlds.map_err(other)?;
    let frames = Arc::new(frames(bytes, options.seed));
    let (rounds, seconds, steps) = if options.smoke { (1, 0.05, 1) } else { (3, 0.5, 5) };
    for more in [0, MORE] {
        let rules = Arc::new(rules(more, options.seed));
        for engine in ENGINES.into_iter().filter(|engine| options.wants_engine(engine)) {
            let setting = if more == 0 { "1 rule".to_owned() } else { format!("1 + {more} rules") };
            let run = |rate| run(&worlds, engine, &rules, &frames, rate, seconds);
            let mut samples: [Samples; 4] = Default::default();
            for _ in 0..rounds {
                let mut fastest = match run(0.0) {
                    Ok(ran) => ran,
                    Err(why) => {
                        report.note(format!("{case}, {setting}: without {engine}: {why}"));
                        break;
                    }
                };
                samples[0].push(fastest.rate);
                samples[1].push(fastest.load_ns);
                samples[2].push(fastest.missing as f64);
                let (mut safe, mut lossy) = (FLOOR.min(fastest.rate), fastest.rate);
                for _ in 0..if fastest.missing > 0 { steps } else { 0 } {
                    // Rates differ by factors, so the middle is the geometric one.
                    let rate = (safe * lossy).sqrt();
                    fastest = run(rate).map_err(BenchError::Other)?;
                    *if fastest.missing > 0 { &mut lossy } else { &mut safe } = rate;
                }
                if lossy > safe && samples[2].median() > 0.0 {
                    samples[3].push(lossy);
                }
            }
            if samples[3].is_empty() && !samples[0].is_empty() {
                report.note(format!(
                    "{case}, {setting}: {engine} lost nothing at the sender's limit"
                ));
            }
            let figures = [
                ("sent on each interface without a pause", "frames/s"),
                ("processor time of senders and rings", "ns/frame"),
                ("sent and matching, but not received", "frames"),
                ("first loss, on each interface", "frames/s"),
            ];
            for ((what, unit), samples) in figures.into_iter().zip(&samples) {
                if !samples.is_empty() {
                    let setting = format!("{setting}, {what}");
                    let one =
                        Measurement::value(BENCH, case, engine, &setting, samples.median(), unit);
                    report.push(one.runs(samples.len()));
                }
            }
        }
    }
    Ok(())
}

/// Frames of TCP from 10.10.10.1 to 192.168.0.0, .1, … in turn.
fn frames(bytes: Option<usize>, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let frame = |n: usize| {
        // Without the checksum of 4 bytes that a wire adds.
        let len = bytes.unwrap_or_else(|| 64 + random.below(1518 - 64 + 1)).max(64) - 4;
        let mut frame = vec![0; len];
        let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
        put(16, &(len as u16 - 14).to_be_bytes());
        put(22, &[64, 6]);
        put(26, &[10, 10, 10, 1, 192, 168, 0, n as u8]);
        put(34, &[0x9c, 0x40, 0, 80]);
        put(46, &[0x50, 0x10]);
        frame
    };
    (0..FRAMES).map(frame).collect()
}

fn rules(more: usize, seed: u64) -> Vec<Rule> {
    let mut random = Random::new(seed);
    let wanted = Rule::default().with_address([192, 168, 0, WANTED].into());
    // 240.0.0.0/4 has no hosts.
    let more = (0..more).map(|_| {
        let address = (random.number() as u32 | 0xf000_0000).to_be_bytes();
        Rule::default().with_address(address.into())
    });
    [wanted].into_iter().chain(more).collect()
}

fn text_of(rules: &[Rule]) -> String {
    let host = |rule: &Rule| Some(format!("ip host {}", rule.net()?.0));
    rules.iter().filter_map(host).collect::<Vec<_>>().join(" or ")
}

/// Result of one run.
struct Ran {
    /// Frames per second on each interface.
    rate: f64,
    load_ns: f64,
    /// Matching frames that were sent and not received, on both interfaces; for `af_packet`, all frames.
    missing: u64,
}

fn run(
    worlds: &[World],
    engine: &'static str,
    rules: &Arc<Vec<Rule>>,
    frames: &Arc<Vec<Vec<u8>>>,
    rate: f64,
    seconds: f64,
) -> Result<Ran, String> {
    let text = |error: io::Error| error.to_string();
    let stop = Arc::<AtomicBool>::default();
    let mut receivers = Vec::new();
    for world in worlds {
        receivers.push(receive(world, engine, rules, &stop)?);
    }
    let before = process_time();
    let send = |world: &World| {
        let frames = Arc::clone(frames);
        let send = move || send(&frames, rate, Duration::from_secs_f64(seconds));
        world.clients.spawn("sender", send).map_err(text)
    };
    let senders: Vec<_> = worlds.iter().map(send).collect();
    let mut sent = Vec::new();
    for sender in senders {
        let joined = sender?.join().map_err(|_| "a sender panicked".to_owned())?;
        sent.push(joined.and_then(|sent| sent).map_err(text)?);
    }
    // The queue of a veth holds a thousand frames at most.
    std::thread::sleep(Duration::from_millis(100));
    let used = process_time().saturating_sub(before);
    stop.store(true, Ordering::Relaxed);
    let mut missing = 0;
    for (receiver, (count, _)) in receivers.into_iter().zip(&sent) {
        let received = receiver.join().map_err(|_| "a ring's thread panicked".to_owned())?;
        let received = received.map_err(text)??;
        let expected = if engine == "af_packet" { *count } else { matching(*count) };
        if received > expected {
            return Err(format!("{received} received, but {expected} were sent"));
        }
        missing += expected - received;
    }
    let count: u64 = sent.iter().map(|(count, _)| count).sum();
    let took: f64 = sent.iter().map(|(_, took)| took.as_secs_f64()).sum();
    let load_ns = used.as_nanos() as f64 / count.max(1) as f64;
    Ok(Ran { rate: count as f64 / took.max(1e-9), load_ns, missing })
}

/// Matching frames among the first ones of a sender.
fn matching(count: u64) -> u64 {
    (count + SHARE - 1 - u64::from(WANTED)) / SHARE
}

/// Sends frames for a time; returns their number, and the time.
fn send(frames: &[Vec<u8>], rate: f64, time: Duration) -> io::Result<(u64, Duration)> {
    let sender = PacketSender::open(CLIENTS_DEVICE)?;
    let (begin, mut count) = (Instant::now(), 0_u64);
    while begin.elapsed() < time {
        let slices: [&[u8]; MAX_BATCH] =
            std::array::from_fn(|n| &*frames[(count as usize + n) % frames.len()]);
        match sender.send(&slices) {
            Ok(taken) => count += taken as u64,
            // The other end's queue is full: the same frames again.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
        if rate > 0.0 {
            let due = Duration::from_secs_f64(count as f64 / rate);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok((count, begin.elapsed()))
}

type Receiver = JoinHandle<io::Result<Result<u64, String>>>;

/// Starts the ring of an engine; it counts the frames that it gets until the end.
fn receive(
    world: &World,
    engine: &'static str,
    rules: &Arc<Vec<Rule>>,
    stop: &Arc<AtomicBool>,
) -> Result<Receiver, String> {
    let (ready, started) = channel();
    let (rules, stop) = (Arc::clone(rules), Arc::clone(stop));
    let count = move || count(engine, &rules, &stop, &ready);
    let receiver = world.servers.spawn("ring", count).map_err(|error| error.to_string())?;
    match started.recv() {
        Ok(()) => Ok(receiver),
        Err(_) => match receiver.join() {
            Ok(Ok(Err(why))) => Err(why),
            _ => Err("the ring does not start".to_owned()),
        },
    }
}

fn count(
    engine: &str,
    rules: &[Rule],
    stop: &AtomicBool,
    ready: &Sender<()>,
) -> Result<u64, String> {
    let text = |error: io::Error| error.to_string();
    let mut ring = CountingRing::open().map_err(text)?;
    // What filters the frames lives until the end.
    let _filter = attach(engine, rules, &ring)?;
    ring.start(SERVERS_DEVICE).map_err(text)?;
    let _is_waited_for = ready.send(());
    let mut received = 0;
    while !stop.load(Ordering::Relaxed) {
        received += ring.take(20).map_err(text)?;
    }
    Ok(received + ring.take(0).map_err(text)?)
}

fn attach(engine: &str, rules: &[Rule], ring: &CountingRing) -> Result<Box<dyn Any>, String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    match engine {
        "af_packet" => return Ok(Box::new(())),
        "libpcap-jit" => {
            let program = classic_program(&text_of(rules))?;
            SockRef::from(ring).attach_filter(&program).map_err(text)?;
            return Ok(Box::new(()));
        }
        "fyke-kernel" => {
            let space = passes(&text_of(rules)).map_err(text)?;
            space.attach(ring.as_fd()).map_err(text)?;
            return Ok(Box::new(space));
        }
        _ => {}
    }
    let mut prefilter = Prefilter::new(PrefilterOptions::default(), Seed::random());
    rules.iter().try_for_each(|rule| prefilter.add(*rule)).map_err(text)?;
    let arrays = Arrays::new(prefilter.options()).map_err(text)?;
    arrays.follow(&mut prefilter).map_err(text)?;
    if engine == "fyke-xdp" {
        let dropper = Dropper::attach(&arrays, SERVERS_DEVICE).map_err(text)?;
        return Ok(Box::new((prefilter, dropper)));
    }
    let tap = Tap::open(&arrays, 1 << 16).map_err(text)?;
    tap.attach(ring.as_fd()).map_err(text)?;
    tap.set_on(true);
    Ok(Box::new((prefilter, tap)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matching_frames_are_counted_as_they_are_sent() {
        let frames = frames(None, 3);
        for count in [0, 7, 8, 263, 264, 1000] {
            let is_match = |n: &usize| frames[n % FRAMES][33] == WANTED;
            assert_eq!((0..count).filter(is_match).count() as u64, matching(count as u64));
        }
        assert!(frames.iter().all(|frame| (60..=1514).contains(&frame.len())));
    }
}
