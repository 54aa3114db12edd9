//! Other people's engines, loaded at run time where they are installed and never linked.

pub mod hyperscan;
pub mod jit;
pub mod kernel_jit;
pub mod libpcap;
pub mod libpcap_live;
pub mod native;
pub mod opt_c;
pub mod re2c;
pub mod tracking;
