//! Reads programs as numbers, in the formats of `tcpdump -dd`, `tcpdump -ddd` and bpf_asm.
//!
//! | source | format |
//! |---|---|
//! | `tcpdump -dd`, `bpf_asm -c` | `{ 0x28, 0, 0, 0x0000000c },` |
//! | `tcpdump -ddd` | the count, then `40 0 0 12` a line |
//! | `bpf_asm` | `1,40 0 0 12,` |

use super::{Instruction, MAX_INSTRUCTIONS};
use crate::text::{Cursor, Line, SourceError, lines, number};

/// Returns true if a text is numbers and not assembler.
pub fn is_numbers(source: &str) -> bool {
    let Ok(lines) = lines(source) else { return false };
    let Some(line) = lines.first() else { return false };
    let first: String = line.code.iter().collect();
    let first = first.trim();
    first.starts_with('{') || first.chars().all(|c| c.is_ascii_digit() || " \t,".contains(c))
}

/// Reads any of the three formats.
///
/// # Errors
/// The first error, with its location.
pub fn read(source: &str) -> Result<Vec<Instruction>, SourceError> {
    let lines = lines(source)?;
    let Some(first) = lines.first() else {
        return Err(Line { number: 1, original: "", code: Vec::new() }.error(0, "no program"));
    };
    let mut program = Vec::new();
    let mut count = None;
    for line in &lines {
        let mut cursor = Cursor::new(line);
        while !cursor.at_end() {
            if program.len() == MAX_INSTRUCTIONS {
                let problem = format!("a program has at most {MAX_INSTRUCTIONS} instructions");
                return Err(cursor.error(problem));
            }
            if cursor.eat('{') {
                program.push(instruction(&mut cursor, true)?);
                cursor.need('}')?;
            } else if count.is_none() {
                count = Some((value(&mut cursor, u32::MAX)?, cursor.line));
            } else {
                program.push(instruction(&mut cursor, false)?);
            }
            cursor.eat(',');
        }
    }
    if let Some((count, line)) = count
        && count as usize != program.len()
    {
        let problem = format!("{count} instructions announced, {} found", program.len());
        return Err(line.error(0, problem));
    }
    if program.is_empty() {
        return Err(first.error(0, "a program needs an instruction"));
    }
    Ok(program)
}

fn instruction(cursor: &mut Cursor<'_>, commas: bool) -> Result<Instruction, SourceError> {
    let mut fields = [0; 4];
    for (index, limit) in [0xffff, 0xff, 0xff, u32::MAX].into_iter().enumerate() {
        if commas && index > 0 {
            cursor.need(',')?;
        }
        fields[index] = value(cursor, limit)?;
    }
    let [code, jt, jf, k] = fields;
    Ok(Instruction { code: code as u16, jt: jt as u8, jf: jf as u8, k })
}

fn value(cursor: &mut Cursor<'_>, limit: u32) -> Result<u32, SourceError> {
    cursor.skip_blank();
    let at = cursor.at;
    let negative = cursor.eat('-');
    let word = cursor.word().unwrap_or_default();
    let Some(value) = number(&word) else {
        cursor.at = at;
        return Err(cursor.expected("a number"));
    };
    let value = if negative { value.wrapping_neg() } else { value };
    if value > limit {
        return Err(cursor.line.error(at, format!("{value} does not fit: at most {limit}")));
    }
    Ok(value)
}
