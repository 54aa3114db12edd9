//! Small assembler for eBPF: only what the specialised tier and the comparisons with the kernel's JIT need.
//!
//! An instruction has 64 bits: operation, two registers, a 16-bit offset, a 32-bit constant. Jumps go forward to
//! [`Label`]s that are bound later, so programs have no loops. O(instructions). Source: the kernel's
//! `instruction-set.rst`. Loads from the packet ([`Assembler::packet_at`]) are the legacy loads of classic BPF. The
//! verifier turns them into inline code, with a call only for bytes outside the frame's linear part.

use crate::sys::{self, TestRun};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A register: 0 holds results, 1 to 5 arguments (lost in calls and packet loads); 6 to 9 are preserved; 10 is the
/// stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub u8);

/// Result of calls and packet loads.
pub const R0: Register = Register(0);
/// The first argument; at the start of a program, the context.
pub const R1: Register = Register(1);
/// The second argument.
pub const R2: Register = Register(2);
/// The third argument.
pub const R3: Register = Register(3);
/// The fourth argument.
pub const R4: Register = Register(4);
/// The fifth argument.
pub const R5: Register = Register(5);
/// Preserved; packet loads need the context here.
pub const R6: Register = Register(6);
/// Preserved.
pub const R7: Register = Register(7);
/// Preserved.
pub const R8: Register = Register(8);
/// Preserved.
pub const R9: Register = Register(9);
/// The end of the stack.
pub const R10: Register = Register(10);

/// Width of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// Four bytes.
    Word = 0x00,
    /// Two.
    Half = 0x08,
    /// One.
    Byte = 0x10,
    /// Eight; not from the packet.
    Double = 0x18,
}

/// Arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are clear")]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Shl = 0x60,
    Shr = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
}

/// Condition of a jump; comparisons are unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are clear")]
pub enum When {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    AnyBit = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
    AtMost = 0xb0,
}

/// A jump target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// Reason why a program could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A jump is longer than 32,767 instructions.
    #[error("the program has {given} instructions; a jump reaches at most 32,767")]
    TooLong {
        /// Its length.
        given: usize,
    },
    /// The verifier or the system refuses.
    #[error("the kernel refuses the program ({source}): {log_line}")]
    Refused {
        /// The error.
        source: io::Error,
        /// The last line of the verifier's log.
        log_line: String,
    },
}

/// A program under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    /// Positions of the labels; `None` until bound.
    labels: Vec<Option<usize>>,
    /// Jumps without an offset yet.
    jumps: Vec<(usize, Label)>,
}

const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_JMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_ABS: u8 = 0x20;
const MODE_IND: u8 = 0x40;
const MODE_MEM: u8 = 0x60;
const MODE_ATOMIC: u8 = 0xc0;
const EXIT: u8 = CLASS_JMP | 0x90;
const FROM_REGISTER: u8 = 0x08;
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;
const KERNEL_FUNCTION: u8 = 2;

impl Assembler {
    /// Number of instructions so far.
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// True if there is no instruction yet.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    fn put(&mut self, code: u8, to: Register, from: u8, offset: i16, constant: i32) {
        let registers = u64::from(to.0 | from << 4) << 8;
        let offset = u64::from(offset as u16) << 16;
        self.code.push(u64::from(code) | registers | offset | u64::from(constant as u32) << 32);
    }

    /// `to = to op constant`, 32 bits wide, the upper half becomes zero.
    pub fn alu(&mut self, op: Alu, to: Register, constant: u32) {
        self.put(CLASS_ALU | op as u8, to, 0, 0, constant as i32);
    }

    /// `to = to op from`, 32 bits wide, the upper half becomes zero.
    pub fn alu_register(&mut self, op: Alu, to: Register, from: Register) {
        self.put(CLASS_ALU | op as u8 | FROM_REGISTER, to, from.0, 0, 0);
    }

    /// `to = to op constant`, 64 bits wide; the constant's sign is extended.
    pub fn alu64(&mut self, op: Alu, to: Register, constant: i32) {
        self.put(CLASS_ALU64 | op as u8, to, 0, 0, constant);
    }

    /// `to = to op from`, 64 bits wide.
    pub fn alu64_register(&mut self, op: Alu, to: Register, from: Register) {
        self.put(CLASS_ALU64 | op as u8 | FROM_REGISTER, to, from.0, 0, 0);
    }

    /// `to = -to`, 32 bits wide.
    pub fn negate(&mut self, to: Register) {
        self.put(CLASS_ALU | 0x80, to, 0, 0, 0);
    }

    /// `to = *(from + offset)`.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.put(CLASS_LDX | MODE_MEM | width as u8, to, from.0, offset, 0);
    }

    /// `*(to + offset) = constant`.
    pub fn store(&mut self, width: Width, to: Register, offset: i16, constant: i32) {
        self.put(CLASS_ST | MODE_MEM | width as u8, to, 0, offset, constant);
    }

    /// `*(to + offset) = from`.
    pub fn store_register(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.put(CLASS_STX | MODE_MEM | width as u8, to, from.0, offset, 0);
    }

    /// `*(to + offset) += from`, 64 bits wide and in one step.
    pub fn add_in_memory(&mut self, to: Register, offset: i16, from: Register) {
        self.put(CLASS_STX | MODE_ATOMIC | Width::Double as u8, to, from.0, offset, 0);
    }

    /// Turns the lower `bits` (16, 32) from the network's order to the machine's; the upper ones become zero.
    pub fn from_network(&mut self, to: Register, bits: u32) {
        self.put(CLASS_ALU | 0xd0 | FROM_REGISTER, to, 0, 0, bits as i32);
    }

    /// `R0 =` the number at an offset of the packet. If the packet is shorter, the program ends and returns 0.
    pub fn packet_at(&mut self, width: Width, offset: u32) {
        self.put(CLASS_LD | MODE_ABS | width as u8, R0, 0, 0, offset as i32);
    }

    /// As [`Assembler::packet_at`], at `offset` bytes after the offset in `from`.
    pub fn packet_behind(&mut self, width: Width, from: Register, offset: u32) {
        self.put(CLASS_LD | MODE_IND | width as u8, R0, from.0, 0, offset as i32);
    }

    /// `to =` the address `offset` bytes into the value of a map with one entry.
    pub fn map_value(&mut self, to: Register, map: BorrowedFd<'_>, offset: u32) {
        self.put(CLASS_LD | Width::Double as u8, to, MAP_VALUE, 0, map.as_raw_fd());
        self.put(0, R0, 0, 0, offset as i32);
    }

    /// `to =` a map.
    pub fn map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.put(CLASS_LD | Width::Double as u8, to, MAP, 0, map.as_raw_fd());
        self.put(0, R0, 0, 0, 0);
    }

    /// `to =` a number.
    pub fn number(&mut self, to: Register, value: u64) {
        self.put(CLASS_LD | Width::Double as u8, to, 0, 0, value as i32);
        self.put(0, R0, 0, 0, (value >> 32) as i32);
    }

    /// Calls a helper function of the kernel.
    pub fn call(&mut self, helper: u32) {
        self.put(CLASS_JMP | 0x80, R0, 0, 0, helper as i32);
    }

    /// Calls a function of the kernel by its type number (Linux 5.13).
    pub fn call_kernel(&mut self, function: u32) {
        self.put(CLASS_JMP | 0x80, R0, KERNEL_FUNCTION, 0, function as i32);
    }

    /// Ends with what is in `R0`.
    pub fn exit(&mut self) {
        self.put(EXIT, R0, 0, 0, 0);
    }

    /// Makes a label without a position.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Gives the label the current position.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Jumps.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(CLASS_JMP, R0, 0, 0, 0);
    }

    /// Jumps if the comparison of a register's lower 32 bits with a constant holds.
    pub fn jump_when(&mut self, left: Register, when: When, right: u32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(CLASS_JMP32 | when as u8, left, 0, 0, right as i32);
    }

    /// Jumps if the comparison of the lower 32 bits of two registers holds.
    pub fn jump_when_register(&mut self, left: Register, when: When, right: Register, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(CLASS_JMP32 | when as u8 | FROM_REGISTER, left, right.0, 0, 0);
    }

    /// Jumps if the comparison of two registers holds, 64 bits wide.
    pub fn jump_when_register64(&mut self, left: Register, when: When, right: Register, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(CLASS_JMP | when as u8 | FROM_REGISTER, left, right.0, 0, 0);
    }

    /// Jumps if the comparison of a register with a sign-extended constant holds, 64 bits wide.
    pub fn jump_when64(&mut self, left: Register, when: When, right: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(CLASS_JMP | when as u8, left, 0, 0, right);
    }

    /// Returns the reachable instructions with all jumps filled in. The verifier refuses unreachable instructions.
    ///
    /// # Errors
    /// [`ProgramError::TooLong`]
    ///
    /// # Panics
    /// If a label that is the target of a jump was not bound, which is a bug in the caller.
    pub fn finish(mut self) -> Result<Vec<u64>, ProgramError> {
        let given = self.code.len();
        let place = |label: Label| self.labels[label.0].expect("a label without a place");
        let targets: HashMap<usize, usize> =
            self.jumps.iter().map(|&(from, label)| (from, place(label))).collect();
        let kept = self.reachable(&targets);
        // New position of each instruction; for a removed one, of the next kept one.
        let mut places = Vec::with_capacity(given + 1);
        let mut next = 0;
        for &is_kept in &kept {
            places.push(next);
            next += usize::from(is_kept);
        }
        places.push(next);
        for (from, to) in targets {
            let distance = places[to] as i64 - places[from] as i64 - 1;
            let distance = i16::try_from(distance).map_err(|_| ProgramError::TooLong { given })?;
            self.code[from] |= u64::from(distance as u16) << 16;
        }
        let code = self.code.into_iter().zip(kept);
        Ok(code.filter_map(|(one, is_kept)| is_kept.then_some(one)).collect())
    }

    /// True for each instruction that can be reached from the first one.
    fn reachable(&self, targets: &HashMap<usize, usize>) -> Vec<bool> {
        let mut reached = vec![false; self.code.len()];
        let mut waiting = vec![0];
        while let Some(at) = waiting.pop() {
            match reached.get_mut(at) {
                Some(reached) if !*reached => *reached = true,
                _ => continue,
            }
            let code = self.code[at] as u8;
            waiting.extend(targets.get(&at));
            if code == CLASS_LD | Width::Double as u8 {
                // A 64-bit constant takes two instructions.
                reached[at + 1] = true;
                waiting.push(at + 2);
            } else if code != CLASS_JMP && code != EXIT {
                waiting.push(at + 1);
            }
        }
        reached
    }
}

/// The bytes of a call: of a helper, or of a kernel function by its type number.
pub(crate) fn call_of(number: u32, of_kernel: bool) -> [u8; 8] {
    let registers = if of_kernel { KERNEL_FUNCTION << 4 } else { 0 };
    let [a, b, c, d] = number.to_ne_bytes();
    [CLASS_JMP | 0x80, registers, 0, 0, a, b, c, d]
}

/// Type of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A filter of a socket.
    SocketFilter = 1,
    /// A classifier of traffic control, which may read the packet's bytes directly.
    Classifier = 3,
}

/// A program in the kernel.
#[derive(Debug)]
pub struct Program {
    descriptor: OwnedFd,
    kind: Kind,
}

impl Program {
    /// Loads the program; the kernel verifies and compiles it.
    ///
    /// # Errors
    /// [`ProgramError::Refused`]
    pub fn load(kind: Kind, code: &[u64]) -> Result<Program, ProgramError> {
        Ok(Program { descriptor: load(kind, code)?, kind })
    }

    /// A program that another process has loaded.
    pub(crate) fn of(descriptor: OwnedFd, kind: Kind) -> Program {
        Program { descriptor, kind }
    }

    /// Runs the program on a frame, `repeat` times.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        match self.kind {
            Kind::SocketFilter => sys::test_run(self.as_fd(), &with_ethernet_header(frame), repeat),
            Kind::Classifier => sys::test_run(self.as_fd(), frame, repeat),
        }
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Puts an empty Ethernet header before a frame, because the kernel removes one when it runs a socket filter on it.
pub(crate) fn with_ethernet_header(frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    bytes.extend_from_slice(frame);
    bytes
}

fn load(kind: Kind, code: &[u64]) -> Result<OwnedFd, ProgramError> {
    sys::load_program(kind as u32, code).map_err(|(source, log)| {
        let log_line = log.lines().rev().find(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("processed") && !line.starts_with("verification")
        });
        ProgramError::Refused { source, log_line: log_line.unwrap_or_default().to_owned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_loaded_and_runs() {
        let mut asm = Assembler::default();
        let other = asm.label();
        asm.alu64_register(Alu::Mov, R6, R1);
        asm.packet_at(Width::Half, 12);
        asm.jump_when(R0, When::NotEqual, 0x800, other);
        asm.alu(Alu::Mov, R0, 7);
        asm.exit();
        asm.bind(other);
        asm.alu(Alu::Mov, R0, 0);
        asm.exit();
        let loaded = Program::load(Kind::SocketFilter, &asm.finish().unwrap());
        let is_missing = |error: &ProgramError| error.to_string().contains("os error 1)");
        let Some(program) = fyke_testkit::skip::unless_missing(loaded, is_missing) else { return };
        let mut frame = vec![0; 60];
        assert_eq!(program.test_run(&frame, 1).unwrap().returned, 0);
        frame[12] = 8;
        assert_eq!(program.test_run(&frame, 1).unwrap().returned, 7);
    }

    #[test]
    fn a_refusal_contains_the_verifiers_message() {
        let mut asm = Assembler::default();
        asm.load(Width::Word, R0, R1, 10_000);
        asm.exit();
        let code = asm.finish().unwrap();
        let error = Program::load(Kind::SocketFilter, &code).unwrap_err().to_string();
        assert!(error.contains("bpf_context") || error.contains("permitted"), "{error}");
    }

    #[test]
    fn a_jump_that_is_too_long_is_refused() {
        let mut asm = Assembler::default();
        let far = asm.label();
        asm.jump_when(R1, When::Equal, 0, far);
        (0..40_000).for_each(|_| asm.alu(Alu::Mov, R0, 0));
        asm.bind(far);
        asm.exit();
        assert!(matches!(asm.finish(), Err(ProgramError::TooLong { .. })));
    }
}
