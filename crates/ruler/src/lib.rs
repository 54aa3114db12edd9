//! Ruler: patterns over packets, and rewriting, on tagged automata.
//!
//! A text becomes a [`Program`]: filters whose rules are tried from top to bottom; the first rule whose pattern
//! matches the whole packet decides, and no match rejects.
//!
//! | module | what |
//! |---|---|
//! | [`program`] | filters and rules with names resolved |
//! | [`node`] | patterns as trees |
//! | [`oracle`] | the slow, obvious matcher |
//!
//! Source: Hruby, *A packet filter for an IXP*, chapter 6, after van Reeuwijk and Bos. What the language leaves open
//! and how it is decided here stands in `docs/ruler-language.md`.
#![forbid(unsafe_code)]

mod action;
pub mod anonymise;
mod ast;
mod byte_range;
pub mod byte_set;
pub mod dense;
pub mod determinise;
mod error;
mod fix;
mod lex;
pub mod matcher;
mod minimise;
pub mod nfa;
pub mod node;
pub mod oracle;
mod parse;
pub mod pike;
pub mod program;
pub mod registers;
mod resolve;
mod run;

pub use action::FUNCTIONS;
pub use error::{Error, Span, Text};
pub use matcher::{Limits, Matcher};
pub use parse::{Loader, MAX_COUNT, MAX_DEPTH, MAX_RULES, MAX_TEXT_BYTES};
pub use program::{Action, Filter, Program, Rule};
pub use run::{CompileError, MAX_NESTING, MAX_OUTPUT, Ruler, Verdict};

/// The layouts that `include "layouts.rli"` brings in.
pub const LAYOUTS: &str = include_str!("layouts.rli");
