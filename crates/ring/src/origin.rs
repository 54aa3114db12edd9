//! The interfaces that frames of a packet buffer come from: a table in the buffer, which only grows.
//!
//! A frame has the number of its interface, an index the set of those that its frames come from. So
//! a reader knows link types, names and netmasks as the writer's own filters do. Sixteen words for
//! an interface: link type, snapshot length and kind of time stamps; netmask; name.

use crate::Memory;
use crate::protocol::Words;
use fyke_frame::LinkType;
use std::sync::atomic::Ordering;

/// Most interfaces of a packet buffer; frames of further ones have none.
pub const MAX_ORIGINS: usize = 64;
/// Longest name, in bytes; a longer one is cut.
pub const MAX_NAME: usize = 64;
/// Words of the table.
pub(crate) const WORDS: usize = MAX_ORIGINS * ENTRY;

const ENTRY: usize = 16;
const NETMASK: usize = 1;
const NAME: usize = 2;
const NANOSECONDS: u64 = 1 << 48;
const NAME_LEN: u32 = 56;

/// An interface that frames come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its name, at most [`MAX_NAME`] bytes.
    pub name: String,
    /// Link type of its frames.
    pub link: LinkType,
    /// Most bytes of a frame that were captured.
    pub snaplen: u32,
    /// True if its timestamps need a finer unit than microseconds.
    pub nanoseconds: bool,
    /// Netmask of its first IPv4 address; 0 if it has none.
    pub netmask: u32,
}

impl Origin {
    /// An interface without an address.
    pub fn new(name: &str, link: LinkType) -> Origin {
        let (name, snaplen) = (name.to_owned(), 262_144);
        Origin { name, link, snaplen, nanoseconds: true, netmask: 0 }
    }

    /// Cuts the name to its limit.
    pub(crate) fn cut(mut self) -> Origin {
        let mut end = self.name.len().min(MAX_NAME);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        self.name.truncate(end);
        self
    }

    /// Stores the interface as number `number` of the table that begins at word `first`.
    pub(crate) fn store(&self, memory: &Memory, first: usize, number: usize) {
        let at = first + number * ENTRY;
        let name = self.name.as_bytes();
        let kind = u64::from(self.link.0) | u64::from(self.snaplen) << 16;
        let nanoseconds = if self.nanoseconds { NANOSECONDS } else { 0 };
        let head = kind | nanoseconds | (name.len() as u64) << NAME_LEN;
        memory.store(at, head, Ordering::Relaxed);
        memory.store(at + NETMASK, self.netmask.into(), Ordering::Relaxed);
        memory.write(at + NAME, name);
    }

    /// Reads interface `number` of the table at word `first`. Bytes of the name that are no text
    /// are replaced.
    pub(crate) fn load(memory: &Memory, first: usize, number: usize) -> Origin {
        let at = first + number % MAX_ORIGINS * ENTRY;
        let head = memory.load(at, Ordering::Relaxed);
        let mut name = Vec::new();
        memory.read(at + NAME, ((head >> NAME_LEN) as usize).min(MAX_NAME), &mut name);
        Origin {
            name: String::from_utf8_lossy(&name).into_owned(),
            link: LinkType(head as u16),
            snaplen: (head >> 16) as u32,
            nanoseconds: head & NANOSECONDS != 0,
            netmask: memory.load(at + NETMASK, Ordering::Relaxed) as u32,
        }
    }
}
