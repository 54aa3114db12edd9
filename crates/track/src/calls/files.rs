//! The capture files of calls: names, and limits on what is open and written.

use fyke_capture::{Interface, PRIVATE, Sink, WriteError, WriteOptions};
use fyke_frame::Frame;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Names of files, such as `calls/{protocol}-{call}.pcapng`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Texts and what follows each.
    parts: Vec<(String, Option<Word>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Call,
    Protocol,
}

impl Pattern {
    /// Reads a pattern. With several protocols it must name them apart.
    ///
    /// # Errors
    /// If it does not give each call a name of its own.
    pub(crate) fn of(text: &str, several: bool) -> Result<Pattern, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((word, after)) = after.split_once('}') else {
                return Err(format!("{text}: `{{` without `}}`"));
            };
            let word = match word {
                "call" => Word::Call,
                "protocol" => Word::Protocol,
                other => {
                    return Err(format!(
                        "{text}: {{{other}}} is not known; expected {{call}} or {{protocol}}"
                    ));
                }
            };
            parts.push((before.to_owned(), Some(word)));
            rest = after;
        }
        let has = |wanted: Word| parts.iter().any(|(_, word)| *word == Some(wanted));
        if !has(Word::Call) {
            return Err(format!("{text}: a file for each call needs {{call}} in its name"));
        }
        if several && !has(Word::Protocol) {
            return Err(format!("{text}: with several protocols the name needs {{protocol}}"));
        }
        let folder = text.rsplit_once('/').map_or("", |(folder, _)| folder);
        if folder.contains('{') {
            return Err(format!(
                "{text}: {{call}} and {{protocol}} are allowed after the last `/` only"
            ));
        }
        parts.push((rest.to_owned(), None));
        Ok(Pattern { parts })
    }

    /// The name of a part of a call's file; parts count from 1.
    fn name(&self, protocol: &str, call: u64, part: u32) -> PathBuf {
        let call = if part > 1 { format!("{call}-part{part}") } else { call.to_string() };
        self.fill(protocol, &call)
    }

    /// The name with these texts for its words.
    pub(crate) fn fill(&self, protocol: &str, call: &str) -> PathBuf {
        let mut name = String::new();
        for (text, word) in &self.parts {
            name.push_str(text);
            name.push_str(match word {
                Some(Word::Protocol) => protocol,
                Some(Word::Call) => call,
                None => "",
            });
        }
        PathBuf::from(name)
    }
}

/// Limits of the files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most files open at a time.
    pub(crate) open: usize,
    /// Most files in all.
    pub(crate) most: u64,
    /// Most bytes of frames of a call.
    pub(crate) bytes: u64,
    pub(crate) snaplen: u32,
    pub(crate) nanoseconds: bool,
}

/// The files.
pub(crate) struct CallFiles {
    pattern: Pattern,
    limits: Limits,
    /// All calls that have had a file, at most [`Limits::most`]: one that continues after its end gets another part.
    calls: HashMap<u64, CallFile>,
    /// Calls with an open file, by the turn of their last frame.
    open: BTreeMap<u64, u64>,
    /// Calls with frames that are not flushed.
    dirty: Vec<u64>,
    turn: u64,
    /// Files so far.
    pub(crate) count: u64,
    /// Frames over a limit.
    pub(crate) over: u64,
}

#[derive(Default)]
struct CallFile {
    sink: Option<Box<dyn Sink>>,
    part: u32,
    bytes: u64,
    /// Turn of its last frame.
    last: u64,
    /// True if it is among those that are not flushed.
    dirty: bool,
}

impl CallFiles {
    pub(crate) fn new(pattern: Pattern, limits: Limits) -> CallFiles {
        let (calls, open, dirty) = (HashMap::new(), BTreeMap::new(), Vec::new());
        CallFiles { pattern, limits, calls, open, dirty, turn: 0, count: 0, over: 0 }
    }

    /// Writes a frame to the file of its call; false if a limit does not allow it.
    pub(crate) fn write(
        &mut self,
        (protocol, number): (&str, u64),
        call: u64,
        interface: &Interface,
        frame: &Frame<'_>,
    ) -> Result<bool, WriteError> {
        let limits = self.limits;
        let (is_open, bytes) =
            self.calls.get(&call).map_or((false, 0), |file| (file.sink.is_some(), file.bytes));
        let length = frame.data.len() as u64;
        if bytes + length > limits.bytes || (!is_open && self.count >= limits.most) {
            self.over += 1;
            return Ok(false);
        }
        if !is_open {
            if self.open.len() >= limits.open {
                self.close_oldest()?;
            }
            let file = self.calls.entry(call).or_default();
            let path = self.pattern.name(protocol, number, file.part + 1);
            let options = WriteOptions {
                snaplen: limits.snaplen,
                nanoseconds: Some(limits.nanoseconds),
                interfaces: vec![interface.clone()],
                mode: PRIVATE,
                ..WriteOptions::default()
            };
            file.sink = Some(fyke_capture::create_file(&path, options)?);
            file.part += 1;
            self.count += 1;
        }
        self.turn += 1;
        let file = self.calls.entry(call).or_default();
        self.open.remove(&file.last);
        self.open.insert(self.turn, call);
        if !std::mem::replace(&mut file.dirty, true) {
            self.dirty.push(call);
        }
        (file.last, file.bytes) = (self.turn, bytes + length);
        match &mut file.sink {
            Some(sink) => sink.write(interface, frame).map(|()| true),
            None => Ok(false),
        }
    }

    /// Closes the file of the call that was silent longest.
    fn close_oldest(&mut self) -> Result<(), WriteError> {
        match self.open.first_key_value() {
            Some((_, &call)) => self.end(call).map(drop),
            None => Ok(()),
        }
    }

    /// Closes the file of a call; returns the number of its parts.
    pub(crate) fn end(&mut self, call: u64) -> Result<u32, WriteError> {
        let Some(file) = self.calls.get_mut(&call) else { return Ok(0) };
        if let Some(sink) = file.sink.take() {
            self.open.remove(&file.last);
            sink.finish()?;
        }
        Ok(file.part)
    }

    /// Writes all frames so far to the operating system.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        for call in std::mem::take(&mut self.dirty) {
            let Some(file) = self.calls.get_mut(&call) else { continue };
            file.dirty = false;
            if let Some(sink) = &mut file.sink {
                sink.flush()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_numbers_and_protocols() {
        let pattern = Pattern::of("dir/{protocol}-{call}.pcapng", true).unwrap();
        assert_eq!(pattern.name("sip", 7, 1), PathBuf::from("dir/sip-7.pcapng"));
        assert_eq!(pattern.name("sip", 7, 3), PathBuf::from("dir/sip-7-part3.pcapng"));
        for (text, problem) in [
            ("dir/calls.pcapng", "needs {call}"),
            ("dir/{call}.pcapng", "needs {protocol}"),
            ("dir/{id}-{call}.pcapng", "{id} is not known"),
            ("dir/{call.pcapng", "without"),
            ("{protocol}/{call}.pcapng", "after the last"),
        ] {
            let refused = Pattern::of(text, true).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
        assert!(Pattern::of("{call}.pcap", false).is_ok());
    }
}
