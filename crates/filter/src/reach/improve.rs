//! Leads edges past tests with a known outcome, and moves tests of one value together.

use super::{ACCEPT, Code, Graph, MAX_ROUNDS, Operand, REJECT};

impl Graph {
    /// Improves until nothing changes. `as_there` copies a mistake of libpcap: it computes the edge
    /// dominators, then inverts tests of bits for zero, and confuses the two outcomes of an
    /// inverted test until the next round. Therefore its optimised `outbound or udp or not
    /// outbound` rejects half of the frames on Juniper's link types.
    pub(super) fn settle(&mut self, as_there: bool) {
        let mut mistaken = as_there;
        for _ in 0..MAX_ROUNDS {
            if !self.improve(mistaken) {
                break;
            }
            mistaken = false;
        }
    }

    /// The first test without a known outcome.
    pub(super) fn start(&self) -> usize {
        let mut at = self.root;
        while at > ACCEPT {
            let block = &self.blocks[at];
            at = match block.outcome {
                Some(outcome) => block.next[usize::from(outcome)],
                None if block.next[0] == block.next[1] => block.next[0],
                None => break,
            };
        }
        at
    }

    /// The reachable tests by the length of the longest path to an end, which is 0 for an end.
    pub(super) fn levels(&self) -> Vec<Vec<usize>> {
        let mut level = vec![None; self.blocks.len()];
        (level[REJECT], level[ACCEPT]) = (Some(0), Some(0));
        let mut levels: Vec<Vec<usize>> = vec![Vec::new()];
        let mut begun = vec![self.root];
        while let Some(&block) = begun.last() {
            if level[block].is_some() {
                begun.pop();
                continue;
            }
            let [on_failure, on_success] = self.blocks[block].next;
            match (level[on_success], level[on_failure]) {
                (None, _) => begun.push(on_success),
                (_, None) => begun.push(on_failure),
                (Some(left), Some(right)) => {
                    let own: usize = 1 + usize::max(left, right);
                    level[block] = Some(own);
                    if levels.len() <= own {
                        levels.resize(own + 1, Vec::new());
                    }
                    levels[own].insert(0, block);
                    begun.pop();
                }
            }
        }
        levels
    }

    /// Runs one round; true if anything changed.
    fn improve(&mut self, mistaken: bool) -> bool {
        let levels = self.levels();
        let edges = self.edge_dominators(&levels);
        let blocks = self.block_dominators(&levels);
        let mut changed = false;
        for &block in levels.iter().flatten() {
            for side in [1, 0] {
                changed |= self.shorten(block, side, &edges[2 * block + side], mistaken);
            }
        }
        let incoming = self.incoming(&levels);
        for &block in levels.iter().flatten() {
            for side in [0, 1] {
                changed |= self.pull_up(block, side, &incoming[block], &blocks);
            }
        }
        changed
    }

    /// For each edge (twice the block, plus one when its test holds), the edges on every path to
    /// it, itself included.
    fn edge_dominators(&self, levels: &[Vec<usize>]) -> Vec<Set> {
        let mut sets = vec![Set::full(2 * self.blocks.len()); 2 * self.blocks.len()];
        for side in 0..2 {
            sets[2 * self.root + side] = Set::empty(2 * self.blocks.len());
        }
        for &block in levels.iter().rev().flatten() {
            for side in [1, 0] {
                let edge = 2 * block + side;
                sets[edge].insert(edge);
                let successor = self.blocks[block].next[side];
                if successor > ACCEPT {
                    let known = sets[edge].clone();
                    sets[2 * successor].intersect(&known);
                    sets[2 * successor + 1].intersect(&known);
                }
            }
        }
        sets
    }

    /// For each block, the blocks on every path to it, itself included.
    fn block_dominators(&self, levels: &[Vec<usize>]) -> Vec<Set> {
        let mut sets = vec![Set::full(self.blocks.len()); self.blocks.len()];
        sets[self.root] = Set::empty(self.blocks.len());
        for &block in levels.iter().rev().flatten() {
            sets[block].insert(block);
            let known = sets[block].clone();
            for successor in self.blocks[block].next {
                sets[successor].intersect(&known);
            }
        }
        sets
    }

    /// Leads an edge past every test with an outcome that is known there.
    fn shorten(&mut self, block: usize, side: usize, dominators: &Set, mistaken: bool) -> bool {
        let successor = self.blocks[block].next[side];
        let [on_failure, on_success] = self.blocks[successor].next;
        let mut changed = successor > ACCEPT && on_failure == on_success;
        if changed {
            self.blocks[block].next[side] = on_success;
        }
        loop {
            let successor = self.blocks[block].next[side];
            if successor <= ACCEPT {
                return changed;
            }
            let after = |edge: usize| {
                let turned =
                    mistaken && edge / 2 != block && self.blocks[edge / 2].code == Code::AnyBit;
                self.known(successor, edge ^ usize::from(turned))
            };
            let Some(target) = dominators.iter().find_map(after) else { return changed };
            self.blocks[block].next[side] = target;
            changed = true;
        }
    }

    /// The successor of a test after this edge, if the edge decides it.
    fn known(&self, test: usize, edge: usize) -> Option<usize> {
        let (before, after) = (&self.blocks[edge / 2], &self.blocks[test]);
        let held = edge % 2 == 1;
        if before.code != after.code || before.value != after.value {
            return None;
        }
        match (before.operand, after.operand) {
            (left, right) if left == right => Some(after.next[usize::from(held)]),
            (Operand::Number(_), Operand::Number(_)) if held && before.code == Code::Equal => {
                Some(after.next[0])
            }
            _ => None,
        }
    }

    /// For each block the edges that lead to it, the last found first.
    fn incoming(&self, levels: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut incoming = vec![Vec::new(); self.blocks.len()];
        for &block in levels.iter().rev().flatten() {
            for side in [1, 0] {
                incoming[self.blocks[block].next[side]].insert(0, block);
            }
        }
        incoming
    }

    /// In a chain of tests that all exit to the same block on one side, moves a test of the value
    /// that was tested before the chain up to that test. `side` is the side on which the chain
    /// continues.
    fn pull_up(&mut self, top: usize, side: usize, incoming: &[usize], dominators: &[Set]) -> bool {
        let Some((&first, others)) = incoming.split_first() else { return false };
        let value = self.blocks[first].value;
        if others.iter().any(|&other| self.blocks[other].value != value) {
            return false;
        }
        let exit = self.blocks[top].next[1 - side];
        let in_chain = |graph: &Graph, block: usize| {
            block > ACCEPT
                && graph.blocks[block].next[1 - side] == exit
                && dominators[block].contains(top)
        };
        // The first test of another value.
        let (mut above, mut differing) = (None, top);
        loop {
            if !in_chain(self, differing) {
                return false;
            }
            if self.blocks[differing].value != value {
                break;
            }
            above = Some(differing);
            differing = self.blocks[differing].next[side];
        }
        // The first test of the same value after that.
        let (mut before, mut same) = (differing, self.blocks[differing].next[side]);
        loop {
            if !in_chain(self, same) {
                return false;
            }
            if self.blocks[same].value == value {
                break;
            }
            before = same;
            same = self.blocks[same].next[side];
        }
        self.blocks[before].next[side] = self.blocks[same].next[side];
        self.blocks[same].next[side] = differing;
        match above {
            Some(above) => self.blocks[above].next[side] = same,
            None => {
                for &block in incoming {
                    for next in &mut self.blocks[block].next {
                        if *next == top {
                            *next = same;
                        }
                    }
                }
            }
        }
        true
    }
}

/// A set of small numbers.
#[derive(Debug, Clone)]
struct Set(Vec<u64>);

impl Set {
    fn empty(limit: usize) -> Set {
        Set(vec![0; limit.div_ceil(64)])
    }

    fn full(limit: usize) -> Set {
        Set(vec![u64::MAX; limit.div_ceil(64)])
    }

    fn insert(&mut self, member: usize) {
        self.0[member / 64] |= 1 << (member % 64);
    }

    fn contains(&self, member: usize) -> bool {
        self.0[member / 64] >> (member % 64) & 1 == 1
    }

    fn intersect(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    /// The members in ascending order.
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index + bit)
        })
    }
}
