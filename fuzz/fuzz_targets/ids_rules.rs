//! Texts of rules and traffic: every rule is judged or refused, and nothing panics.
#![no_main]

#[path = "../checks/ids.rs"]
mod ids;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ids::rules(data);
});
