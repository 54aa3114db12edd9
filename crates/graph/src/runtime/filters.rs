//! The running filters of nodes, by the keys of the nodes.

use super::Made;
use fyke_filters::FilterSet;
use std::collections::HashMap;

/// The filters of nodes that were made, by their keys.
pub(super) fn filters_of(made: &[(u64, Made)]) -> impl Iterator<Item = (u64, FilterSet)> {
    made.iter().filter_map(|(key, made)| match made {
        Made::Node(node) => Some((*key, node.filters()?.clone())),
        Made::Source(_) | Made::Shares(..) => None,
    })
}

/// The filters after an edit: those of nodes that stay (new key to old key), and of nodes that were made for it.
pub(super) fn filters_after(
    before: &HashMap<u64, FilterSet>,
    stays: &HashMap<u64, u64>,
    made: &[(u64, Made)],
) -> HashMap<u64, FilterSet> {
    let kept = stays.iter().filter_map(|(&new, old)| Some((new, before.get(old)?.clone())));
    kept.chain(filters_of(made)).collect()
}
