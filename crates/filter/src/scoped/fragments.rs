//! Facts from first fragments, kept for the later fragments of the same packet.
//!
//! Bounded: [`PACKETS`] packets, 30 s each, as in Linux's reassembly. Clones share the memory, so
//! all filters of one run use the same facts. Each entry has its time: a fragment never uses a
//! first fragment that was captured after it, in whatever order frames are evaluated, and
//! evaluating a frame twice changes nothing.

use fyke_flow::ageing::Ageing;
use fyke_flow::fragments::{Fragment, PacketKey};
use fyke_frame::Frame;
use fyke_frame::walk::{self, Layers, Ports};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of packets of which the first fragment is remembered.
pub const PACKETS: usize = 65_536;
const PATIENCE_NS: u64 = 30_000_000_000;

/// The memory of first fragments.
#[derive(Debug, Clone)]
pub struct Fragments {
    known: Arc<Mutex<Ageing<PacketKey, Known>>>,
}

/// Relation of a frame to the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Not a fragment, or a first one.
    Start,
    /// A later fragment of a packet with a known first one.
    Follows,
    /// A later fragment of a packet without a known first one: a test of its ports rejects it.
    Orphan,
}

/// The first fragment of a packet, and of the earlier packet with the same key.
#[derive(Debug, Clone, Copy)]
struct Known {
    latest: First,
    before: Option<First>,
}

#[derive(Debug, Clone, Copy)]
struct First {
    timestamp_ns: u64,
    ports: Option<Ports>,
}

impl Default for Fragments {
    fn default() -> Self {
        Fragments { known: Arc::new(Mutex::new(Ageing::new(PACKETS))) }
    }
}

impl Fragments {
    /// Remembers a first fragment; returns the relation of the frame. Must be called in capture
    /// order.
    pub fn observe(&self, frame: &Frame) -> Part {
        self.observe_walked(frame, &walk::walk(frame))
    }

    /// Like [`Fragments::observe`], for a frame with known headers.
    pub(super) fn observe_walked(&self, frame: &Frame, layers: &Layers) -> Part {
        let Some(fragment) = Fragment::of(layers) else { return Part::Start };
        if !fragment.info.is_first() {
            return match self.first_of(&fragment.key, frame.timestamp_ns) {
                Some(_) => Part::Follows,
                None => Part::Orphan,
            };
        }
        let level = layers.levels().find(|level| level.fragment().is_some_and(|f| !f.is_whole()));
        let ports = level.and_then(|level| level.ports());
        let first = First { timestamp_ns: frame.timestamp_ns, ports };
        let mut known = self.lock();
        let older = known.get(&fragment.key, frame.timestamp_ns).copied();
        let before = match older {
            Some(older) if older.latest.timestamp_ns > first.timestamp_ns => return Part::Start,
            Some(older) if older.latest.timestamp_ns == first.timestamp_ns => older.before,
            older => older.map(|older| older.latest),
        };
        let deadline = frame.timestamp_ns.saturating_add(PATIENCE_NS);
        known.insert(fragment.key, Known { latest: first, before }, deadline);
        Part::Start
    }

    /// The ports of the packet of a later fragment that was captured at `now_ns`. `None`: its first
    /// fragment is not known; `Some(None)`: it is known and has no ports.
    pub(super) fn ports_of(&self, key: &PacketKey, now_ns: u64) -> Option<Option<Ports>> {
        self.first_of(key, now_ns).map(|first| first.ports)
    }

    fn first_of(&self, key: &PacketKey, now_ns: u64) -> Option<First> {
        let known = *self.lock().get(key, now_ns)?;
        [Some(known.latest), known.before]
            .into_iter()
            .flatten()
            .find(|first| first.timestamp_ns <= now_ns)
            .filter(|first| now_ns - first.timestamp_ns <= PATIENCE_NS)
    }

    fn lock(&self) -> MutexGuard<'_, Ageing<PacketKey, Known>> {
        // A panic leaves no entry half changed: entries are replaced whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
