//! Snapshots of a group's filters, so that a new sensor need not read every edit.
//!
//! | key in the bucket `fyke-GROUP-snapshots` | content |
//! |---|---|
//! | `head` | the sequence, the digests of the parts and of the list of trusted authors, signed |
//! | `SEQUENCE.N` | part N: filters as JSON |
//!
//! The broker is not trusted with a snapshot either. The author that makes edit 1,000, 2,000, … signs the filters after
//! it. Each trusted author may replace all filters by an edit anyway, so the signature gives it no right that it lacks;
//! and an old snapshot leads to the filters of today, because each edit after it names the one before. A reader takes a
//! snapshot only if it trusts the same authors as its maker: with another list it might have refused other edits.
//! Without a snapshot that it takes, it reads all edits.

use crate::broker::{Broker, BrokerError};
use crate::edit::{FilterId, Labels};
use crate::keys::{Author, Trusted};
use crate::state::{Filter, State};
use crate::{hex, signed};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// Number of edits from one snapshot to the next.
pub const EVERY: u64 = 1_000;
/// Version of the form of snapshots.
const VERSION: u32 = 1;
/// Before the signed text, so that a signature is of no use elsewhere.
const DOMAIN: &[u8] = b"fyke fleet snapshot 1\n";
/// A part is begun anew beyond this many bytes; with the longest text it fits into a message.
const PART: usize = 256 << 10;
/// Most parts.
const MAX_PARTS: usize = 4_096;
/// Most bytes of a part.
const MAX_BYTES: usize = 1 << 20;

/// The signed text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    version: u32,
    group: String,
    sequence: u64,
    cleared: u64,
    /// Digest of the authors that its maker trusts.
    trusted: String,
    /// Digests of the parts.
    parts: Vec<String>,
}

/// A filter in a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    id: FilterId,
    text: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    only: Labels,
    author: String,
}

fn digest_of(bytes: &[u8]) -> String {
    hex::of(digest(&SHA256, bytes).as_ref())
}

/// A snapshot as messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    head: Vec<u8>,
    parts: Vec<Vec<u8>>,
}

impl Snapshot {
    /// The filters of a group, signed.
    ///
    /// # Errors
    /// They do not fit.
    pub fn of(
        state: &State,
        group: &str,
        author: &Author,
        trusted: &Trusted,
    ) -> Result<Snapshot, String> {
        let mut parts = Vec::new();
        let (mut part, mut bytes) = (Vec::new(), 0);
        for filter in state.filters.values() {
            let Filter { id, text, only, author } = filter.clone();
            bytes += text.len() + 64;
            part.push(Kept { id, text, only, author });
            if bytes > PART {
                parts.push(written(&std::mem::take(&mut part))?);
                bytes = 0;
            }
        }
        if !part.is_empty() {
            parts.push(written(&part)?);
        }
        if parts.len() > MAX_PARTS || parts.iter().any(|part| part.len() > MAX_BYTES) {
            return Err("the filters of the group are too large for a snapshot".to_owned());
        }
        let head = Head {
            version: VERSION,
            group: group.to_owned(),
            sequence: state.sequence,
            cleared: state.cleared,
            trusted: digest_of(trusted.text().as_bytes()),
            parts: parts.iter().map(|part| digest_of(part)).collect(),
        };
        let text = serde_json::to_string(&head).map_err(|error| error.to_string())?;
        Ok(Snapshot { head: signed::seal(DOMAIN, author, text)?, parts })
    }

    /// The filters, after all checks.
    ///
    /// # Errors
    /// The author is not trusted, the maker trusts other authors, or a part is not the one that was signed.
    pub fn state(&self, group: &str, trusted: &Trusted) -> Result<State, String> {
        let head = head_of(&self.head, group, trusted)?;
        if self.parts.len() != head.parts.len() {
            return Err(format!("{} parts of {}", self.parts.len(), head.parts.len()));
        }
        let mut filters = Vec::new();
        for (number, (part, wanted)) in self.parts.iter().zip(&head.parts).enumerate() {
            if digest_of(part) != *wanted {
                return Err(format!("part {number} is not the one that was signed"));
            }
            let part: Vec<Kept> =
                serde_json::from_slice(part).map_err(|error| error.to_string())?;
            filters.extend(part.into_iter().map(|Kept { id, text, only, author }| Filter {
                id,
                text,
                only,
                author,
            }));
        }
        State::of(head.sequence, head.cleared, filters).map_err(|error| error.to_string())
    }
}

fn written(part: &[Kept]) -> Result<Vec<u8>, String> {
    serde_json::to_vec(part).map_err(|error| error.to_string())
}

fn head_of(message: &[u8], group: &str, trusted: &Trusted) -> Result<Head, String> {
    let (_, text) = signed::open(DOMAIN, trusted, message)?;
    let head: Head = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    match head {
        Head { version, .. } if version != VERSION => Err(format!("it has version {version}")),
        Head { group: of, .. } if of != group => Err(format!("it is of the group {of:?}")),
        Head { trusted: of, .. } if of != digest_of(trusted.text().as_bytes()) => {
            Err("its author trusts other authors".to_owned())
        }
        Head { parts, .. } if parts.len() > MAX_PARTS => {
            Err(format!("it has {} parts", parts.len()))
        }
        head => Ok(head),
    }
}

/// Stores a snapshot if the group has none for its last [`EVERY`] edits, and removes older ones.
///
/// # Errors
/// The broker does not take it; without it, sensors read more edits.
pub async fn store(
    broker: &Broker,
    state: &State,
    author: &Author,
    trusted: &Trusted,
) -> Result<bool, BrokerError> {
    let group = broker.group().as_str().to_owned();
    if state.sequence < EVERY {
        return Ok(false);
    }
    let before = match broker.snapshot("head").await? {
        // One that this author would not take is replaced.
        Some(message) => head_of(&message, &group, trusted).ok(),
        None => None,
    };
    let known = before.as_ref().map_or(0, |head| head.sequence);
    if known <= state.sequence && state.sequence - known < EVERY {
        return Ok(false);
    }
    let failed = |why| BrokerError::Failed { what: "making a snapshot", why };
    let made = Snapshot::of(state, &group, author, trusted).map_err(failed)?;
    for (number, part) in made.parts.iter().enumerate() {
        broker.put_snapshot(&key(state.sequence, number), part.clone()).await?;
    }
    broker.put_snapshot("head", made.head).await?;
    if let Some(before) = before.filter(|before| before.sequence != state.sequence) {
        for number in 0..before.parts.len() {
            broker.remove_snapshot(&key(before.sequence, number)).await?;
        }
    }
    Ok(true)
}

/// The filters of the last snapshot; `None` if there is none.
///
/// # Errors
/// The broker does not answer, or the snapshot is refused, with the reason.
pub async fn load(broker: &Broker, trusted: &Trusted) -> Result<Option<State>, BrokerError> {
    let group = broker.group().as_str();
    let failed = |why| BrokerError::Failed { what: "taking the snapshot of the group", why };
    let Some(message) = broker.snapshot("head").await? else { return Ok(None) };
    let head = head_of(&message, group, trusted).map_err(failed)?;
    let mut parts = Vec::new();
    for number in 0..head.parts.len() {
        let part = broker.snapshot(&key(head.sequence, number)).await?;
        // Replaced meanwhile.
        parts.push(part.ok_or_else(|| failed(format!("part {number} is missing")))?);
    }
    let state = Snapshot { head: message, parts }.state(group, trusted).map_err(failed)?;
    Ok(Some(state))
}

fn key(sequence: u64, part: usize) -> String {
    format!("{sequence}.{part}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn state(filters: usize) -> State {
        let filter = |number: usize| Filter {
            id: FilterId { sequence: number as u64 + 1, place: 0 },
            text: format!("udp port {number}"),
            only: Labels::new(),
            author: "anna".to_owned(),
        };
        State::of(20_000, 3, (0..filters).map(filter).collect()).unwrap()
    }

    #[test]
    fn a_snapshot_is_taken_whole_from_a_trusted_author_only() {
        let folder = tempfile::tempdir().unwrap();
        let key =
            |name| Author::create(&folder.path().join(name), Name::new(name).unwrap()).unwrap();
        let (anna, bert, eve) = (key("anna"), key("bert"), key("eve"));
        let both = format!("{}\n{}", anna.public_line(), bert.public_line());
        let trusted = Trusted::from_text(&both).unwrap();
        let state = state(10_000);
        let made = Snapshot::of(&state, "edge", &anna, &trusted).unwrap();
        assert!(made.parts.len() > 1);
        assert_eq!(made.state("edge", &trusted).unwrap(), state);
        assert!(made.state("core", &trusted).unwrap_err().contains("of the group \"edge\""));
        let alone = Trusted::from_text(&anna.public_line()).unwrap();
        assert!(made.state("edge", &alone).unwrap_err().contains("trusts other authors"));
        let foreign = Snapshot::of(&state, "edge", &eve, &trusted).unwrap();
        assert!(foreign.state("edge", &trusted).unwrap_err().contains("not a trusted author"));
        let mut changed = made.clone();
        changed.parts[1] = changed.parts[0].clone();
        assert!(changed.state("edge", &trusted).unwrap_err().contains("part 1 is not"));
        let mut cut = made.clone();
        cut.parts.pop();
        assert!(cut.state("edge", &trusted).is_err());
        let mut other = made;
        let place = other.head.windows(5).position(|word| word == b"20000").unwrap();
        other.head[place] = b'3';
        assert!(other.state("edge", &trusted).unwrap_err().contains("not that of anna"));
    }

    #[test]
    fn an_edit_is_no_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let anna = Author::create(&folder.path().join("key"), Name::new("anna").unwrap()).unwrap();
        let trusted = Trusted::from_text(&anna.public_line()).unwrap();
        let made = Snapshot::of(&state(1), "edge", &anna, &trusted).unwrap();
        let text = signed::open(DOMAIN, &trusted, &made.head).unwrap().1;
        let head = signed::seal(b"fyke fleet edit 1\n", &anna, text).unwrap();
        assert!(Snapshot { head, ..made }.state("edge", &trusted).is_err());
    }
}
