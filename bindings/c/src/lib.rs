//! libfyke: filters that change while they run, for C programs. C++ programs use `fyke.hpp`, which is header-only.
//!
//! The calls are those of the papers' libraries (Swift, section 4.2; NPF, section 4): a filter is attached to a packet
//! socket and changed by stores while packets arrive. A text (pcap-filter language) is as good as passes made by hand.
//! A *reader* filters in user space, without root: frames of a file, of an interface, of a `fyke serve`, or frames that
//! the program gives. Needs Linux 5.17; the right to load eBPF programs only for filters in the kernel.
//!
//! | module | content |
//! |---|---|
//! | `ops` | operations for instructions of passes |
//! | `filter` | filters in the kernel, groups of edits |
//! | `reader` | readers |
//! | `mapi`, `mapi_functions`, `mapi_derived`, `mapi_calls` | flows of MAPI over readers, their functions, the calls |
//! | `handles` | handles of C programs; a wrong one is an error |
//! | `calls`, `reader_calls` | the functions |
//!
//! Source: Swift: A Fast Dynamic Packet Filter, section 4.2 (the eight calls and their names).
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "pointers of C callers")]
mod calls;
mod filter;
mod handles;
mod mapi;
#[allow(unsafe_code, reason = "pointers of C callers")]
mod mapi_calls;
mod mapi_derived;
mod mapi_functions;
mod ops;
mod reader;
#[allow(unsafe_code, reason = "pointers of C callers")]
mod reader_calls;

pub use filter::{FykeCounts, FykeFilter};
pub use ops::{FYKE_NOT, FykeOp};
pub use reader::{FYKE_END, FykeReader, FykeReaderCounts};
pub use reader_calls::{FykeChange, FykeChangeKind, FykeFrame};
