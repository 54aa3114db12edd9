//! `cargo xtask ci`: every check, cheap ones first, the tests last.
//!
//! All steps run even if one fails, so that one run names everything to repair.

use crate::shell::{Workspace, shown, status};
use crate::testing::Skips;
use crate::{fuzz, kernels, library, pages, setup, site, supply, testing, tidy};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Profile of the command that the demo and the pages run.
const QUICK: &str = "quick";

/// Runs all steps; fails if one of them failed.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    type Step<'a> = (&'a str, Box<dyn Fn() -> Result<ExitCode, String> + 'a>);
    let cargo = |args: &'static [&'static str]| {
        move || {
            let mut command = workspace.cargo(args);
            eprintln!("$ {}", shown(&command));
            status(&mut command)
        }
    };
    let clippy = &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    // Without clang the kernel crate builds without its program, and returns an error when the
    // program is needed.
    let without_clang = || {
        let test = ["test", "--locked", "--workspace", "--test", "kernel_socket"];
        let mut command = workspace.cargo(&test);
        command.args(["--", "--show-output"]).env("CLANG", "no-clang");
        eprintln!("$ CLANG=no-clang {}", shown(&command));
        status(&mut command)
    };
    // Not the release: optimisation of the whole program at once takes three times as long to build.
    let demo: &[&str] =
        &["run", "--locked", "--profile", QUICK, "-p", "fyke-command", "--", "demo"];
    let commands_of_pages = || {
        let programs = workspace.target_dir()?.join(QUICK);
        pages::run(workspace, &["--from".to_owned(), programs.display().to_string()])
    };
    // Root has every privilege that a test can need, and the set-up has installed the programs.
    let skips = if setup::runs_as_root() { Skips::Refused } else { Skips::Counted };
    let steps: [Step; 14] = [
        ("format", Box::new(cargo(&["fmt", "--all", "--check"]))),
        ("house rules", Box::new(|| tidy::run(workspace))),
        ("dependencies", Box::new(|| supply::dependencies(workspace))),
        ("clippy", Box::new(cargo(clippy))),
        ("oldest compiler", Box::new(|| supply::oldest_compiler(workspace))),
        ("library alone", Box::new(|| library::run(workspace))),
        ("documents", Box::new(|| status(&mut docs_command(workspace)))),
        ("demo", Box::new(cargo(demo))),
        ("site", Box::new(|| site::run(workspace))),
        ("commands of pages", Box::new(commands_of_pages)),
        ("without clang", Box::new(without_clang)),
        ("older kernel", Box::new(|| kernels::in_ci(workspace))),
        ("fuzzers", Box::new(|| fuzz::run(workspace, Some(fuzz::CI_SEED)))),
        ("tests", Box::new(|| testing::run(workspace, &[], skips))),
    ];
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
