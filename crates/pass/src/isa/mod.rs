//! The instruction set: the lowest room.
//!
//! Instructions as bits, as values, as text, and decoded; what they name (sets of values), and the numbers by which
//! everything else is known. Nothing here knows of passes that change or of batches.

pub(crate) mod hash;
pub(crate) mod id;
pub(crate) mod inner;
pub mod instruction;
pub mod layout;
pub(crate) mod meaning;
pub mod primitive;
pub(crate) mod test;
pub(crate) mod text;
pub(crate) mod value_set;
