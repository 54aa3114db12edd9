//! Any bytes as a program text: an error or a program that prints and reads back.
#![no_main]

#[path = "../checks/machine.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::texts(data);
});
