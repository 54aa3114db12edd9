//! The assignment of data connections to passes. Does not access the pass set.
//!
//! A listening end, its address, protocol and port, has one pass, whatever the number of connections at it.
//!
//! DEPARTURE: FTPCap gives a server one pass with up to 12 ports and duplicates it for the next ports and servers.
//! Passes of one kind are rows of a table here, with address and port as the key, if none has children; so each end is
//! a pass from scratch, and an edit costs the same with 100 and with 100,000 ends, at one server too.
//!
//! Cost: O(1) per event. Source: Swift, section 5.2; NPF, section 5.4.

use crate::{Connection, Protocol};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// A listening end.
type End = (IpAddr, Protocol, u16);

/// The bookkeeping. `P` names a pass.
#[derive(Debug)]
pub(super) struct Plan<P> {
    /// Pass and number of connections of each end.
    passes: HashMap<End, (P, u32)>,
    /// The end of each connection.
    ends: HashMap<u64, End>,
}

impl<P> Default for Plan<P> {
    fn default() -> Self {
        Plan { passes: HashMap::new(), ends: HashMap::new() }
    }
}

impl<P: Copy> Plan<P> {
    /// Number of passes.
    pub(super) fn pass_count(&self) -> usize {
        self.passes.len()
    }

    /// Number of connections held.
    pub(super) fn connection_count(&self) -> usize {
        self.ends.len()
    }

    /// Records a connection; `make` makes a pass for it if its end has none. Returns true if it did.
    ///
    /// # Errors
    /// Those of `make`; then nothing is recorded.
    pub(super) fn open<E>(
        &mut self,
        connection: &Connection,
        make: impl FnOnce() -> Result<P, E>,
    ) -> Result<bool, E> {
        let Connection { id, server, protocol, port, .. } = *connection;
        let end = (server, protocol, port);
        let is_new = match self.passes.entry(end) {
            Entry::Occupied(mut known) => {
                known.get_mut().1 += 1;
                false
            }
            Entry::Vacant(place) => {
                place.insert((make()?, 1));
                true
            }
        };
        self.ends.insert(id, end);
        Ok(is_new)
    }

    /// Forgets a connection; returns the pass to delete if no other connection uses it.
    pub(super) fn close(&mut self, id: u64) -> Option<P> {
        let end = self.ends.remove(&id)?;
        let Entry::Occupied(mut known) = self.passes.entry(end) else { return None };
        known.get_mut().1 -= 1;
        (known.get().1 == 0).then(|| known.remove().0)
    }
}
