//! The calls of the tracker, by `Call-ID`.
//!
//! A call is known while it is signalled or its media are expected, and a short time longer, so that repeated messages
//! do not make it a new one. Memory: at most [`Limits::control_connections`], each up to 400 bytes.

use crate::Limits;
use fyke_flow::Ageing;

/// Longest `Call-ID`.
const ID_LIMIT: usize = 256;
/// Time without signalling after which a call without expectations is forgotten: longer than any repetition.
const FORGET_NS: u64 = 32_000_000_000;

/// A call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// Number, from 1, never used again.
    pub(super) number: u64,
    /// True after a final success of an INVITE.
    pub(super) answered: bool,
}

/// The table.
#[derive(Debug)]
pub(super) struct Calls {
    table: Ageing<Box<[u8]>, Call>,
    count: u64,
}

impl Calls {
    pub(super) fn new(limits: Limits) -> Calls {
        Calls { table: Ageing::new(limits.control_connections), count: 0 }
    }

    /// True if an identifier is neither empty nor too long.
    pub(super) fn is_valid(id: &[u8]) -> bool {
        (1..=ID_LIMIT).contains(&id.len())
    }

    pub(super) fn knows(&self, id: &[u8]) -> bool {
        self.table.peek(&Box::from(id)).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of calls so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a call if it is new; returns the number of a call that had to make room for it.
    pub(super) fn enter(&mut self, id: &[u8], now_ns: u64) -> Option<u64> {
        if self.knows(id) {
            return None;
        }
        let full = self.table.is_full();
        let evicted =
            if full { self.table.pop_oldest().map(|(_, call)| call.number) } else { None };
        self.count += 1;
        let call = Call { number: self.count, answered: false };
        self.table.insert(id.into(), call, now_ns.saturating_add(FORGET_NS));
        evicted
    }

    /// A known call, kept for a while.
    pub(super) fn touch(&mut self, id: &[u8], now_ns: u64) -> Option<&mut Call> {
        self.table.touch(&id.into(), now_ns.saturating_add(FORGET_NS))
    }

    /// Forgets calls without signalling that expect nothing.
    pub(super) fn expire(&mut self, now_ns: u64, expects: impl Fn(u64) -> bool) {
        while let Some((id, call)) = self.table.pop_due(now_ns) {
            if now_ns != u64::MAX && expects(call.number) {
                self.table.insert(id, call, now_ns.saturating_add(FORGET_NS));
            }
        }
    }
}
