//! The command as one static file, for systems with another C library or none.
//!
//! What needs libraries at run time is absent there: comparisons with libpcap and Hyperscan in `fyke bench`.

use super::{must, output};
use crate::install::{at, copy};
use crate::setup::{self, Purpose};
use crate::shell::{Workspace, status};
use std::path::Path;
use std::process::{Command, ExitCode};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Builds the static command and puts it into the folder; installs its compilers where the set-up may.
pub fn build(workspace: &Workspace, folder: &Path) -> Result<(), String> {
    setup::prepare(Purpose::Musl)?;
    prepare_target(workspace)?;
    let mut cargo = workspace.cargo(&["build", "--locked", "--release", "-p", "fyke-command"]);
    if status(cargo.args(["--target", TARGET]))? != ExitCode::SUCCESS {
        return Err(format!("the command does not build for {TARGET}"));
    }
    let built = workspace.target_dir()?.join(TARGET).join("release/fyke");
    place(&built, &folder.join(format!("fyke-{}-{TARGET}", super::VERSION)))
}

/// Copies the command without symbols, and checks that it needs no other file.
pub fn place(built: &Path, to: &Path) -> Result<(), String> {
    copy(built, to)?;
    must(Command::new("strip").arg(to))?;
    let headers = output(Command::new("readelf").args(["--program-headers", "--wide"]).arg(to))?;
    if !is_static(&headers) {
        return Err(format!("{} is not static", to.display()));
    }
    let version = output(Command::new(to).arg("--version"))?;
    let size = to.metadata().map_err(|e| at(to, &e))?.len();
    eprintln!("{} ({}, static, {:.1} MB)", to.display(), version.trim(), size as f64 / 1e6);
    Ok(())
}

/// Installs the Rust target by rustup. Without rustup, the compiler's error names the target.
fn prepare_target(workspace: &Workspace) -> Result<(), String> {
    // rustup takes the compiler that the folder names.
    let rustup = |words: &[&str]| {
        let mut rustup = Command::new("rustup");
        rustup.args(words).current_dir(&workspace.root);
        rustup
    };
    let has = |installed: Result<String, String>| installed.map_or(true, |all| has_target(&all));
    let installed = || output(&mut rustup(&["target", "list", "--installed"]));
    if has(installed()) {
        return Ok(());
    }
    eprintln!("set-up: installing the Rust target {TARGET} (downloads 40 MB)");
    // Standard output belongs to the step after the set-up.
    let added = status(rustup(&["target", "add", TARGET]).stdout(std::io::stderr()));
    match added == Ok(ExitCode::SUCCESS) && has(installed()) {
        true => Ok(()),
        false => Err(format!(
            "the Rust target {TARGET} is missing and could not be installed; to install: rustup target add {TARGET}"
        )),
    }
}

/// True if rustup's list of installed targets has the one of musl.
fn has_target(installed: &str) -> bool {
    installed.lines().any(|line| line.trim() == TARGET)
}

/// True if the program headers of readelf name no loader.
fn is_static(headers: &str) -> bool {
    headers.contains("LOAD") && !headers.lines().any(|line| line.trim().starts_with("INTERP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_found_in_the_list_of_rustup() {
        assert!(has_target("x86_64-unknown-linux-gnu\nx86_64-unknown-linux-musl\n"));
        assert!(!has_target("x86_64-unknown-linux-gnu\nx86_64-unknown-linux-muslabi64\n"));
        assert!(!has_target(""));
    }

    #[test]
    fn a_file_with_a_loader_is_not_static() {
        let (load, interp) = ("  LOAD           0x000000", "  INTERP         0x000318");
        assert!(is_static(load));
        assert!(!is_static(&format!("{interp}\n{load}")) && !is_static(""));
    }
}
