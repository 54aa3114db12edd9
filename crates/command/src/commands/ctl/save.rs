//! Frames of the past as a file, for `fyke ctl save`: this process opens the file, the capture writes to it. The file
//! takes its name when it is complete.

use super::super::Failure;
use super::{Shown, Target, connect, past, refused, write_response};
use anyhow::Context;
use fyke_control::{FileId, Request, Response, SaveFormat};
use fyke_privilege::place::Place;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Longest wait for the file, which may have terabytes. An end of the capture ends the wait.
const SAVE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

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
    if path == Path::new("-") {
        let message =
            "frames are saved to a file, not to standard output; `./-` is a file of this name";
        return Err(Failure::Usage(format!("-: {message}")));
    }
    let mut client = connect(pid)?;
    client.set_answer_limit(SAVE_LIMIT);
    let cannot = || format!("cannot write {}", path.display());
    let (draft, replaces) = match Place::of(path).and_then(|place| place.draft(0o600)) {
        Ok(begun) => begun,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let message = "frames are saved to regular files only";
            return Err(Failure::Usage(format!("{}: {error}; {message}", path.display())));
        }
        Err(error) => return Err(Failure::Running(anyhow::Error::new(error).context(cannot()))),
    };
    let last_ms = last.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let text = (!text.trim().is_empty()).then(|| text.to_owned());
    let replaces = replaces.map(|(device, inode)| FileId { device, inode });
    let request = Request::Save { last_ms, text, format, replaces };
    let response = client.call_with(&request, draft.file.as_fd()).map_err(refused)?;
    if let Response::Saved { failed: Some(failed), .. } = &response {
        let context = format!("{}; nothing is saved, and an older file is as it was", cannot());
        return Err(Failure::Running(anyhow::anyhow!("{failed}").context(context)));
    }
    if let Response::Saved { .. } = &response {
        draft.keep().with_context(cannot)?;
    }
    write_response(out, &response, &Target::of(&client), shown)
}

/// Writes the answer as text.
pub fn write(out: &mut impl Write, response: &Response) -> io::Result<()> {
    let Response::Saved { frames, bytes, past, .. } = response else { return Ok(()) };
    writeln!(out, "saved {frames} of {}, {bytes} bytes", past::frames(past))
}
