//! Groups: readers that share a packet buffer, because they may see the same frames.
//!
//! A reader of a group can read everything in the group's buffer: all frames that a text of any of its readers accepts.
//! So readers are in one group only if each may have what the others get. By default that is each user for itself.
//! Cost: one copy of a frame for each group that accepts it.

use fyke_capture::Interface;
use fyke_frame::{BATCH_CAPACITY, Frame};
use fyke_ring::{Held, Origin, Packets, Placed, RingError};
use std::fmt;
use std::sync::Arc;

/// Memory for the frames of a group, in bytes.
pub const PACKET_BYTES: usize = 64 << 20;

/// Common terms of the readers of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Its members.
    pub sharing: Sharing,
    /// The filter that all their frames pass; empty if there is none.
    pub filter: Arc<str>,
    /// Most bytes of a frame.
    pub snaplen: u32,
    /// True if frames for which its slow readers leave no room are refused, in place of those that they have not read.
    pub prefers_slow: bool,
}

/// Members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Sharing {
    /// Readers of a user, by its id.
    User(u32),
    /// Readers with a group id.
    Group(u32),
    /// Readers of one process, by its unique number (Linux 6.9).
    Process(u64),
    /// All readers under the same rule.
    Everyone,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sharing {
            Sharing::User(id) => write!(f, "user {id}"),
            Sharing::Group(id) => write!(f, "group {id}"),
            Sharing::Process(number) => write!(f, "process {number}"),
            Sharing::Everyone => write!(f, "everyone of the rule"),
        }
    }
}

/// Length and place of a stored frame; no place if it does not fit. `None` before it is stored.
type Place = Option<(usize, Option<Placed>)>;

/// The packet buffer of a group, and where it has the frames of the current batch.
#[derive(Debug)]
pub struct Buffer {
    packets: Packets,
    /// Number of the interface in the buffer.
    origin: Option<u32>,
    /// Batch that was stored last.
    serial: u64,
    /// Its frames.
    places: Box<[Place; BATCH_CAPACITY]>,
    /// Bytes of frames that were copied.
    copied: u64,
}

impl Buffer {
    /// An empty buffer for frames of an interface.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(bytes: usize, interface: &Interface) -> Result<Buffer, RingError> {
        let mut packets = Packets::create(bytes)?;
        let origin = packets.origin(&Origin {
            name: interface.name.clone(),
            link: interface.link,
            snaplen: interface.snaplen,
            nanoseconds: interface.nanoseconds,
            netmask: interface.netmask,
        });
        Ok(Buffer {
            packets,
            origin,
            serial: 0,
            places: Box::new([None; BATCH_CAPACITY]),
            copied: 0,
        })
    }

    /// Stores a frame, known by the serial of its batch and its index there, unless the group has it already; returns
    /// its place, `None` if it is too long, or if it would overwrite what is held. Frames of one length, as readers
    /// with one snap length want them, are stored once.
    pub fn place(
        &mut self,
        (serial, index): (u64, usize),
        frame: &Frame<'_>,
        held: Held,
    ) -> Option<Placed> {
        if self.serial != serial {
            self.serial = serial;
            self.places.fill(None);
        }
        match self.places[index] {
            Some((len, place)) if len == frame.data.len() => place,
            _ => {
                // A service has one interface.
                let origin = self.origin.filter(|_| frame.interface == 0);
                let place = self.packets.put_from(frame, origin, held).ok();
                self.places[index] = Some((frame.data.len(), place));
                self.copied += place.map_or(0, |_| frame.data.len() as u64);
                place
            }
        }
    }

    /// Number of the interface in the buffer; `None` if it has none.
    pub fn origin(&self) -> Option<u32> {
        self.origin
    }

    /// Bytes of frames that were copied so far.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// The packet buffer.
    pub fn packets(&self) -> &Packets {
        &self.packets
    }
}
