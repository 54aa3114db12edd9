//! Exceptions: the errors of the library under the classes of `fyke/_errors.py`.
//!
//! The message of an exception is that of the library, complete: texts have their line and a caret.

use fyke::Error;
use fyke::control::{CallError, ConnectError};
use fyke::filters::FilterError as SetError;
use fyke::graph::EditError;
use pyo3::PyErr;

mod classes {
    #![allow(missing_docs, reason = "the classes have their documents in Python")]
    pyo3::import_exception!(fyke._errors, FilterError);
    pyo3::import_exception!(fyke._errors, GraphError);
    pyo3::import_exception!(fyke._errors, CaptureError);
    pyo3::import_exception!(fyke._errors, EndedError);
}

/// An error on its way to Python, made without the interpreter.
#[derive(Debug)]
pub enum Failure {
    /// A filter text, or a change of filters; with the position in the text if there is one.
    Filter(String, Option<(usize, usize)>),
    /// A graph text, or a change of a graph.
    Graph(String),
    /// A source, a service, or another process.
    Capture(String),
    /// The source or the service has ended.
    Ended(String),
    /// An argument has a wrong value.
    Value(String),
}

impl Failure {
    /// An error of the Arrow library; none is expected.
    pub fn arrow(error: impl std::fmt::Display) -> Failure {
        Failure::Capture(format!("the batch cannot be exported: {error}"))
    }

    /// An error of a graph that the user has written.
    pub fn of_graph(error: EditError) -> Failure {
        match error {
            EditError::Ended | EditError::NotRunning => Failure::Ended(error.to_string()),
            EditError::Instantiate(error) if error.error.refused => {
                Failure::Capture(error.to_string())
            }
            error => Failure::Graph(error.to_string()),
        }
    }

    /// An error of a graph that carries out a call of `capture`. The message of a class about a value is shown alone.
    pub fn of_capture(error: EditError, filter: &str) -> Failure {
        let (message, parameter, refused) = match error {
            EditError::Text(error) => match error.value {
                Some(value) => (value.to_string(), "expression", false),
                None => return Failure::Graph(error.to_string()),
            },
            EditError::Instantiate(error) => {
                let error = error.error;
                (error.message, error.parameter, error.refused)
            }
            error => return Failure::of_graph(error),
        };
        let is_text = !refused && parameter == "expression" && message.contains('\n');
        match is_text {
            true => {
                let span = fyke::Filter::compile(filter).err().and_then(|error| span(&error));
                Failure::Filter(message, span)
            }
            false => Failure::Capture(message),
        }
    }
}

fn span(error: &Error) -> Option<(usize, usize)> {
    match error {
        Error::Text(error) => Some((error.span().start, error.span().end)),
        _ => None,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match &error {
            Error::Text(_) | Error::Filters(_) | Error::Group(_) => {
                Failure::Filter(error.to_string(), span(&error))
            }
            Error::Graph(_) | Error::GraphText(_) | Error::Node(_) => {
                Failure::Graph(error.to_string())
            }
            _ => Failure::Capture(error.to_string()),
        }
    }
}

impl From<SetError> for Failure {
    fn from(error: SetError) -> Failure {
        Error::from(error).into()
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        // The options of the command have other names here.
        Failure::Capture(error.to_string().replace("--pid N", "its process id"))
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        match error {
            CallError::Refused(message) => Failure::Filter(message, None),
            CallError::Closed => Failure::Ended(error.to_string()),
            error => Failure::Capture(error.to_string()),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Filter(message, span) => classes::FilterError::new_err((message, span)),
            Failure::Graph(message) => classes::GraphError::new_err(message),
            Failure::Capture(message) => classes::CaptureError::new_err(message),
            Failure::Ended(message) => classes::EndedError::new_err(message),
            Failure::Value(message) => pyo3::exceptions::PyValueError::new_err(message),
        }
    }
}
