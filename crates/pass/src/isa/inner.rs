//! Inner sets, as instructions see them: passes of which an instruction asks whether one accepts.
//!
//! The writer makes them (`writer/inner.rs`), readers evaluate them (`judge/inner.rs`); both lie above. So a decoded
//! instruction holds this interface only.

use fyke_frame::Frame;
use std::any::Any;
use std::fmt;

/// Passes that are evaluated as one instruction; never edited.
pub(crate) trait InnerPasses: fmt::Debug + Send + Sync {
    /// Whether one of the passes accepts the frame.
    fn accepts(&self, frame: &Frame) -> bool;
    /// Number of passes.
    fn pass_count(&self) -> usize;
    /// The set, for rooms that know what it is.
    fn as_any(&self) -> &dyn Any;
}
