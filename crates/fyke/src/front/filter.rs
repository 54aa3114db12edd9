//! A compiled filter that does not change: the engine with the least ceremony.
//!
//! A text is lowered to passes once. One frame is evaluated straight from the passes where they are few and the frame
//! is long enough, without any memory of its own; everything else takes memory from a pool ([`super::scratch`]).

use super::scratch::{self, Pool};
use super::{Error, FilterBuilder};
use fyke_filter::{Options, Predicate, Reading};
use fyke_filters::FilterError;
use fyke_frame::{Batch, Frame, LinkType, Mask};
use fyke_pass::{LoweredFilter, PassSet, Reader};
use std::fmt;
use std::sync::Arc;

/// A compiled filter text.
///
/// ```
/// let filter = fyke::Filter::compile("udp dst port 53")?;
/// let mut frame = [0; 42]; // Ethernet, IPv4, UDP
/// frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
/// frame[23] = 17;
/// frame[36..38].copy_from_slice(&53_u16.to_be_bytes());
/// assert!(filter.matches(&frame));
/// assert!(!filter.matches(&[0; 42]));
/// # Ok::<(), fyke::Error>(())
/// ```
///
/// # Threads
///
/// `&Filter` can be used from any number of threads; no thread waits for another. A frame of a small filter is
/// evaluated without shared memory at all. Otherwise the first thread takes its scratch memory without a
/// lock; other threads take theirs from a pool that they never wait for. A clone shares the passes and has a
/// pool of its own, so give each thread a clone if batches are small and every nanosecond counts.
///
/// # Which engine
///
/// `Filter` counts nothing and never changes. [`LiveFilter`](crate::LiveFilter) counts and is edited while it runs; a
/// [graph](crate::graph) does that and reads and writes frames as well.
pub struct Filter {
    compiled: Arc<Compiled>,
    pool: Pool,
}

/// The part that clones share.
#[derive(Debug)]
struct Compiled {
    predicate: Predicate,
    passes: Reader,
    /// Frames are evaluated as the device delivered them.
    as_received: bool,
}

impl Filter {
    /// Compiles a text for Ethernet frames of a capture file, as libpcap reads it; [`Filter::builder`] for all
    /// others. An empty text accepts every frame. Costs some microseconds and 3 µs a primitive.
    ///
    /// # Errors
    /// [`Error::Text`] with the position and a hint if the text is not a filter.
    pub fn compile(text: &str) -> Result<Filter, Error> {
        Filter::builder().compile(text)
    }

    /// Options for filters: link type, live or file, the reading by meaning, netmask.
    pub fn builder() -> FilterBuilder {
        FilterBuilder::default()
    }

    pub(super) fn new(text: &str, options: &Options) -> Result<Filter, Error> {
        let predicate = fyke_filter::compile(text, options)?;
        let lowered = LoweredFilter::new(&predicate).map_err(FilterError::from)?;
        let mut set = PassSet::new(options.link);
        let mut edit = set.edit();
        edit.add_lowered(lowered).map_err(FilterError::from)?;
        edit.commit();
        let as_received = options.live && options.reading == Reading::Compat;
        let passes = set.reader();
        let pool = scratch::pool(&passes, as_received);
        Ok(Filter { compiled: Arc::new(Compiled { predicate, passes, as_received }), pool })
    }

    /// Returns true if a whole frame without metadata is accepted: `bytes` from its link header on, all that was on
    /// the wire.
    ///
    /// Costs 20 to 40 ns for a filter of a few primitives or one of 4,000 hosts, and 300 ns for a frame that is
    /// shorter than what the filter reads, because the order of the text decides then (`examples/cost.rs`). For
    /// speed, use [`matches_batch`](Self::matches_batch).
    #[inline]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.matches_frame(&Frame::new(self.link(), bytes))
    }

    /// Returns true if a frame is accepted, with its length on the wire and its metadata. Frames of another link
    /// type are rejected. Costs as [`matches`](Self::matches).
    #[inline]
    pub fn matches_frame(&self, frame: &Frame<'_>) -> bool {
        let Compiled { passes, as_received, .. } = &*self.compiled;
        if !as_received && let Some(accepted) = passes.quick_verdict(frame) {
            return accepted;
        }
        self.pool.get().frame(frame)
    }

    /// The accepted frames of a batch of up to 256; `&` and `|` combine the masks of several filters. Frames of
    /// another link type are rejected.
    ///
    /// Costs 2 to 3 ns a frame in batches of 64 and more, for one primitive as for 4,000 hosts: they are one look-up.
    /// A batch of one frame costs 45 to 60 ns (`examples/cost.rs`).
    pub fn matches_batch(&self, batch: &Batch<'_>) -> Mask {
        self.pool.get().batch(batch)
    }

    /// The text as given.
    pub fn text(&self) -> &str {
        self.compiled.predicate.text()
    }

    /// The link type of the frames.
    pub fn link(&self) -> LinkType {
        self.compiled.predicate.link()
    }

    /// The text as a tree of typed primitives; its display form is the canonical text.
    pub fn predicate(&self) -> &Predicate {
        &self.compiled.predicate
    }
}

impl Clone for Filter {
    fn clone(&self) -> Self {
        let Compiled { passes, as_received, .. } = &*self.compiled;
        let pool = scratch::pool(passes, *as_received);
        Filter { compiled: Arc::clone(&self.compiled), pool }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut filter = f.debug_struct("Filter");
        filter.field("text", &self.text()).field("link", &self.link()).finish_non_exhaustive()
    }
}

impl std::str::FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Filter, Error> {
        Filter::compile(text)
    }
}
