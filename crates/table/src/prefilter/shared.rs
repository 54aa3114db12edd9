//! Look-up of frames in the arrays of another process: in memory that its pre-filter writes ([`ArrayCopy`]).
//!
//! For frames that the programs of the kernel cannot read: every level of every encapsulation is looked up, as by
//! [`PrefilterReader::ask`](super::PrefilterReader::ask), with the same answers. Cost: a header walk, and a look-up for
//! each packet, end and probe; the frames that the programs reject do not come here.
//!
//! [`ArrayCopy`]: super::ArrayCopy

use super::copy::{Probe, ProbeFamily};
use super::ends::{Ends, Packet, PortsSeen};
use super::space::IpKind;
use super::{Answer, Decided};
use fyke_frame::{Batch, Frame, Mask};
use std::fmt::Debug;

/// Arrays that another process writes meanwhile.
pub trait ArrayView: Debug + Send + Sync {
    /// State of the rules: enabled, negative.
    fn switches(&self) -> (bool, bool);

    /// Number above all look-ups in use; 0 without a rule.
    fn probe_count(&self) -> usize;

    /// A look-up, with the index of its array's first word; `None` if this number is free.
    fn probe(&self, number: usize) -> Option<(usize, Probe)>;

    /// A word of 32 bits of all arrays; 0 beyond them.
    fn word(&self, index: usize) -> u32;
}

/// Looks up a frame, even if the rules are disabled.
pub fn ask(view: &dyn ArrayView, frame: &Frame<'_>) -> Answer {
    let ends = Ends::of(frame);
    let mut undecided = ends.incomplete;
    for number in 0..view.probe_count() {
        let Some((first, probe)) = view.probe(number) else { continue };
        let is_set = |kind: u32, port: u32, address: [u32; 4]| {
            let [a, b, c, d] = address;
            let [e, f, g, h] = probe.net;
            let fields = [kind & probe.fields[0], port & probe.fields[1]];
            let key = [fields[0], fields[1], d & e, c & f, b & g, a & h];
            probe.hashes.iter().chain(probe.more_hashes.iter().flatten()).all(|hash| {
                let position = (u64::from(hash.hash(&key)) * probe.bits) >> 32;
                view.word(first + (position >> 5) as usize) >> (position & 31) & 1 == 1
            })
        };
        let names_protocol = probe.fields[0] & 0xff != 0;
        // Rules that name only a VLAN apply to frames of all kinds.
        let vlan_only = probe.names_vlan && !probe.names_port && !names_protocol;
        if vlan_only
            && probe.family == ProbeFamily::Both
            && ends.vlans().iter().any(|&vlan| is_set(u32::from(vlan) << 8, 0, [0; 4]))
        {
            return Answer::Maybe;
        }
        for packet in ends.packets().filter(|packet| concerns(probe.family, packet)) {
            if (probe.names_port && packet.ports == PortsSeen::Hidden)
                || (names_protocol && packet.protocol.is_none())
            {
                undecided = true;
                continue;
            }
            let (source, destination) = match packet.ports {
                PortsSeen::Known { source, destination } => (source, destination),
                _ if probe.names_port => continue,
                _ => (0, 0),
            };
            let protocol = u32::from(packet.protocol.unwrap_or(0));
            let both = [(source, packet.source), (destination, packet.destination)];
            let hit = both.iter().any(|&(port, address)| {
                let holds =
                    |vlan: u16| is_set(u32::from(vlan) << 8 | protocol, u32::from(port), address);
                match probe.names_vlan {
                    true => ends.vlans().iter().any(|&vlan| holds(vlan)),
                    false => holds(0),
                }
            });
            if hit {
                return Answer::Maybe;
            }
        }
    }
    if undecided { Answer::Undecided } else { Answer::No }
}

fn concerns(family: ProbeFamily, packet: &Packet) -> bool {
    match family {
        ProbeFamily::V4 => packet.kind == IpKind::V4,
        ProbeFamily::V6 => packet.kind == IpKind::V6,
        ProbeFamily::Both => true,
    }
}

/// Returns the frames of `among` that the rules do not reject.
pub fn decide(view: &dyn ArrayView, batch: &Batch<'_>, among: Mask) -> Decided {
    let mut decided = Decided { passed: among, undecided: Mask::EMPTY };
    let (enabled, negative) = view.switches();
    if !enabled || view.probe_count() == 0 {
        return decided;
    }
    for index in among.iter() {
        let frame = &batch.frames()[index];
        let rejected = if negative { Answer::Maybe } else { Answer::No };
        match ask(view, frame) {
            answer if answer == rejected => decided.passed.clear(index),
            Answer::Undecided => decided.undecided.set(index),
            _ => {}
        }
    }
    decided
}
