//! Declared shapes: tables of passes that a program names and edits row by row.
//!
//! Passes become rows of tables automatically (`shapes.rs`). A program that makes many passes of one shape, for example
//! a tracker, can declare the shape and then add and remove rows for the price of a few stores:
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_pass as pass}; }
//! use fyke::pass::{PassSet, primitive};
//! # use fyke::frame::LinkType;
//! let mut set = PassSet::new(LinkType::EN10MB);
//! let udp = primitive::ether_ip_udp_nonfrag();
//! let (host, port) = (primitive::ip_dst_host(0), primitive::ip_port_dst(&[0])?);
//! let calls = set.new_shape(&[udp, host, port], &[1, 2])?;
//! let mut edit = set.edit();
//! let call = edit.add_row(calls, &[0x0a00_0001, 5060])?;
//! edit.commit();
//! let mut edit = set.edit();
//! edit.remove_row(call)?;
//! edit.commit();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Such a row belongs to no filter and has no children; frames that are too short for it do not match it. It is not
//! among [`PassSet::passes`].

use crate::isa::id::{PassId, ShapeId};
use crate::isa::layout::{Instruction, Opcode, Operands};
use crate::writer::error::EditError;
use crate::writer::pass_set::PassSet;
use crate::writer::shapes::{ROW_LIMIT, Shape};

/// View of a declared shape.
#[derive(Debug, Clone, Copy)]
pub struct ShapeView<'a> {
    /// Its number.
    pub id: ShapeId,
    shape: &'a Shape,
}

/// View of a row of a declared shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowView {
    /// The number under which matches name it.
    pub pass: PassId,
    /// The words of the instructions that vary, under their masks.
    pub operands: Vec<u32>,
    /// Number of frames that it has accepted.
    pub accepted: u64,
}

impl PassSet {
    /// Declares a shape: instructions of which those at `varying` have other operands in each row. It is in force at
    /// once, but without rows it accepts nothing. The operands that `instructions` have at `varying` do not matter.
    ///
    /// # Errors
    /// [`EditError::NotExact`] and [`EditError::KeyWidth`] if `varying` are not comparisons of 1 to 6 words with one
    /// value each; [`EditError::TooManyShapes`]; [`EditError::Instruction`]; [`EditError::PassFull`].
    pub fn new_shape(
        &mut self,
        instructions: &[Instruction],
        varying: &[usize],
    ) -> Result<ShapeId, EditError> {
        let limit = self.capacity().instructions;
        if instructions.len() > limit {
            return Err(EditError::PassFull { limit });
        }
        self.check_all(instructions)?;
        let compiled = self.compile(instructions);
        let next_pass = self.state.last_pass + 1;
        let declared = self.shapes.declare(instructions, &compiled, varying, next_pass);
        if declared.is_err() {
            self.forget(instructions);
        } else {
            self.publish_snapshot();
        }
        declared.map(ShapeId)
    }

    /// Removes a declared shape that has no rows.
    ///
    /// # Errors
    /// [`EditError::NoShape`], [`EditError::ShapeInUse`]
    pub fn drop_shape(&mut self, id: ShapeId) -> Result<(), EditError> {
        let shape = self.shapes.undeclare(id.0)?;
        self.forget(&shape.model);
        self.publish_snapshot();
        Ok(())
    }

    /// Makes room for `rows` more rows of a declared shape, so that adding them does not rebuild tables.
    ///
    /// # Errors
    /// [`EditError::NoShape`], [`EditError::Full`]
    pub fn reserve_rows(&mut self, id: ShapeId, rows: usize) -> Result<(), EditError> {
        let limit = self.capacity().passes.min(ROW_LIMIT);
        if self.pass_count() + rows > limit {
            return Err(EditError::Full { limit });
        }
        self.shapes.reserve(id.0, rows)
    }

    /// The declared shapes.
    pub fn shapes(&self) -> impl Iterator<Item = ShapeView<'_>> {
        self.shapes.declared().map(|(number, shape)| ShapeView { id: ShapeId(number), shape })
    }
}

impl<'a> ShapeView<'a> {
    /// The instructions with which it was declared.
    pub fn instructions(&self) -> &'a [Instruction] {
        &self.shape.model
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.shape.rows
    }

    /// The instructions of one of its rows, as if it were a pass.
    pub fn instructions_of(&self, row: &RowView) -> Vec<Instruction> {
        let mut instructions = self.shape.model.clone();
        let mut words = row.operands.iter().copied();
        for index in self.shape.key_instructions() {
            let one = &mut instructions[index];
            let Some(form) = one.opcode().map(Opcode::form) else { continue };
            let count = one.count() as usize;
            for (number, word) in words.by_ref().take(count).enumerate() {
                let (step, shift) = match form.operands {
                    Operands::Any16 | Operands::All16 => (number / 2, 16 * (number % 2)),
                    Operands::Masked32 => (2 * number, 0),
                    _ => (number, 0),
                };
                let kept = if shift > 0 { 0xffff } else { 0 };
                let param = &mut one.params[usize::from(form.first_operand) + step];
                *param = *param & kept | word << shift;
            }
        }
        instructions
    }

    /// The rows, in no particular order.
    pub fn rows(&self) -> impl Iterator<Item = RowView> + use<'a> {
        let shape = self.shape;
        shape.kept().map(|(number, slot)| RowView {
            pass: PassId(slot.pass()),
            operands: shape.key_of(slot),
            accepted: shape.published.accepted(number),
        })
    }
}
