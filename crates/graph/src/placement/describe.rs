//! Describes where the filters and rules of a graph run, and why not in a lower space.

use super::{Held, Wanted, by_class, devices, tap};
use crate::node::Needs;
use crate::plan::Plan;

/// Reason for which a filter after another one is in user space only.
pub(super) const LATER: &str = "a filter before it counts the frames that it accepts";

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
    let mut lines: Vec<String> = Vec::new();
    for line in of_devices.flatten().filter(|line| !line.is_empty()) {
        // A node after several devices has a line for all of them.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

/// The lines of a device.
fn of_device(plan: &Plan, index: usize, held: &Held) -> Vec<String> {
    let device = &plan.nodes[index];
    let wanted = Wanted::of(plan, index, &[], held);
    let rules = tap::describe(plan, index);
    let below = rules.as_ref().is_some_and(|rules| rules.below);
    let that_pass = if below { " that passes the rules" } else { "" };
    let mut lines: Vec<_> = rules.into_iter().map(|rules| rules.line).collect();
    lines.extend(own_rules(plan, index));
    lines.extend(by_class::describe(device, &wanted));
    if let Some(why) = wanted.all {
        lines.push(format!("{}: the kernel passes every frame{that_pass}: {why}\n", device.name));
        return lines;
    }
    let names = wanted.consumers.iter().map(|one| plan.nodes[one.at].name.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let each = if device.interface_names().count() > 1 { ", for each interface" } else { "" };
    lines.push(format!("{names}: in the kernel, too, if it can filter there{each}\n"));
    let later = later(plan, index).into_iter();
    lines.extend(later.map(|name| format!("{name}: in user space only: {LATER}\n")));
    lines
}

/// A line for each pre-filter after a device that has rules of its own.
fn own_rules(plan: &Plan, device: usize) -> Vec<String> {
    let nodes = after(plan, device).into_iter().map(|at| &plan.nodes[at]);
    let has_own = nodes
        .filter(|node| node.class.name == "bloom" && node.settings.flag("own").unwrap_or(false));
    has_own.map(|node| format!("{}: its rules in user space only: own=y\n", node.name)).collect()
}

/// Names of the filters after a device that a lower space never has, because other filters come before them.
pub(super) fn later(plan: &Plan, device: usize) -> Vec<String> {
    let first = Wanted::of(plan, device, &[], &Held::new()).consumers;
    let is_later = |at: &usize| {
        let node = &plan.nodes[*at];
        let filters = match (node.class.needs)(&node.settings) {
            Needs::Texts(_) | Needs::Classes(_) | Needs::Filters { .. } => true,
            Needs::All(_) | Needs::ThoseAfter => false,
        };
        filters && first.iter().all(|one| one.at != *at)
    };
    let nodes = after(plan, device).into_iter().filter(is_later);
    nodes.map(|at| plan.nodes[at].name.clone()).collect()
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
