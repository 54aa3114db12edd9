//! Errors of rules.

use thiserror::Error;

/// A rule that is not translated, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}{}: {reason}", .sid.map(|sid| format!(", sid {sid}")).unwrap_or_default())]
pub struct Refused {
    /// Number of the line on which the rule begins, from 1.
    pub line: usize,
    /// Identifier of the rule, if it has one.
    pub sid: Option<u32>,
    /// The reason.
    pub reason: String,
}

/// A variable that cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{given}: {reason}")]
pub struct VariableError {
    /// The text.
    pub given: String,
    /// The reason.
    pub reason: String,
}
