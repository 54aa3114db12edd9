//! Any bytes as fragments: bounded, and every one is counted.
#![no_main]

#[path = "../checks/flow.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::fragments(data);
});
