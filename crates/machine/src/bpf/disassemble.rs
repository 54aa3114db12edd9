//! Output of programs as text and as numbers. The assembler reads the output back to the same instructions.

use super::ancillary::Extension;
use super::{ALL, Dialect, Instruction, code};
use fyke_frame::bpf::ARITHMETIC;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Output format of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Labels and the papers' notation for MPF, bpf_asm's for BPF.
    Assembler,
    /// As `tcpdump -d` prints it.
    Listing,
    /// As `tcpdump -dd`: C initialisers.
    C,
    /// As `tcpdump -ddd`: decimal numbers, the count first.
    Decimal,
}

/// Prints a program.
pub fn disassemble(program: &[Instruction], dialect: Dialect, format: Format) -> String {
    let mut out = String::new();
    match format {
        Format::Assembler => assembler(program, dialect, &mut out),
        Format::Listing => {
            for (index, instruction) in program.iter().enumerate() {
                let _ = writeln!(out, "{}", listing_line(index, instruction));
            }
        }
        Format::C => {
            for Instruction { code, jt, jf, k } in program {
                let _ = writeln!(out, "{{ 0x{code:x}, {jt}, {jf}, 0x{k:08x} }},");
            }
        }
        Format::Decimal => {
            let _ = writeln!(out, "{}", program.len());
            for Instruction { code, jt, jf, k } in program {
                let _ = writeln!(out, "{code} {jt} {jf} {k}");
            }
        }
    }
    out
}

fn is_conditional(instruction: &Instruction) -> bool {
    instruction.code & 7 == 5 && instruction.code != code::JA
}

/// One line of a listing.
pub fn listing_line(index: usize, instruction: &Instruction) -> String {
    let (name, operand) = parts(instruction, true);
    if instruction.code == code::JA {
        let target = index + 1 + instruction.k as usize;
        return format!("({index:03}) {name:<8} {target}");
    }
    if is_conditional(instruction) {
        let on_true = index + 1 + usize::from(instruction.jt);
        let on_false = index + 1 + usize::from(instruction.jf);
        return format!("({index:03}) {name:<8} {operand:<16} jt {on_true}\tjf {on_false}");
    }
    format!("({index:03}) {name:<8} {operand}")
}

fn assembler(program: &[Instruction], dialect: Dialect, out: &mut String) {
    let mut targets = BTreeSet::new();
    for (index, instruction) in program.iter().enumerate() {
        if instruction.code == code::JA {
            targets.insert(index + 1 + instruction.k as usize);
        } else if is_conditional(instruction) {
            targets.insert(index + 1 + usize::from(instruction.jt));
            targets.insert(index + 1 + usize::from(instruction.jf));
        }
    }
    for (index, instruction) in program.iter().enumerate() {
        let label = if targets.contains(&index) { format!("L{index}:") } else { String::new() };
        let (name, operand) = parts(instruction, false);
        let operand = match dialect {
            Dialect::Mpf if operand.starts_with('[') => format!("P{operand}"),
            Dialect::Mpf => operand.replace("([", "(P["),
            Dialect::Bpf => operand,
        };
        let jumps = if instruction.code == code::JA {
            format!("L{}", index + 1 + instruction.k as usize)
        } else if is_conditional(instruction) {
            let on_true = index + 1 + usize::from(instruction.jt);
            let on_false = index + 1 + usize::from(instruction.jf);
            format!(", L{on_true}, L{on_false}")
        } else {
            String::new()
        };
        let line = format!("{label:<7} {name} {operand}{jumps}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    // A jump past the last instruction is an error, but it can be printed.
    for label in targets.range(program.len()..) {
        let _ = writeln!(out, "; L{label} is past the end");
    }
}

/// Mnemonic and operand.
fn parts(instruction: &Instruction, listing: bool) -> (&'static str, String) {
    let Instruction { code: number, jt, k, .. } = *instruction;
    let signed = k as i32;
    let absolute = || match Extension::by_offset(k) {
        Some(what) if listing => format!("[{}]", what.listing_name()),
        Some(what) => format!("#{}", what.name()),
        None => format!("[{signed}]"),
    };
    let indexed = || format!("[x + {signed}]");
    let length = |value: u32| if value == ALL { "#ALL".to_owned() } else { format!("#{value}") };
    match number {
        code::LD_IMM => ("ld", format!("#0x{k:x}")),
        code::LD_W_ABS => ("ld", absolute()),
        code::LD_H_ABS => ("ldh", absolute()),
        code::LD_B_ABS => ("ldb", absolute()),
        code::LD_W_IND => ("ld", indexed()),
        code::LD_H_IND => ("ldh", indexed()),
        code::LD_B_IND => ("ldb", indexed()),
        code::LD_MEM => ("ld", format!("M[{k}]")),
        code::LD_LEN => ("ld", "#pktlen".to_owned()),
        code::LDX_IMM => ("ldx", format!("#0x{k:x}")),
        code::LDX_MEM => ("ldx", format!("M[{k}]")),
        code::LDX_LEN => ("ldx", "#pktlen".to_owned()),
        code::LDX_MSH => ("ldxb", format!("4*([{signed}]&0xf)")),
        code::ST => ("st", format!("M[{k}]")),
        code::STX => ("stx", format!("M[{k}]")),
        code::JA => ("ja", String::new()),
        code::NEG => ("neg", String::new()),
        code::RET_K => ("ret", format!("#{signed}")),
        code::RET_A => ("ret", String::new()),
        code::TAX => ("tax", String::new()),
        code::TXA => ("txa", String::new()),
        code::BEGIN | code::BEGIN_OLD => ("begin", String::new()),
        code::RET_MATCH_IMM => ("ret_match_imm", format!("#{jt}, {}", length(k))),
        code::RET_MATCH_DATA => ("ret_match_data", format!("#{jt}, {}", length(k))),
        code::JMP_MATCH_IMM => ("jmp_match_imm", format!("#{k}")),
        code::KEY => ("key", format!("#0x{k:x}")),
        code::REGISTER_DATA => ("register_data", format!("#{jt}, #{k}")),
        code::POSTPONE => ("postpone", format!("#{k}")),
        _ => test_or_arithmetic(number, k),
    }
}

fn test_or_arithmetic(number: u16, k: u32) -> (&'static str, String) {
    let x = number & code::X != 0;
    let base = number & !code::X;
    let test = match base {
        code::JEQ => Some("jeq"),
        code::JGT => Some("jgt"),
        code::JGE => Some("jge"),
        code::JSET => Some("jset"),
        _ => None,
    };
    let operation = (base & 0xf == code::ALU)
        .then(|| ARITHMETIC.iter().find(|(_, operation)| *operation == base & 0xf0))
        .flatten();
    match (test, operation) {
        (Some(name), _) if x => (name, "x".to_owned()),
        (Some(name), _) => (name, format!("#0x{k:x}")),
        (_, Some(&(name, _))) if x => (name, "x".to_owned()),
        (_, Some(&(name @ ("and" | "or" | "xor"), _))) => (name, format!("#0x{k:x}")),
        (_, Some(&(name, _))) => (name, format!("#{}", k as i32)),
        _ => ("unimp", format!("0x{number:x}")),
    }
}
