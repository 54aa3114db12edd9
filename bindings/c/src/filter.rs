//! The filter of a handle: filter texts in the kernel, passes made by hand after them, and groups of edits of these
//! passes. Safe code only.
//!
//! A group is a draft of all passes made by hand. Its commit compares the draft with the passes in force and replaces
//! the part that differs, in one step, so that a frame is judged by the passes from before or after it.

use crate::handles::{Handled, Table};
use crate::ops::instruction;
use fyke_filters::{ByHand, Change, FilterError, KernelFilters};
use fyke_frame::LinkType;
use fyke_kernel::{KernelPassId, KernelPasses, NewPass};
use fyke_pass::Instruction;
use std::fmt::Display;
use std::os::fd::BorrowedFd;

/// Passes that begin in a group have numbers from this one on; the kernel numbers all others.
const OF_GROUPS: u32 = 1 << 30;

/// Totals of the frames of a filter's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FykeCounts {
    /// Frames that a pass accepted, or that were accepted because there was no pass.
    pub accepted: u64,
    /// Frames that no pass accepted.
    pub rejected: u64,
    /// Frames rejected because their evaluation would exceed the limit on work.
    pub capped: u64,
}

/// A filter in the kernel.
#[derive(Debug)]
pub struct FykeFilter {
    filters: KernelFilters,
    /// The passes made by hand, in the order of evaluation.
    by_hand: Vec<Own>,
    /// The passes after the commit of the open group.
    draft: Option<Vec<Drafted>>,
    last_of_groups: u32,
}

/// A pass made by hand: the number that the program has, and that of the kernel, which a commit may change.
#[derive(Debug, Clone, Copy)]
struct Own {
    number: u32,
    kernel: KernelPassId,
}

/// A pass of a draft.
#[derive(Debug)]
struct Drafted {
    number: u32,
    instructions: Vec<Instruction>,
    /// True if it differs from the pass in force.
    changed: bool,
}

impl Handled for FykeFilter {
    const NAME: &'static str = "filter";

    fn table() -> &'static Table<FykeFilter> {
        static TABLE: Table<FykeFilter> = Table::new();
        &TABLE
    }
}

type Done<T> = Result<T, String>;

fn text(error: impl Display) -> String {
    error.to_string()
}

fn no_pass(number: u32) -> String {
    format!("there is no pass {number}")
}

/// The instruction with this index, which exists.
fn at(instructions: &mut [Instruction], index: usize) -> Done<&mut Instruction> {
    let count = instructions.len();
    instructions
        .get_mut(index)
        .ok_or_else(|| format!("there is no instruction {index}: the pass has {count}"))
}

impl FykeFilter {
    /// Loads the program, and attaches it if there is a socket.
    pub fn open(socket: Option<BorrowedFd<'_>>) -> Done<FykeFilter> {
        let filters = KernelFilters::open(LinkType::EN10MB).map_err(text)?;
        let filter = FykeFilter { filters, by_hand: Vec::new(), draft: None, last_of_groups: 0 };
        match socket {
            Some(socket) => filter.attach(socket).map(|()| filter),
            None => Ok(filter),
        }
    }

    /// Attaches the filter to a packet socket.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> Done<()> {
        self.filters.attach(socket, LinkType::EN10MB).map_err(text)
    }

    /// The kernel's number of a pass.
    fn kernel(&self, number: u32) -> KernelPassId {
        let own = self.by_hand.iter().find(|own| own.number == number);
        own.map_or(KernelPassId(number), |own| own.kernel)
    }

    /// Begins a group: from now on, edits of passes are collected.
    pub fn begin(&mut self) -> Done<()> {
        if self.draft.is_some() {
            return Err("a group is open: commit or abort it first".to_owned());
        }
        let own = &self.by_hand;
        let draft = self.filters.space(|space| {
            let instructions = |own: &Own| Some(space.view().instructions(own.kernel)?.to_vec());
            let drafted = |own: &Own| {
                let instructions = instructions(own).ok_or_else(|| no_pass(own.number))?;
                Ok(Drafted { number: own.number, instructions, changed: false })
            };
            own.iter().map(drafted).collect::<Done<Vec<_>>>()
        })?;
        self.draft = Some(draft);
        Ok(())
    }

    /// Discards the open group.
    pub fn abort(&mut self) -> Done<()> {
        self.draft.take().map(drop).ok_or_else(|| "no group is open".to_owned())
    }

    /// Puts the open group in force, in one step. If the kernel refuses, the group stays open.
    pub fn commit(&mut self) -> Done<()> {
        let draft = self.draft.as_ref().ok_or("no group is open")?;
        let own = &self.by_hand;
        let same = |(own, new): &(&Own, &Drafted)| own.number == new.number && !new.changed;
        let first = own.iter().zip(draft).take_while(same).count();
        let rest = (&own[first..], &draft[first..]);
        let last = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(same).count();
        let removed = &own[first..own.len() - last];
        let added = &draft[first..draft.len() - last];
        if removed.is_empty() && added.is_empty() {
            self.draft = None;
            return Ok(());
        }
        let new = added.iter().map(|new| NewPass {
            instructions: &new.instructions,
            counts_for: removed.iter().find(|own| own.number == new.number).map(|own| own.kernel),
            class: 0,
        });
        let new: Vec<_> = new.collect();
        let gone: Vec<_> = removed.iter().map(|own| own.kernel).collect();
        let ids = self.filters.by_hand(None, |passes| {
            let after = match (first.checked_sub(1), own.first()) {
                (Some(before), _) => Some(own[before].kernel),
                (None, None) => passes.last(),
                (None, Some(one)) => {
                    let of_texts = passes.ids().take_while(|id| *id != one.kernel);
                    of_texts.last()
                }
            };
            passes.splice(after, &gone, &new)
        });
        let ids = ids.map_err(text)?;
        let made = added.iter().zip(ids).map(|(new, kernel)| Own { number: new.number, kernel });
        let made: Vec<_> = made.collect();
        self.by_hand.splice(first..first + gone.len(), made);
        self.draft = None;
        Ok(())
    }

    /// Adds a pass.
    fn add(&mut self, instructions: Vec<Instruction>) -> Done<u32> {
        if let Some(draft) = &mut self.draft {
            let number = OF_GROUPS + self.last_of_groups;
            self.last_of_groups += 1;
            draft.push(Drafted { number, instructions, changed: true });
            return Ok(number);
        }
        let kernel =
            self.filters.by_hand(None, |passes| passes.add(&instructions)).map_err(text)?;
        self.by_hand.push(Own { number: kernel.0, kernel });
        Ok(kernel.0)
    }

    /// Adds a pass without instructions.
    pub fn new_pass(&mut self) -> Done<u32> {
        self.add(Vec::new())
    }

    /// Adds a copy of a pass.
    pub fn duplicate(&mut self, number: u32) -> Done<u32> {
        let instructions = self.instructions(number).ok_or_else(|| no_pass(number))?;
        self.add(instructions)
    }

    /// Deletes a pass.
    pub fn delete(&mut self, number: u32) -> Done<()> {
        if let Some(draft) = &mut self.draft
            && let Some(place) = draft.iter().position(|one| one.number == number)
        {
            draft.remove(place);
            return Ok(());
        }
        let kernel = self.kernel(number);
        self.filters.by_hand(Some(kernel), |passes| passes.remove(kernel)).map_err(text)?;
        self.by_hand.retain(|own| own.number != number);
        Ok(())
    }

    /// Edits the instructions of a pass, in the draft if there is one.
    fn edit(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut Vec<Instruction>) -> Done<()>,
    ) -> Done<()> {
        let kernel = self.kernel(number);
        let mut instructions = self.instructions(number).ok_or_else(|| no_pass(number))?;
        change(&mut instructions)?;
        if let Some(draft) = &mut self.draft
            && let Some(one) = draft.iter_mut().find(|one| one.number == number)
        {
            self.filters.space(|space| space.view().check(&instructions)).map_err(text)?;
            (one.instructions, one.changed) = (instructions, true);
            return Ok(());
        }
        let replace = |passes: &mut KernelPasses| passes.replace(kernel, &instructions);
        self.filters.by_hand(Some(kernel), replace).map_err(text)
    }

    /// Sets or appends an instruction.
    pub fn set_instruction(
        &mut self,
        number: u32,
        index: usize,
        (op, arg, values): (u32, u32, &[u32]),
    ) -> Done<()> {
        let made = instruction(op, arg, values)?;
        self.edit(number, |instructions| {
            match index == instructions.len() {
                true => instructions.push(made),
                false => *at(instructions, index)? = made,
            }
            Ok(())
        })
    }

    /// Adds an alternative to an instruction.
    pub fn add_value(&mut self, number: u32, index: usize, value: u32) -> Done<()> {
        self.edit(number, |all| at(all, index)?.add_operand(value).map_err(text))
    }

    /// Removes an alternative of an instruction.
    pub fn remove_value(&mut self, number: u32, index: usize, value: u32) -> Done<()> {
        self.edit(number, |all| at(all, index)?.remove_operand(value).map_err(text))
    }

    /// Overwrites a word of an instruction.
    pub fn poke(&mut self, number: u32, index: usize, word: usize, value: u32) -> Done<()> {
        self.edit(number, |instructions| {
            let instruction = at(instructions, index)?;
            let place = match word {
                0 => &mut instruction.command,
                1..=7 => &mut instruction.params[word - 1],
                _ => return Err(format!("an instruction has words 0 to 7, not {word}")),
            };
            *place = value;
            Ok(())
        })
    }

    /// The instructions of a pass, in the draft if there is one.
    pub fn instructions(&self, number: u32) -> Option<Vec<Instruction>> {
        if let Some(draft) = &self.draft {
            if let Some(one) = draft.iter().find(|one| one.number == number) {
                return Some(one.instructions.clone());
            }
            if self.by_hand.iter().any(|own| own.number == number) {
                return None; // deleted by the group
            }
        }
        let kernel = self.kernel(number);
        self.filters.space(|space| Some(space.view().instructions(kernel)?.to_vec()))
    }

    /// Frames that a pass accepted.
    pub fn accepted_by_pass(&self, number: u32) -> u64 {
        let kernel = self.kernel(number);
        self.filters.space(|space| space.view().accepted(kernel)).unwrap_or(0)
    }

    /// Adds a text and returns its number, 0 if it became none; `alone` puts it in the
    /// place of all texts and passes.
    pub fn add_text(&mut self, words: &str, alone: bool) -> Done<u64> {
        if alone && self.draft.is_some() {
            return Err("a group is open: commit or abort it first".to_owned());
        }
        let (change, by_hand) = match alone {
            true => (Change::Set(words), ByHand::GiveWay),
            false => (Change::Add(words), ByHand::Stay),
        };
        let ids = self.change(&[change], by_hand)?;
        if alone {
            self.by_hand.clear();
        }
        Ok(ids.into_iter().flatten().next().unwrap_or(0))
    }

    /// Makes several changes of texts as one edit.
    pub fn edit_texts(&mut self, changes: &[Change<'_>]) -> Done<Vec<Option<u64>>> {
        self.change(changes, ByHand::Stay)
    }

    fn change(&self, changes: &[Change<'_>], by_hand: ByHand) -> Done<Vec<Option<u64>>> {
        let lowered = self.filters.lower(changes);
        let applied = lowered.and_then(|lowered| self.filters.apply(lowered, by_hand));
        applied.map_err(|refused| refusal(changes.len(), refused))
    }

    /// Frames that a text accepted.
    pub fn accepted_by_text(&self, id: u64) -> u64 {
        let counts = self.filters.counts();
        counts.iter().find(|count| count.id == id).map_or(0, |count| count.accepted)
    }

    /// The counters.
    pub fn counts(&self) -> FykeCounts {
        let tallies = self.filters.tallies();
        FykeCounts {
            accepted: tallies.accepted + tallies.unfiltered,
            rejected: tallies.rejected,
            capped: tallies.capped,
        }
    }
}

/// The reason why changes of texts are refused; of several, with the place of the wrong one.
pub fn refusal(count: usize, refused: fyke_filters::GroupError) -> String {
    let reason = match refused.error {
        // No change of the group is the reason.
        FilterError::Space(why) => return why,
        FilterError::LastFilter(id) => format!(
            "text {id} is the last one, and without a text every frame is accepted; an empty text \
             that is set accepts every frame"
        ),
        error => error.to_string(),
    };
    match count {
        1 => reason,
        _ => format!("change {}: {reason}", refused.place),
    }
}
