//! Any bytes as a frame of any link type, printed with all options.
#![no_main]

use fyke_frame::LinkType;

#[path = "../checks/print.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [link, more, frame @ ..] = data else { return };
    let link = LinkType(u16::from_le_bytes([*link, more & 1]));
    let beyond = u32::from(more >> 1) * 13;
    checks::Lines::default().check(link, frame, frame.len() as u32 + beyond);
});
