//! Passes of the filters of a running graph that are edited one by one.
//!
//! They belong to a node and stay as long as it does, whatever its text becomes: an edit that replaces the node takes
//! them along. The packet loop reads them between two batches, as it reads an edit of a text.

use super::handle::lock;
use super::{GraphHandle, NodeView};
use crate::plan::{Plan, PlanNode};
use fyke_filters::FilterSet;

impl GraphHandle {
    /// The running filters of a node, for edits of its passes ([`FilterSet::edit_by_hand`]); without a name, those of
    /// the only node with some. Call [`edited_by_hand`](Self::edited_by_hand) after an edit.
    ///
    /// # Errors
    /// A message: there is no such node, its passes cannot be edited, or no name is given and there are several nodes.
    pub fn filters_of(&self, name: Option<&str>) -> Result<FilterSet, String> {
        let editor = lock(&self.editor);
        let plan = &editor.plan;
        let node = find(plan, name)?;
        editor.filters.get(&node.key).cloned().ok_or_else(|| {
            format!(
                "{}: its passes are those of its texts, because a frame gets the class value of a text; expected a \
                 node of class bpf",
                node.text
            )
        })
    }

    /// The running filters of a node of a view.
    pub fn filters_at(&self, node: &NodeView) -> Option<FilterSet> {
        lock(&self.editor).filters.get(&node.key).cloned()
    }

    /// Counts an edit of passes; returns the epoch that it began.
    pub fn edited_by_hand(&self) -> u64 {
        self.shared.count_by_hand();
        self.epoch()
    }
}

/// The node of this name or tag; without one, the only node with filters.
fn find<'a>(plan: &'a Plan, name: Option<&str>) -> Result<&'a PlanNode, String> {
    let all: Vec<_> = plan.nodes.iter().filter(|node| node.class.filters.is_some()).collect();
    let listed = || all.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, &all[..]) {
        (_, []) => Err("no node of this graph has filters: put (bpf) into it".to_owned()),
        (None, [one]) => Ok(*one),
        (None, _) => Err(format!("several nodes have filters; name one with --node: {}", listed())),
        (Some(name), _) => {
            let is_named = |node: &&&PlanNode| node.name == name || node.tags.contains(name);
            let found = all.iter().find(is_named).copied();
            found.ok_or_else(|| {
                format!("no node {name:?} has filters; the nodes with filters are: {}", listed())
            })
        }
    }
}
