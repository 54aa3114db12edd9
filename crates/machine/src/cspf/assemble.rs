//! The assembler of CSPF: `pushword P[6]`, `pushlit | cand`, its literal on the same line or the next.
//!
//! The bar between action and operator is optional, as the MPF paper omits it in places. An operator alone pushes
//! nothing. A line with only a dot, which the paper prints once, is ignored. Programs as numbers are read too: the
//! number of words, then the words.

use super::{Action, CONSTANTS, MAX_WORDS, OPERATORS, Operator};
use crate::text::{Cursor, Line, SourceError, Symbols, lines};

/// Assembles a text. The result is well-formed but not validated.
///
/// # Errors
/// The first error, with its location.
pub fn assemble(source: &str, symbols: &Symbols) -> Result<Vec<u16>, SourceError> {
    let lines = lines(source)?;
    let mut words = Vec::new();
    let mut literal_due: Option<&Line<'_>> = None;
    for line in &lines {
        let mut cursor = Cursor::new(line);
        if words.len() + 2 > MAX_WORDS {
            return Err(cursor.error(format!("a program has at most {MAX_WORDS} words")));
        }
        if literal_due.is_some() {
            if is_dot(line) {
                continue;
            }
            words.push(literal(&mut cursor, symbols)?);
            cursor.need_end()?;
            literal_due = None;
            continue;
        }
        if is_dot(line) {
            continue;
        }
        if let Some(word) = step(&mut cursor, symbols)? {
            words.push(word);
            if word & 0x3ff == 1 {
                if cursor.at_end() {
                    literal_due = Some(line);
                } else {
                    words.push(literal(&mut cursor, symbols)?);
                }
            }
        }
        cursor.need_end()?;
    }
    match literal_due {
        Some(line) => Err(line.error(0, "`pushlit` needs a literal: expected `#value`")),
        None => Ok(words),
    }
}

/// Reads words as numbers, after the number of words.
///
/// # Errors
/// The first error, with its location.
pub fn read_numbers(source: &str) -> Result<Vec<u16>, SourceError> {
    let lines = lines(source)?;
    let mut values = Vec::new();
    for line in &lines {
        let mut cursor = Cursor::new(line);
        while !cursor.at_end() {
            let at = cursor.at;
            let value = cursor.constant(&Symbols::default())?;
            let value = u16::try_from(value)
                .map_err(|_| line.error(at, format!("{value} does not fit into 16 bits")))?;
            if values.len() > MAX_WORDS {
                return Err(line.error(at, format!("a program has at most {MAX_WORDS} words")));
            }
            values.push(value);
            cursor.eat(',');
        }
    }
    let count = values.first().copied().map_or(0, usize::from);
    match values.len() {
        len if len == count + 1 => Ok(values.split_off(1)),
        len => {
            let line = Line { number: 1, original: "", code: Vec::new() };
            let found = len.saturating_sub(1);
            Err(line.error(0, format!("{count} words announced, {found} found")))
        }
    }
}

fn is_dot(line: &Line<'_>) -> bool {
    line.code.iter().filter(|c| !c.is_whitespace()).eq([&'.'])
}

fn literal(cursor: &mut Cursor<'_>, symbols: &Symbols) -> Result<u16, SourceError> {
    if !cursor.eat('#') {
        return Err(cursor.expected("the literal, `#value`"));
    }
    let at = cursor.at;
    let value = cursor.constant(symbols)?;
    // `#!Bit` inverts all 32 bits; the upper half of a negative or inverted value is ignored.
    match value >> 16 {
        0 | 0xffff => Ok(value as u16),
        _ => Err(cursor.line.error(at, format!("{value} does not fit into 16 bits"))),
    }
}

fn step(cursor: &mut Cursor<'_>, symbols: &Symbols) -> Result<Option<u16>, SourceError> {
    let start = cursor.at;
    let Some(name) = cursor.word() else { return Err(cursor.expected("an action")) };
    let name = name.to_ascii_lowercase();
    let constant = CONSTANTS.iter().find(|constant| constant.0 == name).map(|c| c.2);
    let action = match (name.as_str(), constant) {
        (_, Some(value)) => Action::Constant(value),
        ("nopush", _) => Action::None,
        ("pushlit", _) => Action::Literal,
        ("pushind", _) => Action::Indirect,
        ("pushhdrind", _) => Action::HeaderIndirect,
        ("pushword", _) => Action::Word(index(cursor, symbols)?),
        ("pushhdr", _) => Action::Header(index(cursor, symbols)?),
        ("pushstk", _) => Action::Stack(index(cursor, symbols)?),
        _ => match operator_of(&name) {
            Some(operator) => return Ok(Some(encode(Action::None, operator, cursor, start)?)),
            None => {
                cursor.at = start;
                cursor.skip_blank();
                return Err(cursor.error(format!("there is no action `{name}`")));
            }
        },
    };
    let bar = cursor.eat('|');
    let operator = match operator_of(&cursor.peek_word()) {
        Some(operator) => {
            cursor.word();
            operator
        }
        None if bar => return Err(cursor.expected("an operator")),
        None => Operator::Nop,
    };
    encode(action, operator, cursor, start).map(Some)
}

fn encode(
    action: Action,
    operator: Operator,
    cursor: &Cursor<'_>,
    start: usize,
) -> Result<u16, SourceError> {
    let number = action
        .number()
        .ok_or_else(|| cursor.line.error(start, "this index does not fit into the word"))?;
    Ok((operator as u16) << super::ACTION_BITS | number)
}

/// Returns true if this word, in lower case, begins a step: an action, or an operator alone.
pub(crate) fn is_step(name: &str) -> bool {
    let actions = ["nopush", "pushlit", "pushind", "pushhdrind", "pushword", "pushhdr", "pushstk"];
    let constant = CONSTANTS.iter().any(|constant| constant.0 == name);
    constant || actions.contains(&name) || operator_of(name).is_some()
}

fn operator_of(name: &str) -> Option<Operator> {
    OPERATORS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|&(_, o)| o)
}

/// Reads `P[n]` or `+ n`.
fn index(cursor: &mut Cursor<'_>, symbols: &Symbols) -> Result<u16, SourceError> {
    let bracket = cursor.eat_prefix("p", '[');
    if !bracket && !cursor.eat('+') {
        return Err(cursor.expected("`P[n]` or `+ n`"));
    }
    let at = cursor.at;
    // `pushstk + 1 | and`: the bar belongs to the operator, so only brackets hold whole expressions.
    let value = match bracket {
        true => cursor.constant(symbols)?,
        false => cursor.primary(symbols)?,
    };
    if bracket {
        cursor.need(']')?;
    }
    u16::try_from(value).map_err(|_| cursor.line.error(at, format!("there is no word {value}")))
}
