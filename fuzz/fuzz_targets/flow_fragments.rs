//! Any bytes as fragments: memory is bounded, and every fragment is counted.
#![no_main]

#[path = "../checks/flow.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::fragments(data);
});
