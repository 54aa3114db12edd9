//! The corpus: capture files and filter texts that lie beside the repository, never in it.
//!
//! The folder is named by the environment variable `FYKE_SHARED`, else it is `shared` next to the repository. Where it
//! is missing, a test says so through [`Corpus::open`] and passes on the data it makes itself.

use std::fs;
use std::path::{Path, PathBuf};

/// Endings of capture files.
const CAPTURE_ENDINGS: &[&str] = &["pcap", "pcapng", "cap", "ntar"];

/// The shared folder.
#[derive(Debug, Clone)]
pub struct Corpus {
    root: PathBuf,
}

impl Corpus {
    /// Finds the folder; prints a line and returns `None` when there is none.
    pub fn open() -> Option<Corpus> {
        let named = std::env::var_os("FYKE_SHARED").map(PathBuf::from);
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
        let root = named.unwrap_or(beside);
        if root.join("traces").is_dir() {
            return Some(Corpus { root });
        }
        println!("skipped: no corpus at {} (set FYKE_SHARED)", root.display());
        None
    }

    /// A path in the folder.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The capture files below a folder of `traces` ("" = all), sorted by path.
    pub fn traces(&self, folder: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.root.join("traces").join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if is_capture(&path) {
                    files.push(path);
                }
            }
        }
        files.sort();
        files
    }

    /// The first frames of a classic capture file and their link type; `None` for anything else.
    pub fn frames(path: &Path, limit: usize) -> Option<(u16, Vec<Vec<u8>>)> {
        let bytes = fs::read(path).ok()?;
        let word = |at: usize, swapped: bool| {
            let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(if swapped { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
        };
        let swapped = match word(0, false)? {
            0xa1b2_c3d4 | 0xa1b2_3c4d => false,
            0xd4c3_b2a1 | 0x4d3c_b2a1 => true,
            _ => return None,
        };
        let (mut frames, mut at) = (Vec::new(), 24);
        while frames.len() < limit {
            let Some(length) = word(at + 8, swapped) else { break };
            let Some(frame) = bytes.get(at + 16..at + 16 + length as usize) else { break };
            frames.push(frame.to_vec());
            at += 16 + length as usize;
        }
        Some((word(20, swapped)? as u16, frames))
    }

    /// The text of a file.
    ///
    /// # Panics
    /// When the file is missing or no text: the corpus is there but broken.
    pub fn text(&self, relative: &str) -> String {
        let path = self.path(relative);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Filter texts that people use, with the name of their link type.
    pub fn real_filters(&self) -> Vec<(String, String)> {
        let text = self.text("filters/real-filters.txt");
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        rows.filter_map(|line| {
            let mut columns = line.split('\t');
            Some((columns.next()?.to_string(), columns.next()?.to_string()))
        })
        .collect()
    }
}

fn is_capture(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| CAPTURE_ENDINGS.contains(&ending))
}
