//! Any bytes as messages to trackers: memory is bounded, and what is opened is closed.
#![no_main]

#[path = "../checks/track.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::messages(data);
});
