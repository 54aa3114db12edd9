//! Visibility delay of an edit on another processor: from before the store until the verdict there has changed.
//!
//! One thread lets the kernel evaluate the same frame without a pause. Another thread stores a row and waits until
//! the counter of the pass that uses the row increases; then it removes the row and waits for the counter of the
//! next pass. So a figure includes the store, its way to the other processor, the rest of the current run, a whole
//! run, and the way of the counter back. Both threads have a higher priority than ordinary threads if permitted,
//! because a processor that runs other work evaluates nothing.

use super::BENCH;
use crate::bench::measure::Samples;
use crate::bench::report::{Measurement, Report};
use crate::bench::{BenchError, Options, Progress};
use fyke_kernel::shape::{self, Part};
use fyke_kernel::{KernelPassId, Space};
use fyke_pass::{Instruction, Opcode, primitive};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs of the program in one system call.
const REPEAT: u32 = 200_000;
const COUNTERS_OF_A_LINE: usize = 8;
/// Maximum wait for one verdict.
const PATIENCE: Duration = Duration::from_millis(500);

/// Measures the delay at several numbers of rows.
pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: Progress,
) -> Result<(), BenchError> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        report.note("visibility needs two processors".to_owned());
        return Ok(());
    }
    let edits = if options.smoke { 20 } else { 5_000 };
    let sizes = [1_u32, 1_000, 100_000];
    for (step, size) in sizes.into_iter().enumerate() {
        progress("visibility", step, sizes.len());
        let times = match at(size, edits) {
            Ok(times) => times,
            Err(why) => {
                report.note(format!("visibility at {size} rows: {why}"));
                continue;
            }
        };
        let setting = format!("on another processor, {size} rows");
        for (case, part) in [("visible p50", 0.5), ("visible p99", 0.99)] {
            let ns = times.quantile(part);
            let one = Measurement::value(BENCH, case, "fyke-kernel", &setting, ns, "ns");
            report.push(one.runs(times.len()));
        }
    }
    Ok(())
}

fn at(size: u32, edits: usize) -> Result<Samples, String> {
    let mut space = Space::open(fyke_kernel::Options::default()).map_err(|e| e.to_string())?;
    let text = |error: fyke_kernel::KernelEditError| error.to_string();
    let passes = space.passes();
    let table = passes.rows().new_table().ok_or("no table")?;
    let shape = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
    let asking = passes.add(&[primitive::ether_ip_tcp_nonfrag(), shape]).map_err(text)?;
    // The two counters are in separate cache lines: polling one must not slow the program that writes the other.
    for _ in 0..COUNTERS_OF_A_LINE {
        let between = passes.add(&[Instruction::new(Opcode::Nop, 0).negated()]).map_err(text)?;
        passes.remove(between).map_err(text)?;
    }
    let otherwise = passes.add(&[Instruction::new(Opcode::Nop, 0)]).map_err(text)?;
    for number in 1..size {
        passes.rows().insert(table, shape::key(number, number as u16)).map_err(text)?;
    }
    let frame = frame();
    let key = shape::key(0xc0a8_fe07, 80);
    let judge = space.judge().map_err(|error| error.to_string())?;
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            on_processor(1);
            while !stop.load(Ordering::Relaxed) {
                judge.test_run(&frame, REPEAT)?;
                ready.store(true, Ordering::Relaxed);
            }
            Ok::<_, std::io::Error>(())
        });
        while !ready.load(Ordering::Relaxed) && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let editing = scope.spawn(|| {
            on_processor(0);
            let mut times = Samples::default();
            for _ in 0..edits {
                toggle(&mut space, table, key, (asking, otherwise), &mut times)?;
            }
            Ok::<_, String>(times)
        });
        let times = editing.join().map_err(|_| "the editing thread panicked".to_owned());
        stop.store(true, Ordering::Relaxed);
        let judged = running.join().map_err(|_| "the judging thread panicked".to_owned())?;
        judged.map_err(|error| error.to_string())?;
        times?
    })
}

/// Adds and removes the row, and waits each time until the other processor's verdict changes.
fn toggle(
    space: &mut Space,
    table: fyke_kernel::TableId,
    key: u64,
    (asking, otherwise): (KernelPassId, KernelPassId),
    times: &mut Samples,
) -> Result<(), String> {
    for (pass, is_in) in [(asking, true), (otherwise, false)] {
        let before = space.view().accepted(pass);
        let started = Instant::now();
        let rows = space.passes().rows();
        if is_in {
            rows.insert(table, key).map_err(|error| error.to_string())?;
        } else {
            rows.remove(table, key);
        }
        while space.view().accepted(pass) == before {
            if started.elapsed() > PATIENCE {
                return Err("the other processor does not evaluate frames".to_owned());
            }
        }
        times.push(started.elapsed().as_nanos() as f64);
    }
    Ok(())
}

/// Binds the thread to a processor and raises its priority if permitted; otherwise the figure is worse.
fn on_processor(number: usize) {
    let mut set = CpuSet::new();
    let _not_bound = set.set(number).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    let _not_first = fyke_kernel::run_before_others();
}

fn frame() -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[13], bytes[14], bytes[23]) = (8, 0, 0x45, 6);
    bytes[26..30].copy_from_slice(&[192, 168, 254, 7]);
    bytes[30..34].copy_from_slice(&[172, 16, 1, 9]);
    bytes[34..38].copy_from_slice(&[0, 80, 0x1f, 0x90]);
    bytes
}
