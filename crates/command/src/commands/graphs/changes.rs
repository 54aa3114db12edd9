//! Edits of the texts of graphs by clients: the change that is refused, and files that an undo would overwrite.

use super::classes;
use fyke_control::MAX_CHANGES;
use fyke_filters::{Change, FilterError, GroupError, Planned};
use fyke_graph::Plan;
use std::collections::BTreeSet;

/// Most changes that are looked at alone for the one that is wrong.
const MAX_BLAMED: usize = 100;
const _: () = assert!(MAX_BLAMED <= MAX_CHANGES);

/// The error of an edit, at the change with a text that is wrong alone, or else at the last change.
pub fn wrong_change(
    edit: &Planned<'_>,
    message: String,
    is_wrong: impl Fn(&str) -> bool,
) -> GroupError {
    let wrong = |change: &Change<'_>| match change {
        Change::Add(text) | Change::Set(text) => is_wrong(text),
        Change::Remove(_) => false,
    };
    let last = edit.changes.len().saturating_sub(1);
    let blamed = edit.changes.iter().take(MAX_BLAMED).position(wrong);
    GroupError { place: blamed.unwrap_or(last), error: FilterError::Program(message) }
}

/// Refuses graphs that would write a file from its beginning that the old ones do not write, and that has content.
pub fn check_files<T: AsRef<str>>(
    old: impl Iterator<Item = T>,
    new: impl Iterator<Item = T>,
) -> Result<(), String> {
    let old = files(old);
    let has_content = |name: &&String| {
        std::fs::metadata(name).is_ok_and(|found| found.is_file() && found.len() > 0)
    };
    match files(new).difference(&old).find(has_content) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{name} would be written from its beginning, and it has content: move the file away first"
        )),
    }
}

/// Files that graphs write.
fn files<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> BTreeSet<String> {
    let texts: Vec<_> = texts.collect();
    let list: Vec<_> = texts.iter().map(AsRef::as_ref).collect();
    // Texts that are no graphs are refused elsewhere.
    let Ok(plan) = Plan::new(&list, &classes()) else { return BTreeSet::new() };
    let outputs = plan.nodes.iter().filter(|node| node.class.name == "tofile");
    outputs.filter_map(|node| node.settings.text("expression").map(str::to_owned)).collect()
}
