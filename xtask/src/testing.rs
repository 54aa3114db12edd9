//! `cargo xtask test`: builds the command, runs all tests, adds one closing line with the sums.

use crate::shell::{Workspace, code, shown, status};
use crate::tally::Tally;
use crate::watchdog::{SILENCE, Watchdog};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

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
    if !one_package && !for_cargo.is_empty() {
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
    let mut ran = Ran::of(&cargo, variables)?;
    if args.is_empty() && !ran.status.success() {
        ran = again(workspace, ran)?;
    }
    println!("{}", ran.tally.summary());
    if !ran.ended.is_empty() {
        let (seconds, names) = (SILENCE.as_secs(), ran.ended.join(", "));
        return Err(format!("ended because they printed nothing for {seconds} s: {names}"));
    }
    if ran.status.success() && ran.tally.failed > 0 {
        return Err(format!("cargo reported success though {} tests failed", ran.tally.failed));
    }
    if skips == Skips::Refused && !ran.tally.skips.is_empty() {
        let lines = ran.tally.skips.join("\n");
        return Err(format!("skipped although this machine can run them:\n{lines}"));
    }
    Ok(ExitCode::from(code(ran.status)))
}

/// Test programs that may run a second time.
const SECOND_RUNS: usize = 3;

/// One run of cargo.
struct Ran {
    status: ExitStatus,
    tally: Tally,
    /// Programs that the watchdog has ended.
    ended: Vec<String>,
    /// Failed targets in cargo's words, such as `-p fyke-lab --test kernel_edits`.
    targets: Vec<String>,
}

impl Ran {
    /// Runs cargo and shows its output as it arrives.
    fn of(cargo: &Command, variables: &[(&str, String)]) -> Result<Ran, String> {
        let mut command = with_hang_up(cargo);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|e| format!("cannot start `{}`: {e}", shown(&command)))?;
        let output = child.stdout.take().ok_or("no pipe from cargo")?;
        let messages = BufReader::new(child.stderr.take().ok_or("no pipe from cargo")?);
        let messages = std::thread::spawn(move || failed_targets(messages, &mut std::io::stderr()));
        let mut tally = Tally::default();
        let watchdog = Watchdog::start(child.id(), SILENCE);
        let heard = || watchdog.line();
        let read = copy_lines(BufReader::new(output), &mut std::io::stdout(), &mut tally, heard);
        let status = child.wait().map_err(|e| format!("waiting for cargo: {e}"))?;
        let ended = watchdog.stop();
        let targets = messages.join().unwrap_or_else(|_| Ok(Vec::new()));
        read.map_err(|e| format!("reading what the tests print: {e}"))?;
        let targets = targets.map_err(|e| format!("reading what cargo prints: {e}"))?;
        Ok(Ran { status, tally, ended, targets })
    }
}

/// Runs a few failed test programs once more, one test at a time. A test that passes then depends on what else the
/// machine did; the closing lines name it. All failures of the first run stay in the output.
fn again(workspace: &Workspace, first: Ran) -> Result<Ran, String> {
    let programs: Option<Vec<&str>> =
        first.targets.iter().map(|target| Some(target.split_once("--test ")?.1)).collect();
    let Some(programs) = programs
        .filter(|all| first.ended.is_empty() && !all.is_empty() && all.len() <= SECOND_RUNS)
    else {
        return Ok(first);
    };
    println!("\nsecond run of {}, one test at a time", programs.join(", "));
    let mut cargo = workspace.cargo(&["test", "--no-fail-fast", "--workspace"]);
    for program in programs {
        cargo.args(["--test", program]);
    }
    cargo.args(["--", "--show-output", "--test-threads=1"]);
    let second = Ran::of(&cargo, &[])?;
    if !second.status.success() || second.tally.failed > 0 || !second.ended.is_empty() {
        return Ok(first);
    }
    println!("failed in the first run, passed in the second: {}", first.tally.failures.join(", "));
    let mut tally = first.tally;
    tally.passed += tally.failed;
    tally.failed = 0;
    Ok(Ran { tally, ..second })
}

/// Copies cargo's messages; returns the targets that it names after `error: N targets failed:`.
fn failed_targets(messages: impl BufRead, output: &mut impl Write) -> std::io::Result<Vec<String>> {
    let mut targets = Vec::new();
    let mut in_list = false;
    for line in messages.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(output, "{line}")?;
        in_list |= line.starts_with("error: ") && line.ends_with(" failed:");
        let target = line.trim().strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        targets.extend(target.filter(|_| in_list).map(str::to_owned));
    }
    Ok(targets)
}

/// The command in a process in which SIGHUP has its default effect: `nohup` and some services ignore it, every program
/// inherits that, and tests would wait for programs that they end by it.
fn with_hang_up(cargo: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(cargo.get_program()).args(cargo.get_args());
    if let Some(folder) = cargo.get_current_dir() {
        command.current_dir(folder);
    }
    command
}

/// Shows each line as soon as it arrives; test output need not be UTF-8.
fn copy_lines(
    mut input: impl BufRead,
    output: &mut impl Write,
    tally: &mut Tally,
    mut heard: impl FnMut(),
) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        heard();
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
    fn failed_targets_are_read_from_the_messages_of_cargo() {
        let text = "   Compiling x\n`no target`\nerror: test failed, to rerun pass `-p x --lib`\n\
                    error: 2 targets failed:\n    `-p x --test a`\n    `-p y --lib`\n";
        let mut shown = Vec::new();
        let targets = failed_targets(text.as_bytes(), &mut shown).unwrap();
        assert_eq!(targets, ["-p x --test a", "-p y --lib"]);
        assert_eq!(shown, text.as_bytes());
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_the_run() {
        let mut tally = Tally::default();
        let end = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut bytes = b"skipped: \xff\xfe\n".to_vec();
        bytes.extend_from_slice(end.as_bytes());
        let mut shown = Vec::new();
        copy_lines(&bytes[..], &mut shown, &mut tally, || ()).unwrap();
        assert!(shown.starts_with(b"skipped: "));
        assert_eq!(tally.summary(), "1 passed, 0 failed, 1 skipped");
    }
}
