//! Finds the shell commands in README.md and in pages of docs/, runs them and compares their output.
//!
//! The words after a fence determine the treatment of a block:
//!
//! | fence | meaning |
//! |---|---|
//! | `sh ci` | CI runs it: bash with `-euo pipefail`, in a temporary folder, `fyke` on the path |
//! | `sh ci netns` | the same in a new network namespace with the loopback interface up |
//! | `sh ci needs: PROGRAM …`, `sh ci netns needs: PROGRAM …` | as before if the programs are there, else `skipped:` |
//! | `text output` | what the block before it prints, on both outputs; see [`compare`] |
//! | `sh` | every line is a command that CI runs anyway ([`RUN_ANYWAY`]) |
//! | `sh not-ci: REASON` | not run, for the reason given |
//! | `c NAME.c`, `cpp NAME.cpp`, `python NAME.py` | a file of this name for the blocks after it |
//!
//! The blocks of a page run in order in one folder, so a later one may use files of an earlier one. Files in
//! `testdata/readme/` are copied to that folder, which is also their `HOME`. `cargo xtask install` in a block installs
//! what is built.

mod compare;

use crate::kafka;
use crate::shell::{Workspace, find_program, status};
use compare::difference;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The pages with commands that are run.
pub const PAGES: &[&str] = &[
    "README.md",
    "docs/first-steps.md",
    "docs/cookbook.md",
    "docs/graphs.md",
    "docs/recipes.md",
    "docs/exit-codes.md",
    "docs/accounting.md",
    "docs/rules.md",
];

/// Pages with commands that need the libraries, too: tests of these run them, with `--from`.
pub const OF_LIBRARIES: &[&str] = &["docs/c.md", "docs/libpcap.md"];

/// Languages of programs that blocks may compile or run.
const LANGUAGES: &[&str] = &["c", "cpp", "python"];

/// Commands that need no block of their own, because other steps of CI run them.
pub const RUN_ANYWAY: &[&str] =
    &["cargo xtask demo", "cargo xtask test", "cargo xtask ci", "cargo xtask tidy"];

/// Longest time of a block, in seconds.
const LIMIT_SECONDS: &str = "120";

/// One fenced block of shell commands.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Line of the fence, from 1.
    pub line: usize,
    /// Its treatment.
    pub fate: Fate,
    /// The text between the fences.
    pub text: String,
    /// Its output, if the page has that.
    pub output: Option<Expected>,
}

/// The output that a page shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Expected {
    /// Line of the fence, from 1.
    pub line: usize,
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
        /// Programs without which it is skipped.
        needs: Vec<String>,
    },
    /// A plain `sh` block.
    RunAnyway,
    /// Not run, for the given reason.
    NotRun,
    /// The words after the fence are unknown, or an output has no block before it.
    Unknown,
}

/// A fenced block of any kind.
struct Fenced<'t> {
    line: usize,
    info: &'t str,
    text: String,
}

fn fenced(markdown: &str) -> Vec<Fenced<'_>> {
    let mut found = Vec::new();
    let mut open: Option<Fenced<'_>> = None;
    for (number, line) in markdown.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Fenced { line: number + 1, info: info.trim(), text: String::new() });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// All `sh`, `bash`, `shell` and `console` blocks of a Markdown text, with their outputs.
pub fn blocks(markdown: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    for Fenced { line, info, text } in fenced(markdown) {
        let words: Vec<&str> = info.split_whitespace().collect();
        match words.as_slice() {
            ["text", "output"] => match found.last_mut() {
                Some(block @ Block { fate: Fate::Run { .. }, output: None, .. }) => {
                    block.output = Some(Expected { line, text });
                }
                _ => found.push(Block { line, fate: Fate::Unknown, text, output: None }),
            },
            ["sh" | "bash" | "shell" | "console", rest @ ..] => {
                found.push(Block { line, fate: fate(rest), text, output: None });
            }
            _ => {}
        }
    }
    found
}

fn fate(words: &[&str]) -> Fate {
    match words {
        [] => Fate::RunAnyway,
        ["ci", rest @ ..] => {
            let (netns, rest) = match rest {
                ["netns", rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            match rest {
                [] => Fate::Run { netns, needs: Vec::new() },
                ["needs:", needs @ ..] if !needs.is_empty() => {
                    let needs = needs.iter().map(|&name| name.to_owned()).collect();
                    Fate::Run { netns, needs }
                }
                _ => Fate::Unknown,
            }
        }
        ["not-ci:", _, ..] => Fate::NotRun,
        _ => Fate::Unknown,
    }
}

/// The arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// A folder with the command; without it the command is built.
    from: Option<PathBuf>,
    /// Write outputs that differ into the pages.
    record: bool,
    /// The pages; all of them if there are none.
    pages: Vec<String>,
}

fn parse(args: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--record" => request.record = true,
            "--from" => {
                let folder = rest.next().ok_or("--from needs a folder")?;
                let folder = std::path::absolute(folder).map_err(|e| format!("{folder}: {e}"))?;
                request.from = Some(folder);
            }
            page if PAGES.contains(&page) || OF_LIBRARIES.contains(&page) => {
                request.pages.push(page.to_owned())
            }
            other => {
                return Err(format!(
                    "pages takes --from DIR, --record and names of pages ({}), not `{other}`",
                    [PAGES, OF_LIBRARIES].concat().join(", ")
                ));
            }
        }
    }
    if request.pages.is_empty() {
        request.pages = PAGES.iter().map(|&page| page.to_owned()).collect();
    }
    Ok(request)
}

/// Runs the marked blocks of the pages, with the release build of the command or a given one.
pub fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    let request = match parse(args) {
        Ok(request) => request,
        Err(message) => {
            eprintln!("xtask: {message}");
            return Ok(ExitCode::from(2));
        }
    };
    let programs = match &request.from {
        Some(from) => from.clone(),
        None => {
            let built =
                status(&mut workspace.cargo(&["build", "--release", "-p", "fyke-command"]))?;
            if built != ExitCode::SUCCESS {
                return Err("the command does not build".into());
            }
            workspace.target_dir()?.join("release")
        }
    };
    let mut wrong = Vec::new();
    for page in &request.pages {
        wrong.extend(run_page(workspace, page, &programs, request.record)?);
    }
    match wrong.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(format!("{} blocks failed:\n{}", wrong.len(), wrong.join("\n"))),
    }
}

/// Runs a page; returns what is wrong with its blocks.
fn run_page(
    workspace: &Workspace,
    page: &str,
    programs: &Path,
    record: bool,
) -> Result<Vec<String>, String> {
    let file = workspace.root.join(page);
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let folder = Folder::make(&workspace.root.join("testdata/readme"))?;
    let tools = Tools::make(workspace, programs, &folder.0)?;
    let broker = kafka::folder(workspace)?;
    files(&text, &folder.0)?;
    let (mut wrong, mut count, mut skipped, mut compared) = (Vec::new(), 0, 0, 0);
    let mut outputs: Vec<(usize, String)> = Vec::new();
    for block in blocks(&text) {
        let Fate::Run { netns, needs } = block.fate else { continue };
        let is_missing =
            |name: &&String| find_program(name).is_none() && !broker.join(name).is_file();
        if let Some(name) = needs.iter().find(is_missing) {
            println!("skipped: {page}:{}: no {name}", block.line);
            skipped += 1;
            continue;
        }
        eprintln!("{page}:{}\n{}", block.line, block.text.trim_end());
        count += 1;
        let printed = match run_block(&block.text, netns, &folder.0, &[&tools.0, programs, &broker])
        {
            Ok(printed) => printed,
            Err(message) => {
                wrong.push(format!("{page}:{}: {message}", block.line));
                continue;
            }
        };
        let Some(expected) = &block.output else {
            eprint!("{printed}");
            continue;
        };
        compared += 1;
        if let Some(difference) = difference(&expected.text, &printed) {
            match record {
                true => outputs.push((expected.line, printed)),
                false => wrong.push(format!("{page}:{}: {difference}", expected.line)),
            }
        }
    }
    if !outputs.is_empty() {
        let recorded = with_outputs(&text, &outputs);
        std::fs::write(&file, recorded).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let written = outputs.len();
    eprintln!(
        "{page}: {count} blocks ran, {skipped} skipped, {compared} outputs compared, {written} written"
    );
    Ok(wrong)
}

/// Writes the programs of a page that have names.
fn files(markdown: &str, folder: &Path) -> Result<(), String> {
    for Fenced { info, text, .. } in fenced(markdown) {
        let words: Vec<&str> = info.split_whitespace().collect();
        if let [language, name] = words.as_slice()
            && LANGUAGES.contains(language)
            && !name.contains('/')
        {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// A folder with a `cargo` of which `cargo xtask install` takes what is built.
struct Tools(PathBuf);

impl Tools {
    fn make(workspace: &Workspace, programs: &Path, folder: &Path) -> Result<Tools, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let quoted =
            |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
        let script = format!(
            "#!/bin/sh\n[ \"$1 $2\" = 'xtask install' ] || exit 2\nshift 2\n\
             cd {} && exec {} install \"$@\" --from {}\n",
            quoted(&workspace.root),
            quoted(&own),
            quoted(programs)
        );
        let tools = folder.join("tools");
        let cargo = tools.join("cargo");
        let at = |e: std::io::Error| format!("{}: {e}", cargo.display());
        std::fs::create_dir(&tools).and_then(|()| std::fs::write(&cargo, script)).map_err(at)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&cargo, mode).map_err(at)?;
        Ok(Tools(tools))
    }
}

/// The page with other outputs at some fences, which are given by their lines.
fn with_outputs(markdown: &str, outputs: &[(usize, String)]) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut skipping = false;
    for (number, line) in markdown.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        skipping &= !is_fence;
        if !skipping {
            text.push_str(line);
            text.push('\n');
        }
        if let Some((_, output)) = outputs.iter().find(|(at, _)| *at == number + 1) {
            text.push_str(output.trim_end_matches('\n'));
            text.push('\n');
            skipping = true;
        }
    }
    text
}

/// Runs a block; returns what it has printed on both outputs.
fn run_block(text: &str, netns: bool, folder: &Path, programs: &[&Path]) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let paths = programs.iter().map(|path| path.to_path_buf());
    let paths = paths.chain(std::env::split_paths(&path)).chain(system);
    let path = std::env::join_paths(paths).map_err(|e| e.to_string())?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT_SECONDS]);
    // Both outputs are one file, so that lines stay in their order.
    let script = if netns {
        command.args(["unshare", "--user", "--map-root-user", "--net"]);
        format!("exec 2>&1\nip link set lo up\n{text}")
    } else {
        format!("exec 2>&1\n{text}")
    };
    command.args(["bash", "-euo", "pipefail", "-c"]).arg(script);
    // The commands must not reach another fyke that runs on this machine.
    command.env("PATH", path).env("FYKE_RUNTIME_DIR", folder.join("run"));
    command.env("HOME", folder).env_remove("LD_LIBRARY_PATH");
    command.env("NO_COLOR", "1").env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
    command.current_dir(folder).stdin(std::process::Stdio::null());
    // A file, not a pipe: a capture that is left over would hold a pipe open.
    let output = folder.with_extension("output");
    let open = || std::fs::File::create(&output).map_err(|e| format!("{}: {e}", output.display()));
    let mut child =
        command.stdout(open()?).spawn().map_err(|e| format!("cannot start timeout: {e}"))?;
    let ended = child.wait().map_err(|e| format!("waiting for the block: {e}"));
    // The group of the block's processes has the number of the first of them.
    let group = format!("-{}", child.id());
    let mut kill = Command::new("kill");
    kill.args(["-KILL", "--", &group]).stderr(std::process::Stdio::null());
    let left = kill.status().is_ok_and(|status| status.success());
    let printed = std::fs::read(&output).map_err(|e| format!("{}: {e}", output.display()));
    let _gone_already = std::fs::remove_file(&output);
    let printed = String::from_utf8_lossy(&printed?).into_owned();
    match (ended?.success(), left) {
        (true, false) => Ok(printed),
        (true, true) => Err(format!("the block leaves processes:\n{printed}")),
        (false, _) => Err(format!("the block failed, or took too long:\n{printed}")),
    }
}

/// A temporary folder that is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn make(with_files_of: &Path) -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("fyke-pages-{}", std::process::id()));
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
        ```sh ci\necho a\necho b\n```\n\n```text output\na\nb\n```\n```sh ci netns\nip link\n```\n\
        ```sh not-ci: needs a tap\nfyke\n```\n```sh CI\n```\n```text output\nof nothing\n```\n";

    #[test]
    fn blocks_are_found_with_their_fate_and_output() {
        let found = blocks(TEXT);
        let fates: Vec<&Fate> = found.iter().map(|block| &block.fate).collect();
        let run = |netns, needs: &[&str]| Fate::Run {
            netns,
            needs: needs.iter().map(|&name| name.to_owned()).collect(),
        };
        let (plain, netns) = (run(false, &[]), run(true, &[]));
        let expected =
            [&Fate::RunAnyway, &plain, &netns, &Fate::NotRun, &Fate::Unknown, &Fate::Unknown];
        assert_eq!(fates, expected);
        assert_eq!(found[1].text, "echo a\necho b\n");
        assert_eq!((found[0].line, found[1].line), (2, 8));
        let output = found[1].output.as_ref().unwrap();
        assert_eq!((output.line, output.text.as_str()), (13, "a\nb\n"));
    }

    #[test]
    fn blocks_may_need_programs() {
        let fate = |words: &str| fate(&words.split(' ').collect::<Vec<_>>());
        let needs = vec!["kcat".to_owned(), "java".to_owned()];
        assert_eq!(fate("ci needs: kcat java"), Fate::Run { netns: false, needs: needs.clone() });
        assert_eq!(fate("ci netns needs: kcat java"), Fate::Run { netns: true, needs });
        for wrong in ["ci needs:", "ci kcat", "ci netns kcat", "needs: kcat"] {
            assert_eq!(fate(wrong), Fate::Unknown, "{wrong}");
        }
    }

    #[test]
    fn a_block_that_fails_in_the_middle_fails() {
        let folder = std::env::temp_dir().join("fyke-pages-test");
        std::fs::create_dir_all(&folder).unwrap();
        run_block("true\ntest -n \"$PATH\"", false, &folder, &[&folder]).unwrap();
        run_block("false\ntrue", false, &folder, &[&folder]).unwrap_err();
        run_block("false | cat", false, &folder, &[&folder]).unwrap_err();
        let both = run_block("echo a; echo b >&2; echo c", false, &folder, &[&folder]).unwrap();
        assert_eq!(both, "a\nb\nc\n");
        let left = run_block("sleep 100 &", false, &folder, &[&folder]).unwrap_err();
        assert!(left.contains("leaves processes"), "{left}");
    }

    #[test]
    fn programs_with_names_are_files() {
        let folder = std::env::temp_dir().join(format!("fyke-files-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = "```c one.c\nint one;\n```\n```c\nint two;\n```\n```c ../three.c\n```\n";
        files(text, &folder).unwrap();
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|one| one.unwrap()).collect();
        assert_eq!(names.len(), 1);
        assert_eq!(std::fs::read_to_string(names[0].path()).unwrap(), "int one;\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_recorded_output_takes_the_place_of_the_old_one_only() {
        let new = with_outputs(TEXT, &[(13, "c\n".to_owned())]);
        assert_eq!(new, TEXT.replace("output\na\nb\n", "output\nc\n"));
    }

    #[test]
    fn arguments_are_a_folder_a_flag_and_pages() {
        let parse =
            |words: &str| parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let request = parse("--from /built docs/cookbook.md --record").unwrap();
        assert_eq!(request.from.as_deref(), Some(Path::new("/built")));
        assert!(request.record && request.pages == ["docs/cookbook.md"]);
        assert_eq!(parse("docs/c.md").unwrap().pages, ["docs/c.md"]);
        assert_eq!(parse("").unwrap().pages.len(), PAGES.len());
        for wrong in ["--from", "docs/none.md", "--recorded"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
