//! A C program and a C++ program against the built library: compiled with the system's compiler, run as root.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo put `libfyke.so`: beside this test program.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    assert!(folder.join("libfyke.so").is_file(), "no libfyke.so in {}", folder.display());
    folder.to_owned()
}

/// Compiles and runs a program of this folder; prints why when it cannot.
fn run(compilers: &[&str], source: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(compiler) = compilers.iter().find(works) else {
        return println!("skipped: none of {compilers:?} is installed");
    };
    let library = library_folder();
    let mut compile = Command::new(compiler);
    compile.args(["-Wall", "-Werror", "-O1", "-I"]).arg(here.join("include"));
    compile
        .arg("-I")
        .arg(here.join("../cpp/include"))
        .arg(here.join(source))
        .arg("-o")
        .arg(&program);
    compile.arg("-L").arg(&library).arg("-lfyke");
    compile.arg(format!("-Wl,-rpath,{}", library.display()));
    let built = compile.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let done = Command::new(&program).output().unwrap();
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
