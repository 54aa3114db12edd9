//! The benches at smoke size, so that they stay correct; and a check that a disagreement of engines is detected.

use fyke_kernel::{OpenError, Space};
use fyke_lab::bench::report::{Measurement, Report};
use fyke_lab::bench::{BenchError, Options, bloom, dynamic, graph, ids, statics, update, workers};
use fyke_lab::net::{World, WorldError};
use fyke_testkit::skip::unless_missing;

fn options() -> Options {
    Options { smoke: true, seed: 1, ..Options::default() }
}

fn lines(report: &Report) -> Vec<serde_json::Value> {
    let each = report.measurements.iter();
    each.map(|one| serde_json::from_str(&one.json()).unwrap()).collect()
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
fn the_time_of_a_packet_is_split_by_instructions() {
    let cases = vec!["split".to_owned()];
    let report = statics::run(&Options { cases, ..options() }, &mut |_, _, _| {}).unwrap();
    assert!(report.measurements.iter().all(|one| one.case == "split"));
    let of = |engine: &str, setting: &str| {
        let is_it = |one: &&Measurement| one.engine == engine && one.setting == setting;
        report.measurements.iter().find(is_it).map(Measurement::figure)
    };
    for filter in ["F1", "F2", "F5", "F6"] {
        let per_packet = format!("{filter}, instructions per packet");
        for engine in ["reference", "fyke"] {
            let instructions = of(engine, &per_packet);
            assert!(instructions.is_some_and(|count| count <= 13.0), "{engine} {instructions:?}");
            assert!(of(engine, &format!("{filter}, a packet")) > Some(0.0), "{engine} {filter}");
        }
        assert!(
            of("reference", "F6, instructions per packet") > of("reference", &per_packet)
                || filter == "F6"
        );
    }
    assert!(of("reference", "a no-op instruction").is_some());
    // Without libpcap, a note is in its place.
    if report.notes.iter().any(|note| note.contains("without libpcap")) {
        return;
    }
    // The program that accepts everything is one instruction.
    assert_eq!(of("libpcap", "F1, instructions per packet"), Some(1.0));
    assert!(
        of("libpcap", "F6, instructions per packet") > of("libpcap", "F3, instructions per packet")
    );
    assert!(of("libpcap", "a no-op instruction").is_some());
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

#[test]
fn texts_of_a_file_become_cases() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts");
    let texts =
        "# a comment\nudp port 53\tEN10MB\twhere from\nlen > 500\nwlan type mgt\tIEEE802_11\n";
    std::fs::write(&path, texts).unwrap();
    let cases = vec!["none of the papers'".to_owned()];
    let options = Options { real_filters: Some(path), cases, ..options() };
    let report = statics::run(&options, &mut |_, _, _| {}).unwrap();
    for case in ["udp port 53", "len > 500"] {
        assert!(report.measurements.iter().any(|one| one.case == case && one.engine == "fyke"));
    }
    assert!(report.measurements.iter().all(|one| !one.case.contains("wlan")));
}

#[test]
fn update_measures_every_size_and_the_readers() {
    let report = update::run(&options(), &mut |_, _, _| {}).unwrap();
    for case in ["N1", "N10", "N100"] {
        for setting in ["add, p50", "remove, p50", "reader, no edits"] {
            let found = (report.measurements.iter())
                .any(|one| one.case == case && one.setting == setting && one.engine == "fyke");
            assert!(found, "{case} {setting}");
        }
    }
    let of = |engine: &str, setting: &str| {
        let of = |one: &&fyke_lab::bench::report::Measurement| {
            one.engine == engine && one.setting.contains(setting)
        };
        report.measurements.iter().find(of).map(|one| one.figure())
    };
    assert_eq!(of("fyke", "missed"), Some(0.0), "look-back finds everything");
    for engine in ["table-shared", "table-log"] {
        assert!(of(engine, "edits without a pause: done").is_some_and(|rate| rate > 0.0));
    }
}

#[test]
fn workers_together_accept_what_one_does() {
    let report = workers::run(&options(), &mut |_, _, _| {}).unwrap();
    for engine in ["fyke", "fyke-fan"] {
        for workers in ["1 worker", "2 workers"] {
            let of = |one: &&fyke_lab::bench::report::Measurement| {
                one.case == "F5" && one.engine == engine && one.setting.starts_with(workers)
            };
            let one = report.measurements.iter().find(of).unwrap();
            assert!(one.figure() > 0.0 && one.accepted > Some(0), "{engine} {workers}");
        }
    }
}

#[test]
fn bloom_is_near_the_formula() {
    let report = bloom::run(&options(), &mut |_, _, _| {}).unwrap();
    let rate = |engine: &str| {
        let of = |one: &&fyke_lab::bench::report::Measurement| {
            one.engine == engine && one.case == "n1000" && one.unit == "%"
        };
        report.measurements.iter().find(of).unwrap().figure()
    };
    let (exact, ours, formula) = (rate("fyke-counting"), rate("fyke-blocked"), rate("formula"));
    assert!(ours < 4.0 * formula + 1.0, "{ours} % beside {formula} %");
    assert!(exact < 1.5 * formula + 0.5, "{exact} % beside {formula} %");
    let frames = |one: &&fyke_lab::bench::report::Measurement| one.engine == "fyke-prefilter";
    for case in ["rules1000", "array1"] {
        let mut frames = report.measurements.iter().filter(frames);
        assert!(frames.any(|one| one.case == case && one.accepted > Some(0)), "{case}");
    }
}

#[test]
fn bloom_in_the_kernel_measures_frames_and_rules() {
    let space = Space::open(fyke_kernel::Options::default());
    if unless_missing(space, OpenError::is_unavailable).is_none() {
        return;
    }
    let live = Options { live: true, ..options() };
    let report = bloom::run(&live, &mut |_, _, _| {}).unwrap();
    assert!(!report.notes.iter().any(|note| note.contains("without the kernel space")));
    let has = |case: &str, engine: &str, setting: &str| {
        let mut of = report.measurements.iter();
        of.any(|one| one.case == case && one.engine == engine && one.setting.contains(setting))
    };
    for case in ["array1", "array2", "array3", "array1-more"] {
        for engine in ["fyke-tap", "fyke-tap-copied", "fyke-tcx", "fyke-xdp", "fyke-kernel"] {
            for setting in ["64 bytes, rejected", "900 bytes, accepted"] {
                assert!(has(case, engine, setting), "{case} {engine} {setting}");
            }
        }
    }
    let missed = |one: &&Measurement| one.setting == "of these frames rejected";
    let missed = report.measurements.iter().find(missed).map(Measurement::figure);
    assert_eq!(missed, Some(0.0), "rules come and go, and none is missed");
    for case in ["table2-64", "table2-random", "table2-900"] {
        for engine in ["af_packet", "fyke-tap", "fyke-xdp", "fyke-kernel"] {
            for rules in ["1 rule, ", "1 + 300 rules, "] {
                let setting = format!("{rules}sent and matching, but not received");
                assert!(has(case, engine, &setting), "{case} {engine} {setting}");
            }
        }
    }
    assert!(has("edit", "fyke-tap", "add a rule") && has("edit", "fyke-tap", "add 1,000 rules"));
}

#[test]
fn dynamic_measures_every_way_and_the_edits() {
    // If both worlds of the bench and its kernel part are possible here, no part may be skipped.
    if unless_missing(World::create(1, 1), WorldError::is_refused).is_none() {
        return;
    }
    let space = Space::open(fyke_kernel::Options::default());
    let has_kernel_space = unless_missing(space, OpenError::is_unavailable).is_some();
    let report = dynamic::run(&options(), &mut |_, _, _| {}).unwrap();
    report.notes.iter().for_each(|note| println!("{note}"));
    let figure = |case: &str, engine: &str, setting: &str| {
        let of = |one: &&fyke_lab::bench::report::Measurement| {
            one.case == case && one.engine == engine && one.setting.contains(setting)
        };
        report.measurements.iter().find(of).map(|one| one.figure())
    };
    // User space does not depend on the kernel space.
    assert_eq!(figure("lost", "fyke-user", "connections"), Some(0.0));
    assert_eq!(figure("missed per connection, p99", "fyke-user", "connections"), Some(0.0));
    assert_eq!(figure("wrong verdicts", "fyke-user", "connections"), Some(0.0));
    assert!(!report.figures.is_empty());
    if !has_kernel_space {
        return;
    }
    assert!(!report.notes.iter().any(|note| note.contains("without fyke-kernel")));
    for case in ["lost", "wrong verdicts"] {
        assert_eq!(figure(case, "fyke-kernel", "edits"), Some(0.0), "{case}");
        assert_eq!(figure(case, "fyke-kernel", "connections"), Some(0.0), "{case}");
    }
    assert!(figure("update p50", "fyke-kernel", "connections").is_some_and(|ns| ns > 0.0));
    for case in ["F1", "F5", "D1000"] {
        assert!(figure(case, "fyke-kernel", "in the kernel").is_some_and(|ns| ns > 0.0), "{case}");
    }
}

#[test]
fn graph_runs_and_every_node_sees_every_frame() {
    let report = graph::run(&options(), &mut |_, _, _| {}).unwrap();
    for case in ["chain-1", "chain-20", "fan-64", "mixed-20", "index", "save"] {
        assert!(report.measurements.iter().any(|one| one.case == case && one.engine == "fyke"));
    }
    let more = |one: &&fyke_lab::bench::report::Measurement| one.setting.starts_with("one node");
    assert_eq!(report.measurements.iter().filter(more).count(), 6);
}

#[test]
fn ids_finds_the_same_rules_as_its_peer_and_measures_every_case() {
    let report = ids::run(&options(), &mut |_, _, _| {}).unwrap();
    for note in &report.notes {
        println!("{note}");
    }
    for case in ["search", "whole", "edit", "prefilter"] {
        let of: Vec<_> = report.measurements.iter().filter(|one| one.case == case).collect();
        assert!(of.iter().any(|one| one.engine == "fyke"), "{case}");
        assert!(of.iter().all(|one| one.figure() > 0.0), "{case} {of:?}");
    }
    let found = report.measurements.iter().filter(|one| one.case == "search");
    assert!(found.clone().any(|one| one.accepted.is_some_and(|count| count > 5)));
    let kept = report.measurements.iter().filter(|one| one.case == "prefilter");
    assert!(kept.clone().count() > 0 && kept.clone().all(|one| one.figure() <= 100.0));
    // Rules of a file: of all languages, with expressions.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.rules");
    let rules = "alert tcp any any -> any any (content:\"Accept-Language\"; pcre:\"/index\\.p[a-h]p/Ri\"; sid:1;)\n\
         alert http any any -> any any (http.uri; content:\"INDEX\"; nocase; content:\"php\"; sid:2;)\n\
         alert udp any any -> any any (content:\"nowhere to be found\"; sid:3;)\n";
    std::fs::write(&path, rules).unwrap();
    let cases = vec!["search".to_owned()];
    let report =
        ids::run(&Options { real_filters: Some(path), cases, ..options() }, &mut |_, _, _| {});
    let report = report.unwrap();
    let accepted = report.measurements.iter().find_map(|one| one.accepted);
    assert!(accepted.is_some_and(|count| count > 100), "{report:?}");
}
