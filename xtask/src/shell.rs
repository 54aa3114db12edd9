//! The folder of the workspace, and commands that run in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// The workspace that `cargo xtask` was started in.
pub struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub root: PathBuf,
}

impl Workspace {
    /// Takes the folder from cargo, or walks up from the working directory.
    pub fn find() -> Result<Workspace, String> {
        if let Some(manifest_dir) = std::env::var_os("CARGO_MANIFEST_DIR")
            && let Some(root) = Path::new(&manifest_dir).parent()
        {
            return Ok(Workspace { root: root.to_path_buf() });
        }
        let start = std::env::current_dir().map_err(|e| format!("working directory: {e}"))?;
        start
            .ancestors()
            .find(|folder| folder.join("xtask/Cargo.toml").is_file())
            .map(|folder| Workspace { root: folder.to_path_buf() })
            .ok_or_else(|| format!("no fyke workspace at or above {}", start.display()))
    }

    /// A cargo command in the root folder, with the same cargo that runs this program. It does not get the variables
    /// about xtask: build scripts of dependencies read them, so cargo would build these again after a command of
    /// another crate or of the shell.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.root);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// The folder into which cargo builds, however it was set: this program is in
    /// `TARGET/PROFILE/`.
    pub fn target_dir(&self) -> Result<PathBuf, String> {
        let program = std::env::current_exe().map_err(|e| format!("path of this program: {e}"))?;
        let folder = program.ancestors().nth(2).map(Path::to_path_buf);
        folder.ok_or_else(|| format!("{} is not in a target folder", program.display()))
    }
}

/// The command as a user would type it, for messages.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// Runs a command to its end, with output to the terminal; returns its exit status.
pub fn status(command: &mut Command) -> Result<ExitCode, String> {
    let status = command.status().map_err(|e| format!("cannot start `{}`: {e}", shown(command)))?;
    Ok(ExitCode::from(code(status)))
}

/// The exit status in the shell's convention: a process killed by signal N has 128 + N.
pub fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let value = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(value).unwrap_or(1)
}

/// Searches a program in `PATH` and in the system folders that an ordinary user's path lacks.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_and_nonsense_is_not() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }

    #[test]
    fn exit_status_and_signal_are_reported_as_a_shell_does() {
        let run = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap();
        assert_eq!(code(run("exit 7")), 7);
        assert_eq!(code(run("kill -9 $$")), 137);
    }

    #[test]
    fn a_command_is_shown_without_its_folder() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["test", "-p", "x"]);
        assert_eq!(shown(&command), "cargo test -p x");
    }
}
