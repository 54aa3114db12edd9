//! The only list of exceptions, each with its reason. An exception that is no longer needed is
//! itself a violation, so the list stays up to date.

use super::{Tree, Violation};

/// A file allowed to be longer than [`super::size::MAX_LINES`].
pub struct LongFile {
    /// Path from the root.
    pub path: &'static str,
    /// Most lines it may have.
    pub max_lines: usize,
    /// Reason why it is one file.
    pub reason: &'static str,
}

/// Files that may be longer than the rule.
pub const LONG_FILES: &[LongFile] = &[];

/// A crate allowed to have a larger circle of imports than [`super::circles::MAX_MODULES`].
pub struct Knot {
    /// The crate's folder.
    pub crate_name: &'static str,
    /// Modules of the largest circle.
    pub max_modules: usize,
    /// Why its modules need each other.
    pub reason: &'static str,
}

/// Crates that may have larger circles than the rule.
pub const KNOTS: &[Knot] = &[Knot {
    crate_name: "print",
    max_modules: 14,
    reason: "protocols carry each other: IP in a tunnel in UDP in IP, an IP header in an ICMP message",
}];

/// The longest line count allowed for a file.
pub fn max_lines(path: &str) -> usize {
    let listed = LONG_FILES.iter().find(|file| file.path == path);
    listed.map_or(super::size::MAX_LINES, |file| file.max_lines)
}

/// Checks that exceptions are needed and have a reason.
pub fn check(tree: &Tree) -> Vec<Violation> {
    unneeded(tree, LONG_FILES)
}

fn unneeded(tree: &Tree, list: &[LongFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in list {
        let lines = tree.text(file.path).map_or(0, |text| text.lines().count());
        if lines <= super::size::MAX_LINES {
            let message = format!("listed as a long file with {lines} lines: take it off the list");
            found.push(Violation::new(file.path, 0, message));
        }
        if file.reason.is_empty() {
            found.push(Violation::new(file.path, 0, "listed as a long file without a reason"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_that_is_not_needed_is_a_violation() {
        let tree = Tree::of(&[("a.rs", "short\n")]);
        let list = [LongFile { path: "a.rs", max_lines: 1000, reason: "" }];
        assert_eq!(unneeded(&tree, &list).len(), 2);
    }
}
