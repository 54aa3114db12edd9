//! The front: the nodes that cut batches, and all nodes before them.
//!
//! It evaluates a batch first, and the rest of it again after a cut. If several workers have one of its nodes in
//! common, they evaluate it one after the other ([`Nodes::front_gate`]), so each decision of such a node is final
//! before another worker asks it.

use super::{Cut, Input, Nodes};
use crate::node::NodeError;
use crate::plan::Join;
use fyke_frame::Mask;
use std::sync::PoisonError;

impl Nodes {
    /// Evaluates and settles the front; returns the end of the window and its frames.
    pub(super) fn evaluate_front(
        &mut self,
        from: usize,
        input: &Input<'_>,
        cut: &mut Cut,
        rest: Mask,
    ) -> (usize, Mask) {
        let gate = self.front_gate.clone().filter(|_| self.front_is_shared);
        let passing = gate.as_ref().map(|gate| gate.lock().unwrap_or_else(PoisonError::into_inner));
        self.judge(from, input, cut);
        let frames = input.batch.len();
        let end = cut.at.unwrap_or(frames).clamp(cut.position, frames);
        let window = rest & Mask::first(end);
        self.settle(from, window);
        drop(passing);
        (end, window)
    }

    /// Evaluates the front.
    fn judge(&mut self, from: usize, input: &Input<'_>, cut: &mut Cut) {
        for place in 0..self.judges.len() {
            let index = self.judges[place];
            if index > from {
                let within = cut.at.map_or(input.batch.all(), Mask::first);
                let mask = self.arriving(index) & within;
                self.ask(index, mask, input, cut);
            }
        }
        let editors = self.editors.iter().copied().filter(|&index| index > from);
        let editors: Vec<usize> =
            if self.editors.is_empty() { Vec::new() } else { editors.collect() };
        if editors.len() > 1 {
            // No editor may see a frame that another one has cut off.
            let first = editors.iter().filter_map(|&index| self.arriving(index).iter().next());
            let after_first = first.min().map(|first| first + 1);
            cut.at = cut.at.into_iter().chain(after_first).min();
        }
        for index in editors {
            let within = cut.at.map_or(input.batch.all(), Mask::first);
            let mask = self.arriving(index) & within;
            self.ask(index, mask, input, cut);
        }
    }

    /// Counts the results of the front.
    fn settle(&mut self, from: usize, window: Mask) {
        for place in 0..self.judges.len() + self.editors.len() {
            let judges = self.judges.len();
            let index =
                if place < judges { self.judges[place] } else { self.editors[place - judges] };
            if index <= from {
                continue;
            }
            let settled = self.slots[index].settle(window);
            self.note(index, window);
            if let Err(error) = settled {
                self.fail(index, error);
            }
            self.schedule_successors(index);
            let slot = &self.slots[index];
            if slot.plan.feeds.len() > 1 && slot.plan.join == Join::Any {
                let brought: usize =
                    slot.plan.feeds.iter().map(|feed| (self.feed(*feed) & window).count()).sum();
                let arrived = (slot.arrived & window).count();
                self.slots[index].counts.merged += (brought - arrived) as u64;
            }
        }
    }

    /// Fails the nodes that cut twice at one position and let no frame pass.
    pub(super) fn stuck(&mut self, from: usize) {
        for index in from + 1..self.slots.len() {
            if self.slots[index].cuts {
                self.fail(index, NodeError::new("it cuts a batch again and again"));
            }
        }
    }
}
