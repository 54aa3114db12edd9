//! fyke: a dynamic packet filter and traffic monitor for Linux.
//!
//! ```
//! let filter = fyke::Filter::compile("arp or udp port 53")?;
//! let mut frame = [0; 60]; // Ethernet
//! frame[12..14].copy_from_slice(&[0x08, 0x06]); // ARP
//! assert!(filter.matches(&frame));
//! # Ok::<(), fyke::Error>(())
//! ```
//!
//! Texts are in the language of tcpdump. A text becomes *passes*, and an edit is a change of passes: it costs
//! O(change), nothing is recompiled, and no frame is lost. See `docs/GLOSSARY.md` for the terms.
//!
//! # Guide by task
//!
//! | task | use | example |
//! |---|---|---|
//! | test frames that you have | [`Filter`] | `match.rs` |
//! | change the filter while it runs, from any thread | [`LiveFilter`] | `live_edit.rs` |
//! | capture to a file | [`capture`] | `capture.rs` |
//! | several filters, sinks, counters, edits: a whole monitor | [`graph`] | `graph.rs` |
//! | a step of your own in a graph | [`graph::node`] | `own_class.rs` |
//! | frames from a device or format of your own | [`capture::Source`] | `own_source.rs` |
//! | ports that a protocol negotiates | [`track`] | `own_tracker.rs` |
//! | one line per frame | [`print`](mod@print) | |
//! | patterns in payload, rewriting, anonymising | [`ruler`] | |
//! | frames for other processes | [`ring`] | |
//! | frames of a capture that another process owns | [`serve`] | |
//! | filter in the kernel, before frames are copied | `filters::KernelFilters` (feature `kernel`) | |
//! | let `fyke ctl` edit your program | [`control`] | |
//!
//! `cargo run -p fyke --example match` runs the first of them; all run without arguments.
//!
//! # Which engine when
//!
//! | engine | frames | edited | matches are counted | use it for |
//! |---|---|---|---|---|
//! | [`Filter`] | one, or batches | no | no | tests in your own loop |
//! | [`LiveFilter`] | one, or batches | any thread, O(change) | by text | a filter that changes |
//! | [`filters::FilterSet`] | batches, any link type | any thread, O(change) | by text, pass | your own runtime |
//! | [`pass::PassSet`] | batches | one writer | by pass and row | millions of rows without texts |
//! | `filters::KernelFilters` | of packet sockets | any thread, stores | by text | few accepted frames |
//! | [`machine`] | one, or batches | programs come and go | by program | existing BPF, CSPF, MPF programs |
//! | [`ruler`] | one, or streams | no | by rule | payload with structure, rewriting |
//! | [`table::Prefilter`] | one, or batches | one writer, O(1) | no | "certainly none" for many rules |
//! | [`filter::Predicate`] | one | no | no | nothing fast: the reference that engines are tested against |
//!
//! Evaluate batches where you can: a batch of 64 costs a fraction per frame of what single frames cost, because each
//! instruction is one vector comparison over all frames.
//!
//! # Features
//!
//! None is on by default. `kernel` adds filters in the kernel (the crate `aya`), `jit` machine code for [`machine`]
//! (cranelift). Neither clap nor anyhow is a dependency.
//!
//! # Errors
//!
//! All errors of this library convert into [`Error`] with `?`. Errors of texts show the line, a caret, and what was
//! expected.
#![forbid(unsafe_code)]

mod front;

pub mod capture;
pub mod control;
pub mod filter;
pub mod filters;
pub mod flow;
pub mod frame;
pub mod graph;
#[cfg(feature = "kernel")]
pub mod kernel;
pub mod machine;
pub mod pass;
pub mod print;
pub mod ring;
pub mod ruler;
pub mod serve;
pub mod table;
pub mod track;

pub use front::{AnyError, Error, Filter, FilterBuilder, LiveFilter, LiveReader};
