//! Finds the nodes of a running graph that stay when its texts are edited.
//!
//! A node stays if the new plan has an equal node at the equal position. A node also stays if only its parameters
//! differ, it has a tag to identify it, and its class accepts new values of these parameters while it runs. Then the
//! nodes after it stay too. Cost: O(nodes · edges) if something differs.

use super::{Feed, Plan, PlanNode};
use crate::node::{COMMON, Settings};
use std::collections::{BTreeSet, HashMap};

impl Plan {
    /// Maps the key of each node of this plan that was in `old` to its key there.
    pub fn stays(&self, old: &Plan) -> HashMap<u64, u64> {
        let mut place: Vec<Option<usize>> = Vec::new();
        let equal = |node: &PlanNode| old.nodes.iter().position(|other| other.key == node.key);
        let mut used: BTreeSet<usize> = self.nodes.iter().filter_map(equal).collect();
        for node in &self.nodes {
            let like = || {
                let mut others = old.nodes.iter().enumerate();
                others.find(|(at, other)| !used.contains(at) && is_like(node, other, &place))
            };
            let found = equal(node).or_else(|| like().map(|(at, _)| at));
            used.extend(found);
            place.push(found);
        }
        let pairs = self.nodes.iter().zip(&place);
        pairs.filter_map(|(node, &at)| Some((node.key, old.nodes[at?].key))).collect()
    }

    /// Notes for the user: the nodes of `old` that do not stay although a node of this plan has their tag, and why.
    pub fn made_anew(&self, old: &Plan, stays: &HashMap<u64, u64>) -> Vec<String> {
        let mut notes = Vec::new();
        for node in self.nodes.iter().filter(|node| !stays.contains_key(&node.key)) {
            let was = old.nodes.iter().find(|other| {
                !node.tags.is_disjoint(&other.tags) && node.class.name == other.class.name
            });
            let Some(was) = was else { continue };
            let why = match made_anew(node, was).as_slice() {
                [] => "a node before it changed".to_owned(),
                names => format!(
                    "{} cannot change while it runs (these can: {})",
                    names.join(", "),
                    match node.class.live {
                        [] => "none".to_owned(),
                        live => live.join(", "),
                    }
                ),
            };
            notes.push(format!("{} is replaced and counts from 0: {why}", node.name));
        }
        notes
    }
}

/// True if `old` can continue as `node`, given the old positions of the nodes before it.
fn is_like(node: &PlanNode, old: &PlanNode, place: &[Option<usize>]) -> bool {
    let moved = |feed: &Feed| Some(Feed { from: place[feed.from]?, ..*feed });
    let Some(mut feeds) = node.feeds.iter().map(moved).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let mut old_feeds = old.feeds.clone();
    for list in [&mut feeds, &mut old_feeds] {
        node.join.order(list);
    }
    // A source with any difference is a different source.
    let same_place = !feeds.is_empty()
        && node.class.name == old.class.name
        && (node.inverted, node.join) == (old.inverted, old.join)
        && feeds == old_feeds;
    let changes = || !node.tags.is_disjoint(&old.tags) && made_anew(node, old).is_empty();
    same_place && (own(&node.settings) == own(&old.settings) || changes())
}

/// Names of the parameters because of which a node has to be made anew; empty if a running node accepts all changes.
fn made_anew<'n>(node: &'n PlanNode, old: &'n PlanNode) -> Vec<&'n str> {
    let values = |node: &'n PlanNode, name: &str| -> Vec<&'n str> {
        let pairs = node.settings.pairs().iter().filter(|(other, _)| other == name);
        pairs.map(|(_, value)| value.as_str()).collect()
    };
    let known = node.class.parameters.iter().chain(&COMMON[2..]).map(|parameter| parameter.name);
    let differing = known.filter(|name| values(node, name) != values(old, name));
    let takes = (node.class.changes)(&old.settings) && (node.class.changes)(&node.settings);
    differing.filter(|name| !(takes && node.class.live.contains(name))).collect()
}

/// Parameters that affect the work of a node.
fn own(settings: &Settings) -> Vec<&(String, String)> {
    let is_common = |name: &str| COMMON[..2].iter().any(|common| common.name == name);
    settings.pairs().iter().filter(|(name, _)| !is_common(name)).collect()
}
