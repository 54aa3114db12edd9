//! Real traffic in network namespaces, peers for comparison, and the demonstration.
//!
//! | module | purpose |
//! |---|---|
//! | [`peers`] | other engines, loaded at run time |
//! | [`net`] | worlds: two network namespaces connected by a veth pair, as root or as an ordinary user |
//! | [`ftp`] | a small real FTP server and client over real sockets |
//! | [`generate`](mod@generate) | frames at a rate: `fyke generate`, and the engine of background traffic |
//! | [`background`] | UDP and TCP background traffic |
//! | [`bench`](mod@bench) | comparison of engines in one run |
//! | [`random`] | random numbers with a seed |
//! | [`demo`] | the demonstration: FTP captured live by a filter that is edited during the capture |
//!
//! Nothing here uses the machine's own interfaces: packets are sent inside namespaces that the kernel removes with
//! the process, however it ends.
#![deny(unsafe_code)]

pub mod background;
pub mod bench;
pub mod demo;
pub mod ftp;
pub mod generate;
pub mod net;
pub mod peers;
pub mod random;
