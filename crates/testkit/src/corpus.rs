//! The corpus: capture files and filter expressions for the tests of all crates.
//!
//! The corpus has two parts. The project's own part always exists: [`crate::generate`] makes the captures and writes
//! them below the target folder once; the filter expressions are in `testdata`. The other part is a folder with more
//! captures next to the repository, named by the environment variable `FYKE_SHARED`, else `shared`. If it is missing,
//! no test is skipped; the tests only use fewer captures.

use crate::generate;
use serde::Deserialize;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// File name extensions of capture files.
const CAPTURE_ENDINGS: &[&str] = &["pcap", "pcapng", "cap", "ntar"];

/// Folders of captures and filter expressions.
#[derive(Debug, Clone)]
pub struct Corpus {
    own: PathBuf,
    shared: Option<PathBuf>,
}

/// A filter expression that is valid or invalid for a link type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    /// The text.
    pub text: String,
    /// The link type, by libpcap's name without `DLT_`.
    pub link: String,
    /// True if libpcap accepts it.
    pub is_right: bool,
    /// True for the project's own corpus, which is valid for every version of libpcap.
    pub is_own: bool,
}

#[derive(Deserialize)]
struct Groups {
    group: Vec<Group>,
}

/// Valid and invalid expressions, for each of these link types.
#[derive(Deserialize)]
struct Group {
    links: Vec<String>,
    #[serde(default)]
    right: Vec<String>,
    #[serde(default)]
    wrong: Vec<String>,
}

#[derive(Deserialize)]
struct SharedCases {
    cases: Vec<SharedCase>,
}

#[derive(Deserialize)]
struct SharedCase {
    expression: String,
    dlt: String,
    expect: String,
}

impl Corpus {
    /// Makes the project's own part if it does not exist, and looks for the other one.
    ///
    /// # Panics
    /// When the project's own part cannot be written.
    pub fn open() -> Corpus {
        static OWN: OnceLock<PathBuf> = OnceLock::new();
        let own = OWN.get_or_init(write_own).clone();
        let named = std::env::var_os("FYKE_SHARED").map(PathBuf::from);
        let root = named.unwrap_or_else(|| repository().join("../shared"));
        Corpus { own, shared: root.join("traces").is_dir().then_some(root) }
    }

    /// Returns a capture of the project's own part, such as `mixed/busy.pcap`.
    pub fn own(&self, name: &str) -> PathBuf {
        self.own.join(name)
    }

    /// Returns a file of the other part, if it exists.
    pub fn shared(&self, relative: &str) -> Option<PathBuf> {
        Some(self.shared.as_ref()?.join(relative))
    }

    /// Returns captures of some thousand mixed frames.
    pub fn busy(&self) -> Vec<PathBuf> {
        let shared = self.shared("traces/mixed/snabb__sanitized4k.pcap");
        std::iter::once(self.own("mixed/busy.pcap")).chain(shared).collect()
    }

    /// Returns the capture files of a folder ("" = all) of both parts, sorted by path within each.
    pub fn traces(&self, folder: &str) -> Vec<PathBuf> {
        let mut all = captures(&self.own.join(folder));
        let shared = self.shared("traces").map(|traces| captures(&traces.join(folder)));
        all.extend(shared.into_iter().flatten());
        all
    }

    /// Reads the first frames of a classic capture file and their link type; `None` for other files.
    pub fn frames(path: &Path, limit: usize) -> Option<(u16, Vec<Vec<u8>>)> {
        let (link, records) = crate::pcap::read(path, limit)?;
        Some((link, records.into_iter().map(|record| record.data).collect()))
    }

    /// Returns typical filter expressions, with the name of their link type.
    pub fn real_filters(&self) -> Vec<(String, String)> {
        let own = text(&repository().join("testdata/filters-in-use.txt"));
        let shared = self.shared("filters/real-filters.txt").map(|path| text(&path));
        let both = [own, shared.unwrap_or_default()].concat();
        let rows = both.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        rows.filter_map(|line| {
            let mut columns = line.split('\t');
            Some((columns.next()?.to_string(), columns.next()?.to_string()))
        })
        .collect()
    }

    /// Returns expressions of all kinds, valid and invalid.
    pub fn expressions(&self) -> Vec<Expression> {
        let own = text(&repository().join("testdata/filter-cases.toml"));
        let groups: Groups = toml::from_str(&own).expect("the cases are TOML of that shape");
        let mut all = Vec::new();
        for group in groups.group {
            for link in &group.links {
                for (texts, is_right) in [(&group.right, true), (&group.wrong, false)] {
                    let one = |text: &String| Expression {
                        text: text.clone(),
                        link: link.clone(),
                        is_right,
                        is_own: true,
                    };
                    all.extend(texts.iter().map(one));
                }
            }
        }
        if let Some(path) = self.shared("filters/libpcap-expressions.json") {
            let cases: SharedCases =
                serde_json::from_str(&text(&path)).expect("the suite is JSON of that shape");
            all.extend(cases.cases.into_iter().map(|case| Expression {
                text: case.expression,
                link: case.dlt,
                is_right: case.expect == "accept",
                is_own: false,
            }));
        }
        all
    }
}

/// Returns the root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes the captures below the target folder, into a folder named by a hash of their content, and returns that
/// folder. Several programs may do so at the same time: each writes its own folder and renames it; the first one
/// succeeds.
fn write_own() -> PathBuf {
    let files = generate::all();
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|file| (&file.name, &file.bytes).hash(&mut hasher));
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or(repository().join("target"), PathBuf::from);
    let folder = target.join(format!("corpus/{:016x}", hasher.finish()));
    if folder.is_dir() {
        return folder;
    }
    let draft = target.join(format!("corpus/draft-{}", std::process::id()));
    for file in &files {
        let path = draft.join(&file.name);
        let written = fs::create_dir_all(path.parent().unwrap_or(&draft))
            .and_then(|()| fs::write(&path, &file.bytes));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    if fs::rename(&draft, &folder).is_err() {
        assert!(folder.is_dir(), "{}: cannot be made", folder.display());
        let _ = fs::remove_dir_all(&draft);
    }
    folder
}

/// Returns the capture files below a folder, sorted by path.
fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
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

fn is_capture(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| CAPTURE_ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_part_is_there_without_anything_beside_the_repository() {
        let corpus = Corpus { shared: None, ..Corpus::open() };
        assert!(corpus.traces("").len() > 300);
        assert!(corpus.real_filters().len() >= 150);
        let expressions = corpus.expressions();
        let right = expressions.iter().filter(|one| one.is_right).count();
        assert!(right > 500 && expressions.len() - right > 200, "{right}");
    }
}
