//! Finds the shell commands in README.md and runs them.
//!
//! The words after a fence determine the treatment of a block:
//!
//! | fence | meaning |
//! |---|---|
//! | `sh ci` | CI runs it: bash with `-euo pipefail`, in a temporary folder, `fyke` on the path |
//! | `sh ci netns` | the same in a new network namespace with the loopback interface up |
//! | `sh` | every line is a command that CI runs anyway ([`RUN_ANYWAY`]) |
//! | `sh not-ci: REASON` | not run, for the reason given |
//!
//! Blocks run in order in one folder, so a later one may use files of an earlier one. Files in
//! `testdata/readme/` are copied to that folder.

use crate::shell::{Workspace, status};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Commands that need no block of their own, because other steps of CI run them.
pub const RUN_ANYWAY: &[&str] =
    &["cargo xtask demo", "cargo xtask test", "cargo xtask ci", "cargo xtask tidy"];

/// Longest time of a block, in seconds.
const LIMIT_SECONDS: &str = "300";

/// One fenced block of shell commands.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Line of the fence, from 1.
    pub line: usize,
    /// Its treatment.
    pub fate: Fate,
    /// The text between the fences.
    pub text: String,
}

/// Treatment of a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// CI runs it, in its own network namespace if `netns`.
    Run {
        /// True if it needs its own network.
        netns: bool,
    },
    /// A plain `sh` block.
    RunAnyway,
    /// Not run, for the given reason.
    NotRun,
    /// The words after the fence are unknown.
    Unknown,
}

/// All `sh`, `bash`, `shell` and `console` blocks of a Markdown text.
pub fn blocks(markdown: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(Block, bool)> = None;
    for (number, line) in markdown.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace();
                let shell = matches!(words.next(), Some("sh" | "bash" | "shell" | "console"));
                let rest: Vec<&str> = words.collect();
                let block = Block { line: number + 1, fate: fate(&rest), text: String::new() };
                open = Some((block, shell));
            }
            (Some(_), Some(_)) => {
                found.extend(open.take().filter(|(_, shell)| *shell).map(|(block, _)| block));
            }
            (Some((block, _)), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

fn fate(words: &[&str]) -> Fate {
    match words {
        [] => Fate::RunAnyway,
        ["ci"] => Fate::Run { netns: false },
        ["ci", "netns"] => Fate::Run { netns: true },
        ["not-ci:", _, ..] => Fate::NotRun,
        _ => Fate::Unknown,
    }
}

/// Runs the marked blocks of README.md with the release build of the command.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let file = workspace.root.join("README.md");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    if status(&mut workspace.cargo(&["build", "--release", "-p", "fyke-command"]))?
        != ExitCode::SUCCESS
    {
        return Err("the command does not build".into());
    }
    let folder = Folder::make(&workspace.root.join("testdata/readme"))?;
    let mut count = 0;
    for block in blocks(&text) {
        let Fate::Run { netns } = block.fate else { continue };
        eprintln!("README.md:{}\n{}", block.line, block.text.trim_end());
        run_block(&block.text, netns, &folder.0, &workspace.target_dir()?.join("release"))
            .map_err(|e| format!("README.md:{}: {e}", block.line))?;
        count += 1;
    }
    eprintln!("{count} blocks of README.md ran");
    Ok(ExitCode::SUCCESS)
}

fn run_block(text: &str, netns: bool, folder: &Path, programs: &Path) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(programs.to_path_buf()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(paths).map_err(|e| e.to_string())?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT_SECONDS]);
    let script = if netns {
        command.args(["unshare", "--user", "--map-root-user", "--net"]);
        format!("ip link set lo up\n{text}")
    } else {
        text.to_owned()
    };
    command.args(["bash", "-euo", "pipefail", "-c"]).arg(script);
    // The README's commands must not reach another fyke that runs on this machine.
    command.env("PATH", path).env("FYKE_RUNTIME_DIR", folder.join("run"));
    command.current_dir(folder).stdin(std::process::Stdio::null());
    match status(&mut command)? {
        ExitCode::SUCCESS => Ok(()),
        _ => Err("the block failed, or took too long".into()),
    }
}

/// A temporary folder that is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn make(with_files_of: &Path) -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("fyke-readme-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let folder = Folder(path);
        let entries = std::fs::read_dir(with_files_of).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.path().is_file()) {
            let to = folder.0.join(entry.file_name());
            std::fs::copy(entry.path(), &to).map_err(|e| format!("{}: {e}", to.display()))?;
        }
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{}: {e}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# x\n```sh\ncargo xtask demo\n```\n```rust\nlet sh = 1;\n```\n\
        ```sh ci\necho a\necho b\n```\n```sh ci netns\nip link\n```\n\
        ```sh not-ci: needs a tap\nfyke\n```\n```sh CI\n```\n";

    #[test]
    fn blocks_are_found_with_their_fate() {
        let found = blocks(TEXT);
        let fates: Vec<&Fate> = found.iter().map(|block| &block.fate).collect();
        let (plain, netns) = (Fate::Run { netns: false }, Fate::Run { netns: true });
        assert_eq!(fates, [&Fate::RunAnyway, &plain, &netns, &Fate::NotRun, &Fate::Unknown]);
        assert_eq!(found[1].text, "echo a\necho b\n");
        assert_eq!((found[0].line, found[1].line), (2, 8));
    }

    #[test]
    fn a_block_that_fails_in_the_middle_fails() {
        let folder = std::env::temp_dir();
        run_block("true\ntest -n \"$PATH\"", false, &folder, &folder).unwrap();
        run_block("false\ntrue", false, &folder, &folder).unwrap_err();
        run_block("false | cat", false, &folder, &folder).unwrap_err();
    }
}
