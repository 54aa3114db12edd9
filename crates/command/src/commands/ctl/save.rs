//! Frames of the past as a file, for `fyke ctl save`: this process opens the file, the capture writes to it.

use super::super::Failure;
use super::{Shown, Target, connect, past, refused, write_response};
use anyhow::Context;
use fyke_control::{Request, Response, SaveFormat};
use fyke_privilege::place::{Accepts, Place};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Endings of names of compressed files, which the capture does not write.
const PACKED: [&str; 3] = ["gz", "zst", "lz4"];

/// Runs the action.
pub fn run(
    out: &mut impl Write,
    pid: Option<u32>,
    path: &Path,
    last: Option<Duration>,
    text: &str,
    shown: Shown,
) -> Result<(), Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if PACKED.contains(&ending) {
        let message = "frames are saved as they are; omit the ending, and compress the file later";
        return Err(Failure::Usage(format!("{}: {message}", path.display())));
    }
    let format = match ending {
        "pcap" | "cap" => SaveFormat::Pcap,
        _ => SaveFormat::Pcapng,
    };
    let mut client = connect(pid)?;
    let place = Place::of(path);
    let opened = place.and_then(|place| place.open_to_write(Accepts::Ready, 0o600));
    let (file, is_new) = opened.with_context(|| format!("cannot write {}", path.display()))?;
    let last_ms = last.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let text = (!text.trim().is_empty()).then(|| text.to_owned());
    let answer = client.call_with(&Request::Save { last_ms, text, format }, file.as_fd());
    let response = answer.map_err(|error| {
        if is_new {
            let _others_removed_it = std::fs::remove_file(path);
        }
        refused(error)
    })?;
    if let Response::Saved { failed: Some(failed), .. } = &response {
        let error =
            anyhow::anyhow!("{failed}").context(format!("{} is not complete", path.display()));
        return Err(Failure::Running(error));
    }
    write_response(out, &response, &Target::of(&client), shown)
}

/// Writes the answer as text.
pub fn write(out: &mut impl Write, response: &Response) -> io::Result<()> {
    let Response::Saved { frames, bytes, past, .. } = response else { return Ok(()) };
    writeln!(out, "saved {frames} of {}, {bytes} bytes", past::frames(past))
}
