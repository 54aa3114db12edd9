//! A C program and a C++ program against the built library: compiled with the system's compiler, run as root.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of `libfyke.so`, which is that of this test program.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    assert!(folder.join("libfyke.so").is_file(), "no libfyke.so in {}", folder.display());
    folder.to_owned()
}

/// Installs `libfyke` into a folder: library, headers and the description for pkg-config.
fn installed(prefix: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = |name: &str| {
        let folder = prefix.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    };
    std::fs::copy(library_folder().join("libfyke.so"), folder("lib").join("libfyke.so")).unwrap();
    for header in ["include/fyke.h", "include/fyke_compat.h", "../cpp/include/fyke.hpp"] {
        let header = here.join(header);
        let to = folder("include").join(header.file_name().unwrap());
        std::fs::copy(header, to).unwrap();
    }
    let description = std::fs::read_to_string(here.join("fyke.pc.in")).unwrap();
    let description = description.replace("@PREFIX@", prefix.to_str().unwrap());
    std::fs::write(folder("lib/pkgconfig").join("fyke.pc"), description).unwrap();
    prefix.join("lib")
}

/// Returns pkg-config's flags for a program; without pkg-config the same flags by hand.
fn flags(prefix: &Path, library: &Path) -> Vec<String> {
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "fyke"])
        .env("PKG_CONFIG_PATH", library.join("pkgconfig"))
        .output();
    match asked {
        Ok(said) => {
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            said.split_whitespace().map(str::to_owned).collect()
        }
        Err(error) => {
            println!("pkg-config is not installed: {error}");
            let folder = |name: &str| prefix.join(name).display().to_string();
            vec![
                format!("-I{}", folder("include")),
                format!("-L{}", folder("lib")),
                "-lfyke".into(),
            ]
        }
    }
}

/// Compiles and runs a program of this folder; prints the reason if that is not possible.
fn run(compilers: &[&str], source: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(compiler) = compilers.iter().find(works) else {
        return println!("skipped: none of {compilers:?} is installed");
    };
    let library = installed(folder.path());
    let mut compile = Command::new(compiler);
    compile.args(["-Wall", "-Werror", "-O1"]).arg(here.join(source)).arg("-o").arg(&program);
    compile.args(flags(folder.path(), &library));
    compile.arg(format!("-Wl,-rpath,{}", library.display()));
    let built = compile.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    // Cargo's search path has a folder that may contain an older library.
    let done = Command::new(&program).env_remove("LD_LIBRARY_PATH").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    println!("{said}");
    assert!(matches!(done.status.code(), Some(0 | 77)), "{:?}: {said}", done.status);
}

#[test]
fn a_c_program_edits_its_filter_between_packets() {
    run(&["cc", "gcc", "clang"], "tests/edit.c");
}

#[test]
fn a_cpp_program_writes_the_papers_example() {
    run(&["c++", "g++", "clang++"], "../cpp/tests/example.cpp");
}
