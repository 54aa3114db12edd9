//! The processors, folders and processes of a run.

use crate::net::Namespace;
use crate::net::sys::child::{Ended, try_wait};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Number of the sender's processor among those that this process may use.
pub(in crate::bench) const SENDER: usize = 0;
/// Number of the captures' processor; the sender's if there is only one.
pub(in crate::bench) const CAPTURE: usize = 1;
/// Time in which an engine must be ready, and in which it must end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Processors that this process may use.
pub(in crate::bench) fn processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&n| allowed.is_set(n).unwrap_or(false)).collect())
}

/// Binds this thread, and what it starts, to the first processors.
pub(in crate::bench) fn pin_to(count: usize) -> io::Result<()> {
    let mut some = CpuSet::new();
    for number in processors()?.into_iter().take(count) {
        some.set(number)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &some)?)
}

/// Binds this thread, and what it starts, to one processor.
pub(in crate::bench) fn pin(number: usize) -> io::Result<()> {
    let allowed = processors()?;
    let mut one = CpuSet::new();
    one.set(allowed.get(number).or(allowed.first()).copied().unwrap_or(0))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &one)?)
}

/// A folder of this run, removed at its end.
pub(in crate::bench) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder below this one, for this user only.
    pub(in crate::bench) fn below(parent: &Path) -> io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        for number in 0..1_000 {
            let path = parent.join(format!("fyke-bench-{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Makes a folder in memory; `None` if this machine mounts no tmpfs on `/dev/shm`.
    pub(in crate::bench) fn in_memory() -> io::Result<Option<Folder>> {
        let shared = Path::new("/dev/shm");
        match statfs(shared) {
            Ok(found) if found.filesystem_type() == TMPFS_MAGIC => Folder::below(shared).map(Some),
            _ => Ok(None),
        }
    }

    pub(in crate::bench) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _nothing_else_to_do = std::fs::remove_dir_all(&self.0);
    }
}

/// A process under measurement, ended with this value.
pub(in crate::bench) struct Running {
    child: Child,
    printed: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    ended: Option<Ended>,
}

impl Running {
    /// Starts a command in a namespace, on the captures' processor, and waits until its standard error contains
    /// `ready`.
    ///
    /// # Errors
    /// The last lines of an engine that ends or is not ready in time.
    pub(in crate::bench) fn start(
        namespace: &Namespace,
        command: Command,
        ready: &str,
    ) -> Result<Running, String> {
        let running = Running::launch(namespace, command)?;
        running.ready(ready)
    }

    /// Starts a command in a namespace, on the captures' processor.
    pub(super) fn launch(namespace: &Namespace, command: Command) -> Result<Running, String> {
        Running::launch_on(namespace, command, Some(CAPTURE))
    }

    /// Starts a command in a namespace, on all processors of this process.
    pub(super) fn launch_anywhere(
        namespace: &Namespace,
        command: Command,
    ) -> Result<Running, String> {
        Running::launch_on(namespace, command, None)
    }

    fn launch_on(
        namespace: &Namespace,
        mut command: Command,
        processor: Option<usize>,
    ) -> Result<Running, String> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let child = namespace.inside(move || -> io::Result<Child> {
            processor.map_or(Ok(()), pin)?;
            command.spawn()
        });
        let child = child.map_err(|error| error.to_string())?;
        let mut child = child.map_err(|error| format!("{name}: {error}"))?;
        let printed = Arc::new(Mutex::new(String::new()));
        let listener = child.stderr.take().map(|mut pipe| {
            let printed = Arc::clone(&printed);
            std::thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while let Ok(len @ 1..) = pipe.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..len]);
                    printed.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                }
            })
        });
        Ok(Running { child, printed, listener, ended: None })
    }

    /// Waits until the standard error contains `ready`.
    pub(super) fn ready(mut self, ready: &str) -> Result<Running, String> {
        let begin = Instant::now();
        while !self.printed().contains(ready) {
            if self.has_ended()? || begin.elapsed() > PATIENCE {
                sleep(Duration::from_millis(50));
                return Err(format!("it does not start: {}", last_line(&self.printed())));
            }
            sleep(Duration::from_millis(2));
        }
        Ok(self)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Text on standard error so far.
    pub(in crate::bench) fn printed(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Processor time of all threads of the process so far.
    pub(in crate::bench) fn processor_time(&self) -> Duration {
        let clock = ClockId::pid_cpu_clock_id(self.pid());
        clock.and_then(clock_gettime).map(Duration::from).unwrap_or_default()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn has_ended(&mut self) -> Result<bool, String> {
        if self.ended.is_none() {
            self.ended = try_wait(&self.child).map_err(|error| error.to_string())?;
        }
        Ok(self.ended.is_some())
    }

    /// Interrupts the process; returns all that it has printed.
    ///
    /// # Errors
    /// It does not end, or fails.
    pub(in crate::bench) fn stop(mut self) -> Result<String, String> {
        let _ended_already = kill(self.pid(), Signal::SIGINT);
        let begin = Instant::now();
        while !self.has_ended()? {
            if begin.elapsed() > PATIENCE {
                return Err(format!("it does not end: {}", last_line(&self.printed())));
            }
            sleep(Duration::from_millis(2));
        }
        // Children of the process may hold the pipe a little longer.
        let open = |running: &Running| running.listener.as_ref().is_some_and(|l| !l.is_finished());
        while open(&self) && begin.elapsed() < PATIENCE {
            sleep(Duration::from_millis(2));
        }
        match self.ended {
            Some(ended) if !ended.status.success() => {
                Err(format!("{}: {}", ended.status, last_line(&self.printed())))
            }
            _ => Ok(self.printed()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.has_ended(), Ok(false)) {
            let _ended_already = self.child.kill();
            let _ended_already = self.child.wait();
        }
    }
}

fn last_line(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing").to_owned()
}
