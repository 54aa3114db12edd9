//! Cost of look-back: new evaluation of the frames that a source still holds, and a check that no frame is missed.
//!
//! All frames have been evaluated and rejected when an edit adds a filter that some of them match. The frames that
//! the source holds are then put into batches and evaluated, as the graph's filter does it. Measured: nanoseconds
//! per held frame, including the time to put it into a batch, and *missed*: frames that the new filter accepts but
//! look-back did not find.

use super::super::measure::{Samples, time_of};
use super::super::report::{Measurement, Report};
use super::super::{BenchError, frames::Arena};
use super::{BENCH, predicate, refused};
use fyke_capture::{LookBack, MemorySource, Next, Source};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_pass::{PassSet, Reader};

const TEXT: &str = "tcp port 443";

/// Measures with a set that already has its rows.
pub(super) fn measure(
    case: &str,
    mut set: PassSet,
    arena: &Arena,
    rounds: usize,
    report: &mut Report,
) -> Result<(), BenchError> {
    let text = predicate(TEXT)?;
    let mut samples = Samples::default();
    let (mut missed, mut held) = (0, 0);
    for _ in 0..rounds {
        let mut source = MemorySource::new(LinkType::EN10MB);
        (0..arena.len()).for_each(|number| source.push(&arena.frame(number)));
        source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
        source.look_back(arena.len() as u64);
        let mut reader = set.reader();
        let mut rejected = vec![false; arena.len() + 1];
        loop {
            match source.next().map_err(|error| BenchError::Other(error.to_string()))? {
                Next::Frames(batch, back) => {
                    let accepted = reader.evaluate(&batch, batch.all());
                    for place in batch.all().without(accepted).iter() {
                        rejected[batch.first_sequence as usize + place] = true;
                    }
                    if batch.first_sequence as usize + batch.len() <= arena.len() {
                        continue;
                    }
                    // The edit comes after the last frame.
                    let mut edit = set.edit();
                    let id = edit.add_filter(&text).map_err(refused)?;
                    edit.commit();
                    reader.refresh();
                    let mut found = 0;
                    let time = time_of(false, || found = look_back(&mut reader, &back, &rejected));
                    let wanted = (0..batch.first_sequence as usize)
                        .filter(|&number| rejected[number] && text.accepts(&arena.frame(number)));
                    held = batch.first_sequence as usize;
                    missed += wanted.count() - found;
                    samples.push(time.as_nanos() as f64 / held as f64);
                    let mut edit = set.edit();
                    edit.remove_filter(id).map_err(refused)?;
                    edit.commit();
                }
                Next::Idle => {}
                Next::End => break,
            }
        }
    }
    let setting = format!("look-back over {held} frames");
    let one = Measurement::per_packet(BENCH, case, "fyke", &setting, samples.median());
    report.push(one.runs(samples.len()));
    let setting = format!("{setting}: missed");
    let one = Measurement::value(BENCH, case, "fyke", &setting, missed as f64, "frames");
    report.push(one.runs(samples.len()));
    Ok(())
}

/// Evaluates held frames that were rejected; returns how many are accepted now.
fn look_back(reader: &mut Reader, back: &LookBack<'_>, rejected: &[bool]) -> usize {
    let (mut found, mut batch) = (0, Batch::new());
    let mut judge = |batch: &mut Batch| {
        found += reader.evaluate(batch, batch.all()).count();
        batch.clear();
    };
    for (sequence, frame) in back.frames() {
        if rejected[sequence as usize]
            && let Err(frame) = batch.push(frame)
        {
            judge(&mut batch);
            // The batch has room now.
            let _ = batch.push(frame);
        }
    }
    judge(&mut batch);
    found
}
