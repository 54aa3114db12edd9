//! Any text as the graph of a reader: permitted, or refused with a reason.
#![no_main]

#[path = "../checks/serve.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _may_run = checks::graph(text);
});
