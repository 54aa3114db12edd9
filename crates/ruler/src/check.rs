//! Warnings about correct rules, for users: rules that can never win, rules that are large or slow (and why), and
//! the cost of the automata.
//!
//! The automaton shows if a rule can win: if no reachable state accepts a rule, then an earlier rule matches every
//! packet that it matches (or it matches none). This is reported only if all rules are in one automaton, since only
//! then it is certain.

use crate::error::Error;
use crate::matcher::{Engine, Matcher, floats};
use crate::node::Node;
use crate::program::Program;

/// Cost of a filter.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Number of rules.
    pub rules: usize,
    /// Number of automata that contain its rules.
    pub automata: usize,
    /// Number of automata that run only if the bytes that they need are in the packet.
    pub gated: usize,
    /// Number of rules that the search for needed bytes decides without an automaton.
    pub decided: usize,
    /// Number of automata with states built on demand.
    pub lazy: usize,
    /// Method of the search for needed bytes.
    pub gate: Option<String>,
    /// States of all automata together.
    pub states: usize,
    /// Bytes of their tables.
    pub bytes: usize,
    /// Registers of the automaton with the most registers.
    pub registers: usize,
    /// Number of tags that need a register.
    pub tags: usize,
    /// Number of positions that are computed without a tag.
    pub fixed: usize,
    /// Warnings for users.
    pub warnings: Vec<Error>,
}

/// Computes the cost of a matcher, for one filter or several.
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

/// Inspects the automata of one filter.
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
                let message = "over the limit on states, even alone: the states of this rule are built as \
                               packets need them, which is slower";
                let span = rules[part.rules[0] as usize].span;
                report.warnings.push(
                    Error::new(&program.texts, span, message)
                        .hint("a large count {n,m} after a * is the usual cause"),
                );
            }
        }
    }
    never.sort_unstable();
    for rule in never {
        let message = "this rule never wins: earlier rules match every packet that it matches";
        let span = rules[rule as usize].span;
        report.warnings.push(Error::new(&program.texts, span, message));
    }
    if report.automata > 1 {
        let message = format!(
            "filter \"{}\" needs {} automata: a packet may be scanned that many times",
            program.filters[filter].name, report.automata
        );
        report.warnings.push(
            Error::new(&program.texts, program.filters[filter].span, message)
                .hint("many rules that begin with * multiply each other's states"),
        );
    }
    report
}

/// Number of positions from which a rule is reported as large.
const LARGE: u64 = 4096;

fn large_and_slow(program: &Program, filter: usize, matcher: &Matcher) -> Vec<Error> {
    let rules = &program.filters[filter].rules;
    let mut warnings = Vec::new();
    for rule in rules {
        let cost = rule.pattern.cost();
        if cost >= LARGE {
            let message = format!("this rule has {cost} positions: its automaton is large");
            let hint = "counts {n,m} are expanded, and bytes(…) has one branch for each length";
            warnings.push(Error::new(&program.texts, rule.span, message).hint(hint));
        }
    }
    // Rules that wait for the gate are fast; the rules of `parts` have no bytes to search for.
    let always = matcher.parts().iter().flat_map(|part| &part.rules);
    for rule in always.map(|rule| &rules[*rule as usize]) {
        let all_any = match &rule.pattern {
            Node::Sequence(nodes) => nodes.iter().all(Node::is_any),
            node => node.is_any(),
        };
        if floats(&rule.pattern) && !all_any {
            let message = "this rule may match anywhere and has no bytes to search for: \
                           packets are scanned byte by byte";
            let hint = "it becomes fast if every match contains the same three bytes in a row";
            warnings.push(Error::new(&program.texts, rule.span, message).hint(hint));
        }
    }
    warnings
}
