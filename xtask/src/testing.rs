//! `cargo xtask test`: builds the command, runs all tests, adds one closing line with the sums.

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

/// Runs `cargo test`, for the workspace unless `args` name packages; shows its output as it
/// arrives.
pub fn run(workspace: &Workspace, args: &[String], skips: Skips) -> Result<ExitCode, String> {
    run_with(workspace, args, skips, &[])
}

/// The same with environment variables for cargo.
pub fn run_with(
    workspace: &Workspace,
    args: &[String],
    skips: Skips,
    variables: &[(&str, String)],
) -> Result<ExitCode, String> {
    let (for_cargo, for_tests) = split_args(args);
    let one_package = names_a_package(for_cargo);
    if !one_package {
        // Tests of several crates start the command; building it here shows its build errors first
        // and once.
        let built = status(&mut workspace.cargo(&["build", "-p", "fyke-command"]))?;
        if built != ExitCode::SUCCESS {
            return Ok(built);
        }
    }
    let mut command = workspace.cargo(&["test", "--no-fail-fast"]);
    if !one_package {
        command.arg("--workspace");
    }
    command.args(for_cargo).args(["--", "--show-output"]).args(for_tests);
    command.envs(variables.iter().map(|(name, value)| (name, value))).stdout(Stdio::piped());

    let mut child =
        command.spawn().map_err(|e| format!("cannot start `{}`: {e}", shown(&command)))?;
    let output = child.stdout.take().ok_or("no pipe from cargo")?;
    let mut tally = Tally::default();
    let read = copy_lines(BufReader::new(output), &mut std::io::stdout(), &mut tally);
    let status = child.wait().map_err(|e| format!("waiting for cargo: {e}"))?;
    read.map_err(|e| format!("reading what the tests print: {e}"))?;
    println!("{}", tally.summary());
    if status.success() && tally.failed > 0 {
        return Err(format!("cargo reported success though {} tests failed", tally.failed));
    }
    if skips == Skips::Refused && !tally.skips.is_empty() {
        return Err(format!(
            "skipped although this machine can run them:\n{}",
            tally.skips.join("\n")
        ));
    }
    Ok(ExitCode::from(code(status)))
}

/// Shows each line as soon as it arrives; test output need not be UTF-8.
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
