//! Rules of an IDS for a scan: stored once for all of its jobs, by their digest.
//!
//! A job is signed and has the digest (SHA-256), so a broker that is taken over cannot exchange the rules.

use crate::broker::BrokerError;
use crate::hex;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// Most bytes of rules.
pub const MAX_BYTES: usize = 64 << 20;
/// Bytes of a part: a message of the broker.
const PART: usize = 512 << 10;

/// Rules, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    digest: String,
    text: Vec<u8>,
}

/// The rules of a job: their digest and length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesOf {
    /// The digest, 64 hexadecimal digits.
    pub digest: String,
    /// Their bytes.
    pub bytes: usize,
}

impl Rules {
    /// Takes a text.
    ///
    /// # Errors
    /// It is empty or too long.
    pub fn new(text: Vec<u8>) -> Result<Rules, String> {
        match (1..=MAX_BYTES).contains(&text.len()) {
            true => Ok(Rules { digest: hex::of(digest(&SHA256, &text).as_ref()), text }),
            false => Err(format!("{} bytes of rules; 1 to {MAX_BYTES} are possible", text.len())),
        }
    }

    /// The digest.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The reference for jobs.
    pub fn reference(&self) -> RulesOf {
        RulesOf { digest: self.digest.clone(), bytes: self.text.len() }
    }

    /// The keys and the bytes of the parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (String, &[u8])> {
        self.text.chunks(PART).enumerate().map(|(number, part)| (key(&self.digest, number), part))
    }
}

fn key(digest: &str, part: usize) -> String {
    format!("{digest}.{part}")
}

impl RulesOf {
    /// Checks the form of a reference.
    ///
    /// # Errors
    /// It can be none of rules.
    pub fn check(&self) -> Result<(), String> {
        let is_digest = self.digest.len() == 64 && hex::read(&self.digest).is_some();
        match is_digest && (1..=MAX_BYTES).contains(&self.bytes) {
            true => Ok(()),
            false => Err("its rules have no digest, or too many bytes".to_owned()),
        }
    }

    /// The keys of the parts.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> {
        (0..self.bytes.div_ceil(PART)).map(|number| key(&self.digest, number))
    }

    /// The rules of these parts.
    ///
    /// # Errors
    /// They are not those of the job.
    pub(crate) fn joined(&self, parts: Vec<Vec<u8>>) -> Result<Rules, BrokerError> {
        let rules = Rules::new(parts.concat());
        let wrong = |why| BrokerError::Failed { what: "reading the rules of a job", why };
        match rules.map_err(wrong)? {
            rules if rules.digest == self.digest => Ok(rules),
            _ => Err(wrong("they are not those that the job was signed with".to_owned())),
        }
    }
}

/// Alerts of a rule over a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Number of the generator, 1 for rules.
    pub gid: u64,
    /// Number of the rule.
    pub sid: u64,
    /// Its message.
    pub message: String,
    /// Number of alerts.
    pub count: u64,
    /// Times of the first and of the last packet with one, as the records of alerts have them.
    pub first: String,
    /// The last one.
    pub last: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_joined_from_their_parts_and_no_others() {
        let text: Vec<u8> = (0..PART * 2 + 7).map(|at| (at % 251) as u8).collect();
        let rules = Rules::new(text).unwrap();
        let of = rules.reference();
        of.check().unwrap();
        let (keys, parts): (Vec<_>, Vec<_>) =
            rules.parts().map(|(key, part)| (key, part.to_vec())).unzip();
        assert_eq!(keys, of.keys().collect::<Vec<_>>());
        assert_eq!((keys.len(), of.joined(parts.clone()).unwrap()), (3, rules));
        let mut changed = parts.clone();
        changed[1][5] ^= 1;
        assert!(of.joined(changed).unwrap_err().to_string().contains("signed"));
        assert!(of.joined(parts[..2].to_vec()).is_err());
        assert!(Rules::new(Vec::new()).is_err());
        for wrong in ["", "0", &"g".repeat(64)] {
            assert!(RulesOf { digest: wrong.to_owned(), bytes: 1 }.check().is_err());
        }
        assert!(RulesOf { bytes: usize::MAX, ..of }.check().is_err());
    }
}
