//! Any packets of a reader: messages within the limit, and requests that read as they were written.
#![no_main]

#[path = "../checks/serve.rs"]
#[allow(dead_code, reason = "the other target uses the rest")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _requests = checks::packets(data);
});
