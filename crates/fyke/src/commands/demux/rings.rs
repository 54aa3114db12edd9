//! Rings as endpoints: a frame is stored once, whatever the number of rings that get it.

use crate::commands::Failure;
use anyhow::Context;
use fyke_frame::{Frame, LinkType};
use fyke_ring::{Index, Packets, Publication};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Memory for frames, in bytes.
const PACKET_BYTES: usize = 64 << 20;
/// Frames that a ring remembers.
const PLACES: usize = 1 << 16;

/// What all rings of a run share.
#[derive(Clone, Default)]
pub struct Rings(Rc<RefCell<Option<Stored>>>);

struct Stored {
    packets: Packets,
    /// The last delivery that was stored, and where; `None` when it did not fit.
    last: Option<(u64, Option<u64>)>,
}

/// One of them.
pub struct Ring {
    rings: Rings,
    index: Index,
    /// Frames that are too large, or of another link type than the ring has.
    pub refused: u64,
    link: LinkType,
    _published: Publication,
}

impl Ring {
    /// Publishes a ring at a socket.
    ///
    /// # Errors
    /// When there is no memory, or the socket cannot be made.
    pub fn open(path: &Path, link: LinkType, rings: &Rings) -> Result<Ring, Failure> {
        let mut stored = rings.0.borrow_mut();
        if stored.is_none() {
            let packets = Packets::create(PACKET_BYTES).context("no memory for a ring")?;
            *stored = Some(Stored { packets, last: None });
        }
        let index = Index::create(PLACES, link).context("no memory for a ring")?;
        let failed = || format!("cannot publish the ring {}", path.display());
        let published = match &*stored {
            Some(stored) => Publication::new(path, &stored.packets, &index),
            None => return Err(Failure::Running(anyhow::anyhow!(failed()))),
        };
        let _published = published.with_context(failed)?;
        Ok(Ring { rings: rings.clone(), index, refused: 0, link, _published })
    }

    /// Adds a frame; it is stored when no other ring has stored it for this delivery.
    pub fn give(&mut self, frame: &Frame<'_>, delivery: u64) {
        let mut stored = self.rings.0.borrow_mut();
        let Some(stored) = stored.as_mut().filter(|_| frame.link == self.link) else {
            self.refused += 1;
            return;
        };
        let place = match stored.last {
            Some((last, place)) if last == delivery => place,
            _ => stored.packets.put(frame).ok(),
        };
        stored.last = Some((delivery, place));
        match place {
            Some(place) => self.index.push(place),
            None => self.refused += 1,
        }
    }
}
