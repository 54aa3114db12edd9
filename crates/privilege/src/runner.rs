//! A small process that runs one command for each closed file of a rotation (`-z`), because the process that reads
//! frames may not start programs.
//!
//! It is forked before the first socket is opened, becomes the user that the capture becomes, without capabilities, and
//! cannot regain rights by executing a program. It has a session of its own, so that a signal of the terminal ends the
//! capture and not the work on its last file. It accepts only names that begin like the files of the rotation and do
//! not climb (`..`), and passes them as the only argument, without a shell. At most [`MAX_RUNNING`] commands run at a
//! time; further names wait in the socket, and once that is full they are refused: the capture never waits.

use crate::sys;
use crate::user::{self, User};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Most commands that run at a time.
pub const MAX_RUNNING: usize = 16;
/// Longest file name.
const MAX_NAME: usize = 4096;
/// Lowest priority.
const PRIORITY: i32 = 19;

/// The runner of this process.
#[derive(Debug)]
pub struct Runner {
    channel: UnixStream,
    command: String,
}

static CURRENT: OnceLock<Runner> = OnceLock::new();

/// The runner of this process, if one was started.
pub fn current() -> Option<&'static Runner> {
    CURRENT.get()
}

/// Starts the runner, once, for files with names that match `pattern` (strftime(3)). It becomes `user`; with `None` it
/// keeps the user and drops the capabilities if `is_powerless`. The process must have a single thread.
///
/// # Errors
/// When there are several threads, when a runner runs already, or when the system refuses.
pub fn start(
    command: &str,
    pattern: &Path,
    user: Option<&User>,
    is_powerless: bool,
) -> io::Result<()> {
    if current().is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let (ours, theirs) = UnixStream::pair()?;
    if sys::fork()? == 0 {
        drop(ours);
        let serve = || serve(theirs, command, pattern, user, is_powerless);
        // A panic must not unwind into the parent's code.
        if let Ok(Err(error)) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)) {
            eprintln!("fyke: -z {command}: {error}");
        }
        sys::end();
    }
    ours.set_nonblocking(true)?;
    CURRENT.get_or_init(|| Runner { channel: ours, command: command.to_owned() });
    Ok(())
}

impl Runner {
    /// The command.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Has the command run for a file.
    ///
    /// # Errors
    /// When too many files wait, when the runner has ended, or when the name is too long.
    pub fn run(&self, file: &Path) -> io::Result<()> {
        let name = file.as_os_str().as_bytes();
        let length = u16::try_from(name.len()).ok().filter(|length| *length <= MAX_NAME as u16);
        let length = length.ok_or(io::ErrorKind::InvalidFilename)?;
        let message = [&length.to_ne_bytes(), name].concat();
        loop {
            match rustix::io::write(&self.channel, &message) {
                Ok(written) if written == message.len() => return Ok(()),
                // A stream takes a small message completely or not at all, but for a full buffer.
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn serve(
    mut channel: UnixStream,
    command: &str,
    pattern: &Path,
    user: Option<&User>,
    is_powerless: bool,
) -> io::Result<()> {
    // The name is only for process lists such as `ps`.
    let _ = rustix::thread::set_name(c"fyke-runner");
    // Those that the capture keeps are not for this process.
    let _of_the_parent = sys::signals::take();
    sys::signals::give_back();
    rustix::process::setsid()?;
    // It works at the usual priority, too.
    let _ = rustix::process::setpriority_process(None, PRIORITY);
    match user {
        Some(user) => user::become_user(user).map_err(io::Error::other)?,
        None if is_powerless => user::give_up_capabilities().map_err(io::Error::other)?,
        None => {}
    }
    user::close_to_others()?;
    let mut running: Vec<Child> = Vec::new();
    let mut name = Vec::new();
    loop {
        let mut length = [0; 2];
        if channel.read_exact(&mut length).is_err() {
            // The capture has ended. Its commands continue.
            return Ok(());
        }
        name.resize(usize::from(u16::from_ne_bytes(length)), 0);
        channel.read_exact(&mut name)?;
        if !is_of(pattern, OsStr::from_bytes(&name)) {
            return Err(io::Error::other("refused to run for a file that is not of the rotation"));
        }
        running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if running.len() >= MAX_RUNNING {
            running.remove(0).wait()?;
        }
        let started = Command::new(command).arg(argument(&name)).stdin(Stdio::null()).spawn();
        match started {
            Ok(child) => running.push(child),
            Err(error) => eprintln!("fyke: -z {command}: {error}"),
        }
    }
}

/// True if a name begins like the files of a pattern, and leads nowhere else.
fn is_of(pattern: &Path, name: &OsStr) -> bool {
    let fixed = pattern.as_os_str().as_bytes().split(|byte| *byte == b'%').next();
    let above = Path::new(name).components().filter(|part| *part == Component::ParentDir).count();
    let allowed = pattern.components().filter(|part| *part == Component::ParentDir).count();
    fixed.is_some_and(|fixed| name.as_bytes().starts_with(fixed)) && above == allowed
}

/// The name as an argument that no command takes for an option.
fn argument(name: &[u8]) -> OsString {
    let mut argument = OsString::from(if name.starts_with(b"-") { "./" } else { "" });
    argument.push(OsStr::from_bytes(name));
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_rotation_are_accepted() {
        let is_of = |pattern: &str, name: &str| super::is_of(Path::new(pattern), OsStr::new(name));
        for name in ["/tmp/out", "/tmp/out1", "/tmp/out.pcap"] {
            assert!(is_of("/tmp/out", name), "{name}");
        }
        assert!(is_of("web-%H.pcap", "web-17.pcap") && is_of("../a", "../a1"));
        for name in ["/etc/passwd", "/tmp/out/../../etc/passwd", "tmp/out", ""] {
            assert!(!is_of("/tmp/out", name), "{name}");
        }
        assert!(!is_of("../a", "../a/../../b"));
        assert_eq!(argument(b"-rf"), "./-rf");
        assert_eq!(argument(b"out"), "out");
    }
}
