//! A packet socket that sends frames in batches.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Most frames of one call.
pub const MAX_BATCH: usize = 64;

/// Longest wait for room in the queue.
const PATIENCE: Duration = Duration::from_millis(100);

/// A socket bound to a device.
pub struct PacketSender(OwnedFd);

impl PacketSender {
    /// Opens a socket on a device of this thread's namespace that sends past the queueing discipline: quicker, but
    /// captures on the same device do not see the frames.
    ///
    /// # Errors
    /// The error of the system, such as a missing privilege.
    pub fn open(device: &str) -> io::Result<PacketSender> {
        let sender = PacketSender::open_queued(device)?;
        super::set(&sender.0, libc::PACKET_QDISC_BYPASS, &1i32)?;
        Ok(sender)
    }

    /// Opens a socket as [`PacketSender::open`] does that sends through the queueing discipline: captures on the same
    /// device see the frames. A call waits at most 100 ms for room.
    ///
    /// # Errors
    /// The error of the system, such as a missing privilege.
    pub fn open_queued(device: &str) -> io::Result<PacketSender> {
        let socket = super::packet_socket()?;
        super::bind(&socket, device, 0)?;
        socket2::SockRef::from(&socket).set_write_timeout(Some(PATIENCE))?;
        Ok(PacketSender(socket))
    }

    /// Sends the first [`MAX_BATCH`] of these frames with one call; returns how many the kernel took.
    ///
    /// # Errors
    /// The error of the system if it took none.
    pub fn send(&self, frames: &[&[u8]]) -> io::Result<usize> {
        // SAFETY: all zeros are valid vectors and headers without data.
        let mut vectors: [libc::iovec; MAX_BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; MAX_BATCH] = unsafe { mem::zeroed() };
        let count = frames.len().min(MAX_BATCH);
        for ((vector, message), frame) in vectors.iter_mut().zip(&mut messages).zip(frames) {
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let fd = self.0.as_raw_fd();
        // SAFETY: the first `count` headers point to vectors, and these to frames; all live through the call, which
        // only reads the frames.
        let sent = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count as libc::c_uint, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
