//! Makes the kernel's list equal to a pass set's: what filter texts became, edited by `ctl` or by a tracker.
//!
//! The passes of both sides are compared from both ends; what differs in the middle is replaced by one splice. So an
//! edit that adds, changes or removes a filter takes effect for a frame as a whole, and the passes outside the middle
//! are not touched. Sets become tables: first the rows, then the pass that names them. O(passes) comparisons an
//! edit; whoever wants an edit in a microsecond at any size calls [`KernelPasses`] itself.
//!
//! The kernel judges passes as they stand: a load out of bounds fails the pass that makes it, while a text's ordered
//! evaluation would reject the frame altogether. The two differ only for frames that end inside the headers that the
//! text looks at (shorter than [`fyke_pass::pass_set::FilterView::complete_from`] says).

use crate::error::KernelEditError;
use crate::passes::{KernelPassId, KernelPasses, NewPass};
use crate::rows::{Rows, TableId};
use fyke_pass::{Epoch, Instruction, Opcode, PassId, PassSet, PassView};
use std::collections::HashMap;

/// The parameter that names a set, and in the kernel its table.
const SET_PARAM: usize = 2;

/// What of a pass set is in the kernel.
#[derive(Debug, Default)]
pub struct Mirror {
    passes: Vec<Mirrored>,
    tables: HashMap<u32, (TableId, Vec<u64>)>,
}

#[derive(Debug, Clone, Copy)]
struct Mirrored {
    pass: PassId,
    changed: Epoch,
    kernel: KernelPassId,
}

impl Mirror {
    /// Makes the kernel's passes equal to the set's.
    ///
    /// # Errors
    /// A pass cannot run in the kernel, or does not fit; nothing has changed then.
    pub fn sync(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
    ) -> Result<(), KernelEditError> {
        let wanted: Vec<PassView<'_>> = set.passes().collect();
        let same = |(have, want): &(&Mirrored, &PassView<'_>)| {
            have.pass == want.id && have.changed == want.changed
        };
        let front = self.passes.iter().zip(&wanted).take_while(same).count();
        let (old, new) = (&self.passes[front..], &wanted[front..]);
        let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        let (old, new) = (&old[..old.len() - back], &new[..new.len() - back]);

        let mut made = Vec::new();
        let translated = new.iter().map(|pass| self.translate(kernel, set, pass, &mut made));
        let result = translated.collect::<Result<Vec<_>, _>>().and_then(|bodies| {
            let removed: Vec<KernelPassId> = old.iter().map(|have| have.kernel).collect();
            let added: Vec<NewPass<'_>> = new
                .iter()
                .zip(&bodies)
                .map(|(pass, instructions)| {
                    let counts_for = old.iter().find(|have| have.pass == pass.id);
                    NewPass { instructions, counts_for: counts_for.map(|have| have.kernel) }
                })
                .collect();
            let after = front.checked_sub(1).map(|last| self.passes[last].kernel);
            if wanted.is_empty() {
                kernel.set_empty_accepts(set.is_empty());
            }
            kernel.splice(after, &removed, &added)
        });
        let ids = match result {
            Ok(ids) => ids,
            Err(error) => {
                made.into_iter().for_each(|(_, table, keys)| kernel.retire_table(table, keys));
                return Err(error);
            }
        };
        self.tables.extend(made.into_iter().map(|(set, table, keys)| (set, (table, keys))));
        let mirrored = new.iter().zip(ids).map(|(pass, kernel)| Mirrored {
            pass: pass.id,
            changed: pass.changed,
            kernel,
        });
        let end = front + old.len();
        let mirrored: Vec<Mirrored> = mirrored.collect();
        self.passes.splice(front..end, mirrored);
        let gone: Vec<u32> = self
            .tables
            .keys()
            .copied()
            .filter(|&set_number| set.value_set(set_number).is_none())
            .collect();
        for number in gone {
            if let Some((table, keys)) = self.tables.remove(&number) {
                kernel.retire_table(table, keys);
            }
        }
        Ok(())
    }

    /// Adds the passes of a set behind the others, or, in one step, in the place of the given ones, which must be all
    /// there are. The set is not followed afterwards; tables that it needs stay.
    ///
    /// # Errors
    /// A pass cannot run in the kernel, or does not fit; nothing has changed then.
    pub fn append(
        kernel: &mut KernelPasses,
        set: &PassSet,
        instead_of: Option<&[KernelPassId]>,
    ) -> Result<Vec<KernelPassId>, KernelEditError> {
        let (mirror, mut made) = (Mirror::default(), Vec::new());
        let bodies = set.passes().map(|pass| mirror.translate(kernel, set, &pass, &mut made));
        let bodies: Result<Vec<_>, _> = bodies.collect();
        let result = bodies.and_then(|bodies| {
            let added: Vec<NewPass<'_>> = bodies
                .iter()
                .map(|instructions| NewPass { instructions, counts_for: None })
                .collect();
            let after = if instead_of.is_some() { None } else { kernel.last() };
            kernel.splice(after, instead_of.unwrap_or_default(), &added)
        });
        if result.is_err() {
            made.into_iter().for_each(|(_, table, keys)| kernel.retire_table(table, keys));
        }
        result
    }

    /// Frames that a pass accepted in the kernel.
    pub fn accepted(&self, kernel: &KernelPasses, pass: PassId) -> Option<u64> {
        let mirrored = self.passes.iter().find(|have| have.pass == pass)?;
        kernel.accepted(mirrored.kernel)
    }

    /// The instructions of a pass with sets replaced by tables.
    fn translate(
        &self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        pass: &PassView<'_>,
        made: &mut Vec<(u32, TableId, Vec<u64>)>,
    ) -> Result<Vec<Instruction>, KernelEditError> {
        let mut instructions = pass.instructions.to_vec();
        for instruction in &mut instructions {
            if !matches!(instruction.opcode(), Some(Opcode::DSet | Opcode::L1Set)) {
                continue;
            }
            let number = instruction.params[SET_PARAM];
            let known = self.tables.get(&number).map(|(table, _)| *table);
            let known = known.or(made.iter().find(|(set, ..)| *set == number).map(|made| made.1));
            let table = match known {
                Some(table) => table,
                None => {
                    let members =
                        set.value_set(number).map(|set| set.members()).unwrap_or_default();
                    let keys = members.iter().map(|&value| Rows::value_key(value as u32));
                    let keys: Vec<u64> = keys.collect();
                    let table = kernel.table(&keys)?;
                    made.push((number, table, keys));
                    table
                }
            };
            instruction.params[SET_PARAM] = table.0.into();
        }
        Ok(instructions)
    }
}
