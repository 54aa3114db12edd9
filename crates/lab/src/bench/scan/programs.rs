//! The programs: their command lines, one run of each, and what they found.

use crate::bench::live::world::pin_to;
use crate::bench::measure::thread_time;
use crate::net::sys::child::{Ended, try_wait};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names of the programs; `read` only reads the file, or only decompresses it.
pub const ENGINES: [&str; 5] = ["fyke", "tcpdump", "tshark", "dumpcap", "read"];
/// Time limit of one run: longer than tshark needs for millions of frames.
const LIMIT: Duration = Duration::from_secs(1_800);
const BLOCK_LEN: usize = 1 << 20;

/// The files of a run, and what is known about them.
pub(super) struct Files {
    pub fyke: PathBuf,
    pub capture: PathBuf,
    pub gzip: PathBuf,
    pub output: PathBuf,
    /// Expression of the case `write`.
    pub text: &'static str,
    pub frames: u64,
    pub hits: u64,
    /// True if the bench made the capture.
    pub is_made: bool,
}

/// Times of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub took: Duration,
    /// Processor time, with that of children.
    pub used: Duration,
}

/// The work of a program in a case.
enum Work {
    Run(Command),
    /// Reads the capture in blocks.
    Read,
}

/// Makes the compressed form of the capture.
pub(super) fn compress(files: &Files) -> io::Result<()> {
    let input = File::open(&files.capture)?;
    let output = File::create_new(&files.gzip)?;
    let mut gzip = Command::new("gzip");
    let status = gzip.arg("-c").stdin(input).stdout(output.try_clone()?).status()?;
    if !status.success() {
        return Err(io::Error::other("gzip failed"));
    }
    output.sync_all()
}

/// Builds the command line of a program; `None` if it cannot do this.
fn work(engine: &str, case: &str, files: &Files) -> Option<Work> {
    let Files { fyke, capture, gzip, output, text, .. } = files;
    let mut command =
        Command::new(if engine == "fyke" { fyke.as_path() } else { Path::new(engine) });
    let shell = |script: &str, file: &Path, output: &Path| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(file).arg(output);
        command
    };
    command.arg(if engine == "fyke" { "dump" } else { "-n" });
    match (engine, case) {
        ("fyke", "count") => command.arg("--count").arg("-r").arg(capture),
        ("fyke", "gunzip") => command.arg("--count").arg("-r").arg(gzip),
        ("fyke" | "tcpdump", "write") => command.arg("-r").arg(capture).arg("-w").arg(output),
        ("fyke", "compress") => {
            command.args(["--compress", "gzip", "-r"]).arg(capture).arg("-w").arg(output)
        }
        ("fyke", _) => command.arg("-n").arg("-r").arg(capture),
        ("tcpdump", "count") => command.arg("--count").arg("-r").arg(capture),
        ("tcpdump", "gunzip") => {
            command = shell("gzip -dc \"$1\" | tcpdump -n --count -r -", gzip, output);
            &mut command
        }
        ("tcpdump", "compress") => {
            let script = "tcpdump -n -r \"$1\" -w - | gzip -c > \"$2\"";
            command = shell(script, capture, output);
            &mut command
        }
        ("tcpdump" | "tshark", "print") => command.arg("-r").arg(capture),
        ("tshark", "count") => command.args(["-q", "-z", "io,stat,0", "-r"]).arg(capture),
        ("tshark", "gunzip") => command.args(["-q", "-z", "io,stat,0", "-r"]).arg(gzip),
        // Its display filters are another language; this one means the same in captures of the bench.
        ("tshark", "write") if files.is_made => {
            command.args(["-Y", "udp.port == 4711", "-r"]).arg(capture).arg("-w").arg(output)
        }
        ("dumpcap", "count") => {
            let script = "cat \"$1\" | dumpcap -q -i - -w /dev/null 2>&1";
            command = shell(script, capture, output);
            &mut command
        }
        ("read", "count") => return Some(Work::Read),
        ("read", "gunzip") => {
            command = shell("gzip -dc \"$1\" > /dev/null", gzip, output);
            &mut command
        }
        _ => return None,
    };
    if case == "write" && engine != "tshark" {
        command.arg(text);
    }
    Some(Work::Run(command))
}

/// Runs a program on this number of processors.
///
/// # Errors
/// Its failure.
pub(super) fn turn(engine: &str, case: &str, files: &Files, cores: usize) -> Result<Turn, String> {
    match work(engine, case, files) {
        None => Err("it cannot do this".to_owned()),
        Some(Work::Read) => read(&files.capture, cores).map_err(|error| error.to_string()),
        Some(Work::Run(command)) => {
            let (turn, _) = launch(command, cores, Stdio::null())?;
            let _only_some_write = std::fs::remove_file(&files.output);
            Ok(turn)
        }
    }
}

/// Number of frames that a program finds; `None` if it cannot do this.
///
/// # Errors
/// The reason why it does not run here.
pub(super) fn count(engine: &str, case: &str, files: &Files) -> Result<Option<u64>, String> {
    let text = |error: io::Error| error.to_string();
    let command = match work(engine, case, files) {
        None => return Ok(None),
        Some(Work::Read) => return Ok(Some(0)),
        Some(Work::Run(command)) => command,
    };
    let lines = files.output.with_extension("lines");
    let (_, errors) = launch(command, 1, File::create(&lines).map_err(text)?.into())?;
    let printed = std::fs::read(&lines).map_err(text)?;
    std::fs::remove_file(&lines).map_err(text)?;
    let printed = String::from_utf8_lossy(&printed);
    let found = match (engine, case) {
        (_, "write" | "compress") => written(&files.output),
        ("read", _) => Ok(0),
        (_, "print") => Ok(printed.lines().filter(|line| is_frame(line)).count() as u64),
        ("dumpcap", _) => number_after(&printed, "Packets captured: "),
        ("tshark", _) => table_count(&printed),
        _ => first_number(&printed).or_else(|_| first_number(&errors)),
    };
    found.map(Some)
}

/// True for a line that begins a frame; others are indented by a tab.
fn is_frame(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('\t')
}

/// Frames of an output, by our own reader; the file is removed.
fn written(path: &Path) -> Result<u64, String> {
    let found = super::trace::counts(path, "");
    let _only_a_failed_run_has_none = std::fs::remove_file(path);
    found.map(|(frames, _)| frames).map_err(|error| error.to_string())
}

fn number_after(text: &str, start: &str) -> Result<u64, String> {
    let mut lines = text.lines().map(|line| line.trim_start_matches('\r'));
    let found = lines.find_map(|line| line.strip_prefix(start)?.trim().parse().ok());
    found.ok_or_else(|| format!("its count cannot be read: {text}"))
}

/// Reads the number at the begin of a line that is nothing else or ends with "packets".
fn first_number(text: &str) -> Result<u64, String> {
    let number = |line: &str| {
        let (number, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        number.parse().ok().filter(|_| rest.is_empty() || rest.starts_with("packet"))
    };
    text.lines().find_map(number).ok_or_else(|| format!("its count cannot be read: {text}"))
}

/// Reads the number of frames from tshark's table with one interval.
fn table_count(text: &str) -> Result<u64, String> {
    let row = text.lines().find(|line| line.contains("<>") && line.starts_with('|'));
    let count = row.and_then(|row| row.split('|').nth(2)?.trim().parse().ok());
    count.ok_or_else(|| format!("its table cannot be read: {text}"))
}

/// Runs a command to its end; returns its times and its standard error.
fn launch(mut command: Command, cores: usize, output: Stdio) -> Result<(Turn, String), String> {
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let begin = Instant::now();
    let started = std::thread::scope(|scope| {
        let start = || -> io::Result<Child> {
            pin_to(cores)?;
            command.spawn()
        };
        scope.spawn(start).join()
    });
    let started = started.map_err(|_| "the thread that starts it panicked".to_owned())?;
    let mut child = started.map_err(|error| error.to_string())?;
    let errors = child.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _what_there_is = errors.map(|mut pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let ended = wait(&mut child, begin)?;
    let took = begin.elapsed();
    let errors = errors.join().unwrap_or_default();
    if !ended.status.success() {
        let is_error = |line: &&str| line.starts_with("error");
        let line = errors.lines().find(is_error).or(errors.lines().last());
        return Err(format!("{}: {}", ended.status, line.unwrap_or("it printed nothing")));
    }
    Ok((Turn { took, used: ended.used }, errors))
}

fn wait(child: &mut Child, begin: Instant) -> Result<Ended, String> {
    loop {
        match try_wait(child).map_err(|error| error.to_string())? {
            Some(ended) => return Ok(ended),
            None if begin.elapsed() > LIMIT => {
                let _ended_already = child.kill();
                let _ended_already = child.wait();
                return Err(format!("it did not end within {LIMIT:?}"));
            }
            None => std::thread::sleep(Duration::from_micros(500)),
        }
    }
}

/// Reads a file in blocks in a thread of its own.
fn read(path: &Path, cores: usize) -> io::Result<Turn> {
    let work = || -> io::Result<Turn> {
        pin_to(cores)?;
        let (begin, used) = (Instant::now(), thread_time());
        let (mut file, mut block) = (File::open(path)?, vec![0; BLOCK_LEN]);
        while std::hint::black_box(file.read(&mut block)?) > 0 {}
        Ok(Turn { took: begin.elapsed(), used: thread_time().saturating_sub(used) })
    };
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.map_err(|_| io::Error::other("the reading thread panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_the_programs_print_them() {
        assert_eq!(first_number("5000\n"), Ok(5_000));
        assert_eq!(first_number("5000 packets\n"), Ok(5_000));
        assert!(first_number("12:00:01 IP a > b\nreading from file x\n").is_err());
        let table = "|                |1               |\n| Interval     | Frames | Bytes |\n\
                     |  0.0 <> 0.1  |   5000 | 17000 |\n";
        assert_eq!(table_count(table), Ok(5_000));
        assert_eq!(number_after("x\n\rPackets captured: 5000\n", "Packets captured: "), Ok(5_000));
        assert!(!is_frame("\t0x0000:  4500") && is_frame("12:00 IP") && is_frame("    1 0.0"));
    }
}
