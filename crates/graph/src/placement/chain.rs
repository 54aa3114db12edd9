//! Chains of filters after a device: the lower space also rejects what the later ones reject, and counts for each
//! ([`Chain`]).
//!
//! A filter belongs to a chain if only the next filter gets its frames, and nothing else depends on them: no end of a
//! graph, no look-back, no tracker that edits it, no scope. Of the branches after a device, the first one with a chain
//! has it; the first filters of the others run below alone.

use super::LowerFilter;
use super::wanted::{Wanted, edited, netmask_of};
use crate::node::Needs;
use crate::plan::{Plan, PlanNode};
use crate::runtime::NodeView;
use fyke_capture::{DEFAULT_SNAPLEN, Interface, LATER};
use fyke_filters::{Chain, FilterCounts, FilterSet, Superset, Union};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const _: () = assert!(LATER == fyke_filters::LATER);

/// Reason for which a filter after another one is in user space only.
const COUNTS: &str = "a filter before it counts the frames that it accepts";

/// The chain of a device, if it has one: indices of its filters.
pub(super) fn find(plan: &Plan, wanted: &Wanted, interfaces: &[Interface]) -> Vec<usize> {
    if wanted.all.is_some() {
        return Vec::new();
    }
    let firsts = wanted.consumers.iter().filter(|one| one.has_filters && one.texts.is_empty());
    let chains = firsts.map(|one| {
        let next = |&at: &usize| {
            let after = followers(plan, at).next()?;
            link(plan, at, after, interfaces).is_ok().then_some(after)
        };
        std::iter::successors(Some(one.at), next).take(LATER).collect::<Vec<_>>()
    });
    chains.into_iter().find(|chain| chain.len() > 1).unwrap_or_default()
}

/// Indices of the nodes that get frames of a node.
fn followers(plan: &Plan, at: usize) -> impl Iterator<Item = usize> {
    let fed = move |node: &PlanNode| node.feeds.iter().any(|feed| feed.from == at);
    (0..plan.nodes.len()).filter(move |&next| fed(&plan.nodes[next]))
}

/// Checks that a filter and the one after it may be neighbours in a chain.
fn link(plan: &Plan, at: usize, next: usize, interfaces: &[Interface]) -> Result<(), String> {
    let (node, after) = (&plan.nodes[at], &plan.nodes[next]);
    let (name, after_name) = (&node.name, &after.name);
    if let Some(other) = followers(plan, at).find(|&other| other != next) {
        return Err(format!("{} gets them, too", plan.nodes[other].name));
    }
    if !node.ends.is_empty() {
        return Err(format!("{name} is the end of a graph"));
    }
    if after.inverted || after.feeds.iter().any(|feed| feed.class.is_some()) {
        return Err(format!("{after_name} gets some of them only"));
    }
    for at in [at, next] {
        alone(plan, at, interfaces)?;
    }
    Ok(())
}

/// Checks that a filter evaluates every frame by its texts alone.
fn alone(plan: &Plan, at: usize, interfaces: &[Interface]) -> Result<(), String> {
    let node = &plan.nodes[at];
    let (name, settings) = (&node.name, node.settings.after(interfaces.to_vec()));
    let [feed] = &node.feeds[..] else {
        return Err(format!("{name} gets frames of several nodes"));
    };
    let before = &plan.nodes[feed.from];
    let cut = before.settings.text("snaplen").and_then(|text| text.parse::<u32>().ok());
    if let Some(bytes) = cut.filter(|&bytes| bytes < DEFAULT_SNAPLEN) {
        return Err(format!("{name} sees the first {bytes} bytes of frames, the kernel all"));
    }
    if before.class.name != "device" && before.class.filters.is_none() {
        return Err(format!("{} before {name} counts its frames, too", before.name));
    }
    match (node.class.needs)(&settings) {
        Needs::Filters { also } if also.is_none() => {}
        Needs::Filters { .. } => return Err(format!("{name} skips tags")),
        Needs::All(why) => return Err(format!("{name} {why}")),
        _ => return Err(format!("{name} has no texts that can be edited")),
    }
    if settings.flag("lookback").unwrap_or(true) {
        return Err(format!("{name} looks back at frames that it rejected"));
    }
    let edits = |other: &PlanNode, index| other.class.edits && edited(plan, index) == Some(at);
    let editor = plan.nodes.iter().enumerate().find(|(index, other)| edits(other, *index));
    editor.map_or(Ok(()), |(_, editor)| Err(format!("{} edits {name}", editor.name)))
}

/// Reason why a filter that is not directly after a device runs in user space only.
pub(super) fn why_not(plan: &Plan, at: usize, chain: &[usize], interfaces: &[Interface]) -> String {
    let node = &plan.nodes[at];
    if let Needs::All(why) = (node.class.needs)(&node.settings.after(interfaces.to_vec())) {
        return format!("it {why}");
    }
    let [feed] = &node.feeds[..] else {
        return "it gets frames of several nodes".to_owned();
    };
    let before = &plan.nodes[feed.from];
    if before.class.filters.is_none() {
        return format!("{} before it runs in user space", before.name);
    }
    match link(plan, feed.from, at, interfaces) {
        Err(why) => counts(&why),
        Ok(()) if chain.is_empty() => format!("{} before it runs in user space", before.name),
        Ok(()) => counts("another branch has a chain already"),
    }
}

/// The reason of a filter after another one, with a detail.
pub(super) fn counts(why: &str) -> String {
    format!("{COUNTS}, and {why}")
}

/// A set of filters, and the lower space that it was given.
pub(super) type Given = (FilterSet, Arc<dyn Superset>);

/// A chain in force.
#[derive(Clone)]
pub(super) struct Chained {
    /// Keys of its filters.
    pub keys: Vec<u64>,
    pub chain: Chain,
    given: Vec<Given>,
}

impl Chained {
    /// Makes a chain of these filters: the lower filter passes what it needs when this returns.
    ///
    /// # Errors
    /// The reason why the first filter must run below alone.
    pub fn new(
        keys: Vec<u64>,
        sets: impl Fn(u64) -> Option<FilterSet>,
        netmask: u32,
        union: &Union,
        lower: &Arc<dyn LowerFilter>,
    ) -> Result<Chained, String> {
        if let Some(why) = lower.why_not_later() {
            return Err(why);
        }
        let sets: Option<Vec<_>> = keys.iter().map(|&key| sets(key)).collect();
        let sets = sets.ok_or("one of the filters cannot be edited")?;
        if sets.iter().any(|set| netmask_of(set) != netmask) {
            return Err("they are read with different netmasks".to_owned());
        }
        let reader = Arc::clone(lower);
        let space = Arc::clone(lower) as Arc<dyn Superset>;
        let chain = Chain::new(union, space, keys.len(), move || reader.later());
        let give = |(at, set): (usize, FilterSet)| {
            let superset: Arc<dyn Superset> = Arc::new(chain.link(at));
            set.add_superset(Arc::clone(&superset));
            (set, superset)
        };
        let given = sets.into_iter().enumerate().map(give).collect();
        Ok(Chained { keys, chain, given })
    }

    /// Ends it; what only it needs passes no longer.
    pub fn end(&self) {
        self.given.iter().for_each(|(set, superset)| set.remove_superset(superset));
        self.chain.stand_apart(Some("it has ended"));
        fyke_capture::grace_period();
        self.chain.leave();
    }

    /// The counts of the chain, for the running graph.
    pub fn below(&self, device: u64) -> Below {
        let nodes = self.keys.iter().copied().map(Some).collect();
        Below { device: Some(device), nodes, chain: self.chain.clone() }
    }
}

/// Frames that the lower space of a device rejected for later filters of a chain, as counts of the nodes.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    /// Key of the device; `None` once an edit has removed it.
    pub device: Option<u64>,
    /// Keys of the filters.
    nodes: Vec<Option<u64>>,
    chain: Chain,
}

impl Below {
    /// Follows an edit of the graph; `stays` has the old keys by the new ones.
    pub fn follow(&mut self, stays: &HashMap<u64, u64>) {
        let new = |old: Option<u64>| {
            let pair = stays.iter().find(|(_, known)| Some(**known) == old)?;
            Some(*pair.0)
        };
        self.device = new(self.device);
        self.nodes.iter_mut().for_each(|node| *node = new(*node));
    }

    /// Adds the counts to those of the nodes: a filter has seen what the filters before it accepted. `later` are those
    /// of the device's lower space at the same moment.
    pub fn add(&self, later: &[u64; LATER], nodes: &mut [NodeView]) {
        let counts = self.chain.counts(later);
        let of = |key: Option<u64>| move |node: &&mut NodeView| Some(node.key) == key;
        if let Some(device) = nodes.iter_mut().find(of(self.device)) {
            device.counts.passed += counts.total();
            device.counts.rejected = device.counts.rejected.saturating_sub(counts.total());
        }
        for (key, one) in self.nodes.iter().zip(counts.0) {
            let Some(node) = nodes.iter_mut().find(of(*key)) else { continue };
            node.counts.arrived += one.arrived;
            node.counts.passed += one.passed;
            node.counts.rejected += one.arrived - one.passed;
            if let Some(filters) = &mut node.filters {
                add_to_texts(Arc::make_mut(filters), &one.texts);
            }
        }
    }
}

/// Adds the counts of texts; a text that is not there has been removed.
fn add_to_texts(filters: &mut FilterCounts, texts: &BTreeMap<u64, u64>) {
    for (id, count) in texts {
        match filters.filters.iter_mut().find(|filter| filter.id == *id) {
            Some(filter) => filter.accepted += count,
            None => filters.removed += count,
        }
        filters.credited += count;
    }
}
