//! The files of the paper's `/proc/net/ethX`: named pipes that take commands, for the shell's `echo`.
//!
//! | file | a line | effect |
//! |---|---|---|
//! | `rules` | `+ip=…,port=…`, `-proto=tcp`, any command | as `fyke rules IF` |
//! | `enable` | `0`, `1` | off: every frame passes |
//! | `reset` | `1` | removes all rules |
//! | `rules.error` | (to read) | the lines that were refused, with the reason |
//!
//! They are in the folder `rules-IF` beside the control socket, mode 0600; if a fyke has this folder for an interface
//! of the same name in another network namespace, in `rules-IF-NAMESPACE`. Each pipe has a thread, which reads lines:
//! writers of a whole line at a time (up to 4,096 bytes) do not mix, and a line without an end ends with its writer.
//! The files are removed when this value is dropped, and after a kill by a process that watches for it ([`remover`]);
//! if that was killed, too, the next owner replaces them.

use super::super::space::namespace;
use super::remover;
use fyke_control::{NameLock, RuntimeDir};
use fyke_graph::RuleSet;
use fyke_kernel::sys::objects::Watch;
use fyke_privilege::child::Child;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Most bytes of a line; the longest command is shorter.
const MAX_LINE_BYTES: usize = 1024;
/// Bytes of refused lines that are kept; after that, the file begins again.
const MAX_ERROR_BYTES: usize = 64 << 10;
const RULES: &str = "rules";
const ENABLE: &str = "enable";
const RESET: &str = "reset";
/// The pipes.
pub const PIPES: [&str; 3] = [RULES, ENABLE, RESET];
/// The file of refused lines.
pub const ERRORS: &str = "rules.error";
/// Longest time for the end of the process that removes files.
const PATIENCE: Duration = Duration::from_millis(500);

/// The files of one interface.
pub struct Pipes {
    /// The folder of control sockets.
    runtime: PathBuf,
    folder: PathBuf,
    /// Keeps others out of the folder.
    lock: Option<NameLock>,
    /// Removes the files if this process is killed.
    remover: Option<Child>,
}

impl Pipes {
    /// Makes the files in `runtime`, the folder of control sockets, and begins to read them. Those of an owner that was
    /// killed are replaced. This process must have a single thread.
    ///
    /// # Errors
    /// The files cannot be made.
    pub fn open(runtime: &Path, interface: &str, rules: &RuleSet) -> io::Result<Pipes> {
        let (folder, lock) = reserve(runtime, interface)?;
        if let Ok(left) = remover::open(&folder) {
            remover::remove(&left);
        }
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let remover = remover::start(&folder).inspect_err(|error| {
            note!("fyke: the pipes of the rules stay if this process is killed: {error}");
        });
        let pipes = Pipes { runtime: runtime.to_owned(), folder, lock, remover: remover.ok() };
        let path = pipes.folder.join(ERRORS);
        let errors = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        let errors = Arc::new(Mutex::new(Errors { file: errors, bytes: 0 }));
        for name in PIPES {
            pipes.listen(name, rules.clone(), Arc::clone(&errors))?;
        }
        Ok(pipes)
    }

    /// Gives the folder the name for another name of the interface. Programs that have a pipe open continue to write.
    ///
    /// # Errors
    /// The folder cannot be renamed; then it keeps its name.
    pub fn rename(&mut self, interface: &str) -> io::Result<()> {
        let (folder, lock) = reserve(&self.runtime, interface)?;
        // That of an owner that was killed.
        if let Ok(left) = remover::open(&folder) {
            remover::remove(&left);
        }
        std::fs::rename(&self.folder, &folder)?;
        self.folder = folder;
        self.lock = lock;
        Ok(())
    }

    /// The folder of the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn listen(
        &self,
        name: &'static str,
        rules: RuleSet,
        errors: Arc<Mutex<Errors>>,
    ) -> io::Result<()> {
        let path = self.folder.join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let flags = OFlags::NONBLOCK.bits() as i32;
        let pipe = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        let watch = Watch::of(pipe.as_fd())?;
        let work = move || {
            let took = |line: Line<'_>| {
                let refused = match line {
                    Line::Whole(line) => execute(name, line, &rules).err(),
                    Line::TooLong => Some(format!("a line has at most {MAX_LINE_BYTES} bytes")),
                };
                if let Some(refused) = refused {
                    errors.lock().unwrap_or_else(PoisonError::into_inner).add(&refused);
                }
            };
            if let Err(error) = read_lines(pipe, || watch.wait(), took) {
                note!("fyke: the pipe {name} of the rules cannot be read: {error}");
            }
        };
        thread::Builder::new().name(format!("rules-{name}")).spawn(work)?;
        Ok(())
    }
}

impl Drop for Pipes {
    /// Removes the files, before the lock.
    fn drop(&mut self) {
        if let Ok(folder) = remover::open(&self.folder) {
            remover::remove(&folder);
        }
        let _ended = self.remover.as_ref().is_none_or(|remover| remover.end(PATIENCE));
    }
}

/// Returns the name of the folder for an interface, and the lock that keeps others out of it.
fn reserve(runtime: &Path, interface: &str) -> io::Result<(PathBuf, Option<NameLock>)> {
    let name = format!("rules-{interface}");
    let lock = RuntimeDir::try_lock(&format!("pipes-{interface}"))?;
    let folder = match &lock {
        Some(_) => runtime.join(name),
        // Only one owner of the interface's rules is in this namespace.
        None => runtime.join(format!("{name}-{}", namespace()?)),
    };
    Ok((folder, lock))
}

/// The file of refused lines.
struct Errors {
    file: File,
    bytes: usize,
}

impl Errors {
    fn add(&mut self, refused: &str) {
        if self.bytes + refused.len() > MAX_ERROR_BYTES {
            // If this fails, the file grows a little further.
            let _grows = self.file.set_len(0);
            self.bytes = 0;
        }
        self.bytes += refused.len() + 1;
        if let Err(error) = writeln!(self.file, "{refused}") {
            note!("fyke: {refused}\nfyke: {ERRORS} cannot be written: {error}");
        }
    }
}

/// A line of a pipe, without its end.
enum Line<'a> {
    Whole(&'a [u8]),
    TooLong,
}

/// Calls `took` with each line, as long as the pipe can be read; `wait` waits for data, or for the end of a writer.
fn read_lines(
    mut pipe: impl Read,
    mut wait: impl FnMut() -> io::Result<()>,
    mut took: impl FnMut(Line<'_>),
) -> io::Result<()> {
    let (mut buffer, mut line, mut is_long) = ([0; 4096], Vec::new(), false);
    loop {
        let count = match pipe.read(&mut buffer) {
            // The last writer has ended, and with it its line.
            Ok(0) => {
                if !line.is_empty() && !is_long {
                    took(Line::Whole(&line));
                }
                line.clear();
                is_long = false;
                wait()?;
                continue;
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait()?;
                continue;
            }
            Err(error) => return Err(error),
        };
        for &byte in &buffer[..count] {
            match byte {
                b'\n' if is_long => is_long = false,
                b'\n' => took(Line::Whole(&line)),
                _ if is_long => continue,
                _ if line.len() < MAX_LINE_BYTES => {
                    line.push(byte);
                    continue;
                }
                _ => {
                    is_long = true;
                    took(Line::TooLong);
                }
            }
            line.clear();
        }
    }
}

/// Executes a line of a pipe; an empty one does nothing.
fn execute(pipe: &str, line: &[u8], rules: &RuleSet) -> Result<(), String> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim();
    if line.is_empty() {
        return Ok(());
    }
    let command = match pipe {
        ENABLE => format!("enable {line}"),
        RESET if line == "1" => "reset".to_owned(),
        RESET => return Err(format!("{line}\n^ expected 1")),
        _ => line.to_owned(),
    };
    rules.command(&command).map(|_shown| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> (Vec<String>, usize) {
        let (mut whole, mut long) = (Vec::new(), 0);
        // The writer ends, and no other one comes.
        let over = || Err(io::ErrorKind::UnexpectedEof.into());
        let took = |line: Line<'_>| match line {
            Line::Whole(line) => whole.push(String::from_utf8_lossy(line).into_owned()),
            Line::TooLong => long += 1,
        };
        assert_eq!(read_lines(text, over, took).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        (whole, long)
    }

    #[test]
    fn lines_end_at_line_ends_and_long_ones_are_left_out() {
        assert_eq!(
            lines(b"a\n\nbc\nrest"),
            (vec!["a".into(), String::new(), "bc".into(), "rest".into()], 0)
        );
        let long = [&b"x\n"[..], &[b'y'; 5000], b"\nz\n"].concat();
        assert_eq!(lines(&long), (vec!["x".into(), "z".into()], 1));
    }

    #[test]
    fn each_pipe_takes_its_own_lines() {
        let rules = RuleSet::new(false);
        assert!(execute(RULES, b" +port=80 ", &rules).is_ok());
        assert!(execute(ENABLE, b"1", &rules).is_ok());
        assert!(rules.command("list").unwrap().starts_with("enable 1\nnegative 0\n+port=80\n"));
        assert!(execute(ENABLE, b"2", &rules).unwrap_err().contains("0 or 1"));
        assert!(execute(RESET, b"0", &rules).unwrap_err().contains("expected 1"));
        assert!(execute(RULES, b"+port=\xff", &rules).unwrap_err().contains('^'));
        assert!(execute(RESET, b"1", &rules).is_ok());
        assert!(!rules.command("list").unwrap().contains("port"));
    }
}
