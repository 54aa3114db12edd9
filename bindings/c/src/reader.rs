//! A reader: filter texts in user space, and the frames of a source that they accept. Safe code only.
//!
//! ```text
//! source: file, interface, `fyke serve` ─▶ batch ─▶ texts ─▶ copies of accepted frames ─▶ the program
//!                                                     ▲ edits        └ evaluated again after an edit
//! ```
//!
//! Frames are copied once, out of the memory of the source. For a service, the texts also decide there
//! (`fyke_serve::lower`). Without a source, the program gives the frames.

use crate::filter::refusal;
use crate::handles::{Handled, Table};
use fyke_capture::source::Interface;
use fyke_capture::{
    FrameServer, Next, RingOptions, RingSource, SharedSource, Source, interfaces_available,
    open_file,
};
use fyke_filter::Options;
use fyke_filters::{Change, FilterReader, FilterSet, Inputs, Tags};
use fyke_frame::{Batch, Frame, LinkType, Mask, Meta};
use fyke_serve::Connection;
use fyke_serve::lower::Lower;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Result of `fyke_next`: no frame will come any more.
pub const FYKE_END: i32 = -2;

/// Longest wait for the source without a look at the time and at calls of other threads.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// Beginning of the names of services.
const SERVICE: &str = "serve:";

/// Counts of a reader: seen = accepted + rejected + lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FykeReaderCounts {
    /// Frames of the source so far.
    pub seen: u64,
    /// Frames that a text accepted, given to the program or about to be.
    pub accepted: u64,
    /// Frames that no text accepted.
    pub rejected: u64,
    /// Frames that were lost, because the program or the service was too slow.
    pub lost: u64,
    /// 1 if `seen` and `rejected` lack frames that were not counted: the service was killed after its last report, does
    /// not tell those beyond its policy, or the kernel has not counted them. Else 0.
    pub partial: u64,
}

/// A frame that was copied out of the source.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    start: usize,
    len: usize,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Time of capture, nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// Link type.
    pub link: LinkType,
    /// Interface of the source, from 0.
    pub interface: u32,
    meta: Meta,
    /// Its index in the batch that was evaluated last.
    index: usize,
}

/// Result of waiting for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// This number of frames, or none in time.
    Frames(usize),
    /// None any more.
    End,
}

/// Filter texts in user space, and a source.
pub struct FykeReader {
    source: Option<Box<dyn Source>>,
    filters: FilterSet,
    reader: FilterReader,
    link: LinkType,
    is_file: bool,
    bytes: Vec<u8>,
    kept: Vec<Kept>,
    next: usize,
    /// Frames of the batch that was evaluated last that were given to the program.
    taken: Mask,
    accepted: u64,
    rejected: u64,
    ended: bool,
    /// Reason why the source has failed, for all further calls.
    failed: Option<String>,
}

impl Handled for FykeReader {
    const NAME: &'static str = "reader";

    fn table() -> &'static Table<FykeReader> {
        static TABLE: Table<FykeReader> = Table::new();
        &TABLE
    }
}

type Opened = (Box<dyn Source>, FilterSet, LinkType);

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Connects to a service; the texts decide there, too.
fn service(name: &str, words: &str) -> Result<Opened, String> {
    let peer = Arc::new(Connection::open(name, None).map_err(text)?);
    let buffers = peer.buffers(Vec::new(), 0).map_err(text)?;
    let hello = peer.hello();
    let link = LinkType(hello.link);
    let netmask = (hello.netmask != 0).then_some(hello.netmask);
    let options = Options { link, netmask, live: true, ..Options::default() };
    let filters = FilterSet::over(Inputs { links: vec![link] }, options, Tags::Read);
    let server: Arc<dyn FrameServer> = Arc::<Connection>::clone(&peer);
    let mut source = SharedSource::served(&format!("{SERVICE}{name}"), buffers, server);
    let lower = Arc::new(Lower::default());
    filters.add_superset(Arc::<Lower>::clone(&lower));
    // First, so that the service never stores what it rejects.
    filters.set(words).map_err(text)?;
    source.set_filter(lower).map_err(text)?;
    Ok((Box::new(source), filters, link))
}

/// Opens a file, an interface or a service, with a text.
fn open_source(name: &str, words: &str) -> Result<Opened, String> {
    if let Some(service_name) = name.strip_prefix(SERVICE) {
        return service(service_name, words);
    }
    let is_interface = || {
        let all = interfaces_available().unwrap_or_default();
        name == fyke_capture::ANY || all.iter().any(|one| one.name == name)
    };
    let live = !Path::new(name).exists() && is_interface();
    let source: Box<dyn Source> = if live {
        let options = RingOptions { interface: Some(name.to_owned()), ..RingOptions::default() };
        Box::new(RingSource::open(options).map_err(text)?)
    } else {
        Box::new(open_file(Path::new(name)).map_err(text)?)
    };
    let link = source.interfaces().first().map_or(LinkType::EN10MB, |one| one.link);
    let filters = FilterSet::new(Options { link, live, ..Options::default() });
    filters.set(words).map_err(text)?;
    Ok((source, filters, link))
}

impl FykeReader {
    /// Opens a source with a text.
    pub fn open(source: &str, words: &str) -> Result<FykeReader, String> {
        let (source, filters, link) = open_source(source, words)?;
        let is_file = !filters.reading().0.live;
        Ok(FykeReader { is_file, ..FykeReader::over(Some(source), filters, link) })
    }

    /// A reader without a source, for frames of a link type that the program has.
    pub fn without_source(link: &str, words: &str) -> Result<FykeReader, String> {
        let found = LinkType::from_name(link);
        FykeReader::of_link(found.ok_or_else(|| format!("there is no link type {link:?}"))?, words)
    }

    /// The same by the number of the link type.
    pub fn of_link(link: LinkType, words: &str) -> Result<FykeReader, String> {
        let filters = FilterSet::new(Options { link, ..Options::default() });
        filters.set(words).map_err(text)?;
        Ok(FykeReader::over(None, filters, link))
    }

    fn over(mut source: Option<Box<dyn Source>>, filters: FilterSet, link: LinkType) -> FykeReader {
        if let Some(source) = &mut source {
            source.set_patience(PATIENCE);
        }
        let reader = filters.reader();
        FykeReader {
            source,
            filters,
            reader,
            link,
            is_file: false,
            bytes: Vec::new(),
            kept: Vec::new(),
            next: 0,
            taken: Mask::EMPTY,
            accepted: 0,
            rejected: 0,
            ended: false,
            failed: None,
        }
    }

    /// The link type of the frames; of several, the first.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// The interfaces of the source so far.
    pub fn interfaces(&self) -> &[Interface] {
        self.source.as_ref().map_or(&[], |source| source.interfaces())
    }

    /// True if frames wait: nothing is lost if the program is slow.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Makes several changes of texts as one edit.
    pub fn edit(&self, changes: &[Change<'_>]) -> Result<Vec<Option<u64>>, String> {
        self.filters.edit(changes).map_err(|refused| refusal(changes.len(), refused))
    }

    /// Judges a frame that the program has.
    pub fn matches(&mut self, data: &[u8], wire_len: u32) -> Result<bool, String> {
        if self.source.is_some() {
            return Err("this reader has a source: fyke_next gives its frames".to_owned());
        }
        self.reader.refresh();
        let mut batch = Batch::new();
        let frame = Frame::new(self.link, data);
        // The first of 256.
        let _pushed = batch.push(Frame { wire_len: wire_len.max(frame.wire_len), ..frame });
        let accepted = self.reader.evaluate(&batch, batch.all()).map_err(text)?;
        self.reader.count(accepted);
        match accepted.is_empty() {
            true => self.rejected += 1,
            false => self.accepted += 1,
        }
        Ok(!accepted.is_empty())
    }

    /// Waits until there are frames, at most `patience` and one batch, and gives up to `most` of them to `give`.
    pub fn next(
        &mut self,
        most: usize,
        patience: Duration,
        mut give: impl FnMut(usize, &Kept, &[u8]),
    ) -> Result<Taken, String> {
        let deadline = Instant::now().checked_add(patience);
        let mut is_filled = false;
        loop {
            if self.filters.epoch() != self.reader.epoch() {
                self.settle();
                self.reader.refresh();
                self.judge_again()?;
            }
            let count = most.min(self.kept.len() - self.next);
            if count > 0 {
                for (place, kept) in self.kept[self.next..self.next + count].iter().enumerate() {
                    self.taken.set(kept.index);
                    give(place, kept, &self.bytes[kept.start..kept.start + kept.len]);
                }
                self.next += count;
                return Ok(Taken::Frames(count));
            }
            if self.ended {
                return self.failed.clone().map_or(Ok(Taken::End), Err);
            }
            let is_late = is_filled && deadline.is_some_and(|end| Instant::now() >= end);
            if is_late {
                return Ok(Taken::Frames(0));
            }
            self.fill()?;
            is_filled = true;
        }
    }

    /// Reads a batch, if the source has one.
    fn fill(&mut self) -> Result<(), String> {
        self.settle();
        self.kept.clear();
        self.next = 0;
        self.bytes.clear();
        let Some(source) = &mut self.source else {
            return Err("this reader has no source: fyke_match judges frames".to_owned());
        };
        let batch = match source.next() {
            Ok(Next::Frames(batch, _)) => batch,
            Ok(Next::Idle) => return Ok(()),
            Ok(Next::End) => {
                self.ended = true;
                return Ok(());
            }
            Err(error) => {
                self.ended = true;
                self.failed = Some(error.to_string());
                return Err(error.to_string());
            }
        };
        let accepted = self.reader.evaluate(&batch, batch.all()).map_err(text)?;
        for index in accepted.iter() {
            let frame = &batch.frames()[index];
            let (start, len) = (self.bytes.len(), frame.data.len());
            self.bytes.extend_from_slice(frame.data);
            self.kept.push(Kept {
                start,
                len,
                wire_len: frame.wire_len,
                timestamp_ns: frame.timestamp_ns,
                link: frame.link,
                interface: frame.interface,
                meta: frame.meta,
                index,
            });
        }
        let count = self.kept.len() as u64;
        self.accepted += count;
        self.rejected += batch.len() as u64 - count;
        Ok(())
    }

    /// Evaluates the frames that the program has not got again, after an edit.
    fn judge_again(&mut self) -> Result<(), String> {
        let left: Vec<Kept> = self.kept.split_off(self.next);
        let mut batch = Batch::new();
        for kept in &left {
            // They were one batch before, so there is room.
            let _pushed = batch.push(Frame {
                data: &self.bytes[kept.start..kept.start + kept.len],
                wire_len: kept.wire_len,
                timestamp_ns: kept.timestamp_ns,
                link: kept.link,
                interface: kept.interface,
                meta: kept.meta,
            });
        }
        self.kept.clear();
        self.next = 0;
        let accepted = self.reader.evaluate(&batch, batch.all()).map_err(text)?;
        let stay = left.iter().enumerate().filter(|(index, _)| accepted.get(*index));
        self.kept.extend(stay.map(|(index, kept)| Kept { index, ..*kept }));
        let gone = (left.len() - self.kept.len()) as u64;
        (self.accepted, self.rejected) = (self.accepted - gone, self.rejected + gone);
        Ok(())
    }

    /// Counts the frames that the program got for their texts.
    fn settle(&mut self) {
        if !self.taken.is_empty() {
            self.reader.count(std::mem::take(&mut self.taken));
        }
    }

    /// The counts of this moment.
    pub fn counts(&mut self) -> FykeReaderCounts {
        self.settle();
        let stats = self.source.as_mut().map(|source| source.stats()).unwrap_or_default();
        let (accepted, rejected) = (self.accepted, self.rejected + stats.filtered);
        let lost = stats.dropped + stats.unreadable;
        let partial = stats.filtered_uncounted.into();
        FykeReaderCounts { seen: accepted + rejected + lost, accepted, rejected, lost, partial }
    }

    /// Frames that a text accepted, of those that the program got.
    pub fn accepted_by_text(&mut self, id: u64) -> u64 {
        self.settle();
        let counts = self.filters.counts();
        counts.iter().find(|count| count.id == id).map_or(0, |count| count.accepted)
    }
}
