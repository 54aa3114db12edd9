//! The fence and the orderings of `protocol.rs`; `tests/model.rs` takes loom's instead.

pub use std::sync::atomic::{Ordering, fence};
