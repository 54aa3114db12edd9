//! The assembler of the register machines: one parser for the papers' notation, `tcpdump -d` listings and bpf_asm.
//!
//! A line has one instruction, after any number of labels (`L1:`) or the number of a listing (`(003)`). Packet
//! bytes are `P[k]`, `P[x + k]` or `[k]`, `[x + k]`; jump targets are labels, numbers of instructions, or `jt 2 jf
//! 5`. A missing second target is the next instruction. Names get values from [`Symbols`]. The result is
//! well-formed but not validated; see [`super::validate`].
//!
//! The paper prints both `ret_match_imm #3, #ALL` and `ret_match_imm #ALL, 3`: the operand in the range of key
//! counts is the number of keys. It also loads ports with `ld`, although they are half words: a load written `ld
//! P[…]` with only a name that ends in `_PORT` is assembled as `ldh`, with a warning.

use super::ancillary::Extension;
use super::{Dialect, Instruction, MAX_INSTRUCTIONS, MAX_KEYS, code};
use crate::text::{Cursor, Line, SourceError, Symbols, lines};
use fyke_frame::bpf::ARITHMETIC;
use std::collections::HashMap;

/// Output of the assembler: a program and warnings for its author.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assembled {
    /// The instructions.
    pub program: Vec<Instruction>,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
}

/// Target of a jump, as written.
#[derive(Debug, Clone)]
enum Target {
    Next,
    Label(String),
    Number(u32),
}

/// A jump with unresolved targets, and its column in the line.
#[derive(Debug)]
struct Jump {
    at: usize,
    on_true: Target,
    on_false: Target,
}

#[derive(Debug)]
struct Item<'a> {
    line: &'a Line<'a>,
    instruction: Instruction,
    jump: Option<Jump>,
}

/// Operand of an instruction.
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    None,
    Immediate(u32),
    Bare(u32),
    Absolute { offset: u32, port: bool },
    Indexed { offset: u32, port: bool },
    Memory(u32),
    HeaderLength(u32),
    Length,
    Extension(Extension),
    X,
    A,
}

/// Assembles a text.
///
/// # Errors
/// The first error, with its location.
pub fn assemble(
    source: &str,
    dialect: Dialect,
    symbols: &Symbols,
) -> Result<Assembled, SourceError> {
    let lines = lines(source)?;
    let mut assembler =
        Assembler { dialect, symbols, items: Vec::new(), labels: HashMap::new(), warnings: vec![] };
    for line in &lines {
        assembler.line(line)?;
    }
    let mut program = Vec::with_capacity(assembler.items.len());
    for (index, item) in assembler.items.iter().enumerate() {
        program.push(assembler.resolve(index, item)?);
    }
    Ok(Assembled { program, warnings: assembler.warnings })
}

struct Assembler<'a> {
    dialect: Dialect,
    symbols: &'a Symbols,
    items: Vec<Item<'a>>,
    labels: HashMap<String, usize>,
    warnings: Vec<String>,
}

impl<'a> Assembler<'a> {
    fn line(&mut self, line: &'a Line<'a>) -> Result<(), SourceError> {
        let mut cursor = Cursor::new(line);
        self.listing_number(&mut cursor)?;
        while !cursor.at_end() {
            let start = cursor.clone();
            let Some(word) = cursor.word() else {
                return Err(cursor.expected("an instruction or a label"));
            };
            if cursor.eat(':') {
                if self.labels.insert(word.clone(), self.items.len()).is_some() {
                    return Err(
                        line.error(start.at, format!("the label `{word}` is defined twice"))
                    );
                }
                continue;
            }
            return self.instruction(&word.to_ascii_lowercase(), start, cursor);
        }
        Ok(())
    }

    /// Checks the `(003)` of a listing: it must be the number of the instruction.
    fn listing_number(&mut self, cursor: &mut Cursor<'a>) -> Result<(), SourceError> {
        if !cursor.eat('(') {
            return Ok(());
        }
        let here = cursor.at;
        let word = cursor.word().unwrap_or_default();
        let count = self.items.len();
        if word.parse() != Ok(count) {
            return Err(cursor
                .line
                .error(here, format!("this is instruction {count}, not {word}")));
        }
        cursor.need(')')
    }

    fn push(&mut self, item: Item<'a>) -> Result<(), SourceError> {
        if self.items.len() == MAX_INSTRUCTIONS {
            let problem = format!("a program has at most {MAX_INSTRUCTIONS} instructions");
            return Err(item.line.error(0, problem));
        }
        self.items.push(item);
        Ok(())
    }

    /// Assembles an instruction; `start` is at the mnemonic, `cursor` after it.
    fn instruction(
        &mut self,
        name: &str,
        start: Cursor<'a>,
        mut cursor: Cursor<'a>,
    ) -> Result<(), SourceError> {
        let mut start = start;
        start.skip_blank();
        let line = cursor.line;
        let simple = |instruction| Item { line, instruction, jump: None };
        let item = match name {
            "begin" => {
                cursor.need_end()?;
                // Here the caller selects the dialect, and current kernels accept BPF without the marker.
                if self.dialect == Dialect::Bpf {
                    return Ok(());
                }
                simple(Instruction::new(code::BEGIN, 0))
            }
            "tax" => simple(Instruction::new(code::TAX, 0)),
            "txa" => simple(Instruction::new(code::TXA, 0)),
            "neg" => simple(Instruction::new(code::NEG, 0)),
            "ja" | "jmp" => {
                cursor.eat('#');
                let at = cursor.at;
                let on_true = target(&mut cursor)?;
                let jump = Some(Jump { at, on_true, on_false: Target::Next });
                Item { line, instruction: Instruction::new(code::JA, 0), jump }
            }
            "jeq" | "jneq" | "jne" | "jgt" | "jle" | "jge" | "jlt" | "jset" => {
                self.conditional(name, &mut cursor)?
            }
            "ret_match_imm" | "ret_match_data" | "register_data" | "jmp_match_imm" | "key"
            | "postpone" => {
                if self.dialect == Dialect::Bpf {
                    let problem = format!("`{name}` is an instruction of MPF, not of BPF");
                    return Err(start.error(problem));
                }
                self.mpf(name, &mut cursor)?
            }
            _ => {
                let operand = self.operand(&mut cursor)?;
                simple(self.plain(name, operand, &start)?)
            }
        };
        cursor.need_end()?;
        self.push(item)
    }

    /// Assembles loads, stores, arithmetic and returns.
    fn plain(
        &mut self,
        name: &str,
        operand: Operand,
        start: &Cursor<'a>,
    ) -> Result<Instruction, SourceError> {
        use Operand as O;
        let port =
            matches!(operand, O::Absolute { port: true, .. } | O::Indexed { port: true, .. });
        let mut name = name;
        if name == "ld" && port {
            let number = start.line.number;
            self.warnings
                .push(format!("line {number}: ports are half words: `ld` is assembled as `ldh`"));
            name = "ldh";
        }
        let alu = ARITHMETIC.iter().find(|(known, _)| *known == name).map(|&(_, number)| number);
        let made = match (name, operand) {
            ("ld" | "ldi", O::Immediate(k)) | ("ldi", O::Bare(k)) => (code::LD_IMM, k),
            ("ld", O::Absolute { offset, .. }) => (code::LD_W_ABS, offset),
            ("ldh", O::Absolute { offset, .. }) => (code::LD_H_ABS, offset),
            ("ldb", O::Absolute { offset, .. }) => (code::LD_B_ABS, offset),
            ("ld", O::Extension(what)) => (code::LD_W_ABS, what.offset()),
            ("ldh", O::Extension(what)) => (code::LD_H_ABS, what.offset()),
            ("ldb", O::Extension(what)) => (code::LD_B_ABS, what.offset()),
            ("ld", O::Indexed { offset, .. }) => (code::LD_W_IND, offset),
            ("ldh", O::Indexed { offset, .. }) => (code::LD_H_IND, offset),
            ("ldb", O::Indexed { offset, .. }) => (code::LD_B_IND, offset),
            ("ld", O::Memory(k)) => (code::LD_MEM, k),
            ("ld", O::Length) => (code::LD_LEN, 0),
            ("ldx" | "ldxi", O::Immediate(k)) | ("ldxi", O::Bare(k)) => (code::LDX_IMM, k),
            ("ldx", O::Memory(k)) => (code::LDX_MEM, k),
            ("ldx", O::Length) => (code::LDX_LEN, 0),
            ("ldx" | "ldxb", O::HeaderLength(k)) => (code::LDX_MSH, k),
            ("st", O::Memory(k)) => (code::ST, k),
            ("stx", O::Memory(k)) => (code::STX, k),
            ("ret", O::Immediate(k) | O::Bare(k)) => (code::RET_K, k),
            ("ret", O::A | O::None) => (code::RET_A, 0),
            (_, O::Immediate(k) | O::Bare(k)) if alu.is_some() => {
                (code::ALU | alu.unwrap_or_default(), k)
            }
            (_, O::X) if alu.is_some() => (code::ALU | code::X | alu.unwrap_or_default(), 0),
            (_, operand) => return Err(start.error(wrong_operand(name, &operand, alu.is_some()))),
        };
        Ok(Instruction::new(made.0, made.1))
    }

    fn conditional(
        &mut self,
        name: &str,
        cursor: &mut Cursor<'a>,
    ) -> Result<Item<'a>, SourceError> {
        let at = cursor.at;
        let operand = self.operand(cursor)?;
        let (code, negated) = match name {
            "jeq" => (code::JEQ, false),
            "jneq" | "jne" => (code::JEQ, true),
            "jgt" => (code::JGT, false),
            "jle" => (code::JGT, true),
            "jge" => (code::JGE, false),
            "jlt" => (code::JGE, true),
            _ => (code::JSET, false),
        };
        let instruction = match operand {
            Operand::Immediate(k) | Operand::Bare(k) => Instruction::new(code, k),
            Operand::X => Instruction::new(code | code::X, 0),
            _ => return Err(cursor.line.error(at, format!("`{name}` compares with #k or x"))),
        };
        let (at, first, second) = targets(cursor)?;
        let (on_true, on_false) = if negated { (second, first) } else { (first, second) };
        Ok(Item { line: cursor.line, instruction, jump: Some(Jump { at, on_true, on_false }) })
    }

    fn mpf(&mut self, name: &str, cursor: &mut Cursor<'a>) -> Result<Item<'a>, SourceError> {
        let line = cursor.line;
        let simple = |instruction| Item { line, instruction, jump: None };
        let start = cursor.at;
        cursor.eat('#');
        let first = cursor.constant(self.symbols)?;
        Ok(match name {
            "key" => simple(Instruction::new(code::KEY, first)),
            "postpone" => simple(Instruction::new(code::POSTPONE, first)),
            "jmp_match_imm" => {
                let instruction = Instruction::new(code::JMP_MATCH_IMM, first);
                let (at, on_true, on_false) = targets(cursor)?;
                Item { line, instruction, jump: Some(Jump { at, on_true, on_false }) }
            }
            _ => {
                cursor.need(',')?;
                cursor.eat('#');
                let second = cursor.constant(self.symbols)?;
                // The paper prints the length first in one place, the number of keys first in another.
                let is_count = |value| (1..=MAX_KEYS as u32).contains(&value);
                let swap = name == "ret_match_imm" && !is_count(first) && is_count(second);
                let (count, k) = if swap { (second, first) } else { (first, second) };
                let code = match name {
                    "ret_match_imm" => code::RET_MATCH_IMM,
                    "ret_match_data" => code::RET_MATCH_DATA,
                    _ => code::REGISTER_DATA,
                };
                let jt = u8::try_from(count).map_err(|_| {
                    line.error(start, format!("{count} keys; there can be at most {MAX_KEYS}"))
                })?;
                simple(Instruction::jump(code, jt, 0, k))
            }
        })
    }

    fn operand(&self, cursor: &mut Cursor<'a>) -> Result<Operand, SourceError> {
        let Some(next) = cursor.peek() else { return Ok(Operand::None) };
        if cursor.eat('#') {
            let word = cursor.peek_word();
            if let Some(special) = self.special(&word) {
                cursor.word();
                return Ok(special);
            }
            return Ok(Operand::Immediate(cursor.constant(self.symbols)?));
        }
        if next == '[' || cursor.clone().eat_prefix("p", '[') {
            cursor.eat_word("p");
            return self.packet(cursor);
        }
        if cursor.eat_prefix("m", '[') {
            let word = cursor.constant(self.symbols)?;
            cursor.need(']')?;
            return Ok(Operand::Memory(word));
        }
        if let Some(operand) = self.header_length(cursor)? {
            return Ok(operand);
        }
        cursor.eat('%');
        let word = cursor.peek_word();
        let operand = match word.to_ascii_lowercase().as_str() {
            "x" => Operand::X,
            "a" => Operand::A,
            _ => match self.special(&word) {
                Some(special) => special,
                None => return Ok(Operand::Bare(cursor.constant(self.symbols)?)),
            },
        };
        cursor.word();
        Ok(operand)
    }

    /// Reads `len` and Linux's extensions, unless the author has defined the name.
    fn special(&self, word: &str) -> Option<Operand> {
        if self.symbols.get(word).is_some() {
            return None;
        }
        match word.to_ascii_lowercase().as_str() {
            "len" | "pktlen" => Some(Operand::Length),
            _ => Extension::by_name(word).map(Operand::Extension),
        }
    }

    /// Reads `[k]`, `[x + k]`, `[x - k]`, `[x]`, `[vlanp]`.
    fn packet(&self, cursor: &mut Cursor<'a>) -> Result<Operand, SourceError> {
        cursor.need('[')?;
        let start = cursor.clone();
        cursor.eat('%');
        let indexed = cursor.eat_word("x");
        if !indexed && let Some(Operand::Extension(what)) = self.special(&cursor.peek_word()) {
            cursor.word();
            cursor.need(']')?;
            return Ok(Operand::Extension(what));
        }
        if indexed && cursor.eat(']') {
            return Ok(Operand::Indexed { offset: 0, port: false });
        }
        if indexed && cursor.peek() != Some('-') {
            cursor.need('+')?;
        }
        if !indexed {
            *cursor = start;
        }
        let name = cursor.peek_word();
        let offset = cursor.constant(self.symbols)?;
        let port = name.to_ascii_uppercase().ends_with("_PORT") && cursor.peek() == Some(']');
        cursor.need(']')?;
        Ok(match indexed {
            true => Operand::Indexed { offset, port },
            false => Operand::Absolute { offset, port },
        })
    }

    /// Reads `4*([k]&0xf)`, in the paper `4 * (P[k] & 0xf)`.
    fn header_length(&self, cursor: &mut Cursor<'a>) -> Result<Option<Operand>, SourceError> {
        let mut probe = cursor.clone();
        if probe.word().as_deref() != Some("4") || !probe.eat('*') || !probe.eat('(') {
            return Ok(None);
        }
        *cursor = probe;
        cursor.eat_word("p");
        cursor.need('[')?;
        let offset = cursor.constant(self.symbols)?;
        cursor.need(']')?;
        cursor.need('&')?;
        let at = cursor.at;
        if cursor.constant(self.symbols)? != 0xf {
            return Err(cursor.line.error(at, "the mask of a header length must be 0xf"));
        }
        cursor.need(')')?;
        Ok(Some(Operand::HeaderLength(offset)))
    }

    fn resolve(&self, index: usize, item: &Item<'a>) -> Result<Instruction, SourceError> {
        let mut instruction = item.instruction;
        let Some(jump) = &item.jump else { return Ok(instruction) };
        let error = |problem: String| item.line.error(jump.at, problem);
        let distance = |target: &Target| {
            let place = match target {
                Target::Next => index + 1,
                Target::Number(number) => *number as usize,
                Target::Label(label) => *self
                    .labels
                    .get(label)
                    .ok_or_else(|| error(format!("there is no label `{label}`")))?,
            };
            place
                .checked_sub(index + 1)
                .ok_or_else(|| error(format!("jumps only go forward, not from {index} to {place}")))
        };
        let short = |distance: usize| {
            u8::try_from(distance).map_err(|_| {
                error(format!(
                    "{distance} instructions ahead; a conditional jump reaches 255 at most"
                ))
            })
        };
        if instruction.code == code::JA {
            instruction.k = distance(&jump.on_true)? as u32;
        } else {
            instruction.jt = short(distance(&jump.on_true)?)?;
            instruction.jf = short(distance(&jump.on_false)?)?;
        }
        Ok(instruction)
    }
}

fn wrong_operand(name: &str, operand: &Operand, is_alu: bool) -> String {
    let expected = match name {
        "ld" => "P[k], P[x + k], M[k], #k or #len",
        "ldh" | "ldb" => "P[k] or P[x + k]",
        "ldi" | "ldxi" => "#k",
        "ldx" => "M[k], #k, #len or 4*(P[k]&0xf)",
        "ldxb" => "4*(P[k]&0xf)",
        "st" | "stx" => "M[k]",
        "ret" => "#k or a",
        _ if is_alu => "#k or x",
        _ => return format!("there is no instruction `{name}`"),
    };
    match operand {
        Operand::None => format!("`{name}` needs {expected}"),
        _ => format!("`{name}` takes {expected}"),
    }
}

fn target(cursor: &mut Cursor<'_>) -> Result<Target, SourceError> {
    let Some(word) = cursor.word() else { return Err(cursor.expected("a label")) };
    let is_number = word.chars().all(|c| c.is_ascii_digit());
    match word.parse() {
        Ok(number) if is_number => Ok(Target::Number(number)),
        _ => Ok(Target::Label(word)),
    }
}

/// Reads `, L1, L2` or `, L1` or `jt 2 jf 5`; returns the column of each target.
fn targets(cursor: &mut Cursor<'_>) -> Result<(usize, Target, Target), SourceError> {
    let comma = cursor.eat(',');
    cursor.skip_blank();
    let at = cursor.at;
    if cursor.eat_word("jt") {
        let on_true = target(cursor)?;
        cursor.eat(',');
        if !cursor.eat_word("jf") {
            return Err(cursor.expected("`jf`"));
        }
        return Ok((at, on_true, target(cursor)?));
    }
    if !comma {
        return Err(cursor.expected("`,` and a label, or `jt`"));
    }
    let on_true = target(cursor)?;
    let on_false = if cursor.eat(',') { target(cursor)? } else { Target::Next };
    Ok((at, on_true, on_false))
}
