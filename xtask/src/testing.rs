//! `cargo xtask test`: builds the command, runs all tests, adds one closing line with the sums.

use crate::programs::{self, Program, Ran, SILENCE};
use crate::shell::{Workspace, code, shown, status};
use crate::tally::Tally;
use std::io::{BufRead, BufReader, Write};
use std::process::{ExitCode, Stdio};

/// Effect of a skip on the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skips {
    /// They are counted.
    Counted,
    /// They fail the run.
    Refused,
}

/// Programs that may run a second time.
const SECOND_RUNS: usize = 5;

/// Runs all tests, some programs at a time.
///
/// # Errors
/// A test failed, a program hung, or a test was skipped although that is refused.
pub fn all(workspace: &Workspace, skips: Skips) -> Result<ExitCode, String> {
    let programs = programs::build(workspace)?;
    // First, because nothing runs beside the last one.
    let mut jobs = vec![programs::documents(workspace)];
    jobs.extend(programs);
    // They wait more than they work: two cores are a third busy with two programs.
    let at_once = 1 + std::thread::available_parallelism().map_or(1, usize::from);
    let (mut tally, mut number) = (Tally::default(), 0);
    let mut hung = Vec::new();
    let failed = programs::run(&jobs, at_once, &[], |program, ran| {
        number += 1;
        show(&format!("[{number}/{}]", jobs.len()), program, ran, &mut tally);
        if ran.status.is_none() {
            hung.push(program.name.clone());
        }
    })?;
    let failed = if hung.is_empty() { again(&failed, &mut tally)? } else { failed };
    println!("{}", tally.summary());
    if !hung.is_empty() {
        let (seconds, names) = (SILENCE.as_secs(), hung.join(", "));
        return Err(format!("ended because they printed nothing for {seconds} s: {names}"));
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|program| program.name.as_str()).collect();
        return Err(format!("failed: {}", names.join(", ")));
    }
    if tally.failed > 0 {
        return Err(format!("all programs report success though {} tests failed", tally.failed));
    }
    if skips == Skips::Refused && !tally.skips.is_empty() {
        let lines = tally.skips.join("\n");
        return Err(format!("skipped although this machine can run them:\n{lines}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows what a program printed, and adds its results.
fn show(number: &str, program: &Program, ran: &Ran, tally: &mut Tally) {
    println!("\n{number} {}, {:.1} s", program.name, ran.time.as_secs_f64());
    // A closed standard output does not stop the tests.
    let _shown = copy_lines(&ran.output[..], &mut std::io::stdout(), tally);
    print!("{}", String::from_utf8_lossy(&ran.errors));
    match ran.status {
        Some(status) if status.success() => {}
        Some(status) => println!("{}: {status}", program.name),
        None => println!("{}: no line for {} s; it was ended", program.name, SILENCE.as_secs()),
    }
}

/// Runs a few failed programs once more, one test at a time. A test that passes then depends on what else the machine
/// did; the closing lines name it. All failures of the first run stay in the output. Returns the programs that fail.
fn again(failed: &[Program], tally: &mut Tally) -> Result<Vec<Program>, String> {
    if failed.is_empty() || failed.len() > SECOND_RUNS {
        return Ok(failed.to_vec());
    }
    println!("\nsecond run of the programs that failed, one test at a time");
    let mut second = Tally::default();
    let failed = programs::run(failed, 1, &["--test-threads=1"], |program, ran| {
        show("[again]", program, ran, &mut second);
    })?;
    if failed.is_empty() && second.failed == 0 {
        println!("failed in the first run, passed in the second: {}", tally.failures.join(", "));
        tally.passed += tally.failed;
        tally.failed = 0;
    }
    Ok(failed)
}

/// Runs `cargo test` with arguments, for the workspace unless they name packages; shows its output as it arrives.
///
/// # Errors
/// cargo cannot be started.
pub fn some(
    workspace: &Workspace,
    args: &[String],
    variables: &[(&str, String)],
) -> Result<ExitCode, String> {
    let (for_cargo, for_tests) = split_args(args);
    let one_package = names_a_package(for_cargo);
    if !one_package {
        // Tests of several crates start the command. A run of all tests builds it anyway.
        let built = status(&mut workspace.cargo(&["build", "-p", "fyke-command"]))?;
        if built != ExitCode::SUCCESS {
            return Ok(built);
        }
    }
    let mut cargo = workspace.cargo(&["test", "--no-fail-fast"]);
    if !one_package {
        cargo.arg("--workspace");
    }
    cargo.args(for_cargo).args(["--", "--show-output"]).args(for_tests);
    cargo.envs(variables.iter().map(|(name, value)| (name, value)));
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start `{}`: {e}", shown(&cargo)))?;
    let output = child.stdout.take().ok_or("no pipe from cargo")?;
    let mut tally = Tally::default();
    let read = copy_lines(BufReader::new(output), &mut std::io::stdout(), &mut tally);
    let status = child.wait().map_err(|e| format!("waiting for cargo: {e}"))?;
    read.map_err(|e| format!("reading what the tests print: {e}"))?;
    println!("{}", tally.summary());
    Ok(ExitCode::from(code(status)))
}

/// Copies lines; test output need not be UTF-8.
fn copy_lines(
    mut input: impl BufRead,
    output: &mut impl Write,
    tally: &mut Tally,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(shown) = tally.line(text.trim_end_matches(['\n', '\r'])) {
            writeln!(output, "{shown}")?;
        }
    }
}

/// The arguments before and after the first `--`.
fn split_args(args: &[String]) -> (&[String], &[String]) {
    match args.iter().position(|arg| arg == "--") {
        Some(at) => (&args[..at], &args[at + 1..]),
        None => (args, &[]),
    }
}

fn names_a_package(args: &[String]) -> bool {
    args.iter().any(|arg| {
        arg == "--package" || arg.starts_with("--package=") || {
            arg.starts_with("-p") && !arg.starts_with("--")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn arguments_are_split_at_the_first_double_dash() {
        let args = strings(&["-p", "x", "--", "--test-threads=1", "--"]);
        let (cargo, tests) = split_args(&args);
        assert_eq!((cargo.len(), tests.len()), (2, 2));
    }

    #[test]
    fn package_options_are_recognised_in_every_spelling() {
        for args in [&["-p", "x"][..], &["-px"], &["--package", "x"], &["--package=x"]] {
            assert!(names_a_package(&strings(args)), "{args:?}");
        }
        assert!(!names_a_package(&strings(&["--profile", "release", "port"])));
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_the_run() {
        let mut tally = Tally::default();
        let end = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut bytes = b"skipped: \xff\xfe\n".to_vec();
        bytes.extend_from_slice(end.as_bytes());
        let mut shown = Vec::new();
        copy_lines(&bytes[..], &mut shown, &mut tally).unwrap();
        assert!(shown.starts_with(b"skipped: "));
        assert_eq!(tally.summary(), "1 passed, 0 failed, 1 skipped");
    }
}
