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
//! Two evaluators: the batch evaluator behind [`Reader::evaluate`] is the one to use; [`Reader::judge_one`] is the
//! slow, obvious twin for tests and for tracing a single frame. Both give the verdict of the text's ordered
//! evaluation for every frame, however short (see `needs.rs`).
//!
//! Source: Wu, Xie, Wang, "Swift: A Fast Dynamic Packet Filter", NSDI 2008; Wu, "A New Packet Filter", 2007.
#![deny(unsafe_code)]

mod arch;
mod batch;
mod columns;
mod declared;
mod describe;
pub mod edit;
mod few;
mod hash;
mod id;
mod inner;
pub mod instruction;
mod lanes;
pub mod layout;
pub mod lower;
mod matches;
mod meaning;
mod needs;
mod op;
pub mod pass_set;
mod plan;
pub mod primitive;
mod program;
mod protocol;
mod radix;
pub mod reader;
pub mod reference;
mod rows;
mod set;
mod shapes;
mod snapshot;
mod state;
mod stencil;
mod straight;
mod sync;
mod test;
mod text;
mod view;
mod windows;

pub use arch::Level;
pub use batch::Work;
pub use declared::{RowView, ShapeView};
pub use describe::{InstructionView, PassView};
pub use edit::{Edit, EditError};
pub use id::{Epoch, FilterId, PassId, RowId, ShapeId};
pub use instruction::InstructionError;
pub use layout::{Instruction, Opcode};
pub use lower::{LowerError, LoweredFilter};
pub use matches::{Match, MatchMode, Matches};
pub use pass_set::{Capacity, PassSet, Staged};
pub use plan::Sharing;
pub use reader::Reader;
pub use reference::Verdict;
pub use set::{SetId, ValueSet};
pub use shapes::{Layout, MAX_SHAPES};
pub use snapshot::Retired;
pub use view::{FilterView, Ordered, PassSnapshot, Viewer};
