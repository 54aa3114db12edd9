//! Lowering: from a filter text's condition to passes.
//!
//! ```text
//! condition ─▶ tree (negations at the tests, lists are sets) ─▶ fuse ─▶ except ─▶ passes ─▶ unite ─▶ emit
//! ```
//!
//! | step | file | what |
//! |---|---|---|
//! | literals | `literal.rs` | tests in one normal form |
//! | places | `place.rs` | byte expressions for a place after headers |
//! | tree | `tree.rs` | negation normal form with the places in the text |
//! | merge | `merge.rs` | similar alternatives become one test over a set, neighbours one test of bytes |
//! | facts | `facts.rs` | tests that a conjunction already decides |
//! | except | `except.rs` | choices that multiply become one negated test of their exceptions |
//! | passes | `dnf.rs` | the disjunctive normal form, with a limit on growth |
//! | unite | `unite.rs` | passes that differ in one test become one |
//! | emit | `emit.rs` | the best instruction for each test |
//!
//! The result is equal to the condition for every frame that is *complete* (see `needs.rs`); other frames are judged by
//! the condition itself. Source: Swift, section 3.3 (one literal, one instruction).

mod dnf;
mod emit;
mod except;
mod facts;
pub(crate) mod literal;
mod merge;
pub(crate) mod needs;
pub(crate) mod oracle;
pub(crate) mod place;
mod tree;
mod unite;

use crate::isa::instruction::InstructionError;
use crate::isa::layout::Instruction;
use crate::isa::primitive::never;
use crate::isa::value_set::ValueSet;
use crate::lower::needs::{Needs, NeedsBuilder};
use crate::lower::oracle::Oracle;
use fyke_filter::{Predicate, Reading};
use fyke_frame::{Condition, LinkType};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use tree::{Context, MAX_DEPTH, Tree};

/// Most instructions of a pass.
pub const MAX_INSTRUCTIONS: usize = 64;

/// Fewest passes that become a table: a table costs a frame as much as about ten passes.
pub const THRESHOLD: usize = 16;

/// Reason why a text cannot become passes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// The choices in the text multiply to too many passes.
    #[error("its alternatives multiply to more than {limit} passes{}", place(expression))]
    TooManyPasses {
        /// Largest number of passes for a text of this size.
        limit: usize,
        /// The part that multiplies, in bytes of the text.
        span: Range<usize>,
        /// The text of that part, if the text is known.
        expression: String,
    },
    /// The expression is nested too deeply.
    #[error(
        "it is nested more than {limit} levels deep (\"and\" and \"or\" bind alike: \
         without parentheses each change between them is a level)"
    )]
    TooDeep {
        /// Deepest nesting that is accepted.
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
        /// Largest number of passes of the set.
        limit: usize,
    },
    /// A test cannot be written as an instruction; a bug of lowering.
    #[error("a test has no instruction")]
    Instruction(#[from] InstructionError),
}

impl LowerError {
    /// True if the text is too large for passes. The ordered evaluator takes texts of any size.
    fn is_size(&self) -> bool {
        matches!(self, LowerError::TooManyPasses { .. } | LowerError::TooDeep { .. })
    }
}

/// Number of characters of an expression that an error shows.
const MAX_SHOWN: usize = 120;

fn place(expression: &str) -> String {
    match expression.char_indices().nth(MAX_SHOWN) {
        _ if expression.is_empty() => String::new(),
        None => format!(", mostly by \"{expression}\""),
        Some((end, _)) => format!(", mostly by \"{} …\"", expression[..end].trim_end()),
    }
}

/// A text as passes. Inner sets in it are still lists of passes.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub text: Arc<str>,
    /// Link type of the text.
    pub link: Option<LinkType>,
    pub oracle: Oracle,
    /// The instructions of each pass; the numbers of sets and conditions count within `references`.
    pub passes: Vec<Vec<Instruction>>,
    /// Frames that the passes may judge.
    pub needs: Needs,
    /// The reason if the text was too large for passes, so that the ordered evaluator judges all frames.
    pub too_large: Option<Arc<LowerError>>,
    pub references: References,
}

impl Lowered {
    /// Lowers a filter text. A text that is too large for passes becomes [`Lowered::ordered`], and so does a text in
    /// the scoped reading: it tests headers at any depth.
    ///
    /// # Errors
    /// [`LowerError::Instruction`], a bug of lowering.
    pub fn new(predicate: &Predicate) -> Result<Lowered, LowerError> {
        if predicate.reading() == Reading::Scoped {
            return Ok(Lowered::ordered(predicate));
        }
        Lowered::as_passes(predicate).or_else(|error| match error.is_size() {
            true => Ok(Lowered { too_large: Some(Arc::new(error)), ..Lowered::ordered(predicate) }),
            false => Err(error),
        })
    }

    fn as_passes(predicate: &Predicate) -> Result<Lowered, LowerError> {
        let root = predicate.root();
        let tree = (root.depth() <= MAX_DEPTH)
            .then(|| Tree::of_node(root, Context::default()))
            .flatten()
            .ok_or(LowerError::TooDeep { limit: MAX_DEPTH })?;
        let mut needs = NeedsBuilder::new();
        needs.whole_predicate(root);
        Lowered::of_predicate(predicate).filled(tree, needs)
    }

    /// One pass for which the ordered evaluator judges frame by frame.
    pub fn ordered(predicate: &Predicate) -> Lowered {
        let passes = vec![vec![never()]];
        Lowered { passes, needs: Needs::never(), ..Lowered::of_predicate(predicate) }
    }

    /// Lowers a condition that is not part of a text, or leaves it to the ordered evaluator if it would become too many
    /// passes. Views and errors show `text`.
    ///
    /// # Errors
    /// [`LowerError::TooDeep`]: the ordered evaluator of conditions is recursive.
    pub fn of_condition(condition: Arc<Condition>, text: &str) -> Result<Lowered, LowerError> {
        let deep = LowerError::TooDeep { limit: MAX_DEPTH };
        let tree = Tree::of(&condition, Context::default(), 0).ok_or(deep)?;
        let mut needs = NeedsBuilder::new();
        needs.whole_condition(&condition);
        let empty = || Lowered::empty(text, None, Oracle::Condition(condition.clone()));
        empty().filled(tree, needs).or_else(|error| match error.is_size() {
            true => {
                let (passes, too_large) = (vec![vec![never()]], Some(Arc::new(error)));
                Ok(Lowered { passes, too_large, ..empty() })
            }
            false => Err(error),
        })
    }

    fn of_predicate(predicate: &Predicate) -> Lowered {
        let oracle = Oracle::Predicate(predicate.clone());
        Lowered::empty(predicate.text(), Some(predicate.link()), oracle)
    }

    fn empty(text: &str, link: Option<LinkType>, oracle: Oracle) -> Lowered {
        let (passes, needs, references) = (Vec::new(), Needs::never(), References::default());
        Lowered { text: text.into(), link, oracle, passes, needs, too_large: None, references }
    }

    fn filled(mut self, tree: Tree, mut needs: NeedsBuilder) -> Result<Lowered, LowerError> {
        let mut floor = 0;
        let tree = merge::fuse(tree, &mut floor);
        let conjunctions = except::passes(&tree, &mut floor).map_err(|error| {
            let span = error.span.range();
            let expression = self.text.get(span.clone()).unwrap_or("").to_owned();
            LowerError::TooManyPasses { limit: error.limit, span, expression }
        })?;
        needs.floor(floor);
        self.needs = needs.finish();
        // Conditions without a link type are for sets of any link type, which serves only to name fields in the output.
        let link = self.link.unwrap_or(LinkType::EN10MB);
        let mut emitter = emit::Emitter::new(&mut self.references, link);
        self.passes.reserve(conjunctions.len());
        for conjunction in &conjunctions {
            self.passes.extend(emitter.pass(conjunction)?);
        }
        Ok(self)
    }
}

/// Target of an instruction's set number.
#[derive(Debug)]
pub(crate) enum NamedSet {
    Values(ValueSet),
    Passes(LoweredPasses),
}

/// Passes that an instruction evaluates; it holds if one of them accepts.
#[derive(Debug)]
pub(crate) struct LoweredPasses {
    pub link: LinkType,
    pub passes: Vec<Vec<Instruction>>,
    pub references: References,
}

/// Sets and conditions of a text, numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub sets: Vec<NamedSet>,
    pub conditions: Vec<Arc<Condition>>,
    known: HashMap<Arc<Condition>, u32>,
}

impl References {
    /// Stores a set and returns its number.
    fn set(&mut self, set: NamedSet) -> u32 {
        self.sets.push(set);
        self.sets.len() as u32 - 1
    }

    /// Stores a condition and returns its number.
    fn condition(&mut self, condition: &Arc<Condition>) -> u32 {
        *self.known.entry(condition.clone()).or_insert_with(|| {
            self.conditions.push(condition.clone());
            self.conditions.len() as u32 - 1
        })
    }
}
