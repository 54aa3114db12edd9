//! Checks that CI runs the commands of README.md and of some pages of docs/, or that a reason is given.

use super::{Tree, Violation};
use crate::pages::{Fate, OF_LIBRARIES, PAGES, RUN_ANYWAY, blocks};

/// Checks that every block of shell commands has a known treatment (see [`crate::pages`]).
pub fn check(tree: &Tree) -> Vec<Violation> {
    PAGES.iter().chain(OF_LIBRARIES).flat_map(|page| check_page(tree, page)).collect()
}

fn check_page(tree: &Tree, page: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for block in blocks(tree.text(page).unwrap_or_default()) {
        match block.fate {
            Fate::Run { .. } | Fate::NotRun => {}
            Fate::Unknown => {
                let message = "after the fence: `sh ci`, `sh ci netns`, either with `needs: PROGRAM …`, `sh not-ci: \
                               REASON`, or `sh`; `text output` follows a block that CI runs";
                found.push(Violation::new(page, block.line, message));
            }
            Fate::RunAnyway => {
                for (number, line) in block.text.lines().enumerate() {
                    let command = line.split('#').next().unwrap_or_default().trim();
                    if !command.is_empty() && !RUN_ANYWAY.contains(&command) {
                        let message =
                            format!("CI does not run `{command}`: mark the block `sh ci`");
                        let line = block.line + number + 1;
                        found.push(Violation::new(page, line, message));
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Tree::of(&[("README.md", text)])).into_iter().map(|v| v.line).collect()
    }

    #[test]
    fn a_command_that_ci_does_not_run_is_found() {
        assert_eq!(lines("```sh\ncargo xtask demo  # look\n\nfyke dump\n```\n"), [4]);
        assert_eq!(lines("```sh sometimes\nfyke dump\n```\n"), [1]);
    }

    #[test]
    fn marked_blocks_are_fine() {
        assert!(
            lines("```sh ci\nfyke dump\n```\n```sh not-ci: needs root\nfyke\n```\n").is_empty()
        );
    }
}
