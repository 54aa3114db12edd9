//! Packages of Python that tests of the Python package use, in a folder of the target folder; nothing is installed
//! outside of it.

use crate::shell::{Workspace, find_program, status};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Packages: four that read batches, one that plots, one that reads by libpcap, and one that checks type stubs.
const PACKAGES: &[&str] = &["pyarrow", "pandas", "polars", "duckdb", "matplotlib", "scapy", "mypy"];

fn folder(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(workspace.target_dir()?.join("python"))
}

/// Downloads the packages once. Without them their tests are skipped, and say so.
///
/// # Errors
/// The place of the target folder is unknown.
pub fn prepare(workspace: &Workspace) -> Result<(), String> {
    let folder = folder(workspace)?;
    let ready = folder.join("READY");
    let names = PACKAGES.join(" ");
    let is_there = std::fs::read_to_string(&ready).is_ok_and(|there| there == names);
    if is_there || find_program("python3").is_none() {
        return Ok(());
    }
    eprintln!("set-up: downloading {} for Python into {}", PACKAGES.join(", "), folder.display());
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]);
    pip.arg("--target").arg(&folder).args(PACKAGES);
    // Standard output belongs to the step after the set-up.
    pip.stdout(std::io::stderr());
    if status(&mut pip) != Ok(ExitCode::SUCCESS) {
        eprintln!(
            "set-up: pip failed (without these packages, tests of Arrow batches and type stubs are skipped)"
        );
        return Ok(());
    }
    std::fs::write(&ready, names).map_err(|e| format!("{}: {e}", ready.display()))
}
