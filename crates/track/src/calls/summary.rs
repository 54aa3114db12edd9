//! The summary of a call: its ends, its frames, and its RTP streams, as a line of JSON.
//!
//! All texts are our own or numbers, so nothing needs to be quoted.

use super::audio::{Audio, Law};
use crate::Connection;
use crate::rtp::{self, Header, Streams};
use crate::segment::{self, Content};
use fyke_frame::Frame;
use std::fmt::Write;

/// Most ends that are listed.
const END_LIMIT: usize = 64;

/// The summary.
#[derive(Debug)]
pub(crate) struct Summary {
    protocol: String,
    number: u64,
    first_ns: u64,
    pub(crate) last_ns: u64,
    signalling_frames: u64,
    data_frames: u64,
    data_bytes: u64,
    ends: Vec<Connection>,
    /// Ends that are expected or followed now.
    pub(crate) open_ends: u64,
    streams: Streams,
}

impl Summary {
    pub(crate) fn new(protocol: &str, number: u64, now_ns: u64) -> Summary {
        Summary {
            protocol: protocol.to_owned(),
            number,
            first_ns: now_ns,
            last_ns: now_ns,
            signalling_frames: 0,
            data_frames: 0,
            data_bytes: 0,
            ends: Vec::new(),
            open_ends: 0,
            streams: Streams::default(),
        }
    }

    /// Takes an end that is announced.
    pub(crate) fn open(&mut self, connection: &Connection) {
        self.open_ends += 1;
        if self.ends.len() < END_LIMIT {
            self.ends.push(*connection);
        }
    }

    /// Takes a frame; `label` is that of its end, `None` for signalling. Returns its audio if that can be decoded.
    pub(crate) fn frame<'a>(
        &mut self,
        frame: &Frame<'a>,
        label: Option<&str>,
    ) -> Option<Audio<'a>> {
        self.last_ns = self.last_ns.max(frame.timestamp_ns);
        let Some(label) = label else {
            self.signalling_frames += 1;
            return None;
        };
        self.data_frames += 1;
        self.data_bytes += u64::from(frame.wire_len);
        let is_clear = label.starts_with("RTP");
        let Content::Udp(datagram) = segment::read(frame) else { return None };
        if !is_clear && !label.starts_with("SRTP") {
            return None;
        }
        let (source, destination) = (datagram.source, datagram.destination);
        let now_ns = frame.timestamp_ns;
        let stream = self.streams.packet(source, destination, datagram.payload, now_ns)?;
        let header = Header::of(datagram.payload).filter(|_| is_clear)?;
        let (law, bytes) = (Law::of(header.payload_type)?, rtp::content(datagram.payload)?);
        Some(Audio { stream, time: header.time, law, bytes })
    }

    /// Appends the line; `parts` is the number of its files.
    pub(crate) fn write(&self, parts: u32, out: &mut Vec<u8>) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.format(parts, &mut text);
        out.extend_from_slice(text.as_bytes());
    }

    fn format(&self, parts: u32, text: &mut String) -> std::fmt::Result {
        let Summary { protocol, number, signalling_frames, data_frames, data_bytes, .. } = self;
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        write!(
            text,
            "{{\"protocol\":\"{protocol}\",\"call\":{number},\"files\":{parts},\"start\":{},\"end\":{},\
             \"signalling_frames\":{signalling_frames},\"data_frames\":{data_frames},\
             \"data_bytes\":{data_bytes},\"ends\":[",
            seconds(self.first_ns),
            seconds(self.last_ns),
        )?;
        for (at, end) in self.ends.iter().enumerate() {
            let Connection { server, port, label, cause, announced_ns, .. } = end;
            let comma = if at > 0 { "," } else { "" };
            write!(
                text,
                "{comma}{{\"address\":\"{server}\",\"port\":{port},\"label\":\"{label}\",\
                 \"why\":\"{}\",\"since\":{}}}",
                cause.name(),
                seconds(*announced_ns),
            )?;
        }
        text.push_str("],\"streams\":[");
        for (at, stream) in self.streams.list.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let codec = stream.codec_name().map_or("null".to_owned(), |name| format!("\"{name}\""));
            let jitter = stream.jitter_ms().map_or("null".to_owned(), |ms| format!("{ms:.3}"));
            write!(
                text,
                "{comma}{{\"from\":\"{}\",\"to\":\"{}\",\"ssrc\":{},\"payload_type\":{},\"codec\":{codec},\
                 \"packets\":{},\"lost\":{},\"jitter_ms\":{jitter}}}",
                stream.source,
                stream.destination,
                stream.ssrc,
                stream.payload_type,
                stream.packets,
                stream.lost(),
            )?;
        }
        writeln!(text, "],\"packets_of_more_streams\":{}}}", self.streams.over)
    }
}
