//! Properties of capture files that hold for any bytes: shared by the fuzz target and `cargo test`.

use fyke_capture::{FileOptions, FileSource, Next, Source};
use std::io::Cursor;

#[path = "print.rs"]
mod print;

/// Reads a file of any bytes and prints its frames with all options. Returns the number of frames, and the error that
/// ended the file, if any: a text without control characters.
pub fn read(bytes: Vec<u8>) -> (u64, Option<String>) {
    let mut lines = print::Lines::default();
    let mut frames = 0;
    let opened = FileSource::from_reader("fuzzed", Cursor::new(bytes), FileOptions::default());
    let error = match opened {
        Err(error) => Some(error.to_string()),
        Ok(mut source) => loop {
            match source.next() {
                Ok(Next::Frames(batch, _)) => {
                    assert_eq!(batch.first_sequence, frames, "sequence without gaps");
                    for frame in batch.frames() {
                        frames += 1;
                        lines.check(frame.link, frame.data, frame.wire_len);
                    }
                }
                Ok(Next::Idle) => {}
                Ok(Next::End) => break None,
                Err(error) => {
                    assert!(matches!(source.next(), Ok(Next::End)), "the end follows an error");
                    break Some(error.to_string());
                }
            }
        },
    };
    if let Some(text) = &error {
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
        assert!(text.len() < 2_000, "{} bytes", text.len());
    }
    (frames, error)
}
