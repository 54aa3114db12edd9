//! The conformance corpus `testdata/filters.toml`: filter expressions, frames and verdicts, the same for every engine.

use serde::Deserialize;
use std::path::Path;

/// The whole corpus.
#[derive(Debug, Deserialize)]
pub struct Conformance {
    /// All frames.
    #[serde(rename = "frame")]
    pub frames: Vec<NamedFrame>,
    /// Expressions and the frames that they accept.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
    /// Invalid expressions.
    pub refused: Vec<Refused>,
}

/// A frame of the corpus.
#[derive(Debug, Deserialize)]
pub struct NamedFrame {
    /// Its name.
    pub name: String,
    /// Its link type, by libpcap's name without `DLT_`.
    pub link: String,
    hex: String,
}

/// An expression and its verdicts.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// Purpose of the case.
    pub name: String,
    /// The link type.
    pub link: String,
    /// Filter expression.
    pub text: String,
    accept: Vec<String>,
    #[serde(default)]
    reject: Vec<String>,
}

/// An invalid expression.
#[derive(Debug, Deserialize)]
pub struct Refused {
    /// The link type.
    pub link: String,
    /// Filter expression.
    pub text: String,
    /// Part of the error message.
    pub message: String,
}

/// One verdict that a case requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the frame in the corpus.
    pub frame: String,
    /// The captured bytes.
    pub data: Vec<u8>,
    /// Length on the wire.
    pub wire_len: u32,
    /// True if the frame must be accepted.
    pub accepted: bool,
}

impl Conformance {
    /// Reads the corpus.
    ///
    /// # Panics
    /// When it is missing or invalid; it is part of the repository.
    pub fn load() -> Conformance {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/filters.toml");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let corpus: Conformance = toml::from_str(&text).expect("the corpus is TOML of that shape");
        for case in &corpus.cases {
            for name in case.accept.iter().chain(&case.reject) {
                assert!(corpus.frame(case, name).is_some(), "{}: no frame {name}", case.name);
            }
        }
        corpus
    }

    /// Returns the required verdicts on the frames of the case's link type, and on truncated frames.
    pub fn verdicts(&self, case: &Case) -> Vec<Verdict> {
        let whole = self.frames.iter().filter(|frame| frame.link == case.link);
        let whole = whole.map(|frame| frame.name.clone());
        let cut = case.accept.iter().chain(&case.reject).filter(|name| name.contains('/')).cloned();
        let named = whole.chain(cut).map(|name| {
            let (data, wire_len) = self.frame(case, &name)?;
            let accepted = case.accept.contains(&name);
            Some(Verdict { frame: name, data, wire_len, accepted })
        });
        named.flatten().collect()
    }

    /// Returns the captured bytes of a frame and its length on the wire.
    fn frame(&self, case: &Case, name: &str) -> Option<(Vec<u8>, u32)> {
        let (base, cut) = match name.split_once('/') {
            Some((base, cut)) => (base, Some(cut.parse().ok()?)),
            None => (name, None),
        };
        let mut frames = self.frames.iter().filter(|frame| frame.link == case.link);
        let mut data = frames.find(|frame| frame.name == base)?.data()?;
        let wire_len = u32::try_from(data.len()).ok()?;
        data.truncate(cut.unwrap_or(usize::MAX));
        Some((data, wire_len))
    }
}

impl NamedFrame {
    fn data(&self) -> Option<Vec<u8>> {
        let digits: String = self.hex.split_whitespace().collect();
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        (0..digits.len()).step_by(2).map(byte).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_loads_and_every_case_demands_something() {
        let corpus = Conformance::load();
        for case in &corpus.cases {
            let verdicts = corpus.verdicts(case);
            assert!(verdicts.iter().any(|verdict| verdict.accepted), "{}", case.name);
        }
        assert!(!corpus.refused.is_empty());
    }
}
