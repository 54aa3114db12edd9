//! Rules of a Bloom pre-filter in the space below: frames that they reject do not reach the device.
//!
//! A node `bloom` that gets all frames of a device, and from which alone the other nodes get them, may have its rules
//! there, too. The tap rejects a part of what the node rejects; the node decides about the rest. While an edit of the
//! graph uses the device's frames in another way, the tap is off.

use crate::plan::{Feed, Plan, PlanNode};
use crate::rules::RuleSet;
use crate::runtime::Made;
use fyke_capture::{Interface, SocketFilter};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Rules in a space below the graph, before its filters.
pub trait RulesTap: SocketFilter {
    /// Sets the program that gets the frames that pass the rules while it is [used](Self::set_following); called
    /// before [`begin`](Self::begin).
    ///
    /// # Errors
    /// The kernel refuses the program.
    fn follow(&self, program: BorrowedFd<'_>) -> io::Result<()>;

    /// Gives frames that pass the rules to the program that follows, or to the source.
    fn set_following(&self, follows: bool);

    /// Called once the process has given up its rights and may start threads.
    fn begin(&self) {}

    /// Switches the rules on or off. Off, every frame passes.
    fn set_on(&self, on: bool);

    /// Number of frames that the rules rejected.
    fn rejected_by_rules(&self) -> u64;

    /// Describes the owner of the rules, for the start of a capture.
    fn describe(&self) -> String;

    /// Number by which other processes find the arrays, if these are the rules of the interface and this process owns
    /// them.
    fn number(&self) -> Option<u32>;
}

/// A node with rules, and the tap that has them, too; or the reason for none.
#[derive(Clone)]
pub struct TapPlace {
    /// Key of the node.
    pub node: u64,
    /// The tap, or the reason why the rules are in user space only.
    pub tap: Result<Arc<dyn RulesTap>, String>,
}

impl fmt::Debug for TapPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tap = self.tap.as_ref().map(|tap| tap.describe());
        f.debug_struct("TapPlace").field("node", &self.node).field("tap", &tap).finish()
    }
}

/// Index of the node that has rules for all frames of a device, or of several: the only one after it, for which nothing
/// asks for the frames that it rejects.
pub(super) fn node_after(plan: &Plan, device: usize) -> Option<usize> {
    let fed = |at: &usize| plan.nodes[*at].feeds.iter().any(|feed| feed.from == device);
    let mut after = (0..plan.nodes.len()).filter(fed);
    let (Some(at), None) = (after.next(), after.next()) else { return None };
    let node = &plan.nodes[at];
    let is_alone = |feed: &Feed| feed.class.is_none() && is_device(&plan.nodes[feed.from]);
    let is_own = node.settings.flag("own").unwrap_or(true);
    let fits = node.class.name == "bloom" && !is_own && !node.inverted && !node.exported;
    (fits && node.feeds.iter().all(is_alone)).then_some(at)
}

/// Place of the rules of a node directly after a device, for a graph that is not open.
pub(super) struct Described {
    /// The place, in a line; empty for a further device before the same node.
    pub line: String,
    /// True if the kernel may have them.
    pub below: bool,
}

/// Describes where the rules of the node directly after a device would be; `None` without such a node.
pub(super) fn describe(plan: &Plan, device: usize) -> Option<Described> {
    let at = node_after(plan, device)?;
    let node = &plan.nodes[at];
    let below = plan.nodes[device].interface_names().count() == 1 && node.feeds.len() == 1;
    let place = match below {
        true => "in the kernel, too, if it can have them there",
        false => "in user space only: they are for the frames of several interfaces",
    };
    let rules = if is_shared(plan, at) { "the rules of the interface" } else { "its rules" };
    let is_first = node.feeds.first().is_some_and(|feed| feed.from == device);
    let line = if is_first { format!("{}: {rules} {place}\n", node.name) } else { String::new() };
    Some(Described { line, below })
}

fn is_device(node: &PlanNode) -> bool {
    node.class.name == "device" && !node.exported
}

/// True if the rules of a node are those of its interface: its text has none.
pub(super) fn is_shared(plan: &Plan, at: usize) -> bool {
    let settings = &plan.nodes[at].settings;
    ["expression", "enable", "negative"].iter().all(|name| settings.text(name).is_none())
}

impl TapPlace {
    /// Makes a tap for the rules of a node by `make`.
    pub(super) fn make(
        plan: &Plan,
        at: usize,
        made: &[(u64, Made)],
        interface: Option<&Interface>,
        make: impl FnOnce(&Interface, &RuleSet, bool) -> Result<Arc<dyn RulesTap>, String>,
    ) -> TapPlace {
        let node = plan.nodes[at].key;
        let rules = super::node_of(made, node).and_then(|node| node.rules());
        let interface = interface.filter(|_| plan.nodes[at].feeds.len() == 1);
        let tap = match (interface, rules) {
            (Some(interface), Some(rules)) => make(interface, rules, is_shared(plan, at)),
            (None, _) => Err("they are for the frames of several interfaces".to_owned()),
            (_, None) => Err("the node has none".to_owned()),
        };
        TapPlace { node, tap }
    }

    /// Gives the rules of the node their tap, once it has a socket.
    pub(super) fn connect(&self, made: &[(u64, Made)]) {
        let rules = super::node_of(made, self.node).and_then(|node| node.rules());
        if let (Ok(tap), Some(rules)) = (&self.tap, rules) {
            tap.set_on(true);
            let tap = Arc::clone(tap);
            rules.count_below(move || tap.rejected_by_rules());
        }
    }

    /// True if an edited graph uses the rules as before; `stays` has the old keys of the nodes that stay.
    pub(super) fn fits(&self, plan: &Plan, device: usize, stays: &HashMap<u64, u64>) -> bool {
        let node = node_after(plan, device).map(|at| plan.nodes[at].key);
        node.is_some_and(|key| stays.get(&key) == Some(&self.node))
    }

    /// Describes where the rules are, for the start of a capture.
    pub fn in_words(&self) -> String {
        match &self.tap {
            Ok(tap) => format!("{}, in the kernel, too", tap.describe()),
            Err(why) => format!("the rules are in user space only: {why}"),
        }
    }
}
