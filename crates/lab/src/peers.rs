//! Engines of other projects, loaded at run time if installed; nothing is linked.

pub mod hyperscan;
pub mod jit;
pub mod kernel_jit;
pub mod libpcap;
pub mod libpcap_live;
pub mod native;
pub mod opt_c;
pub mod pcre2;
pub mod re2c;
pub mod tracking;
