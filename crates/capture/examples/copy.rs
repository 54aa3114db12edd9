//! Copies a capture: `copy IN OUT`, where `-` is standard input or output, and the extension of OUT selects the
//! format.
//!
//! The smallest program with a source and a sink; it passes on every frame as soon as the frame arrives.

use fyke_capture::{Next, Source, WriteOptions, create_file, open_file};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn copy(from: &Path, to: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut source = open_file(from)?;
    let interfaces = source.interfaces().to_vec();
    let mut sink = create_file(to, WriteOptions { interfaces, ..Default::default() })?;
    loop {
        match source.next()? {
            Next::Frames(batch, look_back) => {
                for frame in batch.frames() {
                    sink.write(&look_back.interfaces()[frame.interface as usize], frame)?;
                }
            }
            Next::Idle => sink.flush()?,
            Next::End => break,
        }
    }
    sink.finish()?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to] = &arguments[..] else {
        eprintln!("usage: copy IN OUT");
        return ExitCode::from(2);
    };
    match copy(from, to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("copy: {error}");
            ExitCode::FAILURE
        }
    }
}
