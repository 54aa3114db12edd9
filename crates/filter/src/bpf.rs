//! Lowers a predicate to a program of classic BPF, as the kernel's socket filters and other tools
//! accept it.
//!
//! ```text
//! predicate ─▶ graph of tests ─▶ tests of one value together ─▶ edges past known outcomes ─▶ instructions
//! ```
//!
//! | file | what |
//! |---|---|
//! | `graph.rs` | the graph: equal tests with equal successors are one node |
//! | `shorten.rs` | removes tests with a known outcome; groups tests of one value |
//! | `share.rs` | merges equal chains of tests on different places |
//! | `emit.rs` | the order of the tests, jumps, long jumps |
//! | `compute.rs` | loads, expressions, places cached in memory words |
//! | `decided.rs` | computes together the places that depend on one choice |
//! | `extent.rs` | frame lengths from which no load of a program fails |
//!
//! A frame that contains every byte the program reads gets the predicate's verdict. In shorter
//! frames, tests that were moved may find the end of the frame earlier or later than the predicate
//! does, as in libpcap's optimiser.
//!
//! Cost: about the square of the number of tests; texts with more than [`MAX_TESTS`] are not shortened, only lowered.
//! Source: McCanne & Jacobson 1993; Begel, McCanne, Graham 1999.

mod compute;
mod decided;
mod emit;
mod extent;
mod graph;
mod share;
mod shorten;

use crate::{Predicate, Reading};
use fyke_frame::Condition;
use graph::Graph;
use share::Plan;

/// Most tests of a program that is optimised.
pub const MAX_TESTS: usize = 2_000;
/// Most instructions of a program; Linux takes 4,096 of them.
pub const MAX_LEN: usize = 1 << 20;

pub use extent::Extent;
pub use fyke_frame::bpf::Instruction;

/// Reasons why a predicate has no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// The predicate uses the scoped reading, which walks over the headers.
    #[error("the scoped reading walks over the headers; classic BPF cannot")]
    Scoped,
    /// The predicate has a loop over headers.
    #[error("\"protochain\" is a loop over headers, which the kernel's BPF does not have")]
    Loop,
    /// The place of a header depends on a choice that is too long.
    #[error(
        "the place of a header depends on more tests than one jump reaches over; write the terms \
         before \"vlan\" or \"geneve\" after it"
    )]
    Choice,
    /// A byte expression needs too many memory words.
    #[error("a byte expression needs more than the machine's {limit} memory words")]
    Memory {
        /// Memory words of the machine.
        limit: usize,
    },
    /// The program is too long.
    #[error("the program would have {given} instructions, the limit is {limit}")]
    TooLong {
        /// The number of instructions.
        given: usize,
        /// [`MAX_LEN`].
        limit: usize,
    },
}

/// The program of a predicate; it returns `snaplen` for frames that are accepted and 0 for others.
///
/// # Errors
/// [`LowerError`] names the feature that classic BPF lacks.
pub fn lower(predicate: &Predicate, snaplen: u32) -> Result<Vec<Instruction>, LowerError> {
    if predicate.reading() == Reading::Scoped {
        return Err(LowerError::Scoped);
    }
    let mut graph = Graph::of(predicate.root(), false)?;
    if graph.len() > MAX_TESTS {
        return emit::program(&graph, &Plan::plain(&graph), snaplen);
    }
    let mut in_common = graph.clone();
    graph.shorten();
    let program = shortest(&mut graph, snaplen)?;
    match in_common.shorten_in_common().then(|| shortest(&mut in_common, snaplen)) {
        Some(Ok(other)) if other.len() < program.len() => Ok(other),
        _ => Ok(program),
    }
}

/// The shorter of the programs with and without shared chains.
fn shortest(graph: &mut Graph, snaplen: u32) -> Result<Vec<Instruction>, LowerError> {
    let program = emit::program(graph, &Plan::plain(graph), snaplen)?;
    graph.root = graph.sorted();
    match Plan::shared(graph).map(|plan| emit::program(graph, &plan, snaplen)) {
        Some(Ok(shared)) if shared.len() < program.len() => Ok(shared),
        _ => Ok(program),
    }
}

/// The program of a predicate with the tests in the predicate's own order, so that short frames get
/// its verdict too; it returns 1 or 0.
///
/// # Errors
/// As [`lower`].
pub fn lower_in_order(predicate: &Predicate) -> Result<Vec<Instruction>, LowerError> {
    if predicate.reading() == Reading::Scoped {
        return Err(LowerError::Scoped);
    }
    let graph = Graph::of(predicate.root(), true)?;
    emit::program(&graph, &Plan::plain(&graph), 1)
}

/// As [`lower_in_order`], for a bare condition.
///
/// # Errors
/// As [`lower`].
pub fn lower_condition(condition: &Condition) -> Result<Vec<Instruction>, LowerError> {
    let graph = Graph::of_condition(condition)?;
    emit::program(&graph, &Plan::plain(&graph), 1)
}
