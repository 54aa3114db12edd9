//! Supervision of a program and all its descendants, which end together.
//!
//! ```text
//! we ── guard ── program ── …
//! ```
//!
//! The guard is a process between us and the program; it adopts every orphan of the family. When our process ends, for
//! any reason, the guard kills the family; if the guard is killed, its children become ours. The guard reports the
//! program's wait status when the last process of the family has ended. It holds no other descriptor.

use crate::notify::{self, Listener};
use crate::sys::notify as sys;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::HashMap;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

/// Time between two attempts to kill the remaining processes.
const KILL_PAUSE: Duration = Duration::from_millis(2);
/// All signals that can be blocked in a guard.
const ALL_SIGNALS: std::ops::Range<i32> = 1..32;

/// A running family.
#[derive(Debug)]
pub struct Family {
    guard: Child,
    line: UnixStream,
    signals: OwnedFd,
}

/// An event of a family, or of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// No event within the waiting time.
    None,
    /// This process received a signal.
    Signal {
        /// Its number.
        number: i32,
        /// True if a terminal or the kernel sent it, so the family received it too.
        from_terminal: bool,
    },
    /// The last process has ended; the value is the wait status of the first.
    Ended(i32),
}

/// Starts a program, supervised, with a guard. `signals` are blocked in this process from now on and become
/// [`Event::Signal`]. Must be called while the process has one thread.
///
/// Consumes the command: it holds a copy of the guard's end of the socket pair, which must close with the guard.
///
/// # Errors
/// The program cannot be started, or the system has no seccomp; `EBUSY` if this process is itself supervised.
pub fn start(mut command: Command, signals: &[i32]) -> io::Result<(Family, Listener)> {
    let (line, far) = UnixStream::pair()?;
    let signals = sys::signals(signals)?;
    sys::adopt_orphans()?;
    let guard = sys::guarded(&mut command, far, notify::program(), guard).spawn()?;
    drop(command);
    let listener = receive(&line)?;
    Ok((Family { guard, line, signals }, Listener::new(listener)))
}

impl Family {
    /// Waits for an event.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<Event> {
        let timeout = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX);
        let [signal, over] = sys::wait_for([self.signals.as_fd(), self.line.as_fd()], timeout)?;
        if over {
            return self.ended().map(Event::Ended);
        }
        let signal = if signal { sys::next_signal(self.signals.as_fd()) } else { None };
        Ok(signal
            .map_or(Event::None, |(number, from_terminal)| Event::Signal { number, from_terminal }))
    }

    /// Sends a signal to every process of the family except the guard.
    pub fn signal(&self, number: i32) {
        for process in self.processes() {
            sys::signal(process, number);
        }
    }

    /// The processes of the family.
    pub fn processes(&self) -> Vec<u32> {
        let mut found = descendants(std::process::id());
        found.retain(|&process| process != self.guard.id());
        found
    }

    fn ended(&mut self) -> io::Result<i32> {
        let mut status = [0; 4];
        let reported = self.line.read_exact(&mut status);
        self.guard.wait()?;
        if reported.is_ok() {
            return Ok(i32::from_ne_bytes(status));
        }
        // The guard was killed, so its remaining children are ours.
        kill_all();
        Ok(libc::SIGKILL)
    }
}

/// Receives the listener that [`sys::guarded`] sends.
fn receive(line: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0; 1];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    recvmsg(line, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = control.drain().flat_map(|part| match part {
        RecvAncillaryMessage::ScmRights(all) => all.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    descriptors.next().ok_or_else(|| io::Error::other("the supervised process sent no listener"))
}

/// Main function of the guard; returns its exit status. The guard is a fork of a process with one thread.
fn guard(line: BorrowedFd<'_>, program: i32) -> i32 {
    let Ok(signals) = sys::signals(&ALL_SIGNALS.collect::<Vec<_>>()) else {
        kill_all();
        return 1;
    };
    let mut status = 0;
    loop {
        while sys::next_signal(signals.as_fd()).is_some() {}
        loop {
            match sys::collect() {
                Ok(Some((child, ended))) if child == program => status = ended,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return report(line, status),
            }
        }
        // Nothing is ever sent in this direction, so a readable socket means end of file.
        if !matches!(sys::wait_for([signals.as_fd(), line], -1), Ok([_, false])) {
            kill_all();
            return 1;
        }
    }
}

fn report(line: BorrowedFd<'_>, status: i32) -> i32 {
    let sent = rustix::net::send(line, &status.to_ne_bytes(), rustix::net::SendFlags::NOSIGNAL);
    i32::from(sent.is_err())
}

/// Kills every descendant and waits until none is left, even if they fork meanwhile.
fn kill_all() {
    loop {
        for process in descendants(std::process::id()) {
            sys::signal(process, libc::SIGKILL);
        }
        while let Ok(Some(_)) = sys::collect() {}
        if sys::collect().is_err() {
            return;
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// All descendants of a process, as `/proc` lists them now.
pub fn descendants(of: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(text) = std::fs::read(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent(&text) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut found = children.remove(&of).unwrap_or_default();
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(children.remove(&process).unwrap_or_default());
        next += 1;
    }
    found
}

/// The parent's number in a `stat` file. The name before it, in parentheses, may contain any byte.
fn parent(stat: &[u8]) -> Option<u32> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(parent(b"12 (a) b (c) S 7 12 12"), Some(7));
        assert_eq!(parent(b"12 a"), None);
    }

    #[test]
    fn a_child_is_found_below_us() {
        let mut child = Command::new("sleep").arg("10").spawn().unwrap();
        let found = descendants(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
    }
}
