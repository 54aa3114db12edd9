//! Ruler: matches packets with patterns and rewrites them, by tagged automata.
//!
//! A text becomes a [`Program`], a list of filters. The rules of a filter are tried from top to bottom; the first rule
//! with a pattern that matches the whole packet decides, and no match rejects.
//!
//! | module | what |
//! |---|---|
//! | [`program`] | filters and rules with names resolved |
//! | [`node`] | patterns as trees |
//! | [`nfa`] | the tagged automaton of a list of rules; which positions need a tag |
//! | [`determinise`], [`registers`], [`dense`] | the deterministic automaton with registers, and its run |
//! | [`lazy`] | an automaton built on demand, for rules with too large a full automaton |
//! | [`pike`] | the simulation, for the names of such rules |
//! | [`matcher`] | one filter or several, compiled: chooses an engine for each rule |
//! | [`anonymise`] | functions that hide bytes |
//! | [`gate`] | the search for the bytes that rules need |
//! | [`substitution`] | bytes of streams replaced by as many others |
//! | [`oracle`] | the slow, simple reference matcher for tests |
//!
//! Source: Hruby, *A packet filter for an IXP*, chapter 6, after van Reeuwijk and Bos. `docs/ruler-language.md`
//! lists the questions that the language leaves open, and our answers.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_ruler as ruler}; }
//! use fyke::frame::LinkType;
//! use fyke::ruler::anonymise::Anonymiser;
//! use fyke::ruler::{Limits, Program, Ruler, Verdict};
//!
//! let program = Program::from_text("filter web \"GET \" * => accept 1;")?;
//! let mut ruler = Ruler::new(program, Limits::default(), Anonymiser::new(&[0; 32], &[0; 16]))?;
//! let (verdict, rule) = ruler.run(0, b"GET /", LinkType::RAW, &mut Vec::new());
//! assert_eq!((verdict, rule), (Verdict::Accept(Some(1)), Some(0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod action;
pub mod anonymise;
mod ast;
mod byte_range;
pub mod byte_set;
mod check;
pub mod dense;
pub mod determinise;
mod dot;
mod error;
mod fix;
mod fold;
pub mod gate;
pub mod lazy;
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
mod split;
pub mod substitution;

pub use action::FUNCTIONS;
pub use check::{Report, cost, report};
pub use dot::{MAX_DRAWN, dot};
pub use error::{Error, Span, Text};
pub use fix::fix as repair;
pub use matcher::{Limits, MAX_STREAM, Matcher, Progress, Stream};
pub use parse::{Loader, MAX_COUNT, MAX_DEPTH, MAX_RULES, MAX_TEXT_BYTES};
pub use program::{Action, Filter, Program, Rule};
pub use run::{CompileError, MAX_NESTING, MAX_OUTPUT, Ruler, Verdict};
pub use substitution::Substitution;

/// A reviewed program that anonymises captures for sharing; `fyke ruler run anonymise.rul` uses this built-in copy.
pub const ANONYMISE: &str = include_str!("anonymise.rul");

/// Returns the text of a built-in program: `anonymise.rul`, or `anonymise-cryptopan.rul`, which maps addresses with
/// the published function, as other tools do with the same key.
pub fn built_in(name: &str) -> Option<String> {
    match name {
        "anonymise.rul" => Some(ANONYMISE.to_owned()),
        "anonymise-cryptopan.rul" => Some(ANONYMISE.replace("prefix(", "cryptopan(")),
        _ => None,
    }
}

/// The layouts included by `include "layouts.rli"`.
pub const LAYOUTS: &str = include_str!("layouts.rli");
