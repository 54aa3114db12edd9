//! A ring of several, when its interface was made again: it gets a new socket of its group ([`Renewal`]).

use super::{LAST_BLOCK, RingOptions, RingSource, block};
use crate::error::LiveError;
use crate::flow::FlowHash;
use crate::rebind;
use crate::renewal::Renewal;
use crate::sharing::{self, GroupPlan};
use crate::socket::Gate;
use crate::source::{LinkState, Source};
use crate::sys::packet::{PacketSocket, RingSize};
use crate::sys::ring::Ring;
use fyke_privilege::helper::{Fetched, Presence};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// One of several rings of an interface.
pub(super) struct Shared {
    pub(super) renewal: Arc<Renewal>,
    pub(super) member: usize,
    /// Generation of the socket; 0 for the first one.
    pub(super) generation: u32,
    /// True while other rings have no socket of this generation.
    pub(super) waits: bool,
    /// Closed when the source stops; a source with a filter has it there.
    pub(super) gate: Option<Gate>,
}

impl Shared {
    /// True if another ring has a socket of a later generation.
    pub(super) fn is_obsolete(&self) -> bool {
        self.generation > 0 && self.renewal.is_obsolete(self.generation)
    }
}

impl RingSource {
    /// Makes rings share the frames of their interface.
    pub(super) fn group(sources: &mut [Self], options: &RingOptions) -> Result<(), LiveError> {
        let [first, ..] = &*sources else { return Ok(()) };
        let hash = (!options.by_class).then(FlowHash::of_process);
        let incoming_only = first.ifindex != 0 && first.ifindex == first.shape.loopback;
        let sockets: Vec<_> = sources.iter().map(|one| &one.socket).collect();
        sharing::join(&sockets, incoming_only, hash)
            .map_err(|source| first.failed("PACKET_FANOUT", source))?;
        for one in &*sources {
            one.show(options).map_err(|source| first.failed("SO_ATTACH_FILTER", source))?;
        }
        // All interfaces together are never gone.
        if first.ifindex == 0 {
            return Ok(());
        }
        let ring = RingSize {
            block_size: first.ring.block_size(),
            block_count: first.ring.block_count(),
            retire_ms: options.retire_ms,
        };
        let plan = GroupPlan { raw: !first.cooked, reserve: block::RESERVE, ring, hash };
        let renewal = Renewal::prepare(&first.name, first.promiscuous, sources.len(), plan);
        let renewal = Arc::new(renewal.map_err(|source| first.failed("helper", source))?);
        for (member, one) in sources.iter_mut().enumerate() {
            let renewal = Arc::clone(&renewal);
            one.shared = Some(Shared { renewal, member, generation: 0, waits: false, gate: None });
        }
        Ok(())
    }

    /// Continues with a new socket, as one of several rings, once the interface is up. The frames in the old ring are
    /// returned before.
    pub(super) fn renew(&mut self, found: &Presence) -> Result<(), LiveError> {
        let gone_for = self.gone.get_or_insert_with(Instant::now).elapsed();
        let stats = self.stats();
        let missing =
            (stats.received).saturating_sub(stats.delivered + stats.dropped + stats.ignored);
        // Kernels before 6.13 do not accept a socket of an interface that is down.
        if !found.up || (missing > 0 && gone_for < LAST_BLOCK) || self.ends.is_some() {
            return Ok(());
        }
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let renewal = Arc::clone(&shared.renewal);
        let Fetched { opened, generation, presence } = match renewal.fetch(shared.member) {
            Ok(fetched) => fetched,
            // It has disappeared or gone down again meanwhile.
            Err(_) if !self.is_still_there(found)? => return Ok(()),
            Err(source) => return Err(self.failed("open the ring again", source)),
        };
        if let Some(given) = rebind::link(&presence).filter(|given| *given != self.shape.link) {
            let (interface, expected) = (self.name.clone(), self.shape.link);
            return Err(LiveError::Changed { interface, given, expected });
        }
        let socket = PacketSocket::from(opened.socket);
        let this = &*self;
        let failed = |call| move |source| this.failed(call, source);
        let size = self.ring.block_size();
        let ring = Ring::map(&socket, size, opened.blocks).map_err(failed("mmap"))?;
        let gate = Gate::new(&socket, self.shape.snaplen, self.cooked).map_err(failed("dup"))?;
        self.edge.add(socket.as_fd()).map_err(failed("epoll"))?;
        // What the kernel did not hand over in time.
        self.stats.dropped += missing;
        self.held.clear();
        self.lent.clear();
        (self.next_block, self.gone) = (0, None);
        (self.ring, self.socket) = (ring, socket);
        (self.ifindex, self.shape.loopback) = (presence.ifindex, presence.loopback);
        let target = gate.socket();
        let filter = self.filter.as_ref().map(|(filter, _)| Arc::clone(filter));
        let Some(shared) = &mut self.shared else { return Ok(()) };
        (shared.generation, shared.waits) = (generation, true);
        match &mut self.filter {
            Some((_, old)) => *old = gate,
            None => shared.gate = Some(gate),
        }
        let joined = renewal.join(shared.member, generation, target, filter);
        joined.map_err(|source| self.failed("SO_ATTACH_FILTER", source))?;
        self.waits_for_others().map(drop)
    }

    /// True while this ring has a new socket, but others do not. Once all of them have one, the capture continues.
    pub(super) fn waits_for_others(&mut self) -> Result<bool, LiveError> {
        let Some(shared) = self.shared.as_ref().filter(|shared| shared.waits) else {
            return Ok(false);
        };
        if shared.renewal.is_complete(shared.generation) {
            self.change(LinkState::Back);
            self.state = LinkState::Up;
        }
        let lost = self.socket.has_lost_interface();
        let lost = lost.map_err(|source| self.failed("getsockname", source))?;
        let waits = self.state == LinkState::Gone && !lost;
        if let Some(shared) = &mut self.shared {
            shared.waits = waits && !shared.is_obsolete();
        }
        Ok(self.state != LinkState::Gone || waits)
    }

    /// True if the interface is still the same one, and up.
    fn is_still_there(&self, before: &Presence) -> Result<bool, LiveError> {
        Ok(self.look()?.is_some_and(|now| now.ifindex == before.ifindex && now.up))
    }
}
