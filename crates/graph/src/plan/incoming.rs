//! Checks of nodes that get the frames of `xdp:IF` only: such frames are Ethernet and incoming. What contradicts that
//! is refused before anything is opened, so `fyke run --check` refuses it, too.
//!
//! Nodes after other sources get this check when the interfaces are open. Cost: O(nodes + edges).

use super::{Builder, Plan, PlanNode, blame};
use crate::language::TextError;
use crate::node::Kind;
use crate::runtime::as_pieces;
use fyke_capture::Interface;
use fyke_frame::LinkType;

/// The interface of a device at the driver, as far as its text shows it.
fn at_driver(node: &PlanNode) -> Option<Interface> {
    let name = node.settings.text("expression")?;
    let is_one = node.class.name == "device" && name.starts_with("xdp:");
    is_one.then(|| Interface { at_driver: true, ..Interface::new(name, LinkType::EN10MB) })
}

impl Builder<'_> {
    /// Refuses a node that gets incoming frames only and is for others.
    pub(super) fn check_incoming(
        &self,
        texts: &[&str],
        plan: &Plan,
        place: &[usize],
    ) -> Result<(), TextError> {
        let mut after: Vec<Option<Interface>> = Vec::with_capacity(plan.nodes.len());
        for (index, node) in plan.nodes.iter().enumerate() {
            if node.class.kind == Kind::Source {
                after.push(at_driver(node));
                continue;
            }
            let all: Option<Vec<_>> =
                node.feeds.iter().map(|feed| after[feed.from].clone()).collect();
            let first = all.and_then(|all| all.into_iter().next());
            if let (Some(interface), Some(check)) = (&first, node.class.check) {
                let draft = place.iter().position(|&at| at == index).unwrap_or_default();
                let draft = &self.drafts[draft];
                check(&node.settings.after(vec![interface.clone()]))
                    .map_err(|error| blame(texts[draft.text], &draft.written, &error))?;
            }
            after.push(match (node.class.emits_pieces)(&node.settings) {
                true => first.as_ref().map(as_pieces),
                false => first,
            });
        }
        Ok(())
    }
}
