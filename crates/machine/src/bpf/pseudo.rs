//! Compiler for the MPF paper's Appendix B, which is "presented as higher level code for clarity".
//!
//! ```text
//! statement := if ( test ) statement [else statement] | { statement … } | return value ;
//!            | M[n] = P[field] ; | REGISTER_DATA(n, ms) ; | RET_MATCH_IMM(n, keys …, bytes) ;
//!            | RET_MATCH_DATA(n, bytes) ; | POSTPONE(ms) ;
//! test      := P[field] [== value | != value] | JMP_MATCH_IMM(n, keys …)
//! ```
//!
//! Fields are those of TCP and UDP over IPv4 over Ethernet. Empty arguments are skipped, since the paper prints
//! one. The compiler writes assembler text and assembles it. Cost: O(text).

use super::Dialect;
use super::assemble::{Assembled, assemble};
use crate::text::{Cursor, Line, SourceError, Symbols, lines_with};
use std::fmt::Write;

/// Maximum nesting of statements.
const MAX_DEPTH: usize = 64;

/// Names of fields, with the code that loads them.
const FIELDS: &[(&str, &str)] = &[
    ("proto", "ldh [12]"),
    ("dest_addr", "ld [30]"),
    ("dst_addr", "ld [30]"),
    ("src_addr", "ld [26]"),
    ("IP_proto", "ldb [23]"),
    ("fragment_offset", "ldh [20]\nand #0x1fff"),
    ("more_fragments", "ldh [20]\nand #0x2000"),
    ("fragment_ID", "ldh [18]"),
    ("src_port", "ldxb 4*([14]&0xf)\nldh [x + 14]"),
    ("dst_port", "ldxb 4*([14]&0xf)\nldh [x + 16]"),
];

/// Names that the code uses, with values that the author can override.
const NAMES: &[(&str, u32)] = &[
    ("IP", 0x0800),
    ("TCP", 6),
    ("UDP", 17),
    ("FAILURE", 0),
    ("ALL", super::ALL),
    ("time_out", 30_000),
];

/// Returns true if a text is such code and not assembler.
pub fn is_pseudo(source: &str) -> bool {
    let Ok(lines) = lines_with(source, false) else { return false };
    lines.first().is_some_and(|line| {
        let mut cursor = Cursor::new(line);
        cursor.eat_word("if") && cursor.peek() == Some('(')
    })
}

/// Compiles a text to an MPF program.
///
/// # Errors
/// The first error, with its location.
pub fn compile(source: &str, symbols: &Symbols) -> Result<Assembled, SourceError> {
    let lines = lines_with(source, false)?;
    let mut all = symbols.clone();
    for &(name, value) in NAMES {
        if !all.has(name) {
            all.define(name, value);
        }
    }
    let Some(first) = lines.first() else {
        return Err(Line { number: 1, original: "", code: Vec::new() }.error(0, "no program"));
    };
    let mut compiler = Compiler {
        lines: &lines,
        line: 0,
        cursor: Cursor::new(first),
        symbols: &all,
        out: "begin\n".to_owned(),
        labels: 0,
    };
    while compiler.peek().is_some() {
        compiler.statement(0)?;
    }
    compiler.out.push_str("ret #0\n");
    // The generated text is correct, so the only possible error is a program that is too long.
    assemble(&compiler.out, Dialect::Mpf, &all)
        .map_err(|error| first.error(0, format!("the compiled program: {}", error.problem)))
}

struct Compiler<'a> {
    lines: &'a [Line<'a>],
    line: usize,
    cursor: Cursor<'a>,
    symbols: &'a Symbols,
    out: String,
    labels: usize,
}

impl<'a> Compiler<'a> {
    /// Returns the next character, which may be on a later line.
    fn peek(&mut self) -> Option<char> {
        while self.cursor.at_end() {
            let next = self.lines.get(self.line + 1)?;
            self.line += 1;
            self.cursor = Cursor::new(next);
        }
        self.cursor.peek()
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.peek() == Some(wanted) && self.cursor.eat(wanted)
    }

    fn need(&mut self, wanted: char) -> Result<(), SourceError> {
        self.peek();
        self.cursor.need(wanted)
    }

    fn word(&mut self, what: &str) -> Result<String, SourceError> {
        self.peek();
        match self.cursor.word() {
            Some(word) => Ok(word),
            None => Err(self.cursor.expected(what)),
        }
    }

    fn value(&mut self) -> Result<u32, SourceError> {
        self.eat('#');
        self.peek();
        self.cursor.constant(self.symbols)
    }

    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    fn emit(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.out, "{text}");
    }

    fn statement(&mut self, depth: usize) -> Result<(), SourceError> {
        self.peek();
        if depth > MAX_DEPTH {
            return Err(self.cursor.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        if self.eat('{') {
            while !self.eat('}') {
                if self.peek().is_none() {
                    return Err(self.cursor.expected("`}`"));
                }
                self.statement(depth + 1)?;
            }
            return Ok(());
        }
        let start = self.cursor.clone();
        let name = self.word("a statement")?;
        match name.as_str() {
            "if" => return self.choice(depth),
            "return" => {
                let bytes = self.value()?;
                self.emit(format_args!("ret #{bytes}"));
            }
            "M" => {
                self.need('[')?;
                let word = self.value()?;
                self.need(']')?;
                self.need('=')?;
                let field = self.word("P[field]")?;
                if field != "P" {
                    return Err(self
                        .cursor
                        .error("only fields of the packet are stored: P[field]"));
                }
                self.field()?;
                self.emit(format_args!("st M[{word}]"));
            }
            "REGISTER_DATA" => {
                let [count, ms] = self.exactly()?;
                self.emit(format_args!("register_data #{count}, #{ms}"));
            }
            "RET_MATCH_DATA" => {
                let [count, bytes] = self.exactly()?;
                self.emit(format_args!("ret_match_data #{count}, #{bytes}"));
            }
            "POSTPONE" => {
                let [ms] = self.exactly()?;
                self.emit(format_args!("postpone #{ms}"));
            }
            "RET_MATCH_IMM" => {
                let values = self.arguments()?;
                let (count, keys, bytes) = match values.as_slice() {
                    [count, keys @ .., bytes] if *count as usize == keys.len() => {
                        (*count, keys, *bytes)
                    }
                    _ => return Err(start.error("expected (n, n keys, bytes)")),
                };
                self.emit(format_args!("ret_match_imm #{count}, #{bytes}"));
                keys.iter().for_each(|key| self.emit(format_args!("key #{key}")));
            }
            _ => {
                let mut start = start;
                start.skip_blank();
                return Err(start.error(format!("there is no statement `{name}`")));
            }
        }
        self.need(';')
    }

    /// Compiles the rest of a statement after `if`.
    fn choice(&mut self, depth: usize) -> Result<(), SourceError> {
        let (yes, no, end) = (self.label(), self.label(), self.label());
        self.need('(')?;
        self.test(yes, no)?;
        self.need(')')?;
        self.emit(format_args!("T{yes}:"));
        self.statement(depth + 1)?;
        let has_else = self.peek().is_some() && self.cursor.eat_word("else");
        if has_else {
            self.emit(format_args!("ja T{end}"));
        }
        self.emit(format_args!("T{no}:"));
        if has_else {
            self.statement(depth + 1)?;
            self.emit(format_args!("T{end}:"));
        }
        Ok(())
    }

    fn test(&mut self, yes: usize, no: usize) -> Result<(), SourceError> {
        let name = self.word("P[field] or JMP_MATCH_IMM")?;
        match name.as_str() {
            "P" => {
                self.field()?;
                let negated = match self.peek() {
                    Some('=') => {
                        self.need('=')?;
                        self.need('=')?;
                        false
                    }
                    Some('!') => {
                        self.need('!')?;
                        self.need('=')?;
                        true
                    }
                    _ => {
                        self.emit(format_args!("jeq #0, T{no}, T{yes}"));
                        return Ok(());
                    }
                };
                let value = self.value()?;
                let (yes, no) = if negated { (no, yes) } else { (yes, no) };
                self.emit(format_args!("jeq #{value}, T{yes}, T{no}"));
            }
            "JMP_MATCH_IMM" => {
                let values = self.arguments()?;
                let Some((count, keys)) =
                    values.split_first().filter(|(count, keys)| **count as usize == keys.len())
                else {
                    return Err(self.cursor.error("expected (n, n keys)"));
                };
                self.emit(format_args!("jmp_match_imm #{count}, T{yes}, T{no}"));
                keys.iter().for_each(|key| self.emit(format_args!("key #{key}")));
            }
            _ => return Err(self.cursor.error("expected P[field] or JMP_MATCH_IMM")),
        }
        Ok(())
    }

    /// Compiles the load of a field, after `P`.
    fn field(&mut self) -> Result<(), SourceError> {
        self.need('[')?;
        let at = self.cursor.at;
        let name = self.word("a field")?;
        let Some((_, load)) = FIELDS.iter().find(|(known, _)| *known == name) else {
            return Err(self.cursor.line.error(at, format!("there is no field `{name}`")));
        };
        self.emit(format_args!("{load}"));
        self.need(']')
    }

    fn arguments(&mut self) -> Result<Vec<u32>, SourceError> {
        self.need('(')?;
        let mut values = Vec::new();
        while !self.eat(')') {
            if self.eat(',') {
                continue;
            }
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn exactly<const N: usize>(&mut self) -> Result<[u32; N], SourceError> {
        let start = self.cursor.clone();
        let values = self.arguments()?;
        let given = values.len();
        values.try_into().map_err(|_| start.error(format!("{given} arguments; expected {N}")))
    }
}
