//! Regular expressions of PCRE, as the option `pcre` has them.
//!
//! | engine | when | cost |
//! |---|---|---|
//! | automata of `regex-automata` | the pattern is regular, and its automaton is of bounded size | O(bytes) |
//! | backtracking | back references, look-around, atomic groups, `$` before a last line feed | exponential |
//!
//! Both give what PCRE gives: the leftmost match and, of those, the first in the order of the alternatives; a
//! property test compares them. A pattern that neither can judge exactly (recursion, conditions, callouts, Unicode
//! properties) is refused. If the granted work is used up, there is no match and the limit is counted, as PCRE itself
//! does with its match limit.

mod ast;
mod automaton;
mod backtrack;
mod hir;
mod parse;
#[cfg(test)]
mod sample;

use crate::work::Work;
pub use ast::Flags;
use ast::{Node, Place};
use automaton::Automaton;
use backtrack::{Backtracker, LimitReached, Program};
use regex_automata::{Anchored, Input};
use std::sync::OnceLock;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    node: Node,
    program: Program,
    flags: Flags,
    /// The automaton is wrong for texts that end with a line feed: `$` also matches before it, `^` not after it.
    minds_last_line: bool,
    /// Built when it is first needed; none if the pattern is not regular or too large.
    automaton: OnceLock<Option<Box<Automaton>>>,
}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The match, from and to.
    At(usize, usize),
    /// No match.
    Nothing,
    /// No work is left.
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

    fn automaton(&self) -> Option<&Automaton> {
        let automaton = self.automaton.get_or_init(|| {
            // Most patterns have none: it is made at the first search.
            Automaton::new(&hir::translate(&self.node)?).map(Box::new)
        });
        automaton.as_deref()
    }

    /// Finds the first match in `bytes` that begins at `from` or later. Anchors and assertions see all of `bytes`.
    pub fn find(&self, bytes: &[u8], from: usize, work: &mut Work) -> Found {
        self.search(bytes, from, false, work)
    }

    /// Finds whether there is a match; its place means nothing.
    pub fn find_any(&self, bytes: &[u8], work: &mut Work) -> Found {
        self.search(bytes, 0, true, work)
    }

    fn search(&self, bytes: &[u8], from: usize, earliest: bool, work: &mut Work) -> Found {
        if from > bytes.len() || (self.flags.anchored && from > 0) {
            return Found::Nothing;
        }
        let ordinary = !self.minds_last_line || bytes.last() != Some(&b'\n');
        let is_built = self.automaton.get().is_some();
        if ordinary && let Some(automaton) = self.automaton() {
            if !is_built {
                work.owe(automaton.bytes() / 8);
            }
            let anchored = if self.flags.anchored { Anchored::Yes } else { Anchored::No };
            let input = Input::new(bytes).range(from..).anchored(anchored).earliest(earliest);
            match automaton.search(&input, work) {
                Ok(Some((start, end))) => return Found::At(start, end),
                Ok(None) => return Found::Nothing,
                Err(()) if work.is_out() => return Found::Limit,
                Err(()) => {}
            }
        }
        self.backtrack(bytes, from, work)
    }

    /// Finds the match by backtracking, whether the pattern is regular or not.
    pub fn backtrack(&self, bytes: &[u8], from: usize, work: &mut Work) -> Found {
        let last = if self.flags.anchored { 0 } else { bytes.len() };
        if !work.take(1 + last.saturating_sub(from) / 16) {
            return Found::Limit;
        }
        let mut engine = Backtracker::new(&self.program, bytes, work);
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
