//! libpcap's interface over `fyke serve`: programs that know nothing of fyke read its captures.
//!
//! ```text
//! tcpdump ─▶ this library (libpcap.so.0.8) ─ fyke:NAME ─▶ ring of `fyke serve`, filters edited while it runs
//!                                          └ all others ─▶ the system's libpcap, opened by its absolute path
//! ```
//!
//! Each handle of ours has a *twin*, a handle of `pcap_open_dead`, which does everything that is not capturing: the
//! language, names of link types, files. A program with more rights than its user (`AT_SECURE`) has no devices of ours.
//! See `docs/libpcap.md`.
//!
//! | module | what |
//! |---|---|
//! | `c` | libpcap's structures and numbers |
//! | `sys` | signals, rights |
//! | `fork` | forks while threads are in calls |
//! | `real` | the system's libpcap |
//! | `forward` | functions that it carries out unchanged |
//! | `slots` | addresses of handles |
//! | `handle` | a handle: settings, then a capture |
//! | `live` | the capture: connection, texts, counts |
//! | `reading` | its frames |
//! | `wakes` | waiting for them |
//! | `texts` | texts of compiled programs |
//! | `control` | `fyke ctl` |
//! | `calls` | the functions on handles |
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "structures of C")]
mod c;
#[allow(unsafe_code, reason = "functions of C")]
mod calls;
mod control;
#[allow(unsafe_code, reason = "functions that the C library calls")]
mod fork;
#[allow(unsafe_code, reason = "functions of C")]
mod forward;
#[allow(unsafe_code, reason = "places that programs of C read")]
mod handle;
mod live;
mod reading;
#[allow(unsafe_code, reason = "the dynamic linker")]
mod real;
#[allow(unsafe_code, reason = "buffers that programs of C read")]
mod slots;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
mod texts;
mod wakes;
