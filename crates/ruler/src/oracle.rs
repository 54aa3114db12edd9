//! The slow, simple reference matcher: every fast matcher is compared with it.
//!
//! It backtracks over the pattern's tree in the order that the language defines: rules from top to bottom, a branch
//! before later ones, `*` shortest first, counts longest first unless written otherwise; the first path that
//! reaches the end of the bytes wins. It is exponential on some patterns, so steps are counted and bounded.

use crate::node::Node;
use crate::program::Rule;

/// Number of steps after which the oracle gives up.
const MAX_STEPS: u64 = 20_000_000;

/// Start and end of a slot; none if it was not used.
pub type Captured = Option<(usize, usize)>;

/// Returns the first rule that matches all of `bytes`, and its slots; `Err` if the limit on steps was reached.
pub fn first_match(
    rules: &[Rule],
    bytes: &[u8],
) -> Result<Option<(usize, Vec<Captured>)>, Exhausted> {
    for (number, rule) in rules.iter().enumerate() {
        let mut search = Search { bytes, slots: vec![None; rule.slots.len()], steps: 0 };
        let matched = search.node(&rule.pattern, 0, &mut |_, at| at == bytes.len());
        if search.steps > MAX_STEPS {
            return Err(Exhausted);
        }
        if matched {
            return Ok(Some((number, search.slots)));
        }
    }
    Ok(None)
}

/// Error: the oracle reached the limit on steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

struct Search<'a> {
    bytes: &'a [u8],
    slots: Vec<Captured>,
    steps: u64,
}

/// Continuation of a node: returns true if the rest matches from a position.
type Then<'t, 'a> = &'t mut dyn FnMut(&mut Search<'a>, usize) -> bool;

impl<'a> Search<'a> {
    fn node(&mut self, node: &Node, at: usize, then: Then<'_, 'a>) -> bool {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return false;
        }
        match node {
            Node::Empty => then(self, at),
            Node::Set(set) => {
                self.bytes.get(at).is_some_and(|byte| set.contains(*byte)) && then(self, at + 1)
            }
            Node::Sequence(nodes) => self.sequence(nodes, at, then),
            Node::Alternation(nodes) => nodes.iter().any(|node| self.node(node, at, then)),
            Node::Repeat { node, min, max, greedy } => {
                self.repeat(node, *min, *max, *greedy, at, then)
            }
            Node::Capture(slot, node) => {
                let slot = *slot as usize;
                let before = self.slots[slot];
                let matched = self.node(node, at, &mut |search, end| {
                    let inner = search.slots[slot].replace((at, end));
                    let matched = then(search, end);
                    if !matched {
                        search.slots[slot] = inner;
                    }
                    matched
                });
                if !matched {
                    self.slots[slot] = before;
                }
                matched
            }
            Node::Variable { head, variants, slot } => {
                let variant = self.bytes.get(at).and_then(|byte| {
                    variants.iter().find(|(set, _)| set.contains(*byte)).map(|(_, len)| *len)
                });
                let Some(len) = variant else { return false };
                let any = vec![Node::Set(crate::byte_set::ByteSet::ALL); len as usize];
                let mut tail = Node::Sequence(any);
                if let Some(slot) = slot {
                    tail = Node::Capture(*slot, Box::new(tail));
                }
                self.sequence(head, at, &mut |search, at| search.node(&tail, at, then))
            }
        }
    }

    fn sequence(&mut self, nodes: &[Node], at: usize, then: Then<'_, 'a>) -> bool {
        match nodes.split_first() {
            None => then(self, at),
            Some((first, rest)) => {
                self.node(first, at, &mut |search, at| search.sequence(rest, at, then))
            }
        }
    }

    fn repeat(
        &mut self,
        node: &Node,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        at: usize,
        then: Then<'_, 'a>,
    ) -> bool {
        if max == Some(0) {
            return then(self, at);
        }
        let less = max.map(|max| max - 1);
        if min > 0 {
            return self.node(node, at, &mut |search, at| {
                search.repeat(node, min - 1, less, greedy, at, then)
            });
        }
        if !greedy && then(self, at) {
            return true;
        }
        let again = self.node(node, at, &mut |search, end| {
            // Without a maximum count, an iteration that takes no byte would repeat for ever.
            (max.is_some() || end > at) && search.repeat(node, 0, less, greedy, end, then)
        });
        again || (greedy && then(self, at))
    }
}
