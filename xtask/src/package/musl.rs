//! The command as one static file, for systems with another C library or none.
//!
//! What needs libraries at run time is absent there: comparisons with libpcap and Hyperscan in `fyke bench`.

use super::{must, output};
use crate::install::{at, copy};
use crate::shell::{Workspace, find_program, status};
use std::path::Path;
use std::process::{Command, ExitCode};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Builds the static command and puts it into the folder.
pub fn build(workspace: &Workspace, folder: &Path) -> Result<(), String> {
    let missing = missing(
        output(Command::new("rustup").args(["target", "list", "--installed"])).as_deref(),
        find_program("musl-gcc").is_some(),
    );
    if let Some(missing) = missing {
        return Err(missing);
    }
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

/// The missing parts, with the commands that install them. Without rustup, the compiler's error names the target.
fn missing(targets: Result<&str, &String>, has_compiler: bool) -> Option<String> {
    let has_target = targets.map_or(true, |all| all.lines().any(|line| line.trim() == TARGET));
    if !has_target {
        return Some(format!(
            "the Rust target {TARGET} is not installed; to install (downloads 40 MB): rustup target add {TARGET}"
        ));
    }
    (!has_compiler).then(|| {
        "no C compiler for musl (musl-gcc); to install on Debian: apt-get install musl-tools"
            .to_owned()
    })
}

/// True if the program headers of readelf name no loader.
fn is_static(headers: &str) -> bool {
    headers.contains("LOAD") && !headers.lines().any(|line| line.trim().starts_with("INTERP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_command() {
        let error = "no rustup".to_owned();
        assert_eq!(missing(Err(&error), true), None);
        assert_eq!(
            missing(Ok("x86_64-unknown-linux-gnu\nx86_64-unknown-linux-musl\n"), true),
            None
        );
        let no_target = missing(Ok("x86_64-unknown-linux-gnu\n"), true).unwrap();
        assert!(no_target.ends_with("rustup target add x86_64-unknown-linux-musl"), "{no_target}");
        assert!(missing(Err(&error), false).unwrap().contains("musl-tools"));
    }

    #[test]
    fn a_file_with_a_loader_is_not_static() {
        let (load, interp) = ("  LOAD           0x000000", "  INTERP         0x000318");
        assert!(is_static(load));
        assert!(!is_static(&format!("{interp}\n{load}")) && !is_static(""));
    }
}
