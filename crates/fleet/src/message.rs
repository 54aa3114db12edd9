//! Messages of sensors: their entry in the list of sensors, answers to edits, and answers to questions.

use crate::edit::Labels;
use serde::{Deserialize, Serialize};

/// Entry of a sensor in the list of its group, written again every two seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Number of this run of it.
    pub instance: String,
    /// Its machine.
    pub host: String,
    /// Version of fyke.
    pub version: String,
    /// Its labels.
    #[serde(default)]
    pub labels: Labels,
    /// Time of this entry by its clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// The last sequence that it has answered.
    pub sequence: u64,
    /// Number of edits that it refuses, without those that it has taken since, or that a later edit supersedes.
    pub refused: u64,
    /// The fyke beside it; `None` while there is none, or it does not answer.
    pub fyke: Option<Local>,
    /// Reason why it does not follow the group at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The fyke beside a sensor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// Its process id.
    pub pid: u32,
    /// When it started by its clock, milliseconds since 1970.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// Source of its frames.
    pub source: String,
    /// Link type of its filters.
    pub link: String,
    /// Its epoch.
    pub epoch: u64,
    /// Frames seen.
    pub seen: u64,
    /// Frames accepted.
    pub accepted: u64,
    /// Frames rejected.
    pub rejected: u64,
    /// Frames held or replaced.
    pub taken: u64,
    /// Frames lost.
    pub lost: u64,
}

/// Answers of a sensor to edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Its name.
    pub sensor: String,
    /// Number of this run of it.
    pub instance: String,
    /// The answers.
    pub answers: Vec<Answer>,
}

/// Answer to an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The sequence of the edit.
    pub sequence: u64,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Outcome of an edit at a sensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It is in force.
    InForce {
        /// The local epoch that it began.
        epoch: u64,
        /// Frames that the fyke had seen when it was in force: it judges all later ones.
        frame: u64,
        /// Nanoseconds of the local edit.
        latency_ns: u64,
    },
    /// A later edit was put in force together with it.
    Superseded {
        /// The sequence of that edit.
        by: u64,
    },
    /// It is for sensors with other labels.
    NotAddressed,
    /// It has no effect here.
    Refused {
        /// The reason.
        message: String,
        /// True if it is no edit of the group for this sensor: an author that it does not trust, or another place.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_void: bool,
    },
}

impl Outcome {
    /// True if the edit is in force, alone or together with a later one.
    pub fn is_in_force(&self) -> bool {
        matches!(self, Outcome::InForce { .. } | Outcome::Superseded { .. })
    }
}

/// A question to all sensors, which changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// Number of the latest frames that a filter which is not in force would accept.
    Try {
        /// Its text.
        text: String,
        /// Number of frames.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u64>,
        /// Only sensors with these labels answer.
        #[serde(default, skip_serializing_if = "Labels::is_empty")]
        only: Labels,
    },
}

/// Answer to [`Ask::Try`]. Bytes of frames do not leave the sensor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The sensor.
    pub sensor: String,
    /// Frames that were judged.
    pub frames: u64,
    /// Those that the filter accepts.
    pub accepted: u64,
    /// Those of them that no filter in force accepts.
    pub new: u64,
    /// Frames that the kernel has rejected since the start, which are not among those that were judged; `None` if it
    /// rejects none at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_in_kernel: Option<u64>,
    /// The service that has rejected them in place of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_by: Option<String>,
    /// Reason why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// True if the fyke refuses the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_refused: bool,
}
