//! The graph class `calls`: a capture file for each call, with its signalling, and a summary of each as a line of JSON.
//!
//! It follows the frames that reach it with trackers of its own, so it comes after the node `track`. A call ends when
//! it expects nothing and has been silent for a minute. Passes the frames that it has written; without files, every
//! frame.
//!
//! Parameters: `expression`, the protocols, as for `track`; `port`; `files`, the pattern of the names, with `{call}`
//! and `{protocol}`: numbers of our own and names of protocols, never bytes of packets; `summary`, the file of the
//! lines; `wav`, the pattern of the names of audio files; `open`, most files open at a time: if there are more calls,
//! the file of the call that was silent longest is closed, and a later frame of it begins `…-part2`; `most`, most files
//! in all; `size`, most bytes of a call. Frames beyond `most` and `size` count as lost. Cost: the trackers, and a hash
//! look-up per frame.

mod audio;
mod files;
mod summary;

use crate::calls::audio::CallAudio;
use crate::calls::files::{CallFiles, Pattern};
use crate::calls::summary::Summary;
use crate::class::ports;
use crate::registry;
use crate::whole::Whole;
use crate::{Event, Limits, Several, Tracker, TrackerKind};
use fyke_capture::Output;
use fyke_flow::Ageing;
use fyke_frame::Mask;
use fyke_graph::node::{
    Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Silence after which a call without expectations ends, in nanoseconds.
const SILENT_NS: u64 = 60_000_000_000;
/// Silence after which any call ends.
const IDLE_NS: u64 = 3_600_000_000_000;
/// Bytes of lines from which they are written at once.
const BUFFER: usize = 64 << 10;

struct CallNode {
    tracker: Several,
    whole: Whole,
    live: bool,
    files: Option<CallFiles>,
    audio: Option<CallAudio>,
    output: Option<Output>,
    calls: Ageing<u64, Summary>,
    events: Vec<Event>,
    ended: u64,
    of_no_call: u64,
}

impl CallNode {
    /// Records the events of the tracker in the calls that they belong to.
    fn record_events(&mut self) {
        for event in std::mem::take(&mut self.events) {
            let (call, opened) = match &event {
                Event::Open(connection) => (connection.call, Some(connection)),
                Event::Close(closed) => (closed.connection.call, None),
            };
            if let Some(summary) = self.calls.peek_mut(&call) {
                match opened {
                    Some(connection) => summary.open(connection),
                    None => summary.open_ends = summary.open_ends.saturating_sub(1),
                }
            }
        }
    }

    fn enter(&mut self, call: u64, now_ns: u64) -> Result<(), NodeError> {
        if self.calls.peek(&call).is_some() {
            return Ok(());
        }
        if self.calls.is_full()
            && let Some((oldest, summary)) = self.calls.pop_oldest()
        {
            self.end(oldest, &summary)?;
        }
        let Some((protocol, number)) = self.tracker.protocol_of(call) else { return Ok(()) };
        let summary = Summary::new(protocol, number, now_ns);
        self.calls.insert(call, summary, now_ns.saturating_add(SILENT_NS));
        Ok(())
    }

    fn end(&mut self, call: u64, summary: &Summary) -> Result<(), NodeError> {
        self.ended += 1;
        let mut part = 1;
        if let Some(files) = &mut self.files {
            part = files.end(call).map_err(NodeError::new)?;
        }
        if let Some(audio) = &mut self.audio {
            audio.end(call).map_err(NodeError::new)?;
        }
        if let Some(output) = &mut self.output {
            summary.write(part, output.buffer());
            output.mark(true);
            if output.waiting() > BUFFER {
                output.drain(None).map_err(NodeError::new)?;
            }
        }
        Ok(())
    }

    /// Ends the calls that are over.
    fn expire(&mut self, now_ns: u64) -> Result<(), NodeError> {
        while let Some((call, summary)) = self.calls.pop_due(now_ns) {
            let waits = summary.open_ends > 0;
            let last = summary.last_ns.saturating_add(if waits { IDLE_NS } else { SILENT_NS });
            match last > now_ns && now_ns != u64::MAX {
                true => {
                    self.calls.insert(call, summary, last.min(now_ns.saturating_add(SILENT_NS)))
                }
                false => self.end(call, &summary)?,
            }
        }
        Ok(())
    }
}

impl Node for CallNode {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let (mut written, mut lost) = (Mask::EMPTY, Mask::EMPTY);
        self.tracker.load(&mut arrival.frames().map(|(_, frame)| frame));
        for (index, frame) in arrival.frames() {
            self.expire(frame.timestamp_ns)?;
            let part = self.whole.frame(&mut self.tracker, frame, &mut self.events).call;
            if let Some(part) = part {
                self.enter(part.call, frame.timestamp_ns)?;
            }
            self.record_events();
            let Some(part) = part else {
                self.of_no_call += 1;
                continue;
            };
            let now_ns = frame.timestamp_ns;
            let Some(name) = self.tracker.protocol_of(part.call) else { continue };
            if let Some(summary) = self.calls.touch(&part.call, now_ns.saturating_add(SILENT_NS))
                && let Some(sound) = summary.frame(frame, part.label)
                && let Some(audio) = &mut self.audio
            {
                audio.write(name, part.call, &sound, now_ns).map_err(NodeError::new)?;
            }
            let Some(files) = &mut self.files else { continue };
            let interface = arrival.interface(frame);
            match files.write(name, part.call, interface, frame) {
                Ok(true) => written.set(index),
                Ok(false) => lost.set(index),
                Err(error) => return Err(NodeError::new(error)),
            }
        }
        if self.files.is_none() {
            return Ok(arrival.mask());
        }
        arrival.lose(lost);
        Ok(written)
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        if self.live {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            self.tracker.expire(now_ns, &mut self.events);
            self.record_events();
            self.expire(now_ns)?;
        }
        if let Some(files) = &mut self.files {
            files.flush().map_err(NodeError::new)?;
        }
        match &mut self.output {
            Some(output) => output.drain(Some(Duration::ZERO)).map(drop).map_err(NodeError::new),
            None => Ok(()),
        }
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.tracker.expire(u64::MAX, &mut self.events);
        self.record_events();
        self.expire(u64::MAX)?;
        match &mut self.output {
            Some(output) => output.drain(None).map(drop).map_err(NodeError::new),
            None => Ok(()),
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let (files, over) = self.files.as_ref().map_or((0, 0), |files| (files.count, files.over));
        let audio = self.audio.as_ref().map_or((0, 0), |audio| (audio.count, audio.over));
        vec![
            Counter::count("calls", self.ended + self.calls.len() as u64),
            Counter::count("files", files),
            Counter::count("over_limit", over),
            Counter::count("of_no_call", self.of_no_call),
            Counter::count("audio_files", audio.0),
            Counter::count("audio_over_limit", audio.1),
        ]
    }
}

fn kinds(settings: &Settings) -> Result<Vec<&'static TrackerKind>, MakeError> {
    let kinds = registry::parse(settings.text("expression").unwrap_or(registry::TRACKERS[0].name));
    kinds.map_err(|message| MakeError::new("expression", message))
}

/// The trackers of a node.
pub(crate) fn tracker(settings: &Settings) -> Result<Several, MakeError> {
    let kinds = kinds(settings)?;
    let ports = settings.text("port").map(ports).transpose();
    let ports = ports.map_err(|message| MakeError::new("port", message))?;
    if ports.is_some() && kinds.len() > 1 {
        return Err(MakeError::new(
            "port",
            "control ports are for one protocol; several are given",
        ));
    }
    Ok(registry::make(&kinds, ports.as_deref(), Limits::default()))
}

/// The pattern of a parameter, if it is given.
fn pattern(settings: &Settings, name: &'static str) -> Result<Option<Pattern>, MakeError> {
    let Some(text) = settings.text(name) else { return Ok(None) };
    let pattern = Pattern::of(text, kinds(settings)?.len() > 1);
    pattern.map(Some).map_err(|message| MakeError::new(name, message))
}

fn limits(settings: &Settings) -> Result<files::Limits, MakeError> {
    Ok(files::Limits {
        open: settings.number_or("open", 1..=4_096, 256)? as usize,
        most: settings.number_or("most", 1..=u64::MAX, 100_000)?,
        bytes: settings.number_or("size", 1..=1_000_000, 1_000)? * 1_000_000,
        snaplen: settings.number_or("snaplen", 1..=262_144, 262_144)? as u32,
        nanoseconds: settings.flag("nano")?,
    })
}

fn check(settings: &Settings) -> Result<(), MakeError> {
    settings.flag("live")?;
    tracker(settings)?;
    pattern(settings, "files")?;
    pattern(settings, "wav")?;
    limits(settings).map(drop)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let limits = limits(settings)?;
    let output = settings.text("summary").map(|file| {
        let output = fyke_capture::create_output(Path::new(file), fyke_capture::PRIVATE);
        output.map_err(|error| MakeError::refused("summary", error))
    });
    Ok(Box::new(CallNode {
        tracker: tracker(settings)?,
        whole: Whole::new(),
        live: settings.flag("live")?,
        files: pattern(settings, "files")?.map(|pattern| CallFiles::new(pattern, limits)),
        audio: pattern(settings, "wav")?.map(|pattern| CallAudio::new(pattern, limits)),
        output: output.transpose()?,
        calls: Ageing::new(Limits::default().control_connections),
        events: Vec::new(),
        ended: 0,
        of_no_call: 0,
    }))
}

/// The class, for registration.
pub const CALLS: Class = Class {
    name: "calls",
    aliases: &[],
    summary: "writes a file and a summary for each call of the protocols `expression`",
    parameters: &[
        Parameter { name: "expression", summary: registry::CHOICES },
        Parameter { name: "port", summary: "control ports, N[,N] (those of the protocol)" },
        Parameter { name: "live", summary: "y: calls end even while no frame arrives" },
        Parameter { name: "files", summary: "names of the files, with {call} and {protocol}" },
        Parameter {
            name: "wav",
            summary: "names of audio files (G.711), with {call} and {protocol}",
        },
        Parameter { name: "summary", summary: "file for a line of JSON per call; - = stdout" },
        Parameter { name: "open", summary: "most files open at a time (256)" },
        Parameter { name: "most", summary: "most files (100000)" },
        Parameter { name: "size", summary: "most million bytes of a call (1000)" },
        Parameter { name: "snaplen", summary: "most bytes of a frame (262144)" },
        Parameter { name: "nano", summary: "y: .pcap with nanoseconds, not microseconds" },
    ],
    ordered: |_| true,
    lasting: true,
    opens: |_| Opens::File,
    check: Some(check),
    make,
    ..Class::NODE
};
