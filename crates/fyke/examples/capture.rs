//! Captures to a file what a filter accepts. Without arguments: from a small trace to a temporary file.
//!
//! `capture INTERFACE FILE` captures from an interface instead, until 1,000 frames are accepted; needs `CAP_NET_RAW`.

use fyke::Error;
use fyke::capture::{Next, RingOptions, RingSource, Source, WriteOptions, create_file, open_file};
use std::path::Path;

/// Copies at most `limit` accepted frames; returns how many it copied.
fn capture(source: &mut dyn Source, to: &Path, text: &str, limit: u64) -> Result<u64, Error> {
    let interfaces = source.interfaces().to_vec();
    let filter = fyke::Filter::builder().link(interfaces[0].link).compile(text)?;
    let mut sink = create_file(to, WriteOptions { interfaces, ..WriteOptions::default() })?;
    while sink.stats().frames < limit {
        match source.next()? {
            Next::Frames(batch, known) => {
                for at in filter.matches_batch(&batch).iter() {
                    let frame = &batch.frames()[at];
                    sink.write(&known.interfaces()[frame.interface as usize], frame)?;
                }
            }
            Next::Idle => sink.flush()?,
            Next::End => break,
        }
    }
    Ok(sink.finish()?.frames)
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [interface, file] = &arguments[..] {
        let interface = Some(interface.clone());
        let mut ring = RingSource::open(RingOptions { interface, ..RingOptions::default() })?;
        let frames = capture(&mut ring, Path::new(file), "", 1_000)?;
        println!("{frames} frames in {file}");
        return Ok(());
    }
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/readme/ftp.pcapng");
    let file = std::env::temp_dir().join(format!("fyke-example-{}.pcapng", std::process::id()));
    let captured = capture(&mut open_file(Path::new(trace))?, &file, "tcp port 21", u64::MAX);
    let again = captured.and_then(|frames| {
        let mut written = open_file(&file)?;
        let mut count = 0;
        while let Next::Frames(batch, _) = written.next()? {
            count += batch.len() as u64;
        }
        assert_eq!(count, frames);
        Ok(frames)
    });
    std::fs::remove_file(&file)?;
    println!("{} frames of the control connection", again?);
    Ok(())
}
