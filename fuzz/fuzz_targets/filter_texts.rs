//! Any bytes as a filter text for any link type, for files and live captures.
#![no_main]

#[path = "../checks/filter.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::texts(data));
