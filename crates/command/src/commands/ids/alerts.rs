//! Output of `fyke ids`: lines of text, or of JSON. A file of JSON is opened again when it has been moved away.

use super::super::{one_line, output};
use super::Failure;
use crate::cli::IdsArgs;
use anyhow::Context;
use fyke_ids::Alert;
use fyke_ids::eve::{self, Options};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Receiver of the alerts.
pub struct Alerts {
    out: Box<dyn Write>,
    json: Option<Options>,
    /// The file, which can be opened again.
    path: Option<PathBuf>,
    failed: io::Result<()>,
}

impl Alerts {
    /// Opens the output that the arguments name.
    pub fn open(args: &IdsArgs) -> Result<Alerts, Failure> {
        let json = args.eve.as_ref().map(|_| Options { payload: args.payload });
        let path = args.eve.clone().filter(|path| path.as_os_str() != "-");
        let out: Box<dyn Write> = match &path {
            None => Box::new(BufWriter::new(output())),
            Some(path) => {
                let file = create(path);
                Box::new(BufWriter::new(
                    file.with_context(|| format!("cannot create {}", path.display()))?,
                ))
            }
        };
        Ok(Alerts { out, json, path, failed: Ok(()) })
    }

    /// The file of alerts, if there is one that can be opened again: no device, no pipe.
    pub fn file(&self) -> Option<&Path> {
        self.path.as_deref().filter(|path| path.is_file())
    }

    /// Opens the file again, for the lines to come: a new one if the old one has been moved away. If that fails, they
    /// go to the old one.
    pub fn reopen(&mut self) {
        let Some(path) = &self.path else { return };
        let opened = File::options().append(true).create(true).open(path);
        match opened {
            Ok(file) => {
                self.flush();
                self.out = Box::new(BufWriter::new(file));
            }
            Err(error) => note!(
                "fyke: cannot open {} again: {error}; alerts go to the file that was open; let the user that fyke \
                 becomes write its folder, keep root with -Z root, or rotate by copying and truncating",
                path.display()
            ),
        }
    }

    /// Writes an alert.
    pub fn write(&mut self, alert: &Alert<'_>) {
        if self.failed.is_err() {
            return;
        }
        self.failed = match self.json {
            Some(options) => writeln!(self.out, "{}", eve::line(alert, options)),
            None => writeln!(self.out, "{}", one_line(&eve::text(alert))),
        };
    }

    /// Writes lines of JSON.
    pub fn write_lines(&mut self, lines: Vec<String>) {
        for line in lines {
            if self.failed.is_ok() {
                self.failed = writeln!(self.out, "{line}");
            }
        }
    }

    /// True if a line could not be written.
    pub fn has_failed(&self) -> bool {
        self.failed.is_err()
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) {
        if self.failed.is_ok() {
            self.failed = self.out.flush();
        }
    }

    /// Ends the output.
    ///
    /// # Errors
    /// If a line could not be written.
    pub fn end(&mut self) -> io::Result<()> {
        self.flush();
        std::mem::replace(&mut self.failed, Ok(()))
    }
}

/// Makes a file, or empties it. Lines are appended, so another program may empty it, too. A new file belongs to the
/// user that fyke becomes, so that it can be opened again.
fn create(path: &Path) -> io::Result<File> {
    match File::options().append(true).create_new(true).open(path) {
        Ok(file) => {
            fyke_privilege::user::hand_over(&file)?;
            return Ok(file);
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let file = File::create(path)?;
    if file.metadata()?.is_file() { File::options().append(true).open(path) } else { Ok(file) }
}
