//! The log of a service on standard error: lines for people, or one JSON object a line (`--log json`).

use super::super::{event_line, safe, writes_json};
use fyke_capture::Notice;
use fyke_serve::events::{Client, Event};
use serde_json::{Value, json};
use std::io::Write;

/// The log of a capture, or of the whole service; all write to the same place.
#[derive(Debug, Clone)]
pub struct Log {
    /// Name of the capture, if the service has several.
    of: Option<String>,
}

impl Log {
    /// Makes the log.
    pub fn new(of: Option<String>) -> Log {
        Log { of }
    }

    /// Writes an event: its text for people, or its name with its fields. A log that cannot be written stops nothing.
    pub fn say(&self, event: &str, fields: Value, text: &str) {
        let line = match &self.of {
            name if writes_json() => event_line(event, name.as_deref(), fields, text),
            // It tells itself which capture it is of.
            Some(name) if event != "serving" => {
                let text = text.strip_prefix("fyke: ").unwrap_or(text);
                safe(&format!("fyke: {name}: {text}")).into_owned()
            }
            _ => safe(text).into_owned(),
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
