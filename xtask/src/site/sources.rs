//! The files of the site: pages of the table of contents, and what they link to.

use crate::tidy::links::{links, resolve};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::Path;

/// Longest list of files that a page for a folder has.
const LISTED: usize = 200;

/// Paths from the root of the repository.
pub struct Sources {
    /// The table of contents, with these paths.
    summary: String,
    pages: BTreeSet<String>,
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
}

impl Sources {
    /// Follows the links from a table of contents.
    pub fn collect(root: &Path, summary: &str) -> Result<Sources, String> {
        let text = read(root, summary)?;
        let mut sources = Sources {
            summary: from_root(&text, summary),
            pages: BTreeSet::new(),
            files: BTreeSet::new(),
            folders: BTreeSet::new(),
        };
        let named: Vec<String> = targets(summary, &text).collect();
        let mut waiting: VecDeque<String> = named.iter().cloned().collect();
        let mut further = Vec::new();
        while let Some(path) = waiting.pop_front() {
            if root.join(&path).is_dir() {
                sources.folders.insert(path.clone());
                sources.files.extend(files_of(root, &path)?);
            } else if !path.ends_with(".md") {
                sources.files.insert(path);
            } else if sources.pages.insert(path.clone()) {
                let text = read(root, &path)?;
                if !named.contains(&path) {
                    further.push((title(&text).unwrap_or(&path).to_owned(), path.clone()));
                }
                waiting.extend(targets(&path, &text));
            }
        }
        // A page of a folder that lists its files has the place of a README.md.
        sources.folders.retain(|folder| !sources.pages.contains(&format!("{folder}/README.md")));
        if !(further.is_empty() && sources.folders.is_empty()) {
            sources.summary.push_str("\n# Further pages\n\n");
        }
        for (title, path) in further {
            let _infallible = writeln!(sources.summary, "- [{title}]({path})");
        }
        for folder in &sources.folders {
            let _infallible = writeln!(sources.summary, "- [{folder}]({folder}/README.md)");
        }
        Ok(sources)
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages.len() + self.folders.len()
    }

    /// Copies them to the folder of the book.
    pub fn copy(&self, root: &Path, to: &Path) -> Result<(), String> {
        for path in &self.pages {
            write(&to.join(path), to_indices(&read(root, path)?).as_bytes())?;
        }
        for path in &self.files {
            let bytes = std::fs::read(root.join(path)).map_err(|e| format!("{path}: {e}"))?;
            write(&to.join(path), &bytes)?;
        }
        for folder in &self.folders {
            let mut text = format!("# {folder}\n\n");
            for file in self.files.iter().filter_map(|file| file.strip_prefix(folder)).take(LISTED)
            {
                if let Some(name) = file.strip_prefix('/') {
                    let _infallible = writeln!(text, "- [{name}]({name})");
                }
            }
            write(&to.join(folder).join("README.md"), text.as_bytes())?;
        }
        write(&to.join("SUMMARY.md"), self.summary.as_bytes())
    }
}

/// The files that a page links to, by paths from the root.
fn targets(page: &str, text: &str) -> impl Iterator<Item = String> {
    let local = |link: &&str| !link.contains("://") && !link.starts_with("mailto:");
    let files = links(text).into_iter().map(|(_, link)| link).filter(local);
    let files = files.map(|link| link.split('#').next().unwrap_or(link));
    files.filter(|file| !file.is_empty()).filter_map(|file| resolve(page, file))
}

/// The table with paths from the root instead of paths from its own folder.
fn from_root(text: &str, summary: &str) -> String {
    let mut changed = String::with_capacity(text.len());
    for line in text.lines() {
        let link = line.split_once("](").and_then(|(before, rest)| {
            let (path, after) = rest.split_once(')')?;
            Some(format!("{before}]({}){after}", resolve(summary, path)?))
        });
        changed.push_str(&link.unwrap_or_else(|| line.to_owned()));
        changed.push('\n');
    }
    changed
}

/// A page with links to `index.md` in place of `README.md`: mdBook renames these pages, but not the links to them.
fn to_indices(text: &str) -> String {
    let mut pieces = text.split("](");
    let mut changed = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        changed.push_str("](");
        match piece.split_once(')') {
            Some((link, rest)) => {
                changed.push_str(&link.replace("README.md", "index.md"));
                changed.push(')');
                changed.push_str(rest);
            }
            None => changed.push_str(piece),
        }
    }
    changed
}

/// The first heading of a page.
fn title(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("# "))
}

/// The files in a folder, without those of its folders.
fn files_of(root: &Path, folder: &str) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(root.join(folder)).map_err(|e| format!("{folder}: {e}"))?;
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name != "README.md").map(|name| format!("{folder}/{name}")).collect())
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_table_are_those_from_the_root() {
        let text = "# Summary\n\n- [a](../README.md)\n  - [b](c.md)\n---\n";
        let expected = "# Summary\n\n- [a](README.md)\n  - [b](docs/c.md)\n---\n";
        assert_eq!(from_root(text, "docs/SUMMARY.md"), expected);
    }

    #[test]
    fn links_to_a_readme_lead_to_its_page() {
        let text = "README.md [a](../README.md#x) [b](c.md) (README.md) [d](README.md)";
        let expected = "README.md [a](../index.md#x) [b](c.md) (README.md) [d](index.md)";
        assert_eq!(to_indices(text), expected);
    }

    #[test]
    fn linked_files_are_found_without_their_headings() {
        let text = "[a](../x.md#y) [b](#z) [c](https://e.org/x) [d](../src) `[e](f)`";
        let found: Vec<String> = targets("docs/p.md", text).collect();
        assert_eq!(found, ["x.md", "src"]);
        assert_eq!(title("x\n# A page\n# B"), Some("A page"));
    }
}
