//! A program: filters with rules, names resolved, input of the automata.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_ruler as ruler; }
//! use fyke::ruler::Program;
//!
//! let program = Program::from_text("filter web \"GET \" * => accept 1;")?;
//! assert_eq!(program.filter("web"), Some(0));
//! let error = Program::from_text("filter web \"GET").unwrap_err();
//! assert!(error.to_string().contains('^'));
//! # Ok::<(), fyke::ruler::Error>(())
//! ```

use crate::error::{Error, Span, Text};
use crate::lex::{Token, lex};
use crate::node::Node;
use crate::parse::Loader;

/// All filters of a text.
#[derive(Debug, Clone)]
pub struct Program {
    /// The text and the texts that it includes.
    pub texts: Vec<Text>,
    /// Filters in the order of the text.
    pub filters: Vec<Filter>,
}

impl Program {
    /// Parses a program. `load` is called for each text that it includes, except `layouts.rli`, which is built in.
    ///
    /// # Errors
    /// The first error, with its location.
    pub fn parse(name: &str, text: &str, load: &Loader<'_>) -> Result<Program, Error> {
        let mut texts = vec![Text { name: name.to_owned(), text: text.to_owned() }];
        let ast = crate::parse::parse(&mut texts, load)?;
        let filters = crate::resolve::resolve(&texts, &ast)?;
        Ok(Program { texts, filters })
    }

    /// Parses a pattern as a program with one rule, which accepts texts that contain it.
    ///
    /// # Errors
    /// The first error, with its location in the pattern; also if the text continues after the pattern.
    pub fn of_pattern(pattern: &str) -> Result<Program, Error> {
        let name = "pattern";
        let own = [Text { name: name.to_owned(), text: pattern.to_owned() }];
        let mut open = Vec::new();
        for (token, span) in lex(&own, 0)? {
            let problem = match token {
                Token::Sign("(") => {
                    open.push(span);
                    continue;
                }
                Token::Sign(")") if open.pop().is_none() => "a `)` without its `(`",
                Token::Sign("=>" | ";") => "the pattern ends before this; rules are for a file",
                _ => continue,
            };
            return Err(Error::new(&own, span, problem));
        }
        if let Some(span) = open.pop() {
            return Err(Error::new(&own, span, "a `(` without its `)`"));
        }
        let text = format!("filter payload * (\n{pattern}\n) * => accept;");
        let no_files = |_: &str| Err("a pattern cannot include files".to_owned());
        let lines = pattern.matches('\n').count() + 1;
        let parsed = Program::parse(name, &text, &no_files);
        parsed.map_err(|error| error.after_lines(1, lines))
    }

    /// Parses a program that includes only built-in texts.
    ///
    /// # Errors
    /// As [`Program::parse`].
    pub fn from_text(text: &str) -> Result<Program, Error> {
        Program::parse("text", text, &|name| Err(format!("there is no \"{name}\"")))
    }

    /// Index of the filter with a name.
    pub fn filter(&self, name: &str) -> Option<usize> {
        self.filters.iter().position(|filter| filter.name == name)
    }

    /// Filters that no other filter applies to a part: these run on packets.
    pub fn roots(&self) -> Vec<usize> {
        let mut called = vec![false; self.filters.len()];
        for (number, filter) in self.filters.iter().enumerate() {
            for rule in &filter.rules {
                let Action::Rewrite { parts, .. } = &rule.action else { continue };
                for part in parts {
                    part.each_call(&mut |callee| called[callee] |= callee != number);
                }
            }
        }
        (0..self.filters.len()).filter(|number| !called[*number]).collect()
    }
}

/// Rules that are tried in order; if none matches, the packet is rejected.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Its name.
    pub name: String,
    /// Link types that it applies to, by libpcap's names; empty = all.
    pub links: Vec<String>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Location of the name.
    pub span: Span,
}

/// A pattern and its action.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Pattern that must match the whole packet.
    pub pattern: Node,
    /// Names of the pattern's slots.
    pub slots: Vec<String>,
    /// Slots that the action uses; an automaton needs tags only for these.
    pub used: Vec<bool>,
    /// Action for packets that match.
    pub action: Action,
    /// Location of the rule.
    pub span: Span,
}

/// Action of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Accepts the packet, with a class value if the rule gives one.
    Accept(Option<u32>),
    /// Rejects the packet.
    Reject,
    /// Rewrites the packet.
    Rewrite {
        /// Its parts, in order.
        parts: Vec<Part>,
        /// Recomputes lengths in its headers.
        fix_lengths: bool,
        /// Recomputes checksums.
        fix_checksums: bool,
    },
}

/// A part of a new packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Literal bytes.
    Literal(Vec<u8>),
    /// Bytes of a slot; empty if its part of the pattern was not used.
    Copy(u32),
    /// Bytes of a slot with some fields overwritten, in the order of their positions.
    With(u32, Vec<Overwrite>),
    /// A function applied to a part.
    Apply(Function, Box<Part>),
    /// A part as another filter rewrites it.
    Filter(usize, Box<Part>),
}

impl Part {
    /// Calls `f` for every filter that is applied.
    pub fn each_call(&self, f: &mut dyn FnMut(usize)) {
        match self {
            Part::Literal(_) | Part::Copy(_) => {}
            Part::With(_, overwrites) => {
                for overwrite in overwrites {
                    if let Value::Part(part) = &overwrite.value {
                        part.each_call(f);
                    }
                }
            }
            Part::Apply(_, part) => part.each_call(f),
            Part::Filter(callee, part) => {
                f(*callee);
                part.each_call(f);
            }
        }
    }
}

/// New bytes in place of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overwrite {
    /// Slot of the field, or of the bytes that contain its bits.
    pub slot: u32,
    /// New value.
    pub value: Value,
}

/// New value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes.
    Part(Part),
    /// Sets `width` bits from bit `first` on (0 = the highest of the first byte) to a value.
    Bits {
        /// First bit.
        first: u32,
        /// Number of bits.
        width: u32,
        /// Their value.
        value: u64,
    },
}

/// Functions of the right-hand side. The result has as many bytes as the argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// Zeros.
    Zero,
    /// Unpredictable bytes.
    Random,
    /// Bytes of a keyed hash.
    Hash,
    /// Lower-case letters of a keyed hash.
    HashText,
    /// A prefix-preserving IPv4 or IPv6 address, by the length; it always differs from the argument.
    Prefix,
    /// The same by Crypto-PAn as published: a few addresses do not change.
    CryptoPan,
    /// A link address from a keyed hash: the group bit stays, broadcast stays, the local bit is set.
    Mac,
    /// Bytes of a pattern, repeated.
    Fill(Vec<u8>),
}
