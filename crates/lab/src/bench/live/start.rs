//! `start`: the time from the start of a process to the kernel's time stamp of the first frame that it captures.
//!
//! Frames arrive every 50 µs before, while and after the engine starts. It has a filter, so the time includes what
//! compiles and attaches it; for fyke also the verifier.

use super::engines::{command, ready};
use super::traffic::{Order, Pattern, Sender};
use super::world::Running;
use super::{BENCH, Bench};
use crate::bench::BenchError;
use crate::bench::measure::{Samples, engine_at};
use crate::bench::report::{Measurement, Report};
use fyke_capture::{Next, Source};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

const RATE: u64 = 20_000;
/// Frames of a sender that is not stopped: ten minutes.
const MOST: u64 = RATE * 600;

/// Measures the engines that are processes.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<(), BenchError> {
    let engines = bench.processes();
    let mut samples = vec![Samples::default(); engines.len()];
    for round in 0..bench.scale.rounds {
        for place in 0..engines.len() {
            let at = engine_at(place, round, engines.len());
            let time = first_frame(bench, engines[at]);
            let wrong = |why| BenchError::Other(format!("start, {}: {why}", engines[at]));
            samples[at].push(time.map_err(wrong)?.as_secs_f64() * 1e3);
        }
    }
    for (engine, samples) in engines.iter().zip(samples) {
        let what = "to the first frame";
        let one = Measurement::value(BENCH, "start", engine, what, samples.median(), "ms");
        report.push(one.runs(samples.len()));
    }
    Ok(())
}

fn first_frame(bench: &Bench, engine: &str) -> Result<Duration, String> {
    let pattern = Arc::new(Pattern::new(1, &[(0x0a01_0109, 53)]));
    let folder = bench.memory.as_ref().unwrap_or(&bench.folder);
    let file = folder.file("first");
    let job = bench.job(file.clone(), Some("udp port 53".to_owned()));
    let order = Order::new(&pattern, MOST, RATE);
    let stop = Arc::clone(&order.stop);
    let sender = Sender::start(&bench.world.clients, order).map_err(|error| error.to_string())?;
    sleep(Duration::from_millis(20));
    let captured = command(engine, &job).and_then(|command| {
        let begin = SystemTime::now();
        let running = Running::launch(&bench.world.servers, command)?.ready(ready(engine))?;
        bench.settle(engine);
        Ok((begin, running.stop()))
    });
    stop.store(true, Ordering::Relaxed);
    sender.finish().map_err(|error| error.to_string())?;
    let (begin, ended) = captured?;
    ended?;
    let first = first_time(&file)?;
    std::fs::remove_file(&file).map_err(|error| error.to_string())?;
    first.duration_since(begin).map_err(|_| "the first frame is older than the process".to_owned())
}

fn first_time(file: &Path) -> Result<SystemTime, String> {
    let mut source = fyke_capture::open_file(file).map_err(|error| error.to_string())?;
    loop {
        match source.next().map_err(|error| error.to_string())? {
            Next::Frames(batch, _) => {
                if let Some(frame) = batch.frames().first() {
                    return Ok(SystemTime::UNIX_EPOCH + Duration::from_nanos(frame.timestamp_ns));
                }
            }
            Next::Idle => {}
            Next::End => return Err("it captured no frame".to_owned()),
        }
    }
}
