//! The house rules that a program can check: `cargo xtask tidy`.
//!
//! Every check is a function from the [`Tree`] of files to [`Violation`]s, so each has a test with
//! a bad sample. Exceptions are listed with their reasons in [`exceptions`] and nowhere else.

mod circles;
mod commands;
mod edges;
mod exceptions;
mod fences;
pub mod links;
mod manifest;
mod prose;
mod rust_text;
mod size;
mod source;
mod tree;

use crate::shell::Workspace;
use std::fmt;
use std::process::ExitCode;
pub use tree::Tree;

/// One place where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the root, with `/`.
    pub path: String,
    /// From 1; 0 means the whole file.
    pub line: usize,
    /// The error and the expected state.
    pub message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

type Check = fn(&Tree) -> Vec<Violation>;

const CHECKS: &[Check] = &[
    circles::check,
    edges::check,
    edges::check_external,
    exceptions::check,
    fences::check,
    links::check,
    size::check,
    source::check,
    commands::check,
    prose::check,
];

/// Records the number of hard-to-read turns of phrase; see [`prose`].
pub fn record(workspace: &Workspace) -> Result<ExitCode, String> {
    let text = prose::record(&Tree::load(&workspace.root)?);
    let path = workspace.root.join(prose::RECORD);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the workspace and prints the violations.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let tree = Tree::load(&workspace.root)?;
    let mut violations: Vec<Violation> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            for circle in circles::report(&tree) {
                eprintln!("tidy: largest circle of {circle}");
            }
            eprintln!("tidy: {} files in order; {}", tree.len(), prose::summary(&tree));
            Ok(ExitCode::SUCCESS)
        }
        count => Err(format!("tidy: {count} places to repair")),
    }
}
