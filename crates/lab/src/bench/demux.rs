//! `fyke bench demux`: Tables 4 and 5 and Figures 6 and 7 of the MPF paper, on a current machine, beyond 100
//! sessions.
//!
//! The programs are the paper's: Figure 3 (MPF), Appendix A (BPF), Appendix C (CSPF); `pass` is the same set of
//! sessions as filter texts in a pass set. All engines get the same TCP packets with 10 bytes of data; source
//! addresses and ports are consecutive; hits are uniform over the sessions, and one packet in four has one key that
//! matches no session. Engines must deliver the same number of packets before anything is timed. Unlike the paper,
//! the bench continues up to 100,000 sessions, and `among others` adds three programs of other protocols.
//!
//! All engines and all numbers of sessions have a turn of a few milliseconds in each round, so that ratios are
//! valid on a busy machine too. A turn continues in the load at the position where the engine's last one stopped.
//! Engines that test every session in turn are measured up to `MOST_LINEAR`.
//!
//! | module | purpose |
//! |---|---|
//! | `session` | keys, packets, programs |
//! | `engine` | the engines |
//! | `table4` | cost of a packet by sessions, warm and cold |
//! | `install` | Figures 6 and 7 |

mod engine;
mod install;
mod session;
mod table4;

use super::measure::{Samples, Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};
use engine::Engine;
use fyke_frame::Batch;
use session::{Load, Session};
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The paper's numbers of sessions.
const PAPER_SESSIONS: &[usize] = &[1, 2, 6, 10, 20, 40, 60, 80, 100];
/// Larger numbers of sessions, which the paper does not have.
const MORE_SESSIONS: &[usize] = &[1_000, 10_000, 100_000];
/// Maximum number of sessions for engines with linear cost.
const MOST_LINEAR: usize = 1_000;
/// Maximum number of sessions with equal sums, which the additive hash stores in one list.
const MOST_EQUAL: usize = 10_000;
/// Table 5 of the paper, milliseconds, warm: all sessions in one bucket.
const TABLE_5: [f64; 9] = [0.035, 0.035, 0.038, 0.042, 0.051, 0.061, 0.106, 0.150, 0.173];

/// Engines of Table 4, of Table 5, and of Figures 6 and 7, which measure installation.
pub const ENGINES: [&[&str]; 3] = [table4::ENGINES, TABLE_5_ENGINES, install::ENGINES];
const TABLE_5_ENGINES: &[&str] = &["mpf-sum", "mpf", "mpf-batch", "mpf-jit-batch"];

type Case = fn(&Options, &mut Report) -> Result<(), BenchError>;

/// Runs the bench.
///
/// # Errors
/// If engines disagree, or if the selection is empty.
pub fn run(options: &Options, progress: Progress<'_>) -> Result<Report, BenchError> {
    let cases: [(&str, Case); 4] = [
        ("table4", table4::run),
        ("table5", table_5),
        ("fig6", install::figure_6),
        ("fig7", install::figure_7),
    ];
    let mut report = Report::new(options);
    let mut chosen = false;
    for (step, (name, case)) in cases.iter().enumerate() {
        if options.wants_case(name) {
            progress(name, step, cases.len());
            case(options, &mut report)?;
            chosen = true;
        }
    }
    if !chosen {
        let there = cases.map(|(name, _)| name).join(", ");
        return Err(BenchError::NothingChosen { there });
    }
    Ok(report)
}

fn session_counts(options: &Options) -> Vec<usize> {
    match options.smoke {
        true => vec![1, 10, 100],
        false => PAPER_SESSIONS.iter().chain(MORE_SESSIONS).copied().collect(),
    }
}

/// Returns the selected engines that can be measured with `count` sessions.
fn engines(options: &Options, count: usize, with: &[&'static str]) -> Vec<&'static str> {
    let linear = |name: &&str| name.starts_with("bpf") || name.starts_with("cspf");
    let sensible = with.iter().copied().filter(|name| count <= MOST_LINEAR || !linear(name));
    sensible.filter(|name| options.wants_engine(name)).collect()
}

/// An engine with its sessions, and its load.
struct Contestant<'l> {
    name: &'static str,
    sessions: usize,
    setting: String,
    engine: Engine,
    batches: Rc<[Batch<'l>]>,
    /// The next batch.
    next: usize,
}

impl<'l> Contestant<'l> {
    /// Warm-up time before each turn, and duration of a turn.
    const TURN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(3));
    /// Number of batches for the comparison of engines.
    const COMPARED: usize = 4;

    fn new(
        name: &'static str,
        sessions: &[Session],
        others: bool,
        setting: &str,
        batches: &Rc<[Batch<'l>]>,
    ) -> Result<Self, BenchError> {
        Ok(Contestant {
            name,
            sessions: sessions.len(),
            setting: setting.to_owned(),
            engine: Engine::new(name, sessions, others)?,
            batches: batches.clone(),
            next: 0,
        })
    }

    /// Counts the packets delivered from the first few batches.
    fn delivered(&mut self) -> u64 {
        let few = Self::COMPARED.min(self.batches.len());
        self.engine.run(&self.batches[..few])
    }

    /// Continues in the load for at least this duration.
    fn go_on(&mut self, duration: Duration) -> Turn {
        let mut units = 0;
        let time = time_of(true, || {
            let start = Instant::now();
            loop {
                let batch = &self.batches[self.next..=self.next];
                units += batch[0].len();
                black_box(self.engine.run(batch));
                self.next = (self.next + 1) % self.batches.len();
                if start.elapsed() >= duration {
                    return;
                }
            }
        });
        Turn { time, units }
    }

    fn turn(&mut self, smoke: bool) -> Turn {
        let (before, measured) = if smoke { Default::default() } else { Self::TURN };
        self.go_on(before);
        self.go_on(measured)
    }
}

/// Gives all engines their turns; adds each engine's nanoseconds per packet to the report.
fn contest(
    case: &str,
    contestants: &mut [Contestant<'_>],
    options: &Options,
    report: &mut Report,
) -> Result<Vec<Samples>, BenchError> {
    let delivered: Vec<u64> = contestants.iter_mut().map(Contestant::delivered).collect();
    let said = contestants.iter().zip(&delivered);
    let said: Vec<_> = said.map(|(one, &count)| (&*one.setting, one.name, count)).collect();
    agree(case, &said)?;
    let count = contestants.len();
    let wanted = if options.smoke { 1 } else { 15 };
    let turn = |contestants: &mut &mut [Contestant<'_>], number: usize| {
        contestants[number].turn(options.smoke)
    };
    let samples = rounds(&mut &mut *contestants, count, wanted, |_| {}, turn);
    for ((one, samples), delivered) in contestants.iter().zip(&samples).zip(delivered) {
        push(report, case, one, samples, Some(delivered));
    }
    Ok(samples)
}

fn push(
    report: &mut Report,
    case: &str,
    who: &Contestant<'_>,
    samples: &Samples,
    accepted: Option<u64>,
) {
    let median = samples.median();
    let mut one = Measurement::per_packet("demux", case, who.name, &who.setting, median);
    one.accepted = accepted;
    report.push(one.runs(samples.len()));
}

/// Checks that the engines of one setting deliver the same number of packets.
fn agree(case: &str, delivered: &[(&str, &str, u64)]) -> Result<(), BenchError> {
    for &(setting, name, count) in delivered {
        let first = delivered.iter().find(|(other, _, _)| *other == setting);
        if let Some(&(_, first, expected)) = first
            && expected != count
        {
            return Err(BenchError::Other(format!(
                "{case}, {setting}: {first} delivered {expected} packets, {name} {count}"
            )));
        }
    }
    Ok(())
}

/// Measures sessions that all fall into one bucket of the additive hash; the seeded hash is not affected.
fn table_5(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let mut loads = Vec::new();
    for count in session_counts(options).into_iter().filter(|&count| count <= MOST_EQUAL) {
        let sessions: Vec<Session> = (0..count).map(Session::colliding).collect();
        // The matching session is the last of its list, as in the paper.
        let load = Load::new(&sessions[count - 1..], 4096, options.seed, false);
        loads.push((sessions, load));
    }
    let mut contestants = Vec::new();
    for (sessions, load) in &loads {
        let batches: Rc<[Batch<'_>]> = load.batches().into();
        let setting = format!("{} sessions with equal sums, warm", sessions.len());
        for name in engines(options, 1, TABLE_5_ENGINES) {
            contestants.push(Contestant::new(name, sessions, false, &setting, &batches)?);
        }
    }
    contest("table5", &mut contestants, options, report)?;
    for (count, ms) in PAPER_SESSIONS.iter().zip(TABLE_5) {
        let setting = format!("{count} sessions with equal sums, warm");
        let one = Measurement::value("demux", "table5", "mpf-paper", &setting, ms, "ms");
        report.push(one);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_deliver_different_numbers_are_an_error() {
        let same = [("10 sessions", "mpf", 7), ("10 sessions", "bpf", 7), ("1 session", "bpf", 9)];
        assert!(agree("table4", &same).is_ok());
        let other = [("10 sessions", "mpf", 7), ("1 session", "bpf", 9), ("10 sessions", "bpf", 8)];
        let error = agree("table4", &other).unwrap_err().to_string();
        assert!(error.contains("10 sessions: mpf delivered 7 packets, bpf 8"), "{error}");
    }

    #[test]
    fn all_cases_run_and_all_engines_agree() {
        let options = Options { smoke: true, seed: 1, ..Options::default() };
        let report = run(&options, &mut |_, _, _| {}).unwrap();
        for case in ["table4", "table5", "fig6", "fig7"] {
            let own = report.measurements.iter().filter(|one| one.case == case);
            let figures: Vec<f64> = own.map(|one| one.figure()).collect();
            assert!(figures.len() > 5 && figures.iter().all(|&figure| figure > 0.0), "{case}");
        }
        for (engine, setting) in [("bpf/mpf", "10 sessions, warm"), ("mpf", "100/1 sessions, warm")]
        {
            let ratio =
                report.measurements.iter().find(|m| m.engine == engine && m.setting == setting);
            assert!(ratio.is_some_and(|one| one.unit == "×" && one.figure() > 0.0), "{engine}");
        }
        let wrong = Options { cases: vec!["table9".to_owned()], ..options };
        assert!(matches!(run(&wrong, &mut |_, _, _| {}), Err(BenchError::NothingChosen { .. })));
    }
}
