//! The reason why a worker does not accept a job or a batch.

/// Reason why a message is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unaccepted {
    /// The reason.
    pub why: String,
    /// True if the key of its author is missing, or is another one.
    pub for_key: bool,
}

impl From<String> for Unaccepted {
    fn from(why: String) -> Unaccepted {
        Unaccepted { why, for_key: false }
    }
}

impl From<&str> for Unaccepted {
    fn from(why: &str) -> Unaccepted {
        why.to_owned().into()
    }
}

impl From<Unaccepted> for String {
    fn from(not: Unaccepted) -> String {
        not.why
    }
}
