//! Atomics of the publish protocol. `tests/model.rs` replaces them by loom's and includes `protocol.rs` unchanged, so
//! the model checker runs the production code.

pub use std::sync::atomic::{AtomicU32, Ordering, fence};
