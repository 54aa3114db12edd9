//! What a frame is, and how many of them are looked at together.
//!
//! This crate is the bottom of the house. A [`Frame`] is a view of captured bytes with their metadata. A [`Batch`]
//! holds up to [`BATCH_CAPACITY`] frames, a [`Mask`] has one bit per frame of a batch. A [`Condition`] is what
//! filter texts and link types boil down to: tests of bytes at given places, joined by and, or, not, with the
//! evaluation order and the out-of-bounds rule of classic BPF.
//!
//! | module | what |
//! |---|---|
//! | [`frame`](mod@frame) | captured bytes and their metadata |
//! | [`link`] | link types, one file each: name, number, where the network layer starts, how it is announced |
//! | [`condition`] | byte conditions and the slow, obvious evaluator |
//! | [`batch`] | up to 256 frames |
//! | [`mask`] | a bit per frame of a batch |
//! | [`walk`](mod@walk) | the header walk: which headers a frame has, and checked views of them |
#![forbid(unsafe_code)]

pub mod batch;
pub mod condition;
pub mod ethertype;
pub mod frame;
pub mod link;
pub mod mask;
pub mod walk;

pub use batch::{BATCH_CAPACITY, Batch, Lengths};
pub use condition::{Condition, OutOfBounds};
pub use frame::{Direction, Frame, Meta};
pub use link::LinkType;
pub use mask::Mask;
pub use walk::{Layer, Layers, Protocol, Stop, walk};
