//! Ruler texts: an error, or a program that agrees with the oracle.
#![no_main]

#[path = "../checks/ruler.rs"]
mod ruler;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ruler::texts(data);
});
