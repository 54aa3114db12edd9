//! Excessive programs: exponential patterns, very many rules, rules that match everything, the smallest and the
//! largest packets. They are bounded and reported, and the answers stay correct.

use fyke_ruler::matcher::{Engine, Room};
use fyke_ruler::{Limits, Matcher, Program, oracle, report};
use std::fmt::Write;
use std::time::{Duration, Instant};

fn program(text: &str) -> Program {
    Program::from_text(text).unwrap_or_else(|error| panic!("{error}"))
}

fn matcher(program: &Program, limits: Limits) -> Matcher {
    Matcher::new(&program.filters[0].rules, limits).expect("within limits")
}

/// Builds a packet of `len` bytes with all byte values.
fn packet(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * at / 7 + at) as u8).collect()
}

/// Twenty bytes after an `a` at any position: 2^20 states.
#[test]
fn exponential_patterns_are_made_lazily_and_named() {
    let program = program(
        "filter f
           * \"a\" .{20} => accept 1;
           \"b\" * => accept 2;
           * [ab] .{18} [cd] => accept 3;",
    );
    let start = Instant::now();
    let matcher = matcher(&program, Limits::default());
    println!("compiled in {:?}", start.elapsed());
    let lazy = matcher.parts().iter().filter(|part| matches!(part.engine, Engine::Lazy));
    assert_eq!(lazy.flat_map(|part| part.rules.clone()).collect::<Vec<_>>(), [0, 2]);
    let warnings = report(&program, 0, &matcher).warnings;
    let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(
        texts.iter().any(|text| text.contains("over the limit") && text.contains(":2:")),
        "{texts:?}"
    );
    let mut room = Room::default();
    for len in 0..200 {
        let packet: Vec<u8> = (0..len).map(|at| b"abcdx"[(at * at + len) % 5]).collect();
        let expected = oracle::first_match(&program.filters[0].rules, &packet).expect("small");
        assert_eq!(
            matcher.first_match(&mut room, &packet),
            expected.map(|(rule, _)| rule),
            "{len}"
        );
    }
    assert_eq!(
        matcher.first_match(&mut room, &packet(65_535)),
        Some(0).filter(|_| { packet(65_535)[65_535 - 21] == b'a' })
    );
}

#[test]
fn a_hundred_thousand_rules_compile_and_the_first_wins() {
    let mut text = "filter f\n".to_owned();
    for number in 0..100_000 {
        let _ = match number % 4 {
            0 => writeln!(text, "* \"needle-{number:06}\" [0-9]{{2,4}} * => accept {number};"),
            _ => writeln!(text, "* \"needle-{number:06}\" * => accept {number};"),
        };
    }
    let program = program(&text);
    let start = Instant::now();
    let matcher = matcher(&program, Limits::default());
    println!("compiled in {:?}", start.elapsed());
    assert!(matcher.parts().is_empty() && matcher.decided() == 75_000);
    let mut room = Room::default();
    for (packet, expected) in [
        ("", None),
        ("x needle-099999 needle-000005 x", Some(5)),
        ("needle-000008", None),
        ("needle-000008 needle-00000812", Some(8)),
        ("needle-099998", Some(99_998)),
        ("needle-100000", None),
    ] {
        assert_eq!(matcher.first_match(&mut room, packet.as_bytes()), expected, "{packet}");
    }
    assert_eq!(matcher.first_match(&mut room, &packet(65_535)), None);
}

/// Rules without certain bytes: no gate, and states that would multiply; neighbours are joined while that is cheap.
#[test]
fn rules_that_float_without_certain_bytes_are_split() {
    let mut text = "filter f\n".to_owned();
    for number in 0..60u8 {
        let (low, high) = (b'a' + number % 20, b'A' + number % 24);
        let _ = writeln!(
            text,
            "* [{}{}] [0-9]{{{}}} [\\x{:02x}-\\xff] * => accept {number};",
            char::from(low),
            char::from(high),
            number % 7 + 2,
            128 + number
        );
    }
    let program = program(&text);
    let start = Instant::now();
    // The limit of time would make the number of automata depend on the machine.
    let limits = Limits { states: 512, time: Duration::from_secs(600), ..Limits::default() };
    let matcher = matcher(&program, limits);
    println!("compiled in {:?}, {} automata", start.elapsed(), matcher.parts().len());
    assert!((2..60).contains(&matcher.parts().len()));
    let warned = report(&program, 0, &matcher).warnings;
    assert!(warned.iter().any(|one| one.to_string().contains("automata")));
    let mut room = Room::default();
    for seed in 0..400usize {
        let packet: Vec<u8> = (0..40)
            .map(|at| match (at * 31 + seed * 17) % 11 {
                0..6 => b'0' + (at % 10) as u8,
                6..9 => b"abcdefghijklmnopqrstABCDEFGHIJKLMNOPQRSTUVWX"[(at + seed * 5) % 44],
                _ => 128 + (seed % 128) as u8,
            })
            .collect();
        let expected = oracle::first_match(&program.filters[0].rules, &packet).expect("small");
        assert_eq!(matcher.first_match(&mut room, &packet), expected.map(|(rule, _)| rule));
    }
}

#[test]
fn rules_that_match_everything() {
    let mut text = "filter f\n".to_owned();
    for number in 0..1_000 {
        let _ = writeln!(text, "* => accept {number};");
    }
    let program = program(&text);
    let matcher = matcher(&program, Limits::default());
    let warnings = report(&program, 0, &matcher).warnings;
    let beaten = warnings.iter().filter(|one| one.message().contains("never wins"));
    assert_eq!(beaten.count(), 999);
    let mut room = Room::default();
    for len in [0, 1, 64, 65_535] {
        assert_eq!(matcher.first_match(&mut room, &packet(len)), Some(0));
    }
}

/// Rules that can never win are reported for the gate too.
#[test]
fn rules_with_the_same_bytes_share_an_automaton() {
    let program = program(
        "filter f
           * \"HTTP/1.\" [12] * => accept 1;
           * \"HTTP/1.\" * => accept 2;
           * \"HTTP/1.\" [34] * => accept 3;
           * \"needle\" * => accept 4;
           * \"needle\" [0-9] * => accept 5;",
    );
    let matcher = matcher(&program, Limits::default());
    let report = report(&program, 0, &matcher);
    assert_eq!((report.automata, report.gated, report.decided), (0, 1, 1));
    let lines: Vec<usize> = report.warnings.iter().map(fyke_ruler::Error::line).collect();
    assert_eq!(lines, [4, 6], "{:?}", report.warnings);
    let mut room = Room::default();
    for (packet, rule) in
        [("GET / HTTP/1.1", 0), ("HTTP/1.3 200", 1), ("a needle9", 3), ("needle HTTP/1.1", 0)]
    {
        assert_eq!(matcher.first_match(&mut room, packet.as_bytes()), Some(rule), "{packet}");
    }
}

#[test]
fn too_many_positions_name_the_rule() {
    let text = "filter f \"a\" => accept; .{20000} => accept; \"b\" => accept; .{15000} => accept;";
    let program = program(text);
    let limits = Limits { nfa_states: 30_000, ..Limits::default() };
    let error = Matcher::new(&program.filters[0].rules, limits).expect_err("too many");
    assert_eq!((error.rule, error.limit), (1, 30_000));
    assert!(error.own >= 20_000 && error.states > error.limit);
}

/// One packet at a time and several in parallel give the same answers, for the shortest, longest and other lengths.
#[test]
fn packets_side_by_side_get_the_same_answers() {
    let texts = [
        "filter f (. [^\\xff]){0,} => accept; * \"\\x00\\x01\" => accept;",
        "filter f .#14 [\\x40-\\x4f] .{8,} \"z\"? => accept; \"\" => reject;",
        "filter f * \"needle\" * => accept;",
    ];
    let packets: Vec<Vec<u8>> =
        (0..97).map(|number| packet([0, 1, 13, 64, 300, 1500][number % 6] + number)).collect();
    let mut packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let (empty, large) = (Vec::new(), packet(65_535));
    packets.extend([&empty[..], &large, &empty]);
    for text in texts {
        let program = program(text);
        let matcher = matcher(&program, Limits::default());
        for count in [0, 1, 3, 4, 5, packets.len()] {
            let mut found = vec![None; count];
            let mut room = Room::default();
            matcher.first_matches(&mut room, &packets[..count], &mut found);
            let one: Vec<Option<usize>> = packets[..count]
                .iter()
                .map(|packet| matcher.first_match(&mut room, packet))
                .collect();
            assert_eq!(found, one, "{text}, {count} packets");
        }
    }
}
