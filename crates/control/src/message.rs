//! The messages on the socket: one JSON object per line in each direction.
//!
//! Each request has a field `request` and each response a field `response` that names the variant;
//! the other fields are those of the variant. Ids and epochs are plain numbers. A reader skips
//! response fields that it does not know, so fields can be added. The server refuses a request with
//! a field that it does not know, because ignoring the field would change the meaning.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_control as control; }
//! use fyke::control::Request;
//!
//! let request = Request::from_line(br#"{"request":"add","text":"host 10.0.0.1"}"#)?;
//! assert!(matches!(request, Request::Add { text, .. } if text == "host 10.0.0.1"));
//! assert!(Request::from_line(b"{}").is_err());
//! # Ok::<(), serde_json::Error>(())
//! ```

mod passes;
mod past;
mod times;

pub use passes::PassCall;
pub use past::{
    Frames, KeptFrame, Past, Reason, Rejected, RejectedFrame, ShownFrame, Tried, Verdict,
};
pub use times::{EditTimes, EditsWithin, ReaderCount};

use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The description of the fyke: answered by [`Response::Description`].
    Describe,
    /// All filters and their passes: answered by [`Response::Passes`].
    Show,
    /// Replaces all filters by one, as one edit: answered by [`Response::Ok`].
    Set {
        /// The filter text.
        text: String,
    },
    /// Adds a filter: answered by [`Response::Ok`] with its id.
    Add {
        /// The filter text.
        text: String,
    },
    /// Removes a filter: answered by [`Response::Ok`].
    Delete {
        /// Id of the filter, as shown by [`Request::Show`].
        id: u64,
    },
    /// Applies several changes as one edit, all of them or none: answered by [`Response::Ok`], or by
    /// [`Response::Refused`] with the change that is refused.
    Edit {
        /// The changes; each sees the filters that those before it leave. At most [`MAX_CHANGES`].
        changes: Vec<Change>,
    },
    /// Edits passes instruction by instruction, as one edit, all calls or none: answered by [`Response::Ok`] with the
    /// ids of the passes that `new` and `dup` make, or by [`Response::Refused`] with the call that is refused.
    Passes {
        /// The calls, in their order. At most [`MAX_CHANGES`].
        calls: Vec<PassCall>,
        /// Tag or name of the node with the passes, for a fyke with several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
    /// Takes an edit back by a new one: answered by [`Response::Ok`].
    Undo {
        /// The epoch that the edit began; without it, the last edit of the client's user that is in force.
        epoch: Option<u64>,
    },
    /// The edits so far: answered by [`Response::Log`].
    Log {
        /// Number of edits, the latest; without it, all that are kept.
        last: Option<u64>,
    },
    /// Evaluates frames of the past under a filter that is not in force, and changes nothing: answered by
    /// [`Response::Tried`].
    Try {
        /// The filter text.
        text: String,
        /// Number of frames, the latest, at most [`MAX_TRIED`]; without it, 4,096.
        last: Option<u64>,
    },
    /// The primitives that rejected the latest rejected frames: answered by [`Response::Rejected`].
    Why {
        /// Number of frames, at most [`MAX_EXPLAINED`]; without it, 5.
        last: Option<u64>,
    },
    /// The latest frames that arrived at the filters, with their bytes and, if rejected, the primitives that decided:
    /// answered by [`Response::Frames`].
    Frames {
        /// Number of frames, at most [`MAX_EXPLAINED`]; without it, 5.
        #[serde(default)]
        last: Option<u64>,
        /// The verdict of the filters in force on them; without it, any.
        #[serde(default)]
        verdict: Option<Verdict>,
    },
    /// Writes frames of the past to the open file that comes with the request (`SCM_RIGHTS`): answered by
    /// [`Response::Saved`].
    Save {
        /// Only frames of the last milliseconds.
        last_ms: Option<u64>,
        /// Only frames that this filter accepts.
        text: Option<String>,
        /// The format.
        format: SaveFormat,
        /// The file that it replaces; refused if the program has it open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<FileId>,
    },
    /// Replaces all rules of Snort and Suricata by those of the open file that comes with the request (`SCM_RIGHTS`),
    /// as one edit: answered by [`Response::Ok`]. A file may be longer than a request.
    Load,
    /// Pauses the program: frames of interfaces are lost, with the reason `paused`, and files are not read. Answered by
    /// [`Response::Ok`].
    Pause,
    /// Ends a pause: answered by [`Response::Ok`].
    Start,
    /// Pauses a reader of a service, or starts it again: it gets no frames meanwhile, and they are not counted for it.
    /// Answered by [`Response::Ok`].
    PauseReader {
        /// Number of the reader, as [`Request::Show`] and [`Request::Stats`] tell it.
        id: u64,
        /// True to pause it.
        is_paused: bool,
    },
    /// Gives the client a name for the log of edits: answered by [`Response::Description`].
    Hello {
        /// The program; at most [`MAX_PROGRAM_CHARS`] characters, none of them a control character.
        program: String,
    },
    /// A command of the Bloom pre-filter: answered by [`Response::Rules`].
    Rules {
        /// `+ip=…,port=…`, `-proto=tcp`, `list`, `reset`, `enable 0|1`, `negative 0|1`.
        command: String,
        /// Name of the interface, for a capture on several: each has rules of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
    },
    /// The counters: answered by [`Response::Stats`].
    Stats,
    /// The counters at every interval, each as a [`Response::Stats`], until the client closes or
    /// sends another request.
    Watch {
        /// Milliseconds between two answers; values below 10 count as 10, values above an hour as
        /// an hour.
        interval_ms: u64,
    },
}

/// Most frames of one [`Request::Try`].
pub const MAX_TRIED: u64 = 1_000_000;
/// Most frames of one [`Request::Why`] or [`Request::Frames`].
pub const MAX_EXPLAINED: u64 = 1_000;
/// Most changes of one [`Request::Edit`].
pub const MAX_CHANGES: usize = 100_000;
/// Most characters of the name in [`Request::Hello`].
pub const MAX_PROGRAM_CHARS: usize = 200;

/// A change of the filters, part of a [`Request::Edit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Adds a filter.
    Add {
        /// The filter text.
        text: String,
        /// Its name, which no other filter in force has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Milliseconds until it is removed again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_ms: Option<u64>,
        /// Bytes of its frames that the outputs write.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snaplen: Option<u32>,
    },
    /// Replaces all filters by one; an empty text leaves none.
    Set {
        /// The filter text.
        text: String,
    },
    /// Removes a filter.
    Delete {
        /// Its id.
        id: u64,
    },
}

impl Request {
    /// True if the request changes neither the program nor a file.
    pub fn only_reads(&self) -> bool {
        match self {
            Request::Describe
            | Request::Show
            | Request::Log { .. }
            | Request::Try { .. }
            | Request::Why { .. }
            | Request::Frames { .. }
            | Request::Hello { .. }
            | Request::Stats
            | Request::Watch { .. } => true,
            Request::Set { .. }
            | Request::Add { .. }
            | Request::Delete { .. }
            | Request::Edit { .. }
            | Request::Passes { .. }
            | Request::Undo { .. }
            | Request::Save { .. }
            | Request::Load
            | Request::Pause
            | Request::Start
            | Request::PauseReader { .. }
            | Request::Rules { .. } => false,
        }
    }

    /// Reads a request from its line.
    ///
    /// # Errors
    /// The line is not a request, or has an unknown field.
    pub fn from_line(line: &[u8]) -> Result<Request, serde_json::Error> {
        /// A request without fields: serde does not check that such a variant has no other fields.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Bare {
            #[serde(rename = "request")]
            _request: serde::de::IgnoredAny,
        }
        let request = serde_json::from_slice(line)?;
        if matches!(
            request,
            Request::Describe | Request::Show | Request::Stats | Request::Pause | Request::Start
        ) {
            serde_json::from_slice::<Bare>(line)?;
        }
        Ok(request)
    }
}

/// The answer of the running fyke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// The edit has been committed.
    Ok {
        /// The epoch that it began.
        epoch: u64,
        /// Ids of the filters that it added, in the order of the text.
        ids: Vec<u64>,
        /// Nanoseconds from the parsed request to the commit's return.
        latency_ns: u64,
        /// Remarks on the edit, as text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// Answer to [`Request::Describe`].
    Description(Description),
    /// Answer to [`Request::Show`].
    Passes {
        /// The epoch that was read.
        epoch: u64,
        /// The filters in the order in which they were added.
        filters: Vec<FilterPasses>,
        /// The nodes of the graph, where the filters are graphs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<NodeCount>,
        /// The program's own filter, if it judges the frames instead of the filters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own_filter: Option<OwnFilter>,
        /// The reason why there is nothing to count yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        no_counts: Option<String>,
        /// As [`Stats::kernel`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel: Option<String>,
    },
    /// Answer to [`Request::Rules`].
    Rules {
        /// The listing as text; empty after an edit.
        text: String,
    },
    /// Answer to [`Request::Stats`] and [`Request::Watch`].
    Stats(Stats),
    /// Answer to [`Request::Log`].
    Log {
        /// The edits, oldest first.
        entries: Vec<LogEntry>,
        /// Number of older edits that are no longer kept.
        forgotten: u64,
    },
    /// Answer to [`Request::Save`].
    Saved {
        /// Frames in the file.
        frames: u64,
        /// Bytes of the file.
        bytes: u64,
        /// The kept frames.
        past: Past,
        /// The reason why the file is not complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// Answer to [`Request::Try`].
    Tried(Tried),
    /// Answer to [`Request::Why`].
    Rejected(Rejected),
    /// Answer to [`Request::Frames`].
    Frames(Frames),
    /// A change of a [`Request::Edit`] was refused, so none was made.
    Refused {
        /// Its index, from 0.
        change: usize,
        /// The reason as text.
        message: String,
    },
    /// The request is right, but could not be carried out and changed nothing. For example, a service that the fyke
    /// needs for it does not answer.
    Failed {
        /// The reason as text.
        message: String,
    },
    /// The request was not carried out and changed nothing.
    Error {
        /// The reason as text; may have several lines, with a caret under the position.
        message: String,
    },
}

/// Begin of the line with counts.
const STATS: &[u8] = b"{\"response\":\"stats\",";

impl Response {
    /// Reads an answer. Counts are read in one step: they come many times a second, and an answer of another kind is
    /// first read as a tree, because its kind may be named anywhere in it.
    pub(crate) fn from_line(line: &[u8]) -> Result<Response, serde_json::Error> {
        match line.starts_with(STATS) {
            true => serde_json::from_slice(line).map(Response::Stats),
            false => serde_json::from_slice(line),
        }
    }
}

/// An edit in the log, or a run of edits by trackers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The epoch that it began; for several, the first.
    pub epoch: u64,
    /// Number of edits; more than 1 only for trackers, 0 for a pause.
    pub edits: u64,
    /// Time of the edit, milliseconds since 1970; for several, of the last.
    pub unix_ms: u64,
    /// Its author.
    pub author: EditAuthor,
    /// Frames that the filters which it added have accepted so far.
    pub accepted: u64,
    /// Its first changes.
    pub changes: Vec<LoggedChange>,
    /// Number of further changes.
    #[serde(default)]
    pub more_changes: u64,
    /// The epoch of the edit that it took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// The epoch of the edit that took it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone: Option<u64>,
    /// No edit, but a pause (true) or its end (false).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
    /// Number of calls on passes, if it edited passes by hand ([`Request::Passes`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
}

/// A file, whatever its names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// Its device (`st_dev`).
    pub device: u64,
    /// Its inode (`st_ino`).
    pub inode: u64,
}

/// Format of a saved file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveFormat {
    /// One link type, no interface names.
    Pcap,
    /// Any number of interfaces.
    Pcapng,
}

/// Author of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EditAuthor {
    /// The program itself: the filter of its command line.
    Program,
    /// A client of the control socket.
    Client {
        /// Its user, as the kernel knows it.
        uid: u32,
        /// Its process, as the kernel knows it; 0 if it is in a PID namespace that the program does not see.
        pid: u32,
        /// Its program, as the client names it ([`Request::Hello`]).
        program: Option<String>,
    },
    /// Trackers.
    Tracker {
        /// Their protocols.
        name: String,
    },
    /// `fyke resume` has put the filters of a killed capture in force again.
    Resumed,
    /// The time of a filter was over.
    Expiry,
    /// An author that this version does not know.
    #[serde(other)]
    Other,
}

/// A change of an edit in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedChange {
    /// True for an added filter, false for a removed one.
    pub added: bool,
    /// Id of the filter.
    pub id: u64,
    /// The text, cut to a thousand characters.
    pub text: String,
    /// Number of characters of the whole text.
    pub chars: u64,
    /// Its name and time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Frames that it has accepted so far, or until it was removed.
    pub accepted: u64,
}

/// Name and end of a filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time of its removal, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<u64>,
    /// Bytes of its frames that the outputs write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
}

/// Description of a running fyke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its process id in its own PID namespace.
    pub pid: u32,
    /// Version of the package.
    pub version: String,
    /// Program and arguments.
    pub command_line: Vec<String>,
    /// Source of its frames as text: interface names or a file.
    pub source: String,
    /// Link type of the filters, without `DLT_`.
    pub link: String,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// True if its frames come from the network, false if they come from files.
    #[serde(default)]
    pub live: bool,
    /// Number of its network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// The rules of an interface that it owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<OwnedRules>,
    /// Those of further interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_rules: Vec<OwnedRules>,
}

/// Rules of a Bloom pre-filter for all captures on an interface, which one process owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedRules {
    /// The interface.
    pub interface: String,
    /// Number of the interface's network namespace.
    pub namespace: u64,
    /// Number of the kernel's map with the arrays.
    pub map: u32,
    /// Number of the interface, which stays when it is renamed; 0 if it is not known.
    #[serde(default)]
    pub index: u32,
}

impl Description {
    /// The rules of all interfaces of which it owns them.
    pub fn all_rules(&self) -> impl Iterator<Item = &OwnedRules> {
        self.rules.iter().chain(&self.more_rules)
    }

    /// The same description, of a process that owns these rules.
    #[must_use]
    pub fn with_rules(self, rules: Vec<OwnedRules>) -> Description {
        let mut rules = rules.into_iter();
        Description { rules: rules.next(), more_rules: rules.collect(), ..self }
    }

    /// Describes this process, started now, as a live capture.
    pub fn of_this_process(source: impl Into<String>, link: impl Into<String>) -> Description {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = since_1970.map_or(0, |duration| duration.as_millis());
        Description {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: std::env::args_os().map(|arg| arg.to_string_lossy().into()).collect(),
            source: source.into(),
            link: link.into(),
            started_unix_ms: u64::try_from(millis).unwrap_or(u64::MAX),
            live: true,
            namespace: std::fs::metadata("/proc/thread-self/ns/net").ok().map(|net| net.ino()),
            rules: None,
            more_rules: Vec::new(),
        }
    }
}

/// A filter with its passes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterPasses {
    /// Its id, which no other filter of this fyke ever has.
    pub id: u64,
    /// The text as the user wrote it.
    pub text: String,
    /// The kind of the entry.
    #[serde(default, skip_serializing_if = "EntryKind::is_filter")]
    pub kind: EntryKind,
    /// Frames accepted by any of its passes.
    pub accepted: u64,
    /// Its name and time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Its passes; for a graph its nodes, with the ids of [`NodeCount`].
    pub passes: Vec<PassCount>,
}

/// First id of the expectations of trackers, which follow the passes of an [`EntryKind::Tracker`].
pub const FIRST_EXPECTATION: u64 = 1 << 48;

/// A pass and its counter, or an expectation of a tracker and its frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassCount {
    /// Its id, which no other pass of this fyke ever has.
    pub id: u64,
    /// Its instructions as text; of an expectation its call, end, cause and state.
    pub text: String,
    /// Frames it accepted.
    pub accepted: u64,
}

/// All counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Number of edits applied so far.
    pub epoch: u64,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// The number of frames by outcome.
    pub accounting: Accounting,
    /// The filters in the order in which they were added.
    pub filters: Vec<FilterCount>,
    /// The nodes of the graph; each comes after those that feed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeCount>,
    /// The program's own filter, if it judges the frames instead of the filters; the counts leave
    /// its frames out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_filter: Option<OwnFilter>,
    /// The reason why there are no counts yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_counts: Option<String>,
    /// Place of the filters of a live capture: whether they also run in the kernel, or the reason why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// True while the program is paused ([`Request::Pause`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Id of the node that keeps the frames which arrive at it, for [`Request::Frames`]; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_at: Option<u64>,
    /// Edits by clients and their times; the server of the control socket adds them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<Box<EditTimes>>,
    /// The readers of a service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<ReaderCount>,
}

/// Kind of an entry in the list of filters. Only filters and graphs have an id for `Delete`; others
/// have 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A filter text.
    #[default]
    Filter,
    /// The text of a flow graph. It accepts a frame if one of its ends passes the frame.
    Graph,
    /// Passes that a tracker keeps for the connections it follows.
    Tracker,
    /// Filters that have been removed.
    Removed,
    /// The time without any filter, when every frame is accepted.
    Unfiltered,
    /// A reader of `fyke serve` with its texts.
    Reader,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

impl EntryKind {
    fn is_filter(&self) -> bool {
        *self == EntryKind::Filter
    }
}

/// A node of a flow graph and its counts, in frames: `arrived = passed + rejected + taken + lost`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCount {
    /// Its id, which no other node of this fyke ever has.
    pub id: u64,
    /// Its tag, or its class if it has no tag.
    pub node: String,
    /// Its class.
    pub class: String,
    /// The text of the node as the user wrote it.
    pub text: String,
    /// Edges to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feeds: Vec<NodeFeed>,
    /// Frames that arrived; for a source, including the frames that it lost.
    pub arrived: u64,
    /// Frames that the node passed on.
    pub passed: u64,
    /// Frames that the node rejected.
    pub rejected: u64,
    /// Frames that the node holds or has replaced by others.
    pub taken: u64,
    /// Frames that arrived after the node had failed; for a source, the frames that it could not
    /// keep.
    pub lost: u64,
    /// New frames that the node made.
    pub emitted: u64,
    /// Frames that arrived over a second edge and were counted once.
    pub merged: u64,
    /// Passed frames that were rejected at first and passed later because of an edit.
    pub late: u64,
    /// Counters of its class.
    pub counters: BTreeMap<String, Number>,
    /// Those of its counters that are states, such as a number of rules: values of several runs are not added.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub states: BTreeSet<String>,
    /// The reason why it stopped.
    pub failed: Option<String>,
    /// Its filters, including those of trackers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterCount>,
    /// The words of its memory buffer, if it is exported and its class has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<u64>,
}

/// An edge of a flow graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFeed {
    /// Id of the node at its start.
    pub from: u64,
    /// Class value that a frame needs to pass the edge; absent if every frame passes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
}

/// A filter that a program has set itself and that judges its frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnFilter {
    /// Its text, if known.
    pub text: Option<String>,
    /// Number of sockets that run it; `None`: all sockets of the program.
    pub sockets: Option<u64>,
}

/// Number of frames by outcome: `seen = delivered + rejected + taken + lost`. Each frame of a
/// source has one outcome, however many branches it took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Frames that reached the interface or are in the file.
    pub seen: u64,
    /// Frames that reached an end of the graph: written, printed, counted, or passed by its last node. Texts for users
    /// call them accepted; the field keeps its name for the programs that read it.
    pub delivered: u64,
    /// Frames that reached no end.
    pub rejected: u64,
    /// Those of the rejected frames that rules of a Bloom pre-filter rejected, if the kernel has these rules, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_by_rules: Option<u64>,
    /// Frames that a node holds or has replaced by others, and that reached no end themselves.
    #[serde(default)]
    pub taken: u64,
    /// Frames lost, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Frames that the kernel rejected and `seen` lacks: [`NOT_COUNTED`]; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_in_kernel: Option<String>,
    /// Times without a connection to another machine, in words: their frames are in no count; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_seen: Option<String>,
    /// The same for each interface of a capture on several. Frames that an output has taken and not written count as
    /// accepted here, because their interface is not known any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceAccounting>,
}

/// Number of frames of one of several interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceAccounting {
    /// Name of the interface.
    pub interface: String,
    /// Its frames.
    #[serde(flatten)]
    pub accounting: Accounting,
}

/// Value of [`Accounting::rejected_in_kernel`].
pub const NOT_COUNTED: &str = "not counted";

impl Accounting {
    /// True if every frame is accounted for.
    pub fn is_exact(&self) -> bool {
        let parts = [self.delivered, self.rejected, self.taken]
            .into_iter()
            .chain(self.lost.values().copied());
        let total = parts.map(u128::from).sum::<u128>();
        total == u128::from(self.seen)
    }
}

/// A filter and its counter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterCount {
    /// Its id, which no other filter of this fyke ever has.
    pub id: u64,
    /// The text as the user wrote it.
    pub text: String,
    /// The kind of the entry.
    #[serde(default, skip_serializing_if = "EntryKind::is_filter")]
    pub kind: EntryKind,
    /// Frames accepted by any of its passes; a frame that matches several filters counts for one of
    /// them.
    pub accepted: u64,
    /// Its name and time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

#[cfg(test)]
mod tests;
