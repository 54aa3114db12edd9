//! The demonstration without a wire: the same traffic from memory, because namespaces are refused.
//!
//! All parts are the same except the source. The recording is the generated traffic itself.

use super::fyke_way::{FykeWay, Settings};
use super::live::{fyke_side, limits, old_side, read_again};
use super::old_way::OldWay;
use super::tally::Tally;
use super::{DemoError, Mode, Options, Outcome, synthetic};
use crate::ftp::Log;
use fyke_capture::{Next, Source};

pub(super) fn run(options: Options, reason: String) -> Result<Outcome, DemoError> {
    let traffic = || synthetic::generate(&options.ftp(), &options.background());
    let mut synthetic = traffic();
    let log = Log { transfers: std::mem::take(&mut synthetic.transfers), failures: Vec::new() };
    let settings = Settings {
        limits: limits(),
        skip_edit: options.skip_edit,
        write: options.write.as_deref(),
        live: false,
        below: None,
    };
    let captured = FykeWay::new(&settings)?.capture(Box::new(synthetic.source), || ())?;
    let recording = recording(&mut traffic().source)?;
    let (old, no_old_way) = match options.old_way.then(|| OldWay::new(limits())) {
        None => (None, None),
        Some(Err(reason)) => (None, Some(reason)),
        Some(Ok(mut old)) => {
            let replayed = old.replay(&mut traffic().source);
            replayed.map_err(|message| DemoError::Part { part: "the old way", message })?;
            (Some(old), None)
        }
    };
    let written = options.write.as_deref().map(read_again).transpose()?;
    let mut outcome = Outcome {
        mode: Mode::Memory { reason },
        duration: synthetic.duration,
        accounting: captured.counts,
        placement: None,
        skipped: captured.results.skipped,
        fyke: fyke_side(&recording, captured, &log),
        old_way: old.map(|old| old_side(&recording, old, &log)),
        no_old_way,
        written,
        problems: Vec::new(),
        options: options.clone(),
    };
    outcome.judge(&log.failures, 0);
    Ok(outcome)
}

fn recording(source: &mut dyn Source) -> Result<Tally, DemoError> {
    let mut tally = Tally::default();
    loop {
        match source.next().map_err(|error| DemoError::part("recording", error))? {
            Next::Frames(batch, _) => {
                for frame in batch.frames() {
                    tally.count(frame);
                }
            }
            Next::Idle => {}
            Next::End => return Ok(tally),
        }
    }
}
