//! `cargo xtask`: set-up, the demo, the tests, the house rules and the CI run.
//!
//! Depends on no other member and on no external crate, so that it builds in seconds in a fresh
//! clone and can install missing programs before anything else is built.
#![forbid(unsafe_code)]

mod ci;
mod fleet;
mod fuzz;
mod header;
mod install;
mod kafka;
mod kernels;
mod library;
mod package;
mod pages;
mod portable;
mod programs;
mod python;
mod release;
mod sbom;
mod setup;
mod shell;
mod site;
mod supply;
mod tally;
mod testing;
mod tidy;

use setup::Purpose;
use shell::Workspace;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask: everything around the code of fyke

  demo [ARGS]    build the command and show the main job; ARGS go to `fyke demo`
  test [ARGS]    build and run all tests; ARGS go to `cargo test`
  ci             all that CI runs: format, house rules, dependencies, clippy, documents, site, demo, commands of
                 the pages, tests; as root, a skipped test fails the run
  ci --slow      checks for before a release: oldest compiler, library alone, without clang, older kernel, fuzzers
  fuzz           the fuzzers of the filter language, a minute each (FYKE_FUZZ_SECONDS)
  kernels [PKG]  the tests of the kernel space on an older kernel, emulated: Debian's own, or these packages
                 (some minutes; downloads a kernel with apt, installs nothing)
  portable       the tests of the crates without system calls for aarch64, emulated (some minutes)
  tidy           only the house rules: crate levels, sizes, fences, links, prose (seconds);
                 `tidy --record` writes lower counts to prose.txt
  release        build the command without symbols, its debug information in a file beside it
  install --prefix DIR [--from DIR]
                 build and install the command, the C library, the library of libpcap's interface, headers and
                 the description for pkg-config; --from takes what is built in a folder
  package [--from DIR] [--to DIR] [--fast] [--test | --musl]
                 build the Debian package and the list of its parts (SBOM, CycloneDX) in TARGET/package; --fast
                 compresses less; --test installs, runs and removes it in a clean root (debootstrap, as root);
                 --musl builds the command as one static file instead; as root on Debian it
                 installs musl-tools, and by rustup the Rust target
  fleet [--sensors N] [--edits N] [--from DIR]
                 sensors and workers with a real NATS server in a namespace; prints times
  header         write the C header of the memory that user space and the kernel program share
  docs           build the API documents, warnings are errors
  site           build the pages of docs/ as a site in TARGET/site/html (needs mdbook) and check its links
  pages [--from DIR] [--record] [PAGE...]
                 run the commands in README.md and docs/ and compare their output; --from takes a folder with the
                 command, --record writes outputs that differ into the pages
  setup [--all]  search the programs that the project needs; as root on Debian also install them
  help           this text

The first three look for what they need before they start. As root on a Debian-like system missing
packages are installed; everywhere else the command to type is printed, and only what is required
stops the run.

Examples
  cargo xtask demo
  cargo xtask demo --help
  cargo xtask test
  cargo xtask test -p fyke-filter            one crate
  cargo xtask test -p fyke-filter caret      tests of that crate with `caret` in their name
  cargo xtask test -- --test-threads=1       what follows `--` goes to the test programs
  cargo xtask tidy

Environment
  CARGO_TARGET_DIR   where cargo builds, as always
  FYKE_SHARED        folder of more test data; default ../shared beside the repository
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(status) => status,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<ExitCode, String> {
    let Some((command, rest)) = args.split_first() else {
        eprint!("{HELP}");
        return Ok(ExitCode::from(2));
    };
    if matches!(command.as_str(), "help" | "-h" | "--help") {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let workspace = Workspace::find()?;
    match (command.as_str(), rest) {
        ("demo", rest) => demo(&workspace, rest),
        ("test", rest) => {
            setup::prepare(Purpose::Test)?;
            python::prepare(&workspace)?;
            match rest {
                [] => testing::all(&workspace, testing::Skips::Counted),
                args => testing::some(&workspace, args, &[]),
            }
        }
        ("ci", []) => {
            setup::prepare(Purpose::Ci)?;
            python::prepare(&workspace)?;
            ci::run(&workspace)
        }
        ("ci", [slow]) if slow == "--slow" => {
            setup::prepare(Purpose::All)?;
            ci::run_slow(&workspace)
        }
        ("fleet", rest) => fleet::run(&workspace, rest),
        ("fuzz", []) => fuzz::run(&workspace, None),
        ("kernels", packages) => kernels(&workspace, packages),
        ("portable", []) => portable::run(&workspace),
        ("tidy", []) => tidy::run(&workspace),
        ("tidy", [record]) if record == "--record" => tidy::record(&workspace),
        ("header", []) => header::run(&workspace),
        ("install", rest) => install::run(&workspace, rest),
        ("package", rest) => package::run(&workspace, rest),
        ("pages", rest) => pages::run(&workspace, rest),
        ("site", []) => site::run(&workspace),
        ("release", []) => release::run(&workspace),
        ("docs", []) => docs(&workspace),
        ("setup", []) => {
            setup::prepare(Purpose::Ci)?;
            python::prepare(&workspace).map(|()| ExitCode::SUCCESS)
        }
        ("setup", [all]) if all == "--all" => {
            for purpose in [Purpose::All, Purpose::Kernels, Purpose::Portable] {
                setup::prepare(purpose)?;
            }
            python::prepare(&workspace)?;
            kafka::prepare(&workspace).map(|()| ExitCode::SUCCESS)
        }
        (
            "ci" | "fuzz" | "portable" | "tidy" | "release" | "header" | "docs" | "site" | "setup",
            [extra, ..],
        ) => {
            eprintln!("xtask: `{command}` does not take `{extra}`; see `cargo xtask help`");
            Ok(ExitCode::from(2))
        }
        _ => {
            eprintln!("xtask: unknown command `{command}`\n\n{HELP}");
            Ok(ExitCode::from(2))
        }
    }
}

/// Builds the command with visible output and returns its exit status.
fn demo(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    setup::prepare(Purpose::Demo)?;
    eprintln!("demo: building the command; the first time takes two to three minutes on two cores");
    let mut cargo = workspace.cargo(&["run", "--release", "-p", "fyke-command", "--", "demo"]);
    cargo.args(args);
    shell::status(&mut cargo)
}

fn kernels(workspace: &Workspace, packages: &[String]) -> Result<ExitCode, String> {
    if let Some(option) = packages.iter().find(|package| package.starts_with('-')) {
        eprintln!("xtask: `kernels` takes names of packages, not `{option}`");
        return Ok(ExitCode::from(2));
    }
    setup::prepare(Purpose::Kernels)?;
    kernels::run(workspace, packages)
}

fn docs(workspace: &Workspace) -> Result<ExitCode, String> {
    let status = shell::status(&mut ci::docs_command(workspace))?;
    if status == ExitCode::SUCCESS {
        eprintln!("documents: {}", workspace.target_dir()?.join("doc").display());
    }
    Ok(status)
}
