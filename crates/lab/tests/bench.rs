//! The benches at smoke size, so that they cannot rot; and that a disagreement would be noticed.

use fyke_lab::bench::report::Report;
use fyke_lab::bench::{BenchError, Options, statics};

fn options() -> Options {
    Options { smoke: true, seed: 1, ..Options::default() }
}

fn lines(report: &Report) -> Vec<serde_json::Value> {
    let mut out = Vec::new();
    report.write_json(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn static_runs_and_its_engines_agree() {
    let mut steps = 0;
    let report = statics::run(&options(), &mut |_, _, _| steps += 1).unwrap();
    assert!(steps > 7);
    for case in ["F1", "F2", "F3", "F4", "F5", "F6", "D10", "D100"] {
        for setting in ["cache, synthetic, mixed", "dram, synthetic, mixed"] {
            let of: Vec<_> = (report.measurements.iter())
                .filter(|one| one.case == case && one.setting == setting && one.engine != "floor")
                .collect();
            assert!(of.iter().any(|one| one.engine == "fyke"), "{case} {setting}");
            assert!(of.iter().all(|one| one.figure() > 0.0), "{case} {setting}");
            let known: Vec<_> = of.iter().filter(|one| one.accepted.is_some()).collect();
            assert!(known.iter().all(|one| one.checksum == known[0].checksum));
        }
    }
    let first = &lines(&report)[0];
    for field in ["bench", "case", "engine", "setting", "ns_per_packet", "unit", "runs"] {
        assert!(first.get(field).is_some(), "{field}");
    }
}

#[test]
fn a_name_that_is_not_there_is_an_error() {
    let no_case = Options { cases: vec!["F9".to_owned()], ..options() };
    let no_engine = Options { engines: vec!["pcap".to_owned()], ..options() };
    for options in [no_case, no_engine] {
        let error = statics::run(&options, &mut |_, _, _| {}).unwrap_err();
        assert!(matches!(error, BenchError::NothingChosen { .. }), "{error}");
    }
}
