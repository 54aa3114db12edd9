//! Any words in the memory of a ring, while it is read: no reader fails, hangs or counts too much.
#![no_main]

#[path = "../checks/ring.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::hostile(data);
});
