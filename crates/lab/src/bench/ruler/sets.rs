//! Rule sets of all sizes on all engines: time to find the first rule that matches, compile time and memory.
//!
//! Simulating engines may need a millisecond per packet and more. The first run of each engine is limited to
//! [`Bench::patience`]. An engine that would need longer for all packets is measured on a part of them, together
//! with fyke on the same part; one that cannot process [`FEWEST`] is left out, with a note.

use super::engines::{Finder, NAMES, NONE};
use super::patterns::Pattern;
use super::{BENCH, Bench};
use crate::bench::BenchError;
use crate::bench::measure::{Turn, rounds, time_of};
use crate::bench::report::{Measurement, Report};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Minimum number of packets for a measurement.
const FEWEST: usize = 64;

impl Bench<'_> {
    /// Time limit of an engine's first run.
    fn patience(&self) -> Duration {
        if self.options.smoke { Duration::from_millis(200) } else { Duration::from_secs(3) }
    }

    /// Measures rule sets of all sizes on all engines.
    pub(super) fn sets(
        &self,
        case: &str,
        make: &dyn Fn(usize) -> Vec<Pattern>,
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let counts: &[usize] = if self.options.smoke { &[10, 30] } else { &[10, 100, 1_000] };
        for count in counts {
            let patterns = make(*count);
            if patterns.len() < *count {
                report.note(format!("{case}: only {} patterns there", patterns.len()));
            }
            let mut finders = Vec::new();
            for name in NAMES.iter().filter(|name| self.options.wants_engine(name)) {
                finders.extend(Finder::new(name, &patterns, &mut |note| report.note(note))?);
            }
            self.set(case, patterns.len(), finders, report)?;
        }
        Ok(())
    }

    /// Selects `most` of the packets, evenly spaced.
    fn sample(&self, most: usize) -> Vec<&[u8]> {
        let step = self.packets.len().div_ceil(most.max(1)).max(1);
        self.packets.iter().copied().step_by(step).take(most).collect()
    }

    /// Number of packets that an engine can process in time; none if there are too few.
    fn reach(&self, finder: &mut Finder) -> Option<usize> {
        let sample = self.sample(1_024);
        let mut found = [NONE; 16];
        let (mut done, mut spent) = (0, Duration::ZERO);
        for packets in sample.chunks(found.len()) {
            // The thread's processor time, so that other load on the machine does not count.
            spent += time_of(true, || finder.judge(packets, &mut found[..packets.len()]));
            done += packets.len();
            if spent > self.patience() {
                break;
            }
        }
        if done < sample.len() {
            return (done >= FEWEST.min(sample.len())).then_some(done);
        }
        let each = spent.as_secs_f64().max(1e-9) / done.max(1) as f64;
        Some((self.patience().as_secs_f64() / each) as usize).map(|all| all.max(done))
    }

    /// Measures one rule set: fast engines on all packets, slow ones each with the first engine on the packets that
    /// they can process.
    fn set(
        &self,
        case: &str,
        count: usize,
        finders: Vec<Finder>,
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let (mut quick, mut slow) = (Vec::new(), Vec::new());
        for mut finder in finders {
            match self.reach(&mut finder) {
                Some(all) if quick.is_empty() || all >= self.packets.len() => quick.push(finder),
                Some(some) => slow.push((finder, some)),
                None => report.note(format!(
                    "{}, {count} patterns: over the limit, not {FEWEST} packets in {:?}",
                    finder.name,
                    self.patience()
                )),
            }
        }
        if quick.is_empty() {
            return Ok(());
        }
        let setting = format!("{count} rules, {}", self.source);
        self.compete(case, &setting, &self.packets, &mut quick, report)?;
        costs(case, count, &quick, report);
        for (finder, some) in slow {
            let packets = self.sample(some);
            let setting = format!("{setting}, {} of {} packets", packets.len(), self.packets.len());
            let mut pair = vec![quick.swap_remove(0), finder];
            self.compete(case, &setting, &packets, &mut pair, report)?;
            costs(case, count, &pair[1..], report);
            quick.insert(0, pair.swap_remove(0));
        }
        Ok(())
    }

    /// Compares the answers of engines on packets, then measures them.
    fn compete(
        &self,
        case: &str,
        setting: &str,
        packets: &[&[u8]],
        finders: &mut [Finder],
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let mut expected = vec![NONE; packets.len()];
        let mut found = expected.clone();
        let start = Instant::now();
        for (number, finder) in finders.iter_mut().enumerate() {
            finder.judge(packets, &mut found);
            if number == 0 {
                expected.clone_from(&found);
                continue;
            }
            let differs = |(a, b): (&u32, &u32)| {
                if finder.which { a != b } else { (*a == NONE) != (*b == NONE) }
            };
            if let Some(frame) = expected.iter().zip(&found).position(differs) {
                return Err(BenchError::Mismatch {
                    case: case.to_owned(),
                    setting: setting.to_owned(),
                    engine: finder.name.to_owned(),
                    reference: "the first engine".to_owned(),
                    frame,
                    frames: packets.len(),
                    accepted: found[frame] != NONE,
                });
            }
        }
        let accepted = expected.iter().filter(|rule| **rule != NONE).count() as u64;
        let checksum = expected.iter().fold(0u64, |sum, rule| {
            (sum ^ u64::from(*rule)).wrapping_mul(0x100_0000_01b3).rotate_left(5)
        });
        let engines = finders.len();
        let slow = start.elapsed() > Duration::from_secs(2);
        let samples = rounds(
            &mut (&mut *finders, found),
            engines,
            if slow { 3.min(self.rounds()) } else { self.rounds() },
            |_| {},
            |(finders, found), number| {
                let time = time_of(true, || finders[number].judge(packets, found));
                black_box(&found);
                Turn { time, units: packets.len() }
            },
        );
        for (finder, samples) in finders.iter().zip(samples) {
            let mut one = self.per_packet(case, finder.name, setting, &samples);
            one.accepted = Some(accepted);
            one.checksum = finder.which.then_some(checksum);
            report.push(one);
        }
        Ok(())
    }
}

/// Reports each engine's compile time and memory.
fn costs(case: &str, count: usize, finders: &[Finder], report: &mut Report) {
    for finder in finders {
        let setting = format!("{count} rules, compile time");
        let ms = finder.compiled.as_secs_f64() * 1e3;
        report.push(Measurement::value(BENCH, case, finder.name, &setting, ms, "ms"));
        let setting = format!("{count} rules, memory");
        let kib = finder.bytes() as f64 / 1024.0;
        report.push(Measurement::value(BENCH, case, finder.name, &setting, kib, "KiB"));
    }
}
