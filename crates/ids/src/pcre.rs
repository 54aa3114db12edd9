//! Regular expressions of PCRE, as the option `pcre` has them.
//!
//! | engine | when | cost |
//! |---|---|---|
//! | automata of `regex-automata` | the pattern is regular, and its automaton is of bounded size | O(bytes) |
//! | backtracking | back references, look-around, atomic groups, `$` before a last line feed | bounded by steps |
//!
//! Both give what PCRE gives: the leftmost match and, of those, the first in the order of the alternatives; a
//! property test compares them. A pattern that neither can judge exactly (recursion, conditions, callouts, Unicode
//! properties) is refused. If the backtracking engine reaches its limit, there is no match and the limit is counted,
//! as PCRE itself does with its match limit.

mod ast;
mod backtrack;
mod hir;
mod parse;
#[cfg(test)]
mod sample;

pub use ast::Flags;
use ast::{Node, Place};
use backtrack::{Backtracker, LimitReached, Program};
use regex_automata::{Anchored, Input, meta};
use std::sync::OnceLock;

/// Largest automaton of a pattern, in bytes.
const MAX_AUTOMATON_BYTES: usize = 2 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    node: Node,
    program: Program,
    flags: Flags,
    /// The automaton is wrong for texts that end with a line feed: `$` also matches before it, `^` not after it.
    minds_last_line: bool,
    /// Built when it is first needed; none if the pattern is not regular or too large.
    automaton: OnceLock<Option<meta::Regex>>,
}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The match, from and to.
    At(usize, usize),
    /// No match.
    Nothing,
    /// The limit of steps was reached.
    Limit,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// If it is wrong, or has something that cannot be judged.
    pub fn new(text: &[u8], flags: Flags) -> Result<Pattern, String> {
        let (node, groups) = parse::parse(text, flags)?;
        let minds_last_line = node.has(Place::LastLine) || !node.begins_lines_before_bytes();
        let program = Program::new(&node, groups);
        Ok(Pattern { node, program, flags, minds_last_line, automaton: OnceLock::new() })
    }

    fn automaton(&self) -> Option<&meta::Regex> {
        let build = || {
            let hir = hir::translate(&self.node)?;
            // Without prefilters: with them `.a{1,2}[^a]*` ended too early on `baaba` (regex-automata 0.4.18).
            let config = meta::Config::new()
                .nfa_size_limit(Some(MAX_AUTOMATON_BYTES))
                .hybrid_cache_capacity(1 << 20)
                .utf8_empty(false)
                .auto_prefilter(false);
            meta::Builder::new().configure(config).build_from_hir(&hir).ok()
        };
        self.automaton.get_or_init(build).as_ref()
    }

    /// Finds the first match in `bytes` that begins at `from` or later. Anchors and assertions see all of `bytes`.
    pub fn find(&self, bytes: &[u8], from: usize) -> Found {
        if from > bytes.len() {
            return Found::Nothing;
        }
        let ordinary = !self.minds_last_line || bytes.last() != Some(&b'\n');
        if ordinary && let Some(automaton) = self.automaton() {
            let anchored = if self.flags.anchored { Anchored::Yes } else { Anchored::No };
            if self.flags.anchored && from > 0 {
                return Found::Nothing;
            }
            let input = Input::new(bytes).range(from..).anchored(anchored);
            return match automaton.search(&input) {
                Some(found) => Found::At(found.start(), found.end()),
                None => Found::Nothing,
            };
        }
        self.backtrack(bytes, from)
    }

    /// Finds the match by backtracking, whether the pattern is regular or not.
    pub fn backtrack(&self, bytes: &[u8], from: usize) -> Found {
        let mut engine = Backtracker::new(&self.program, bytes);
        let last = if self.flags.anchored { 0 } else { bytes.len() };
        for start in from..=last {
            match engine.run(start) {
                Ok(Some(end)) => return Found::At(start, end),
                Ok(None) => {}
                Err(LimitReached) => return Found::Limit,
            }
        }
        Found::Nothing
    }

    /// True if an automaton judges the pattern.
    pub fn is_regular(&self) -> bool {
        self.automaton().is_some()
    }
}

#[cfg(test)]
mod tests;
