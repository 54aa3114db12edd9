//! Ruler: patterns over whole packets that accept, classify or rewrite them, by tagged automata.
//!
//! Use it where a filter text ends: payload with structure, class values by content, anonymising.
//!
//! ```
//! use fyke::frame::LinkType;
//! use fyke::ruler::anonymise::Anonymiser;
//! use fyke::ruler::{Limits, Program, Ruler, Verdict};
//!
//! let program = Program::from_text("filter web \"GET \" * => accept 1; \"POST \" * => accept 2;")?;
//! let mut ruler = Ruler::new(program, Limits::default(), Anonymiser::new(&[0; 32], &[0; 16]))?;
//! let (verdict, _rule) = ruler.run(0, b"POST /form", LinkType::RAW, &mut Vec::new());
//! assert_eq!(verdict, Verdict::Accept(Some(2)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(inline)]
pub use fyke_ruler::{
    ANONYMISE, Action, CompileError, Error, FUNCTIONS, Filter, LAYOUTS, Limits, Loader, MAX_COUNT,
    MAX_DEPTH, MAX_DRAWN, MAX_NESTING, MAX_OUTPUT, MAX_RULES, MAX_STREAM, MAX_TEXT_BYTES, Matcher,
    Program, Progress, Report, Rule, Ruler, Span, Stream, Text, Verdict, anonymise, built_in, cost,
    dot, program, report,
};
