//! The files of the repository, read once; in tests, a few invented ones.

use std::collections::BTreeMap;
use std::path::Path;

/// Text by path from the root; `None` for files that are not UTF-8 or too large for source.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

/// Larger files are data.
const LIMIT_BYTES: u64 = 2 << 20;

impl Tree {
    /// Reads everything below `root` except build output and hidden folders (`.ci` and `.cargo` are
    /// read).
    pub fn load(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        tree.load_folder(root, "")?;
        Ok(tree)
    }

    /// A tree for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let entry = |(path, text): &(&str, &str)| ((*path).to_owned(), Some((*text).to_owned()));
        Tree { files: files.iter().map(entry).collect() }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// True if there is a file or a folder at this path.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// Path and text of every text file.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Path and text of the text files with names that end in `ending`.
    pub fn ending_in(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| path.ends_with(ending))
    }

    /// Names of the folders directly below `crates/`.
    pub fn crates(&self) -> Vec<&str> {
        let below = self.files.keys().filter_map(|path| path.strip_prefix("crates/"));
        let mut names: Vec<&str> = below.filter_map(|p| p.split_once('/')).map(|p| p.0).collect();
        names.dedup();
        names
    }

    fn load_folder(&mut self, folder: &Path, prefix: &str) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                let hidden = name.starts_with('.') && !matches!(path.as_str(), ".ci" | ".cargo");
                // Cargo puts this file into every target folder, whatever its name.
                if !hidden && !entry.path().join("CACHEDIR.TAG").exists() {
                    self.load_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if kind.is_file() && name != ".git" {
                let small = entry.metadata().map_err(failed)?.len() <= LIMIT_BYTES;
                let bytes =
                    if small { std::fs::read(entry.path()).map_err(failed)? } else { vec![0xff] };
                self.files.insert(path, String::from_utf8(bytes).ok());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_files_are_both_there() {
        let tree = Tree::of(&[("docs/x/a.md", ""), ("docs/y.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/x/") && tree.has("docs/y.md") && tree.has(""));
        assert!(!tree.has("doc") && !tree.has("docs/z"));
    }

    #[test]
    fn the_repository_itself_is_read_without_its_build_output() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tree = Tree::load(root).unwrap();
        assert!(tree.crates().contains(&"frame"));
        assert!(tree.text("xtask/src/main.rs").is_some());
        assert!(tree.has(".ci/run"));
        assert!(!tree.has("target/debug") && !tree.has(".git"));
    }
}
