//! Automata against the oracle: random rules over small alphabets, for one filter and for several in one matcher;
//! every rule and every captured span is equal.

use fyke_ruler::byte_set::ByteSet;
use fyke_ruler::matcher::Room;
use fyke_ruler::nfa::Nfa;
use fyke_ruler::node::Node;
use fyke_ruler::oracle;
use fyke_ruler::program::Action;
use fyke_ruler::{Limits, Matcher, Progress, Rule, Span, pike};

/// A seeded generator: the same rules on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn pick(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn set(&mut self) -> ByteSet {
        match self.pick(6) {
            0 => ByteSet::ALL,
            1 => ByteSet::range(b'a', b'b'),
            2 => ByteSet::one(b'c'),
            3 => ByteSet::one(b'b'),
            _ => ByteSet::one(b'a'),
        }
    }

    fn node(&mut self, depth: u32, slots: &mut Vec<String>) -> Node {
        let kinds = if depth == 0 { 3 } else { 10 };
        match self.pick(kinds) {
            0 | 1 => Node::Set(self.set()),
            2 => Node::any(self.pick(3) == 0),
            3 | 4 => self.sequence(depth, slots),
            5 => {
                let branches = 2 + self.pick(2);
                Node::Alternation((0..branches).map(|_| self.node(depth - 1, slots)).collect())
            }
            6 => {
                let min = u32::try_from(self.pick(3)).unwrap();
                let more = u32::try_from(self.pick(3)).unwrap();
                let max = if self.pick(2) == 0 { None } else { Some(min + more) };
                let greedy = self.pick(2) == 0;
                let mut node = self.node(depth - 1, slots);
                if max.is_none() && node.is_nullable() {
                    // The language does not have this pattern.
                    node = Node::Sequence(vec![node, Node::Set(self.set())]);
                }
                Node::Repeat { node: Box::new(node), min, max, greedy }
            }
            7 => Node::Variable {
                head: vec![Node::Set(ByteSet::ALL), Node::Set(self.set())],
                variants: vec![
                    (ByteSet::one(b'a'), 0),
                    (ByteSet::one(b'b'), 2),
                    (ByteSet::one(b'c'), 1),
                ],
                slot: (self.pick(2) == 0).then(|| new_slot(slots)),
            },
            8 => Node::Empty,
            _ => {
                let slot = new_slot(slots);
                Node::Capture(slot, Box::new(self.node(depth - 1, slots)))
            }
        }
    }

    fn sequence(&mut self, depth: u32, slots: &mut Vec<String>) -> Node {
        let items = 2 + self.pick(3);
        Node::Sequence((0..items).map(|_| self.node(depth - 1, slots)).collect())
    }

    fn rule(&mut self, captures: bool) -> Rule {
        let mut slots = Vec::new();
        let pattern = self.sequence(3, &mut slots);
        let used = vec![captures; slots.len()];
        Rule { pattern, slots, used, action: Action::Reject, span: Span::default() }
    }

    fn input(&mut self) -> Vec<u8> {
        let len = self.pick(9);
        (0..len).map(|_| b"aaabbcd"[self.pick(7) as usize]).collect()
    }
}

fn new_slot(slots: &mut Vec<String>) -> u32 {
    slots.push(format!("slot{}", slots.len()));
    u32::try_from(slots.len() - 1).unwrap()
}

fn compare(seed: u64, captures: bool, limits: Limits) -> (usize, usize) {
    let mut random = Random(seed);
    let rules: Vec<Rule> = (0..1 + random.pick(3)).map(|_| random.rule(captures)).collect();
    let numbers: Vec<u32> = (0..rules.len() as u32).collect();
    let nfa = Nfa::build(&rules, &numbers);
    let matcher = Matcher::new(&rules, limits).expect("small");
    let (mut room, mut pike_room, mut tags) = (Room::default(), pike::Room::default(), Vec::new());
    let (mut matched, mut missed) = (0, 0);
    for _ in 0..40 {
        let input = random.input();
        let Ok(expected) = oracle::first_match(&rules, &input) else { continue };
        let what = format!("seed {seed}, input {:?}\n{rules:#?}", String::from_utf8_lossy(&input));
        let simulated = pike::first_match(&nfa, &mut pike_room, &input, &mut tags);
        let found = matcher.first_match(&mut room, &input);
        assert_eq!(expected.as_ref().map(|(rule, _)| *rule), found, "automaton, {what}");
        assert_eq!(found, simulated.map(|rule| rule as usize), "simulation, {what}");
        let Some((rule, slots)) = expected else {
            missed += 1;
            continue;
        };
        matched += 1;
        for (slot, span) in (0u32..).zip(slots.iter().filter(|_| captures)) {
            assert_eq!(
                nfa.rules[rule].span(slot, &tags, input.len()),
                *span,
                "simulated slot {slot}, {what}"
            );
            assert_eq!(matcher.slot(&room, slot, input.len()), *span, "slot {slot}, {what}");
        }
    }
    (matched, missed)
}

fn many(captures: bool, limits: Limits, seeds: std::ops::Range<u64>) {
    let (mut matched, mut missed) = (0, 0);
    for seed in seeds {
        let (more_matched, more_missed) =
            compare(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, captures, limits);
        matched += more_matched;
        missed += more_missed;
    }
    println!("{matched} matched, {missed} did not");
    assert!(matched > 1000 && missed > 1000, "a test of both answers: {matched}, {missed}");
}

#[test]
fn every_span_is_the_oracles() {
    many(true, Limits::default(), 0..900);
}

#[test]
fn without_tags_the_rule_is_the_oracles() {
    many(false, Limits::default(), 3000..3500);
}

/// Splitting into parts and simulation of large rules do not change any answer.
#[test]
fn tight_limits_change_nothing() {
    many(true, Limits { states: 8, ..Limits::default() }, 5000..5300);
}

/// Several filters in one matcher: each has the winner and the spans that it has alone.
#[test]
fn filters_together_answer_as_one_by_one() {
    let (mut matched, mut shared, mut apart) = (0, 0, 0);
    for seed in 7000..7150u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let captures = seed % 2 == 0;
        let filters: Vec<Vec<Rule>> = (0..2 + random.pick(3))
            .map(|_| (0..1 + random.pick(3)).map(|_| random.rule(captures)).collect())
            .collect();
        let states = if seed % 3 == 0 { 40 } else { 8192 };
        let rules: Vec<&[Rule]> = filters.iter().map(Vec::as_slice).collect();
        let limits = Limits { states, work: 200_000, ..Limits::default() };
        let matcher = Matcher::of_filters(&rules, limits).expect("small");
        match matcher.parts() {
            [part] if part.filters() > 1 => shared += 1,
            _ => apart += 1,
        }
        let mut room = Room::default();
        for _ in 0..30 {
            let input = random.input();
            matcher.matches(&mut room, &input);
            for (filter, rules) in filters.iter().enumerate() {
                let Ok(expected) = oracle::first_match(rules, &input) else { continue };
                let what = || format!("seed {seed}, filter {filter}, {input:?}\n{filters:#?}");
                let found = matcher.winner(&room, filter);
                assert_eq!(found, expected.as_ref().map(|(rule, _)| *rule), "{}", what());
                let slots = expected.map(|(_, slots)| slots).unwrap_or_default();
                matched += usize::from(found.is_some());
                for (slot, span) in (0u32..).zip(slots.iter().filter(|_| captures)) {
                    let own = matcher.slot_of(&room, filter, slot, input.len());
                    assert_eq!(own, *span, "slot {slot}, {}", what());
                }
            }
        }
    }
    println!("{matched} matched, {shared} in one automaton, {apart} in several");
    assert!(matched > 1000 && shared > 20 && apart > 20);
}

/// A stream in pieces, cut anywhere, has the answer and the spans of the whole, and is never reported as settled
/// too early.
#[test]
fn streams_answer_as_the_whole() {
    let (mut matched, mut settled, mut certain) = (0, 0, 0);
    for seed in 9000..9400u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let captures = seed % 2 == 0;
        let rules: Vec<Rule> = (0..1 + random.pick(3)).map(|_| random.rule(captures)).collect();
        let states = if seed % 3 == 0 { 8 } else { 8192 };
        let matcher = Matcher::new(&rules, Limits { states, ..Limits::default() }).expect("small");
        let mut room = Room::default();
        for _ in 0..30 {
            let input: Vec<u8> = [random.input(), random.input()].concat();
            let Ok(expected) = oracle::first_match(&rules, &input) else { continue };
            let what = || format!("seed {seed}, input {:?}\n{rules:#?}", input.escape_ascii());
            let mut stream = matcher.stream();
            let mut from = 0;
            while from < input.len() {
                let to = (from + random.pick(4) as usize).min(input.len());
                let progress = matcher.feed(&mut stream, &mut room, &input[from..to]);
                settled += usize::from(progress == Progress::Settled && to < input.len());
                if let Some(rule) = matcher.certain(&stream, 0) {
                    certain += 1;
                    assert!(expected.as_ref().is_some_and(|(own, _)| *own <= rule), "{}", what());
                }
                from = to;
            }
            matcher.at_end(&stream, &mut room);
            let found = matcher.winner(&room, 0);
            assert_eq!(found, expected.as_ref().map(|(rule, _)| *rule), "{}", what());
            matched += usize::from(found.is_some());
            let slots = expected.map(|(_, slots)| slots).unwrap_or_default();
            for (slot, span) in (0u32..).zip(slots.iter().filter(|_| captures)) {
                let own = matcher.slot(&room, slot, stream.len());
                assert_eq!(own, *span, "slot {slot}, {}", what());
            }
        }
    }
    println!("{matched} matched, {settled} settled before their end, {certain} certain");
    assert!(matched > 1000 && settled > 200 && certain > 200);
}
