//! Derived figures: the larger of accepted and rejected, a check of the JIT's speed, distributions of ratios.

use super::super::measure::Samples;
use super::super::report::{Measurement, Report};
use super::{BENCH, REAL};

/// Measured speed of a JIT relative to libpcap's interpreter on the same program, from the cache. A JIT that is
/// much slower than this is no valid peer.
const JIT_RATIOS: [(&str, f64); 8] = [
    ("F2", 7.3 / 4.5),
    ("F3", 11.7 / 5.9),
    ("F4", 14.2 / 6.4),
    ("F5", 28.6 / 11.6),
    ("F6", 137.0 / 18.6),
    ("D10", 59.0 / 15.0),
    ("D100", 460.0 / 55.0),
    ("D1000", 4_550.0 / 1_300.0),
];
/// Tolerated factor below that ratio, for other frames and machines.
const NEAR: f64 = 0.85;

/// Adds, for each engine, residence and trace of the measurements from `first` on, the larger of its times for
/// accepted and rejected frames.
pub(super) fn larger(report: &mut Report, first: usize) {
    let measured = report.measurements[first..].to_vec();
    for accepted in &measured {
        let Some(place) = accepted.setting.strip_suffix("accepted") else { continue };
        let rejected = measured
            .iter()
            .find(|one| one.engine == accepted.engine && one.setting == format!("{place}rejected"));
        let Some(rejected) = rejected else { continue };
        let (case, engine, setting) = (&accepted.case, &accepted.engine, format!("{place}larger"));
        let figure = accepted.figure().max(rejected.figure());
        let one = Measurement::per_packet(BENCH, case, engine, &setting, figure);
        report.push(one.runs(accepted.runs));
    }
}

/// Reports how much faster the JIT is than the interpreter, and if that makes it a valid peer.
pub(super) fn is_jit_a_peer(report: &mut Report, first: usize) {
    let measured = report.measurements[first..].to_vec();
    for jit in measured.iter().filter(|one| one.engine == "jit") {
        let (Some(trace), case) = (jit.setting.strip_suffix(", mixed"), &jit.case) else {
            continue;
        };
        let known = JIT_RATIOS.iter().find(|one| one.0 == case).map(|one| one.1);
        let interpreter = measured.iter().find(|one| {
            one.engine == "libpcap" && one.setting == jit.setting && jit.figure() > 0.0
        });
        let (Some(known), Some(interpreter), true) =
            (known, interpreter, trace.starts_with("cache"))
        else {
            continue;
        };
        let ratio = interpreter.figure() / jit.figure();
        let setting = format!("{trace}: times as fast as libpcap, {known:.1} expected");
        report.push(Measurement::value(BENCH, case, "jit", &setting, ratio, "times"));
        if ratio < NEAR * known {
            report.note(format!(
                "{case}, {trace}: the JIT is {ratio:.1} times as fast as libpcap, {known:.1} are \
                 expected of one: it is no peer here"
            ));
        }
    }
}

/// Adds the distribution of the peers' ratios over the texts of the file: their time divided by fyke's.
pub(super) fn spread(report: &mut Report, texts: &[&str]) {
    let measured = report.measurements.clone();
    let of_texts = || measured.iter().filter(|one| texts.contains(&one.case.as_str()));
    let mut settings: Vec<&str> = of_texts().map(|one| one.setting.as_str()).collect();
    settings.dedup();
    settings.sort_unstable();
    settings.dedup();
    for setting in settings {
        for engine in ["libpcap", "jit", "opt-c"] {
            let mut ratios = Samples::default();
            for ours in of_texts().filter(|one| one.engine == "fyke" && one.setting == setting) {
                let peer = of_texts().find(|one| {
                    one.engine == engine && one.setting == setting && one.case == ours.case
                });
                if let Some(peer) = peer.filter(|_| ours.figure() > 0.0) {
                    ratios.push(peer.figure() / ours.figure());
                }
            }
            for (part, what) in
                [(0.0, "least"), (0.1, "p10"), (0.5, "median"), (0.9, "p90"), (1.0, "most")]
            {
                if !ratios.is_empty() {
                    let setting = format!("{setting}: times as long as fyke, {what}");
                    let ratio = ratios.quantile(part);
                    let one = Measurement::value(BENCH, REAL, engine, &setting, ratio, "times");
                    report.push(one.runs(ratios.len()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(case: &str, engine: &str, setting: &str, ns: f64) -> Measurement {
        Measurement::per_packet(BENCH, case, engine, setting, ns)
    }

    fn figure(report: &Report, engine: &str, setting: &str) -> Option<f64> {
        let of = |one: &&Measurement| one.engine == engine && one.setting == setting;
        report.measurements.iter().find(of).map(Measurement::figure)
    }

    #[test]
    fn the_larger_is_reported() {
        let mut report = Report::default();
        report.push(one("F2", "a", "cache, real, accepted", 2.0));
        report.push(one("F2", "a", "cache, real, rejected", 3.0));
        report.push(one("F2", "b", "cache, real, accepted", 9.0));
        larger(&mut report, 0);
        assert_eq!(figure(&report, "a", "cache, real, larger"), Some(3.0));
        assert_eq!(figure(&report, "b", "cache, real, larger"), None, "nothing was rejected");
    }

    #[test]
    fn a_slow_jit_is_no_peer() {
        for (ns, noted) in [(5.0, 0), (9.0, 1)] {
            let mut report = Report::default();
            report.push(one("F3", "jit", "cache, real, mixed", ns));
            report.push(one("F3", "libpcap", "cache, real, mixed", 12.0));
            is_jit_a_peer(&mut report, 0);
            assert_eq!(report.notes.len(), noted, "{:?}", report.notes);
            assert_eq!(report.measurements.len(), 3);
        }
    }

    #[test]
    fn ratios_are_spread_over_the_texts() {
        let mut report = Report::default();
        for (text, ns) in [("udp", 2.0), ("tcp", 4.0), ("arp", 8.0)] {
            report.push(one(text, "fyke", "cache, real, mixed", 2.0));
            report.push(one(text, "jit", "cache, real, mixed", ns));
        }
        spread(&mut report, &["udp", "tcp", "arp"]);
        let ratio = |what: &str| {
            figure(&report, "jit", &format!("cache, real, mixed: times as long as fyke, {what}"))
        };
        assert_eq!(["least", "median", "most"].map(ratio), [Some(1.0), Some(2.0), Some(4.0)]);
        assert!(report.measurements.iter().all(|one| one.engine != "libpcap"));
    }
}
