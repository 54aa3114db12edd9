//! A sink that sends frames on a network interface, link header included.
//!
//! Frames are sent one by one. Frames that the interface refuses (too long, another link type) are counted; this is
//! not an error. Frames that were captured only in part are sent as far as they were captured.

use super::{Sink, SinkStats, WriteError};
use crate::error::LiveError;
use crate::interfaces;
use crate::source::Interface;
use crate::sys::packet::PacketSocket;
use fyke_frame::{Frame, LinkType};
use std::io;

/// Sink that sends frames on an interface.
pub struct InterfaceSink {
    socket: PacketSocket,
    ifindex: u32,
    name: String,
    link: LinkType,
    stats: SinkStats,
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
        })
    }
}

impl Sink for InterfaceSink {
    fn write(&mut self, _interface: &Interface, frame: &Frame<'_>) -> Result<(), WriteError> {
        if frame.link != self.link {
            self.stats.refused += 1;
            return Ok(());
        }
        match self.socket.send(self.ifindex, frame.data) {
            Ok(()) => {
                self.stats.frames += 1;
                self.stats.bytes += frame.data.len() as u64;
                Ok(())
            }
            Err(error) if is_about_the_frame(&error) => {
                self.stats.refused += 1;
                Ok(())
            }
            Err(source) => Err(WriteError::Write { name: self.name.clone(), source }),
        }
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

fn is_about_the_frame(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL))
}
