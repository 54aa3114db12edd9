//! The product: `fyke track ftp` as a process, with its filter in the kernel where the system permits it.
//!
//! With look-back the kernel passes all TCP, so that frames before an announcement can be found. Without look-back the
//! kernel rejects all but announced connections, and each announcement is an edit there. The packets captured are those
//! of the file that the process writes.

use super::ways::{Captured, Product};
use crate::bench::Options;
use crate::bench::live::world::{Folder, Running};
use crate::bench::printed;
use crate::demo::tally::Tally;
use crate::net::{SERVERS_DEVICE, World};
use fyke_capture::{Next, Source};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the ways that are processes.
pub(super) const ENGINES: [&str; 2] = ["fyke-track", "fyke-track-no-look-back"];
/// Size of the capture ring in KiB, that of the other ways.
const RING_KIB: &str = "65536";

/// A capture at work.
pub(super) struct Tracking {
    running: Running,
    file: PathBuf,
    _folder: Folder,
}

impl Tracking {
    /// Starts a capture at the servers' end and waits until it has begun.
    ///
    /// # Errors
    /// The last line of a process that does not start.
    pub(super) fn start(
        engine: &str,
        world: &World,
        options: &Options,
    ) -> Result<Tracking, String> {
        let text = |error: std::io::Error| error.to_string();
        let fyke = options.command.clone().map_or_else(std::env::current_exe, Ok).map_err(text)?;
        let folder = match Folder::in_memory().map_err(text)? {
            Some(folder) => folder,
            None => Folder::below(&std::env::temp_dir()).map_err(text)?,
        };
        let file = folder.file("ftp.pcapng");
        let mut command = Command::new(fyke);
        command.env("FYKE_RUNTIME_DIR", folder.file("run"));
        command.args(["track", "ftp", "-Z", "root", "--stats", "-B", RING_KIB]);
        command.args((engine != ENGINES[0]).then_some("--no-look-back"));
        command.args(["-i", SERVERS_DEVICE, "-w"]).arg(&file);
        let running = Running::start(&world.servers, command, "listening on")?;
        Ok(Tracking { running, file, _folder: folder })
    }

    /// Ends the capture and reads its file and its counts.
    ///
    /// # Errors
    /// The process fails, or its output cannot be read.
    pub(super) fn finish(self) -> Result<Captured, String> {
        let printed = self.running.stop()?;
        let sum = printed::sum(&printed).ok_or_else(|| format!("no counts in {printed}"))?;
        Ok(Captured {
            tally: tally(&self.file)?,
            lost: sum.lost(),
            failed: printed::refused(&printed),
            product: Some(Product {
                edits_ns: printed::edits_us(&printed).map(|edits| edits.map(|us| us * 1e3)),
                sum,
            }),
            ..Captured::default()
        })
    }
}

/// Counts the frames of a file.
fn tally(file: &Path) -> Result<Tally, String> {
    let text = |error: fyke_capture::ReadError| error.to_string();
    let mut source = fyke_capture::open_file(file).map_err(text)?;
    let mut tally = Tally::default();
    loop {
        match source.next().map_err(text)? {
            Next::Frames(batch, _) => {
                for frame in batch.frames() {
                    tally.count(frame);
                }
            }
            Next::Idle => {}
            Next::End => return Ok(tally),
        }
    }
}
