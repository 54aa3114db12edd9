//! Any bytes as the state of a reader that a process of a service has left: read, or refused.
#![no_main]

#[path = "../checks/serve.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _is_one = checks::saved(data);
});
