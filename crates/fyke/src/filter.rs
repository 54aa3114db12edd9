//! The filter language: a text as a tree of typed primitives, errors with a caret, and the slow evaluator that the
//! engines are tested against.
//!
//! For evaluating frames use [`fyke::Filter`](crate::Filter). Use this module to look into a text: check it, print
//! its canonical form, find its primitives, or compile it for libpcap.
//!
//! ```
//! use fyke::filter::{Options, compile};
//!
//! let predicate = compile("tcp port 80 or 443", &Options::default())?;
//! assert_eq!(predicate.to_string(), "tcp port 80 or tcp port 443");
//! assert_eq!(predicate.root().primitives().count(), 2);
//! # Ok::<(), fyke::Error>(())
//! ```
//!
//! A text has two readings: *compat*, exactly libpcap's with its traps, and [`scoped`], by meaning.

#[doc(inline)]
pub use fyke_filter::{
    Cost, Error, Fragments, MAX_NESTING, MAX_TEXT_LEN, Node, Options, Predicate, Primitive,
    PrimitiveKind, Reading, Resolver, ast, bpf, compile, compile_with, cost, scoped,
    system_resolver,
};
