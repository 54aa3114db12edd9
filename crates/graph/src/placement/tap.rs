//! Rules of a Bloom pre-filter in the space below: frames that they reject do not reach the device.
//!
//! A node `bloom` that gets all frames of a device, and from which alone the other nodes get them, may have its rules
//! there, too. The tap rejects a part of what the node rejects; the node decides about the rest. While an edit of the
//! graph uses the device's frames in another way, the tap is off. Where other nodes need the frames, or the kernel
//! cannot have the rules, the node judges all of them by the same rules.

use super::interfaces_of;
use crate::plan::{Feed, Plan, PlanNode};
use crate::rules::{RuleSet, RulesPart};
use crate::runtime::Made;
use fyke_capture::{FilterSocket, Interface, SocketFilter};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Rules of an interface, in a space below the graph, before its filters, or in user space only.
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

    /// Reason why the space below does not have the rules, so that the node judges every frame.
    fn why_in_user(&self) -> Option<String> {
        None
    }

    /// Numbers of the arrays and of the interface by which other processes find the rules, if these are the rules of
    /// the interface and this process owns them.
    fn owned(&self) -> Option<OwnedArrays>;
}

/// Rules that this process owns, for other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedArrays {
    /// Number of the map with the arrays.
    pub map: u32,
    /// Number of the interface.
    pub interface: u32,
}

/// Reason why there are no rules of an interface for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRules {
    /// The node has rules of its own, in user space.
    Alone(String),
    /// The interface has, or may have, rules that cannot be read: the graph must not start.
    Refused(String),
}

/// Demands on the rules of an interface.
#[derive(Debug, Clone)]
pub struct RulesWanted {
    /// True for those of the interface, which another process may own.
    pub shared: bool,
    /// Reason why the node has to judge every frame in user space.
    pub in_user: Option<String>,
}

/// A node with rules of an interface.
#[derive(Clone)]
pub struct TapPlace {
    /// Key of the node.
    pub node: u64,
    /// The rules of each interface of the device.
    pub parts: Vec<PartPlace>,
}

/// The rules of one interface.
#[derive(Clone)]
pub struct PartPlace {
    /// The interface.
    pub interface: String,
    /// The rules; `None` if they are of the node alone.
    pub tap: Option<Arc<dyn RulesTap>>,
    /// The reason why they are not in the space below, if they are not.
    pub below: Result<(), String>,
    /// The reason why the graph must not start.
    pub refused: Option<String>,
    rules: RuleSet,
}

impl fmt::Debug for TapPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapPlace").field("node", &self.node).field("parts", &self.parts).finish()
    }
}

impl fmt::Debug for PartPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tap = self.tap.as_ref().map(|tap| tap.describe());
        let mut shown = f.debug_struct("PartPlace");
        shown.field("interface", &self.interface).field("tap", &tap);
        shown.field("below", &self.below).finish_non_exhaustive()
    }
}

/// Makes the rules of an interface.
type Make<'m> =
    dyn Fn(&Interface, &RuleSet, &RulesWanted) -> Result<Arc<dyn RulesTap>, NoRules> + 'm;

/// A filter that passes every frame, for an interface without a tap beside others with one.
struct Open;

impl SocketFilter for Open {
    fn take_socket(&self, _socket: Arc<FilterSocket>) -> io::Result<()> {
        Ok(())
    }

    fn rejected(&self) -> Option<u64> {
        Some(0)
    }
}

/// Index of the node that has rules for all frames of a device, or of several: the only one after it, for which nothing
/// asks for the frames that it rejects.
fn node_after(plan: &Plan, device: usize) -> Option<usize> {
    let (Some(at), None) = ends_of(plan, device) else { return None };
    let node = &plan.nodes[at];
    let is_alone = |feed: &Feed| feed.class.is_none() && is_device(&plan.nodes[feed.from]);
    let fits = has_rules(node) && !node.inverted && !node.exported;
    (fits && node.feeds.iter().all(is_alone)).then_some(at)
}

/// The first two nodes after a node.
fn ends_of(plan: &Plan, from: usize) -> (Option<usize>, Option<usize>) {
    let fed = |at: &usize| plan.nodes[*at].feeds.iter().any(|feed| feed.from == from);
    let mut after = (0..plan.nodes.len()).filter(fed);
    (after.next(), after.next())
}

fn has_rules(node: &PlanNode) -> bool {
    node.class.name == "bloom" && !node.settings.flag("own").unwrap_or(true)
}

/// Place of the rules of a node directly after a device, for a graph that is not open.
pub(super) struct Described {
    /// The place, in a line; empty for a further device before the same node.
    pub line: String,
    /// True if the kernel may have them.
    pub below: bool,
}

/// Describes where the rules for the frames of a device would be; `None` without a node that has some.
pub(super) fn describe(plan: &Plan, device: usize) -> Option<Described> {
    let with_rules = (0..plan.nodes.len()).filter(|&at| has_rules(&plan.nodes[at]));
    let mut places = with_rules.map(|at| (at, devices_before(plan, at, &mut true)));
    let (at, devices) = places.find(|(_, devices)| devices.contains(&device))?;
    let count: usize =
        devices.iter().map(|&device| plan.nodes[device].interface_names().count()).sum();
    let shared = is_shared(plan, at);
    let of_several = (count > 1 && !shared).then(|| OF_SEVERAL.to_owned());
    let why = why_in_user(plan, at, device).or(of_several);
    let rules = match (shared, count > 1) {
        (true, true) => "the rules of each interface",
        (true, false) => "the rules of the interface",
        (false, _) => "its rules",
    };
    let place = match &why {
        None => "in the kernel, too, if it can have them there".to_owned(),
        Some(why) => format!("in user space only: {why}"),
    };
    let line = match devices.first() == Some(&device) {
        true => format!("{}: {rules} {place}\n", plan.nodes[at].name),
        false => String::new(),
    };
    Some(Described { line, below: why.is_none() })
}

fn is_device(node: &PlanNode) -> bool {
    node.class.name == "device" && !node.exported
}

/// The devices from which a node gets frames: directly, or by nodes that keep all of them or those of one direction;
/// empty if it gets others. `alone` becomes false if other nodes get these frames, too.
fn devices_before(plan: &Plan, at: usize, alone: &mut bool) -> Vec<usize> {
    let mut devices = Vec::new();
    for feed in &plan.nodes[at].feeds {
        let from = &plan.nodes[feed.from];
        *alone &= ends_of(plan, feed.from).1.is_none();
        match from.class.name {
            _ if feed.class.is_some() || from.inverted => return Vec::new(),
            "device" => devices.push(feed.from),
            // `accept` passes all of them, or those of one direction.
            "keep" | "accept" => devices.extend(devices_before(plan, feed.from, alone)),
            _ => return Vec::new(),
        }
    }
    devices
}

/// True if a node gets frames of one direction only.
fn is_narrowed(plan: &Plan, at: usize) -> bool {
    let narrows = |feed: &Feed| plan.nodes[feed.from].settings.text("direction").is_some();
    plan.nodes[at].feeds.iter().any(narrows)
}

/// Reason for which rules of a graph are in user space.
const OF_SEVERAL: &str = "they are for the frames of several interfaces";

/// Reason why a node has to judge every frame of a device in user space, if there is one.
fn why_in_user(plan: &Plan, at: usize, device: usize) -> Option<String> {
    let why = match is_narrowed(plan, at) {
        true => "they are for frames of one direction",
        false => "other nodes need the frames that they reject",
    };
    (node_after(plan, device) != Some(at)).then(|| why.to_owned())
}

/// True if the rules of a node are those of its interface: its text has none.
fn is_shared(plan: &Plan, at: usize) -> bool {
    let settings = &plan.nodes[at].settings;
    ["expression", "enable", "negative"].iter().all(|name| settings.text(name).is_none())
}

/// Makes the rules of all nodes that get the frames of devices, by `make`. Returns them with the index of the device.
pub(super) fn make_all(
    plan: &Plan,
    made: &[(u64, Made)],
    make: &Make<'_>,
) -> Vec<(usize, TapPlace)> {
    let mut places: Vec<(usize, TapPlace)> = Vec::new();
    for at in (0..plan.nodes.len()).filter(|&at| has_rules(&plan.nodes[at])) {
        let mut alone = !plan.nodes[at].inverted;
        let devices = devices_before(plan, at, &mut alone);
        let node = plan.nodes[at].key;
        let rules = super::node_of(made, node).and_then(|node| node.rules());
        let Some(rules) = rules.filter(|_| !devices.is_empty()) else { continue };
        if alone {
            rules.set_deciding();
        }
        for (device, place) in make_of(plan, at, &devices, rules, made, make) {
            // Where several nodes have rules, all of them are in user space.
            match places.iter_mut().find(|(known, _)| *known == device) {
                Some((_, known)) => known.parts.extend(place.parts),
                None => places.push((device, place)),
            }
        }
    }
    places
}

/// Makes the rules of one node.
fn make_of(
    plan: &Plan,
    at: usize,
    devices: &[usize],
    rules: &RuleSet,
    made: &[(u64, Made)],
    make: &Make<'_>,
) -> Vec<(usize, TapPlace)> {
    let shared = is_shared(plan, at);
    let of = |device: usize| interfaces_of(made, plan.nodes[device].key).unwrap_or_default();
    let several = devices.iter().map(|&device| of(device).len()).sum::<usize>() > 1;
    let mut divided: Vec<RulesPart> = Vec::new();
    let mut places = Vec::new();
    for &device in devices {
        let wanted = RulesWanted { shared, in_user: why_in_user(plan, at, device) };
        let mut parts = Vec::new();
        for interface in of(device) {
            let known = divided.iter().find(|part| part.interface == interface.name);
            let own = match known {
                Some(known) => known.rules.clone(),
                None if several && shared => rules.of_same_size(),
                None => rules.clone(),
            };
            let tap = match several && !shared {
                true => Err(NoRules::Alone(OF_SEVERAL.to_owned())),
                false => make(&interface, &own, &wanted),
            };
            if several && shared && known.is_none() {
                let (interface, rules) = (interface.name.clone(), own.clone());
                divided.push(RulesPart { interface, ifindex: 0, rules });
            }
            parts.push(PartPlace::new(interface.name, own, tap));
        }
        places.push((device, TapPlace { node: plan.nodes[at].key, parts }));
    }
    if !divided.is_empty() {
        rules.divide(divided);
    }
    places
}

impl PartPlace {
    fn new(
        interface: String,
        rules: RuleSet,
        tap: Result<Arc<dyn RulesTap>, NoRules>,
    ) -> PartPlace {
        let (tap, below, refused) = match tap {
            Ok(tap) => {
                let below = tap.why_in_user().map_or(Ok(()), Err);
                (Some(tap), below, None)
            }
            Err(NoRules::Alone(why)) => (None, Err(why), None),
            Err(NoRules::Refused(why)) => (None, Err(why.clone()), Some(why)),
        };
        PartPlace { interface, tap, below, refused, rules }
    }

    /// The rules, if the space below may have them.
    pub(super) fn in_space(&self) -> Option<&Arc<dyn RulesTap>> {
        self.tap.as_ref().filter(|_| self.below.is_ok())
    }

    /// Describes where the rules are, for the start of a capture.
    pub fn in_words(&self) -> String {
        match (&self.tap, &self.below) {
            (Some(tap), Ok(())) => format!("{}, in the kernel, too", tap.describe()),
            (Some(tap), Err(why)) => format!("{}; in user space only: {why}", tap.describe()),
            (None, Ok(())) => String::new(),
            (None, Err(why)) => {
                format!("rules of this capture alone, in user space only: {why}")
            }
        }
    }
}

impl TapPlace {
    /// Gives the taps alone to the sockets of a source: there is no filter after them.
    pub(super) fn filters(&self) -> Option<Vec<Arc<dyn SocketFilter>>> {
        self.parts.iter().find_map(PartPlace::in_space)?;
        let filter = |part: &PartPlace| match part.in_space() {
            Some(tap) => Arc::clone(tap) as Arc<dyn SocketFilter>,
            None => Arc::new(Open),
        };
        Some(self.parts.iter().map(filter).collect())
    }

    /// Notes that the space below does not have the rules.
    pub(super) fn stay_in_user(&mut self, why: &str) {
        let below = self.parts.iter_mut().filter(|part| part.below.is_ok());
        below.for_each(|part| part.below = Err(why.to_owned()));
    }

    /// Switches the rules in the space below on or off.
    pub(super) fn set_on(&self, on: bool) {
        self.parts.iter().filter_map(PartPlace::in_space).for_each(|tap| tap.set_on(on));
    }

    /// Gives the rules of the node their taps, once they have sockets.
    pub(super) fn connect(&self) {
        self.set_on(true);
        for part in &self.parts {
            if let Some(tap) = part.in_space() {
                let tap = Arc::clone(tap);
                part.rules.count_below(move || tap.rejected_by_rules());
            }
        }
    }

    /// True if the space below has rules.
    pub fn is_below(&self) -> bool {
        self.parts.iter().any(|part| part.in_space().is_some())
    }

    /// True if an edited graph uses the rules as before; `stays` has the old keys of the nodes that stay.
    pub(super) fn fits(&self, plan: &Plan, device: usize, stays: &HashMap<u64, u64>) -> bool {
        let stays = |node: &PlanNode| stays.get(&node.key) == Some(&self.node);
        match self.is_below() {
            true => node_after(plan, device).is_some_and(|at| stays(&plan.nodes[at])),
            false => plan.nodes.iter().any(stays),
        }
    }
}
