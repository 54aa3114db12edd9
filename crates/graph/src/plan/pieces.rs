//! Checks that nodes that take streams get them, in one of two forms: pieces in place of frames, or streams beside
//! frames.

use super::{Builder, Join, Plan};
use crate::language::TextError;

/// Form of the streams that a node passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Pieces,
    /// Beside the frames; the index of the node that gives them.
    Beside(usize),
}

impl Builder<'_> {
    /// Refuses a node that takes pieces of streams if some path to it has no node that emits or gives them.
    pub(super) fn check_pieces(
        &self,
        texts: &[&str],
        plan: &Plan,
        place: &[usize],
    ) -> Result<(), TextError> {
        let mut forms: Vec<Option<Form>> = vec![None; plan.nodes.len()];
        // Node that made the frames beside which the streams of a node before it no longer are.
        let mut ended: Vec<Option<usize>> = vec![None; plan.nodes.len()];
        for (index, node) in plan.nodes.iter().enumerate() {
            // The feeds that NOT subtracts bring no frames.
            let feeds = match node.join {
                Join::Except(base) => &node.feeds[..base],
                _ => &node.feeds[..],
            };
            let first = feeds.first().and_then(|feed| forms[feed.from]);
            let fed = first.filter(|_| feeds.iter().all(|feed| forms[feed.from] == first));
            if (node.class.wants_pieces)(&node.settings) && fed.is_none() {
                let between = feeds.iter().find_map(|feed| ended[feed.from]);
                let message = match between {
                    Some(other) => format!(
                        "{} takes pieces of streams, and {} makes other frames",
                        node.text, plan.nodes[other].text
                    ),
                    None => format!("{} takes pieces of streams, and frames come here", node.text),
                };
                let error = self.at_node(texts, place, index, message);
                return Err(error.expected("streams before it: `… > (tcp) > …`"));
            }
            let settings = &node.settings;
            let makes = (node.class.emits_pieces)(settings) || (node.class.gives_streams)(settings);
            if makes && fed == Some(Form::Pieces) {
                let message = format!("{} takes frames, and pieces come here", node.text);
                let error = self.at_node(texts, place, index, message);
                return Err(error.expected("a graph with one `tcp` on this path"));
            }
            let is_waiting = (node.class.wants_pieces)(settings) && (node.class.replaces)(settings);
            if is_waiting && fed == Some(Form::Pieces) {
                let message = format!("{} lets frames wait, and pieces come here", node.text);
                let error = self.at_node(texts, place, index, message);
                return Err(error.expected("`tcp` without `payload=y`"));
            }
            if node.inverted && is_waiting {
                let message = format!("NOT of {}, which lets frames wait", node.text);
                let error = self.at_node(texts, place, index, message);
                return Err(error.expected("a node that decides at once"));
            }
            let ends =
                fed.is_some_and(|form| form != Form::Pieces) && (node.class.replaces)(settings);
            ended[index] =
                if ends { Some(index) } else { feeds.iter().find_map(|feed| ended[feed.from]) };
            forms[index] = match fed {
                _ if (node.class.emits_pieces)(settings) => Some(Form::Pieces),
                _ if (node.class.gives_streams)(settings) => Some(Form::Beside(index)),
                _ if ends => None,
                fed => fed,
            };
        }
        Ok(())
    }
}
