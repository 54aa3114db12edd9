//! What a class is: a routine under a name, with what the planner has to know of it.

use super::{Node, Settings};
use fyke_capture::{Interface, Source};

/// What a class is for, which decides how nodes of it may be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Frames start here; nothing feeds it.
    Source,
    /// Frames go through.
    Node,
}

/// A parameter that a class knows.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// In lower case.
    pub name: &'static str,
    /// What it says, with its default.
    pub summary: &'static str,
}

/// Why a node cannot be made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct MakeError {
    /// The parameter that is to blame; empty = the whole node.
    pub parameter: &'static str,
    /// What is wrong with it.
    pub message: String,
    /// Which of several values, for parameters that may be repeated; empty = the last one.
    pub value: String,
    /// Whether the system refused what was asked for correctly, such as to open a file.
    pub refused: bool,
    /// Whether another link type would say something else: with sources to be opened, theirs decides.
    pub varies: bool,
}

impl MakeError {
    /// Blames a parameter: whoever wrote it has to write something else.
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

/// No node of the class, whatever its settings.
pub fn never(_: &Settings) -> bool {
    false
}

/// Every node of the class.
pub fn always(_: &Settings) -> bool {
    true
}

/// A filter class: a routine under a name.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// As graphs write it, in lower case.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// One line for people.
    pub summary: &'static str,
    /// What it knows besides `export`, `mbufsize`, `identifier` and `duplicates`.
    pub parameters: &'static [Parameter],
    /// How it may be connected.
    pub kind: Kind,
    /// Whether it gives class values. Where it does not, class values go through it.
    pub classifies: bool,
    /// Whether it may give a frame several class values: the frame goes over the edges of each of them.
    pub several_classes: bool,
    /// Whether [`process`](Node::process) may be asked about the same frames again: it does nothing but judge and
    /// classify, and counts in [`settle`](Node::settle). Only such nodes may stand before one that cuts.
    pub repeatable: bool,
    /// Whether each worker may have a node of its own: it keeps nothing from one frame to another but counters, and
    /// what belongs to one conversation.
    pub parallel: bool,
    /// Whether the answers of a node of these settings depend on the order of all frames, or on their common time:
    /// several workers do not keep those, so the planner refuses such a node there. The order within a conversation is
    /// always kept.
    pub ordered: fn(&Settings) -> bool,
    /// Whether it emits pieces of streams, with the number of their stream ([`Emitted::push_piece`]).
    ///
    /// [`Emitted::push_piece`]: super::Emitted::push_piece
    pub emits_pieces: bool,
    /// Whether a node of these settings takes pieces of streams only: all that feeds it has to come from a class that
    /// [emits](Self::emits_pieces) them.
    pub wants_pieces: fn(&Settings) -> bool,
    /// Whether a node of these settings [cuts](super::Arrival::cut) batches.
    pub cuts: fn(&Settings) -> bool,
    /// Whether others may edit its [filters](Node::filters).
    pub editable: bool,
    /// Whether it edits the filters of the nearest editable node before it.
    pub edits: bool,
    /// Whether making a node changes something that stays changed, such as emptying a file: made after all others.
    pub lasting: bool,
    /// True when its nodes write a memory buffer that others may read; only these take `mbufsize`.
    pub memory: bool,
    /// Whether it has output that others may be slow to take: it is asked to [make room](Node::make_room).
    pub waits: bool,
    /// Parameters that a running node takes anew, with its counts kept ([`Node::change`]).
    pub live: &'static [&'static str],
    /// Whether a running node of these settings takes them anew.
    pub changes: fn(&Settings) -> bool,
    /// Checks the settings without opening anything; `None` = `make` does nothing but check and allocate.
    pub check: Option<Check>,
    /// True when `make` opens nothing and finds mistakes that `check` leaves out because they take long to find.
    pub make_checks: bool,
    /// Makes a node.
    pub make: Make,
    /// Opens a source; only for [`Kind::Source`].
    pub open: Open,
    /// All interfaces that a source will ever have, where that can be found out by reading it to its end: asked when a
    /// node does not fit those that are known.
    pub all_interfaces: fn(&Settings) -> Vec<Interface>,
    /// Checks of an edit of a running graph, before the node is opened or made: that must not wait for other processes.
    pub check_edit: Check,
}

/// The parameter that most classes have.
pub const EXPRESSION: &[Parameter] =
    &[Parameter { name: "expression", summary: "what it works by" }];

/// Parameters that every class knows.
pub const COMMON: [Parameter; 5] = [
    Parameter { name: "export", summary: "y: its counters are shown at the end" },
    Parameter { name: "exported", summary: "the same" },
    Parameter { name: "mbufsize", summary: "least bytes of the memory that others may read" },
    Parameter { name: "identifier", summary: "the tag" },
    Parameter { name: "duplicates", summary: "y: once per branch that passes the frame" },
];

impl Class {
    /// True when nodes of the class take this parameter.
    pub fn takes(&self, parameter: &str) -> bool {
        let known = |known: &Parameter| known.name == parameter;
        match parameter {
            "mbufsize" => self.memory,
            _ => self.parameters.iter().chain(&COMMON).any(known),
        }
    }

    /// What most classes have in common; to be completed.
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
        emits_pieces: false,
        wants_pieces: never,
        cuts: never,
        editable: false,
        edits: false,
        lasting: false,
        memory: false,
        waits: false,
        live: &[],
        changes: |_| true,
        check: None,
        make_checks: false,
        make: |_| Err(MakeError::new("", "a source is opened, not made")),
        open: |_| Err(MakeError::new("", "not a source")),
        all_interfaces: |_| Vec::new(),
        check_edit: |_| Ok(()),
    };
}
