//! A filter that is edited from any thread while others evaluate it: a set of texts for one link type.

use super::scratch::Single;
use super::{Error, Filter};
use fyke_filters::{Change, FilterCount, FilterReader, FilterSet};
use fyke_frame::{Batch, Frame, LinkType, Mask};

/// Filter texts in force, edited while frames are evaluated. A frame is accepted if one of the texts accepts it.
///
/// A handle: clones share the texts, on any threads. Each thread that evaluates frames has a [`LiveReader`] of its
/// own. An edit costs O(change), not O(filter), and readers never wait for one: it is compiled before any lock is
/// taken. When an edit has returned, every call of a reader that begins afterwards sees it. Each frame is evaluated
/// under one state of the texts, and counters of texts that stay continue.
///
/// ```
/// use fyke::LiveFilter;
///
/// let filter = LiveFilter::compile("tcp port 80")?;
/// let mut reader = filter.reader();
/// let handle = filter.clone(); // for another thread
/// let dns = handle.add("udp port 53")?; // 2: the first text has number 1
/// assert!(!reader.matches(&[0; 60]));
/// assert_eq!(dns, 2);
/// handle.remove(dns)?;
/// assert_eq!(filter.counts().len(), 1);
/// # Ok::<(), fyke::Error>(())
/// ```
///
/// The first text has number 1, and each later one the next number. An empty text accepts every frame: with
/// [`add`](Self::add) it is a text like others, and [`set`](Self::set) removes all texts then.
///
/// Frames of several link types, and the kernel, are the business of [`filters`](crate::filters).
#[derive(Debug, Clone)]
pub struct LiveFilter {
    filters: FilterSet,
}

impl LiveFilter {
    /// Compiles the first text, for Ethernet frames of a capture file as libpcap reads it; [`Filter::builder`] and
    /// [`compile_live`](crate::FilterBuilder::compile_live) for all others. An empty text leaves the set empty, which
    /// accepts every frame.
    ///
    /// # Errors
    /// [`Error::Text`] with the position and a hint if the text is not a filter.
    pub fn compile(text: &str) -> Result<LiveFilter, Error> {
        Filter::builder().compile_live(text)
    }

    pub(super) fn of(filters: FilterSet) -> LiveFilter {
        LiveFilter { filters }
    }

    /// A reader for one thread. Costs some microseconds; make it once.
    pub fn reader(&self) -> LiveReader {
        let (reader, link) = (self.filters.reader(), self.link());
        LiveReader { reader, link, single: Single::default() }
    }

    /// Adds a text: frames that it accepts are accepted too. Returns its number, which is never used again.
    ///
    /// # Errors
    /// [`Error::Text`] if the text is not a filter. Nothing has changed then.
    pub fn add(&self, text: &str) -> Result<u64, Error> {
        Ok(self.filters.add(text)?)
    }

    /// Replaces all texts by one. An empty text removes all, so that every frame is accepted. Returns its number.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn set(&self, text: &str) -> Result<Option<u64>, Error> {
        Ok(self.filters.set(text)?)
    }

    /// Removes a text, but not the last one: without any text every frame is accepted, and [`set`](Self::set) with an
    /// empty text does that.
    ///
    /// # Errors
    /// [`Error::Filters`] if there is no text of this number, or it is the last one.
    pub fn remove(&self, id: u64) -> Result<(), Error> {
        Ok(self.filters.remove(id)?)
    }

    /// Applies several changes as one, all of them or none. Returns the number that each has given.
    ///
    /// # Errors
    /// [`Error::Group`] names the first change that is refused.
    pub fn edit(&self, changes: &[Change<'_>]) -> Result<Vec<Option<u64>>, Error> {
        Ok(self.filters.edit(changes)?)
    }

    /// The texts with their numbers and the frames that each has accepted so far. A frame counts once, for the text
    /// that accepted it first. Costs O(passes), without holding up edits or readers.
    pub fn counts(&self) -> Vec<FilterCount> {
        self.filters.counts()
    }

    /// Number of edits so far.
    pub fn epoch(&self) -> u64 {
        self.filters.epoch()
    }

    /// The link type of the frames.
    pub fn link(&self) -> LinkType {
        self.filters.reading().0.link
    }

    /// The same texts with everything that the engine offers: views of passes, other link types, passes edited
    /// directly.
    pub fn filters(&self) -> &FilterSet {
        &self.filters
    }
}

/// One thread's side of a [`LiveFilter`]. Every call begins with the edits made since the last one (an atomic load
/// when there are none) and counts the frames that it accepts.
#[derive(Debug)]
pub struct LiveReader {
    reader: FilterReader,
    link: LinkType,
    single: Single,
}

impl LiveReader {
    /// Returns true if a whole frame without metadata is accepted. Costs 80 to 100 ns for a filter of a few
    /// primitives.
    pub fn matches(&mut self, bytes: &[u8]) -> bool {
        self.matches_frame(&Frame::new(self.link, bytes))
    }

    /// Returns true if a frame is accepted, with its length on the wire and its metadata. Frames of another link
    /// type are rejected. Costs as [`matches`](Self::matches).
    pub fn matches_frame(&mut self, frame: &Frame<'_>) -> bool {
        let mut single = std::mem::take(&mut self.single);
        let accepted = single.run(frame, |batch| self.matches_batch(batch).get(0));
        self.single = single;
        accepted
    }

    /// The accepted frames of a batch of up to 256. Frames of another link type are rejected. Costs as
    /// [`Filter::matches_batch`], and half a nanosecond a frame for counting.
    pub fn matches_batch(&mut self, batch: &Batch<'_>) -> Mask {
        if batch.frames().first().is_some_and(|frame| !self.is_own(frame.link)) {
            return Mask::EMPTY;
        }
        self.reader.refresh();
        // Evaluation fails for frames of a new link type only; the texts for this one exist.
        let accepted = self.reader.evaluate(batch, batch.all()).unwrap_or_default();
        self.reader.count(accepted);
        accepted
    }

    /// Link types have aliases.
    fn is_own(&self, link: LinkType) -> bool {
        let is_alias = |link: LinkType| {
            link.description().is_some_and(|known| known.numbers.contains(&self.link))
        };
        link == self.link || is_alias(link)
    }

    /// Number of edits that this reader has seen.
    pub fn epoch(&self) -> u64 {
        self.reader.epoch()
    }
}
