//! Signal handling of a running capture, as in tcpdump.
//!
//! | signal | effect |
//! |---|---|
//! | SIGINT, SIGTERM | ends the capture with its summary within a second; after that, another one ends it at once |
//! | SIGHUP | the same, unless it is ignored (nohup); `fyke serve --config` reads its policy again |
//! | SIGUSR1 | prints the counts; the capture continues |
//! | SIGUSR2 | nothing: files are flushed every tenth of a second |
//! | SIGXFSZ | nothing: the write fails, which ends the capture with its summary |
//!
//! Signals that come while a capture starts are kept ([`early`]) and have these effects once it has started.

use super::Failure;
use anyhow::Context;
use fyke_privilege::early;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time after the first signal from which another one ends the process at once. `timeout` sends its signal twice.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns a flag that becomes true when a signal tells the process to end.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    stop_on(&[SIGINT, SIGTERM, SIGHUP])
}

/// Returns a flag as [`stop_on_signals`] does; at every SIGHUP it calls `reload` instead, in a thread.
pub fn stop_or_reload(reload: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    let mut signals = Signals::new([SIGHUP]).context("cannot wait for signals")?;
    std::thread::Builder::new().name("reload".to_owned()).spawn(move || {
        for _ in signals.forever() {
            reload();
        }
    })?;
    stop_on(&[SIGINT, SIGTERM])
}

fn stop_on(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let (stop, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let heard = signals.iter().copied().filter(|signal| *signal != SIGHUP || !is_ignored(*signal));
    let heard: Vec<_> = heard.collect();
    for &signal in &heard {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&late))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut first = Signals::new(&heard).context("cannot wait for signals")?;
    let kept = early::take();
    let is_told = heard.iter().any(|signal| kept >> (signal - 1) & 1 == 1);
    if is_told {
        stop.store(true, Ordering::Relaxed);
    }
    std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        if is_told || first.forever().next().is_some() {
            std::thread::sleep(PATIENCE);
            late.store(true, Ordering::Relaxed);
        }
    })?;
    let unused = Arc::new(AtomicBool::new(false));
    for signal in [SIGUSR2, SIGXFSZ] {
        signal_hook::flag::register(signal, Arc::clone(&unused))?;
    }
    Ok(stop)
}

/// Sets the flag when standard input ends or cannot be read.
pub fn stop_at_end_of_input(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let stop = Arc::clone(stop);
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let _ended = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.store(true, Ordering::Relaxed);
    })?;
    Ok(())
}

/// Prints counts on standard error at every SIGUSR1.
pub fn report_on_signal(counts: impl Fn() -> String + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGUSR1]).context("cannot wait for signals")?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            note!("{}", counts().trim_end());
        }
    })?;
    Ok(())
}

/// Signals that the parent process had set to be ignored, one bit each.
static IGNORED: OnceLock<u64> = OnceLock::new();

/// Reads and stores the ignored signals, for a process that cannot read them later.
pub fn look() {
    IGNORED.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    });
}

/// True if the parent process had set this signal to be ignored.
pub fn is_ignored(signal: i32) -> bool {
    look();
    IGNORED.get().is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
