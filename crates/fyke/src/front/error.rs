//! One error type for programs that use several parts of the library: the errors of all parts convert into it with
//! `?`. Its debug form is its display form, because that is printed if `main` returns the error.

use fyke_capture::{LiveError, ReadError, WriteError};
use fyke_control::{CallError, ConnectError, RuntimeDirError, StartError};
#[cfg(feature = "kernel")]
use fyke_filters::{ByHandError, SocketError};
use fyke_filters::{FilterError, GroupError};
use fyke_graph::RulesError;
use fyke_graph::language::{TextError, TomlError};
use fyke_graph::node::{MakeError, NodeError};
use fyke_graph::runtime::{EditError, InstantiateError};
#[cfg(feature = "kernel")]
use fyke_kernel::{AttachError, KernelEditError, OpenError, ebpf::ProgramError};
use fyke_machine::{InstallError, SourceError, bpf, cspf, jit::JitError, load::LoadError};
use fyke_pass::{InstructionError, LowerError};
use fyke_ring::RingError;
use fyke_serve::PlaceError;
use fyke_serve::client::ConnectError as ServeError;
use fyke_serve::policy::PolicyError;
use fyke_serve::service::Refused;
use fyke_table::prefilter::{PrefilterError, RuleTextError};
use fyke_table::{PrefixError, TableError};
use fyke_track::KeepError;
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
///
/// Variants with [`AnyError`] hold one of several errors of a module; `downcast_ref` returns it:
///
/// ```
/// use fyke::machine::{SourceError, Symbols, bpf};
///
/// fn instructions(text: &str) -> Result<usize, fyke::Error> {
///     let assembled = bpf::assemble::assemble(text, bpf::Dialect::Bpf, &Symbols::default())?;
///     Ok(assembled.program.len())
/// }
/// let Err(fyke::Error::Machine(error)) = instructions("ldh [12") else { panic!("`]` is missing") };
/// assert!(error.downcast_ref::<SourceError>().is_some());
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
    /// A graph cannot be started as it is written, its rules are refused, or a node cannot be made.
    #[error(transparent)]
    Node(AnyError),
    /// An error of [`control`](crate::control).
    #[error(transparent)]
    Control(AnyError),
    /// An error of `kernel`, or of `filters` in the kernel.
    #[error(transparent)]
    Kernel(AnyError),
    /// An error of [`machine`](crate::machine).
    #[error(transparent)]
    Machine(AnyError),
    /// An error of [`pass`](crate::pass).
    #[error(transparent)]
    Pass(AnyError),
    /// An error of [`ring`](crate::ring).
    #[error(transparent)]
    Ring(AnyError),
    /// An error of [`ruler`](crate::ruler).
    #[error(transparent)]
    Ruler(AnyError),
    /// An error of [`table`](crate::table).
    #[error(transparent)]
    Table(AnyError),
    /// An error of [`track`](crate::track).
    #[error(transparent)]
    Track(AnyError),
    /// An error of [`serve`](crate::serve).
    #[error(transparent)]
    Serve(AnyError),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// An error of a module that has several types of them.
pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

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

/// Conversions of errors of modules that have several types of them.
macro_rules! any {
    ($($variant:ident($($from:ty),+)),+) => {
        $($(impl From<$from> for Error {
            fn from(error: $from) -> Error {
                Error::$variant(error.into())
            }
        })+)+
    };
}

any!(
    Node(InstantiateError, MakeError, NodeError, RulesError, TomlError),
    Control(CallError, ConnectError, RuntimeDirError, StartError),
    Machine(
        InstallError,
        JitError,
        LoadError,
        SourceError,
        bpf::validate::ValidateError,
        cspf::ValidateError
    ),
    Pass(fyke_pass::EditError, InstructionError, LowerError),
    Ring(RingError),
    Ruler(fyke_ruler::Error, fyke_ruler::CompileError),
    Table(PrefilterError, PrefixError, RuleTextError, TableError),
    Track(KeepError),
    Serve(ServeError, PlaceError, PolicyError, Refused)
);

#[cfg(feature = "kernel")]
any!(Kernel(AttachError, ByHandError, KernelEditError, OpenError, ProgramError, SocketError));

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
