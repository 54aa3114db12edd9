//! What goes over the socket: one JSON object a line in each direction.
//!
//! Requests carry a `request` word, responses a `response` word; the other fields are those of the variant. Ids
//! and epochs are plain numbers. A reader skips response fields that it does not know, so fields can be added; a
//! request field that the server does not know is refused, since it was meant to do something.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Who are you: answered by [`Response::Description`].
    Describe,
    /// All filters and their passes: answered by [`Response::Passes`].
    Show,
    /// Puts one filter in the place of all there are, as one edit: answered by [`Response::Ok`].
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
    /// A command of the Bloom pre-filter: answered by [`Response::Rules`].
    Rules {
        /// `+ip=…,port=…`, `-proto=tcp`, `list`, `reset`, `enable 0|1`, `negative 0|1`.
        command: String,
    },
    /// The counters: answered by [`Response::Stats`].
    Stats,
    /// The counters again and again, one [`Response::Stats`] every interval, until the client closes or
    /// sends another request.
    Watch {
        /// Milliseconds between two answers; below 10 is taken as 10, above an hour as an hour.
        interval_ms: u64,
    },
}

/// What the running fyke answers.
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
        /// What people should know of the edit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// Answer to [`Request::Describe`].
    Description(Description),
    /// Answer to [`Request::Show`].
    Passes {
        /// The epoch that was read.
        epoch: u64,
        /// In the order they were added.
        filters: Vec<FilterPasses>,
    },
    /// Answer to [`Request::Rules`].
    Rules {
        /// What there is to show, for people; nothing after an edit.
        text: String,
    },
    /// Answer to [`Request::Stats`] and [`Request::Watch`].
    Stats(Stats),
    /// The request was not carried out and changed nothing.
    Error {
        /// For people; may have several lines, with a caret under the place.
        message: String,
    },
}

/// Who a running fyke is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its process id, as it sees it itself.
    pub pid: u32,
    /// Version of the package.
    pub version: String,
    /// Program and arguments.
    pub command_line: Vec<String>,
    /// Where its frames come from: interface names or a file, for people.
    pub source: String,
    /// Link type of the filters, without `DLT_`.
    pub link: String,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
}

impl Description {
    /// Describes this process, started now.
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
        }
    }
}

/// A filter with its passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterPasses {
    /// Never used twice in one fyke.
    pub id: u64,
    /// As it was given.
    pub text: String,
    /// Frames accepted by any of its passes.
    pub accepted: u64,
    /// Its passes.
    pub passes: Vec<PassCount>,
}

/// A pass and its counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassCount {
    /// Never used twice in one fyke.
    pub id: u64,
    /// Its instructions, for people.
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
    /// What became of the frames.
    pub accounting: Accounting,
    /// In the order they were added.
    pub filters: Vec<FilterCount>,
}

/// What became of every frame seen: `seen = delivered + rejected + lost`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Frames that reached the interface or stand in the file.
    pub seen: u64,
    /// Frames handed to the consumer.
    pub delivered: u64,
    /// Frames that no filter accepted.
    pub rejected: u64,
    /// Frames lost, by reason.
    pub lost: BTreeMap<String, u64>,
}

impl Accounting {
    /// Whether every frame is accounted for.
    pub fn is_exact(&self) -> bool {
        let parts = [self.delivered, self.rejected].into_iter().chain(self.lost.values().copied());
        let total = parts.map(u128::from).sum::<u128>();
        total == u128::from(self.seen)
    }
}

/// A filter and its counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterCount {
    /// Never used twice in one fyke.
    pub id: u64,
    /// As it was given.
    pub text: String,
    /// Frames accepted by any of its passes.
    pub accepted: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_people_would_write_them() {
        let read = |line: &str| serde_json::from_str::<Request>(line);
        assert_eq!(read(r#"{"request":"show"}"#).unwrap(), Request::Show);
        let add = Request::Add { text: "port 80".into() };
        assert_eq!(read(r#"{"request":"add","text":"port 80"}"#).unwrap(), add);
        let watch = Request::Watch { interval_ms: 500 };
        assert_eq!(read(r#"{"interval_ms":500,"request":"watch"}"#).unwrap(), watch);
    }

    #[test]
    fn a_request_that_means_something_else_is_refused() {
        for line in [
            r#"{"request":"drop"}"#,
            r#"{"request":"add"}"#,
            r#"{"request":"delete","id":-1}"#,
            r#"{"request":"add","text":"port 80","place":3}"#,
            "show",
            "[]",
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn responses_survive_the_way_with_unknown_fields() {
        let lost = BTreeMap::from([("kernel".to_owned(), 3)]);
        let accounting = Accounting { seen: u64::MAX, delivered: 1, rejected: 2, lost };
        let filters = vec![FilterCount { id: 1, text: "ip\n^".into(), accepted: 1 }];
        let stats = Response::Stats(Stats { epoch: 9, uptime_ms: 5, accounting, filters });
        let line = serde_json::to_string(&stats).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Response>(&line).unwrap(), stats);
        let newer = r#"{"response":"ok","epoch":1,"ids":[2],"latency_ns":3,"more":[]}"#;
        let ok = Response::Ok { epoch: 1, ids: vec![2], latency_ns: 3, notes: Vec::new() };
        assert_eq!(serde_json::from_str::<Response>(newer).unwrap(), ok);
    }

    #[test]
    fn accounting_is_exact_or_it_is_not() {
        let lost = BTreeMap::from([("kernel".to_owned(), 3), ("ring".to_owned(), 1)]);
        let mut accounting = Accounting { seen: 10, delivered: 4, rejected: 2, lost };
        assert!(accounting.is_exact());
        accounting.delivered = u64::MAX;
        assert!(!accounting.is_exact());
    }
}
