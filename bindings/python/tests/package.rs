//! The Python package as users have it: a wheel, installed by pip in a new environment, used by programs of Python.
//!
//! `cargo xtask test` has put pyarrow, pandas, polars, DuckDB, matplotlib and mypy into `target/python`, which the
//! second half of the tests adds to the environment: the package itself needs none of them. Traffic is sent in network
//! namespaces of their own.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The folder of the libraries, `target/debug/deps`, which is that of this test program.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = said(&output);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

/// An environment with the package and nothing else.
struct Environment {
    folder: TempDir,
    python: PathBuf,
}

/// Builds the wheel and installs it. `None`: this system has no Python that can.
fn environment() -> Option<&'static Environment> {
    static MADE: OnceLock<Option<Environment>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let venv = Command::new("python3").args(["-m", "venv"]).arg(at("env")).output();
        if !venv.as_ref().is_ok_and(|output| output.status.success()) {
            return None;
        }
        let library = built().join("libfyke_python.so");
        // Most of a library for debugging is not for users; without objcopy the wheel is larger.
        let slim = at("_fyke.so");
        let mut objcopy = Command::new("objcopy");
        objcopy.arg("--strip-debug").arg(&library).arg(&slim);
        if !objcopy.status().is_ok_and(|status| status.success()) {
            std::fs::copy(&library, &slim).unwrap();
        }
        let mut pack = Command::new("python3");
        let wheel = run(pack.arg(tests().join("wheel.py")).arg(&slim).arg(folder.path()));
        let python = at("env/bin/python");
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--no-index", "--disable-pip-version-check"]);
        run(install.arg(wheel.trim()));
        Some(Environment { python, folder })
    });
    if made.is_none() {
        println!("skipped: python3 is not installed, or cannot make environments (python3-venv)");
    }
    made.as_ref()
}

/// The folder with other packages, if it has these.
fn others(packages: &[&str]) -> Option<PathBuf> {
    let folder = built().join("../../python").canonicalize().ok();
    let is_there = |folder: &PathBuf| packages.iter().all(|name| folder.join(name).exists());
    let there = folder.filter(|folder| folder.join("READY").exists() && is_there(folder));
    if there.is_none() {
        println!(
            "skipped: not all of {packages:?} in target/python: `cargo xtask setup` installs them"
        );
    }
    there
}

fn script(environment: &Environment, name: &str) -> Command {
    let mut command = Command::new(&environment.python);
    command.arg(tests().join(name)).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn filters_captures_graphs_services_and_errors() {
    let Some(environment) = environment() else { return };
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let own = if root { "-n" } else { "-rUn" };
    if !Command::new("unshare").args([own, "true"]).status().is_ok_and(|status| status.success()) {
        return println!("skipped: no network namespace can be made here");
    }
    let mut command = Command::new("unshare");
    command.args([own, "sh", "-c", "ip link set lo up && exec \"$0\" -I \"$1\""]);
    command.arg(&environment.python).arg(tests().join("alone.py"));
    let runtime = environment.folder.path().join("run");
    std::fs::DirBuilder::new().mode(0o700).create(&runtime).unwrap();
    let fyke = built().join("../fyke");
    println!("{}", run(command.env("FYKE_COMMAND", fyke).env("FYKE_RUNTIME_DIR", runtime)));
}

#[test]
fn batches_are_read_by_pyarrow_and_pandas() {
    let others = others(&["pyarrow", "pandas"]);
    let (Some(environment), Some(others)) = (environment(), others) else { return };
    println!("{}", run(script(environment, "arrow.py").env("PYTHONPATH", others)));
}

#[test]
fn batches_are_read_by_polars_and_duckdb() {
    let others = others(&["pyarrow", "polars", "duckdb"]);
    let (Some(environment), Some(others)) = (environment(), others) else { return };
    println!("{}", run(script(environment, "tables.py").env("PYTHONPATH", others)));
}

/// The example of docs/python.md, on the capture of the README.
#[test]
fn the_example_plots_a_capture() {
    let others = others(&["pyarrow", "pandas", "matplotlib"]);
    let (Some(environment), Some(others)) = (environment(), others) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let plot = environment.folder.path().join("plot.svg");
    let mut command = script(environment, "../examples/traffic.py");
    // matplotlib's list of fonts takes seconds to make, and is kept.
    command.env("MPLCONFIGDIR", others.join("matplotlib-cache")).env("PYTHONPATH", others);
    command.arg(root.join("testdata/readme/ftp.pcapng")).arg(&plot);
    let said = run(&mut command);
    let drawn = std::fs::read_to_string(&plot).unwrap();
    assert!(drawn.contains("<svg") && drawn.contains("ftp.pcapng"), "{said}");
    assert!(said.contains("168 frames: 168 of IP"), "{said}");
}

/// Everything that the type stubs declare is there with these parameters, and the reverse.
#[test]
fn the_type_stubs_are_those_of_the_package() {
    let (Some(environment), Some(others)) = (environment(), others(&["mypy"])) else { return };
    let mut command = Command::new(&environment.python);
    command.args(["-m", "mypy.stubtest", "fyke", "--ignore-disjoint-bases"]);
    command.current_dir(environment.folder.path()).env("PYTHONPATH", others);
    println!("{}", run(&mut command));
}

#[test]
fn the_program_that_measures_the_rate_runs() {
    let Some(environment) = environment() else { return };
    println!("{}", run(script(environment, "rate.py").args(["--frames", "20000"])));
}
