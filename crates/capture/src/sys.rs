//! The fence: every system call and every raw memory access of this crate.
//!
//! What is outside sees only safe functions: descriptors are owned or borrowed, memory of the kernel's ring appears as
//! slices whose lifetimes the borrow checker follows.

pub(crate) mod devices;
pub(crate) mod packet;
pub(crate) mod poll;
pub(crate) mod ring;
pub(crate) mod time;
