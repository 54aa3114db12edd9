//! `cargo xtask portable`: tests of the code without this machine's vector instructions, on another architecture.
//!
//! The crates on which all others depend are built for aarch64, and their tests run under qemu's user emulation. Needs
//! the compiler's target (rustup adds it), a C compiler that links for it, and qemu; the set-up installs what is
//! missing where it may, and otherwise names it. It is a build and a run of its own, so `cargo xtask ci` leaves it out.

use crate::setup;
use crate::shell::{Workspace, find_program, shown, status};
use crate::testing;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Linker for the target.
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Folder of the target's shared libraries, from the cross compiler's package.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
const EMULATORS: [&str; 2] = ["qemu-aarch64", "qemu-aarch64-static"];

/// The crates that depend neither on this architecture nor on its kernel.
const PACKAGES: [&str; 8] = [
    "fyke-frame",
    "fyke-table",
    "fyke-filter",
    "fyke-pass",
    "fyke-flow",
    "fyke-print",
    "fyke-ruler",
    "fyke-machine",
];

/// Prepares, builds and runs the tests.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    setup::prepare(setup::Purpose::Portable)?;
    add_target()?;
    let emulator = EMULATORS.iter().find_map(|name| find_program(name));
    let emulator = emulator.ok_or("no emulator of aarch64")?;
    let variables = [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER.to_owned()),
        (
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            format!("{} -L {LIBRARIES}", emulator.display()),
        ),
    ];
    let mut args = vec!["--locked".to_owned(), "--target".to_owned(), TARGET.to_owned()];
    // The code generator is tested on both architectures.
    args.extend(["--features".to_owned(), "fyke-machine/jit".to_owned()]);
    args.extend(PACKAGES.iter().flat_map(|package| ["-p".to_owned(), (*package).to_owned()]));
    testing::some(workspace, &args, &variables)
}

/// Adds the target's standard library by rustup, unless the compiler has it.
fn add_target() -> Result<(), String> {
    if standard_library()?.is_dir() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", TARGET]);
    match status(&mut rustup) {
        Ok(ExitCode::SUCCESS) => Ok(()),
        _ => Err(format!("no standard library for {TARGET}, and `{}` failed", shown(&rustup))),
    }
}

/// The folder of the target's standard library, even if it does not exist.
fn standard_library() -> Result<PathBuf, String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]);
    let ran = rustc.output().map_err(|e| format!("cannot start `{}`: {e}", shown(&rustc)))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&ran.stdout).trim()))
}
