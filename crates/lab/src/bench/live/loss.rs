//! `first-loss`: the lowest rate at which an engine loses frames, by bisection with a bounded number of steps.
//!
//! Every frame is written to `/dev/null`, with the engine's own default sizes. The first step sends without a pause; an
//! engine that loses nothing then has no first loss on this machine. A shared machine makes single runs vary, so the
//! figure is the median of three searches.

use super::engines::{Capture, Counts};
use super::traffic::{Order, Pattern, Sent, send_all};
use super::{BENCH, Bench};
use crate::bench::BenchError;
use crate::bench::measure::Samples;
use crate::bench::report::{Measurement, Report};
use std::sync::Arc;

/// Frames per second that every engine is expected to survive; the search ends there.
const FLOOR: f64 = 20_000.0;
/// Upper bound of the rate without a pause; it only bounds the number of frames of the first step.
const FASTEST: f64 = 2_000_000.0;
const SEARCHES: usize = 3;

/// Measures all engines.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<(), BenchError> {
    let searches = SEARCHES.min(bench.scale.rounds);
    for &engine in bench.engines.iter().filter(|engine| **engine != "none") {
        let (mut first, mut reached, mut unlossy) = (Samples::default(), Samples::default(), 0);
        for _ in 0..searches {
            let found = search(bench, engine);
            let found =
                found.map_err(|why| BenchError::Other(format!("first-loss, {engine}: {why}")))?;
            reached.push(found.reached);
            match found.first {
                Some(rate) => first.push(rate),
                None => unlossy += 1,
            }
        }
        let mut push = |setting: &str, value: f64, runs| {
            let one = Measurement::value(BENCH, "first-loss", engine, setting, value, "frames/s");
            report.push(one.runs(runs));
        };
        push("sent without a pause", reached.median(), searches);
        if !first.is_empty() {
            push("first loss", first.median(), first.len());
        }
        if unlossy > 0 {
            report.note(format!(
                "first-loss: {engine} lost nothing at the sender's limit in {unlossy} of {searches} \
                 searches"
            ));
        }
    }
    Ok(())
}

struct Found {
    /// Rate of the sender without a pause.
    reached: f64,
    /// Lowest rate with losses; `None` if there was none.
    first: Option<f64>,
}

fn search(bench: &Bench, engine: &'static str) -> Result<Found, String> {
    let seconds = bench.scale.loss_seconds;
    let (sent, lost) = step(bench, engine, 0, (FASTEST * seconds / 2.0) as u64)?;
    let reached = sent.rate();
    if lost == 0 {
        return Ok(Found { reached, first: None });
    }
    let (mut safe, mut lossy) = (FLOOR.min(reached), reached);
    for _ in 0..bench.scale.loss_steps {
        // Rates differ by factors, so the middle is the geometric one.
        let rate = (safe * lossy).sqrt();
        let (_, lost) = step(bench, engine, rate as u64, (rate * seconds) as u64)?;
        if lost > 0 { lossy = rate } else { safe = rate }
    }
    Ok(Found { reached, first: Some(lossy) })
}

/// Runs an engine once at a rate; returns what was sent and lost.
fn step(bench: &Bench, engine: &'static str, rate: u64, count: u64) -> Result<(Sent, u64), String> {
    let pattern = Arc::new(Pattern::new(1, &[(0x0a01_0109, 53)]));
    let job = bench.job("/dev/null".into(), None);
    let capture = Capture::start(engine, &bench.world.servers, &job)?;
    let sent = send_all(&bench.world.clients, Order::new(&pattern, count.max(1), rate));
    let sent = sent.map_err(|error| error.to_string())?;
    bench.settle(engine);
    let Counts { accepted, lost } = capture.finish()?;
    // The queue between the ends of the pair drops frames that no engine has seen.
    let dropped = sent.frames.saturating_sub(accepted + lost);
    Ok((sent, lost + dropped))
}
