//! Text output on standard output and standard error. All text of the commands passes through [`safe`].
//!
//! Interface names, file names, arguments and answers of other processes can contain escape sequences that control the
//! terminal. A closed pipe ends the command without a message, a full disk ends it with exit status 1 (see
//! [`Failure`](super::Failure)); neither causes a panic.

use crate::cli::LogForm;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// True if messages are JSON objects.
static JSON: AtomicBool = AtomicBool::new(false);

/// Sets the form of all messages on standard error.
pub fn write_notes_as(form: LogForm) {
    JSON.store(form == LogForm::Json, Ordering::Relaxed);
}

/// True if messages are JSON objects.
pub fn writes_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// A message in the form of all messages, without a line end.
pub fn note_line(text: &str) -> String {
    match writes_json() {
        false => safe(text).into_owned(),
        true => event_line("message", None, Value::Null, text),
    }
}

/// A message as an object of JSON: time, kind of event, the name of a capture if there are several, other fields.
pub fn event_line(event: &str, name: Option<&str>, fields: Value, text: &str) -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = Map::new();
    line.insert("unix_ms".into(), json!(since_1970.as_millis() as u64));
    line.insert("event".into(), json!(event));
    if let Some(name) = name {
        line.insert("name".into(), json!(name));
    }
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    line.insert("message".into(), json!(text.trim_end()));
    without_controls(&Value::Object(line).to_string())
}

/// Escapes the controls that JSON permits in strings, and that terminals obey.
fn without_controls(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '\u{7f}'..='\u{9f}' => line += &format!("\\u{:04x}", u32::from(letter)),
            letter => line.push(letter),
        }
    }
    line
}

/// Escapes all control characters except line end and tab as JSON does, such as `\u001b`, and the characters that
/// change the direction of writing or end a line.
pub fn safe(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| {
        letter.is_control() && !matches!(letter, '\n' | '\t') || is_invisible(letter)
    })
}

/// Escapes line ends and tabs too, for a text from others that must not look like further lines of ours.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter.is_control() || is_invisible(letter))
}

/// Most characters of a text that a report shows.
const SHOWN_CHARS: usize = 300;

/// A text on one line; a long one is cut, with its length.
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => one_line(text),
        Some((end, _)) => {
            let count = text.chars().count();
            Cow::Owned(format!("{} … ({count} characters)", one_line(&text[..end])))
        }
    }
}

/// Characters that change the direction of writing, and line ends of Unicode.
fn is_invisible(letter: char) -> bool {
    let ranges = ['\u{61c}'..='\u{61c}', '\u{200e}'..='\u{200f}', '\u{2028}'..='\u{202e}'];
    ranges.into_iter().chain(['\u{2066}'..='\u{2069}']).any(|range| range.contains(&letter))
}

fn escaped(text: &str, harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match harmful(letter) {
            true => {
                let _infallible = write!(safe, "\\u{:04x}", u32::from(letter));
            }
            false => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// Writer for text on standard output; each write must contain whole characters.
#[derive(Debug)]
pub struct Output(Stdout);

/// Returns the writer for text on standard output.
pub fn output() -> Output {
    Output(io::stdout())
}

/// Names standard output in an error, and keeps the kind.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(safe(&text).as_bytes()).map_err(named)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

#[cfg(test)]
mod tests {
    use super::{safe, without_controls};
    use serde_json::{Value, json};

    #[test]
    fn controls_of_terminals_are_escaped_and_the_line_stays_json() {
        let line = without_controls(&json!({"program": "a\u{9b}2J\u{1b}[2J\u{7f}é"}).to_string());
        assert!(!line.chars().any(char::is_control), "{line}");
        let back: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["program"], "a\u{9b}2J\u{1b}[2J\u{7f}é");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(safe("a\tb\nä 漢"), "a\tb\nä 漢");
        assert_eq!(safe("a\u{202e}b\u{2028}"), r"a\u202eb\u2028");
        assert_eq!(super::one_line("a\nb\t\u{2066}"), r"a\u000ab\u0009\u2066");
        assert_eq!(safe("\x1b]0;x\x07\r\x7f\u{9b}"), r"\u001b]0;x\u0007\u000d\u007f\u009b");
    }
}
