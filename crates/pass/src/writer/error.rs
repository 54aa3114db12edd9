//! Errors of changes to a set of passes.

use crate::isa::id::{FilterId, PassId};
use crate::isa::instruction::InstructionError;

/// Reason why a change was refused. A refused change has no effect, and the edit can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The pass does not exist (any more).
    #[error("there is no pass {given}")]
    NoPass {
        /// The number given.
        given: PassId,
    },
    /// The filter does not exist (any more).
    #[error("there is no filter {given}")]
    NoFilter {
        /// The number given.
        given: FilterId,
    },
    /// The set does not exist.
    #[error("there is no set {given}")]
    NoSet {
        /// The number given.
        given: u32,
    },
    /// The set has members of the other kind.
    #[error(
        "set {given} holds {}",
        if *addresses { "IPv6 addresses" } else { "words, not IPv6 addresses" }
    )]
    SetKind {
        /// The set's number.
        given: u32,
        /// True if its members are addresses.
        addresses: bool,
    },
    /// A set of passes was named by another opcode than `PASSES`, or `PASSES` named another set.
    #[error("PASSES and no other instruction names a set of passes; set {given} does not fit")]
    SetOfPasses {
        /// The set's number.
        given: u32,
    },
    /// The condition does not exist.
    #[error("there is no condition {given}")]
    NoCondition {
        /// The number given.
        given: u32,
    },
    /// The instruction does not exist. An index equal to the length appends, where that makes sense.
    #[error("instruction {given} does not exist: the pass has {length}")]
    NoInstruction {
        /// The index given.
        given: usize,
        /// Number of instructions of the pass.
        length: usize,
    },
    /// An instruction has eight words.
    #[error("an instruction has 8 words, there is no word {given}")]
    NoWord {
        /// The index given.
        given: usize,
    },
    /// The pass is full.
    #[error("a pass has room for {limit} instructions")]
    PassFull {
        /// Largest number of instructions.
        limit: usize,
    },
    /// The set of passes is full.
    #[error("the pass set is full: {limit} passes")]
    Full {
        /// Largest number of passes.
        limit: usize,
    },
    /// The declared shape does not exist (any more).
    #[error("there is no shape {given}")]
    NoShape {
        /// The number given.
        given: u32,
    },
    /// The shape has rows.
    #[error("shape {given} has {rows} rows")]
    ShapeInUse {
        /// The number given.
        given: u32,
        /// Number of rows.
        rows: usize,
    },
    /// The set has the largest number of shapes.
    #[error("there is room for {limit} shapes")]
    TooManyShapes {
        /// Largest number of shapes.
        limit: usize,
    },
    /// A varying instruction does not compare words with one value each, or is negated.
    #[error("instruction {given} of a shape varies but is not a comparison with one value")]
    NotExact {
        /// The index given.
        given: usize,
    },
    /// The varying instructions of a shape compare no word, or too many.
    #[error("the varying instructions of a shape compare 1 to {limit} words")]
    KeyWidth {
        /// Largest number of words.
        limit: usize,
    },
    /// The number of operands is not the number of varying words.
    #[error("{given} operands for a row with {expected}")]
    Operands {
        /// The number of operands given.
        given: usize,
        /// Number of words that vary.
        expected: usize,
    },
    /// The largest number of rows with these operands exists already.
    #[error("{limit} rows have these operands already")]
    SameRow {
        /// The limit.
        limit: usize,
    },
    /// The bits are not an instruction, or an operand does not fit.
    #[error(transparent)]
    Instruction(#[from] InstructionError),
}
