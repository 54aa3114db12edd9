//! The writer: edits, the one owner of a set of passes, the tables that passes become, and views for people.

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
