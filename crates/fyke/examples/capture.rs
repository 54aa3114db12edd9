//! Captures to a file what a filter accepts. Without arguments: from a small trace to a temporary file.
//!
//! `capture INTERFACE FILE` captures from an interface instead, until 1,000 frames are accepted; needs `CAP_NET_RAW`.

use fyke::Error;
use fyke::capture::{Next, RingOptions, RingSource, Source, WriteOptions, create_file, open_file};
use fyke::filter::Options;
use fyke::filters::{FilterSet, Inputs, Tags};
use std::path::Path;

/// Copies at most `limit` accepted frames, of any link types; returns how many it copied.
fn capture(
    source: &mut dyn Source,
    to: &Path,
    (text, live): (&str, bool),
    limit: u64,
) -> Result<u64, Error> {
    let interfaces = source.interfaces().to_vec();
    // A file may describe interfaces after its first frames. Then the text is compiled for their link types as well.
    let mut links: Vec<_> = interfaces.iter().map(|interface| interface.link).collect();
    links.sort_unstable();
    links.dedup();
    let inputs = Inputs { links };
    let filters = FilterSet::over(inputs, Options { live, ..Options::default() }, Tags::Read);
    filters.set(text)?;
    let mut reader = filters.reader();
    let mut sink = create_file(to, WriteOptions { interfaces, ..WriteOptions::default() })?;
    let mut copied = 0;
    while copied < limit {
        match source.next()? {
            Next::Frames(batch, known) => {
                let accepted = reader.evaluate(&batch, batch.all())?;
                for at in accepted.iter() {
                    if copied == limit {
                        break;
                    }
                    let frame = &batch.frames()[at];
                    sink.write(&known.interfaces()[frame.interface as usize], frame)?;
                    copied += 1;
                }
            }
            Next::Idle => sink.flush()?,
            Next::End => break,
        }
    }
    Ok(sink.finish()?.frames)
}

/// Number of frames in a capture file.
fn frames_in(file: &Path) -> Result<u64, Error> {
    let (mut source, mut count) = (open_file(file)?, 0);
    while let Next::Frames(batch, _) = source.next()? {
        count += batch.len() as u64;
    }
    Ok(count)
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [interface, file] = &arguments[..] {
        let interface = Some(interface.clone());
        let mut ring = RingSource::open(RingOptions { interface, ..RingOptions::default() })?;
        let frames = capture(&mut ring, Path::new(file), ("", true), 1_000)?;
        println!("{frames} frames in {file}");
        return Ok(());
    }
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/readme/ftp.pcapng");
    let file = std::env::temp_dir().join(format!("fyke-example-{}.pcapng", std::process::id()));
    let copy = |limit| -> Result<[u64; 2], Error> {
        let mut source = open_file(Path::new(trace))?;
        let copied = capture(&mut source, &file, ("tcp port 21", false), limit)?;
        Ok([copied, frames_in(&file)?])
    };
    let copies = copy(10).and_then(|few| Ok([few, copy(u64::MAX)?]));
    std::fs::remove_file(&file)?;
    let [few, all] = copies?;
    println!("{} frames of the control connection", all[0]);
    assert_eq!(few, [10, 10]);
    assert!(all[0] > 10 && all[0] == all[1]);
    Ok(())
}
