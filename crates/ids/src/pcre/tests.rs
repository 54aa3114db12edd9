//! Expressions with the matches that PCRE finds, and both engines on random expressions.

use super::*;
use crate::work::MAX_WORK;
use fyke_testkit::random::Random;

fn find(pattern: &str, flags: Flags, text: &str) -> Found {
    let pattern = Pattern::new(pattern.as_bytes(), flags)
        .unwrap_or_else(|reason| panic!("{pattern}: {reason}"));
    let text = text.as_bytes();
    let both = (
        pattern.find(text, 0, &mut Work::default()),
        pattern.backtrack(text, 0, &mut Work::default()),
    );
    assert_eq!(both.0, both.1, "{pattern:?} on {text:?}");
    both.0
}

#[test]
fn patterns_match_as_in_pcre() {
    let none = Flags::default();
    let all = Flags { caseless: true, dot_all: true, multi_line: true, ..none };
    // Pattern, flags, text, match: what pcre2 gives for the same.
    for (pattern, flags, text, expected) in [
        ("b+c", none, "abbbc", Some((1, 5))),
        ("a|ab", none, "ab", Some((0, 1))),
        ("^b", none, "a\nb", None),
        ("^b", all, "a\nb", Some((2, 3))),
        ("a$", none, "a\n", Some((0, 1))),
        ("a$", Flags { dollar_end_only: true, ..none }, "a\n", None),
        ("a\\z", none, "a\n", None),
        ("a\\Z", none, "a\n", Some((0, 1))),
        ("a.b", none, "a\nb", None),
        ("a.b", all, "A\nB", Some((0, 3))),
        ("(a)\\1", none, "abaa", Some((2, 4))),
        ("(\\w+)\\s\\1\\b", none, "the the theme", Some((0, 7))),
        ("(?<n>.)\\k<n>", none, "abb", Some((1, 3))),
        ("a(?=b)", none, "acab", Some((2, 3))),
        ("a(?!b)", none, "abac", Some((2, 3))),
        ("(?<=ab|c)d", none, "dcd", Some((2, 3))),
        ("(?<!a)b", none, "abb", Some((2, 3))),
        ("(?>a+)ab", none, "aaab", None),
        ("a++b", none, "aaab", Some((0, 4))),
        ("a+?", none, "aaa", Some((0, 1))),
        ("a{2,3}", none, "aaaa", Some((0, 3))),
        ("(?:ab){2}?c", none, "ababc", Some((0, 5))),
        ("a{,2}", none, "a{,2}", Some((0, 5))),
        ("x{", none, "x{", Some((0, 2))),
        ("[^\\n]{3}", none, "ab\ncde", Some((3, 6))),
        ("[]a]+", none, "]a", Some((0, 2))),
        ("[a\\-z]+", none, "-z", Some((0, 2))),
        ("[\\d-x]+", none, "1-x", Some((0, 3))),
        ("[[:alpha:]_]+", none, "1a_", Some((1, 3))),
        ("\\x2fA\\057", none, "/A/", Some((0, 3))),
        ("(?i)aB(?-i)c", none, "ABcABC", Some((0, 3))),
        ("(?i:a)b", none, "Ab", Some((0, 2))),
        ("a # comment\n b", Flags { extended: true, ..none }, "ab", Some((0, 2))),
        ("\\Qa.b\\E", none, "aab a.b", Some((4, 7))),
        ("(a?)*b", none, "aab", Some((0, 3))),
        ("(a|b)*?c", none, "abc", Some((0, 3))),
        ("", none, "x", Some((0, 0))),
        ("b", Flags { anchored: true, ..none }, "ab", None),
        ("a+", Flags { ungreedy: true, ..none }, "aa", Some((0, 1))),
        ("\\bfoo\\b", none, "afoo foo", Some((5, 8))),
        ("\\R", none, "a\r\n", Some((1, 3))),
        ("(?#no)a", none, "a", Some((0, 1))),
        ("a(?#no)+", none, "aa", Some((0, 2))),
        ("a+(?#no)?", none, "aa", Some((0, 1))),
        ("\\Qab\\E+", none, "abb", Some((0, 3))),
        ("a\\Q\\E{2}", none, "aa", Some((0, 2))),
        ("(?:a{2}){2}", none, "aaaaa", Some((0, 4))),
        ("(?:^)*a", none, "a", Some((0, 1))),
        ("(?=a)?a", none, "a", Some((0, 1))),
        ("a + # two\n ?", Flags { extended: true, ..none }, "aa", Some((0, 1))),
        ("[\\x00-\\x08\\xff]", none, "a\u{8}", Some((1, 2))),
    ] {
        let expected = expected.map_or(Found::Nothing, |(from, to)| Found::At(from, to));
        assert_eq!(find(pattern, flags, text), expected, "{pattern:?} on {text:?}");
    }
}

#[test]
fn what_is_wrong_or_not_judged_is_refused() {
    for pattern in [
        "(",
        ")",
        "[a",
        "a**b(",
        "a**",
        "a{2}{3}",
        "a*(?#c)*",
        "a???",
        "^*",
        "a\\b+",
        "(?i)*a",
        "({2})",
        "a|+",
        "\\Q\\E*",
        "*a",
        "(?R)",
        "(?1)",
        "(?(1)a|b)",
        "\\p{L}",
        "\\K",
        "\\G",
        "(*ANY)a",
        "\\2(a)",
        "[z-a]",
        "a{3,2}",
        "a{70000}",
        "(?<=a+)b",
        "\\x{100}",
        "[[:nothing:]]",
        "\\",
        "(?<n",
        "\\k<m>",
    ] {
        assert!(Pattern::new(pattern.as_bytes(), Flags::default()).is_err(), "{pattern}");
    }
    let deep = "(".repeat(200) + &")".repeat(200);
    assert!(Pattern::new(deep.as_bytes(), Flags::default()).unwrap_err().contains("deeper"));
}

#[test]
fn a_pattern_that_explodes_ends_at_the_limit() {
    let pattern = Pattern::new(b"(a|aa)+(?=b)$", Flags::default()).unwrap();
    assert!(!pattern.is_regular());
    let mut work = Work::default();
    assert_eq!(pattern.find("a".repeat(5000).as_bytes(), 0, &mut work), Found::Limit);
    assert!(work.used() <= MAX_WORK, "{work:?}");
    let huge = Pattern::new(b"(?:(?:a{1000}){1000}){1000}", Flags::default()).unwrap();
    assert_eq!(huge.find(b"aaa", 0, &mut Work::default()), Found::Nothing);
}

#[test]
fn long_groups_and_negated_assertions_cost_work() {
    let text = "a".repeat(20_000);
    for pattern in ["^(a+)(?:b|\\1)*c$", "^(?:a(?!a*b))+c", "(?:(((((((((a)))))))))*\\1c)"] {
        let pattern = Pattern::new(pattern.as_bytes(), Flags::default()).unwrap();
        let mut work = Work::default();
        assert_eq!(pattern.find(text.as_bytes(), 0, &mut work), Found::Limit);
        // The last step may be larger than what is left.
        assert!(work.used() <= MAX_WORK + 20_000, "{work:?}");
    }
}

#[test]
fn a_pattern_with_too_many_states_is_judged_in_bounded_work() {
    let mut random = Random::seeded(5).0;
    let text: Vec<u8> = (0..300_000).map(|_| b"ab"[random.below(2)]).collect();
    let many = |count: u32| {
        let text = format!("a[ab]{{{count}}}c");
        Pattern::new(text.as_bytes(), Flags::default()).unwrap()
    };
    let (small, large) = (many(20), many(900));
    assert!(small.is_regular() && large.is_regular());
    // The lazy automaton gives up; in a short text, the simulation finds what there is.
    let _ = large.find(&text, 0, &mut Work::default());
    let mut work = Work::default();
    assert_eq!(large.find(&text, 0, &mut work), Found::Limit);
    let most = MAX_WORK + text.len() as u64;
    assert!(work.used() <= most, "{work:?}");
    let end = [&text[..1000], b"c"].concat();
    let place = (0..100).find(|at| text[*at] == b'a' && end.len() - at == 902);
    let expected = place.map_or(Found::Nothing, |at| Found::At(at, end.len()));
    assert_eq!(large.find(&end, 0, &mut Work::default()), expected);
    let end = [&text[..1000], &b"a"[..], &text[..20], b"c"].concat();
    assert_eq!(small.find(&end, 0, &mut Work::default()), Found::At(1000, 1022));
}

/// A random pattern over few letters.
fn pattern(random: &mut Random, depth: u32) -> String {
    let part = |random: &mut Random| match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => "a".to_owned(),
        1 => "b".to_owned(),
        2 => ".".to_owned(),
        3 => "[^a]".to_owned(),
        4 => ["^", "$", "\\b", "\\z"][random.below(4)].to_owned(),
        5 => "\\n".to_owned(),
        6 => format!("({})", pattern(random, depth - 1)),
        7 => format!("(?:{}|{})", pattern(random, depth - 1), pattern(random, depth - 1)),
        _ => format!("(?:{})", pattern(random, depth - 1)),
    };
    let mut text = String::new();
    for _ in 0..=random.below(3) {
        let own = part(random);
        let repeat = ["", "", "*", "+?", "?", "{1,2}", "+"][random.below(7)];
        let repeats = !matches!(&*own, "^" | "$" | "\\b" | "\\z");
        text += &own;
        text += if repeats { repeat } else { "" };
    }
    text
}

#[test]
fn both_engines_find_the_same_match() {
    let (mut random, seed) = Random::seeded(23);
    println!("seed {seed}");
    let mut regular = 0;
    for _ in 0..4000 {
        let text = pattern(&mut random, 2);
        let flags = Flags {
            multi_line: random.below(2) == 0,
            dot_all: random.below(2) == 0,
            ..Flags::default()
        };
        let compiled = Pattern::new(text.as_bytes(), flags)
            .unwrap_or_else(|reason| panic!("{text}: {reason}"));
        regular += u32::from(compiled.is_regular());
        for _ in 0..8 {
            let bytes: Vec<u8> = (0..random.below(7)).map(|_| b"aab\n"[random.below(4)]).collect();
            let from = (random.below(3)).min(bytes.len());
            let both = (
                compiled.find(&bytes, from, &mut Work::default()),
                compiled.backtrack(&bytes, from, &mut Work::default()),
            );
            let any = compiled.find_any(&bytes, &mut Work::default());
            let first = compiled.find(&bytes, 0, &mut Work::default());
            assert_eq!(any == Found::Nothing, first == Found::Nothing, "{text:?}");
            assert_eq!(
                both.0,
                both.1,
                "{text:?} {flags:?} on {:?} from {from}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
    assert!(regular > 1000, "{regular}");
}
