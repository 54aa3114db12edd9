//! Texts that a pattern matches, for tests.

use super::{Node, Pattern};
use fyke_testkit::random::Random;

impl Pattern {
    /// A text that the pattern probably matches: places without width and look-around are not minded. None for back
    /// references.
    pub fn sample(&self, random: &mut Random) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        sample(&self.node, random, &mut out).then_some(out)
    }
}

fn sample(node: &Node, random: &mut Random, out: &mut Vec<u8>) -> bool {
    match node {
        Node::Empty | Node::At(_) | Node::Look { .. } => true,
        Node::Set(set) => {
            let all: Vec<u8> = set.iter().collect();
            let plain: Vec<u8> =
                all.iter().copied().filter(|byte| byte.is_ascii_alphanumeric()).collect();
            let from = if plain.is_empty() { &all } else { &plain };
            if from.is_empty() {
                return false;
            }
            out.push(from[random.below(from.len())]);
            true
        }
        Node::Sequence(nodes) => nodes.iter().all(|node| sample(node, random, out)),
        Node::Alternation(nodes) => sample(&nodes[random.below(nodes.len())], random, out),
        Node::Repeat { node, min, max, .. } => {
            let more = u32::from(max.is_none_or(|max| max > *min) && random.below(2) == 0);
            (0..min + more).all(|_| out.len() < 10_000 && sample(node, random, out))
        }
        Node::Group(_, node) | Node::Atomic(node) => sample(node, random, out),
        Node::Back(..) => false,
    }
}
