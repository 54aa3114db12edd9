//! The bounded set of connected clients.
//!
//! Each user has seats of its own, so the clients of the owner cannot lock root out. When all seats of a
//! user are taken, that user's client that has been idle longest gets the reason and is closed, so that connections
//! left open lock no client out. A client is not idle while its request is being answered or while it watches.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// All seats of a server.
#[derive(Debug)]
pub struct Seats {
    taken: Mutex<Vec<Taken>>,
    /// Number of seats of each user.
    capacity: usize,
    /// Sends the reason to a client that loses its seat; never blocks.
    tell: fn(&UnixStream),
}

#[derive(Debug)]
struct Taken {
    id: u64,
    user: u32,
    stream: UnixStream,
    /// `None` while a request is being answered.
    idle_since: Option<Instant>,
}

/// The seat of one client, freed when dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    id: u64,
}

impl Seats {
    /// Seats for at most `capacity` clients of each user at a time. The caller decides which users there are. `tell`
    /// sends the reason to a client that loses its seat to another one, and never blocks.
    pub fn new(capacity: usize, tell: fn(&UnixStream)) -> Arc<Seats> {
        Arc::new(Seats { taken: Mutex::new(Vec::with_capacity(capacity)), capacity, tell })
    }

    /// Seats a client of a user under an id that the caller chose and no other client has; `None` when
    /// all seats of the user are busy.
    pub fn take(self: &Arc<Seats>, id: u64, user: u32, stream: UnixStream) -> Option<Seat> {
        let mut taken = self.lock();
        let own = || taken.iter().enumerate().filter(|(_, seat)| seat.user == user);
        if own().count() >= self.capacity {
            let idle = own().filter_map(|(at, seat)| Some((seat.idle_since?, at)));
            let (_, longest) = idle.min()?;
            let lost = taken.swap_remove(longest).stream;
            (self.tell)(&lost);
            close(&lost);
        }
        taken.push(Taken { id, user, stream, idle_since: Some(Instant::now()) });
        Some(Seat { seats: Arc::clone(self), id })
    }

    /// Ends all connections.
    pub fn close_all(&self) {
        self.lock().drain(..).for_each(|taken| close(&taken.stream));
    }

    /// Locks the list. A thread that panicked leaves the list intact: every change to it is one
    /// call.
    fn lock(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Marks the seat busy while a request is being answered: it cannot be taken away. False if that has happened.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.set(None)
    }

    /// Marks the seat idle: the next request is awaited.
    pub fn idle(&self) {
        self.set(Some(Instant::now()));
    }

    /// False if the seat has been taken away.
    fn set(&self, idle_since: Option<Instant>) -> bool {
        let mut seats = self.seats.lock();
        let own = seats.iter_mut().find(|taken| taken.id == self.id);
        own.map(|taken| taken.idle_since = idle_since).is_some()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().retain(|taken| taken.id != self.id);
    }
}

/// Wakes the thread that reads or writes. An error means that the peer has closed already.
fn close(stream: &UnixStream) {
    let _already_closed = stream.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_longest_idle_client_makes_room_and_busy_ones_stay() {
        let tell = |mut stream: &UnixStream| {
            let _full = std::io::Write::write_all(&mut stream, b"full");
        };
        let seats = Seats::new(2, tell);
        let (mut first_peer, first) = UnixStream::pair().unwrap();
        let first_seat = seats.take(1, 0, first).unwrap();
        let (mut second_peer, second) = UnixStream::pair().unwrap();
        let second_seat = seats.take(2, 0, second).unwrap();
        assert!(first_seat.busy());
        let third = seats.take(3, 0, UnixStream::pair().unwrap().0).unwrap();
        let mut told = String::new();
        second_peer.read_to_string(&mut told).unwrap();
        assert_eq!(told, "full", "the idle one gets the reason and is closed");
        assert!(!second_seat.busy(), "its request is not carried out");
        assert!(third.busy());
        assert!(seats.take(4, 0, UnixStream::pair().unwrap().0).is_none());
        let other = seats.take(5, 1000, UnixStream::pair().unwrap().0);
        assert!(other.is_some(), "another user has seats of its own");
        drop(other);
        second_seat.idle();
        drop(second_seat);
        assert_eq!(seats.lock().len(), 2, "a seat that was taken away is not given back twice");
        drop(third);
        let _fourth = seats.take(4, 0, UnixStream::pair().unwrap().0).unwrap();
        seats.close_all();
        assert_eq!(first_peer.read(&mut [0]).unwrap(), 0);
    }
}
