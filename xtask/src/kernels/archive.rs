//! The archive that a kernel unpacks into memory before it starts the first program: cpio's "newc" format.
//!
//! Each entry is a header of hexadecimal numbers, its name and its bytes, both padded to four bytes; an entry named
//! `TRAILER!!!` ends the archive. Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// An archive under construction.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<PathBuf>,
    entries: u32,
}

impl Archive {
    /// Adds a file with its bytes, and the folders above it. `path` is absolute.
    pub fn add(&mut self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
        let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
        parents.reverse();
        for parent in parents.into_iter().skip(1) {
            if self.folders.insert(parent.to_owned()) {
                self.entry(parent, &[], FOLDER | 0o755)?;
            }
        }
        self.entry(path, bytes, FILE | mode)
    }

    /// Adds a copy of a file; a link is replaced by its target.
    pub fn add_file(&mut self, path: &Path, from: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", from.display());
        let bytes = fs::read(from).map_err(failed)?;
        let mode = fs::metadata(from).map_err(failed)?.permissions().mode() & 0o777;
        self.add(path, &bytes, mode)
    }

    /// Adds a folder and everything in it, under its own path.
    pub fn add_folder(&mut self, folder: &Path) -> Result<(), String> {
        let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => self.add_folder(&path)?,
                false => self.add_file(&path, &path)?,
            }
        }
        Ok(())
    }

    /// Ends the archive and writes it.
    pub fn write(mut self, path: &Path) -> io::Result<()> {
        self.entry(Path::new("TRAILER!!!"), &[], 0).map_err(io::Error::other)?;
        fs::write(path, &self.bytes)
    }

    fn entry(&mut self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
        self.entries += 1;
        let name = path.strip_prefix("/").unwrap_or(path).display().to_string();
        let too_long = |_| format!("{name}: too long for the archive");
        let len = u32::try_from(bytes.len()).map_err(too_long)?;
        let name_len = u32::try_from(name.len() + 1).map_err(too_long)?;
        // Number, mode, owner, group, links, time, length, device, its device, name's length, checksum.
        let numbers = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.fill();
        self.bytes.extend_from_slice(bytes);
        self.fill();
        Ok(())
    }

    fn fill(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_folders_come_first_and_once() {
        let mut archive = Archive::default();
        archive.add(Path::new("/a/b"), b"12345", 0o755).unwrap();
        archive.add(Path::new("/a/c"), b"", 0o644).unwrap();
        assert_eq!(archive.bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive.bytes);
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/c\0"));
        assert_eq!(text.matches("070701").count(), 3);
        // The bytes of a file start at a multiple of four.
        assert_eq!(at("12345") % 4, 0);
    }
}
