//! Inner sets, as instructions see them: passes of which at least one must accept the frame.
//!
//! The writer makes them (`writer/inner.rs`) and readers evaluate them (`judge/inner.rs`); both are higher rooms. So a
//! decoded instruction holds only this interface.

use fyke_frame::Frame;
use std::any::Any;
use std::fmt;

/// Passes that are evaluated as one instruction; never edited.
pub(crate) trait InnerPasses: fmt::Debug + Send + Sync {
    /// Tests if one of the passes accepts the frame.
    fn accepts(&self, frame: &Frame) -> bool;
    /// Number of passes.
    fn pass_count(&self) -> usize;
    /// The set, for rooms that know its concrete type.
    fn as_any(&self) -> &dyn Any;
}
