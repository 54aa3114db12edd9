//! Passes that are edited by hand, instruction by instruction, beside those of the texts: the calls of the papers'
//! libraries on a running capture.
//!
//! Filters in the kernel have the same calls ([`KernelFilters`](crate::KernelFilters)).
//!
//! They belong to the first link type, are edited by nothing else, and stay until they are deleted, whatever happens to
//! the texts. A frame that one of them accepts is accepted; without a text and a pass, every frame is. What they accept
//! is not known as a text, so lower spaces pass every frame from the first such edit on. Cost of an edit: O(log passes)
//! for each call. Source: Swift, section 4.2.

use super::{FilterSet, lock};
use crate::error::FilterError;
use crate::journal::Author;
use fyke_frame::LinkType;
use fyke_pass::{Edit, EditError, Instruction, Operation, PassId};
use std::collections::BTreeSet;

/// Name of these passes in counts.
pub(crate) const NAME: &str = "passes edited by hand";

/// Reason why a call on a pass is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandError {
    /// The pass belongs to a text or a tracker.
    #[error(
        "pass {given} is not one that was made by hand: a pass of a filter is edited by its text; copy it (dup), and \
         edit the copy"
    )]
    NotByHand {
        /// The pass.
        given: PassId,
    },
    /// The operations are for other frames.
    #[error("the operations are for Ethernet frames, and the filters are for link type {given}")]
    NotEthernet {
        /// The link type.
        given: LinkType,
    },
    /// The edit is refused.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The pass set cannot be made.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// Calls of a client on passes, which are one edit.
pub struct HandCalls<'a> {
    /// The client.
    pub author: Author,
    /// Number of calls.
    pub count: u64,
    /// Carries them out, and returns the passes that they have made.
    pub carry_out: &'a mut CarryOut<'a>,
}

/// Carries calls out.
pub type CarryOut<'a> = dyn FnMut(&mut HandEdit<'_>) -> Result<Vec<u64>, CallsRefused> + 'a;

impl std::fmt::Debug for HandCalls<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandCalls").field("count", &self.count).finish_non_exhaustive()
    }
}

/// Reason why calls on passes are refused; none of them is carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallsRefused {
    /// One of them cannot be carried out.
    #[error("{message}")]
    Call {
        /// Its index.
        place: usize,
        /// The reason.
        message: String,
    },
    /// All of them together are refused.
    #[error("{0}")]
    Whole(String),
}

impl From<HandError> for CallsRefused {
    fn from(error: HandError) -> CallsRefused {
        CallsRefused::Whole(error.to_string())
    }
}

/// An edit of passes by hand.
#[derive(Debug)]
pub struct HandEdit<'a> {
    edit: Edit<'a>,
    own: BTreeSet<PassId>,
    link: LinkType,
}

impl<'a> HandEdit<'a> {
    /// An edit of the passes of a link type; `own` are those that were made by hand.
    pub(crate) fn new(edit: Edit<'a>, own: BTreeSet<PassId>, link: LinkType) -> HandEdit<'a> {
        HandEdit { edit, own, link }
    }

    /// The edit, and the passes that are made by hand after it.
    pub(crate) fn into_parts(self) -> (Edit<'a>, BTreeSet<PassId>) {
        (self.edit, self.own)
    }

    /// Adds a pass without instructions.
    ///
    /// # Errors
    /// There are too many passes.
    pub fn add(&mut self) -> Result<PassId, HandError> {
        let id = self.edit.new_pass()?;
        self.own.insert(id);
        Ok(id)
    }

    /// Copies a pass, also one of a text.
    ///
    /// # Errors
    /// There is no such pass, or there are too many.
    pub fn duplicate(&mut self, id: PassId) -> Result<PassId, HandError> {
        let copy = self.edit.duplicate_pass(id)?;
        self.own.insert(copy);
        Ok(copy)
    }

    /// Deletes a pass.
    ///
    /// # Errors
    /// It was not made by hand.
    pub fn remove(&mut self, id: PassId) -> Result<(), HandError> {
        self.of(id)?.delete_pass(id)?;
        self.own.remove(&id);
        Ok(())
    }

    /// Sets an instruction to an operation.
    ///
    /// # Errors
    /// The pass was not made by hand, the instruction does not exist, or the frames are not those of the operation.
    pub fn select(
        &mut self,
        id: PassId,
        index: usize,
        operation: Operation,
        mask: u32,
    ) -> Result<(), HandError> {
        let is_general = matches!(operation, Operation::True | Operation::Never);
        if self.link != LinkType::EN10MB && !is_general {
            return Err(HandError::NotEthernet { given: self.link });
        }
        self.set(id, index, operation.instruction(mask))
    }

    /// Sets an instruction.
    ///
    /// # Errors
    /// The pass was not made by hand, or the instruction does not exist or is not valid.
    pub fn set(
        &mut self,
        id: PassId,
        index: usize,
        instruction: Instruction,
    ) -> Result<(), HandError> {
        Ok(self.of(id)?.set_instruction(id, index, instruction)?)
    }

    /// Adds a parameter.
    ///
    /// # Errors
    /// The pass was not made by hand, or the instruction has no room for it.
    pub fn add_operand(&mut self, id: PassId, index: usize, value: u32) -> Result<(), HandError> {
        Ok(self.of(id)?.add_operand(id, index, value)?)
    }

    /// Removes a parameter.
    ///
    /// # Errors
    /// The pass was not made by hand, or the instruction lacks it.
    pub fn remove_operand(
        &mut self,
        id: PassId,
        index: usize,
        value: u32,
    ) -> Result<(), HandError> {
        Ok(self.of(id)?.remove_operand(id, index, value)?)
    }

    /// Overwrites a word of an instruction.
    ///
    /// # Errors
    /// The pass was not made by hand, or the result is no instruction.
    pub fn poke(
        &mut self,
        id: PassId,
        index: usize,
        word: usize,
        value: u32,
    ) -> Result<(), HandError> {
        Ok(self.of(id)?.poke(id, index, word, value)?)
    }

    /// The edit, if the pass was made by hand.
    fn of(&mut self, id: PassId) -> Result<&mut Edit<'a>, HandError> {
        match self.own.contains(&id) {
            true => Ok(&mut self.edit),
            false => Err(HandError::NotByHand { given: id }),
        }
    }
}

impl FilterSet {
    /// Edits passes by hand, as calls of a client do. Returns the epoch of the edit and the passes that it has made.
    ///
    /// # Errors
    /// A call is refused; or a text is too large for the link type, if no frame has arrived yet.
    pub fn edit_by_calls(
        &self,
        calls: &mut HandCalls<'_>,
    ) -> Result<(u64, Vec<u64>), CallsRefused> {
        let (author, count) = (calls.author.clone(), calls.count);
        self.edit_by_hand(author, count, |edit| (calls.carry_out)(edit))
    }

    /// Edits passes by hand, as one edit of `calls` calls, all of it or nothing. Returns its epoch and the result of
    /// `edit`.
    ///
    /// # Errors
    /// Those of `edit`; and a text is too large for the link type, if no frame has arrived yet.
    pub fn edit_by_hand<T, E: From<HandError>>(
        &self,
        author: Author,
        calls: u64,
        edit: impl FnOnce(&mut HandEdit<'_>) -> Result<T, E>,
    ) -> Result<(u64, T), E> {
        let link = self.shared.options.link;
        let writer = &mut *lock(&self.shared.writer);
        let index = self.shared.link(writer, link).map_err(HandError::from)?;
        let own = writer.by_hand.clone();
        let mut by_hand = HandEdit::new(writer.passes[index].edit(), own, link);
        let result = edit(&mut by_hand)?;
        self.tracked_by(NAME.to_owned());
        for superset in writer.supersets.drain(..) {
            superset.open_for_good("passes are edited by hand");
        }
        let (edit, own) = by_hand.into_parts();
        let mut staged = edit.stage();
        staged.lay_out();
        let (epoch, forgotten) = {
            let mut listed = lock(&self.shared.listed);
            let _revealing = lock(&self.shared.revealing);
            staged.publish();
            let epoch = self.shared.publish();
            (epoch, listed.journal.by_hand(epoch, author, calls))
        };
        // Freed without the lock.
        drop((staged, forgotten));
        writer.by_hand = own;
        Ok((epoch, result))
    }
}
