//! Frames: captured bytes with metadata, and the batches in which they are evaluated.
//!
//! This is the lowest crate. A [`Frame`] is a view of captured bytes with their metadata. A
//! [`Batch`] holds up to [`BATCH_CAPACITY`] frames, a [`Mask`] has one bit per frame of a batch.
//! Filter texts and link types are compiled to a [`Condition`]: tests of bytes at given offsets,
//! joined by and, or, not, with the evaluation order and the out-of-bounds rule of classic BPF.
//!
//! | module | what |
//! |---|---|
//! | [`frame`](mod@frame) | captured bytes and their metadata |
//! | [`link`] | link types, one row each: name, number, start of the network layer, field of the next protocol |
//! | [`condition`] | byte conditions and their slow and simple evaluator |
//! | [`checksum`](mod@checksum) | the Internet checksum |
//! | [`bpf`] | instructions of classic BPF |
//! | [`batch`] | up to 256 frames |
//! | [`mask`] | one bit per frame of a batch |
//! | [`arch`] | advice to processor and kernel about memory |
//! | [`walk`](mod@walk) | the header walk: finds the headers of a frame; checked views of them |
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "a prefetch and advice to the kernel, which change no value")]
pub mod arch;
pub mod batch;
pub mod bpf;
pub mod checksum;
pub mod condition;
pub mod ethertype;
pub mod frame;
pub mod link;
pub mod mask;
pub mod walk;

pub use batch::{BATCH_CAPACITY, Batch, Lengths};
pub use checksum::checksum;
pub use condition::{Condition, OutOfBounds};
pub use frame::{Direction, Frame, Meta};
pub use link::LinkType;
pub use mask::Mask;
pub use walk::{Layer, Layers, Protocol, Stop, walk};
