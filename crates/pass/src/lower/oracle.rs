//! The ordered evaluator of a text, which passes must equal.

use fyke_filter::Predicate;
use fyke_frame::{Condition, Frame};
use std::sync::Arc;

/// The ordered evaluator of a text.
#[derive(Debug, Clone)]
pub(crate) enum Oracle {
    Condition(Arc<Condition>),
    Predicate(Predicate),
}

impl Oracle {
    pub fn accepts(&self, frame: &Frame) -> bool {
        match self {
            Oracle::Condition(condition) => condition.accepts(frame),
            Oracle::Predicate(predicate) => predicate.accepts(frame),
        }
    }
}
