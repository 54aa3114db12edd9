//! Compiles the kernel programs with clang, once for each of their forms. Without clang the crate builds without the
//! program, and opening a space reports this.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rustc-check-cfg=cfg(fyke_object)");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let (passes, prefilter, redirect) =
        ("bpf/fyke.bpf.c", "bpf/prefilter.bpf.c", "bpf/redirect.bpf.c");
    let forms: [(&str, &str, &[&str]); 7] = [
        ("fyke.bpf.o", passes, &[]),
        ("fyke_direct.bpf.o", passes, &["-DFYKE_DIRECT"]),
        ("fyke_callbacks.bpf.o", passes, &["-DFYKE_CALLBACKS"]),
        ("prefilter.bpf.o", prefilter, &[]),
        ("prefilter_direct.bpf.o", prefilter, &["-DFYKE_DIRECT"]),
        ("fyke_driver.bpf.o", passes, &["-DFYKE_XDP"]),
        ("redirect.bpf.o", redirect, &[]),
    ];
    let compiled =
        forms.iter().try_for_each(|(name, source, flags)| compile(&out.join(name), source, flags));
    match compiled {
        Ok(()) => println!("cargo::rustc-cfg=fyke_object"),
        Err(why) => println!("cargo::rustc-env=FYKE_NO_OBJECT={why}"),
    }
}

fn compile(object: &std::path::Path, source: &str, flags: &[&str]) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-c", source]);
    command.args(flags);
    // Debian has <asm/types.h> in a folder named after the machine.
    if let Ok(folders) = fs::read_dir("/usr/include") {
        let folders = folders.flatten().map(|entry| entry.path());
        folders.filter(|path| path.join("asm/types.h").is_file()).for_each(|path| {
            command.arg("-I").arg(path);
        });
    }
    let output =
        command.arg("-o").arg(object).output().map_err(|error| format!("{clang}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let log = String::from_utf8_lossy(&output.stderr);
    let first = log.lines().find(|line| line.contains("error")).unwrap_or("failed").trim();
    Err(format!("{clang}: {first}"))
}
