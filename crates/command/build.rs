//! Lets the linker write relative relocations in their short form (`DT_RELR`) where that works: the release is 1 MB
//! smaller.
//!
//! glibc loads the form since 2.36, and only files that say so; some linkers write the form and do not say so. So this
//! script links and runs a small program in that way first, with the linker and the flags of the build. If anything
//! fails, or if the command is built for another system than this one, the long form stays.

use std::path::Path;
use std::process::{Command, Stdio};

const SHORT_RELOCATIONS: &str = "-Wl,-z,pack-relative-relocs";

/// A program with a relative relocation: its main function follows a pointer in the data.
const PROBE: &str = "static WORDS: [&str; 2] = [\"one\", \"two\"];
    fn main() { std::process::exit(i32::from(WORDS[std::env::args().count()] != \"two\")) }";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    let is_native = set("HOST") == set("TARGET") && set("TARGET").contains("-linux-gnu");
    if set("PROFILE") == "release" && is_native && runs(Path::new(&set("OUT_DIR"))) {
        println!("cargo::rustc-link-arg-bins={SHORT_RELOCATIONS}");
    }
}

/// True if a program with short relocations can be built, and runs.
fn runs(folder: &Path) -> bool {
    let (source, program) = (folder.join("probe.rs"), folder.join("probe"));
    if std::fs::write(&source, PROBE).is_err() {
        return false;
    }
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    // The flags of the build, which may choose the linker.
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    compiler.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    if let Some(linker) = std::env::var_os("RUSTC_LINKER") {
        let mut flag = std::ffi::OsString::from("linker=");
        flag.push(linker);
        compiler.arg("-C").arg(flag);
    }
    compiler.arg("-C").arg(format!("link-arg={SHORT_RELOCATIONS}"));
    compiler.args(["--edition=2024", "-o"]).arg(&program).arg(&source);
    [&mut compiler, &mut Command::new(&program)].into_iter().all(|command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}
