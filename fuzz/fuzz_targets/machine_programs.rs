//! Any bytes as a program and packets: machines terminate, access no memory outside, and agree.
#![no_main]

#[path = "../checks/machine.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::programs(data);
});
