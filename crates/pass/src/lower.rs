//! Lowering: from a filter text's condition to passes.
//!
//! ```text
//! condition ─▶ tree (negations at the tests, lists are sets) ─▶ fuse ─▶ passes ─▶ unite ─▶ emit
//! ```
//!
//! | step | file | what |
//! |---|---|---|
//! | literals | `literal.rs` | tests in one normal form |
//! | places | `place.rs` | byte expressions that mean a place behind headers |
//! | tree | `tree.rs` | negation normal form with the places in the text |
//! | merge | `merge.rs` | similar alternatives become one test over a set, neighbours one test of bytes |
//! | facts | `facts.rs` | what a conjunction already decides |
//! | passes | `dnf.rs` | the disjunctive normal form, with a limit on growth |
//! | unite | `unite.rs` | passes that differ in one test become one |
//! | emit | `emit.rs` | the best instruction for each test |
//!
//! The result is equal to the condition for every frame that is *complete* (see `needs.rs`); for other frames the
//! condition itself is asked. Source: Swift, section 3.3 (one literal, one instruction); DESIGN 2 and 4.

mod dnf;
mod emit;
mod facts;
pub(crate) mod literal;
mod merge;
pub(crate) mod place;
mod tree;
mod unite;

pub(crate) use emit::Store;

use crate::instruction::InstructionError;
use crate::layout::Instruction;
use crate::needs::{Needs, NeedsBuilder};
use fyke_filter::Predicate;
use fyke_frame::{Condition, LinkType};
use std::ops::Range;
use tree::{Context, MAX_DEPTH, Tree};

/// Most instructions of a pass.
pub const MAX_INSTRUCTIONS: usize = 64;

/// Why a text cannot become passes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// The choices in the text multiply to too many passes.
    #[error(
        "this expression becomes more than {limit} passes{}: its alternatives multiply with the \
         others. Write alternatives of one kind as one list \
         (\"host (a or b)\", \"port (x or y)\"), \
         which is a set whatever its size, or add the parts as filters of their own",
        place(expression)
    )]
    TooManyPasses {
        /// Most passes for a text of this size.
        limit: usize,
        /// The part that multiplies, in bytes of the text.
        span: Range<usize>,
        /// The text of that part, when the text is known.
        expression: String,
    },
    /// One pass has too many tests.
    #[error(
        "one alternative has {given} tests, at most {limit} are possible; put it into two filters"
    )]
    PassTooLong {
        /// How many it has.
        given: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The expression is nested too deeply.
    #[error(
        "the expression is nested more than {limit} levels deep (\"and\" and \"or\" bind alike: \
         without parentheses each change between them is a level)"
    )]
    TooDeep {
        /// Levels that are possible.
        limit: usize,
    },
    /// The text was compiled for frames of another kind.
    #[error("the filter is for {given} frames, the pass set for {expected}")]
    Link {
        /// Link type of the filter.
        given: LinkType,
        /// Link type of the set.
        expected: LinkType,
    },
    /// The set has no room.
    #[error("the pass set is full: {limit} passes")]
    Full {
        /// Most passes of the set.
        limit: usize,
    },
    /// A test cannot be written as an instruction; a bug of lowering.
    #[error("a test has no instruction")]
    Instruction(#[from] InstructionError),
}

/// Characters of an expression that an error shows.
const MAX_SHOWN: usize = 120;

fn place(expression: &str) -> String {
    match expression.char_indices().nth(MAX_SHOWN) {
        _ if expression.is_empty() => String::new(),
        None => format!(", mostly by \"{expression}\""),
        Some((end, _)) => format!(", mostly by \"{} …\"", expression[..end].trim_end()),
    }
}

/// What becomes of a text.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// The instructions of each pass.
    pub passes: Vec<Vec<Instruction>>,
    /// Which frames the passes may judge.
    pub needs: Needs,
}

/// Collects the parts of a text and lowers it.
pub(crate) struct Lowering<'t> {
    text: &'t str,
}

impl<'t> Lowering<'t> {
    /// Lowering for errors that quote `text`.
    pub fn new(text: &'t str) -> Self {
        Lowering { text }
    }

    /// Lowers a condition without places in a text.
    pub fn condition(
        &self,
        condition: &Condition,
        store: &mut dyn Store,
    ) -> Result<Lowered, LowerError> {
        let deep = LowerError::TooDeep { limit: MAX_DEPTH };
        let tree = Tree::of(condition, Context::default(), 0).ok_or(deep)?;
        let mut needs = NeedsBuilder::new();
        needs.whole_condition(condition);
        self.finish(tree, needs, store)
    }

    /// Lowers a filter text.
    pub fn predicate(
        &self,
        predicate: &Predicate,
        store: &mut dyn Store,
    ) -> Result<Lowered, LowerError> {
        let deep = LowerError::TooDeep { limit: MAX_DEPTH };
        if predicate.root().depth() > MAX_DEPTH {
            return Err(deep);
        }
        let tree = Tree::of_node(predicate.root(), Context::default()).ok_or(deep)?;
        let mut needs = NeedsBuilder::new();
        needs.whole_predicate(predicate.root());
        self.finish(tree, needs, store)
    }

    fn finish(
        &self,
        tree: Tree,
        mut needs: NeedsBuilder,
        store: &mut dyn Store,
    ) -> Result<Lowered, LowerError> {
        let mut floor = 0;
        let tree = merge::fuse(tree, &mut floor);
        let conjunctions = dnf::passes(&tree, &mut floor).map_err(|error| {
            let span = error.span.range();
            let expression = self.text.get(span.clone()).unwrap_or("").to_owned();
            LowerError::TooManyPasses { limit: error.limit, span, expression }
        })?;
        needs.floor(floor);
        let mut emitter = emit::Emitter::new(store);
        let mut passes = Vec::with_capacity(conjunctions.len());
        for conjunction in &conjunctions {
            let Some(pass) = emitter.pass(conjunction)? else { continue };
            if pass.len() > MAX_INSTRUCTIONS {
                let limit = MAX_INSTRUCTIONS;
                return Err(LowerError::PassTooLong { given: pass.len(), limit });
            }
            passes.push(pass);
        }
        Ok(Lowered { passes, needs: needs.finish() })
    }
}
