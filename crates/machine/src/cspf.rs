//! The stack machine: CSPF, the CMU/Stanford packet filter, as in Mach.
//!
//! A program is a list of 16-bit words, each with an action (a value to push) and an operator on the two values on
//! top of the stack. A packet is accessed as words too, never by single bytes. The stack starts with true and holds
//! [`STACK_WORDS`] words. It never under- or overflows: there are no jumps, so its depth at every word is known in
//! advance, and [`Program::new`] refuses programs with a wrong depth. A program accepts if the top of the stack is
//! not zero at its end.
//!
//! `cand`, `cor`, `cnand` and `cnor` remove both values if they do not end the program, as the program in the MPF
//! paper's Appendix C requires. Words are in network order; [`ByteOrder::Little`] reads them as the machine did for
//! which that program was written. `DEPARTURE:` Mach stores the link header separately; here packets start with it,
//! so `pushhdr n` is `pushword n`. Sun's branches and AIX's other actions are not supported.
//!
//! Cost: one step per word. Source: Mogul, Rashid, Accetta 1987; numbers from Mach's and Sun's headers.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_machine as machine}; }
//! use fyke::frame::{Frame, LinkType};
//! use fyke::machine::Symbols;
//! use fyke::machine::cspf::{ByteOrder, Program, assemble::assemble};
//!
//! let words = assemble("pushword P[0]\n pushlit | eq\n #0x0102", &Symbols::default())?;
//! let program = Program::new(words, ByteOrder::Network)?;
//! assert!(program.run(&Frame::new(LinkType::RAW, &[1, 2])));
//! assert!(!program.run(&Frame::new(LinkType::RAW, &[2, 1])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod assemble;
pub mod disassemble;

use fyke_frame::Frame;

/// Words on the stack, including the initial true.
pub const STACK_WORDS: usize = 32;
/// Maximum number of words of a program.
pub const MAX_WORDS: usize = 4096;

/// Value that a word pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// The next word of the program.
    Literal,
    /// A constant: 0, 1, 0xffff, 0xff00 or 0x00ff.
    Constant(u16),
    /// The packet's word at the index on top of the stack, which it replaces.
    Indirect,
    /// The same in the link header.
    HeaderIndirect,
    /// A word of the packet.
    Word(u16),
    /// A word of the link header.
    Header(u16),
    /// A copy of a word of the stack, 0 = the top.
    Stack(u16),
}

/// Operation of a word on the two values on top of the stack; `b` was pushed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Operator {
    /// No operation.
    Nop = 0,
    /// a == b.
    Eq = 1,
    /// a < b.
    Lt = 2,
    /// a <= b.
    Le = 3,
    /// a > b.
    Gt = 4,
    /// a >= b.
    Ge = 5,
    /// a & b.
    And = 6,
    /// a | b.
    Or = 7,
    /// a ^ b.
    Xor = 8,
    /// Accepts at once if equal.
    Cor = 9,
    /// Rejects at once if not equal.
    Cand = 10,
    /// Rejects at once if equal.
    Cnor = 11,
    /// Accepts at once if not equal.
    Cnand = 12,
    /// a != b.
    Neq = 13,
    /// a << b.
    Lsh = 14,
    /// a >> b.
    Rsh = 15,
    /// a + b.
    Add = 16,
    /// a − b.
    Sub = 17,
}

const OPERATORS: &[(&str, Operator)] = &[
    ("nop", Operator::Nop),
    ("eq", Operator::Eq),
    ("lt", Operator::Lt),
    ("le", Operator::Le),
    ("gt", Operator::Gt),
    ("ge", Operator::Ge),
    ("and", Operator::And),
    ("or", Operator::Or),
    ("xor", Operator::Xor),
    ("cor", Operator::Cor),
    ("cand", Operator::Cand),
    ("cnor", Operator::Cnor),
    ("cnand", Operator::Cnand),
    ("neq", Operator::Neq),
    ("lsh", Operator::Lsh),
    ("rsh", Operator::Rsh),
    ("add", Operator::Add),
    ("sub", Operator::Sub),
];

const CONSTANTS: &[(&str, u16, u16)] = &[
    ("pushzero", 2, 0),
    ("pushone", 3, 1),
    ("pushffff", 4, 0xffff),
    ("pushff00", 5, 0xff00),
    ("push00ff", 6, 0x00ff),
];

const ACTION_BITS: u16 = 10;
const FIRST_WORD: u16 = 16;
const FIRST_HEADER: u16 = 960;
const FIRST_STACK: u16 = 992;
const ACTION_END: u16 = 1024;

impl Action {
    /// Encodes the action in the low ten bits of a word; `None` if it has no code or its index is too large.
    pub fn number(self) -> Option<u16> {
        let in_range =
            |first: u16, n: u16, end: u16| first.checked_add(n).filter(|&number| number < end);
        match self {
            Action::None => Some(0),
            Action::Literal => Some(1),
            Action::Constant(value) => {
                CONSTANTS.iter().find(|constant| constant.2 == value).map(|constant| constant.1)
            }
            Action::Indirect => Some(14),
            Action::HeaderIndirect => Some(15),
            Action::Word(n) => in_range(FIRST_WORD, n, FIRST_HEADER),
            Action::Header(n) => in_range(FIRST_HEADER, n, FIRST_STACK),
            Action::Stack(n) => in_range(FIRST_STACK, n, ACTION_END),
        }
    }

    fn from_number(number: u16) -> Option<Action> {
        Some(match number {
            0 => Action::None,
            1 => Action::Literal,
            2..=6 => Action::Constant(CONSTANTS[usize::from(number) - 2].2),
            14 => Action::Indirect,
            15 => Action::HeaderIndirect,
            FIRST_WORD..FIRST_HEADER => Action::Word(number - FIRST_WORD),
            FIRST_HEADER..FIRST_STACK => Action::Header(number - FIRST_HEADER),
            FIRST_STACK..ACTION_END => Action::Stack(number - FIRST_STACK),
            _ => return None,
        })
    }
}

/// One word with its literal, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Action.
    pub action: Action,
    /// Literal to push, for [`Action::Literal`].
    pub literal: u16,
    /// Operator, applied after the push.
    pub operator: Operator,
}

/// Byte order in which words are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// Network order.
    #[default]
    Network,
    /// Little-endian order.
    Little,
}

/// An error in a program, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("word {at}: {problem}")]
pub struct ValidateError {
    /// Number of the word, from 0.
    pub at: usize,
    /// The rule that the program breaks.
    pub problem: Problem,
}

/// A rule that a program can break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The program has too many words.
    #[error("a program has at most {MAX_WORDS} words")]
    TooLong,
    /// The low bits are no action.
    #[error("there is no action {given}")]
    Action {
        /// The bits.
        given: u16,
    },
    /// The high bits are no operator.
    #[error("there is no operator {given}")]
    Operator {
        /// The bits.
        given: u16,
    },
    /// The program ends before the literal.
    #[error("pushes the next word, but this is the last")]
    NoLiteral,
    /// The stack has too few words.
    #[error("needs {needed} words on the stack; there are {depth}")]
    Underflow {
        /// Number of words needed.
        needed: usize,
        /// Number of words on the stack.
        depth: usize,
    },
    /// The stack is full.
    #[error("the stack holds {STACK_WORDS} words")]
    Overflow,
}

/// A validated program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    words: Vec<u16>,
    steps: Box<[Step]>,
    order: ByteOrder,
}

impl Program {
    /// Validates and decodes a program.
    ///
    /// # Errors
    /// The first invalid word, with the reason.
    pub fn new(words: Vec<u16>, order: ByteOrder) -> Result<Program, ValidateError> {
        if words.len() > MAX_WORDS {
            return Err(ValidateError { at: MAX_WORDS, problem: Problem::TooLong });
        }
        let mut steps = Vec::with_capacity(words.len());
        let mut depth = 1;
        let mut at = 0;
        while let Some(&word) = words.get(at) {
            let fail = |problem| ValidateError { at, problem };
            let (low, high) = (word & ((1 << ACTION_BITS) - 1), word >> ACTION_BITS);
            let action = Action::from_number(low).ok_or(fail(Problem::Action { given: low }))?;
            let operator = OPERATORS.get(usize::from(high)).map(|&(_, operator)| operator);
            let operator = operator.ok_or(fail(Problem::Operator { given: high }))?;
            let mut literal = 0;
            if action == Action::Literal {
                literal = *words.get(at + 1).ok_or(fail(Problem::NoLiteral))?;
            }
            depth = depth_after(action, operator, depth).map_err(fail)?;
            at += if action == Action::Literal { 2 } else { 1 };
            steps.push(Step { action, literal, operator });
        }
        Ok(Program { words, steps: steps.into(), order })
    }

    /// The words.
    pub fn words(&self) -> &[u16] {
        &self.words
    }

    /// The words, decoded.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns true if the program accepts the packet. Access to a word outside of it rejects.
    pub fn run(&self, frame: &Frame<'_>) -> bool {
        self.execute(frame.data).unwrap_or(false)
    }

    fn execute(&self, data: &[u8]) -> Option<bool> {
        let order = self.order;
        let word = |n: u16| -> Option<u16> {
            let bytes = *data.get(usize::from(n) * 2..)?.first_chunk()?;
            Some(match order {
                ByteOrder::Network => u16::from_be_bytes(bytes),
                ByteOrder::Little => u16::from_le_bytes(bytes),
            })
        };
        // Depths are validated, so no index is out of range; `get` costs the same as an index.
        let mut stack = [0u16; STACK_WORDS];
        stack[0] = 1;
        let mut top = 0;
        for step in &self.steps {
            let pushed = match step.action {
                Action::None => None,
                Action::Literal => Some(step.literal),
                Action::Constant(value) => Some(value),
                Action::Word(n) | Action::Header(n) => Some(word(n)?),
                Action::Stack(n) => Some(*stack.get(top - usize::from(n))?),
                Action::Indirect | Action::HeaderIndirect => {
                    let index = *stack.get(top)?;
                    *stack.get_mut(top)? = word(index)?;
                    None
                }
            };
            if let Some(value) = pushed {
                top += 1;
                *stack.get_mut(top)? = value;
            }
            if step.operator == Operator::Nop {
                continue;
            }
            let (b, a) = (*stack.get(top)?, *stack.get(top - 1)?);
            let result = match step.operator {
                Operator::Nop => b,
                Operator::Eq => (a == b).into(),
                Operator::Neq => (a != b).into(),
                Operator::Lt => (a < b).into(),
                Operator::Le => (a <= b).into(),
                Operator::Gt => (a > b).into(),
                Operator::Ge => (a >= b).into(),
                Operator::And => a & b,
                Operator::Or => a | b,
                Operator::Xor => a ^ b,
                Operator::Lsh => a.checked_shl(b.into()).unwrap_or(0),
                Operator::Rsh => a.checked_shr(b.into()).unwrap_or(0),
                Operator::Add => a.wrapping_add(b),
                Operator::Sub => a.wrapping_sub(b),
                Operator::Cor if a == b => return Some(true),
                Operator::Cand if a != b => return Some(false),
                Operator::Cnor if a == b => return Some(false),
                Operator::Cnand if a != b => return Some(true),
                Operator::Cor | Operator::Cand | Operator::Cnor | Operator::Cnand => {
                    top -= 2;
                    continue;
                }
            };
            top -= 1;
            *stack.get_mut(top)? = result;
        }
        Some(stack.get(top).is_some_and(|&value| value != 0))
    }
}

/// Depth of the stack after a step. It is at least 1, since the end of the program tests the top.
fn depth_after(action: Action, operator: Operator, depth: usize) -> Result<usize, Problem> {
    let needs = |needed: usize, depth: usize| match depth {
        depth if depth >= needed => Ok(()),
        _ => Err(Problem::Underflow { needed, depth }),
    };
    let depth = match action {
        Action::None => depth,
        Action::Indirect | Action::HeaderIndirect => {
            needs(1, depth)?;
            depth
        }
        Action::Stack(n) => {
            needs(usize::from(n) + 1, depth)?;
            depth + 1
        }
        _ => depth + 1,
    };
    if depth > STACK_WORDS {
        return Err(Problem::Overflow);
    }
    let ends =
        matches!(operator, Operator::Cor | Operator::Cand | Operator::Cnor | Operator::Cnand);
    match operator {
        Operator::Nop => Ok(depth),
        _ if ends => needs(3, depth).map(|()| depth - 2),
        _ => needs(2, depth).map(|()| depth - 1),
    }
}
