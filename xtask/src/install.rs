//! `cargo xtask install --prefix DIR`: the command, the libraries, their headers and the description for pkg-config.
//!
//! ```text
//! DIR/bin/fyke                       the command
//! DIR/lib/libfyke.so, libfyke.a      the C library
//! DIR/lib/fyke/pcap/libpcap.so.*     libpcap's interface, in a folder of its own
//! DIR/include/                       fyke.h, fyke_compat.h, fyke.hpp, mapi.h
//! DIR/lib/pkgconfig/fyke.pc
//! ```

use crate::shell::{Workspace, status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Files that are built, each with its place.
const BUILT: [(&str, &str); 4] = [
    ("fyke", "bin/fyke"),
    ("libfyke.so", "lib/libfyke.so"),
    ("libfyke.a", "lib/libfyke.a"),
    ("libfyke_pcap.so", "lib/fyke/pcap/libpcap.so.0.8"),
];

/// Files of the repository, each with its place.
const HEADERS: [(&str, &str); 4] = [
    ("bindings/c/include/fyke.h", "include/fyke.h"),
    ("bindings/c/include/fyke_compat.h", "include/fyke_compat.h"),
    ("bindings/c/include/mapi.h", "include/mapi.h"),
    ("bindings/cpp/include/fyke.hpp", "include/fyke.hpp"),
];

/// The arguments.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    prefix: PathBuf,
    /// A folder of files that are built; without it they are built now.
    from: Option<PathBuf>,
}

fn parse(args: &[String]) -> Result<Request, String> {
    let (mut prefix, mut from) = (None, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let place = match arg.as_str() {
            "--prefix" => &mut prefix,
            "--from" => &mut from,
            other => {
                return Err(format!("install takes --prefix DIR and --from DIR, not `{other}`"));
            }
        };
        let folder = rest.next().ok_or_else(|| format!("{arg} needs a folder"))?;
        *place = Some(std::path::absolute(folder).map_err(|e| format!("{folder}: {e}"))?);
    }
    let prefix = prefix.ok_or("install needs --prefix DIR, such as /usr/local")?;
    Ok(Request { prefix, from })
}

/// Builds and installs.
pub fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    let request = match parse(args) {
        Ok(request) => request,
        Err(message) => {
            eprintln!("xtask: {message}");
            return Ok(ExitCode::from(2));
        }
    };
    let from = match request.from {
        Some(from) => from,
        None => build(workspace)?,
    };
    let prefix = request.prefix.to_str().ok_or("the prefix is not UTF-8")?;
    place(workspace, &from, &request.prefix, prefix)?;
    eprintln!(
        "installed in {prefix}: bin/fyke, lib/libfyke.so, include/fyke.h, lib/pkgconfig/fyke.pc and others"
    );
    Ok(ExitCode::SUCCESS)
}

/// Builds the command and the libraries; returns their folder.
pub fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let packages = ["-p", "fyke-command", "-p", "fyke-c", "-p", "fyke-libpcap"];
    let mut cargo = workspace.cargo(&["build", "--release"]);
    match status(cargo.args(packages))? {
        ExitCode::SUCCESS => Ok(workspace.target_dir()?.join("release")),
        _ => Err("the build failed".to_owned()),
    }
}

/// Copies all files to `folder`, which will be found as `prefix`.
pub fn place(
    workspace: &Workspace,
    from: &Path,
    folder: &Path,
    prefix: &str,
) -> Result<(), String> {
    let to = |name: &str| folder.join(name);
    for (name, place) in BUILT {
        copy(&newest(from, name)?, &to(place))?;
    }
    for (name, place) in HEADERS {
        copy(&workspace.root.join(name), &to(place))?;
    }
    let second = to("lib/fyke/pcap/libpcap.so.1");
    remove(&second)?;
    std::os::unix::fs::symlink("libpcap.so.0.8", &second).map_err(|e| at(&second, &e))?;
    let template = workspace.root.join("bindings/c/fyke.pc.in");
    let text = std::fs::read_to_string(&template).map_err(|e| at(&template, &e))?;
    let description = to("lib/pkgconfig/fyke.pc");
    make_folder(&description)?;
    let text = text.replace("@PREFIX@", prefix);
    std::fs::write(&description, text).map_err(|e| at(&description, &e))
}

/// An error at a file.
pub fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The newest file of this name that cargo has built: a test leaves libraries in `deps` only.
fn newest(from: &Path, name: &str) -> Result<PathBuf, String> {
    let time = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).ok();
    let all = [from.join(name), from.join("deps").join(name)];
    let found: Option<(SystemTime, PathBuf)> =
        all.into_iter().filter_map(|path| Some((time(&path)?, path))).max();
    found.map(|(_, path)| path).ok_or_else(|| format!("no {name} in {}", from.display()))
}

/// Makes the folder of a file.
pub fn make_folder(file: &Path) -> Result<(), String> {
    let folder = file.parent().unwrap_or(file);
    std::fs::create_dir_all(folder).map_err(|e| at(folder, &e))
}

/// Removes a file; a program that runs keeps the old one.
fn remove(path: &Path) -> Result<(), String> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(path, &error)),
        _ => Ok(()),
    }
}

/// Copies a file to a new one, with the same mode.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    make_folder(to)?;
    remove(to)?;
    std::fs::copy(from, to).map(drop).map_err(|e| at(from, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_folders() {
        let parse =
            |words: &str| parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let request = parse("--prefix /opt/fyke --from /built").unwrap();
        assert_eq!(request.prefix, Path::new("/opt/fyke"));
        assert_eq!(request.from.as_deref(), Some(Path::new("/built")));
        for wrong in ["", "--prefix", "--from /built", "/opt/fyke", "--prefix /a --root /b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
