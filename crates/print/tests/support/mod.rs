//! Where the shared captures are.

use std::path::{Path, PathBuf};

/// The folder with captures, or `None` with a line that says so.
pub fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FYKE_SHARED").map_or(beside, PathBuf::from);
    let traces = shared.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    println!("skipped: no captures (set FYKE_SHARED)");
    None
}

/// Files of a folder, sorted by name.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}
