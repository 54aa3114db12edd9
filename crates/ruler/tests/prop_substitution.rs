//! Substitution in pieces against the same filter on all bytes in one packet; and that no decided byte changes later.

use fyke_frame::LinkType;
use fyke_ruler::anonymise::Anonymiser;
use fyke_ruler::{Limits, Program, Ruler, Substitution, Verdict};
use fyke_testkit::random::Random;

/// Patterns, and the bytes in their place.
const RULES: [(&str, &str); 9] = [
    ("\"ab\"", "\"xy\""),
    ("\"PASS \" p:[^\\r\\n]{1,6}", "\"PASS \" fill(p,\"x\")"),
    ("p:(\"a\" (\"bcd\")?)", "fill(p,\"-\")"),
    ("p:([ab]{1,5}) \"c\"", "zero(p) \"c\""),
    ("p:([ab]{1,5}?) q:[cd]{0,3}", "p fill(q,\"+\")"),
    ("p:(\"aa\" | \"aab\" | \"b\")", "hashtext(p)"),
    ("\"a\" p:. \"a\"", "\"a\" fill(p,\"0\") \"a\""),
    // Too large for a full automaton: states are built on demand.
    ("p:(\"a\" .{14} [bc])", "fill(p,\"~\")"),
    ("p:(\"ab\"i .{0,9} \"d\")", "hash(p)"),
];

fn anonymiser() -> Anonymiser {
    Anonymiser::new(&[7; 32], &[9; 16])
}

fn text(random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..random.below(60) {
        match random.below(4) {
            0 => text.extend_from_slice(random.pick(&[
                &b"PASS ab"[..],
                b"PASS \r\n",
                b"abcd",
                b"PAS",
            ])),
            _ => text.push(random.pick(b"abcdAB\r \0")),
        }
    }
    text
}

#[test]
fn pieces_give_what_the_whole_gives() {
    let mut replaced = 0;
    let mut engines: Vec<(Ruler, Substitution)> = Vec::new();
    for (pattern, new) in RULES {
        for call in ["h(z)", "z"] {
            let rules = format!("filter h s:* {pattern} z:** => s {new} {call};\n* => accept 5;\n");
            let program =
                Program::from_text(&rules).unwrap_or_else(|error| panic!("{rules}{error}"));
            let limits = Limits::default();
            let pieces = Substitution::new(&program, 0, anonymiser());
            let pieces = pieces.unwrap_or_else(|error| panic!("{error}")).unwrap();
            assert_eq!(pieces.class(), Some(5));
            engines.push((Ruler::new(program, limits, anonymiser()).unwrap(), pieces));
        }
    }
    let (mut random, seed) = Random::seeded(31);
    println!("seed {seed}");
    for _ in 0..5_000 {
        let (whole, pieces) = &mut engines[random.below(RULES.len() * 2)];
        let text = text(&mut random);
        let mut expected = Vec::new();
        match whole.run(0, &text, LinkType::RAW, &mut expected).0 {
            Verdict::Rewrite => {}
            verdict => {
                assert_eq!(verdict, Verdict::Accept(Some(5)));
                expected = text.clone();
            }
        }
        let base = random.below(3) as u64 * 1_000_000_000_000;
        let mut got = text.clone();
        let mut open = pieces.begin(base);
        let (mut at, mut decided) = (0, base);
        let mut note = |decided: u64, start: u64, new: &[u8]| {
            assert!(start >= decided, "a decided byte changes: {text:?} {start} {decided}");
            let start = (start - base) as usize;
            got[start..start + new.len()].copy_from_slice(new);
            replaced += 1;
        };
        while at < text.len() {
            let most = random.pick(&[2, 9, 60]);
            let end = (at + 1 + random.below(most)).min(text.len());
            pieces.feed(&mut open, &text[at..end], &mut |start, new| note(decided, start, new));
            assert!(open.decided() >= decided && open.decided() <= base + end as u64);
            assert!(base + end as u64 - open.decided() <= pieces.longest() + 1);
            (at, decided) = (end, open.decided());
        }
        pieces.end(&mut open, &mut |start, new| note(decided, start, new));
        assert_eq!(open.decided(), base + text.len() as u64);
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(shown(&got), shown(&expected), "of {}", shown(&text));
        let mut at_once = text.clone();
        pieces.apply(&mut at_once);
        assert_eq!(shown(&at_once), shown(&expected));
    }
    assert!(replaced > 1_000, "{replaced}");
}

/// All bytes are decided at once while no match has begun.
#[test]
fn bytes_without_a_beginning_of_a_match_are_decided() {
    let rules =
        "filter h s:* \"PASS \" p:[^\\n]{1,60} z:** => s \"PASS \" zero(p) h(z);\n* => accept;\n";
    let program = Program::from_text(rules).unwrap();
    let mut rules = Substitution::new(&program, 0, anonymiser()).unwrap().unwrap();
    let mut open = rules.begin(0);
    let mut changes = Vec::new();
    let mut at = 0;
    for (piece, decided) in [
        ("hello", 5),
        ("more", 9),
        ("x PA", 9),
        ("no", 15),
        ("PASS se", 15),
        ("cret\n", 27),
        ("a", 28),
    ] {
        rules.feed(&mut open, piece.as_bytes(), &mut |start, new| changes.push((start, new.len())));
        at += piece.len() as u64;
        assert!(open.decided() <= at);
        assert_eq!(open.decided(), decided, "{piece}");
    }
    assert_eq!(changes, [(15, 11)]);
}

#[test]
fn other_filters_are_refused_with_the_reason() {
    let last = "* => accept;";
    for (rules, expected) in [
        ("s:* \"a\" z:* => s \"a\" z;", "then `* => accept`"),
        ("s:* \"a\" z:* => s \"a\" z;\n* => reject;", "then `* => accept`"),
        ("s:* \"a\" z:* => s \"a\" z;\n\"b\" => accept;", "then `* => accept`"),
        ("\"a\" => accept;\n* => accept;", "the first rule"),
        (&format!("s:* \"a\" z:* => s \"ab\" z; {last}"), "keep their lengths"),
        (&format!("s:* p:\"a\" \"b\" z:* => s p z; {last}"), "keep their lengths"),
        (&format!("s:* p:\"a\" q:\"b\" z:* => s q p z; {last}"), "keep their lengths"),
        (&format!("s:* p:[ab]{{1,3}} z:* => s \"aa\" z; {last}"), "keep their lengths"),
        (&format!("s:* p:[ab]+ z:* => s zero(p) z; {last}"), "at most 4096"),
        (&format!("s:* p:[ab]{{1,5000}} z:* => s zero(p) z; {last}"), "at most 4096"),
        (&format!("s:* p:[ab]{{0,3}} z:* => s zero(p) z; {last}"), "replaces nothing"),
        (&format!("\"x\" s:* p:[ab] z:* => s zero(p) z; {last}"), "before:*"),
        (&format!("s:* p:[ab] z:* \"x\" => s zero(p) z; {last}"), "before:*"),
        (&format!("s:* p:[ab] z:* => zero(p) z; {last}"), "before:*"),
        (&format!("s:* p:[ab] z:* => s zero(p); {last}"), "before:*"),
        (&format!("s:* p:[ab] z:* => s zero(p) z fix lengths; {last}"), "fix lengths"),
    ] {
        let program = Program::from_text(&format!("filter f\n{rules}\n"));
        let program = program.unwrap_or_else(|error| panic!("{rules}: {error}"));
        let error = Substitution::check(&program, 0).expect_err(rules).to_string();
        assert!(error.contains(expected), "{rules}: {error}");
    }
}
