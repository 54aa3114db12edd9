//! Folders in which the installed tshark looks for programs like this one.
//!
//! Wireshark 4.2 and later read a folder of the user besides that of the system; earlier versions read only one. So
//! tshark is called and tells its folders: `Extcap path:`, or `Personal Extcap path:` and `Global Extcap path:`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time for tshark to list its folders.
const LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of its list.
const MAX_BYTES: u64 = 32 << 10;

/// The folders that tshark reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// That of the user.
    pub personal: Option<PathBuf>,
    /// That of the system.
    pub system: Option<PathBuf>,
}

impl Folders {
    /// The folders of the tshark that is installed; `None` if there is none, or it lists none.
    pub fn of_tshark() -> Option<Folders> {
        let folders = Folders::read(&list()?);
        (folders != Folders::default()).then_some(folders)
    }

    /// Reads the list of tshark. Of several folders of a kind, the first.
    fn read(list: &str) -> Folders {
        let mut folders = Folders::default();
        for line in list.lines() {
            let Some((name, path)) = line.split_once(':') else { continue };
            let place = match name.trim().to_ascii_lowercase().as_str() {
                "personal extcap path" => &mut folders.personal,
                "extcap path" | "global extcap path" => &mut folders.system,
                _ => continue,
            };
            let path = Path::new(path.trim());
            if path.is_absolute() {
                place.get_or_insert_with(|| path.to_owned());
            }
        }
        folders
    }

    /// True if tshark reads this folder.
    pub fn contains(&self, folder: &Path) -> bool {
        let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.all().any(|one| resolved(one) == resolved(folder))
    }

    /// All of them, that of the user first.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        self.personal.iter().chain(&self.system).map(PathBuf::as_path)
    }
}

/// The output of `tshark -G folders`; `None` if it cannot be started or does not end.
fn list() -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-G", "folders"]).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let limit = Instant::now() + LIMIT;
    // The list fits into the pipe.
    let status = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(10)),
            Ok(Some(status)) => break status,
            _ => {
                let _ended_meanwhile = child.kill();
                let _ended = child.wait();
                return None;
            }
        }
    };
    let mut bytes = Vec::new();
    child.stdout.take()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    status.success().then(|| String::from_utf8_lossy(&bytes).into_owned())
}
