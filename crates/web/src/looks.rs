//! Capture files that a page sends, and graphs that are drawn on it.
//!
//! A file has no name on the disk, and goes when the server ends or newer files take its place. Its frames are read by
//! another program ([`Looks`]), which is the place for a sandbox. A graph opens nothing besides the file.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of a file.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Most files that are kept.
const MAX_FILES: usize = 4;

/// Reader of capture files and graphs for a page.
pub trait Looks: Send + Sync + std::fmt::Debug {
    /// The classes of nodes that a graph of a page may have.
    fn classes(&self) -> Vec<DrawnClass>;

    /// Plans a graph, and opens nothing.
    ///
    /// # Errors
    /// The text is wrong, or has a node that opens something: the reason as text.
    fn draw(&self, graph: &str) -> Result<Drawing, String>;

    /// Checks a graph that is added to a running one. The sources that run have these texts; it may use no others.
    ///
    /// # Errors
    /// The text is wrong, or has a node that opens something: the reason as text.
    fn live(&self, graph: &str, sources: &[String]) -> Result<(), String>;

    /// Runs a graph on a file.
    ///
    /// # Errors
    /// As for [`draw`](Self::draw); or the file is damaged, or the run takes too long.
    fn run(&self, file: File, graph: &str) -> Result<Run, String>;

    /// The first frames of a file that a filter accepts, with their bytes.
    ///
    /// # Errors
    /// The text is wrong, or the file is damaged.
    fn frames(&self, file: File, filter: &str) -> Result<Vec<FileFrame>, String>;

    /// Explains a filter: its meaning and its compiled form.
    ///
    /// # Errors
    /// The text is wrong.
    fn explain(&self, filter: &str) -> Result<Value, String>;
}

/// A class of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrawnClass {
    /// Its name.
    pub name: String,
    /// Its purpose, one line.
    pub summary: String,
}

/// A graph that has been checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Drawing {
    /// The nodes; each comes after those that feed it.
    pub nodes: Vec<DrawnNode>,
    /// Warnings.
    pub notes: Vec<String>,
}

/// A node of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrawnNode {
    /// Its place in the graph, from 0.
    pub id: usize,
    /// Its name.
    pub node: String,
    /// Its text, with `!` if it is inverted.
    pub text: String,
    /// Edges to it: the place of the node at the start, and the class value of frames that pass.
    pub feeds: Vec<DrawnFeed>,
}

/// An edge of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DrawnFeed {
    /// Place of the node at its start.
    pub from: usize,
    /// Class value of frames that pass; `None` = every frame passes.
    pub class: Option<u32>,
}

/// Result of a graph on a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Run {
    /// The counts of the nodes, as [`fyke_control::NodeCount`].
    pub nodes: Vec<Value>,
    /// The sum of the frames, and remarks.
    pub notes: String,
}

/// A frame of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileFrame {
    /// Its line with its time.
    pub line: String,
    /// Its bytes, two hexadecimal digits each.
    pub bytes: String,
}

/// A question about a file or a graph.
#[derive(Debug, Deserialize)]
#[serde(tag = "look", rename_all = "snake_case", deny_unknown_fields)]
pub enum Look {
    /// The classes of nodes.
    Classes {},
    /// A graph is checked and drawn.
    Draw {
        /// Its text.
        graph: String,
    },
    /// A graph is run on a file.
    Run {
        /// Number of the file.
        file: u64,
        /// Its text.
        graph: String,
    },
    /// A filter is tried on a file.
    Frames {
        /// Number of the file.
        file: u64,
        /// The filter.
        filter: String,
    },
}

/// Answers a question; an error is an answer, too.
pub fn answer(look: &Look, looks: &dyn Looks, files: &Files) -> Vec<u8> {
    let value = match look {
        Look::Classes {} => json(Ok(looks.classes())),
        Look::Draw { graph } => json(looks.draw(graph)),
        Look::Run { file, graph } => {
            json(files.open(*file).and_then(|file| looks.run(file, graph)))
        }
        Look::Frames { file, filter } => {
            json(files.open(*file).and_then(|file| looks.frames(file, filter)))
        }
    };
    serde_json::to_vec(&value).unwrap_or_default()
}

fn json(result: Result<impl Serialize, String>) -> Value {
    let value = result.and_then(|it| serde_json::to_value(it).map_err(|error| error.to_string()));
    value.unwrap_or_else(|error| serde_json::json!({ "error": error }))
}

/// The files of the pages of a server.
#[derive(Debug, Default)]
pub struct Files {
    kept: Mutex<(u64, VecDeque<(u64, File)>)>,
}

impl Files {
    /// Makes an empty file without a name.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written.
    pub fn create(name: &str) -> io::Result<File> {
        let path = std::env::temp_dir().join(format!("fyke-web-{name}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }

    /// Keeps a complete file; returns its number. The oldest goes if there are too many.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, mut file: File) -> io::Result<u64> {
        file.flush()?;
        let mut kept = self.lock();
        kept.0 += 1;
        let number = kept.0;
        kept.1.push_back((number, file));
        while kept.1.len() > MAX_FILES {
            kept.1.pop_front();
        }
        Ok(number)
    }

    /// Opens a file at its beginning.
    fn open(&self, number: u64) -> Result<File, String> {
        let kept = self.lock();
        let found = kept.1.iter().find(|one| one.0 == number);
        let (_, file) = found.ok_or("this file is no longer kept: drop it again")?;
        let opened = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        opened.map_err(|error| format!("cannot read the file again: {error}"))
    }

    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<(u64, File)>)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_oldest_file_goes_and_none_has_a_name() {
        let files = Files::default();
        for number in 1..=5 {
            let mut file = Files::create(&format!("test-{}-{number}", std::process::id())).unwrap();
            write!(file, "{number}").unwrap();
            assert_eq!(files.keep(file).unwrap(), number);
        }
        assert!(files.open(1).unwrap_err().contains("drop it again"));
        for _ in 0..2 {
            let mut text = String::new();
            files.open(5).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "5", "each reader begins at the start");
        }
        let name = format!("fyke-web-test-{}-5", std::process::id());
        assert!(!std::env::temp_dir().join(name).exists());
    }
}
