//! The library alone: which crates it uses without features, and its tests in that form.
//!
//! A build of the whole workspace unites the features of its members, so it shows neither.

use crate::shell::{Workspace, shown, status};
use std::process::ExitCode;

/// Crates that the library uses only for one of its features, or never.
const NOT_BY_DEFAULT: [&str; 4] = ["anyhow", "aya", "clap", "cranelift-codegen"];

/// Checks what the library uses, then tests it and the pseudo machines.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let tree =
        ["tree", "--locked", "--package", "fyke", "--edges", "normal,build", "--prefix", "none"];
    let mut command = workspace.cargo(&tree);
    let ran = command.output().map_err(|e| format!("cannot start `{}`: {e}", shown(&command)))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
    }
    let heavy = not_by_default(&String::from_utf8_lossy(&ran.stdout));
    if !heavy.is_empty() {
        return Err(format!("the library uses {} without a feature", heavy.join(", ")));
    }
    let tests = ["test", "--locked", "--package", "fyke", "--package", "fyke-machine"];
    let mut command = workspace.cargo(&tests);
    eprintln!("$ {}", shown(&command));
    status(&mut command)
}

/// Those of [`NOT_BY_DEFAULT`] that a tree of `cargo tree --prefix none` names.
fn not_by_default(tree: &str) -> Vec<&'static str> {
    let used = |name: &&str| tree.lines().any(|line| line.split(' ').next() == Some(*name));
    NOT_BY_DEFAULT.into_iter().filter(used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_features_are_found_in_a_tree() {
        let tree = "fyke v0.1.0 (/x)\nfyke-graph v0.1.0\nanyhow-like v1\nlibc v0.2\n";
        assert!(not_by_default(tree).is_empty());
        let tree = "fyke v0.1.0\ncranelift-codegen v0.135.8\naya v0.14.0 (*)\n";
        assert_eq!(not_by_default(tree), ["aya", "cranelift-codegen"]);
    }
}
