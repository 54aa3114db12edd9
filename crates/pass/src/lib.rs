//! The pass engine: dynamic packet filters as sets of passes.
//!
//! A *pass* is an AND of fixed-size instructions, a *pass set* an OR of passes. A filter text is lowered to passes that
//! can be edited in place, each on its own, while others are evaluated.
//!
//! ```text
//! text ─▶ lower ─▶ Edit ─▶ commit ─▶ snapshot (epoch) ─▶ Reader ─▶ (batch, mask) ─▶ mask
//! ```
//!
//! | module | what | cost |
//! |---|---|---|
//! | [`layout`] | the bits of an instruction, shared with the kernel | |
//! | [`instruction`] | reading, making, changing instructions | O(1) |
//! | [`primitive`] | predefined instructions | O(1) |
//! | [`mod@lower`] | from conditions to passes | O(tests), bounded growth |
//! | [`edit`] | groups of changes | O(log passes) a change |
//! | [`pass_set`] | the one writer, snapshots | O(touched passes) a commit |
//! | [`reader`] | batch evaluation | O(passes) a batch, shared instructions once |
//! | [`reference`](mod@reference) | frame by frame, with the papers' marks | O(passes) a frame |
//!
//! Two evaluators: use the batch evaluator, [`Reader::evaluate`]. [`Reader::judge_one`] is its slow, obvious twin, for
//! tests and for tracing a single frame. Both give the verdict of the text's ordered evaluation for every frame,
//! however short (see `lower/needs.rs`). The batch evaluator has several ways to judge frames; `judge/mod.rs` compares
//! them.
//!
//! Inside are six rooms; each uses only those before it: `isa`, `lower`, `state`, `plan`, `writer`, `judge`.
//!
//! Source: Wu, Xie, Wang, "Swift: A Fast Dynamic Packet Filter", NSDI 2008; Wu, "A New Packet Filter", 2007.
#![deny(unsafe_code)]

mod isa;
mod judge;
pub mod lower;
mod plan;
mod state;
mod writer;

pub use isa::id::{Epoch, FilterId, PassId, RowId, ShapeId};
pub use isa::instruction::{self, InstructionError};
pub use isa::layout::{self, Instruction, Opcode};
pub use isa::operation::Operation;
pub use isa::primitive;
pub use isa::value_set::{SetId, ValueSet};
pub use judge::arch::Level;
pub use judge::matches::{Match, MatchMode, Matches};
pub use judge::reader::{self, Reader};
pub use judge::reference::{self, Verdict};
pub use judge::work::Work;
pub use lower::LowerError;
pub use plan::Sharing;
pub use plan::snapshot::Retired;
pub use writer::declared::{RowView, ShapeView};
pub use writer::describe::{InstructionView, PassView};
pub use writer::draft::Draft;
pub use writer::edit::{self, Edit};
pub use writer::error::EditError;
pub use writer::lowered::LoweredFilter;
pub use writer::pass_set::{self, Capacity, PassSet};
pub use writer::shapes::{Layout, MAX_SHAPES};
pub use writer::staged::Staged;
pub use writer::view::{FilterView, Ordered, PassSnapshot, Viewer};
