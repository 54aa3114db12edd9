//! Views of filters and their passes for users, in both spaces.

use fyke_frame::LinkType;
use std::sync::Arc;

/// A filter and its counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCount {
    /// Number for `ctl del`; never reused.
    pub id: u64,
    /// The text as it was given.
    pub text: Arc<str>,
    /// Accepted frames that this filter matched.
    pub accepted: u64,
}

/// A filter with its passes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterView {
    /// The filter.
    pub filter: FilterCount,
    /// Its passes on the link types seen so far.
    pub passes: Vec<PassDescription>,
}

/// A pass in readable form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassDescription {
    /// Its link type.
    pub link: LinkType,
    /// Its number within the link type's pass set.
    pub id: u64,
    /// Its instructions as text.
    pub text: String,
    /// Accepted frames that it matched.
    pub accepted: u64,
}
