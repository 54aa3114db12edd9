//! Any bytes as segments and fragments: memory is bounded, and every delivered byte has its place.
#![no_main]

#[path = "../checks/streams.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::streams(data);
});
