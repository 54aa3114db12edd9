//! The validator: checks that a program may run, and gives the reason if not.
//!
//! A valid program ends after at most as many steps as it has instructions, because jumps only go forward. It
//! accesses only the packet, the registers and the 16 scratch words. For MPF there are further rules about matches,
//! so that one run of a group of collapsed programs equals a run of each of them:
//!
//! - all match instructions of a program have the same keys (the paper: a single associative match);
//! - `register_data` is reached only after a match that succeeded (the paper's own rule);
//! - in a program with a match, only paths on which it succeeded may return more than `#0`.
//!
//! Cost: O(instructions).

use super::{Dialect, Instruction, MAX_INSTRUCTIONS, MAX_KEYS, SCRATCH_WORDS, code, is_mpf};
use fyke_frame::bpf::ARITHMETIC;

/// An error in a program, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", at.map_or(String::new(), |at| format!("instruction {at}: ")))]
pub struct ValidateError {
    /// Number of the instruction, from 0; `None` if the error concerns the whole program.
    pub at: Option<usize>,
    /// The rule that the program breaks.
    pub problem: Problem,
}

/// A rule that a program can break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The program has no instructions.
    #[error("a program needs an instruction")]
    Empty,
    /// The program has too many instructions.
    #[error("{given} instructions; at most {MAX_INSTRUCTIONS} are allowed")]
    TooLong {
        /// Their number.
        given: usize,
    },
    /// The operation code does not exist.
    #[error("there is no operation 0x{given:x}")]
    Unknown {
        /// The code.
        given: u16,
    },
    /// A BPF program has an instruction of MPF.
    #[error("operation 0x{given:x} is one of MPF, not of BPF")]
    NotBpf {
        /// The code.
        given: u16,
    },
    /// A jump leaves the program.
    #[error("jumps to {target}, past the last instruction {last}")]
    JumpRange {
        /// Target of the jump.
        target: u64,
        /// Last instruction.
        last: usize,
    },
    /// A jump goes between a match and its keys.
    #[error("jumps to {target}, which is a key")]
    JumpIntoKeys {
        /// Target of the jump.
        target: usize,
    },
    /// The scratch word does not exist.
    #[error("there is no M[{given}]: the scratch memory has {SCRATCH_WORDS} words")]
    Scratch {
        /// The index.
        given: u32,
    },
    /// The program divides by a constant zero.
    #[error("divides by zero")]
    DivisionByZero,
    /// The program shifts by 32 or more.
    #[error("shifts by {given}; a word has 32 bits")]
    Shift {
        /// The distance.
        given: u32,
    },
    /// The last instruction is not a return.
    #[error("the last instruction must be a return")]
    NoReturn,
    /// The marker is not at the start.
    #[error("`begin` is only allowed at the start")]
    Begin,
    /// A match has too many keys, or none.
    #[error("{given} keys; there are 1 to {MAX_KEYS}")]
    KeyCount {
        /// Their number.
        given: u32,
    },
    /// A match has too few keys.
    #[error("{announced} keys announced, {found} follow")]
    KeysMissing {
        /// The number in the instruction.
        announced: u32,
        /// Number of `key` instructions after it.
        found: usize,
    },
    /// A key does not follow a match.
    #[error("`key` is only allowed after a match instruction")]
    StrayKey,
    /// Two matches have different keys.
    #[error("all match instructions of a program must have the same keys")]
    OtherKeys,
    /// No match determines the recipient to register data for.
    #[error("`register_data` needs a `jmp_match_imm` that succeeds on every path to it")]
    NobodyToRegister,
    /// A return has no recipient.
    #[error("returns more than #0 on a path without a successful match, so there is no recipient")]
    NobodyToReturn,
}

/// Properties of a valid program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The keys of its match instructions; `None` if it has none.
    pub keys: Option<Vec<u32>>,
    /// True if it uses the static memory or postpones packets.
    pub stateful: bool,
}

/// Validates a program.
///
/// # Errors
/// The first rule that is broken.
pub fn validate(program: &[Instruction], dialect: Dialect) -> Result<Facts, ValidateError> {
    let whole = |problem| Err(ValidateError { at: None, problem });
    if program.is_empty() {
        return whole(Problem::Empty);
    }
    if program.len() > MAX_INSTRUCTIONS {
        return whole(Problem::TooLong { given: program.len() });
    }
    let mut facts = Facts::default();
    let mut keys_left = 0;
    for (at, instruction) in program.iter().enumerate() {
        let fail = |problem| ValidateError { at: Some(at), problem };
        if keys_left > 0 {
            keys_left -= 1;
            continue;
        }
        single(instruction, at, dialect).map_err(fail)?;
        facts.stateful |=
            matches!(instruction.code, code::RET_MATCH_DATA | code::REGISTER_DATA | code::POSTPONE);
        if let Some(announced) = key_count(instruction) {
            let keys = keys(program, at, announced).map_err(fail)?;
            keys_left = keys.len();
            if facts.keys.as_ref().is_some_and(|known| *known != keys) {
                return Err(fail(Problem::OtherKeys));
            }
            facts.keys = Some(keys);
        }
    }
    paths(program, facts.keys.is_some())?;
    Ok(facts)
}

/// Number of keys that follow a match instruction; `None` for other instructions.
pub(crate) fn key_count(instruction: &Instruction) -> Option<u32> {
    match instruction.code {
        code::RET_MATCH_IMM => Some(instruction.jt.into()),
        code::JMP_MATCH_IMM => Some(instruction.k),
        _ => None,
    }
}

fn keys(program: &[Instruction], at: usize, announced: u32) -> Result<Vec<u32>, Problem> {
    if announced == 0 || announced as usize > MAX_KEYS {
        return Err(Problem::KeyCount { given: announced });
    }
    let behind = program[at + 1..].iter().take(announced as usize);
    let keys: Vec<u32> = behind.take_while(|one| one.code == code::KEY).map(|one| one.k).collect();
    match keys.len() {
        found if found as u32 == announced => Ok(keys),
        found => Err(Problem::KeysMissing { announced, found }),
    }
}

/// Checks the rules that concern one instruction only.
fn single(instruction: &Instruction, at: usize, dialect: Dialect) -> Result<(), Problem> {
    let Instruction { code: given, jt, k, .. } = *instruction;
    if is_mpf(instruction) && dialect == Dialect::Bpf {
        return Err(Problem::NotBpf { given });
    }
    match given {
        code::LD_MEM | code::LDX_MEM | code::ST | code::STX if k as usize >= SCRATCH_WORDS => {
            return Err(Problem::Scratch { given: k });
        }
        code::BEGIN | code::BEGIN_OLD if at > 0 => return Err(Problem::Begin),
        code::KEY => return Err(Problem::StrayKey),
        code::RET_MATCH_DATA | code::REGISTER_DATA if (jt == 0 || usize::from(jt) > MAX_KEYS) => {
            return Err(Problem::KeyCount { given: jt.into() });
        }
        _ => {}
    }
    if given & 7 == code::ALU && given != code::NEG {
        let operation = given & 0xf0;
        if given & 0xff00 != 0 || !ARITHMETIC.iter().any(|&(_, known)| known == operation) {
            return Err(Problem::Unknown { given });
        }
        if given & code::X == 0 {
            match operation {
                0x30 | 0x90 if k == 0 => return Err(Problem::DivisionByZero),
                0x60 | 0x70 if k >= 32 => return Err(Problem::Shift { given: k }),
                _ => {}
            }
        }
        return Ok(());
    }
    if is_known(given) { Ok(()) } else { Err(Problem::Unknown { given }) }
}

fn is_known(given: u16) -> bool {
    let test = matches!(given & !code::X, code::JEQ | code::JGT | code::JGE | code::JSET);
    test || matches!(
        given,
        code::LD_IMM
            | code::LD_W_ABS
            | code::LD_H_ABS
            | code::LD_B_ABS
            | code::LD_W_IND
            | code::LD_H_IND
            | code::LD_B_IND
            | code::LD_MEM
            | code::LD_LEN
            | code::LDX_IMM
            | code::LDX_MEM
            | code::LDX_LEN
            | code::LDX_MSH
            | code::ST
            | code::STX
            | code::NEG
            | code::JA
            | code::RET_K
            | code::RET_A
            | code::TAX
            | code::TXA
            | code::BEGIN
            | code::BEGIN_OLD
            | code::RET_MATCH_IMM
            | code::RET_MATCH_DATA
            | code::JMP_MATCH_IMM
            | code::REGISTER_DATA
            | code::POSTPONE
    )
}

/// Paths that reach an instruction: none, some without a match, or only paths with a match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    Never,
    Unmatched,
    Matched,
}

/// Follows all paths in one pass, which is possible because jumps only go forward.
fn paths(program: &[Instruction], has_match: bool) -> Result<(), ValidateError> {
    let mut reached = vec![Reached::Never; program.len()];
    reached[0] = Reached::Unmatched;
    for at in 0..program.len() {
        let here = reached[at];
        let instruction = &program[at];
        let fail = |problem| ValidateError { at: Some(at), problem };
        if instruction.code == code::KEY {
            continue;
        }
        if here == Reached::Unmatched {
            match instruction.code {
                code::REGISTER_DATA => return Err(fail(Problem::NobodyToRegister)),
                code::RET_K if has_match && instruction.k > 0 => {
                    return Err(fail(Problem::NobodyToReturn));
                }
                code::RET_A if has_match => return Err(fail(Problem::NobodyToReturn)),
                _ => {}
            }
        }
        for (distance, state) in next(instruction, here).into_iter().flatten() {
            let target = at as u64 + 1 + distance;
            let Some(place) = reached.get_mut(target as usize) else {
                let last = program.len() - 1;
                let falls = distance == 0 && instruction.code & 7 != 5;
                return Err(fail(match falls {
                    true => Problem::NoReturn,
                    false => Problem::JumpRange { target, last },
                }));
            };
            if program[target as usize].code == code::KEY {
                return Err(fail(Problem::JumpIntoKeys { target: target as usize }));
            }
            *place = match (*place, state) {
                (Reached::Never, state) => state,
                (Reached::Matched, Reached::Matched) | (Reached::Matched, Reached::Never) => {
                    Reached::Matched
                }
                _ => Reached::Unmatched,
            };
        }
    }
    Ok(())
}

/// Successors of an instruction, counted from the next one, and the state in which they are reached.
fn next(instruction: &Instruction, here: Reached) -> [Option<(u64, Reached)>; 2] {
    let one = |distance: u64| [Some((distance, here)), None];
    let (jt, jf) = (u64::from(instruction.jt), u64::from(instruction.jf));
    match instruction.code {
        code::RET_K | code::RET_A | code::RET_MATCH_IMM | code::POSTPONE => [None, None],
        code::JA => one(instruction.k.into()),
        code::JMP_MATCH_IMM => {
            let held = if here == Reached::Never { here } else { Reached::Matched };
            [Some((jt, held)), Some((jf, here))]
        }
        code if code & 7 == 5 => [Some((jt, here)), Some((jf, here))],
        _ => one(0),
    }
}
