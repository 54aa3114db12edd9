//! `fyke dump --dissect`: hands the accepted frames to Wireshark's dissectors.
//!
//! tshark runs as one child process with the rights that fyke keeps after its start. It reads the frames as pcapng
//! from a pipe, in their order, and prints on fyke's standard output. It is in a process group of its own, so that
//! Ctrl-C ends the capture and tshark still prints what was accepted.

use super::Failure;
use super::privilege::Privileges;
use crate::cli::DumpArgs;
use anyhow::Context;
use std::fs::File;
use std::io::{self, ErrorKind, PipeWriter};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

/// The dissector that is started.
const PROGRAM: &str = "tshark";

/// A running dissector.
pub struct Dissector {
    child: Child,
    frames: PipeWriter,
}

impl Dissector {
    /// Starts it.
    ///
    /// # Errors
    /// If tshark cannot be started, with what to do.
    pub fn start(args: &DumpArgs, privileges: &Privileges) -> Result<Dissector, Failure> {
        let (reader, frames) = io::pipe().context("cannot make a pipe")?;
        let mut command = Command::new(PROGRAM);
        command.args(options(args)).stdin(reader).process_group(0);
        privileges.confine(&mut command);
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow::anyhow!(
                "--dissect needs {PROGRAM}, which is not installed or not in PATH (Debian: apt install {PROGRAM})"
            ),
            _ => anyhow::anyhow!("cannot start {PROGRAM}: {error}"),
        })?;
        Ok(Dissector { child, frames })
    }

    /// File name of the pipe, for this process.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/fd/{}", self.frames.as_raw_fd()))
    }

    /// Has it print the rest; all writers of the pipe but this one are closed.
    ///
    /// # Errors
    /// If it has failed.
    pub fn finish(mut self) -> Result<(), Failure> {
        drop(self.frames);
        let status = self.child.wait().context("cannot wait for tshark")?;
        // A reader that is gone, as in `| head`, ends it without a fault.
        match status.success() || no_reader() {
            true => Ok(()),
            false => Err(Failure::Running(anyhow::anyhow!("{PROGRAM} ended with {status}"))),
        }
    }
}

/// True if standard output is a pipe without a reader.
fn no_reader() -> bool {
    let Ok(stdout) = io::stdout().as_fd().try_clone_to_owned().map(File::from) else {
        return false;
    };
    let is_pipe = stdout.metadata().is_ok_and(|kind| kind.file_type().is_fifo());
    // The writing end of a pipe wakes up only for an error.
    is_pipe && fyke_capture::wait_for_any(&[stdout.as_fd()], Duration::ZERO)
}

/// Options of tshark that correspond to those of fyke.
fn options(args: &DumpArgs) -> Vec<&'static str> {
    let print = &args.print_options;
    let time = match print.time {
        0 | 1 => "a",
        2 => "e",
        3 => "d",
        4 => "ad",
        _ => "r",
    };
    // Names of addresses are never looked up.
    let mut options = vec!["-n", "-l", "-t", time, "-r", "-"];
    options.extend((print.verbose > 0).then_some("-V"));
    options.extend((print.hex + print.hex_text + print.text > 0).then_some("-x"));
    options
}
