//! One error type for programs that use several parts of the library: errors of filters, captures and graphs convert
//! into it with `?`. Its debug form is its display form, because that is printed if `main` returns the error.

use fyke_capture::{LiveError, ReadError, WriteError};
use fyke_filters::{FilterError, GroupError};
use fyke_graph::language::TextError;
use fyke_graph::runtime::EditError;
use std::fmt;

/// Reason why an operation of this library failed. Its text is complete, with the line and a caret for texts. `{:?}`
/// writes the same text, so a `main` that returns this error prints it.
///
/// ```
/// let error = fyke::Filter::compile("tcp prot 80").unwrap_err();
/// assert!(error.to_string().ends_with("hint: did you mean \"port\"?"));
/// let fyke::Error::Text(error) = error else { panic!("not a mistake in the text") };
/// assert_eq!(error.span(), 4..8);
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a filter for this link type; has the position and a hint.
    #[error(transparent)]
    Text(#[from] fyke_filter::Error),
    /// The filters in force do not accept the change. Nothing has changed.
    #[error(transparent)]
    Filters(Box<FilterError>),
    /// One change of a group was refused, and with it the group. Nothing has changed.
    #[error(transparent)]
    Group(Box<GroupError>),
    /// A capture file or an interface cannot be read further.
    #[error(transparent)]
    Read(Box<ReadError>),
    /// An interface cannot be captured from.
    #[error(transparent)]
    Live(Box<LiveError>),
    /// A capture file or an interface does not accept frames.
    #[error(transparent)]
    Write(Box<WriteError>),
    /// The text is not a graph; has the position.
    #[error(transparent)]
    GraphText(Box<TextError>),
    /// A graph cannot be started, or does not accept the change.
    #[error(transparent)]
    Graph(Box<EditError>),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<FilterError> for Error {
    fn from(error: FilterError) -> Error {
        match error {
            FilterError::Text(error) => Error::Text(error),
            error => Error::Filters(Box::new(error)),
        }
    }
}

/// Conversions of errors that are too large to lie in a result.
macro_rules! boxed {
    ($($variant:ident($from:ty)),+) => {
        $(impl From<$from> for Error {
            fn from(error: $from) -> Error {
                Error::$variant(Box::new(error))
            }
        })+
    };
}

boxed!(
    Group(GroupError),
    Read(ReadError),
    Live(LiveError),
    Write(WriteError),
    GraphText(TextError),
    Graph(EditError)
);
