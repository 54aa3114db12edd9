//! A capture for Wireshark: a `fyke dump` that writes to the pipe of Wireshark, edited by messages of the toolbar.
//!
//! It ends when Wireshark closes one of the pipes or sends a signal, and when `fyke dump` ends. Bytes that are no
//! messages end only the toolbar: the capture continues. A reader that goes is
//! noticed on a quiet network too, because the pipes are polled. Nothing here waits for a pipe: messages for a toolbar
//! that does not read are discarded beyond a bound.

use super::call::Capture as Wanted;
use super::control::{Incoming, Message};
use super::toolbar::{Capture, Toolbar};
use crate::commands::Failure;
use crate::commands::signals::stop_on_signals;
use anyhow::{Context, anyhow};
use fyke_control::{Client, Request, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// The command of the Debian package, and the copy of it that `fyke-capabilities on` makes.
const PACKAGED: &str = "/usr/bin/fyke";
const CAPABLE: &str = "/usr/lib/fyke/bin/fyke";
/// Longest wait for the other end of a pipe.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// Time between two looks at the stop flag and at `fyke dump`.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two texts in the status bar.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for an answer of the capture.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Time for `fyke dump` to end after SIGINT.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes that wait for the toolbar.
const MAX_WAITING: usize = 1 << 20;
/// Most bytes of an explanation.
const MAX_EXPLANATION: u64 = 32 << 10;
/// Most reads of the toolbar's pipe in a row.
const MAX_READS: usize = 1_000;
/// Most messages that wait for the start of the capture.
const MAX_EARLY: usize = 1_000;

/// Captures until the pipe is closed.
pub fn run(wanted: &Wanted) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let Some(fifo) = open_for_writing(&wanted.fifo, &stop)? else { return Ok(()) };
    // `fyke dump` waits for a slow reader itself.
    fcntl_setfl(&fifo, fcntl_getfl(&fifo)? - OFlags::NONBLOCK)?;
    let controls = match &wanted.controls {
        Some((from, to)) => Controls::open(from, to, &stop)?,
        None => None,
    };
    let child = start(wanted, &fifo)?;
    let mut session = Session {
        toolbar: Toolbar::new(&wanted.filter),
        running: Running { child, client: None, reading: reading(wanted)? },
        controls,
        early: Vec::new(),
        last_lines: Vec::new(),
        status_due: Instant::now(),
    };
    let messages = session.running.messages()?;
    let ended = session.follow(&fifo, &messages, &stop);
    // `fyke dump` has the only other copy, so that Wireshark reads an end of file.
    drop(fifo);
    session.end(ended)
}

/// Opens a pipe for writing once it has a reader; `None` if a signal came before.
fn open_for_writing(path: &Path, stop: &AtomicBool) -> Result<Option<File>, Failure> {
    let kind = std::fs::metadata(path).with_context(|| format!("{}", path.display()))?.file_type();
    if !kind.is_fifo() {
        return Err(Failure::Running(anyhow!("{}: not a pipe (FIFO)", path.display())));
    }
    let limit = Instant::now() + OPEN_LIMIT;
    let flags = OFlags::NONBLOCK.bits() as i32;
    while !stop.load(Ordering::Relaxed) {
        match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Ok(file) => return Ok(Some(file)),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                if Instant::now() > limit {
                    let message = format!("{}: no program reads this pipe", path.display());
                    return Err(Failure::Running(anyhow!(message)));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(anyhow!(e).context(format!("{}", path.display())).into()),
        }
    }
    Ok(None)
}

/// Starts `fyke dump` with the pipe as its output. If this program is killed, the pipe to its standard input ends, and
/// so does `fyke dump`.
fn start(wanted: &Wanted, fifo: &File) -> Result<Child, Failure> {
    let mut command = Command::new(program()?);
    command.args(["dump", "-i", &wanted.interface, "-U", "-w", "-", "--until-stdin-ends"]);
    command.args(&wanted.options);
    command.args(["--", &wanted.filter]);
    let output = fifo.try_clone().context("the pipe for frames")?;
    let child = command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped()).spawn();
    Ok(child.context("cannot start fyke dump")?)
}

/// The program that captures: this one, or the package's copy with capabilities if the user may run that and may not
/// capture with this one. Wireshark knows only the link to this one.
fn program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let is_ours = own == Path::new(PACKAGED) && !fyke_privilege::user::has_capabilities();
    match is_ours && access(CAPABLE, Access::EXEC_OK).is_ok() {
        true => Ok(PathBuf::from(CAPABLE)),
        false => Ok(own),
    }
}

/// Options of `fyke explain` by which it reads a text as the capture does.
fn reading(wanted: &Wanted) -> Result<Vec<String>, Failure> {
    let mut options = vec!["--live".to_owned()];
    options.extend(wanted.options.iter().find(|option| *option == "--scoped").cloned());
    if let Some(found) = super::available(&wanted.interface)? {
        options.extend(["--link".to_owned(), found.link.to_string()]);
    }
    Ok(options)
}

/// The pipes of the toolbar.
struct Controls {
    from: File,
    to: File,
    incoming: Incoming,
    /// Bytes that the toolbar has not read yet.
    waiting: Vec<u8>,
    /// True once the toolbar has sent bytes that are no messages; what follows them is discarded.
    broken: bool,
}

impl Controls {
    fn open(from: &Path, to: &Path, stop: &AtomicBool) -> Result<Option<Controls>, Failure> {
        let flags = OFlags::NONBLOCK.bits() as i32;
        let from = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(from)
            .with_context(|| format!("{}", from.display()))?;
        let Some(to) = open_for_writing(to, stop)? else { return Ok(None) };
        Ok(Some(Controls {
            from,
            to,
            incoming: Incoming::default(),
            waiting: Vec::new(),
            broken: false,
        }))
    }

    /// Reads what is there, as messages and, once, the reason why no more can be read.
    fn read(&mut self) -> (Vec<Message>, Option<String>) {
        let mut bytes = [0; 4096];
        let mut messages = Vec::new();
        for _ in 0..MAX_READS {
            let Ok(count @ 1..) = self.from.read(&mut bytes) else { break };
            if self.broken {
                continue;
            }
            self.incoming.push(&bytes[..count]);
            loop {
                match self.incoming.next() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(reason) => {
                        (self.broken, self.incoming) = (true, Incoming::default());
                        return (messages, Some(reason));
                    }
                }
            }
            if messages.len() > MAX_EARLY {
                break;
            }
        }
        (messages, None)
    }

    /// Writes as much as the pipe takes.
    fn write(&mut self, messages: &[Message]) {
        for message in messages {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.extend(message.bytes());
            }
        }
        while !self.waiting.is_empty() {
            match self.to.write(&self.waiting) {
                Ok(0) => return,
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// Reasons for the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Wireshark has closed a pipe or sent a signal.
    ByReader,
    /// `fyke dump` has ended.
    ByCapture,
}

struct Session {
    toolbar: Toolbar,
    running: Running,
    controls: Option<Controls>,
    /// Messages from before the start of the capture.
    early: Vec<Message>,
    /// Last lines of `fyke dump`.
    last_lines: Vec<String>,
    status_due: Instant,
}

impl Session {
    /// Carries out messages until the end.
    fn follow(&mut self, fifo: &File, lines: &Receiver<String>, stop: &AtomicBool) -> Ended {
        loop {
            if stop.load(Ordering::Relaxed) || self.wait(fifo) {
                return Ended::ByReader;
            }
            while let Ok(line) = lines.try_recv() {
                self.toolbar.log(&line);
                if self.last_lines.len() == 100 {
                    self.last_lines.remove(0);
                }
                self.last_lines.push(line);
            }
            if !matches!(self.running.child.try_wait(), Ok(None)) {
                self.last_lines.extend(lines.iter());
                return Ended::ByCapture;
            }
            self.serve_toolbar(stop);
        }
    }

    /// Waits until something happens or the interval is over; true if a pipe has been closed.
    fn wait(&self, fifo: &File) -> bool {
        let interval = Timespec { tv_sec: 0, tv_nsec: LOOK_INTERVAL.as_nanos() as i64 };
        let mut polled = vec![PollFd::new(fifo, PollFlags::empty())];
        if let Some(controls) = &self.controls {
            polled.push(PollFd::new(&controls.from, PollFlags::IN));
            let wanted = match controls.waiting.is_empty() {
                true => PollFlags::empty(),
                false => PollFlags::OUT,
            };
            polled.push(PollFd::new(&controls.to, wanted));
        }
        // An interrupted wait is followed by the next one.
        let _interrupted = poll(&mut polled, Some(&interval));
        let closed = PollFlags::ERR | PollFlags::HUP;
        polled.iter().any(|one| {
            let happened = one.revents();
            happened.intersects(closed) && !happened.contains(PollFlags::IN)
        })
    }

    /// Reads and answers the toolbar, if there is one. After bytes of another protocol it only shows counts.
    fn serve_toolbar(&mut self, stop: &AtomicBool) {
        let Some(controls) = &mut self.controls else { return };
        let (messages, broken) = controls.read();
        self.early.extend(messages);
        if let Some(reason) = broken {
            let reason = format!(
                "fyke extcap: {reason}; the capture continues, and the toolbar cannot edit it any more: fyke ctl can"
            );
            note!("{reason}");
            self.toolbar.fail(&reason);
        }
        if self.running.connect() {
            for message in std::mem::take(&mut self.early) {
                self.toolbar.handle(message, &mut self.running);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
            if self.status_due <= Instant::now() {
                self.status_due = Instant::now() + STATUS_INTERVAL;
                if let Ok(Response::Stats(stats)) = self.running.call(Request::Stats) {
                    self.toolbar.show(&stats);
                }
            }
        }
        // The values at the end are newer.
        self.early.drain(..self.early.len().saturating_sub(MAX_EARLY));
        let messages = self.toolbar.take();
        if let Some(controls) = &mut self.controls {
            controls.write(&messages);
        }
    }

    /// Ends `fyke dump`, and fails if it failed by itself.
    fn end(mut self, ended: Ended) -> Result<(), Failure> {
        let status = self.running.end();
        if ended == Ended::ByReader {
            return Ok(());
        }
        match status.and_then(|status| status.code()) {
            Some(0) => Ok(()),
            code => {
                self.last_lines.iter().for_each(|line| note!("{line}"));
                Err(Failure::Status(code.map_or(1, |code| u8::try_from(code).unwrap_or(1))))
            }
        }
    }
}

/// The running `fyke dump` and its control socket.
struct Running {
    child: Child,
    client: Option<Client>,
    /// Options of `fyke explain`.
    reading: Vec<String>,
}

impl Running {
    /// Reads the messages of `fyke dump` in a thread.
    fn messages(&mut self) -> Result<Receiver<String>, Failure> {
        let errors = self.child.stderr.take().context("no pipe from fyke dump")?;
        let (send, receive) = sync_channel(1_000);
        std::thread::Builder::new().name("messages".to_owned()).spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // A full queue must not make `fyke dump` wait.
                let _full = send.try_send(line);
            }
        })?;
        Ok(receive)
    }

    /// True once the control socket answers.
    fn connect(&mut self) -> bool {
        if self.client.is_none()
            && let Ok(mut client) = Client::connect(Some(self.child.id()))
        {
            client.set_answer_limit(ANSWER_LIMIT);
            if client.hello("Wireshark").is_ok() {
                self.client = Some(client);
            }
        }
        self.client.is_some()
    }

    fn end(&mut self) -> Option<std::process::ExitStatus> {
        if let Ok(None) = self.child.try_wait() {
            let pid = Pid::from_child(&self.child);
            let _ended_meanwhile = kill_process(pid, Signal::INT);
            let limit = Instant::now() + END_LIMIT;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(10));
            }
            if let Ok(None) = self.child.try_wait() {
                let _ended_meanwhile = self.child.kill();
            }
        }
        self.child.wait().ok()
    }
}

impl Capture for Running {
    fn call(&mut self, request: Request) -> Result<Response, String> {
        let Some(client) = &mut self.client else {
            return Err("the capture has not started yet".to_owned());
        };
        match client.call(request) {
            Ok(
                Response::Error { message }
                | Response::Failed { message }
                | Response::Refused { message, .. },
            ) => Err(message),
            Ok(response) => Ok(response),
            Err(error) => Err(error.to_string()),
        }
    }

    fn explain(&mut self, text: &str) -> String {
        let explained = || -> std::io::Result<String> {
            let mut child = Command::new(std::env::current_exe()?)
                .arg("explain")
                .args(&self.reading)
                .args(["--", text])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            let mut lines = String::new();
            if let Some(out) = child.stdout.take() {
                BufReader::new(out.take(MAX_EXPLANATION)).read_to_string(&mut lines)?;
            }
            if let Some(errors) = child.stderr.take() {
                BufReader::new(errors.take(MAX_EXPLANATION)).read_to_string(&mut lines)?;
            }
            child.wait()?;
            Ok(lines)
        };
        explained().unwrap_or_else(|error| format!("cannot explain it: {error}"))
    }
}
