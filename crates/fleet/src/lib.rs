//! Filters of many running fykes ("sensors"), edited through a message system (NATS with JetStream).
//!
//! ```text
//! fyke fleet add … ─▶ stream of the group ─▶ fyke sensor ─▶ control socket ─▶ fyke dump, track …
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
mod open;
mod pull;
mod signed;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most characters of a name.
const MAX_NAME: usize = 64;

/// Name of a group, a sensor or an author: 1 to 64 letters, digits, `_` and `-`, because it is part of subjects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Takes a text as a name.
    ///
    /// # Errors
    /// It has another length, or other characters.
    pub fn new(text: &str) -> Result<Name, String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        let wrong = text.chars().find(|letter| !is_part(*letter));
        let why = match wrong {
            Some(wrong) => format!("it has {wrong:?}"),
            None if text.is_empty() => "it is empty".to_owned(),
            None if text.len() > MAX_NAME => format!("it has {} characters", text.len()),
            None => return Ok(Name(text.to_owned())),
        };
        let shown: String = text.chars().take(MAX_NAME).collect();
        Err(format!(
            "{shown:?} is no name, because {why}; a name has 1 to {MAX_NAME} of the letters a-z and A-Z, the digits, \
             `_` and `-`"
        ))
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

/// Time between two looks at a flag.
const LOOK: Duration = Duration::from_millis(50);

/// Returns once the flag is true.
pub async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for something until `stop` is true; `None` if it was not ready by then.
pub async fn unless_stopped<T>(stop: &AtomicBool, what: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        ready = what => Some(ready),
        () = stopped(stop) => None,
    }
}

/// Milliseconds since 1970 by the clock of this machine.
pub(crate) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_name_that_is_refused_shows_why_and_what_is_allowed() {
        for name in ["edge", "oslo-1", "a_B9", &"x".repeat(64)] {
            assert_eq!(Name::new(name).unwrap().as_str(), name);
        }
        let long = "x".repeat(65);
        for (name, why) in [
            ("a/b", "it has '/'"),
            ("a.b", "it has '.'"),
            ("a\nb", "it has '\\n'"),
            ("a\u{1b}[2Jb", "it has '\\u{1b}'"),
            ("ü", "it has 'ü'"),
            ("", "it is empty"),
            (&long, "it has 65 characters"),
        ] {
            let said = Name::new(name).unwrap_err();
            assert!(said.contains(why) && said.contains("letters a-z"), "{said}");
            assert!(!said.contains(char::is_control), "{said:?}");
        }
    }
}
