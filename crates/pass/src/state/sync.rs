//! The atomics that `protocol.rs` uses. `tests/model.rs` puts loom's in their place.

pub use std::sync::atomic::{AtomicU64, Ordering, fence};
