//! The instruction set: the lowest room.
//!
//! Instructions as bits, as values, as text, and decoded; the sets of values that they name; and the identifiers of
//! passes, filters, shapes and epochs. Nothing here knows of edits or batches.

pub(crate) mod hash;
pub(crate) mod id;
pub(crate) mod inner;
pub mod instruction;
pub mod layout;
pub(crate) mod meaning;
pub(crate) mod operation;
pub mod primitive;
pub(crate) mod test;
pub(crate) mod text;
pub(crate) mod value_set;
