//! Evaluation: who judges frames, and how.

pub(crate) mod arch;
pub(crate) mod by_columns;
pub(crate) mod columns;
pub(crate) mod fused;
pub(crate) mod inner;
pub(crate) mod matches;
pub mod reader;
pub mod reference;
pub(crate) mod single;
pub(crate) mod stencil;
pub(crate) mod work;
