//! Loads a program that a user gives: selects the machine, resolves values, and compiles it.
//!
//! A program is given as `FILE` or `FILE:NAME=VALUE,…` ([`split`]). Its own values take precedence over those for
//! all programs, which take precedence over the values of the papers' names. A value that is never used is an
//! error: [`load`] reports it for the program's own values, the caller for the shared ones, since it knows all
//! programs ([`Loaded::read`]).
//!
//! If the machine is not given, the first word selects it ([`first_word`]), as in the kernel of the MPF paper:
//! `begin` starts a program of MPF. Cost: O(text).
//!
//! ```
//! # mod fyke { pub(crate) use fyke_machine as machine; }
//! use fyke::machine::Symbols;
//! use fyke::machine::load::{Isa, first_word, split};
//!
//! assert_eq!(first_word("begin\nret #0")?, Isa::Mpf);
//! let (file, values) = split("web.bpf:PORT=80")?;
//! assert_eq!((file, values.names().collect::<Vec<_>>()), ("web.bpf", vec!["PORT"]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::bpf::{Dialect, assemble, code, numbers, pseudo, run, validate};
use crate::cspf::{self, ByteOrder};
use crate::demultiplexer::AnyProgram;
use crate::papers;
use crate::text::{Cursor, Line, SourceError, Symbols, definition, lines};
use std::fmt;

/// Maximum number of values on a command line or of a program.
const MAX_VALUES: usize = 1024;

/// Mnemonics of the register machines that are not operators of CSPF.
const REGISTER: &[&str] = &[
    "ld", "ldi", "ldh", "ldb", "ldx", "ldxi", "ldxb", "st", "stx", "ret", "tax", "txa", "neg",
    "ja", "jmp", "jeq", "jneq", "jne", "jgt", "jle", "jge", "jlt", "jset", "mul", "div", "mod",
];

/// Mnemonics that exist only in MPF.
const MPF: &[&str] = &[
    "begin",
    "ret_match_imm",
    "ret_match_data",
    "register_data",
    "jmp_match_imm",
    "key",
    "postpone",
];

/// An instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// The stack machine.
    Cspf,
    /// Classic BPF with Linux's extensions.
    Bpf,
    /// BPF with matches, fragments and postponing.
    Mpf,
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Cspf => "CSPF",
            Isa::Bpf => "BPF",
            Isa::Mpf => "MPF",
        })
    }
}

/// Names and their values; each name occurs once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(Vec<(String, u32)>);

impl Values {
    /// Adds a text `NAME=VALUE`.
    ///
    /// # Errors
    /// A malformed text, with what was expected; a name that already has a value; more than 1,024 values.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = definition(text)?;
        if self.names().any(|known| known == name) {
            return Err(format!("`{name}` has two values; give it one"));
        }
        if self.0.len() == MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        self.0.push((name.to_owned(), value));
        Ok(())
    }

    /// The names, in the given order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn define_in(&self, symbols: &mut Symbols) {
        self.0.iter().for_each(|(name, value)| symbols.define(name, *value));
    }
}

/// Splits `FILE:NAME=VALUE,…` into the file and the program's own values. If there is no `=` after the last colon,
/// the whole text is the file.
///
/// # Errors
/// As [`Values::add`].
pub fn split(given: &str) -> Result<(&str, Values), String> {
    let mut values = Values::default();
    let Some((file, list)) = given.rsplit_once(':').filter(|(_, list)| list.contains('=')) else {
        return Ok((given, values));
    };
    for text in list.split(',') {
        values.add(text)?;
    }
    Ok((file, values))
}

/// Options for reading a program.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The machine; `None` = the first word selects it.
    pub isa: Option<Isa>,
    /// The byte order of CSPF's words.
    pub order: ByteOrder,
    /// Values for all programs.
    pub shared: &'a Values,
    /// Values for this program only.
    pub own: &'a Values,
}

/// A valid program with its properties.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The program.
    pub program: AnyProgram,
    /// The machine it is for.
    pub isa: Isa,
    /// Warnings for its author, one line each.
    pub warnings: Vec<String>,
    /// Names of the shared values that it uses.
    pub read: Vec<String>,
}

/// Reason why a program cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text has an error.
    #[error(transparent)]
    Text(#[from] SourceError),
    /// The program breaks a rule of the register machines.
    #[error(transparent)]
    Register(#[from] validate::ValidateError),
    /// The program breaks a rule of the stack machine.
    #[error(transparent)]
    Stack(#[from] cspf::ValidateError),
    /// The first word selects BPF, but the program is valid only as MPF.
    #[error(
        "{0}\nThe program does not start with `begin`, so it was read as BPF; it is correct as MPF. \
         Write `begin` first or name the machine (--isa mpf, in a graph isa=mpf)"
    )]
    Marker(Box<LoadError>),
    /// The program has a value of its own that it does not use.
    #[error("the program has no name `{name}`, so its value is not used")]
    Unused {
        /// The name.
        name: String,
    },
}

/// Reads, assembles and validates a program in any notation.
///
/// # Errors
/// The first error.
pub fn load(text: &str, reading: &Reading<'_>) -> Result<Loaded, LoadError> {
    let isa = match reading.isa {
        Some(isa) => isa,
        None => first_word(text)?,
    };
    load_as(text, isa, reading).map_err(|error| match (isa, reading.isa) {
        (Isa::Bpf, None) if load_as(text, Isa::Mpf, reading).is_ok() => {
            LoadError::Marker(Box::new(error))
        }
        _ => error,
    })
}

fn load_as(text: &str, isa: Isa, reading: &Reading<'_>) -> Result<Loaded, LoadError> {
    let mut symbols = match isa {
        Isa::Cspf => papers::stack_machine(reading.order),
        Isa::Bpf | Isa::Mpf => papers::register_machine(),
    };
    reading.shared.define_in(&mut symbols);
    reading.own.define_in(&mut symbols);
    let are_numbers = numbers::is_numbers(text);
    let mut warnings = Vec::new();
    let program = match isa {
        Isa::Cspf => {
            let words = match are_numbers {
                true => cspf::assemble::read_numbers(text)?,
                false => cspf::assemble::assemble(text, &symbols)?,
            };
            AnyProgram::Cspf(cspf::Program::new(words, reading.order)?)
        }
        Isa::Bpf | Isa::Mpf => {
            let dialect = if isa == Isa::Mpf { Dialect::Mpf } else { Dialect::Bpf };
            let assembled = match dialect {
                _ if are_numbers => {
                    assemble::Assembled { program: numbers::read(text)?, warnings: Vec::new() }
                }
                Dialect::Mpf if pseudo::is_pseudo(text) => pseudo::compile(text, &symbols)?,
                _ => assemble::assemble(text, dialect, &symbols)?,
            };
            warnings = assembled.warnings;
            AnyProgram::Register(run::Program::new(assembled.program, dialect)?)
        }
    };
    if let Some(name) = reading.own.names().find(|name| !symbols.was_read(name)) {
        return Err(LoadError::Unused { name: name.to_owned() });
    }
    let shared = reading.shared.names().filter(|name| symbols.was_read(name));
    let own = |name: &&str| !reading.own.names().any(|other| other == *name);
    let read = shared.filter(own).map(str::to_owned).collect();
    Ok(Loaded { program, isa, warnings, read })
}

/// Selects the machine of a program by its first word after labels and listing numbers. `begin`, a mnemonic that
/// only MPF has and the code of Appendix B select MPF; other mnemonics of the register machines select BPF; actions
/// and operators of CSPF select CSPF. For programs as numbers, the number of columns and the code of `begin`
/// decide.
///
/// # Errors
/// A first word that belongs to several machines, or to none.
pub fn first_word(text: &str) -> Result<Isa, SourceError> {
    if numbers::is_numbers(text) {
        return first_number(text);
    }
    if pseudo::is_pseudo(text) {
        return Ok(Isa::Mpf);
    }
    let lines = lines(text)?;
    for line in &lines {
        let mut cursor = Cursor::new(line);
        if cursor.eat('(') {
            cursor.word();
            cursor.eat(')');
        }
        while !cursor.at_end() {
            let start = cursor.at;
            let Some(word) = cursor.word() else { break };
            if cursor.eat(':') {
                continue;
            }
            let lower = word.to_ascii_lowercase();
            if MPF.contains(&lower.as_str()) {
                return Ok(Isa::Mpf);
            }
            if REGISTER.contains(&lower.as_str()) {
                return Ok(Isa::Bpf);
            }
            let stack = cspf::assemble::is_step(&lower);
            // An operator of CSPF has no operand; arithmetic of BPF has one.
            return match stack {
                true if !is_arithmetic(&lower) => Ok(Isa::Cspf),
                true => {
                    Err(line.error(start, unclear(&word, "an instruction of several machines")))
                }
                false => {
                    Err(line.error(start, unclear(&word, "not an instruction of any machine")))
                }
            };
        }
    }
    Err(Line { number: 1, original: "", code: Vec::new() }.error(0, "no program"))
}

fn is_arithmetic(name: &str) -> bool {
    fyke_frame::bpf::ARITHMETIC.iter().any(|(known, _)| *known == name)
}

fn unclear(word: &str, problem: &str) -> String {
    format!(
        "the first word `{word}` is {problem}: name the machine (--isa cspf, bpf or mpf; isa= in a \
         graph)"
    )
}

fn first_number(text: &str) -> Result<Isa, SourceError> {
    match numbers::read(text) {
        Ok(program) => match program.first().map(|one| one.code) {
            Some(code::BEGIN | code::BEGIN_OLD) => Ok(Isa::Mpf),
            _ => Ok(Isa::Bpf),
        },
        Err(error) => match cspf::assemble::read_numbers(text) {
            Ok(_) => Ok(Isa::Cspf),
            Err(_) => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(texts: &[&str]) -> Values {
        let mut values = Values::default();
        texts.iter().for_each(|text| values.add(text).unwrap());
        values
    }

    #[test]
    fn the_first_word_tells_the_machine() {
        for (text, isa) in [
            ("/* A */ begin ; marker\nldh [12]\nret #0", Isa::Mpf),
            ("(000) begin\n(001) ret #0", Isa::Mpf),
            ("if (P[proto] == IP) return ALL;", Isa::Mpf),
            ("postpone #3", Isa::Mpf),
            ("start: again:\n  LDH [12]\nret #0", Isa::Bpf),
            ("(000) ldh [12]\n(001) ret #0", Isa::Bpf),
            ("ret #0", Isa::Bpf),
            ("{ 0x6, 0, 0, 0x1 },", Isa::Bpf),
            ("{ 0x400, 0, 0, 0 },\n{ 0x6, 0, 0, 1 },", Isa::Mpf),
            ("2,1024 0 0 0,6 0 0 1,", Isa::Mpf),
            ("1\n6 0 0 1", Isa::Bpf),
            ("4\n6 0 0 1", Isa::Cspf),
            ("pushword P[6]\npushlit | eq #8", Isa::Cspf),
            ("Nopush | eq", Isa::Cspf),
            ("cand", Isa::Cspf),
        ] {
            assert_eq!(first_word(text), Ok(isa), "{text}");
        }
        for (text, part) in [
            ("\n  and #1", "several"),
            ("add", "several"),
            ("frob [12]", "not an instruction of any machine"),
            ("; nothing", "no program"),
            ("7\n6 0 0 1", "7 instructions announced"),
        ] {
            let error = first_word(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(first_word("\n  and #1").unwrap_err().column, 3);
    }

    #[test]
    fn own_values_come_before_shared_ones_and_unread_ones_are_found() {
        let text = "begin\nldh [0]\njeq #port, Y, N\nY: ret #size\nN: ret #0";
        let shared = values(&["port=7", "size=3", "other=1"]);
        let own = values(&["port=9"]);
        let reading = |own| Reading { isa: None, order: ByteOrder::Network, shared: &shared, own };
        let loaded = load(text, &reading(&own)).unwrap();
        assert_eq!((loaded.isa, loaded.read), (Isa::Mpf, vec!["size".to_owned()]));
        let AnyProgram::Register(program) = loaded.program else {
            panic!("not a register program")
        };
        assert_eq!(program.instructions()[2].k, 9);
        let own = values(&["prot=9"]);
        let wrong = load(text, &reading(&own));
        assert_eq!(wrong.unwrap_err(), LoadError::Unused { name: "prot".to_owned() });
        let code = "if (P[proto] == kind) return ALL;";
        let (shared, own) = (values(&["kind=3", "time_out=1"]), Values::default());
        let loaded = load(code, &Reading { shared: &shared, ..reading(&own) });
        assert_eq!(loaded.unwrap().read, ["kind"]);
    }

    #[test]
    fn a_program_that_lacks_its_marker_is_told() {
        let text = "ld [0]\nst M[0]\nret_match_imm #1, #ALL\nkey #5";
        let (shared, own) = (Values::default(), Values::default());
        let reading = Reading { isa: None, order: ByteOrder::Network, shared: &shared, own: &own };
        let error = load(text, &reading).unwrap_err();
        assert!(matches!(error, LoadError::Marker(_)) && error.to_string().contains("--isa mpf"));
        assert!(load(text, &Reading { isa: Some(Isa::Mpf), ..reading }).is_ok());
        let worse = load(&format!("{text}\nfrob"), &reading).unwrap_err();
        assert!(matches!(worse, LoadError::Text(_)), "{worse}");
    }

    #[test]
    fn a_program_is_given_with_its_values() {
        assert_eq!(split("a.mpf"), Ok(("a.mpf", Values::default())));
        assert_eq!(split("C:a.mpf"), Ok(("C:a.mpf", Values::default())));
        assert_eq!(
            split("d:a.mpf:x=1,y=10.0.0.1"),
            Ok(("d:a.mpf", values(&["x=1", "y=10.0.0.1"])))
        );
        for wrong in ["a:x=1,x=1", "a:x=1,y", "a:x=", "a:=1", "a:x=1,"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }
}
