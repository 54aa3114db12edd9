//! A text and a frame, compared with the installed libpcap.
#![no_main]

use fyke_lab::peers::libpcap::Libpcap;
use std::sync::OnceLock;

#[path = "../checks/filter_pair.rs"]
mod checks;

static LIBPCAP: OnceLock<Libpcap> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let libpcap = LIBPCAP.get_or_init(|| Libpcap::load().expect("libpcap is installed"));
    checks::pair(libpcap, data);
});
