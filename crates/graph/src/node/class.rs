//! Classes: a routine with a name, and the properties that the planner needs.

use super::{Accepted, Node, Settings};
use fyke_capture::{Interface, Source};
use fyke_filters::FilterSet;
use fyke_frame::LinkType;
use std::fmt;
use std::sync::Arc;

/// Link type of pieces of streams: the first one for private use.
pub const PIECES: LinkType = LinkType::USER0;

/// Role of a class; it decides how nodes of the class may be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Frames start here; no edge leads to it.
    Source,
    /// Frames go through it.
    Node,
}

/// A parameter of a class.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Name, in lower case.
    pub name: &'static str,
    /// Meaning, with the default.
    pub summary: &'static str,
}

/// Reason why a node cannot be made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct MakeError {
    /// Parameter that caused the error; empty = the whole node.
    pub parameter: &'static str,
    /// Problem.
    pub message: String,
    /// Value that caused the error, if the parameter may be repeated; empty = the last one.
    pub value: String,
    /// True if the request is valid and the system refused it, such as opening a file.
    pub refused: bool,
    /// True if the error depends on the link type: if sources are still to be opened, their link types decide.
    pub varies: bool,
}

impl MakeError {
    /// Blames a parameter: the user has to change its value.
    pub fn new(parameter: &'static str, message: impl std::fmt::Display) -> MakeError {
        let (message, value) = (message.to_string(), String::new());
        MakeError { parameter, message, value, refused: false, varies: false }
    }

    /// Blames one of several values.
    pub fn of(self, value: &str) -> MakeError {
        MakeError { value: value.to_owned(), ..self }
    }

    /// Blames the system.
    pub fn refused(parameter: &'static str, message: impl std::fmt::Display) -> MakeError {
        MakeError { refused: true, ..MakeError::new(parameter, message) }
    }
}

/// Checks settings and opens nothing.
pub type Check = fn(&Settings) -> Result<(), MakeError>;
/// Makes a node from its settings.
pub type Make = fn(&Settings) -> Result<Box<dyn Node>, MakeError>;
/// Opens a source.
pub type Open = fn(&Settings) -> Result<Box<dyn Source>, MakeError>;
/// A source without frames that represents those of the workers, and these, one for each worker.
pub type Shares = (Box<dyn Source>, Vec<Box<dyn Source>>);
/// Opens a source for several workers.
pub type OpenShares = fn(&Settings, usize) -> Result<Shares, MakeError>;

/// A function with state of the program that makes `T`.
type Maker<T> = Arc<dyn Fn(&Settings) -> Result<Box<T>, MakeError> + Send + Sync>;

/// Functions with state of the program, in place of those of the class.
#[derive(Clone, Default)]
pub(crate) struct Makers {
    pub make: Option<Maker<dyn Node>>,
    pub open: Option<Maker<dyn Source>>,
}

impl fmt::Debug for Makers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Makers")
            .field("make", &self.make.is_some())
            .field("open", &self.open.is_some())
            .finish()
    }
}

impl Makers {
    /// Makes a node of the class.
    pub fn make(&self, class: &Class, settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
        self.make.as_ref().map_or_else(|| (class.make)(settings), |make| make(settings))
    }

    /// Opens a source of the class.
    pub fn open(&self, class: &Class, settings: &Settings) -> Result<Box<dyn Source>, MakeError> {
        self.open.as_ref().map_or_else(|| (class.open)(settings), |open| open(settings))
    }
}

/// Selects no node of the class.
pub fn never(_: &Settings) -> bool {
    false
}

/// Selects every node of the class.
pub fn always(_: &Settings) -> bool {
    true
}

/// Frames that a node directly after a source needs; a space below the graph may reject the others
/// ([`placement`](crate::placement)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// All frames, with the reason: "needs all frames".
    All(&'static str),
    /// Those that the nodes after it need.
    ThoseAfter,
    /// Those that its [filters](Node::filters) accept, and those that this text accepts.
    Filters {
        /// The text.
        also: Option<String>,
    },
    /// Those that one of these texts accepts, read as for a live capture, in compat.
    Texts(Vec<String>),
    /// The same, each text with the class value of the frames that it accepts.
    Classes(Vec<(String, u32)>),
}

/// Resources that making a node opens outside the memory of the process. A foreign text, such as the client of a
/// service, may name only classes that open [`Nothing`](Opens::Nothing), unless a rule of the administrator permits
/// more. In this order, each is more than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opens {
    /// Nothing.
    Nothing,
    /// Files, also standard output.
    File,
    /// Interfaces and the rings of other processes.
    Device,
    /// Sockets, and the names of hosts.
    Network,
    /// Programs, or anything.
    Program,
}

impl Opens {
    /// All, in their order.
    pub const ALL: [Opens; 5] =
        [Opens::Nothing, Opens::File, Opens::Device, Opens::Network, Opens::Program];

    /// The word for it in a policy.
    pub fn word(self) -> &'static str {
        match self {
            Opens::Nothing => "nothing",
            Opens::File => "file",
            Opens::Device => "device",
            Opens::Network => "network",
            Opens::Program => "program",
        }
    }

    /// Declares that nodes with any settings open nothing.
    pub fn nothing(_: &Settings) -> Opens {
        Opens::Nothing
    }
}

/// A filter class: a routine under a name.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// Name in graph texts, in lower case.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// One-line description for users.
    pub summary: &'static str,
    /// Parameters besides `export`, `mbufsize`, `identifier` and `duplicates`.
    pub parameters: &'static [Parameter],
    /// Role of the class.
    pub kind: Kind,
    /// True if it gives class values. If false, frames keep the class values that they have.
    pub classifies: bool,
    /// True if it may give a frame several class values; the frame then passes the edges of all of them.
    pub several_classes: bool,
    /// True if [`process`](Node::process) may evaluate the same frames again: it only selects and classifies, and
    /// counts in [`settle`](Node::settle). Only such nodes may come before a node that cuts.
    pub repeatable: bool,
    /// True if each worker may have a node of its own: between frames it keeps only counters and the state of single
    /// conversations.
    pub parallel: bool,
    /// True if the results of a node with these settings depend on the order of all frames or on their common time.
    /// Several workers do not keep that order, so the planner refuses such a node there. The order within a
    /// conversation is always kept.
    pub ordered: fn(&Settings) -> bool,
    /// True for outputs that write frames in the order in which they arrive, and do nothing else with them: if workers
    /// read interfaces, they get the frames of all workers in the order of their times.
    pub in_time_order: bool,
    /// True if a node with these settings emits only pieces of streams, of link type [`PIECES`], with the number of
    /// their stream ([`Emitted::push_piece`]).
    ///
    /// [`Emitted::push_piece`]: super::Emitted::push_piece
    pub emits_pieces: fn(&Settings) -> bool,
    /// True if a node with these settings passes frames with their streams beside them ([`BatchFlows`]).
    ///
    /// [`BatchFlows`]: super::BatchFlows
    pub gives_streams: fn(&Settings) -> bool,
    /// True if a node with these settings takes only pieces of streams: all its input has to come from a node that
    /// [emits](Self::emits_pieces) or [gives](Self::gives_streams) them.
    pub wants_pieces: fn(&Settings) -> bool,
    /// True if its nodes read streams beside their frames without judging them, also when no frame arrives.
    pub reads_streams: bool,
    /// True if a node with these settings emits other frames in place of those that arrive; they have no pieces beside
    /// them.
    pub replaces: fn(&Settings) -> bool,
    /// True if a node with these settings [cuts](super::Arrival::cut) batches.
    pub cuts: fn(&Settings) -> bool,
    /// True if its [filters](Node::filters) can be edited from outside the node.
    pub editable: bool,
    /// True if it edits the filters of the nearest editable node before it.
    pub edits: bool,
    /// True if it [reads](Node::connect) the filters of the nearest editable node before it, without an edit.
    pub reads_filters: bool,
    /// Frames that a node with these settings needs.
    pub needs: fn(&Settings) -> Needs,
    /// Alternatives that a node with these settings accepts, if every frame that it accepts belongs to one of these
    /// alternatives;
    /// `None` if that is not known.
    pub accepts: fn(&Settings) -> Option<Vec<Accepted>>,
    /// The texts of a node with these settings as a set of their own, which no frame of the graph changes, for
    /// questions about frames of the past; their numbers are from 1, in their order. `None` for a class that
    /// filters by no text.
    pub filters: Option<fn(&Settings) -> Option<FilterSet>>,
    /// Reason why a node of this class concerns the whole process, so that a foreign graph may not have it.
    pub whole: Option<&'static str>,
    /// Resources that a node with these settings opens; everything, unless a class declares less.
    pub opens: fn(&Settings) -> Opens,
    /// True if making a node has a lasting side effect, such as emptying a file; such nodes are made last.
    pub lasting: bool,
    /// True if its nodes write a memory buffer that others may read; only these classes take `mbufsize`.
    pub memory: bool,
    /// True if its output may be consumed slowly: the runtime calls [`make_room`](Node::make_room).
    pub waits: bool,
    /// Parameters that a running node accepts new values for, keeping its counts ([`Node::change`]).
    pub live: &'static [&'static str],
    /// True if a running node with these settings accepts new values.
    pub changes: fn(&Settings) -> bool,
    /// Checks the settings and opens nothing; `None` = `make` only checks and allocates.
    pub check: Option<Check>,
    /// True if `make` opens nothing and finds errors that `check` leaves out because finding them takes long.
    pub make_checks: bool,
    /// Makes a node.
    pub make: Make,
    /// Opens a source; only for [`Kind::Source`].
    pub open: Open,
    /// True if a source with these settings can be opened [once for each worker](Self::open_shares).
    pub shares: fn(&Settings) -> bool,
    /// Opens a source for several workers: each gets the frames of some conversations.
    pub open_shares: OpenShares,
    /// All interfaces that a source will ever have, if reading it to its end can tell; called if a node does not fit
    /// the known ones.
    pub all_interfaces: fn(&Settings) -> Vec<Interface>,
    /// Checks the settings in an edit of a running graph, before the node is opened or made. Must not wait for other
    /// processes.
    pub check_edit: Check,
}

/// The parameter that most classes have.
pub const EXPRESSION: &[Parameter] =
    &[Parameter { name: "expression", summary: "main value; its meaning depends on the class" }];

/// Parameters of every class.
pub const COMMON: [Parameter; 5] = [
    Parameter {
        name: "export",
        summary: "y: shows its counters at the end; with --exports, makes a ring",
    },
    Parameter { name: "exported", summary: "the same" },
    Parameter {
        name: "mbufsize",
        summary: "least size in bytes of the memory that programs may read",
    },
    Parameter { name: "identifier", summary: "the tag" },
    Parameter { name: "duplicates", summary: "y: once per branch that passes the frame" },
];

impl Class {
    /// True if nodes of the class take this parameter.
    pub fn takes(&self, parameter: &str) -> bool {
        let known = |known: &Parameter| known.name == parameter;
        match parameter {
            "mbufsize" => self.memory,
            _ => self.parameters.iter().chain(&COMMON).any(known),
        }
    }

    /// Defaults that most classes share; each class overrides some.
    pub const NODE: Class = Class {
        name: "",
        aliases: &[],
        summary: "",
        parameters: EXPRESSION,
        kind: Kind::Node,
        classifies: false,
        several_classes: false,
        repeatable: false,
        parallel: false,
        ordered: never,
        in_time_order: false,
        emits_pieces: never,
        gives_streams: never,
        wants_pieces: never,
        reads_streams: false,
        replaces: never,
        cuts: never,
        editable: false,
        edits: false,
        reads_filters: false,
        needs: |_| Needs::All("needs all frames"),
        accepts: |_| None,
        filters: None,
        whole: None,
        opens: |_| Opens::Program,
        lasting: false,
        memory: false,
        waits: false,
        live: &[],
        changes: |_| true,
        check: None,
        make_checks: false,
        make: |_| Err(MakeError::new("", "a source is opened, not made")),
        open: |_| Err(MakeError::new("", "not a source")),
        shares: never,
        open_shares: |_, _| Err(MakeError::new("", "not a source for several workers")),
        all_interfaces: |_| Vec::new(),
        check_edit: |_| Ok(()),
    };
}
