//! Describes where the filters and rules of a graph run, and why not in a lower space.

use super::wanted::{Held, Wanted};
use super::{by_class, chain, devices, tap};
use crate::node::Needs;
use crate::plan::Plan;
use fyke_capture::Interface;

/// A filter or demultiplexer after a device, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodePlace {
    /// Key of the node.
    pub key: u64,
    /// Its name.
    pub name: String,
    /// Reason why it runs in user space only.
    pub why_not: Option<String>,
}

/// The places of the filters and demultiplexers after a device, in the order of the plan.
pub(super) fn places(
    plan: &Plan,
    device: usize,
    wanted: &Wanted,
    interfaces: &[Interface],
) -> Vec<NodePlace> {
    let chain = chain::find(plan, wanted, interfaces);
    let place = |at: usize| {
        let node = &plan.nodes[at];
        let is_first = wanted.consumers.iter().any(|one| one.at == at);
        let own = match (node.class.needs)(&node.settings.after(interfaces.to_vec())) {
            Needs::All(why) => Some(format!("it {why}")),
            _ => None,
        };
        let why_not = match &wanted.all {
            Some(_) if own.is_some() => own,
            Some(why) if is_first => Some(why.clone()),
            None if is_first || chain.contains(&at) => None,
            _ => Some(chain::why_not(plan, at, &chain, interfaces)),
        };
        NodePlace { key: node.key, name: node.name.clone(), why_not }
    };
    let nodes = after(plan, device).into_iter();
    nodes.filter(|&at| plan.nodes[at].class.filters.is_some()).map(place).collect()
}

/// Describes where the filters and rules after devices would run, a line for each; opens nothing.
pub fn describe(plan: &Plan) -> String {
    let mut held = Held::new();
    // Without a check of its own, making a node only checks and allocates.
    let made = plan.nodes.iter().filter(|node| node.class.edits && node.class.check.is_none());
    for node in made {
        let made = (node.class.make)(&node.settings).ok();
        held.insert(node.key, made.and_then(|node| node.held()));
    }
    let of_devices = devices(plan).map(|(device, _)| of_device(plan, device, &held));
    let of_devices: Vec<_> = of_devices.collect();
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: String| {
        // A node after several devices has a line for all of them.
        if !line.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    };
    for (device, (own, places)) in devices(plan).map(|(at, _)| at).zip(&of_devices) {
        own.iter().cloned().for_each(&mut add);
        // Where devices differ, the line of a node names its device.
        let differs = |place: &&NodePlace| {
            let others = of_devices.iter().flat_map(|(_, places)| places);
            others.filter(|other| other.key == place.key).any(|other| other != *place)
        };
        let (apart, alike): (Vec<_>, Vec<_>) = places.iter().partition(differs);
        let name = &plan.nodes[device].name;
        in_lines(plan, device, &alike, "").into_iter().for_each(&mut add);
        in_lines(plan, device, &apart, &format!("after {name}, ")).into_iter().for_each(&mut add);
    }
    lines.concat()
}

/// The lines of nodes: one for all that run below, and one for each other.
fn in_lines(plan: &Plan, device: usize, places: &[&NodePlace], after: &str) -> Vec<String> {
    let below = places.iter().filter(|place| place.why_not.is_none());
    let names: Vec<_> = below.map(|place| place.name.as_str()).collect();
    let several = plan.nodes[device].interface_names().count() > 1;
    let each = if several { ", for each interface" } else { "" };
    let below = (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("{names}: {after}in the kernel, too, if it can filter there{each}\n")
    });
    let above = places.iter().filter_map(|place| {
        let why = place.why_not.as_ref()?;
        Some(format!("{}: {after}in user space only: {why}\n", place.name))
    });
    below.into_iter().chain(above).collect()
}

/// The lines of a device, and the places of the nodes after it.
fn of_device(plan: &Plan, index: usize, held: &Held) -> (Vec<String>, Vec<NodePlace>) {
    let device = &plan.nodes[index];
    let mut wanted = Wanted::of(plan, index, &[], held);
    if wanted.all.is_none() && is_unfiltered(plan, &wanted) {
        wanted.all = Some("no filter rejects a frame".to_owned());
    }
    let rules = tap::describe(plan, index);
    let below = rules.as_ref().is_some_and(|rules| rules.below);
    let that_pass = if below { " that passes the rules" } else { "" };
    let mut lines: Vec<_> = rules.into_iter().map(|rules| rules.line).collect();
    lines.extend(own_rules(plan, index));
    lines.extend(by_class::describe(device, &wanted));
    if let Some(why) = &wanted.all {
        lines.push(format!("{}: the kernel passes every frame{that_pass}: {why}\n", device.name));
    }
    let places = places(plan, index, &wanted, &[]);
    (lines, places)
}

/// True if one of the branches after a device begins with filters without a text, so that it gets every frame.
fn is_unfiltered(plan: &Plan, wanted: &Wanted) -> bool {
    let chain = chain::find(plan, wanted, &[]);
    let has_text = |at: usize| {
        let text = plan.nodes[at].settings.text("expression").unwrap_or_default();
        !text.trim().is_empty()
    };
    let firsts = wanted.consumers.iter().filter(|one| one.has_filters).map(|one| one.at);
    firsts.into_iter().any(|at| match chain.first() == Some(&at) {
        true => !chain.iter().any(|&at| has_text(at)),
        false => !has_text(at),
    })
}

/// A line for each pre-filter after a device that has rules of its own.
fn own_rules(plan: &Plan, device: usize) -> Vec<String> {
    let nodes = after(plan, device).into_iter().map(|at| &plan.nodes[at]);
    let has_own = nodes
        .filter(|node| node.class.name == "bloom" && node.settings.flag("own").unwrap_or(false));
    has_own.map(|node| format!("{}: its rules in user space only: own=y\n", node.name)).collect()
}

/// Indices of the nodes that get frames of a device, in the order of the plan.
fn after(plan: &Plan, device: usize) -> Vec<usize> {
    let mut gets = vec![false; plan.nodes.len()];
    gets[device] = true;
    for (at, node) in plan.nodes.iter().enumerate() {
        gets[at] |= node.feeds.iter().any(|feed| gets[feed.from]);
    }
    (0..gets.len()).filter(|&at| gets[at] && at != device).collect()
}
