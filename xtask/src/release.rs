//! `cargo xtask release`: the command without symbols, and its debug information in a file beside it.
//!
//! Debuggers and `perf` find the file by the link in the command (`.gnu_debuglink`) when both lie in one folder.

use crate::shell::{Workspace, find_program, status};
use std::ffi::OsStr;
use std::process::{Command, ExitCode};

/// Builds with the profile `profiling` and splits the result into `TARGET/dist/fyke` and `fyke.debug`.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let objcopy = find_program("objcopy").ok_or("objcopy not found: install binutils")?;
    let built =
        status(&mut workspace.cargo(&["build", "--profile", "profiling", "-p", "fyke-command"]))?;
    if built != ExitCode::SUCCESS {
        return Ok(built);
    }
    let target = workspace.target_dir()?;
    let (from, folder) = (target.join("profiling/fyke"), target.join("dist"));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let split = |args: &[&OsStr]| -> Result<(), String> {
        // In the folder, so that the link has the file's name only.
        let ended = status(Command::new(&objcopy).args(args).current_dir(&folder))?;
        let done = ended == ExitCode::SUCCESS;
        done.then_some(()).ok_or_else(|| format!("objcopy failed in {}", folder.display()))
    };
    let (debug, command) = (OsStr::new("fyke.debug"), OsStr::new("fyke"));
    split(&[
        "--only-keep-debug".as_ref(),
        "--compress-debug-sections".as_ref(),
        from.as_ref(),
        debug,
    ])?;
    let link = "--add-gnu-debuglink=fyke.debug".as_ref();
    split(&["--strip-all".as_ref(), link, from.as_ref(), command])?;
    for file in [command, debug] {
        let path = folder.join(file);
        let size = path.metadata().map_err(|e| format!("{}: {e}", path.display()))?.len();
        eprintln!("{} ({:.1} MB)", path.display(), size as f64 / 1e6);
    }
    Ok(ExitCode::SUCCESS)
}
