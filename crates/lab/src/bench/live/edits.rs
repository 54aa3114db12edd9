//! `edits`: filters that are added and removed while fyke captures at the full rate.
//!
//! Edit k adds `udp dst port P+k`. Shortly before it the sender changes all of its frames, the *probes*, to this port,
//! and stays with it until the next edit. So the probes of an edit must be rejected up to a moment, and all of them
//! accepted from then on: a gap is a frame that was lost or judged wrongly. The moment is the kernel's time stamp of
//! the first probe that was accepted; the latency counts from the moment before the request was written. The probes
//! come in batches of 16, and no latency is finer than the sender's pauses between them.
//!
//! A filter is removed when its last probe has long been handed over; removals are edits, too, so half of the edits are
//! measured. A frame is judged when the ring's block is handed over, but the kernel has rejected or kept it on arrival,
//! so the hand-over is no part of the latency.

use super::engines::{Capture, Counts, Job};
use super::traffic::{NUMBER_AT, Order, PROBE_PORT, Pattern, Probing, Sender};
use super::{BENCH, Bench};
use crate::bench::BenchError;
use crate::bench::measure::Samples;
use crate::bench::report::{Measurement, Report};
use fyke_capture::{Next, Source};
use fyke_control::{Client, Request, Response, RuntimeDir};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Time between the change of the probes and their edit, and again until the next change.
const PAUSE: Duration = Duration::from_micros(500);
/// Age at which filters are removed: longer than any ring keeps a block.
const KEPT: Duration = Duration::from_millis(500);
/// Frames of a sender that is not stopped: ten minutes.
const SECONDS: u64 = 600;

/// A frame that was captured.
#[derive(Debug, Clone, Copy)]
struct Probe {
    edit: u16,
    number: u64,
    time_ns: u64,
}

/// The requests and what was captured.
#[derive(Default)]
struct Outcome {
    /// Times before the additions, in nanoseconds since the epoch; addition k is at k - 1.
    requests: Vec<u64>,
    /// Additions and removals.
    edits: u64,
    /// Time from a request to its answer.
    answers: Samples,
    /// Edits, and the first frames that were sent for them.
    sent: Vec<(u16, u64)>,
    /// All frames that were sent.
    total: u64,
    captured: Vec<Probe>,
    counts: Counts,
}

/// Measures fyke, the only engine with edits.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<(), BenchError> {
    if !bench.engines.contains(&"fyke") {
        return Ok(());
    }
    let outcome = exchange(bench);
    let outcome = outcome.map_err(|why| BenchError::Other(format!("edits: {why}")))?;
    let found = examine(&outcome);
    let micros = |samples: &Samples, part: f64| samples.quantile(part) / 1e3;
    let setting = format!("{} edits", outcome.edits);
    for (case, value, unit) in [
        ("edits, lost", outcome.counts.lost as f64, "frames"),
        ("edits, missing or wrong", found.wrong as f64, "frames"),
        ("edits, additions without a frame", found.without as f64, "edits"),
        ("edits, latency p50", micros(&found.latencies, 0.5), "µs"),
        ("edits, latency p99", micros(&found.latencies, 0.99), "µs"),
        ("edits, answer p50", micros(&outcome.answers, 0.5), "µs"),
        ("edits, answer p99", micros(&outcome.answers, 0.99), "µs"),
    ] {
        let one = Measurement::value(BENCH, case, "fyke", &setting, value, unit);
        report.push(Measurement { accepted: Some(outcome.counts.accepted), ..one });
    }
    if outcome.counts.lost > 0 {
        let lost = outcome.counts.lost;
        report.note(format!("edits: fyke lost {lost} frames; missing frames include them"));
    }
    Ok(())
}

/// Captures while filters are added and removed.
fn exchange(bench: &Bench) -> Result<Outcome, String> {
    let text = |error: std::io::Error| error.to_string();
    let folder = bench.memory.as_ref().unwrap_or(&bench.folder);
    let file = folder.file("edits");
    let job: Job = bench.job(file.clone(), Some("udp dst port 9".to_owned()));
    let capture = Capture::start("fyke", &bench.world.servers, &job)?;
    let Capture::Process(_, running) = &capture else { return Err("no process".to_owned()) };
    let folders = [RuntimeDir::at(job.folder.join("run"))];
    let client = Client::connect_in(&folders, Some(running.id()));
    let mut client = client.map_err(|error| error.to_string())?;
    let pattern = Arc::new(Pattern::new(1, &[(0x0a01_0109, PROBE_PORT)]));
    let (rate, probe) = (bench.scale.rate, Arc::<Probing>::default());
    let order = Order::new(&pattern, rate * SECONDS, rate);
    let order = Order { probe: Some(Arc::clone(&probe)), ..order };
    let stop = Arc::clone(&order.stop);
    let sender = Sender::start(&bench.world.clients, order).map_err(text)?;
    let mut outcome = Outcome::default();
    sleep(Duration::from_millis(20));
    let edited = edit(&mut client, bench.scale.edits / 2, &probe, &mut outcome);
    sleep(Duration::from_millis(20));
    stop.store(true, Ordering::Relaxed);
    let sent = sender.finish().map_err(text)?;
    edited?;
    bench.settle("fyke");
    (outcome.sent, outcome.total) = (sent.probes, sent.frames);
    outcome.counts = capture.finish()?;
    outcome.captured = captured(&file)?;
    std::fs::remove_file(&file).map_err(text)?;
    let (file, accepted) = (outcome.captured.len() as u64, outcome.counts.accepted);
    if file != accepted {
        return Err(format!("{file} frames are in the file, but {accepted} were accepted"));
    }
    Ok(outcome)
}

/// Adds filters for the probes, and removes old ones.
fn edit(
    client: &mut Client,
    additions: u64,
    probe: &Probing,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let mut kept = VecDeque::new();
    for number in 1..=additions.min(50_000) as u16 {
        probe.number.store(number, Ordering::Relaxed);
        probe.wait();
        sleep(PAUSE);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        outcome.requests.push(now.map_err(|error| error.to_string())?.as_nanos() as u64);
        let text = format!("udp dst port {}", PROBE_PORT + number);
        let ids = call(client, Request::Add { text }, outcome)?;
        let added = Instant::now();
        kept.extend(ids.into_iter().map(|id| (id, added)));
        probe.wait();
        sleep(PAUSE);
        if let Some(&(id, _)) = kept.front().filter(|(_, added)| added.elapsed() > KEPT) {
            call(client, Request::Delete { id }, outcome)?;
            kept.pop_front();
        }
    }
    // The capture keeps the filters with probes that may still be in its ring.
    probe.number.store(0, Ordering::Relaxed);
    probe.wait();
    sleep(KEPT);
    for (id, _) in kept {
        call(client, Request::Delete { id }, outcome)?;
    }
    Ok(())
}

fn call(client: &mut Client, request: Request, outcome: &mut Outcome) -> Result<Vec<u64>, String> {
    let start = Instant::now();
    let answer = client.call(request).map_err(|error| error.to_string())?;
    outcome.answers.push(start.elapsed().as_nanos() as f64);
    outcome.edits += 1;
    match answer {
        Response::Ok { ids, .. } => Ok(ids),
        other => Err(format!("an edit was answered by {other:?}")),
    }
}

/// Reads the probes of a file.
fn captured(file: &Path) -> Result<Vec<Probe>, String> {
    let mut source = fyke_capture::open_file(file).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    loop {
        match source.next().map_err(|error| error.to_string())? {
            Next::Frames(batch, _) => {
                for frame in batch.frames() {
                    let probe = probe(frame.data, frame.timestamp_ns);
                    found.push(probe.ok_or("a captured frame is no probe")?);
                }
            }
            Next::Idle => {}
            Next::End => return Ok(found),
        }
    }
}

fn probe(data: &[u8], time_ns: u64) -> Option<Probe> {
    let port = u16::from_be_bytes(data.get(36..38)?.try_into().ok()?);
    let number = u64::from_be_bytes(data.get(NUMBER_AT..NUMBER_AT + 8)?.try_into().ok()?);
    Some(Probe { edit: port.wrapping_sub(PROBE_PORT), number, time_ns })
}

/// Findings from the captured frames.
#[derive(Default)]
struct Found {
    /// Frames that are missing after the first of their edit, doubled, out of order, or accepted by no edit.
    wrong: u64,
    /// Additions that accepted no frame.
    without: u64,
    /// Nanoseconds from the request of an addition to its first frame.
    latencies: Samples,
}

fn examine(outcome: &Outcome) -> Found {
    let mut found = Found::default();
    let ends = outcome.sent.iter().skip(1).map(|&(_, first)| first).chain([outcome.total]);
    let mut rest = &outcome.captured[..];
    for (&(edit, _), end) in outcome.sent.iter().zip(ends) {
        let len = rest.iter().take_while(|probe| probe.edit == edit).count();
        let (own, others) = rest.split_at(len);
        rest = others;
        let Some(request) = usize::from(edit).checked_sub(1) else {
            // Nothing was added yet.
            found.wrong += len as u64;
            continue;
        };
        let Some(first) = own.first() else {
            found.without += 1;
            continue;
        };
        // The last of them may be accepted twice or not at all: every number must be there once.
        found.wrong += (end - first.number).abs_diff(len as u64);
        let steps = own.windows(2).filter(|pair| pair[1].number != pair[0].number + 1);
        found.wrong += steps.count() as u64;
        if let Some(&request) = outcome.requests.get(request) {
            found.latencies.push(first.time_ns.saturating_sub(request) as f64);
        }
    }
    found.wrong += rest.len() as u64;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes 0..10 of no edit, 10..20 of edit 1 at time 1,000, 20..30 of edit 2 at time 2,000.
    fn examined(captured: &[(u16, u64)]) -> Found {
        let probe = |&(edit, number): &(u16, u64)| Probe { edit, number, time_ns: number * 100 };
        examine(&Outcome {
            requests: vec![1_000, 2_000],
            sent: vec![(0, 0), (1, 10), (2, 20)],
            total: 30,
            captured: captured.iter().map(probe).collect(),
            ..Outcome::default()
        })
    }

    #[test]
    fn every_missing_or_wrong_frame_is_seen() {
        let all: Vec<(u16, u64)> =
            (12..20).map(|n| (1, n)).chain((21..30).map(|n| (2, n))).collect();
        let good = examined(&all);
        assert_eq!((good.wrong, good.without), (0, 0));
        assert_eq!((good.latencies.quantile(0.0), good.latencies.quantile(1.0)), (100.0, 200.0));
        for missing in [1, 7, 9, 16] {
            let mut some = all.clone();
            some.remove(missing);
            assert!(examined(&some).wrong > 0, "{missing}");
        }
        let early: Vec<_> = [(0, 3)].into_iter().chain(all.clone()).collect();
        assert_eq!(examined(&early).wrong, 1);
        assert_eq!(examined(&all[..8]).without, 1);
    }
}
