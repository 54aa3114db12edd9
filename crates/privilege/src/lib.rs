//! Drops privileges that a capture does not need, before it reads the first frame.
//!
//! | module | what it drops | minimum kernel version |
//! |---|---|---|
//! | [`user`] | root: the process becomes another user, without groups and capabilities | any |
//! | [`sandbox`] | files (Landlock), system calls (seccomp) | 5.13, 3.17 |
//! | [`helper`] | nothing: a small process that does privileged work later, from a fixed list of requests | any |
//! | [`early`] | nothing: keeps signals that arrive before a command handles them | any |
//! | [`child`] | nothing: forks a small process that keeps one socket and nothing else of this one | any |
//! | [`namespace`] | nothing: enters a network namespace, before anything is opened | 3.0 |
//! | [`runner`] | nothing: a small process that runs a command for each closed file, as the new user | any |
//! | [`given`] | nothing: takes the descriptors of a service manager, and has some kept | any |
//! | [`place`] | nothing: opens files without following what other users have planted | any |
//!
//! The order of a command: [`runner::start`] and [`helper::start`] while there is one thread; open sockets and files;
//! [`Helper::seal`]; [`user::become_user`]; [`sandbox::enter`]; then start threads and read frames. Threads that
//! already run get the new user and the system call filter; before Linux 7.0, Landlock does not apply to them. Cost:
//! about a millisecond, once; nothing per packet.
//!
//! [`Helper::seal`]: helper::Helper::seal
#![deny(unsafe_code)]

pub mod child;
pub mod early;
pub mod given;
pub mod helper;
pub mod namespace;
pub mod place;
pub mod runner;
pub mod sandbox;
#[allow(unsafe_code, reason = "users, groups and fork have no safe calls that reach all threads")]
mod sys;
pub mod user;
