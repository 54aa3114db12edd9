//! Names of the nodes of a plan, the last nodes of each text, and warnings for the user. Cost: O(nodes + edges).

use super::{Join, Plan};
use crate::node::Kind;
use crate::plan::Feed;
use std::collections::{BTreeSet, HashMap};

impl Plan {
    /// Collects warnings about joins and class edges.
    pub(super) fn warn(&mut self) {
        let mut classified = vec![false; self.nodes.len()];
        let mut warnings = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            classified[index] =
                node.class.classifies || node.feeds.iter().any(|feed| classified[feed.from]);
            let from_nodes = |feed: &Feed| self.nodes[feed.from].class.kind == Kind::Node;
            let several = node.feeds.len() > 1 && node.feeds.iter().any(from_nodes);
            match node.join {
                Join::Any if several && !["and", "not"].contains(&node.class.name) => {
                    warnings.push(format!(
                        "{} is fed by {} branches; a frame that several of them pass arrives \
                         once (duplicates=y: once from each)",
                        node.text,
                        node.feeds.len()
                    ));
                }
                Join::Each if several => warnings.push(format!(
                    "{} gets a frame once from each branch that passes it",
                    node.text
                )),
                _ => {}
            }
            for feed in &node.feeds {
                if feed.class.is_some_and(|class| class != 0) && !classified[feed.from] {
                    warnings.push(format!(
                        "no node before {} gives class values: no frame will pass its edge",
                        node.text
                    ));
                }
            }
        }
        self.warnings.append(&mut warnings);
    }

    /// Determines the last nodes of each text.
    pub(super) fn end(&mut self) {
        let mut ends: Vec<BTreeSet<u64>> =
            self.nodes.iter().map(|node| node.texts.clone()).collect();
        for node in &self.nodes {
            for feed in &node.feeds {
                ends[feed.from].retain(|text| !node.texts.contains(text));
            }
        }
        for (node, ends) in self.nodes.iter_mut().zip(ends) {
            node.ends = ends.into_iter().collect();
        }
    }

    pub(super) fn name(&mut self) {
        let mut uses: HashMap<&str, usize> = HashMap::new();
        for node in &self.nodes {
            *uses.entry(node.class.name).or_default() += 1;
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for node in &mut self.nodes {
            let number = numbers.entry(node.class.name).or_default();
            *number += 1;
            node.name = match (node.tags.first(), uses[node.class.name]) {
                (Some(tag), _) => tag.clone(),
                (None, 1) => node.class.name.to_owned(),
                (None, _) => format!("{}#{number}", node.class.name),
            };
        }
    }
}
