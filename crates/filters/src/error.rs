//! Errors of a change of the texts.

use fyke_pass::{EditError, LowerError};

/// Reason why a change of the texts was refused. A refused change has no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The text is not a filter for this link type.
    #[error("{0}")]
    Text(#[from] fyke_filter::Error),
    /// There is no room for the filter.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The pass set refuses the change.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The kernel cannot run the text, or has no room for it.
    #[cfg(feature = "kernel")]
    #[error(transparent)]
    Kernel(#[from] fyke_kernel::KernelEditError),
    /// No filter has this number.
    #[error("there is no filter {given}; the filters are: {}", list(.present))]
    NoSuchFilter {
        /// The number given.
        given: u64,
        /// Numbers of the filters in force.
        present: Vec<u64>,
    },
    /// The name of a filter is not valid, or another filter has it.
    #[error("{0}")]
    Name(String),
    /// The time of a filter is not valid.
    #[error("{0}")]
    Time(String),
    /// The snap length of a filter is not valid, or the program does not cut frames.
    #[error("{0}")]
    SnapLength(String),
    /// The program that evaluates the texts refuses the change.
    #[error("{0}")]
    Program(String),
    /// The space below, which would have to let the frames pass, cannot be reached.
    #[error("{0}")]
    Space(String),
    /// The edit can no longer be taken back in the way that was planned; plan it again.
    #[error("the filters have changed meanwhile; try again")]
    Changed,
    /// Without a filter every frame would be accepted, the opposite of the purpose of a removal.
    #[error(
        "filter {0} is the last one, and without a filter every frame is accepted; \
             `set ''` accepts everything, ending the capture stops it"
    )]
    LastFilter(u64),
}

/// The change of a group that was refused, and the reason; the whole group is refused.
#[derive(Debug, thiserror::Error)]
#[error("change {place}: {error}")]
pub struct GroupError {
    /// Index of the change in the group, from 0.
    pub place: usize,
    /// The reason.
    pub error: FilterError,
}

impl GroupError {
    /// Adds the index of the change to an error.
    pub(crate) fn at<E: Into<FilterError>>(place: usize) -> impl Fn(E) -> GroupError {
        move |error| GroupError { place, error: error.into() }
    }
}

fn list(ids: &[u64]) -> String {
    match ids {
        [] => "none".to_owned(),
        ids => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}
