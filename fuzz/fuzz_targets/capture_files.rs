//! Any bytes as a capture file, its frames printed with all options.
#![no_main]

#[path = "../checks/files.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::read(data.to_vec());
});
