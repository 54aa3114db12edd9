//! Output of CSPF programs as text, and as numbers after the number of words.

use super::{Action, CONSTANTS, OPERATORS, Operator, Program};
use std::fmt::Write;

/// Prints one step per line; the assembler reads the text back to the same words.
pub fn disassemble(program: &Program) -> String {
    let mut out = String::new();
    for step in program.steps() {
        let action = match step.action {
            Action::None => "nopush".to_owned(),
            Action::Literal => "pushlit".to_owned(),
            Action::Constant(value) => {
                let constant = CONSTANTS.iter().find(|constant| constant.2 == value);
                constant.map_or("nopush", |constant| constant.0).to_owned()
            }
            Action::Indirect => "pushind".to_owned(),
            Action::HeaderIndirect => "pushhdrind".to_owned(),
            Action::Word(n) => format!("pushword P[{n}]"),
            Action::Header(n) => format!("pushhdr P[{n}]"),
            Action::Stack(n) => format!("pushstk + {n}"),
        };
        out.push_str(&action);
        if step.operator != Operator::Nop {
            let (name, _) = OPERATORS[step.operator as usize];
            let _ = write!(out, " | {name}");
        }
        if step.action == Action::Literal {
            let _ = write!(out, " #0x{:x}", step.literal);
        }
        out.push('\n');
    }
    out
}

/// Prints the number of words, then one word per line.
pub fn numbers(program: &Program) -> String {
    let mut out = format!("{}\n", program.words().len());
    for word in program.words() {
        let _ = writeln!(out, "{word}");
    }
    out
}
