//! Why a change of a set of passes is refused.

use crate::isa::id::{FilterId, PassId};
use crate::isa::instruction::InstructionError;

/// Why a change was refused. Nothing has changed then; the edit can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// There is no such pass (any more).
    #[error("there is no pass {given}")]
    NoPass {
        /// The number given.
        given: PassId,
    },
    /// There is no such filter (any more).
    #[error("there is no filter {given}")]
    NoFilter {
        /// The number given.
        given: FilterId,
    },
    /// There is no such set.
    #[error("there is no set {given}")]
    NoSet {
        /// The number given.
        given: u32,
    },
    /// The set's members are of the other kind.
    #[error(
        "set {given} holds {}",
        if *addresses { "IPv6 addresses" } else { "words, not IPv6 addresses" }
    )]
    SetKind {
        /// The set's number.
        given: u32,
        /// Whether its members are addresses.
        addresses: bool,
    },
    /// Only `PASSES` names a set of passes, and no other set.
    #[error("PASSES and no other instruction names a set of passes; set {given} does not fit")]
    SetOfPasses {
        /// The set's number.
        given: u32,
    },
    /// There is no such condition.
    #[error("there is no condition {given}")]
    NoCondition {
        /// The number given.
        given: u32,
    },
    /// There is no such instruction. An index equal to the length appends, where that makes sense.
    #[error("instruction {given} does not exist: the pass has {length}")]
    NoInstruction {
        /// The index given.
        given: usize,
        /// Instructions of the pass.
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
        /// Most instructions.
        limit: usize,
    },
    /// The set of passes is full.
    #[error("the pass set is full: {limit} passes")]
    Full {
        /// Most passes.
        limit: usize,
    },
    /// There is no such declared shape (any more).
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
        /// Rows.
        rows: usize,
    },
    /// There is no room for one more shape.
    #[error("there is room for {limit} shapes")]
    TooManyShapes {
        /// Most shapes.
        limit: usize,
    },
    /// What varies must be comparisons of words with one value each, not negated.
    #[error("instruction {given} of a shape varies but is not a comparison with one value")]
    NotExact {
        /// The index given.
        given: usize,
    },
    /// The varying instructions of a shape compare no word, or too many.
    #[error("the varying instructions of a shape compare 1 to {limit} words")]
    KeyWidth {
        /// Most words.
        limit: usize,
    },
    /// A row has one operand for each word that varies.
    #[error("{given} operands for a row with {expected}")]
    Operands {
        /// The number given.
        given: usize,
        /// Words that vary.
        expected: usize,
    },
    /// As many rows of the shape have these operands as may.
    #[error("{limit} rows have these operands already")]
    SameRow {
        /// The limit.
        limit: usize,
    },
    /// The bits are not an instruction, or an operand does not fit.
    #[error(transparent)]
    Instruction(#[from] InstructionError),
}
