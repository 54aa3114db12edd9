//! Rings that share the frames of an interface, opened again after the interface was made again.
//!
//! The kernel binds no socket of such a group again, so every ring gets a new socket, of one generation
//! ([`fyke_privilege::helper::Group`]): from the helper of a process that has given up its rights, else opened here.
//! Each ring fetches its socket when it notices the loss and has returned all earlier frames. The sockets deliver
//! frames once the last ring has one, so a conversation is never divided. Frames that arrive before that are not
//! captured, as while the interface was gone.

use crate::rebind::PacketSockets;
use crate::sharing::GroupPlan;
use crate::socket::FilterSocket;
use crate::source::SocketFilter;
use fyke_privilege::helper::{self, Fetched, Group, Presence};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The rings of a group, when they get new sockets.
pub(crate) struct Renewal {
    opener: Opener,
    round: Mutex<Round>,
}

/// The opener of the sockets.
enum Opener {
    /// The helper of this process, with the number of the group there.
    Helper(u32),
    Here(Mutex<Group>),
}

/// The rings that have a socket of the latest generation, until all of them have one.
struct Round {
    generation: u32,
    waiting: Vec<Option<Member>>,
}

/// A ring that has its new socket.
struct Member {
    socket: Arc<FilterSocket>,
    filter: Option<Arc<dyn SocketFilter>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Renewal {
    /// Prepares the renewal of a group of `count` rings on an interface; before the process gives up its rights.
    pub(crate) fn prepare(
        interface: &str,
        promiscuous: bool,
        count: usize,
        plan: GroupPlan,
    ) -> io::Result<Renewal> {
        let bytes = plan.to_bytes();
        let opener = match helper::current() {
            Some(helper) => {
                Opener::Helper(helper.hold_group(interface, promiscuous, count as u32, &bytes)?)
            }
            None => Opener::Here(Mutex::new(Group::new(interface, promiscuous, count, &bytes)?)),
        };
        let waiting = (0..count).map(|_| None).collect();
        Ok(Renewal { opener, round: Mutex::new(Round { generation: 0, waiting }) })
    }

    /// Looks up the interface; `None` if there is none of its name now.
    pub(crate) fn look(&self) -> io::Result<Option<Presence>> {
        match (&self.opener, helper::current()) {
            (Opener::Helper(number), Some(helper)) => helper.look(*number),
            (Opener::Helper(_), None) => Ok(None),
            (Opener::Here(group), _) => crate::rebind::look(lock(group).interface()),
        }
    }

    /// Fetches the new socket of a ring.
    pub(crate) fn fetch(&self, member: usize) -> io::Result<Fetched> {
        match (&self.opener, helper::current()) {
            (Opener::Helper(number), Some(helper)) => helper.fetch(*number, member as u32),
            (Opener::Helper(_), None) => Err(io::ErrorKind::NotConnected.into()),
            (Opener::Here(group), _) => lock(group).fetch(&PacketSockets, member),
        }
    }

    /// True if another ring has a socket of a later generation, so that this one has to fetch one, too.
    pub(crate) fn is_obsolete(&self, generation: u32) -> bool {
        lock(&self.round).generation != generation
    }

    /// True once all rings have a socket of this generation.
    pub(crate) fn is_complete(&self, generation: u32) -> bool {
        let round = lock(&self.round);
        round.generation == generation && round.waiting.iter().all(Option::is_none)
    }

    /// Registers a ring with its new socket. The last one starts the flow of frames.
    pub(crate) fn join(
        &self,
        member: usize,
        generation: u32,
        socket: Arc<FilterSocket>,
        filter: Option<Arc<dyn SocketFilter>>,
    ) -> io::Result<()> {
        let mut round = lock(&self.round);
        if round.generation != generation {
            round.generation = generation;
            round.waiting.iter_mut().for_each(|place| *place = None);
        }
        let Some(place) = round.waiting.get_mut(member) else { return Ok(()) };
        *place = Some(Member { socket, filter });
        if round.waiting.iter().any(Option::is_none) {
            return Ok(());
        }
        // First all of them without a filter, so that they begin together.
        round.waiting.iter().flatten().try_for_each(|member| member.socket.open())?;
        for member in round.waiting.iter_mut().filter_map(Option::take) {
            if let Some(filter) = member.filter {
                filter.take_socket(member.socket)?;
            }
        }
        Ok(())
    }

    /// Stores the filter of a ring that waits for others; false if it does not wait.
    pub(crate) fn set_filter(
        &self,
        member: usize,
        filter: &Arc<dyn SocketFilter>,
        socket: Arc<FilterSocket>,
    ) -> bool {
        let mut round = lock(&self.round);
        let Some(Some(waiting)) = round.waiting.get_mut(member) else { return false };
        *waiting = Member { socket, filter: Some(Arc::clone(filter)) };
        true
    }
}
