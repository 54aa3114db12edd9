//! C programs and a C++ program against the library as `cargo xtask install` leaves it: compiled with the system's
//! compiler, the flags of pkg-config and sanitizers, run as root.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// The folder of the libraries that are built, `target/debug`.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Installs with `cargo xtask install`, once for all tests.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut xtask = Command::new(cargo);
        xtask.args(["run", "-q", "-p", "xtask", "--", "install", "--prefix"]).arg(folder.path());
        let output = xtask.arg("--from").arg(built()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    });
    folder.path()
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

/// The flags for address and undefined-behaviour sanitizers, if the compiler has them.
fn sanitizers(compiler: &str, folder: &Path) -> &'static [&'static str] {
    const FLAGS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let source = folder.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let mut compile = Command::new(compiler);
    compile.args(FLAGS).args(["-x", "c"]).arg(&source).arg("-o").arg(folder.join("empty"));
    let works = compile.output().is_ok_and(|output| output.status.success());
    if !works {
        println!("{compiler} has no sanitizers");
    }
    if works { FLAGS } else { &[] }
}

/// Compiles and runs a program of this folder; prints the reason if that is not possible.
fn run(compilers: &[&str], source: &str) {
    run_with(compilers, source, sanitizers);
}

/// Flags of a compiler, which are tried in a folder.
type Flags = fn(&str, &Path) -> &'static [&'static str];

fn run_with(compilers: &[&str], source: &str, more: Flags) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(compiler) = compilers.iter().find(works) else {
        return println!("skipped: none of {compilers:?} is installed");
    };
    let prefix = installed();
    let library = prefix.join("lib");
    let mut compile = Command::new(compiler);
    compile.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]);
    compile.args(more(compiler, folder.path()));
    compile.arg(here.join(source)).arg("-o").arg(&program).args(flags(prefix, &library));
    compile.arg(format!("-Wl,-rpath,{}", library.display()));
    let built = compile.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let runtime = folder.path().join("run");
    std::fs::DirBuilder::new().mode(0o700).create(&runtime).unwrap();
    // Cargo's search path has a folder that may contain an older library.
    let mut command = Command::new(&program);
    command.env_remove("LD_LIBRARY_PATH").env("FYKE_RUNTIME_DIR", runtime);
    let done = command.env("FYKE_COMMAND", prefix.join("bin/fyke")).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    println!("{said}");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(matches!(done.status.code(), Some(0 | 77)), "{:?}: {said}{errors}", done.status);
}

#[test]
fn a_c_program_edits_its_filter_between_packets() {
    run(&["cc", "gcc", "clang"], "tests/edit.c");
}

/// Operations, groups, wrong handles, threads, forks, and arbitrary arguments.
#[test]
fn a_c_program_edits_in_groups_and_is_wrong_in_every_way() {
    run(&["cc", "gcc", "clang"], "tests/groups.c");
}

/// In user space, without root but for the service: frames of the program, a file, a service that is killed.
#[test]
fn a_c_program_reads_frames() {
    run(&["cc", "gcc", "clang"], "tests/reader.c");
}

/// Calls of readers and flows with arbitrary arguments from three threads; the seed is in the output.
#[test]
fn a_c_program_calls_with_arbitrary_arguments() {
    run(&["cc", "gcc", "clang"], "tests/arbitrary.c");
}

/// 200 forks while other threads are in calls. Sanitizers have locks that a child may find taken.
#[test]
fn a_c_program_forks_while_its_threads_are_in_calls() {
    run_with(&["cc", "gcc", "clang"], "tests/forks.c", |_, _| &[]);
}

#[test]
fn a_c_program_has_flows_of_mapi() {
    run(&["cc", "gcc", "clang"], "tests/mapi.c");
}

#[test]
fn a_cpp_program_writes_the_papers_example() {
    run(&["c++", "g++", "clang++"], "../cpp/tests/example.cpp");
}

/// The commands of a page and their output, with what is built, from an empty folder.
fn page(name: &str) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut xtask = Command::new(cargo);
    xtask.args(["run", "-q", "-p", "xtask", "--", "pages", name, "--from"]).arg(built());
    let output = xtask.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{said}");
}

#[test]
fn the_commands_of_the_page_on_c_run() {
    page("docs/c.md");
}

#[test]
fn the_commands_of_the_page_on_libpcap_run() {
    page("docs/libpcap.md");
}

/// The program of docs/c.md, as it is printed there, on the capture of the README.
#[test]
fn the_program_of_the_document_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join("docs/c.md")).unwrap();
    let source =
        document.split("```c program.c\n").nth(1).and_then(|rest| rest.split("```").next());
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&file, source.unwrap()).unwrap();
    let prefix = installed();
    let library = prefix.join("lib");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror"]).arg(&file).arg("-o").arg(&program);
    compile.args(flags(prefix, &library)).arg(format!("-Wl,-rpath,{}", library.display()));
    let built = compile.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let capture = root.join("testdata/readme/ftp.pcapng");
    let output = Command::new(&program).arg(&capture).env_remove("LD_LIBRARY_PATH").output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |text: &str| {
        let mut dump = Command::new(prefix.join("bin/fyke"));
        let output = dump.args(["dump", "--count", "-r"]).arg(&capture).arg(text).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap()
    };
    let frames: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!(output.status.success(), "{said}");
    // The capture is one batch, so the edit comes after it.
    assert_eq!(frames, count("tcp port 21"), "{said}");
    assert!(said.contains(" 0 lost"), "{said}");
}
