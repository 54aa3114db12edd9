//! Records on request: what flows were, and what messages of applications held, as lines of JSON.
//!
//! A line of HTTP has a request with its response; one of TLS has both hellos with the certificate. What waits for its
//! other part is held with its flow, bounded, and written without it at the end of the flow.

use super::Engine;
use super::flow::Flow;
use super::packet::Packet;
use crate::app::{Facts, Message};
use crate::buffer::{Application, Buffer};
use crate::eve;
use serde_json::{Map, Value};
use std::collections::VecDeque;

/// Most requests of a flow that wait for their responses.
const MAX_REQUESTS: usize = 64;
/// Estimate of the memory of a field.
const FIELD_BYTES: usize = 128;

/// Kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kinds {
    /// One for each flow, at its end.
    pub flow: bool,
    /// One for each message of DNS.
    pub dns: bool,
    /// One for each handshake of TLS.
    pub tls: bool,
    /// One for each request of HTTP.
    pub http: bool,
    /// One for each packet after an alert of a rule with `tag`.
    pub packet: bool,
}

/// Reason for which a flow has ended here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was silent.
    Timeout,
    /// Another one needed its room.
    Room,
    /// Its ends have begun another one.
    Renewed,
    /// The capture has ended.
    Shutdown,
}

impl Reason {
    /// Name, as in Suricata where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Timeout => "timeout",
            Reason::Room => "forced",
            Reason::Renewed => "renewed",
            Reason::Shutdown => "shutdown",
        }
    }
}

/// Parts of records that wait for others: fields with the time of the packet.
#[derive(Debug, Default)]
pub struct Notes {
    requests: VecDeque<(u64, Map<String, Value>)>,
    tls: Option<(u64, Map<String, Value>)>,
}

impl Notes {
    /// Bytes that they hold, estimated.
    pub fn held(&self) -> usize {
        let all = self.requests.iter().chain(&self.tls).map(|(_, fields)| fields);
        all.flat_map(|fields| fields.values())
            .map(|value| FIELD_BYTES + value.as_str().map_or(0, str::len))
            .sum()
    }
}

impl Engine {
    /// Sets the records that are wanted.
    pub fn record(&mut self, wanted: Kinds) {
        self.wanted = wanted;
    }

    /// Takes the records since the last call: lines of JSON.
    pub fn take_records(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Records a message.
    pub(super) fn note_message(&mut self, packet: &Packet<'_>, flow: &mut Flow, message: &Message) {
        match (message.application, &message.facts) {
            (Application::Dns, Facts::Dns(facts)) if self.wanted.dns => {
                let fields = eve::dns(facts, message.to_server);
                self.line(flow, packet.time_ns, message.to_server, "dns", fields);
            }
            (Application::Tls, _) if self.wanted.tls => self.note_tls(packet, flow, message),
            (Application::Http, _) if self.wanted.http && message.complete => {
                self.note_http(packet, flow, message);
            }
            _ => {}
        }
    }

    fn note_http(&mut self, packet: &Packet<'_>, flow: &mut Flow, message: &Message) {
        let fields = eve::message(message);
        let notes = flow.notes.get_or_insert_default();
        let (time_ns, whole) = match message.to_server {
            true => {
                notes.requests.push_back((packet.time_ns, fields));
                match notes.requests.len() > MAX_REQUESTS {
                    true => notes.requests.pop_front().unwrap_or_default(),
                    false => return,
                }
            }
            // An interim response; the answer is still to come.
            false
                if matches!(
                    fields.get("status").and_then(Value::as_u64),
                    Some(100 | 102 | 103)
                ) =>
            {
                return;
            }
            false => {
                let (_, mut whole) = notes.requests.pop_front().unwrap_or_default();
                for (name, value) in fields {
                    whole.entry(name).or_insert(value);
                }
                (packet.time_ns, whole)
            }
        };
        self.line(flow, time_ns, true, "http", whole);
    }

    fn note_tls(&mut self, packet: &Packet<'_>, flow: &mut Flow, message: &Message) {
        let mut fields = eve::message(message);
        let mut is_last = message.get(Buffer::TlsCertificates).is_some();
        if let Facts::Hello(hello) = &message.facts {
            // What follows is encrypted.
            is_last |= !message.to_server && hello.versions.contains(&eve::TLS_1_3);
        }
        let notes = flow.notes.get_or_insert_default();
        let (_, known) = notes.tls.get_or_insert_with(|| (packet.time_ns, Map::new()));
        known.append(&mut fields);
        if is_last && let Some((_, fields)) = notes.tls.take() {
            self.line(flow, packet.time_ns, true, "tls", fields);
        }
    }

    /// Records the end of a flow, and what waits in it.
    pub(super) fn note_end(&mut self, flow: &Flow, reason: Reason) {
        if let Some(notes) = &flow.notes {
            for (time_ns, fields) in &notes.requests {
                self.line(flow, *time_ns, true, "http", fields.clone());
            }
            if let Some((time_ns, fields)) = &notes.tls {
                self.line(flow, *time_ns, true, "tls", fields.clone());
            }
        }
        if self.wanted.flow {
            let fields = eve::flow(flow, reason.name());
            self.line(flow, flow.end_ns, true, "flow", fields);
        }
    }

    fn line(
        &mut self,
        flow: &Flow,
        time_ns: u64,
        to_server: bool,
        kind: &str,
        fields: Map<String, Value>,
    ) {
        self.lines.push(eve::record(flow, time_ns, to_server, kind, fields));
    }
}
