//! Which nodes of a running graph stay when its texts are edited.
//!
//! A node stays where an equal one is in the equal place, and where only its parameters differ, if it has a tag to be
//! known by and its class takes others while it runs. Then everything behind it stays too. Cost: O(nodes · edges) when
//! something differs.

use super::{Feed, Plan, PlanNode};
use crate::node::{COMMON, Settings};
use std::collections::{BTreeSet, HashMap};

impl Plan {
    /// The key in `old` of each node of this plan that was there.
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
}

/// Whether a node can go on as `node`, when those before it stay in these places.
fn is_like(node: &PlanNode, old: &PlanNode, place: &[Option<usize>]) -> bool {
    let moved = |feed: &Feed| Some(Feed { from: place[feed.from]?, ..*feed });
    let Some(mut feeds) = node.feeds.iter().map(moved).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let mut old_feeds = old.feeds.clone();
    for list in [&mut feeds, &mut old_feeds] {
        node.join.order(list);
    }
    // A source that differs in anything is another source.
    let same_place = !feeds.is_empty()
        && node.class.name == old.class.name
        && (node.inverted, node.join) == (old.inverted, old.join)
        && feeds == old_feeds;
    let changes =
        || !node.tags.is_disjoint(&old.tags) && (node.class.changes)(&old.settings, &node.settings);
    same_place && (own(&node.settings) == own(&old.settings) || changes())
}

/// The parameters that decide what a node does.
fn own(settings: &Settings) -> Vec<&(String, String)> {
    let said = |name: &str| COMMON[..2].iter().any(|common| common.name == name);
    settings.pairs().iter().filter(|(name, _)| !said(name)).collect()
}
