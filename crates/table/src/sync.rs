//! The atomics that the publish protocol uses. `tests/model.rs` puts loom's in their place and includes
//! `protocol.rs` as it is, so that what is model-checked is what runs.

pub use std::sync::atomic::{AtomicU32, Ordering, fence};
