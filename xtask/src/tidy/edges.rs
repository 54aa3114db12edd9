//! Checks the dependencies between crates, and the files that every crate folder has.
//!
//! A crate uses only crates of lower levels. testkit is for tests; xtask depends on no crate.

use super::manifest::{Use, dependencies, entries};
use super::rust_text::{code_only, lines_with_word};
use super::{Tree, Violation};

/// Crates by level, lowest first; each on the lowest that its dependencies allow.
const LEVELS: &[&[&str]] = &[
    &["frame", "privilege"],
    &["control", "flow", "table", "print", "ring", "ruler"],
    &["filter", "fleet", "machine", "capture", "ids", "web"],
    &["pass"],
    &["kernel"],
    &["filters"],
    &["graph"],
    &["intercept", "serve", "track"],
    // `libpcap` is in bindings/.
    &["account", "lab", "fyke", "libpcap", "remote"],
    &["command"],
];

/// The crate for tests only; it may use crates below level 2 itself.
const TESTKIT: &str = "testkit";
const TESTKIT_LEVEL: usize = 2;

/// File with the reasons for external crates.
const REASONS: &str = "docs/decisions/0001-dependencies.md";

/// File in which every crate has a row.
const MAP: &str = "ARCHITECTURE.md";

/// The level, from 1; `None` for a crate without one.
fn level(name: &str) -> Option<usize> {
    if name == TESTKIT {
        return Some(TESTKIT_LEVEL);
    }
    LEVELS.iter().position(|crates| crates.contains(&name)).map(|index| index + 1)
}

/// The folder of a package of this workspace: `fyke-frame` is in `crates/frame`.
fn member(package: &str) -> Option<&str> {
    if package == "fyke" { Some("fyke") } else { package.strip_prefix("fyke-") }
}

/// Root files of libraries, programs and build scripts.
pub fn crate_roots(tree: &Tree) -> Vec<&str> {
    let is_root = |path: &str| {
        ["/src/lib.rs", "/src/main.rs"].iter().any(|end| path.ends_with(end))
            || path.contains("/src/bin/")
    };
    tree.ending_in(".rs").map(|(path, _)| path).filter(|path| is_root(path)).collect()
}

/// Checks levels, names, lints and that no crate is empty.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for name in tree.crates() {
        let path = format!("crates/{name}/Cargo.toml");
        match tree.text(&path) {
            Some(text) => check_crate(tree, name, &path, text, &mut found),
            None => found.push(Violation::new(&path, 0, "a folder in crates/ is a crate")),
        }
    }
    if let Some(text) = tree.text("xtask/Cargo.toml") {
        for dependency in dependencies(text) {
            let message = "xtask has no dependencies: it must build before everything else";
            found.push(Violation::new("xtask/Cargo.toml", dependency.line, message));
        }
    }
    found
}

fn check_crate(tree: &Tree, name: &str, path: &str, text: &str, found: &mut Vec<Violation>) {
    let entries = entries(text);
    let has = |table: &str, key: &str, value: &str| {
        entries.iter().any(|e| e.table == table && e.key == key && e.value == value)
    };
    let package = if name == "fyke" { "fyke".to_owned() } else { format!("fyke-{name}") };
    if !has("package", "name", &format!("\"{package}\"")) {
        found.push(Violation::new(path, 0, format!("the package must be named `{package}`")));
    }
    if !has("lints", "workspace", "true") {
        found.push(Violation::new(path, 0, "needs `[lints] workspace = true`"));
    }
    if level(name).is_none() {
        let message = "has no level: give it one in xtask/src/tidy/edges.rs and ARCHITECTURE.md";
        found.push(Violation::new(path, 0, message));
    }
    if !tree.text(MAP).unwrap_or_default().contains(&format!("`{name}`")) {
        found.push(Violation::new(path, 0, format!("`{name}` has no place in {MAP}")));
    }
    check_levels(name, path, text, found);
    let source = format!("crates/{name}/src/");
    let words = ["fn", "struct", "enum", "trait", "macro_rules"];
    // A crate that only gathers others re-exports them.
    let is_code = |text: &str| {
        text.contains("pub use ")
            || words.iter().any(|word| !lines_with_word(text, word).is_empty())
    };
    let rust = tree.ending_in(".rs").filter(|(path, _)| path.starts_with(&source));
    if !rust.map(|(_, text)| code_only(text)).any(|code| is_code(&code)) {
        found.push(Violation::new(
            path,
            0,
            "an empty crate: it appears with its first working code",
        ));
    }
}

fn check_levels(name: &str, path: &str, text: &str, found: &mut Vec<Violation>) {
    for dependency in dependencies(text) {
        if !dependency.from_workspace {
            let message =
                format!("`{}` must come from [workspace.dependencies]", dependency.package);
            found.push(Violation::new(path, dependency.line, message));
        }
        let Some(other) = member(dependency.package) else { continue };
        let message = match (other, dependency.used) {
            ("xtask", _) => "nothing depends on xtask".to_owned(),
            (TESTKIT | "libpcap", Use::Dev) => continue,
            (TESTKIT, _) => "testkit is a dev-dependency only".to_owned(),
            _ => match (level(name), level(other)) {
                (Some(own), Some(used)) if used < own => continue,
                (Some(own), Some(used)) => format!(
                    "`{name}` (level {own}) may not use `{other}` (level {used}): only lower levels"
                ),
                _ => format!("`{other}` has no level"),
            },
        };
        found.push(Violation::new(path, dependency.line, message));
    }
}

/// Checks that every external crate of the list has a written reason.
pub fn check_external(tree: &Tree) -> Vec<Violation> {
    let reasons = tree.text(REASONS).unwrap_or_default();
    let list = entries(tree.text("Cargo.toml").unwrap_or_default());
    let external = list.iter().filter(|e| e.table == "workspace.dependencies");
    external
        .filter(|entry| member(entry.key).is_none())
        .filter(|entry| !reasons.contains(&format!("| `{}` |", entry.key)))
        .map(|entry| {
            let message = format!("`{}` has no row `| `{0}` | …` in {REASONS}", entry.key);
            Violation::new("Cargo.toml", entry.line, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_with(name: &str, more: &str) -> Vec<String> {
        let manifest =
            format!("[package]\nname = \"fyke-{name}\"\n[lints]\nworkspace = true\n{more}");
        let (toml, lib) =
            (format!("crates/{name}/Cargo.toml"), format!("crates/{name}/src/lib.rs"));
        let map = format!("| `{name}` | … |");
        let tree = Tree::of(&[(&toml, &manifest), (&lib, "//! x\npub fn f() {}\n"), (MAP, &map)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_may_use_lower_levels_only() {
        assert!(crate_with("pass", "[dependencies]\nfyke-filter.workspace = true\n").is_empty());
        for other in ["pass", "kernel", "graph", "fyke"] {
            let more = format!("[dependencies]\nfyke-{other}.workspace = true\n");
            assert_eq!(crate_with("pass", &more).len(), 1, "{other}");
        }
        assert_eq!(crate_with("pass", "[dev-dependencies]\nfyke-lab.workspace = true\n").len(), 1);
        assert_eq!(crate_with("pass", "[dependencies]\nfyke-new.workspace = true\n").len(), 1);
    }

    #[test]
    fn testkit_is_for_tests() {
        let found = crate_with("pass", "[dependencies]\nfyke-testkit.workspace = true\n");
        assert!(found[0].ends_with("testkit is a dev-dependency only"), "{found:?}");
        assert!(
            crate_with("frame", "[dev-dependencies]\nfyke-testkit.workspace = true\n").is_empty()
        );
    }

    #[test]
    fn versions_come_from_one_list() {
        assert_eq!(crate_with("pass", "[dependencies]\nserde = \"1\"\n").len(), 1);
    }

    #[test]
    fn a_crate_has_a_name_lints_a_level_a_place_on_the_map_and_code() {
        let tree = Tree::of(&[("crates/new/Cargo.toml", "[package]\nname = \"new\"\n")]);
        assert_eq!(check(&tree).len(), 5);
        let tree = Tree::of(&[("crates/pass/src/lib.rs", "//! x\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn xtask_stands_alone() {
        let tree = Tree::of(&[("xtask/Cargo.toml", "[dependencies]\nanyhow.workspace = true\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn an_external_crate_needs_a_reason() {
        let root = "[workspace.dependencies]\nfyke-frame = { path = \"x\" }\nserde = \"1\"\n";
        assert_eq!(check_external(&Tree::of(&[("Cargo.toml", root)])).len(), 1);
        let reasons = "| `serde` | why | MIT |\n";
        let tree = Tree::of(&[("Cargo.toml", root), (REASONS, reasons)]);
        assert!(check_external(&tree).is_empty());
    }
}
