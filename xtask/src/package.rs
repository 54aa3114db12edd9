//! `cargo xtask package`: a Debian package of the command, the libraries and what belongs to them.
//!
//! ```text
//! /usr/bin/fyke                                      the command
//! /usr/lib/libfyke.so, .a, pkgconfig/fyke.pc         the C library; headers in /usr/include
//! /usr/lib/fyke/pcap/libpcap.so.*                    libpcap's interface, in a folder of its own
//! /usr/lib/ARCH-linux-gnu/wireshark/extcap/fyke      link by which Wireshark and tshark find it
//! /usr/lib/systemd/system/fyke-*@.*                  units, not enabled
//! /usr/share/man/man1, completions, doc              pages, completions for three shells, documents, SBOM
//! /usr/sbin/fyke-capabilities                        capabilities on a copy of the command; off at first
//! ```
//!
//! `dpkg-shlibdeps` (package dpkg-dev) finds the needed packages; `dpkg-deb` writes the file.

mod clean;
mod musl;

use crate::install::{self, at, copy, make_folder};
use crate::sbom;
use crate::setup::{self, Purpose};
use crate::shell::{Workspace, find_program, shown, status};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Names of this version and architecture.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Packages that are useful beside it.
const SUGGESTS: &str = "wireshark-common, libcap2-bin";
const DESCRIPTION: &str =
    "packet filter and traffic monitor with filters that change while they run
 fyke captures, filters, tracks and counts packets. Its filters are edited while
 it captures, without the loss of a packet: from a terminal, from Wireshark's
 toolbar, by trackers of dynamic ports, or by programs. It reads and prints what
 tcpdump does.";
/// Shells, with the places of their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/fyke"),
    ("zsh", "share/zsh/vendor-completions/_fyke"),
    ("fish", "share/fish/vendor_completions.d/fyke.fish"),
];
/// Scripts of the package, run by dpkg.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// The arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// A folder of files that are built; without it they are built now.
    from: Option<PathBuf>,
    /// True for a quick, larger package.
    fast: bool,
    /// Install, run and remove the package in a clean root.
    test: bool,
    /// Build the static command instead.
    musl: bool,
    /// The folder of the results.
    to: Option<PathBuf>,
}

fn parse(args: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let place = match arg.as_str() {
            "--fast" | "--test" | "--musl" => {
                request.fast |= arg == "--fast";
                request.test |= arg == "--test";
                request.musl |= arg == "--musl";
                continue;
            }
            "--from" => &mut request.from,
            "--to" => &mut request.to,
            other => {
                return Err(format!(
                    "package takes --from DIR, --to DIR, --fast, --test and --musl, not `{other}`"
                ));
            }
        };
        let folder = rest.next().ok_or_else(|| format!("{arg} needs a folder"))?;
        *place = Some(std::path::absolute(folder).map_err(|e| format!("{folder}: {e}"))?);
    }
    Ok(request)
}

/// Builds the package.
pub fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    let request = match parse(args) {
        Ok(request) => request,
        Err(message) => {
            eprintln!("xtask: {message}");
            return Ok(ExitCode::from(2));
        }
    };
    let folder = match &request.to {
        Some(to) => to.clone(),
        None => workspace.target_dir()?.join("package"),
    };
    if request.musl {
        let built = request.from.as_ref().map(|from| from.join("fyke"));
        let to = folder.join(format!("fyke-{VERSION}-static"));
        built.map_or_else(|| musl::build(workspace, &folder), |built| musl::place(&built, &to))?;
        return Ok(ExitCode::SUCCESS);
    }
    let from = match &request.from {
        Some(from) => from.clone(),
        None => {
            setup::prepare(Purpose::Package)?;
            install::build(workspace)?
        }
    };
    for (program, package) in
        [("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev"), ("strip", "binutils")]
    {
        find_program(program).ok_or_else(|| format!("{program} not found: install {package}"))?;
    }
    let root = folder.join("root");
    if root.exists() {
        std::fs::remove_dir_all(&root).map_err(|e| at(&root, &e))?;
    }
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    fill(workspace, &from, &root)?;
    control(workspace, &folder, &root, &architecture)?;
    let file = folder.join(format!("fyke_{VERSION}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(if request.fast { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] });
    build.args(["--root-owner-group", "--build"]).arg(&root).arg(&file);
    must(&mut build)?;
    std::fs::remove_dir_all(&root).map_err(|e| at(&root, &e))?;
    let size = file.metadata().map_err(|e| at(&file, &e))?.len();
    eprintln!("{} ({:.1} MB)", file.display(), size as f64 / 1e6);
    if request.test {
        clean::test(&file, &folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fills the root folder of the package.
fn fill(workspace: &Workspace, from: &Path, root: &Path) -> Result<(), String> {
    let usr = root.join("usr");
    install::place(workspace, from, &usr, "/usr")?;
    let binaries = ["bin/fyke", "lib/libfyke.so", "lib/fyke/pcap/libpcap.so.0.8"];
    must(Command::new("strip").arg("--strip-unneeded").args(binaries.map(|name| usr.join(name))))?;
    must(Command::new("strip").arg("--strip-debug").arg(usr.join("lib/libfyke.a")))?;
    let command = usr.join("bin/fyke");
    let pages = usr.join("share/man/man1");
    std::fs::create_dir_all(&pages).map_err(|e| at(&pages, &e))?;
    must(Command::new(&command).args(["man", "--all"]).arg(&pages))?;
    must(Command::new("gzip").args(["-9", "-n", "-r"]).arg(&pages))?;
    for (shell, place) in COMPLETIONS {
        let text = output(Command::new(&command).args(["completions", shell]))?;
        write(&usr.join(place), &text, 0o644)?;
    }
    let units = ["serve@.service", "serve@.socket", "record@.service", "sensor@.service"];
    for unit in units.map(|unit| format!("fyke-{unit}")) {
        let to = usr.join("lib/systemd/system").join(&unit);
        copy(&workspace.root.join("docs/systemd").join(&unit), &to)?;
    }
    let tool = "fyke-capabilities";
    script(workspace, tool, &usr.join("sbin").join(tool))?;
    let multiarch = output(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let link = usr.join("lib").join(multiarch.trim()).join("wireshark/extcap/fyke");
    make_folder(&link)?;
    std::os::unix::fs::symlink("/usr/bin/fyke", &link).map_err(|e| at(&link, &e))?;
    documents(workspace, &usr.join("share/doc/fyke"))
}

fn documents(workspace: &Workspace, to: &Path) -> Result<(), String> {
    let docs = workspace.root.join("docs");
    for entry in std::fs::read_dir(&docs).map_err(|e| at(&docs, &e))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "md" || ending == "json") {
            copy(&path, &to.join("docs").join(entry.file_name()))?;
        }
    }
    let board = "grafana/fyke.json";
    copy(&docs.join(board), &to.join("docs").join(board))?;
    copy(&workspace.root.join("README.md"), &to.join("README.md"))?;
    copy(&workspace.root.join("CHANGELOG.md"), &to.join("changelog"))?;
    must(Command::new("gzip").args(["-9", "-n"]).arg(to.join("changelog")))?;
    let licence = |name: &str| {
        let path = workspace.root.join(name);
        std::fs::read_to_string(&path).map_err(|e| at(&path, &e))
    };
    let (mit, apache) = (licence("LICENSE-MIT")?, licence("LICENSE-APACHE")?);
    let text = format!(
        "fyke: MIT OR Apache-2.0. The licences of the libraries in it: sbom.cdx.json.\n\n{mit}\n\n{apache}"
    );
    write(&to.join("copyright"), &text, 0o644)?;
    write(&to.join("sbom.cdx.json"), &sbom::text(workspace)?, 0o644)
}

/// Writes what dpkg reads.
fn control(
    workspace: &Workspace,
    folder: &Path,
    root: &Path,
    architecture: &str,
) -> Result<(), String> {
    let depends = depends(folder, root)?;
    let size = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(root))?;
    let size = size.split_whitespace().next().unwrap_or("0");
    let text = format!(
        "Package: fyke\nVersion: {VERSION}\nArchitecture: {architecture}\n\
         Maintainer: the fyke project <fyke@localhost>\nInstalled-Size: {size}\nDepends: {depends}\n\
         Suggests: {SUGGESTS}\nSection: net\nPriority: optional\nDescription: {DESCRIPTION}\n"
    );
    let debian = root.join("DEBIAN");
    let sums = "find usr -type f -print0 | sort -z | xargs -0 md5sum";
    let sums = output(Command::new("sh").args(["-c", sums]).current_dir(root))?;
    write(&debian.join("control"), &text, 0o644)?;
    write(&debian.join("md5sums"), &sums, 0o644)?;
    write(&debian.join("triggers"), "activate-noawait ldconfig\n", 0o644)?;
    for name in SCRIPTS {
        script(workspace, name, &debian.join(name))?;
    }
    Ok(())
}

/// Names and versions of the packages with the libraries that the binaries need.
fn depends(folder: &Path, root: &Path) -> Result<String, String> {
    // The program reads the names of packages from the source package.
    let source = "Source: fyke\n\nPackage: fyke\nArchitecture: any\n";
    write(&folder.join("debian/control"), source, 0o644)?;
    let mut find = Command::new("dpkg-shlibdeps");
    find.args(["-O", "--ignore-missing-info"]).current_dir(folder);
    for name in ["bin/fyke", "lib/libfyke.so", "lib/fyke/pcap/libpcap.so.0.8"] {
        find.arg(root.join("usr").join(name));
    }
    let found = output(&mut find);
    let debian = folder.join("debian");
    std::fs::remove_dir_all(&debian).map_err(|e| at(&debian, &e))?;
    let found = found?;
    let line = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    line.map(str::to_owned).ok_or_else(|| format!("dpkg-shlibdeps found nothing: {found}"))
}

fn script(workspace: &Workspace, name: &str, to: &Path) -> Result<(), String> {
    let from = workspace.root.join("xtask/package").join(name);
    let text = std::fs::read_to_string(&from).map_err(|e| at(&from, &e))?;
    write(to, &text, 0o755)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    make_folder(path)?;
    std::fs::write(path, text).map_err(|e| at(path, &e))?;
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).map_err(|e| at(path, &e))
}

fn must(command: &mut Command) -> Result<(), String> {
    match status(command)? {
        ExitCode::SUCCESS => Ok(()),
        _ => Err(format!("`{}` failed", shown(command))),
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|e| format!("cannot start `{}`: {e}", shown(command)))?;
    match ran.status.success() {
        true => String::from_utf8(ran.stdout).map_err(|e| format!("`{}`: {e}", shown(command))),
        false => {
            Err(format!("`{}`: {}", shown(command), String::from_utf8_lossy(&ran.stderr).trim()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_folders_and_a_flag() {
        let parse =
            |words: &str| parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let request = parse("--from /built --fast --to /out").unwrap();
        assert_eq!(request.from.as_deref(), Some(Path::new("/built")));
        assert_eq!(request.to.as_deref(), Some(Path::new("/out")));
        assert!(request.fast && !parse("").unwrap().fast);
        assert!(parse("--test").unwrap().test && parse("--musl").unwrap().musl);
        for wrong in ["--from", "--to", "/built", "--slow"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
