//! Licences, sources and advisories of external crates, and the oldest supported compiler.
//!
//! cargo-deny reads `deny.toml`. The set-up for CI installs it where it installs anything. Without it the step prints
//! `skipped:` and why; for root on Debian, where the set-up could have installed it, the step fails. Advisories are
//! skipped where their database cannot be reached. The compiler of the declared `rust-version`, which rustup installs,
//! checks the workspace.

use crate::setup;
use crate::shell::{Workspace, find_program, shown, status};
use std::process::{Command, ExitCode};

/// Message of cargo-deny when it cannot get the database.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// Checks external crates by `deny.toml`.
pub fn dependencies(workspace: &Workspace) -> Result<ExitCode, String> {
    if find_program("cargo-deny").is_none() {
        return setup::skip("no cargo-deny; to install: cargo install --locked cargo-deny");
    }
    let mut command = workspace.cargo(&["deny", "check", "bans", "licenses", "sources"]);
    let checked = status(&mut command)?;
    if checked != ExitCode::SUCCESS {
        return Ok(checked);
    }
    let mut command = workspace.cargo(&["deny", "check", "advisories"]);
    let ran = command.output().map_err(|e| format!("cannot start `{}`: {e}", shown(&command)))?;
    let report = String::from_utf8_lossy(&ran.stderr);
    match (ran.status.success(), report.contains(NO_DATABASE)) {
        (true, _) => eprintln!("advisories: none"),
        // Not a matter of the set-up: the machine cannot reach it.
        (false, true) => println!("skipped: advisories: the database cannot be reached"),
        (false, false) => return Err(format!("advisories:\n{report}")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the workspace with the oldest compiler that it supports.
pub fn oldest_compiler(workspace: &Workspace) -> Result<ExitCode, String> {
    let manifest = workspace.root.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|e| format!("Cargo.toml: {e}"))?;
    let version = declared(&text).ok_or("no rust-version in Cargo.toml")?;
    let ran = Command::new("rustc").arg("--version").current_dir(&workspace.root).output();
    if ran.is_ok_and(|ran| is_version(&String::from_utf8_lossy(&ran.stdout), version)) {
        eprintln!("the compiler in use is Rust {version}: the other steps check it");
        return Ok(ExitCode::SUCCESS);
    }
    if !has_compiler(version) {
        return setup::skip(&format!(
            "no Rust {version}; to install: rustup toolchain install {version}"
        ));
    }
    let mut command = Command::new("cargo");
    command.arg(format!("+{version}")).args(["check", "--locked", "--workspace"]);
    // In a folder of its own, because another compiler would discard the other artifacts.
    command.arg("--target-dir").arg(workspace.target_dir()?.join(format!("rust-{version}")));
    command.current_dir(&workspace.root).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    eprintln!("$ {}", shown(&command));
    status(&mut command)
}

/// The version in `rust-version = "…"`.
fn declared(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find(|line| line.starts_with("rust-version"))?;
    line.split('"').nth(1)
}

/// True if the output of `rustc --version` has this version, with any third number.
fn is_version(said: &str, version: &str) -> bool {
    said.strip_prefix("rustc ").is_some_and(|rest| rest.starts_with(&format!("{version}.")))
}

/// True if there is a compiler of this version; rustup installs it if it can.
fn has_compiler(version: &str) -> bool {
    let there = || {
        let ran = Command::new("rustc").args([&format!("+{version}"), "--version"]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let install = ["toolchain", "install", version, "--profile", "minimal", "--no-self-update"];
    there() || {
        let installed = status(Command::new("rustup").args(install));
        installed == Ok(ExitCode::SUCCESS) && there()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declared_version_is_read_from_the_manifest() {
        assert_eq!(declared("[package]\nrust-version = \"1.89\"\n"), Some("1.89"));
        assert_eq!(declared("[package]\n"), None);
        assert!(is_version("rustc 1.95.0 (abc 2026-04-14)\n", "1.95"));
        assert!(!is_version("rustc 1.100.0", "1.10") && !is_version("", "1.95"));
    }
}
