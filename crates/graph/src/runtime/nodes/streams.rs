//! Streams beside the frames: which nodes give and read them, their votes, and streams that continue without frames.

use super::{Cut, Input, Nodes, next_serial};
use crate::node::flows::Vote;
use crate::node::{BatchFlows, Pause};
use fyke_frame::{Batch, Mask};

/// Part of a node in streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It gives them.
    Gives,
    /// It judges them, and votes.
    Votes,
    /// It gets frames with streams beside them.
    Passes,
}

/// Streams of the current batch, and the votes about them since its giver was last called.
#[derive(Debug, Default)]
pub(super) struct Board {
    flows: BatchFlows,
    votes: Vec<Vote>,
    /// Number of nodes that vote.
    voters: u16,
}

/// Parts of a board: streams to read; streams to fill and the number of voters; votes.
type Parts<'b> =
    (Option<&'b BatchFlows>, Option<(&'b mut BatchFlows, u8)>, Option<&'b mut Vec<Vote>>);

/// Splits a board into the parts that a node may read and write.
pub(super) fn split(
    board: &mut Option<Board>,
    streams: Option<(usize, Role)>,
    serial: u64,
) -> Parts<'_> {
    let (Some(Board { flows, votes, voters }), Some((_, role))) = (board, streams) else {
        return (None, None, None);
    };
    match role {
        Role::Gives => {
            flows.serial = serial;
            // More voters than can be counted never end a direction.
            (None, Some((flows, u8::try_from(*voters).unwrap_or(0))), Some(votes))
        }
        _ => (Some(&*flows).filter(|flows| flows.serial == serial), None, Some(votes)),
    }
}

impl Nodes {
    /// Finds for each node the streams beside its frames.
    pub(super) fn link_streams(&mut self) {
        self.boards.clear();
        for index in 0..self.slots.len() {
            let plan = &self.slots[index].plan;
            let gives = (plan.class.gives_streams)(&plan.settings);
            let votes = (plan.class.wants_pieces)(&plan.settings);
            let of = |from: usize| self.slots[from].streams.map(|(board, _)| board);
            let first = plan.feeds.first().and_then(|feed| of(feed.from));
            let common = first.filter(|_| plan.feeds.iter().all(|feed| of(feed.from) == first));
            let streams = match common {
                _ if gives => {
                    self.boards.push(Board::default());
                    Some((self.boards.len() - 1, Role::Gives))
                }
                Some(board) if votes => {
                    let voters = &mut self.boards[board].voters;
                    *voters = voters.saturating_add(1);
                    Some((board, Role::Votes))
                }
                common => common.map(|board| (board, Role::Passes)),
            };
            self.slots[index].streams = streams;
        }
    }

    /// Lets the streams that a node gives continue without frames, and calls the nodes that judge or read them.
    pub(super) fn pause_streams(&mut self, index: usize, pause: Pause) {
        let Some((board, Role::Gives)) = self.slots[index].streams else { return };
        let batch = Batch::new();
        let interfaces: &[fyke_capture::Interface] = &[];
        let (held, emitted) = (None, None);
        let input = Input { batch: &batch, source: 0, interfaces, held, counted: false, emitted };
        self.pause = Some(pause);
        self.window = (0, None);
        self.serial = next_serial();
        self.ask(index, Mask::EMPTY, &input, &mut Cut::default());
        if !self.boards[board].flows.is_empty() {
            for after in index + 1..self.slots.len() {
                let slot = &self.slots[after];
                let is_asked = match slot.streams {
                    Some((own, Role::Votes)) => own == board,
                    Some((own, Role::Passes)) => own == board && slot.plan.class.reads_streams,
                    Some((_, Role::Gives)) | None => false,
                };
                if is_asked {
                    self.ask(after, Mask::EMPTY, &input, &mut Cut::default());
                }
            }
        }
        self.pause = None;
    }
}
