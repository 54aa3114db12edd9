//! The only module with `unsafe` code: every system call and every raw memory access of this crate.
//!
//! Other modules see only safe functions: descriptors are owned or borrowed, and memory of the kernel's ring appears
//! as slices with lifetimes that the borrow checker follows.

pub(crate) mod devices;
pub(crate) mod drops;
pub(crate) mod lengths;
mod option;
pub(crate) mod packet;
pub(crate) mod poll;
pub(crate) mod ring;
pub(crate) mod time;
pub(crate) mod xdp;
