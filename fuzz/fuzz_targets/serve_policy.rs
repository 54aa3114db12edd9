//! Any text as the policy of a service: rules, or an error with its line.
#![no_main]

#[path = "../checks/serve.rs"]
#[allow(dead_code, reason = "the other target uses the rest")]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _is_one = checks::policy(text);
});
