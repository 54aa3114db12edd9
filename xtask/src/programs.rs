//! Test programs that run beside each other.
//!
//! cargo runs one program at a time, and most of ours wait: for captures, timers, other processes. So cargo only builds
//! them here. Each runs in the folder of its package, as cargo does it, and its output is shown when it ends. A program
//! hangs if it prints nothing for ten minutes: libtest prints a line for each test that ends, and one for a test that
//! runs for over a minute. It is ended, so that a run names it and continues with the others.

use crate::shell::{Workspace, shown};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest silence of a test program.
pub const SILENCE: Duration = Duration::from_secs(600);

/// A test program that cargo has built, or cargo itself for the tests in documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its name in messages.
    pub name: String,
    /// The program.
    pub path: PathBuf,
    /// The folder of its package, in which it runs.
    pub folder: PathBuf,
    args: Vec<String>,
}

/// The end of a program.
#[derive(Debug)]
pub struct Ran {
    /// Its text on standard output.
    pub output: Vec<u8>,
    /// Its text on standard error, and that of the programs that it started.
    pub errors: Vec<u8>,
    /// Its status; `None` if it hung and was ended.
    pub status: Option<ExitStatus>,
    /// The time that it took.
    pub time: Duration,
}

/// Builds the test programs of all packages. A build of one package has other features, so nothing of it would serve
/// the run of all tests.
///
/// # Errors
/// The build fails; the compiler's messages are shown.
pub fn build(workspace: &Workspace) -> Result<Vec<Program>, String> {
    let mut cargo = workspace.cargo(&["test", "--locked", "--workspace", "--no-run"]);
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let ran = cargo.output().map_err(|e| format!("cannot start `{}`: {e}", shown(&cargo)))?;
    if !ran.status.success() {
        return Err(format!("`{}` failed", shown(&cargo)));
    }
    let programs = of_messages(&String::from_utf8_lossy(&ran.stdout));
    if programs.is_empty() {
        return Err(format!("`{}` built no test program", shown(&cargo)));
    }
    Ok(programs)
}

/// cargo with the tests in the documents of all packages.
pub fn documents(workspace: &Workspace) -> Program {
    let args =
        ["test", "--locked", "--workspace", "--doc", "--no-fail-fast", "--", "--show-output"];
    Program {
        name: "tests in documents".to_owned(),
        path: workspace.cargo(&[]).get_program().into(),
        folder: workspace.root.clone(),
        args: args.map(str::to_owned).to_vec(),
    }
}

/// The test programs in cargo's JSON messages.
fn of_messages(messages: &str) -> Vec<Program> {
    let program = |line: &str| {
        let text = |key: &str| {
            let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        // Examples are built too, without a test harness.
        let (_, profile) = line.split_once("\"profile\":{")?;
        profile.split_once('}')?.0.contains("\"test\":true").then_some(())?;
        let path = PathBuf::from(text("executable")?);
        let folder = Path::new(&text("manifest_path")?).parent()?.to_owned();
        Some(Program {
            name: path.file_name()?.to_string_lossy().into_owned(),
            path,
            folder,
            args: vec!["--show-output".to_owned()],
        })
    };
    messages.lines().filter_map(program).collect()
}

/// Runs programs, some at a time, with more arguments; tells of each when it has ended. Returns those that failed.
///
/// # Errors
/// A program cannot be started.
pub fn run(
    programs: &[Program],
    at_once: usize,
    args: &[&str],
    told: impl FnMut(&Program, &Ran) + Send,
) -> Result<Vec<Program>, String> {
    let (next, told) = (Mutex::new(programs.iter()), Mutex::new(told));
    let failed = Mutex::new(Vec::new());
    let lane = || {
        loop {
            let Some(program) = locked(&next).next() else { return Ok(()) };
            let ran = program.run(args, SILENCE)?;
            if !ran.status.is_some_and(|status| status.success()) {
                locked(&failed).push(program.clone());
            }
            (locked(&told))(program, &ran);
        }
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..at_once).map(|_| scope.spawn(lane)).collect();
        let ended = lanes.into_iter().map(|lane| lane.join().map_err(|_| "a thread panicked")?);
        ended.collect::<Result<Vec<()>, String>>()
    })?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Program {
    /// Runs it to its end, or until it has printed nothing for too long.
    fn run(&self, args: &[&str], silence: Duration) -> Result<Ran, String> {
        let at = |e: std::io::Error| format!("{}: {e}", self.name);
        let files = [nameless().map_err(at)?, nameless().map_err(at)?];
        let [output, errors] = [&files[0], &files[1]].map(|file| file.try_clone().map_err(at));
        // `nohup` and some services ignore SIGHUP, every program inherits that, and tests would wait for programs that
        // they end by it.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(&self.path).args(&self.args).args(args);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.stdin(Stdio::null()).stdout(output?).stderr(errors?);
        let start = Instant::now();
        let mut child = command.spawn().map_err(at)?;
        let (mut length, mut since) = (0, Instant::now());
        let status = loop {
            if let Some(status) = child.try_wait().map_err(at)? {
                break Some(status);
            }
            let now = files[0].metadata().map_err(at)?.len();
            if now != length {
                (length, since) = (now, Instant::now());
            } else if since.elapsed() >= silence {
                child.kill().and_then(|()| child.wait()).map_err(at)?;
                break None;
            }
            thread::sleep(Duration::from_millis(20));
        };
        let [output, errors] = files.map(whole);
        let (output, errors) = (output.map_err(at)?, errors.map_err(at)?);
        Ok(Ran { output, errors, status, time: start.elapsed() })
    }
}

/// The bytes of a file from its start.
fn whole(mut file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file without a name, which several descriptors append to.
fn nameless() -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!(
        "fyke-xtask-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    let file = File::options().read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            name: script.to_owned(),
            path: "sh".into(),
            folder: "/".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
        }
    }

    #[test]
    fn a_silent_program_is_ended_and_one_that_prints_is_not() {
        let prints = shell("for i in 1 2 3 4 5 6 7 8; do echo line; sleep 0.25; done");
        let ran = prints.run(&[], Duration::from_secs(1)).unwrap();
        assert!(ran.status.unwrap().success() && ran.output == b"line\n".repeat(8), "{ran:?}");
        let silent = shell("echo one; exec sleep 600");
        let ran = silent.run(&[], Duration::from_secs(1)).unwrap();
        assert!(ran.status.is_none() && ran.output == b"one\n", "{ran:?}");
    }

    #[test]
    fn all_programs_run_and_the_failed_ones_are_returned() {
        let programs = ["exit 0", "echo out; echo err >&2; exit 3", "kill -9 $$"].map(shell);
        let mut told = Vec::new();
        let run = run(&programs, 2, &[], |program, ran| {
            let texts = [&ran.output, &ran.errors];
            let texts = texts.map(|text| String::from_utf8_lossy(text).into_owned());
            told.push((program.name.clone(), texts));
        });
        let failed = run.unwrap();
        told.sort();
        let texts = told.iter().map(|(_, [output, errors])| (output.as_str(), errors.as_str()));
        assert_eq!(texts.collect::<Vec<_>>(), [("out\n", "err\n"), ("", ""), ("", "")]);
        assert_eq!(failed.len(), 2);
        assert!(!failed.contains(&programs[0]), "{failed:?}");
    }

    #[test]
    fn programs_are_read_from_the_messages_of_cargo() {
        let line = |test: bool, path: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\
                 \"manifest_path\":\"/r/crates/lab/Cargo.toml\",\"target\":{{\"kind\":[\"test\"],\"name\":\"x\"}},\
                 \"profile\":{{\"opt_level\":\"1\",\"test\":{test}}},\"executable\":{path},\"fresh\":true}}"
            )
        };
        let messages = [
            line(true, "\"/r/target/debug/deps/x-01\""),
            line(false, "\"/r/target/debug/examples/y\""),
            line(true, "null"),
            "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
        ];
        let [program] = &of_messages(&messages.join("\n"))[..] else { panic!("one program") };
        assert_eq!(program.name, "x-01");
        assert_eq!(program.folder, Path::new("/r/crates/lab"));
        assert_eq!(program.path, Path::new("/r/target/debug/deps/x-01"));
    }
}
