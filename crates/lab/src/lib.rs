//! Real traffic in namespaces of its own, peers to compare with, and the demonstration.
//!
//! | module | what |
//! |---|---|
//! | [`peers`] | other engines, loaded at run time |
//! | [`net`] | worlds: two network namespaces joined by a veth pair, as root or as an ordinary user |
//! | [`ftp`] | a small real FTP server and client over real sockets |
//! | [`background`] | UDP and TCP traffic of no interest |
//! | [`bench`](mod@bench) | engines measured side by side in one run |
//! | [`demo`] | the demonstration: FTP captured live by a filter that is edited while it captures |
//!
//! Nothing here touches the machine's own interfaces: packets are sent inside namespaces that vanish with the
//! process, however it ends.
#![deny(unsafe_code)]

pub mod background;
pub mod bench;
pub mod demo;
pub mod ftp;
pub mod net;
pub mod peers;
