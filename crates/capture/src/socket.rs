//! The packet socket of a source as a filter in the kernel uses it: programs come and go while frames are captured.
//!
//! Any thread may attach a program. When the source stops or is dropped it closes its [`Gate`]; later programs are
//! ignored, so that an edit of a filter cannot start the flow of frames again.

use crate::source::DEFAULT_SNAPLEN;
use crate::sys::packet::PacketSocket;
use fyke_frame::bpf::Instruction;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest frame that a socket delivers without a program: the kernel cuts at 64 KiB less one.
const UNCUT: u32 = 65_536;

/// A packet socket for programs; without effect once its source has stopped.
pub struct FilterSocket {
    socket: Mutex<Option<PacketSocket>>,
    snaplen: u32,
    cooked: bool,
}

impl FilterSocket {
    fn lock(&self) -> MutexGuard<'_, Option<PacketSocket>> {
        // Nothing is changed in steps.
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most bytes of a frame that a program should return.
    pub fn snaplen(&self) -> u32 {
        self.snaplen.min(DEFAULT_SNAPLEN)
    }

    /// Replaces the socket's program by one of classic BPF.
    ///
    /// # Errors
    /// The kernel refuses the program, or has no room for it; then the socket has the old one or none.
    pub fn attach(&self, program: &[Instruction]) -> io::Result<()> {
        self.lock().as_ref().map_or(Ok(()), |socket| socket.attach(program))
    }

    /// Replaces the socket's program by a call of `attach`.
    ///
    /// # Errors
    /// That of the call.
    pub fn attach_with<E>(
        &self,
        attach: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.lock().as_ref().map_or(Ok(()), |socket| attach(socket.as_fd()))
    }

    /// Distributes the frames of the socket's group of rings by the result of a program of type socket filter, modulo
    /// the number of rings. Minimum kernel version: 4.12.
    ///
    /// # Errors
    /// The kernel refuses the program, or the group is distributed by conversation.
    pub fn share_by(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.lock().as_ref().map_or(Ok(()), |socket| socket.share_by_program(program))
    }

    /// Makes the socket deliver every frame, cut as the source requires.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open(&self) -> io::Result<()> {
        let socket = self.lock();
        let Some(socket) = &*socket else { return Ok(()) };
        match show(socket, self.snaplen, self.cooked) {
            // There was no program.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            opened => opened,
        }
    }
}

/// True if a socket without a program does not deliver all frames as its source needs them: frames are cut, or the
/// kernel leaves out cooked packets of which nothing follows the link header, and counts them nowhere.
pub(crate) fn needs_program(snaplen: u32, cooked: bool) -> bool {
    snaplen < UNCUT || cooked
}

/// Makes a socket deliver every frame, cut as its source requires.
pub(crate) fn show(socket: &PacketSocket, snaplen: u32, cooked: bool) -> io::Result<()> {
    if needs_program(snaplen, cooked) { socket.cut(snaplen) } else { socket.show_all() }
}

/// The source's end of a [`FilterSocket`]: dropping it ends the effect of programs.
pub(crate) struct Gate(Arc<FilterSocket>);

impl Gate {
    pub(crate) fn new(socket: &PacketSocket, snaplen: u32, cooked: bool) -> io::Result<Gate> {
        let socket = Mutex::new(Some(PacketSocket::copy(socket.as_fd())?));
        Ok(Gate(Arc::new(FilterSocket { socket, snaplen, cooked })))
    }

    pub(crate) fn socket(&self) -> Arc<FilterSocket> {
        Arc::clone(&self.0)
    }

    /// Makes the socket deliver nothing and closes the gate, with no moment between in which the socket has a program
    /// that cannot be replaced.
    pub(crate) fn stop(&self) {
        let mut socket = self.0.lock();
        // If this fails, the kernel delivers more frames, and the deadline of the stop ends the capture.
        let _ = socket.take().map(|socket| socket.show_nothing());
    }

    fn close(&self) {
        *self.0.lock() = None;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.close();
    }
}
