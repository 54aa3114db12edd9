//! Filters of many running fykes ("sensors"), edited through a message system (NATS with JetStream).
//!
//! ```text
//! fyke fleet add … ─▶ stream of the group ─▶ fyke sensor ─▶ control socket ─▶ fyke dump, run, ids …
//!                     one order, kept        checks         a local edit      never waits for the network
//!                  ◀─ answers: sequence → local epoch ◀─┘
//! ```
//!
//! The number of an edit in the stream of its group is its *sequence*, the epoch of the whole group. An edit names the
//! sequence that its author saw last. The broker refuses it if another edit came first (compare-and-set), so two people
//! never overwrite each other.
//!
//! A sensor is a process beside a running fyke. It keeps the filters of its group in force there, and answers each
//! sequence with the local epoch that it began, or names the later sequence that superseded it. While the broker is
//! away everything local continues; afterwards the sensor catches up.
//!
//! The broker is not trusted: edits are signed, the signature covers group and place in the order, and an edit can only
//! hold filter texts, which open nothing. A broker that is taken over can hold edits back, or choose between two that
//! were made for the same place. It cannot make, change, repeat or reorder them.
//!
//! | module | what |
//! |---|---|
//! | [`edit`] | edits, and their signatures |
//! | [`keys`] | keys of authors, and the list that a sensor trusts |
//! | [`state`] | the filters of a group after its edits |
//! | [`snapshot`] | the same, signed, for new sensors |
//! | [`broker`] | streams and buckets of a group |
//! | [`message`] | messages of sensors |
//! | [`local`] | the fyke beside a sensor |
//! | [`sensor`] | applies edits and answers |
//! | [`operator`] | makes edits and waits for the answers |
//! | [`archive`] | jobs over capture files, and their results |
//! | [`rules`] | rules of an IDS for jobs |
//! | [`worker`] | does the jobs |
//! | [`exchange`] | frames that sensors ship to a queue, and the counts of its workers |
//! | [`sums`] | the sums of such a queue |
//! | [`taker`] | a worker of such a queue |
//! | [`refused`] | jobs and batches that a worker does not accept |
//! | [`unaccepted`] | the reason why a message is not accepted |
//! | [`scan`] | makes jobs for many files, and adds the results up |
#![forbid(unsafe_code)]

pub mod archive;
pub mod broker;
pub mod edit;
pub mod exchange;
pub mod keys;
pub mod local;
pub mod message;
pub mod operator;
pub mod refused;
pub mod rules;
pub mod scan;
pub mod sensor;
pub mod snapshot;
pub mod state;
pub mod sums;
pub mod taker;
pub mod unaccepted;
pub mod worker;

mod again;
mod alive;
mod hex;
mod pull;
mod signed;

use std::fmt;

/// Name of a group or of a sensor: 1 to 64 letters, digits, `_` and `-`, because it is part of subjects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Takes a text as a name.
    ///
    /// # Errors
    /// It has another length, or other characters.
    pub fn new(text: &str) -> Result<Name, String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        match !text.is_empty() && text.len() <= 64 && text.chars().all(is_part) {
            true => Ok(Name(text.to_owned())),
            false => Err(format!("{text:?} is no name: 1 to 64 letters, digits, `_` or `-`")),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Milliseconds since 1970 by the clock of this machine.
pub(crate) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
