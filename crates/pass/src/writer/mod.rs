//! The writer: edits, the only owner of a set of passes, the tables of rows, and views.

pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod declared;
pub(crate) mod describe;
pub(crate) mod draft;
pub mod edit;
pub(crate) mod error;
pub(crate) mod inner;
pub(crate) mod lowered;
pub mod pass_set;
pub(crate) mod shapes;
pub(crate) mod staged;
pub(crate) mod view;
