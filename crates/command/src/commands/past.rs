//! Questions about frames of the past: which of them a filter would accept that is not in force, and which primitives
//! rejected them.
//!
//! The filter node keeps some of the frames that arrive at it ([`fyke_graph::kept`]). They are evaluated in the
//! client's time, outside of the packet loop.

use fyke_capture::{Format, Interface, SinkStats, WriteOptions};
use fyke_control::{
    FileId, Frames as KeptFrames, KeptFrame, Past, Reason, Rejected, RejectedFrame, Request,
    Response, SaveFormat, ShownFrame, Tried, Verdict,
};
use fyke_filter::Predicate;
use fyke_filters::{FilterError, FilterReader, FilterSet};
use fyke_frame::walk::walk;
use fyke_frame::{Batch, Frame, LinkType, OutOfBounds};
use fyke_graph::GraphHandle;
use fyke_graph::kept::{Chunk, Kept};
use fyke_print::{PrintOptions, Printer, TimeStyle};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Frames that are evaluated unless another number is given.
const TRIED: u64 = 4_096;
/// Rejected frames that are explained unless another number is given.
const EXPLAINED: u64 = 5;
/// Frames that an answer shows.
const SHOWN: usize = 5;
/// Most bytes of a frame that an answer has.
const SHOWN_BYTES: usize = 2_048;
/// Most filters that are explained, and most bytes of their texts.
const MAX_FILTERS: usize = 8;
const MAX_TEXT_BYTES: usize = 256 << 10;

/// The filters of a run and the frames that arrived at them.
pub struct Frames<'a> {
    pub filters: &'a FilterSet,
    pub kept: Option<&'a Kept>,
    /// Frames that have been rejected before the filters, if frames are at the moment.
    pub rejected: Option<RejectedBefore>,
}

/// Frames that the kernel or a service has rejected before the filters of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectedBefore {
    pub frames: u64,
    /// The service, such as `serve:eth0` or `the graph in serve:eth0`; `None` for the kernel.
    pub service: Option<String>,
}

/// Refusal of a graph with several filters, or none.
const NO_FILTER: &str = "try and why are for graphs with one filter or one demultiplexer; name its frames with \
                         `fyke dump` otherwise";

/// Begin of the name of a service in [`RejectedBefore`] in which a graph rejects frames, in place of texts.
pub const GRAPH_IN: &str = "the graph in ";

/// Begin of the names of interfaces that are services.
const SERVICE: &str = "serve:";

/// The frames that the kernel or a service has rejected before a graph; `None` if neither rejects any at the moment.
pub fn rejected_before(handle: &GraphHandle) -> Option<RejectedBefore> {
    let view = handle.view();
    let by_graph = view.sources.iter().any(|source| source.stats.by_graph);
    let placements = handle.placements();
    let filters = placements.iter().any(|placement| placement.why_not_lower().is_none());
    if !filters && !by_graph {
        return None;
    }
    let mut interfaces = view.sources.iter().flat_map(|source| &source.interfaces);
    let is_service = |name: &str| name.starts_with(SERVICE);
    let first = view.sources.iter().flat_map(|source| &source.interfaces).next();
    let all = interfaces.all(|interface| is_service(&interface.name));
    Some(RejectedBefore {
        frames: view.sources.iter().map(|source| source.stats.filtered).sum(),
        service: first.filter(|_| all).map(|interface| match by_graph {
            true => format!("{GRAPH_IN}{}", interface.name),
            false => interface.name.clone(),
        }),
    })
}

/// Answers a question about the frames of a graph with one filter or demultiplexer. `ids` are the numbers of its texts
/// for clients, in their order.
pub fn of_graph(
    handle: &GraphHandle,
    kept: Option<&Kept>,
    ids: &[u64],
    request: Request,
) -> Response {
    let Some(filters) = handle.only_filter() else { return error(NO_FILTER) };
    let frames = Frames { filters: &filters, kept, rejected: rejected_before(handle) };
    let mut response = match request {
        Request::Try { text, last } => frames.tried(&text, last),
        Request::Why { last } => frames.why(last),
        Request::Frames { last, verdict } => frames.shown(last, verdict),
        _ => return error(NOT_ALL_KEPT),
    };
    let reasons: Vec<_> = match &mut response {
        Response::Rejected(it) => it.frames.iter_mut().flat_map(|one| &mut one.reasons).collect(),
        Response::Frames(it) => it.frames.iter_mut().flat_map(|one| &mut one.reasons).collect(),
        _ => Vec::new(),
    };
    for reason in reasons {
        let at = usize::try_from(reason.filter.saturating_sub(1)).unwrap_or(usize::MAX);
        reason.filter = ids.get(at).copied().unwrap_or(reason.filter);
    }
    response
}

/// Refusal if no frames are kept.
const NOTHING_KEPT: &str = "this fyke keeps no frames";

impl Frames<'_> {
    /// Evaluates the last frames under a filter that is not in force.
    pub fn tried(&self, text: &str, last: Option<u64>) -> Response {
        let Some(kept) = self.kept else { return error(NOTHING_KEPT) };
        let last = usize::try_from(last.unwrap_or(TRIED)).unwrap_or(usize::MAX);
        let chunks = kept.last(last);
        match self.evaluate(&chunks, last, text) {
            Ok(tried) => Response::Tried(tried),
            Err(refused) => error(&refused.to_string()),
        }
    }

    fn evaluate(
        &self,
        chunks: &[Arc<Chunk>],
        last: usize,
        text: &str,
    ) -> Result<Tried, FilterError> {
        let candidate = self.filters.alike();
        candidate.set(text)?;
        let mut candidate = Under::new(candidate.reader());
        let mut in_force = Under::new(self.filters.past_reader()?);
        let mut tried = Tried { past: self.past(chunks, last), ..Tried::default() };
        let (mut new, mut known) = (Vec::new(), Vec::new());
        each_batch(chunks, last, |batch| {
            let (would, does) = (candidate.accepts(batch)?, in_force.accepts(batch)?);
            for (index, frame) in batch.frames().iter().enumerate() {
                tried.in_force += u64::from(does.get(index));
                if !would.get(index) {
                    continue;
                }
                tried.accepted += 1;
                let list = if does.get(index) { &mut known } else { &mut new };
                tried.new += u64::from(!does.get(index));
                if list.len() < SHOWN {
                    list.push(shown(frame));
                }
            }
            Ok(())
        })?;
        tried.first = if new.is_empty() { known } else { new };
        Ok(tried)
    }

    /// Explains the last rejected frames.
    pub fn why(&self, last: Option<u64>) -> Response {
        let found = self.latest(last, Some(Verdict::Rejected), |reasons, frame, _| RejectedFrame {
            frame: shown(frame),
            reasons: reasons.of(frame),
        });
        match found {
            Ok((past, frames, more_filters)) => {
                Response::Rejected(Rejected { past, frames, more_filters })
            }
            Err(refused) => *refused,
        }
    }

    /// The last frames with their bytes; rejected ones are explained.
    pub fn shown(&self, last: Option<u64>, verdict: Option<Verdict>) -> Response {
        let found = self.latest(last, verdict, |reasons, frame, verdict| KeptFrame {
            frame: shown(frame),
            verdict,
            bytes: digits(&frame.data[..frame.data.len().min(SHOWN_BYTES)]),
            captured: frame.data.len() as u64,
            header_len: header_len(frame) as u64,
            reasons: match verdict {
                Verdict::Rejected => reasons.of(frame),
                Verdict::Accepted => Vec::new(),
            },
        });
        match found {
            Ok((past, frames, more_filters)) => {
                Response::Frames(KeptFrames { past, frames, more_filters })
            }
            Err(refused) => *refused,
        }
    }

    /// The last frames with a verdict, made into entries of an answer, oldest first; with the frames that were
    /// evaluated, and the number of filters that are not explained.
    fn latest<T>(
        &self,
        last: Option<u64>,
        verdict: Option<Verdict>,
        mut entry: impl FnMut(&mut Reasons<'_>, &Frame<'_>, Verdict) -> T,
    ) -> Result<(Past, Vec<T>, u64), Box<Response>> {
        let refused = |message: &str| Box::new(error(message));
        let kept = self.kept.ok_or_else(|| refused(NOTHING_KEPT))?;
        let wanted = usize::try_from(last.unwrap_or(EXPLAINED)).unwrap_or(usize::MAX);
        let chunks = kept.last(usize::MAX);
        let found = self.places(&chunks, wanted, verdict);
        let Places { list, first } = found.map_err(|error| refused(&error.to_string()))?;
        let skipped = list.len().saturating_sub(wanted);
        let mut reasons = Reasons { filters: self.filters, of_link: HashMap::new(), more: 0 };
        let entries = list[skipped..].iter().filter_map(|&(chunk, index, verdict)| {
            let frame = chunks[chunk].frame(index)?;
            Some(entry(&mut reasons, &frame, verdict))
        });
        let entries = entries.collect();
        Ok((self.past(&chunks[first..], usize::MAX), entries, reasons.more as u64))
    }

    /// The places of the last frames with a verdict, at least the wanted number if there are.
    fn places(
        &self,
        chunks: &[Arc<Chunk>],
        wanted: usize,
        verdict: Option<Verdict>,
    ) -> Result<Places, FilterError> {
        let mut in_force = Under::new(self.filters.past_reader()?);
        let mut places = Vec::new();
        // From the newest chunk back, until there are enough.
        let mut first = chunks.len();
        while places.len() < wanted && first > 0 {
            first -= 1;
            let mut found = Vec::new();
            let mut at = 0;
            each_batch(std::slice::from_ref(&chunks[first]), usize::MAX, |batch| {
                let accepted = in_force.accepts(batch)?;
                let of = |index| match accepted.get(index) {
                    true => Verdict::Accepted,
                    false => Verdict::Rejected,
                };
                let all = (0..batch.len()).map(|index| (first, at + index, of(index)));
                found.extend(all.filter(|one| verdict.is_none_or(|verdict| verdict == one.2)));
                at += batch.len();
                Ok(())
            })?;
            found.append(&mut places);
            places = found;
        }
        Ok(Places { list: places, first })
    }

    /// Writes the kept frames to an open file.
    pub fn save(&self, file: File, wanted: &Wanted) -> Response {
        let all = |kept: &&Kept| kept.limits().per_second == 0;
        let Some(kept) = self.kept.filter(all) else { return error(NOT_ALL_KEPT) };
        let kind = file.metadata().ok().filter(Metadata::is_file);
        let Some(kind) = kind else { return error("frames are saved to regular files only") };
        // The new file is open here, too, once.
        if is_open(id(&kind), 1) || wanted.replaces.is_some_and(|old| is_open(old, 0)) {
            return error("this fyke has the file open; save the frames to another one");
        }
        let reader = wanted.text.as_ref().map(|text| {
            let candidate = self.filters.alike();
            candidate.set(text).map(|_| Under::new(candidate.reader()))
        });
        let mut reader = match reader.transpose() {
            Ok(reader) => reader,
            Err(refused) => return error(&refused.to_string()),
        };
        let chunks = kept.last(usize::MAX);
        let past = self.past(&chunks, usize::MAX);
        match write(chunks, file, wanted, reader.as_mut()) {
            Ok(SinkStats { frames, bytes, .. }) => {
                Response::Saved { frames, bytes, past, failed: None }
            }
            Err(failed) => {
                Response::Saved { frames: 0, bytes: 0, past, failed: Some(failed.to_string()) }
            }
        }
    }

    fn past(&self, chunks: &[Arc<Chunk>], last: usize) -> Past {
        let kept: usize = chunks.iter().map(|chunk| chunk.len()).sum();
        let arrived: u64 = chunks.iter().map(|chunk| chunk.arrived()).sum();
        let frames = kept.min(last) as u64;
        let skipped = kept - kept.min(last);
        // Of the first chunk only the newest frames are evaluated.
        let arrived = arrived.saturating_sub(skipped as u64).max(frames);
        let mut times = (u64::MAX, 0);
        let _infallible = each_batch(chunks, last, |batch| {
            for frame in batch.frames() {
                times = (times.0.min(frame.timestamp_ns), times.1.max(frame.timestamp_ns));
            }
            Ok(())
        });
        Past {
            frames,
            arrived,
            span_ms: times.1.saturating_sub(times.0) / 1_000_000,
            rejected_in_kernel: self.rejected.as_ref().map(|rejected| rejected.frames),
            rejected_by: self.rejected.as_ref().and_then(|rejected| rejected.service.clone()),
        }
    }
}

/// Places of frames in chunks.
struct Places {
    /// Chunk, index in it, and verdict of each frame, oldest first.
    list: Vec<(usize, usize, Verdict)>,
    /// The first chunk that was evaluated.
    first: usize,
}

/// The frames that a client wants, and their format.
pub struct Wanted {
    pub last_ms: Option<u64>,
    pub text: Option<String>,
    pub format: SaveFormat,
    /// The file that the new one replaces.
    pub replaces: Option<FileId>,
    /// The interfaces of the capture, for a file without frames.
    pub interfaces: Vec<Interface>,
    /// True if the last milliseconds end now, false if they end with the last frame.
    pub live: bool,
}

/// Most open files that are looked at. The system gives the lowest free number.
const MAX_OPEN: u64 = 4_096;

/// Refusal if only some frames are kept.
const NOT_ALL_KEPT: &str =
    "this fyke keeps only a sample of its frames; start it with `fyke dump --keep 30s`";

fn id(kind: &Metadata) -> FileId {
    FileId { device: kind.dev(), inode: kind.ino() }
}

/// True if this file is open in this process more than `besides` times. Landlock forbids the sandbox to list the open
/// files, but not to look at each.
fn is_open(wanted: FileId, besides: usize) -> bool {
    let limit = getrlimit(Resource::Nofile).current.map_or(MAX_OPEN, |limit| limit.min(MAX_OPEN));
    let files = (0..limit).filter(|number| {
        let open = std::fs::metadata(format!("/proc/self/fd/{number}"));
        open.is_ok_and(|open| id(&open) == wanted)
    });
    files.take(besides + 1).count() > besides
}

/// Writes frames; each chunk is freed after it has been written, unless it is still kept.
fn write(
    chunks: Vec<Arc<Chunk>>,
    file: File,
    wanted: &Wanted,
    mut reader: Option<&mut Under>,
) -> anyhow::Result<SinkStats> {
    let newest = chunks.iter().map(|chunk| chunk.newest_ns()).max().unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let end = if wanted.live { now } else { newest };
    let last_ns = wanted.last_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000));
    let begin = end.saturating_sub(last_ns);
    file.set_len(0)?;
    let format = match wanted.format {
        SaveFormat::Pcap => Format::Pcap,
        SaveFormat::Pcapng => Format::Pcapng,
    };
    // A file without frames is complete only with the interface. One of pcap has one link type, that of its frames, so
    // it begins with the interface only if there is no other.
    let mut interfaces = wanted.interfaces.clone();
    interfaces.truncate(usize::from(format == Format::Pcapng || interfaces.len() == 1));
    let options = WriteOptions { format: Some(format), interfaces, ..WriteOptions::default() };
    let mut sink = fyke_capture::write_to(file, Path::new(SAVED_NAME), options)?;
    for chunk in chunks {
        let mut from = 0;
        while chunk.newest_ns() >= begin && from < chunk.len() {
            let batch = chunk.batch(from);
            if batch.is_empty() {
                break;
            }
            from += batch.len();
            let accepted = match &mut reader {
                Some(reader) => reader.accepts(&batch)?,
                None => batch.all(),
            };
            for index in accepted.iter() {
                let frame = &batch.frames()[index];
                let interface = chunk.interfaces().get(frame.interface as usize);
                if let Some(interface) = interface.filter(|_| frame.timestamp_ns >= begin) {
                    sink.write(interface, frame)?;
                }
            }
        }
    }
    Ok(sink.finish()?)
}

/// The name of the file that is saved, for errors. Only the client knows its name, and adds it.
const SAVED_NAME: &str = "the file";

fn error(message: &str) -> Response {
    Response::Error { message: message.to_owned() }
}

/// Frames under the filters of one reader.
struct Under {
    reader: FilterReader,
}

impl Under {
    fn new(mut reader: FilterReader) -> Under {
        reader.refresh();
        Under { reader }
    }

    fn accepts(&mut self, batch: &Batch<'_>) -> Result<fyke_frame::Mask, FilterError> {
        self.reader.evaluate(batch, batch.all())
    }
}

/// Calls `work` with the last frames of chunks, in batches of one link type.
fn each_batch(
    chunks: &[Arc<Chunk>],
    last: usize,
    mut work: impl FnMut(&Batch<'_>) -> Result<(), FilterError>,
) -> Result<(), FilterError> {
    let kept: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let mut skipped = kept.saturating_sub(last);
    for chunk in chunks {
        let mut from = skipped.min(chunk.len());
        skipped -= from;
        while from < chunk.len() {
            let batch = chunk.batch(from);
            if batch.is_empty() {
                break;
            }
            from += batch.len();
            work(&batch)?;
        }
    }
    Ok(())
}

/// The line of a frame. It is printed alone, so TCP's numbers are as they are in the packet.
fn shown(frame: &Frame<'_>) -> ShownFrame {
    let options =
        PrintOptions { time: TimeStyle::None, absolute_sequence: true, ..PrintOptions::default() };
    let mut line = String::new();
    Printer::new(options).line(frame, &mut line);
    ShownFrame {
        timestamp_ns: frame.timestamp_ns,
        link: frame.link.to_string(),
        wire_len: frame.wire_len,
        line,
    }
}

/// Bytes as hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// Number of bytes of the headers that are known; the payload follows.
fn header_len(frame: &Frame<'_>) -> usize {
    let end = walk(frame).iter().map(|layer| layer.header_end()).max();
    end.unwrap_or(0).min(frame.data.len())
}

/// The filters in force, compiled for each link type that occurs.
struct Reasons<'a> {
    filters: &'a FilterSet,
    of_link: HashMap<LinkType, Vec<(u64, Option<Predicate>)>>,
    /// Number of filters that are not explained.
    more: usize,
}

impl Reasons<'_> {
    fn of(&mut self, frame: &Frame<'_>) -> Vec<Reason> {
        let more = &mut self.more;
        let compiled = self.of_link.entry(frame.link).or_insert_with(|| {
            let (compiled, others) =
                self.filters.predicates(frame.link, MAX_FILTERS, MAX_TEXT_BYTES);
            *more = others;
            compiled
        });
        let mut batch = Batch::new();
        // One frame fits into an empty batch.
        let _fits = batch.push(*frame);
        self.filters.as_evaluated(&batch, |batch| {
            let frame = batch.frames().first();
            let compiled = compiled.iter();
            compiled
                .filter_map(|(id, predicate)| Some(reason(*id, predicate.as_ref(), frame?)))
                .collect()
        })
    }
}

/// The last primitive that was evaluated has decided.
fn reason(filter: u64, predicate: Option<&Predicate>, frame: &Frame<'_>) -> Reason {
    let Some(predicate) = predicate else {
        let result = format!("does not fit frames of link type {}", frame.link);
        return Reason { filter, decided: None, result, before: 0 };
    };
    let (mut evaluated, mut last) = (0_u64, None);
    let verdict = predicate.trace(frame, &mut |primitive, answer| {
        evaluated += 1;
        last = Some((std::ptr::from_ref(primitive), answer));
    });
    let decided = last.and_then(|(decided, answer)| {
        let mut primitives = predicate.root().primitives();
        let decided = primitives.find(|one| std::ptr::from_ref(*one) == decided)?;
        Some((decided.to_string(), answer))
    });
    let result = match (verdict, decided.as_ref().map(|(_, answer)| answer)) {
        (Ok(true), _) => "accepts the frame now",
        (_, Some(Ok(true))) => "yes",
        (_, Some(Ok(false))) => "no",
        (_, Some(Err(OutOfBounds))) => "cannot be read",
        (_, None) => "rejects every frame",
    };
    Reason {
        filter,
        decided: decided.map(|(text, _)| text),
        result: result.to_owned(),
        before: evaluated.saturating_sub(1),
    }
}
