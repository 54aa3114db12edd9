//! `cargo xtask fuzz`: the fuzzers of the filter language, one minute each and in parallel.
//!
//! With cargo-fuzz and a nightly compiler these are the targets in `fuzz/`; without, their checks
//! run on random seeded input for the same time. A finding names the input or the seed. In CI the
//! seed is fixed, so that a commit always gives the same result; otherwise it is random, unless
//! `FYKE_SEED` sets it.

use crate::shell::{Workspace, shown};
use std::process::{Child, Command, ExitCode, Stdio};

/// Time for each of them, in seconds, unless `FYKE_FUZZ_SECONDS` sets it.
const SECONDS: &str = "60";
/// The fuzz targets, and the test in a file `fuzz_filter.rs` that makes the same checks.
const FUZZERS: [(&str, &str); 2] = [
    ("filter_texts", "texts_that_are_nearly_right"),
    ("filter_equals_libpcap", "texts_and_frames_are_judged_alike"),
];

/// The seed in CI.
pub const CI_SEED: &str = "20261121";

/// Builds them one after the other and runs them in parallel; fails if one of them finds an error.
pub fn run(workspace: &Workspace, seed: Option<&str>) -> Result<ExitCode, String> {
    let given = std::env::var("FYKE_SEED").ok();
    let seed = given.as_deref().or(seed);
    let seconds = std::env::var("FYKE_FUZZ_SECONDS").unwrap_or_else(|_| SECONDS.to_owned());
    let with_nightly = nightly_fuzz(workspace, &["--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !with_nightly {
        eprintln!("no cargo-fuzz with a nightly compiler: the same checks on random seeded input");
    }
    let mut running = Vec::new();
    for (target, checks) in FUZZERS {
        let (mut build, run) = if with_nightly {
            let mut run = nightly_fuzz(workspace, &["run", target, "--"]);
            run.arg(format!("-max_total_time={seconds}"));
            run.args(seed.map(|seed| format!("-seed={seed}")));
            (nightly_fuzz(workspace, &["build", target]), run)
        } else {
            // The features of the whole workspace, so that the run of all tests need not build it again.
            let test = ["test", "--locked", "--workspace", "--test", "fuzz_filter"];
            let (mut build, mut run) = (workspace.cargo(&test), workspace.cargo(&test));
            build.arg("--no-run");
            run.args(["--", "--exact", checks, "--nocapture"]).env("FYKE_FUZZ_SECONDS", &seconds);
            run.envs(seed.map(|seed| ("FYKE_SEED", seed)));
            (build, run)
        };
        // Built before anything runs, so that no build uses up a fuzzer's minute.
        wait(&mut build, start)?;
        running.push((target, run));
    }
    let started: Vec<(&str, Result<Child, String>)> =
        running.into_iter().map(|(target, mut run)| (target, start(&mut run))).collect();
    let mut failed = Vec::new();
    for (target, child) in started {
        let mut child = child?;
        let status = child.wait().map_err(|error| format!("waiting for {target}: {error}"))?;
        if !status.success() {
            failed.push(target);
        }
    }
    match failed.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(format!("findings by {}", failed.join(" and "))),
    }
}

/// `cargo +nightly fuzz ARGS`; by name, because rustup's `cargo` selects the compiler.
fn nightly_fuzz(workspace: &Workspace, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz"]).args(args).current_dir(&workspace.root);
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn start(command: &mut Command) -> Result<Child, String> {
    eprintln!("$ {}", shown(command));
    command.spawn().map_err(|error| format!("cannot start `{}`: {error}", shown(command)))
}

fn wait(
    command: &mut Command,
    start: fn(&mut Command) -> Result<Child, String>,
) -> Result<(), String> {
    let ended = start(command)?.wait();
    match ended.map_err(|error| format!("waiting for `{}`: {error}", shown(command)))?.success() {
        true => Ok(()),
        false => Err(format!("`{}` failed", shown(command))),
    }
}
