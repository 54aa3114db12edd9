//! The stack machine: CSPF, the CMU/Stanford packet filter, as Mach has it.
//!
//! A program is a list of 16-bit words, each an action (what to push) and an operator (what to do with the two values
//! on top). A packet is words too: there is no direct way to a byte. The stack starts with true, holds
//! [`STACK_WORDS`] words and never under- or overflows: there are no jumps, so its depth at every word is known
//! beforehand, and [`Program::new`] refuses what would. A program accepts when the top of the stack is not zero at its
//! end.
//!
//! `cand`, `cor`, `cnand` and `cnor` take both values away when they do not end the program, as the program in the MPF
//! paper's Appendix C needs it. Words are in network order; [`ByteOrder::Little`] reads them as the machine did for
//! which that program was written. `DEPARTURE:` Mach keeps the link header apart; here packets start with it, so
//! `pushhdr n` is `pushword n`. Sun's branches and AIX's other actions are not taken over.
//!
//! Cost: one step a word. Source: Mogul, Rashid, Accetta 1987; numbers from Mach's and Sun's headers.

pub mod assemble;
pub mod disassemble;

use fyke_frame::Frame;

/// Words on the stack, the first true included.
pub const STACK_WORDS: usize = 32;
/// Most words of a program.
pub const MAX_WORDS: usize = 4096;

/// What a word pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// The next word of the program.
    Literal,
    /// A constant: 0, 1, 0xffff, 0xff00 or 0x00ff.
    Constant(u16),
    /// The packet's word that the top of the stack names, which it replaces.
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

/// What a word does with the two values on top of the stack; `b` was pushed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Operator {
    /// Nothing.
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
    /// Bits of both.
    And = 6,
    /// Bits of either.
    Or = 7,
    /// Bits of one.
    Xor = 8,
    /// Accept at once when equal.
    Cor = 9,
    /// Reject at once when not equal.
    Cand = 10,
    /// Reject at once when equal.
    Cnor = 11,
    /// Accept at once when not equal.
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
    /// The low ten bits of a word; `None` where they do not say anything, or too much to fit.
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
    /// What is pushed.
    pub action: Action,
    /// The pushed literal, for [`Action::Literal`].
    pub literal: u16,
    /// What is done then.
    pub operator: Operator,
}

/// In which order the two bytes of a word are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// As they are on the wire.
    #[default]
    Network,
    /// As a little-endian machine reads them.
    Little,
}

/// What is wrong with a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("word {at}: {problem}")]
pub struct ValidateError {
    /// Number of the word, from 0.
    pub at: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// The rule that is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Too many words.
    #[error("a program has at most {MAX_WORDS} words")]
    TooLong,
    /// The low bits say nothing.
    #[error("there is no action {given}")]
    Action {
        /// The bits.
        given: u16,
    },
    /// The high bits say nothing.
    #[error("there is no operator {given}")]
    Operator {
        /// The bits.
        given: u16,
    },
    /// The program ends before the literal.
    #[error("pushes the next word, but this is the last")]
    NoLiteral,
    /// The stack holds too little.
    #[error("needs {needed} words on the stack; there are {depth}")]
    Underflow {
        /// How many it needs.
        needed: usize,
        /// How many there are.
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
    /// Validates and decodes.
    ///
    /// # Errors
    /// The first word that may not be, with the reason.
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

    /// Whether the program accepts the packet. A word outside of it rejects.
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
        // Depths are validated, so that nothing here is out of range; `get` costs what an index would.
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

/// Depth of the stack after a step, from 1 on: the program's end looks at the top.
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
