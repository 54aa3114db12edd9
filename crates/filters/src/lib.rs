//! Filter texts in force: one list of them, counted, edited from any thread while frames are judged.
//!
//! | module | what |
//! |---|---|
//! | `user` | the texts in user space: one pass set per link type, readers that never wait for an edit |
//! | `inputs` | the link types at hand, and which of them take a text |
//! | [`received`] | frames as filters are to see them: as the device gave them, or without tags |
#![forbid(unsafe_code)]

mod inputs;
pub mod received;
mod user;

pub use inputs::{Inputs, Refused};
pub use user::{
    FilterCount, FilterCounts, FilterError, FilterReader, FilterSet, FilterView, PassDescription,
    Tags,
};
