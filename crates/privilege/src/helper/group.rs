//! Sockets that share the frames of an interface. The kernel binds no socket of such a group again, so after the
//! interface was made again the group gets new sockets, all of one *generation*.
//!
//! Members fetch their sockets one by one. If one of them asks a second time, or the interface has another index, the
//! generation is obsolete and a new one is opened; members notice its number. The sockets deliver nothing until every
//! member has one. Runs in the helper, or in a process that keeps its rights.

use super::{Presence, Sockets};
use std::io;
use std::os::fd::OwnedFd;

/// Limit on the length of a plan, in bytes.
pub const MAX_PLAN: usize = 64;

/// A group of sockets of one interface.
#[derive(Debug)]
pub struct Group {
    interface: String,
    promiscuous: bool,
    /// Options of the sockets, in the form of the crate that opens them.
    plan: Vec<u8>,
    count: usize,
    generation: u32,
    /// Index of the interface, and the sockets that have not been fetched.
    latest: Option<(u32, Vec<Option<Opened>>)>,
}

/// A socket of a group, and the memory that the kernel fills for it.
#[derive(Debug)]
pub struct Opened {
    /// The socket.
    pub socket: OwnedFd,
    /// Number of blocks of its ring.
    pub blocks: u32,
}

/// The socket of a member.
#[derive(Debug)]
pub struct Fetched {
    /// The socket.
    pub opened: Opened,
    /// Number of the generation that it belongs to; the first is 1.
    pub generation: u32,
    /// The interface.
    pub presence: Presence,
}

impl Group {
    /// Describes a group of `count` sockets.
    ///
    /// # Errors
    /// For a plan that is longer than [`MAX_PLAN`].
    pub fn new(interface: &str, promiscuous: bool, count: usize, plan: &[u8]) -> io::Result<Group> {
        if plan.len() > MAX_PLAN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (interface, plan) = (interface.to_owned(), plan.to_vec());
        Ok(Group { interface, promiscuous, plan, count, generation: 0, latest: None })
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Number of sockets.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the socket of a member, and opens a new generation if there is none for it.
    ///
    /// # Errors
    /// ENODEV if no interface has the name now; when the system refuses; for a member that does not exist.
    pub fn fetch(&mut self, sockets: &dyn Sockets, member: usize) -> io::Result<Fetched> {
        if member >= self.count {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let found = sockets.look(&self.interface)?;
        let presence = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let is_current = |(ifindex, waiting): &(u32, Vec<Option<Opened>>)| {
            *ifindex == presence.ifindex && waiting.get(member).is_some_and(Option::is_some)
        };
        if !self.latest.as_ref().is_some_and(is_current) {
            self.latest = None;
            let opened = sockets.open_group(&self.plan, self.count, &presence, self.promiscuous)?;
            self.generation = self.generation.wrapping_add(1);
            self.latest = Some((presence.ifindex, opened.into_iter().map(Some).collect()));
        }
        let waiting = self.latest.as_mut().and_then(|(_, waiting)| waiting.get_mut(member));
        let opened = waiting.and_then(Option::take);
        let opened = opened.ok_or_else(|| io::Error::other("too few sockets were opened"))?;
        Ok(Fetched { opened, generation: self.generation, presence })
    }
}
