//! Any bytes as a program and packets: machines end, stay inside, and agree.
#![no_main]

#[path = "../checks/machine.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::programs(data);
});
