//! Edits of a group's filters, and their signatures.
//!
//! A message of the stream is a JSON object with the edit as text, so that the signature covers exactly its bytes:
//!
//! ```text
//! {"author":"anna","edit":"{\"version\":1,\"group\":\"edge\",\"after\":11,…}","signature":"HEX"}
//! ```

use crate::keys::{Author, Trusted};
use crate::{Name, signed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Version of the form of edits.
pub const VERSION: u32 = 1;
/// Most changes of an edit.
pub const MAX_CHANGES: usize = 10_000;
/// Most bytes of a message.
pub const MAX_BYTES: usize = 1 << 20;
/// Before the signed text, so that a signature is of no use elsewhere.
const DOMAIN: &[u8] = b"fyke fleet edit 1\n";

/// Labels of a sensor, or those that an edit asks for.
pub type Labels = BTreeMap<String, String>;

/// Id of a filter of a group: the sequence of the edit that added it, and its place among those that the edit added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterId {
    /// The sequence.
    pub sequence: u64,
    /// The place, from 0.
    pub place: u32,
}

impl fmt::Display for FilterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            0 => write!(f, "{}", self.sequence),
            place => write!(f, "{}.{place}", self.sequence),
        }
    }
}

impl FromStr for FilterId {
    type Err = String;

    fn from_str(text: &str) -> Result<FilterId, String> {
        let (sequence, place) = text.split_once('.').unwrap_or((text, "0"));
        match (sequence.parse(), place.parse()) {
            (Ok(sequence), Ok(place)) => Ok(FilterId { sequence, place }),
            _ => Err(format!("{text:?} is no id of a filter (as 12, or 12.1)")),
        }
    }
}

impl Serialize for FilterId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FilterId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<FilterId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A change of a group's filters. It holds texts of filters or rules, which open nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Removes all filters of the group that have the labels of this edit. Without labels also those that the sensors
    /// have besides: of their command lines and of local users.
    Clear,
    /// Adds a filter.
    Add {
        /// Its text.
        text: String,
    },
    /// Removes a filter.
    Delete {
        /// Its id.
        id: FilterId,
    },
}

/// An edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// [`VERSION`].
    pub version: u32,
    /// The group.
    pub group: String,
    /// The sequence of the edit before it; 0 for the first.
    pub after: u64,
    /// Its time by the author's clock, milliseconds since 1970. Nothing depends on it.
    pub unix_ms: u64,
    /// Only sensors with these labels apply it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub only: Labels,
    /// The changes; each sees the filters that those before it leave.
    pub changes: Vec<Change>,
    /// The sequence of the edit that it takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
}

/// An edit with a valid signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The edit.
    pub edit: Edit,
    /// Its author.
    pub author: String,
}

impl Edit {
    /// The message with the signature of its author.
    ///
    /// # Errors
    /// It is longer than [`MAX_BYTES`].
    pub fn signed(&self, author: &Author) -> Result<Vec<u8>, String> {
        let edit = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let bytes = signed::seal(DOMAIN, author, edit)?;
        match bytes.len() <= MAX_BYTES && self.changes.len() <= MAX_CHANGES {
            true => Ok(bytes),
            false => Err(format!(
                "the edit has {} changes in {} bytes; at most {MAX_CHANGES} in {MAX_BYTES}: divide it",
                self.changes.len(),
                bytes.len()
            )),
        }
    }

    /// Reads a message, and checks its signature, its group and its place.
    ///
    /// # Errors
    /// The message is no edit, its author is not trusted, or it was signed for another group or another place: after
    /// another sequence than `after`.
    pub fn read(
        message: &[u8],
        trusted: &Trusted,
        group: &Name,
        after: u64,
    ) -> Result<Accepted, String> {
        if message.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; at most {MAX_BYTES}", message.len()));
        }
        let (author, edit) = signed::open(DOMAIN, trusted, message)?;
        let edit: Edit = serde_json::from_str(&edit)
            .map_err(|error| format!("this version does not know such an edit: {error}"))?;
        if edit.version != VERSION {
            return Err(format!("it has version {}, this fyke knows {VERSION}", edit.version));
        }
        if edit.group != group.as_str() {
            return Err(format!("it was signed for the group {:?}", edit.group));
        }
        if edit.after != after {
            return Err(format!(
                "it was signed for the place after {}, not after {after}",
                edit.after
            ));
        }
        if edit.changes.len() > MAX_CHANGES {
            return Err(format!("it has {} changes; at most {MAX_CHANGES}", edit.changes.len()));
        }
        Ok(Accepted { edit, author })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn author(name: &str) -> Author {
        let folder = tempfile::tempdir().unwrap();
        Author::create(&folder.path().join("key"), Name::new(name).unwrap()).unwrap()
    }

    #[test]
    fn a_message_is_accepted_at_its_place_in_its_group_only() {
        let anna = author("anna");
        let trusted = Trusted::from_text(&anna.public_line()).unwrap();
        let edge = Name::new("edge").unwrap();
        let edit = Edit {
            version: VERSION,
            group: "edge".to_owned(),
            after: 11,
            unix_ms: 1,
            only: Labels::new(),
            changes: vec![Change::Add { text: "udp port 53".to_owned() }],
            undoes: None,
        };
        let message = edit.signed(&anna).unwrap();
        let read = |message: &[u8], after| Edit::read(message, &trusted, &edge, after);
        assert_eq!(
            read(&message, 11).unwrap(),
            Accepted { edit: edit.clone(), author: "anna".into() }
        );
        // Repeated elsewhere, or in another group.
        assert!(read(&message, 12).unwrap_err().contains("after 11, not after 12"));
        let other = Edit { group: "core".into(), ..edit.clone() }.signed(&anna).unwrap();
        assert!(read(&other, 11).unwrap_err().contains("the group \"core\""));
        // Changed on the way, or by an author that is not known.
        let changed = String::from_utf8(message.clone()).unwrap().replace("port 53", "port 54");
        assert!(read(changed.as_bytes(), 11).unwrap_err().contains("not that of anna"));
        let foreign = edit.signed(&author("eve")).unwrap();
        assert!(read(&foreign, 11).unwrap_err().contains("not a trusted author"));
        let newer = Edit { version: 2, ..edit.clone() }.signed(&anna).unwrap();
        assert!(read(&newer, 11).unwrap_err().contains("version 2"));
        for end in 0..message.len() {
            assert!(read(&message[..end], 11).is_err());
        }
        let long = vec![Change::Add { text: "x".repeat(100) }; MAX_CHANGES];
        assert!(Edit { changes: long, ..edit }.signed(&anna).is_err());
    }

    #[test]
    fn ids_are_read_back() {
        for text in ["12", "12.1"] {
            assert_eq!(text.parse::<FilterId>().unwrap().to_string(), text);
        }
        for wrong in ["", "x", "1.", ".1", "1.2.3", "-1"] {
            assert!(wrong.parse::<FilterId>().is_err(), "{wrong}");
        }
    }
}
