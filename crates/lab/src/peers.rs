//! Other people's engines, loaded at run time where they are installed and never linked.

#[allow(unsafe_code, reason = "calls of C libraries")]
pub mod libpcap;
