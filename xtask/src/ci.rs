//! `cargo xtask ci`: the checks that two cores make in 40 minutes, cheap ones first, the tests last. `cargo xtask ci
//! --slow`: the others.
//!
//! All steps run even if one fails, so that one run names everything to repair.

use crate::shell::{Workspace, shown, status};
use crate::testing::Skips;
use crate::{fuzz, kernels, library, pages, setup, site, supply, testing, tidy};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

type Outcome = Result<ExitCode, String>;
type Step<'a> = (&'a str, Box<dyn Fn() -> Outcome + 'a>);

/// Runs the checks of each change; fails if one of them failed.
pub fn run(workspace: &Workspace) -> Outcome {
    let clippy = &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    // The command of the tests, so that nothing is built twice.
    let build = &["test", "--locked", "--workspace", "--no-run"];
    let demo = || {
        let mut command = Command::new(programs(workspace)?.join("fyke"));
        command.arg("demo").current_dir(&workspace.root);
        eprintln!("$ {}", shown(&command));
        status(&mut command)
    };
    let commands_of_pages = || {
        let programs = programs(workspace)?.display().to_string();
        pages::run(workspace, &["--from".to_owned(), programs])
    };
    // Root has every privilege that a test can need, and the set-up has installed the programs.
    let skips = if setup::runs_as_root() { Skips::Refused } else { Skips::Counted };
    steps(vec![
        ("format", Box::new(cargo(workspace, &["fmt", "--all", "--check"]))),
        ("house rules", Box::new(|| tidy::run(workspace))),
        ("dependencies", Box::new(|| supply::dependencies(workspace))),
        ("clippy", Box::new(cargo(workspace, clippy))),
        ("documents", Box::new(|| status(&mut docs_command(workspace)))),
        ("site", Box::new(|| site::run(workspace))),
        ("build", Box::new(cargo(workspace, build))),
        ("demo", Box::new(demo)),
        ("commands of pages", Box::new(commands_of_pages)),
        ("tests", Box::new(|| testing::all(workspace, skips))),
    ])
}

/// Runs the checks that need builds of their own, or minutes; fails if one of them failed.
pub fn run_slow(workspace: &Workspace) -> Outcome {
    // Without clang the kernel crate builds without its program, and returns an error when the
    // program is needed.
    let without_clang = || {
        let test = ["test", "--locked", "--workspace", "--test", "kernel_socket"];
        let mut command = workspace.cargo(&test);
        command.args(["--", "--show-output"]).env("CLANG", "no-clang");
        eprintln!("$ CLANG=no-clang {}", shown(&command));
        status(&mut command)
    };
    steps(vec![
        ("oldest compiler", Box::new(|| supply::oldest_compiler(workspace))),
        ("library alone", Box::new(|| library::run(workspace))),
        ("without clang", Box::new(without_clang)),
        ("older kernel", Box::new(|| kernels::in_ci(workspace))),
        ("fuzzers", Box::new(|| fuzz::run(workspace, Some(fuzz::CI_SEED)))),
    ])
}

/// A step that runs cargo.
fn cargo<'a>(workspace: &'a Workspace, args: &'static [&'static str]) -> impl Fn() -> Outcome + 'a {
    move || {
        let mut command = workspace.cargo(args);
        eprintln!("$ {}", shown(&command));
        status(&mut command)
    }
}

/// The folder of the programs that the tests start.
fn programs(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(workspace.target_dir()?.join("debug"))
}

fn steps(steps: Vec<Step<'_>>) -> Outcome {
    let last = steps.len() - 1;
    let mut failed = Vec::new();
    for (index, (name, step)) in steps.into_iter().enumerate() {
        eprintln!("\n== {name}");
        let start = Instant::now();
        let outcome = step();
        let seconds = start.elapsed().as_secs();
        if outcome == Ok(ExitCode::SUCCESS) {
            // The closing lines of the tests must be the last ones.
            if index != last {
                eprintln!("== {name}: done in {seconds} s");
            }
            continue;
        }
        if let Err(message) = outcome {
            eprintln!("{message}");
        }
        eprintln!("== {name}: FAILED after {seconds} s");
        failed.push(name);
    }
    if failed.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}

/// API documents of our own crates; a broken link or missing text fails.
pub fn docs_command(workspace: &Workspace) -> Command {
    let mut command = workspace.cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}
