//! Rules of the gate against the oracle: words that overlap each other, folded or not, with any bytes, classes and
//! other words before, between and after them, with and without names; every rule and every span is equal.

use fyke_ruler::matcher::Room;
use fyke_ruler::{Limits, Matcher, Program, oracle};
use fyke_testkit::random::Random;
use std::fmt::Write;

const WORDS: [&str; 12] = [
    "ab",
    "aba",
    "abab",
    "babab",
    "needle",
    "needles",
    "eedle",
    "Host: x",
    "GET /index",
    "xGET /i",
    "0123456789abcdef",
    "0123456789abcdefg",
];

fn piece(random: &mut Random) -> String {
    let word = random.pick(&WORDS);
    match random.below(9) {
        0 => "*".to_owned(),
        1 => "[a-e]{1,3}".to_owned(),
        2 => "[^x]{0,}".to_owned(),
        3 => format!("\"{word}\"i"),
        4 => format!("({}|\"{word}\")", "\"zz\""),
        5 => format!("n{}:(\"{word}\" .?)", random.below(1000)),
        _ => format!("\"{word}\""),
    }
}

fn rule(random: &mut Random, number: usize) -> String {
    let mut pattern = String::new();
    if !random.chance(4) {
        pattern.push_str(random.pick(&["* ", "** ", "start:* ", "[ab]{0,} "]));
    }
    for _ in 0..1 + random.below(3) {
        pattern += &piece(random);
        pattern.push(' ');
    }
    if !random.chance(4) {
        pattern.push_str(random.pick(&["*", "end:*"]));
    }
    let names: Vec<&str> = pattern
        .split(' ')
        .filter_map(|word| word.split_once(':').map(|(name, _)| name))
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric()))
        .collect();
    if names.is_empty() || random.chance(3) {
        format!("{pattern} => accept {number};\n")
    } else {
        format!("{pattern} => \"|\" {};\n", names.join(" \"|\" "))
    }
}

fn input(random: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..random.below(9) {
        let word = random.pick(&WORDS);
        match random.below(4) {
            0 => text.push_str(&word.to_uppercase()),
            1 => text.push_str(&word[..random.below(word.len() + 1)]),
            _ => text.push_str(word),
        }
        let _ = write!(text, "{}", &"-a b0zz"[..random.below(8)]);
    }
    text.into_bytes()
}

fn compare(seed: u64, rules: usize, limits: Limits) -> (usize, usize) {
    let mut random = Random::new(seed);
    let mut text = "filter f\n".to_owned();
    (0..1 + random.below(rules)).for_each(|number| text += &rule(&mut random, number));
    let Ok(program) = Program::from_text(&text) else {
        // Names may be equal by chance.
        return (0, 0);
    };
    let rules = &program.filters[0].rules;
    let matcher = Matcher::new(rules, limits).expect("small");
    let mut room = Room::default();
    let (mut matched, mut missed) = (0, 0);
    for _ in 0..40 {
        let input = input(&mut random);
        let Ok(expected) = oracle::first_match(rules, &input) else { continue };
        let what = format!("seed {seed}, {:?}\n{text}", String::from_utf8_lossy(&input));
        let found = matcher.first_match(&mut room, &input);
        assert_eq!(found, expected.as_ref().map(|(rule, _)| *rule), "{what}");
        let Some((rule, slots)) = expected else {
            missed += 1;
            continue;
        };
        matched += 1;
        for ((slot, span), used) in (0u32..).zip(&slots).zip(&rules[rule].used) {
            if *used {
                assert_eq!(matcher.slot(&room, slot, input.len()), *span, "slot {slot}, {what}");
            }
        }
        // The same in pieces, as a stream.
        let mut stream = matcher.stream();
        let mut rest = &input[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random.below(rest.len().min(40) + 1));
            matcher.feed(&mut stream, &mut room, piece);
            rest = after;
        }
        matcher.at_end(&stream, &mut room);
        assert_eq!(matcher.winner(&room, 0), Some(rule), "stream, {what}");
        for ((slot, span), used) in (0u32..).zip(&slots).zip(&rules[rule].used) {
            if *used {
                let own = matcher.slot(&room, slot, stream.len());
                assert_eq!(own, *span, "stream, slot {slot}, {what}");
            }
        }
    }
    (matched, missed)
}

fn many(default: u64, rules: usize, limits: Limits) {
    let (_, seed) = Random::seeded(default);
    let (mut matched, mut missed) = (0, 0);
    for number in 0..400 {
        let (more_matched, more_missed) = compare(seed + number, rules, limits);
        matched += more_matched;
        missed += more_missed;
    }
    println!("{matched} matched, {missed} did not");
    assert!(matched > 1000 && missed > 1000, "a test of both answers: {matched}, {missed}");
}

#[test]
fn few_rules_by_vectors() {
    many(10_000, 3, Limits::default());
}

#[test]
fn many_rules_by_n_grams() {
    many(20_000, 12, Limits::default());
}

/// Automata built on demand, and simulated if they are large.
#[test]
fn automata_that_are_made_late() {
    many(30_000, 8, Limits { eager: 0, states: 12, ..Limits::default() });
}

/// Several filters that share a gate: each has the winner and the spans that it has alone.
#[test]
fn filters_with_one_gate() {
    let (_, seed) = Random::seeded(40_000);
    let (mut matched, mut gated) = (0, 0);
    for number in 0..300 {
        let mut random = Random::new(seed + number);
        let mut text = String::new();
        for filter in 0..2 + random.below(4) {
            text += &format!("filter f{filter}\n");
            (0..1 + random.below(6)).for_each(|number| text += &rule(&mut random, number));
        }
        let Ok(program) = Program::from_text(&text) else { continue };
        let rules: Vec<_> = program.filters.iter().map(|filter| &filter.rules[..]).collect();
        let eager = if random.chance(2) { 0 } else { 512 };
        let limits = Limits { eager, ..Limits::default() };
        let matcher = Matcher::of_filters(&rules, limits).expect("small");
        gated += matcher.gated().count() + matcher.decided();
        let mut room = Room::default();
        for _ in 0..20 {
            let input = input(&mut random);
            matcher.matches(&mut room, &input);
            for (filter, rules) in rules.iter().enumerate() {
                let Ok(expected) = oracle::first_match(rules, &input) else { continue };
                let what = || {
                    format!("seed {seed}, f{filter}, {:?}\n{text}", String::from_utf8_lossy(&input))
                };
                let found = matcher.winner(&room, filter);
                assert_eq!(found, expected.as_ref().map(|(rule, _)| *rule), "{}", what());
                let Some((rule, slots)) = expected else { continue };
                matched += 1;
                for ((slot, span), used) in (0u32..).zip(&slots).zip(&rules[rule].used) {
                    if *used {
                        let own = matcher.slot_of(&room, filter, slot, input.len());
                        assert_eq!(own, *span, "slot {slot}, {}", what());
                    }
                }
            }
        }
    }
    println!("{matched} matched, {gated} groups with gates");
    assert!(matched > 1000 && gated > 300);
}
