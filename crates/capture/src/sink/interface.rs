//! A sink that sends frames on a network interface, link header included.
//!
//! Frames are sent one by one. Frames that the interface refuses (too long, another link type) are counted; this is
//! not an error. Frames that were captured only in part are sent as far as they were captured.
//!
//! If the interface's queue is full, a batch waits at most 20 ms for room; after that, frames are lost.
//! While the interface is down or gone, frames are lost at once. An interface that was deleted and made again is not
//! found again.

use super::{Sink, SinkStats, WriteError};
use crate::error::LiveError;
use crate::interfaces;
use crate::source::Interface;
use crate::sys::packet::PacketSocket;
use fyke_frame::{Frame, LinkType};
use std::time::{Duration, Instant};

/// Longest wait of a batch for room in the queue of the interface.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time between two tries.
const PAUSE: Duration = Duration::from_micros(200);

/// Sink that sends frames on an interface.
pub struct InterfaceSink {
    socket: PacketSocket,
    ifindex: u32,
    name: String,
    link: LinkType,
    stats: SinkStats,
    losses: InterfaceLosses,
}

/// Frames that an interface did not send, by reason; together [`SinkStats::lost`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InterfaceLosses {
    /// Its queue was full for too long.
    pub queue_full: u64,
    /// It was down or gone.
    pub down: u64,
}

/// Outcome of sending a frame.
enum Sent {
    Yes,
    /// The interface does not take such a frame.
    Refused,
    QueueFull,
    Down,
}

impl InterfaceSink {
    /// Opens an interface for sending.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, and for an interface that does not exist or has no link header of its own.
    pub fn open(name: &str) -> Result<Self, WriteError> {
        if fyke_privilege::helper::current().is_some_and(|helper| helper.is_sealed()) {
            return Err(LiveError::GivenUp { interface: name.to_owned() }.into());
        }
        let found = interfaces::find(name)?;
        if found.cooked {
            return Err(WriteError::Options("frames cannot be sent on a cooked interface"));
        }
        let socket =
            PacketSocket::open(true).map_err(|source| LiveError::from_socket(source, name))?;
        Ok(InterfaceSink {
            socket,
            ifindex: found.ifindex,
            name: name.to_owned(),
            link: found.link,
            stats: SinkStats::default(),
            losses: InterfaceLosses::default(),
        })
    }

    /// Frames that were lost so far, by reason.
    pub fn losses(&self) -> InterfaceLosses {
        self.losses
    }

    /// Time until which the frames of a batch that begins now wait for room in the queue.
    pub fn deadline() -> Instant {
        Instant::now() + PATIENCE
    }

    /// Sends a frame, or counts it as refused or lost. Waits for room in the queue until `until`. Returns false if the
    /// frame is lost.
    ///
    /// # Errors
    /// For errors of the system that are neither the frame's nor the interface's.
    pub fn send(&mut self, frame: &Frame<'_>, until: Instant) -> Result<bool, WriteError> {
        let same = frame.link == self.link;
        let sent = if same { self.try_send(frame.data, until)? } else { Sent::Refused };
        match sent {
            Sent::Yes => {
                self.stats.frames += 1;
                self.stats.bytes += frame.data.len() as u64;
            }
            Sent::Refused => self.stats.refused += 1,
            Sent::QueueFull => self.losses.queue_full += 1,
            Sent::Down => self.losses.down += 1,
        }
        self.stats.lost = self.losses.queue_full + self.losses.down;
        Ok(matches!(sent, Sent::Yes | Sent::Refused))
    }

    /// Sends a frame; waits for room until `until`.
    fn try_send(&self, data: &[u8], until: Instant) -> Result<Sent, WriteError> {
        loop {
            let Err(source) = self.socket.send(self.ifindex, data) else { return Ok(Sent::Yes) };
            match source.raw_os_error() {
                Some(libc::EMSGSIZE | libc::EINVAL) => return Ok(Sent::Refused),
                Some(libc::ENOBUFS) if Instant::now() < until => std::thread::sleep(PAUSE),
                Some(libc::ENOBUFS) => return Ok(Sent::QueueFull),
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => return Ok(Sent::Down),
                _ => return Err(WriteError::Write { name: self.name.clone(), source }),
            }
        }
    }
}

impl Sink for InterfaceSink {
    fn write(&mut self, interface: &Interface, frame: &Frame<'_>) -> Result<(), WriteError> {
        self.write_run(interface, &mut std::iter::once(frame))
    }

    fn write_run(
        &mut self,
        _interface: &Interface,
        frames: &mut dyn Iterator<Item = &Frame<'_>>,
    ) -> Result<(), WriteError> {
        let until = InterfaceSink::deadline();
        for frame in frames {
            self.send(frame, until)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn stats(&self) -> SinkStats {
        self.stats
    }

    fn finish(self: Box<Self>) -> Result<SinkStats, WriteError> {
        Ok(self.stats)
    }
}
