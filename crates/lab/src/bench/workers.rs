//! `fyke bench workers`: one, two and more workers over the same frames, up to the number of processors.
//!
//! Every worker has a reader of the same pass set and the conversations that [`FlowHash`] assigns to it, as the
//! kernel's rings or a network card's queues would ([`fyke_capture::RingSource::open_several`]). Accepted frames
//! and checksums of all workers together must equal those of one worker. Engine `fyke`: the frames are in DRAM,
//! already divided among the workers. Engine `fyke-fan`: they come from one source; its thread distributes copies
//! ([`fan_out`]); a single worker reads the source itself, without a copy.
//!
//! Per number of workers: frames per second of wall-clock time, *processor time* per frame of all threads together,
//! and frames per second *when nothing else runs*, calculated from the processor time of the busiest thread. The
//! first is the actual result; the last two are valid on a shared machine too.

use super::engine::{reader_of, words};
use super::filters::{pair_text, pairs, static_filters};
use super::frames::{Arena, Load};
use super::measure::{Samples, process_time, time_of};
use super::report::{Measurement, Report};
use super::traffic::Traffic;
use super::{BenchError, Options, Progress};
use fyke_capture::{FlowHash, MemorySource, Next, ReadError, Source, fan_out};
use fyke_filter::Predicate;
use fyke_frame::{BATCH_CAPACITY, LinkType};
use fyke_pass::Reader;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// The bench's name in reports.
pub const BENCH: &str = "workers";
const CASES: [&str; 3] = ["F5", "F6", "D1000"];
/// Engines of this bench.
pub const ENGINES: [&str; 2] = ["fyke", "fyke-fan"];

/// Size of the measurement.
struct Scale {
    frames: usize,
    bytes: usize,
    /// Number of times that each frame is evaluated in a round.
    passes: usize,
    rounds: usize,
}

/// Combined results of the workers of one round.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    wall: Duration,
    /// Processor time of all threads together; `busiest` is the largest.
    all: Duration,
    busiest: Duration,
    accepted: u64,
    checksum: u64,
}

impl Round {
    fn add(&mut self, time: Duration, accepted: u64, checksum: u64) {
        self.all += time;
        self.busiest = self.busiest.max(time);
        self.accepted += accepted;
        self.checksum = self.checksum.wrapping_add(checksum);
    }
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError::Mismatch`] if several workers accept other frames than one.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let scale = match options.smoke {
        true => Scale { frames: 2_048, bytes: 0, passes: 1, rounds: 1 },
        false => Scale { frames: 1 << 18, bytes: 128 << 20, passes: 4, rounds: 9 },
    };
    let mut report = Report::new(options);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let counts: Vec<usize> =
        [1, 2, 4, 8, 16].into_iter().filter(|&count| count <= processors.max(2)).collect();
    if processors < 2 {
        report.note("there is one processor only".to_owned());
    }
    let mut traffic = Traffic::new(options.seed);
    let mut arena = match &options.trace {
        Some(path) => Arena::from_file(path, 0)?,
        None => Arena::synthetic(&mut traffic, scale.frames, scale.bytes),
    };
    arena.repeat_to(scale.bytes);
    let cases: Vec<&str> = CASES.into_iter().filter(|case| options.wants_case(case)).collect();
    let engines: Vec<&str> = ENGINES.into_iter().filter(|one| options.wants_engine(one)).collect();
    if cases.is_empty() || engines.is_empty() {
        let there = format!("{}; {}", CASES.join(", "), ENGINES.join(", "));
        return Err(BenchError::NothingChosen { there });
    }
    for (index, case) in cases.iter().enumerate() {
        progress(case, index, cases.len());
        let reader = reader_of(LinkType::EN10MB, &texts(case, &traffic)?)?;
        for engine in &engines {
            let rounds = match *engine {
                "fyke" => shares(&scale, &reader, &arena, &counts),
                _ => fans(&scale, &reader, &arena, &counts)?,
            };
            publish(case, engine, &scale, arena.len(), &counts, &rounds, &mut report)?;
        }
    }
    progress("done", cases.len(), cases.len());
    Ok(report)
}

/// Returns the filters of a case.
fn texts(case: &str, traffic: &Traffic) -> Result<Vec<Predicate>, BenchError> {
    let texts = match case.strip_prefix('D').and_then(|size| size.parse().ok()) {
        Some(size) => pairs(traffic, size).into_iter().map(pair_text).collect(),
        None => static_filters().into_iter().filter(|one| one.0 == case).map(|one| one.1).collect(),
    };
    let texts: Vec<String> = texts;
    let compiled = texts.iter().map(|text| {
        let compiled = fyke_filter::compile(text, &fyke_filter::Options::default());
        compiled.map_err(|error| BenchError::Text { case: case.into(), message: error.to_string() })
    });
    compiled.collect()
}

/// Runs the rounds; numbers of workers take turns.
fn shares(scale: &Scale, reader: &Reader, arena: &Arena, counts: &[usize]) -> Vec<Vec<Round>> {
    let hash = FlowHash::random();
    let loads: Vec<Vec<Load>> = counts
        .iter()
        .map(|&count| {
            let mut shares = vec![Vec::new(); count];
            for number in 0..arena.len() {
                shares[hash.worker(&arena.frame(number), count)].push(number as u32);
            }
            shares.into_iter().map(|share| Load::new(arena, share)).collect()
        })
        .collect();
    let mut rounds = vec![Vec::new(); counts.len()];
    for _ in 0..=scale.rounds {
        for (shares, rounds) in loads.iter().zip(&mut rounds) {
            rounds.push(round(reader, shares, scale.passes));
        }
    }
    // The first round was a warm-up.
    rounds.iter_mut().for_each(|rounds| _ = rounds.remove(0));
    rounds
}

/// Runs one round: a thread for each share.
fn round(reader: &Reader, shares: &[Load], passes: usize) -> Round {
    let start = Barrier::new(shares.len());
    let mut sum = Round::default();
    let done: Vec<_> = thread::scope(|scope| {
        let threads = shares.iter().map(|share| {
            let (mut reader, start) = (reader.clone(), &start);
            scope.spawn(move || {
                let mut verdicts = vec![0; words(share.len())];
                start.wait();
                let begun = Instant::now();
                let time = time_of(true, || {
                    for _ in 0..passes {
                        judge(&mut reader, share, &mut verdicts);
                    }
                });
                (begun, Instant::now(), time, verdicts)
            })
        });
        let threads: Vec<_> = threads.collect();
        // A panic of a worker is a bug of ours and shows in the comparison of the answers.
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    for (share, (_, _, time, verdicts)) in shares.iter().zip(&done) {
        let (accepted, checksum) = answer(share.order(), verdicts);
        sum.add(*time, accepted, checksum);
    }
    let begun = done.iter().map(|one| one.0).min();
    let ended = done.iter().map(|one| one.1).max();
    sum.wall = begun.zip(ended).map(|(begun, ended)| ended - begun).unwrap_or_default();
    sum
}

fn judge(reader: &mut Reader, load: &Load, verdicts: &mut [u64]) {
    for (batch, words) in load.batches().iter().zip(verdicts.chunks_mut(BATCH_CAPACITY / 64)) {
        words.copy_from_slice(&reader.evaluate(batch, batch.all()).0);
    }
}

/// Number of accepted frames and a checksum of them, independent of the order of evaluation.
fn answer(order: &[u32], verdicts: &[u64]) -> (u64, u64) {
    let accepted = |place: &usize| verdicts[place / 64] >> (place % 64) & 1 == 1;
    let numbers = (0..order.len()).filter(accepted).map(|place| u64::from(order[place]));
    numbers
        .fold((0, 0), |(count, sum): (u64, u64), number| (count + 1, sum.wrapping_add(mix(number))))
}

fn mix(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// Runs the same from one source, with a thread that distributes frames.
fn fans(
    scale: &Scale,
    reader: &Reader,
    arena: &Arena,
    counts: &[usize],
) -> Result<Vec<Vec<Round>>, BenchError> {
    let failed = |error: ReadError| BenchError::Other(error.to_string());
    let mut rounds = vec![Vec::new(); counts.len()];
    let mut frames = MemorySource::new(LinkType::EN10MB);
    for number in 0..arena.len() {
        let mut frame = arena.frame(number);
        frame.timestamp_ns = number as u64;
        frames.push(&frame);
    }
    for _ in 0..=scale.rounds {
        for (&count, rounds) in counts.iter().zip(&mut rounds) {
            let source = frames.clone();
            let mut sum = Round::default();
            let (start, used) = (Instant::now(), process_time());
            if count == 1 {
                let (time, accepted, checksum) = follow(source, reader.clone()).map_err(failed)?;
                sum.add(time, accepted, checksum);
            } else {
                let shares = fan_out(source, count);
                let shares = shares.map_err(|error| BenchError::Other(error.to_string()))?;
                let threads: Vec<_> = shares
                    .into_iter()
                    .map(|share| (share, reader.clone()))
                    .map(|(share, reader)| thread::spawn(|| follow(share, reader)))
                    .collect();
                for thread in threads {
                    let ended = thread.join();
                    let ended =
                        ended.map_err(|_| BenchError::Other("a worker failed".to_owned()))?;
                    let (time, accepted, checksum) = ended.map_err(failed)?;
                    sum.add(time, accepted, checksum);
                }
            }
            sum.wall = start.elapsed();
            // The remaining processor time was used by the thread that distributes frames.
            let handing = process_time().saturating_sub(used).saturating_sub(sum.all);
            sum.add(if count == 1 { Duration::ZERO } else { handing }, 0, 0);
            rounds.push(sum);
        }
    }
    rounds.iter_mut().for_each(|rounds| _ = rounds.remove(0));
    Ok(rounds)
}

/// Evaluates the frames of a source to its end; a frame's number is its timestamp.
fn follow(mut source: impl Source, mut reader: Reader) -> Result<(Duration, u64, u64), ReadError> {
    let (mut accepted, mut checksum, mut result) = (0, 0_u64, Ok(()));
    let time = time_of(true, || {
        result = loop {
            let batch = match source.next() {
                Ok(Next::Frames(batch, _)) => batch,
                Ok(Next::Idle) => continue,
                Ok(Next::End) => break Ok(()),
                Err(error) => break Err(error),
            };
            for place in reader.evaluate(&batch, batch.all()).iter() {
                accepted += 1;
                checksum = checksum.wrapping_add(mix(batch.frames()[place].timestamp_ns));
            }
        };
    });
    result.map(|()| (time, accepted, checksum))
}

/// Compares the answers and reports the medians.
fn publish(
    case: &str,
    engine: &str,
    scale: &Scale,
    frames: usize,
    counts: &[usize],
    rounds: &[Vec<Round>],
    report: &mut Report,
) -> Result<(), BenchError> {
    let answer = |round: &Round| (round.accepted, round.checksum);
    let expected = rounds[0].first().map(answer);
    let judged = match engine {
        "fyke" => frames * scale.passes,
        _ => frames,
    };
    for (count, rounds) in counts.iter().zip(rounds) {
        if let Some(other) = rounds.iter().find(|round| Some(answer(round)) != expected) {
            let (workers, accepted) = (counts[0], expected.map_or(0, |one| one.0));
            return Err(BenchError::Other(format!(
                "{case}, {engine}: {count} workers accept {} of {frames} frames, {workers} \
                 accept {accepted}, or others",
                other.accepted
            )));
        }
        let median = |of: fn(&Round) -> Duration| {
            let mut samples = Samples::default();
            rounds.iter().for_each(|round| samples.push(of(round).as_secs_f64()));
            samples.median()
        };
        let (wall, all, busiest) =
            (median(|one| one.wall), median(|one| one.all), median(|one| one.busiest));
        let rate = |seconds: f64| judged as f64 / seconds.max(1e-9);
        let workers = if *count == 1 { "worker" } else { "workers" };
        let mut push = |what: &str, value: f64, unit: &str| {
            let setting = format!("{count} {workers}, {what}");
            let one = Measurement::value(BENCH, case, engine, &setting, value, unit);
            // Numbers beyond 2^53 are not exact in every JSON reader.
            let (accepted, checksum) = expected.map(|(n, sum)| (n, sum >> 11)).unzip();
            report.push(Measurement { accepted, checksum, ..one.runs(rounds.len()) });
        };
        push("by the clock", rate(wall) / 1e6, "Mframes/s");
        push("when nothing else runs", rate(busiest) / 1e6, "Mframes/s");
        push("processor time", all * 1e9 / judged as f64, "ns");
    }
    Ok(())
}
