//! The log of a service on standard error: lines for people, or one JSON object a line (`--log json`).

use super::super::safe;
use crate::cli::LogForm;
use fyke_capture::Notice;
use fyke_serve::events::{Client, Event};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The log of a capture, or of the whole service; all write to the same place.
#[derive(Debug, Clone)]
pub struct Log {
    form: LogForm,
    /// Name of the capture, if the service has several.
    of: Option<String>,
}

impl Log {
    /// Makes the log.
    pub fn new(form: LogForm, of: Option<String>) -> Log {
        Log { form, of }
    }

    /// Writes an event: its text for people, or its name with its fields. A log that cannot be written stops nothing.
    pub fn say(&self, event: &str, fields: Value, text: &str) {
        let line = match self.form {
            LogForm::Text => match &self.of {
                // It tells itself which capture it is of.
                Some(name) if event != "serving" => {
                    let text = text.strip_prefix("fyke: ").unwrap_or(text);
                    safe(&format!("fyke: {name}: {text}")).into_owned()
                }
                _ => safe(text).into_owned(),
            },
            LogForm::Json => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let mut line = Map::new();
                line.insert("unix_ms".into(), json!(since_1970.as_millis() as u64));
                line.insert("event".into(), json!(event));
                if let Some(name) = &self.of {
                    line.insert("name".into(), json!(name));
                }
                if let Value::Object(fields) = fields {
                    line.extend(fields);
                }
                line.insert("message".into(), json!(text));
                escaped(&Value::Object(line).to_string())
            }
        };
        let _no_reader = std::io::stderr().write_all((line + "\n").as_bytes());
    }

    /// Takes the events of readers.
    pub fn of_readers(&self) -> Box<dyn Fn(&Event) + Send + Sync> {
        let log = self.clone();
        Box::new(move |event| {
            let (name, fields) = fields(event);
            log.say(name, fields, &format!("fyke: {event}"));
        })
    }

    /// Takes notices of the running graph.
    pub fn of_notices(&self) -> impl Fn(&Notice) + Send + use<> {
        let log = self.clone();
        move |notice| log.say("notice", Value::Null, &format!("fyke: {notice}"))
    }
}

/// Escapes the controls that JSON permits in strings, and that terminals obey.
fn escaped(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '\u{7f}'..='\u{9f}' => line += &format!("\\u{:04x}", u32::from(letter)),
            letter => line.push(letter),
        }
    }
    line
}

fn fields(event: &Event) -> (&'static str, Value) {
    let with = |Client { user, process, program }: &Client, more: Value| {
        let mut all = json!({"user": user, "process": process, "program": program});
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
        all
    };
    match event {
        Event::Opened { reader, client, texts } => {
            ("reader_opened", with(client, json!({"reader": reader, "texts": texts})))
        }
        Event::Left { reader, client, counts, read: (read, lost), reason } => {
            let mut more = json!({"reader": reader, "counts": counts, "read": read, "lost": lost});
            if let Some(reason) = reason {
                more["reason"] = json!(reason);
            }
            ("reader_left", with(client, more))
        }
        Event::Refused { client, reason } => ("refused", with(client, json!({"reason": reason}))),
        Event::Omitted { count } => ("omitted", json!({"count": count})),
        _ => ("event", Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_of_terminals_are_escaped_and_the_line_stays_json() {
        let line = escaped(&json!({"program": "a\u{9b}2J\u{1b}[2J\u{7f}é"}).to_string());
        assert!(!line.chars().any(char::is_control), "{line}");
        let back: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["program"], "a\u{9b}2J\u{1b}[2J\u{7f}é");
    }
}
