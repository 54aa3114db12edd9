//! Other people's engines, loaded at run time where they are installed and never linked.

pub mod hyperscan;
pub mod jit;
pub mod libpcap;
pub mod native;
pub mod opt_c;
