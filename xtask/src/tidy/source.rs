//! Rules for the content of every source file.

use super::rust_text::code_only;
use super::{Tree, Violation};

/// Macros that mark unfinished work or left-over debugging.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Folders that belong to one machine or one person. An absolute path that begins with one is valid
/// only there.
const PERSONAL: &[&str] = &["home", "root", "Users", "work", "workspace", "mnt"];

/// Checks opening documents, unfinished work, ignored tests and paths of one machine.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending_in(".rs") {
        if !text.starts_with("//!") {
            let message = "must open with `//!`: what it is, its place on the path, cost, source";
            found.push(Violation::new(path, 1, message));
        }
        check_code(path, &code_only(text), &mut found);
    }
    for (path, text) in tree.texts() {
        for (number, line) in text.lines().enumerate() {
            if let Some(folder) = personal_path(line) {
                let message = format!("`/{folder}/…` is a path of one machine");
                found.push(Violation::new(path, number + 1, message));
            }
        }
    }
    found
}

fn check_code(path: &str, code: &str, found: &mut Vec<Violation>) {
    for (number, line) in code.lines().enumerate() {
        for name in UNFINISHED.iter().filter(|name| has_macro(line, name)) {
            found.push(Violation::new(
                path,
                number + 1,
                format!("`{name}` is not for committed code"),
            ));
        }
        let dense: String = line.split_whitespace().collect();
        if dense.contains("#[ignore]") {
            let message = "an ignored test needs a reason: #[ignore = \"reason\"]";
            found.push(Violation::new(path, number + 1, message));
        }
    }
}

fn has_macro(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// The personal folder at the start of an absolute path in this line.
fn personal_path(line: &str) -> Option<&'static str> {
    line.match_indices('/').find_map(|(at, _)| {
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "/._-~}*)>".contains(c)) {
            return None;
        }
        let rest = &line[at + 1..];
        let named = |folder: &&&str| {
            let below = rest.strip_prefix(**folder).and_then(|rest| rest.strip_prefix('/'));
            below.is_some_and(|rest| rest.starts_with(|c: char| c.is_alphanumeric() || c == '.'))
        };
        PERSONAL.iter().find(named).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_without_an_opening_is_found() {
        assert!(messages("a.rs", "// x\n")[0].starts_with("a.rs:1: must open"));
        assert!(messages("a.rs", "//! x\n").is_empty());
    }

    #[test]
    fn unfinished_work_is_found_in_code_only() {
        let text =
            "//! todo!()\nfn f() { todo!(\"x\") }\nfn g() { my_todo!() }\nlet x = \"dbg!(\";\n";
        let found = messages("a.rs", text);
        assert_eq!(found, ["a.rs:2: `todo!` is not for committed code"]);
        assert_eq!(messages("a.rs", "//! x\ndbg!(x); unimplemented!()").len(), 2);
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        assert_eq!(messages("a.rs", "//! x\n#[ignore]\n").len(), 1);
        assert!(messages("a.rs", "//! x\n#[ignore = \"takes hours\"]\n").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found_everywhere() {
        for folder in ["home/me/x", "root/x", "work/repo", "Users/me"] {
            assert_eq!(messages("docs/a.md", &format!("see `/{folder}`")).len(), 1, "{folder}");
        }
        for fine in ["~/home/me", "https://x.org/home/me", "a/opt/b", "/roots/x", "/home/", "/opt"]
        {
            assert!(messages("docs/a.md", fine).is_empty(), "{fine}");
        }
    }
}
