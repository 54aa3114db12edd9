//! What users should know about rules that are right: which can never win, which are large or slow and why, what
//! the automata cost.
//!
//! Whether a rule can win is read off the automaton: a rule that no reachable state accepts loses to rules before it
//! on every packet (or matches none). Said only where the rules are in one automaton, since only there it is certain.

use crate::error::Error;
use crate::matcher::{Engine, Matcher, floats};
use crate::node::Node;
use crate::program::Program;

/// What a filter costs.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Rules of the filter.
    pub rules: usize,
    /// Automata that its rules were put into.
    pub automata: usize,
    /// Automata that run only when bytes that they need are there.
    pub gated: usize,
    /// Rules that the search for these bytes decides alone.
    pub decided: usize,
    /// Automata whose states are made when packets come to them.
    pub lazy: usize,
    /// How these bytes are searched for.
    pub gate: Option<String>,
    /// States of all of them.
    pub states: usize,
    /// Bytes of their tables.
    pub bytes: usize,
    /// Registers of the automaton that has most.
    pub registers: usize,
    /// Tags that need a register.
    pub tags: usize,
    /// Positions that are told from others without one.
    pub fixed: usize,
    /// What users should know.
    pub warnings: Vec<Error>,
}

/// What a matcher costs, of one filter or of several.
pub fn cost(matcher: &Matcher) -> Report {
    let mut report = Report {
        automata: matcher.parts().len(),
        decided: matcher.decided(),
        gate: matcher.gate(),
        bytes: matcher.gate_bytes(),
        ..Report::default()
    };
    let gated = matcher.gated().inspect(|_| report.gated += 1);
    for part in matcher.parts().iter().chain(gated) {
        report.rules += part.rules.len();
        report.tags += part.tags();
        report.fixed += part.fixed_positions();
        report.bytes += part.bytes();
        match &part.engine {
            Engine::Dense(dense) => {
                report.states += dense.states();
                report.registers = report.registers.max(dense.registers());
            }
            Engine::Lazy => report.lazy += 1,
        }
    }
    report
}

/// Looks at the automata of one filter.
pub fn report(program: &Program, filter: usize, matcher: &Matcher) -> Report {
    let rules = &program.filters[filter].rules;
    let mut report = Report { rules: rules.len(), ..cost(matcher) };
    report.warnings = large_and_slow(program, filter, matcher);
    let mut never = matcher.beaten().to_vec();
    let parts = matcher.parts().iter().map(|part| (part, true));
    for (part, always) in parts.chain(matcher.gated().map(|part| (part, false))) {
        match &part.engine {
            Engine::Dense(dense) => {
                let mut wins = vec![false; part.rules.len()];
                for state in 0..dense.states() {
                    for accept in dense.accepts(state) {
                        wins[accept.rule as usize] = true;
                    }
                }
                let losers = part.rules.iter().zip(wins).filter(|(_, wins)| !wins);
                never.extend(losers.map(|(rule, _)| *rule));
            }
            Engine::Lazy if !always => {}
            Engine::Lazy => {
                let message = "over the limit on states by itself: states are made as packets \
                               need them, which is slower";
                let span = rules[part.rules[0] as usize].span;
                report.warnings.push(
                    Error::new(&program.texts, span, message)
                        .hint("a large count {n,m} behind a * is the usual cause"),
                );
            }
        }
    }
    never.sort_unstable();
    for rule in never {
        let message = "this rule never wins: rules before it take all that it matches";
        let span = rules[rule as usize].span;
        report.warnings.push(Error::new(&program.texts, span, message));
    }
    if report.automata > 1 {
        let message = format!(
            "filter \"{}\" needs {} automata: a packet may be gone over so many times",
            program.filters[filter].name, report.automata
        );
        report.warnings.push(
            Error::new(&program.texts, program.filters[filter].span, message)
                .hint("many rules that begin with * multiply each other's states"),
        );
    }
    report
}

/// Positions from which on a rule is called large.
const LARGE: u64 = 4096;

fn large_and_slow(program: &Program, filter: usize, matcher: &Matcher) -> Vec<Error> {
    let rules = &program.filters[filter].rules;
    let mut warnings = Vec::new();
    for rule in rules {
        let cost = rule.pattern.cost();
        if cost >= LARGE {
            let message = format!("this rule has {cost} positions: its automaton is large");
            let hint = "counts {n,m} are written out, and bytes(…) has a way for each length";
            warnings.push(Error::new(&program.texts, rule.span, message).hint(hint));
        }
    }
    // Behind the gate nothing is slow: what stands here has no bytes to search for.
    let always = matcher.parts().iter().flat_map(|part| &part.rules);
    for rule in always.map(|rule| &rules[*rule as usize]) {
        let all_any = match &rule.pattern {
            Node::Sequence(nodes) => nodes.iter().all(Node::is_any),
            node => node.is_any(),
        };
        if floats(&rule.pattern) && !all_any {
            let message = "this rule may match anywhere and has no bytes to search for: packets \
                           are gone through byte by byte";
            let hint = "three bytes that stand together in every match make it quick";
            warnings.push(Error::new(&program.texts, rule.span, message).hint(hint));
        }
    }
    warnings
}
