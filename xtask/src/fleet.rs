//! `cargo xtask fleet`: a group of sensors with a real NATS server, in a network namespace, and what an edit costs.
//!
//! Starts the server, captures on loopback with a sensor beside each, edits them, kills the server in between, and then
//! reads an archive with one worker and with two. Prints a table. Ends what it started, by id.
//!
//! Each of the two workers has one processor, as a machine of its own would, and so has the single worker before them;
//! a worker with all processors is measured, too.

use crate::setup::{self, Purpose};
use crate::shell::{Workspace, status};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const HELP: &str = "\
cargo xtask fleet [--sensors N] [--edits N] [--from DIR]

  --sensors N  sensors, 1 to 64 (8)
  --edits N    edits, 1 to 10000 (100); the server is killed once in the middle
  --from DIR   use the command in this folder instead of building it
";
/// The argument of the run inside the namespace.
const INSIDE: &str = "--inside";
const SERVER: &str = "nats://127.0.0.1:4222";
const LIMIT: Duration = Duration::from_secs(60);
/// Capture files of the archive, and frames of each.
const FILES: usize = 100;
const FRAMES: usize = 50_000;

/// The arguments.
struct Options {
    sensors: usize,
    edits: usize,
    from: Option<PathBuf>,
    inside: bool,
}

impl Options {
    fn read(args: &[String]) -> Result<Options, String> {
        let mut options = Options { sensors: 8, edits: 100, from: None, inside: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n\n{HELP}"));
            match arg.as_str() {
                "--sensors" => options.sensors = number(arg, value()?, 64)?,
                "--edits" => options.edits = number(arg, value()?, 10_000)?,
                "--from" => options.from = Some(PathBuf::from(value()?)),
                INSIDE => options.inside = true,
                other => return Err(format!("`fleet` does not take `{other}`\n\n{HELP}")),
            }
        }
        Ok(options)
    }
}

fn number(name: &str, text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("{name}: expected 1 to {most}, got `{text}`"))
}

/// Builds the command, and runs everything in a namespace of its own.
pub fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    let options = Options::read(args)?;
    let folder = match &options.from {
        Some(folder) => folder.clone(),
        None => workspace.target_dir()?.join("release"),
    };
    let fyke = folder.join("fyke");
    if options.inside {
        return inside(&options, &fyke).map(|()| ExitCode::SUCCESS);
    }
    setup::prepare(Purpose::Test)?;
    if options.from.is_none() {
        let built = status(&mut workspace.cargo(&["build", "--release", "-p", "fyke-command"]))?;
        if built != ExitCode::SUCCESS {
            return Ok(built);
        }
    }
    let fyke = folder.canonicalize().map_err(|error| format!("{}: {error}", fyke.display()))?;
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--kill-child"]).arg(program);
    command.args(["fleet", INSIDE, "--from"]).arg(fyke);
    command.args(["--sensors", &options.sensors.to_string()]);
    status(command.args(["--edits", &options.edits.to_string()]))
}

/// A process that ends with this value.
struct Started(Child);

impl Started {
    fn start(command: &mut Command) -> Result<Started, String> {
        let child = command.stdout(Stdio::null()).spawn();
        child.map(Started).map_err(|error| format!("cannot start {command:?}: {error}"))
    }

    /// Starts a fyke, and waits for a text on its standard error.
    fn hear(command: &mut Command, text: &str) -> Result<Started, String> {
        let mut started = Started::start(command.stderr(Stdio::piped()))?;
        let err = started.0.stderr.take().ok_or("no standard error")?;
        let mut lines = BufReader::new(err).lines().map_while(Result::ok);
        let mut said = Vec::new();
        for line in lines.by_ref() {
            let found = line.contains(text);
            said.push(line);
            if found {
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(started);
            }
        }
        Err(format!("{command:?} ended: {}", said.join("\n")))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The folder of a run, which is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("fyke-fleet-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_over = std::fs::remove_dir_all(&self.0);
    }
}

/// The command, the folder of the run and the group.
struct Group<'a> {
    fyke: &'a Path,
    folder: &'a Path,
}

impl Group<'_> {
    fn fyke(&self, words: &[&str]) -> Command {
        self.command(Command::new(self.fyke), words)
    }

    /// The command on one processor.
    fn fyke_on(&self, processor: &str, words: &[&str]) -> Command {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", processor]).arg(self.fyke);
        self.command(command, words)
    }

    fn command(&self, mut command: Command, words: &[&str]) -> Command {
        command.args(words).env("FYKE_RUNTIME_DIR", self.folder.join("run"));
        command.current_dir(self.folder);
        command
    }

    fn server(&self) -> Result<Started, String> {
        let mut command = Command::new("nats-server");
        command
            .args(["-js", "-a", "127.0.0.1", "-p", "4222", "-sd"])
            .arg(self.folder.join("store"));
        let server = Started::start(command.stderr(Stdio::null()))?;
        let start = Instant::now();
        while TcpStream::connect("127.0.0.1:4222").is_err() {
            if start.elapsed() > LIMIT {
                return Err("the NATS server does not listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Makes an edit; returns the milliseconds until it is in force at all sensors.
    fn edit(&self, sensors: usize, text: &str) -> Result<f64, String> {
        let to = ["--server", SERVER, "--trust", "authors", "--key", "key", "--wait", "30"];
        let output = self.fyke(&["fleet", "add"]).args(to).arg(text).output();
        let output = output.map_err(|error| error.to_string())?;
        let told = String::from_utf8_lossy(&output.stdout);
        // "edit 1: in force everywhere, 8 sensors, after 3.1 ms"
        let wanted = format!("in force everywhere, {sensors} sensors, after ");
        let time = told.split_once(&wanted).and_then(|(_, rest)| time_of(rest));
        time.ok_or_else(|| format!("{told}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Milliseconds of a time as `3.1 ms`, `1.20 s` or `900 µs`.
fn time_of(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (number, unit) = (words.next()?.parse::<f64>().ok()?, words.next()?);
    match unit.trim_end_matches(|letter: char| !letter.is_alphabetic()) {
        "s" => Some(1e3 * number),
        "ms" => Some(number),
        "µs" => Some(number / 1e3),
        _ => None,
    }
}

fn inside(options: &Options, fyke: &Path) -> Result<(), String> {
    let folder = Folder::new()?;
    let group = Group { fyke, folder: &folder.0 };
    status(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let mut server = group.server()?;
    let made = group.fyke(&["fleet", "key", "key", "--name", "demo"]).output();
    let made = made.map_err(|error| format!("{}: {error}", fyke.display()))?;
    let wrong = |error: std::io::Error| error.to_string();
    std::fs::write(folder.0.join("authors"), &made.stdout).map_err(wrong)?;
    let running = sensors(&group, options.sensors)?;

    let mut times = Vec::new();
    let mut outage = Duration::ZERO;
    for number in 0..options.edits {
        if number > 0 && number == options.edits / 2 {
            drop(server);
            let start = Instant::now();
            server = group.server()?;
            group.edit(options.sensors, "udp port 9")?;
            outage = start.elapsed();
        }
        times.push(group.edit(options.sensors, &format!("udp port {}", 1000 + number))?);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "{:>3} sensors  {:>5} edits in force everywhere: median {:.1} ms, p99 {:.1} ms",
        options.sensors,
        times.len(),
        at(0.5),
        at(0.99)
    );
    if !outage.is_zero() {
        let ms = outage.as_millis();
        println!(
            "             server killed and started again: next edit everywhere after {ms} ms"
        );
    }
    drop(running);
    archive(&group)
}

/// Starts captures on loopback, and a sensor beside each.
fn sensors(group: &Group<'_>, count: usize) -> Result<Vec<(Started, Started)>, String> {
    let start = |number: usize| {
        let mut capture = group.fyke(&["dump", "-Z", "root", "-i", "lo", "-w", "/dev/null"]);
        let capture = Started::hear(capture.arg("udp port 7"), "listening on")?;
        let (pid, name) = (capture.0.id().to_string(), format!("s{number}"));
        let mut sensor = group.fyke(&["sensor", "--server", SERVER, "--trust", "authors"]);
        sensor.args(["--name", &name, "--pid", &pid]);
        let sensor = Started::hear(&mut sensor, "beside the fyke with process id")?;
        Ok((capture, sensor))
    };
    (0..count).map(start).collect()
}

/// Reads an archive with a worker that has all processors, with one that has one, and with two: the sums are the same.
fn archive(group: &Group<'_>) -> Result<(), String> {
    let root = group.folder.join("captures");
    std::fs::create_dir(&root).map_err(|error| error.to_string())?;
    let list: String = (0..FILES).map(|number| format!("{number}.pcap\n")).collect();
    let capture = capture_file();
    for name in list.lines() {
        std::fs::write(root.join(name), &capture).map_err(|error| format!("{name}: {error}"))?;
    }
    std::fs::write(group.folder.join("list"), list).map_err(|error| error.to_string())?;
    let worker = |name: &str, processor: Option<&str>| {
        let words = ["worker", "--server", SERVER, "--trust", "authors"];
        let mut worker = match processor {
            Some(processor) => group.fyke_on(processor, &words),
            None => group.fyke(&words),
        };
        worker.args(["--name", name, "--at-once", "1", "--root", "captures"]);
        Started::hear(&mut worker, "Ctrl-C ends fyke worker")
    };
    let scan = || {
        let start = Instant::now();
        let mut scan = group.fyke(&["fleet", "scan", "--server", SERVER, "--key", "key"]);
        let output = scan.args(["-V", "list", "udp port 53"]).output();
        let output = output.map_err(|error| error.to_string())?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let half = FILES * FRAMES / 2;
        let exact = format!("{} arrived = {half} passed + {half} rejected", FILES * FRAMES);
        match told.contains(&exact) {
            true => Ok(start.elapsed().as_secs_f64()),
            false => Err(format!("{told}{}", String::from_utf8_lossy(&output.stderr))),
        }
    };
    let free = worker("free", None)?;
    let with_all = scan()?;
    drop(free);
    println!("{FILES} files of {FRAMES} frames: one worker with all processors {with_all:.2} s");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("two workers are not compared: this machine has one processor");
        return Ok(());
    }
    let one = worker("one", Some("0"))?;
    let alone = scan()?;
    let two = worker("two", Some("1"))?;
    let both = scan()?;
    println!(
        "             one worker with one processor {alone:.2} s, two with one each {both:.2} s ({:.2} times as fast)",
        alone / both
    );
    drop((one, two));
    Ok(())
}

/// A capture file: UDP from 10.0.0.1 to 10.0.0.2, to port 53 and to port 80 in turn.
fn capture_file() -> Vec<u8> {
    const LENGTH: u32 = 14 + 20 + 8 + 58;
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        file.extend(word.to_le_bytes());
    }
    for number in 0..FRAMES as u32 {
        for word in [number, 0, LENGTH, LENGTH] {
            file.extend(word.to_le_bytes());
        }
        let mut frame = [0; LENGTH as usize];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 86, 0, 0, 0, 0, 64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let port = if number % 2 == 0 { 53 } else { 80 };
        frame[34..40].copy_from_slice(&[16, 0, 0, port, 0, 66]);
        file.extend(frame);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_arguments_are_read() {
        assert_eq!(time_of("3.1 ms\n"), Some(3.1));
        assert_eq!((time_of("1.50 s"), time_of("900 µs;")), (Some(1500.0), Some(0.9)));
        assert_eq!((time_of("soon"), time_of("3 h")), (None, None));
        let read = |words: &[&str]| {
            Options::read(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read(&["--sensors", "32"]).map(|options| options.sensors), Ok(32));
        for wrong in [&["--sensors", "0"][..], &["--edits"], &["--edits", "x"], &["more"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(capture_file().len(), 24 + FRAMES * 116);
    }
}
