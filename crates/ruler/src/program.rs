//! A program: filters with rules, names resolved, ready for the automata.

use crate::error::{Error, Span, Text};
use crate::node::Node;
use crate::parse::Loader;

/// All filters of a text.
#[derive(Debug, Clone)]
pub struct Program {
    /// The text, and those that it includes.
    pub texts: Vec<Text>,
    /// Filters in the order of the text.
    pub filters: Vec<Filter>,
}

impl Program {
    /// Reads a program. `load` is asked for the texts that it includes, except for `layouts.rli`, which is built in.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(name: &str, text: &str, load: &Loader<'_>) -> Result<Program, Error> {
        let mut texts = vec![Text { name: name.to_owned(), text: text.to_owned() }];
        let ast = crate::parse::parse(&mut texts, load)?;
        let filters = crate::resolve::resolve(&texts, &ast)?;
        Ok(Program { texts, filters })
    }

    /// Reads a program that includes nothing but what is built in.
    ///
    /// # Errors
    /// As [`Program::parse`].
    pub fn from_text(text: &str) -> Result<Program, Error> {
        Program::parse("text", text, &|name| Err(format!("there is no \"{name}\"")))
    }

    /// The filter with a name.
    pub fn filter(&self, name: &str) -> Option<usize> {
        self.filters.iter().position(|filter| filter.name == name)
    }

    /// Filters that no other filter applies to a part: those that packets are given to.
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

/// Rules that are tried in order; no match rejects.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Its name.
    pub name: String,
    /// Link types it is for, by libpcap's names; none = all.
    pub links: Vec<String>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Place of the name.
    pub span: Span,
}

/// A pattern and what to do.
#[derive(Debug, Clone)]
pub struct Rule {
    /// What packets look like, first byte to last.
    pub pattern: Node,
    /// What the slots of the pattern remember.
    pub slots: Vec<String>,
    /// Slots that the action uses; an automaton needs tags for no others.
    pub used: Vec<bool>,
    /// What to do.
    pub action: Action,
    /// Place of the rule.
    pub span: Span,
}

/// What to do with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Let it pass; with a class value where the rule gives one.
    Accept(Option<u32>),
    /// Do not.
    Reject,
    /// Make another packet.
    Rewrite {
        /// Its parts, one after the other.
        parts: Vec<Part>,
        /// Repair lengths in its headers.
        fix_lengths: bool,
        /// Repair checksums.
        fix_checksums: bool,
    },
}

/// A part of a new packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These bytes.
    Literal(Vec<u8>),
    /// What a slot remembers; nothing when its part of the pattern was not used.
    Copy(u32),
    /// A part with other bytes in some places, in the order of the places.
    With(u32, Vec<Overwrite>),
    /// A part, changed.
    Apply(Function, Box<Part>),
    /// A part as another filter rewrites it.
    Filter(usize, Box<Part>),
}

impl Part {
    /// Calls `f` with every filter that is applied.
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
    /// Slot of the field, or of the bytes that its bits are in.
    pub slot: u32,
    /// What goes there.
    pub value: Value,
}

/// What goes in place of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes.
    Part(Part),
    /// Bits: `width` of them from bit `first` on (0 = the highest of the first byte), with this value.
    Bits {
        /// First bit.
        first: u32,
        /// Number of bits.
        width: u32,
        /// Their value.
        value: u64,
    },
}

/// Functions of the right-hand side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// As many zeros.
    Zero,
    /// As many bytes that nobody can foretell.
    Random,
    /// As many bytes of a keyed hash.
    Hash,
    /// As many lower-case letters of a keyed hash.
    HashText,
    /// A prefix-preserving IPv4 or IPv6 address by the length, never the one given.
    Prefix,
    /// The same as Crypto-PAn was published: a few addresses stay as they are.
    CryptoPan,
    /// A link address from a keyed hash: the group bit stays, broadcast stays, the local bit is set.
    Mac,
    /// As many bytes of a pattern, repeated.
    Fill(Vec<u8>),
}
