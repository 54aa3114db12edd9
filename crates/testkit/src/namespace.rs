//! Network namespaces for tests: a script inside one, or the test itself run again inside one.
//!
//! If the system does not permit namespaces, a line that begins with `skipped:` is printed. Processes of a script end
//! with it, at the latest at its time limit, and its interfaces exist only in the namespace.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A shell script in its own network namespace. The command's path is in `$FYKE`; the script starts in the test's
/// folder and has its control sockets there.
#[derive(Debug)]
pub struct Script {
    folder: PathBuf,
    is_root: bool,
    has_own_processes: bool,
    has_own_mounts: bool,
    limit_s: u32,
    variables: Vec<(OsString, OsString)>,
}

/// Functions that every script has:
///
/// | function | what |
/// |---|---|
/// | `wait_for COMMAND...` | repeats a command until it succeeds; fails after 600 attempts (about 30 s) |
/// | `answers` | waits until the only running fyke answers |
/// | `saw N` | waits until it has seen N frames; on failure prints its counts |
/// | `veth` | makes a pair of interfaces, `near` and `far`, without traffic of their own |
/// | `send FILE` | sends the frames of a capture file from `near` to `far` |
const FUNCTIONS: &str = r#"
    export PATH="$PATH:/usr/sbin:/sbin"
    wait_for() { for try in $(seq 600); do "$@" > /dev/null 2>&1 && return; sleep 0.05; done; return 1; }
    answers() { wait_for "$FYKE" ctl show; }
    has_seen() { "$FYKE" ctl stats | grep -q " $1 seen"; }
    saw() { wait_for has_seen "$1" || { "$FYKE" ctl stats >&2; return 1; }; }
    veth() {
        ip link add near type veth peer name far
        for end in near far; do
            sysctl -qw net.ipv6.conf.$end.disable_ipv6=1 || true
            ip link set $end up
        done
        # Before the kernel has noticed the carrier, it drops what is sent.
        for end in near far; do wait_for has_carrier $end; done
    }
    has_carrier() { ip -o link show dev "$1" | grep -q " state UP "; }
    send() { "$FYKE" run --no-control "(pcapin,$1) > (tointerface,near)" 2> /dev/null; }
"#;

impl Script {
    /// Prepares a script for the command at this path, with a limit of 60 seconds, as root of a user namespace.
    pub fn new(command: &str, folder: &Path) -> Script {
        let script = Script {
            folder: folder.to_owned(),
            is_root: false,
            has_own_processes: true,
            has_own_mounts: false,
            limit_s: 60,
            variables: Vec::new(),
        };
        script.env("FYKE", command).env("FYKE_RUNTIME_DIR", folder.join("run"))
    }

    /// Runs the script as the root of the system, for operations that a user namespace does not permit.
    pub fn as_root(self) -> Script {
        Script { is_root: true, ..self }
    }

    /// Runs the script in the system's process namespace; it must end the processes that it starts.
    pub fn among_all_processes(self) -> Script {
        Script { has_own_processes: false, ..self }
    }

    /// Runs the script in a mount namespace of its own.
    pub fn own_mounts(self) -> Script {
        Script { has_own_mounts: true, ..self }
    }

    /// Sets the time limit in seconds.
    pub fn limit_s(self, limit_s: u32) -> Script {
        Script { limit_s, ..self }
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Script {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Runs the script, after the definitions of its functions; `None` if the system does not permit it.
    ///
    /// # Panics
    /// When `timeout` is not installed.
    pub fn run(&self, script: &str) -> Option<Output> {
        let mut options = vec![if self.is_root { "-n" } else { "-Urn" }];
        if self.has_own_processes {
            options.extend(["--pid", "--fork", "--kill-child"]);
        }
        if self.has_own_mounts {
            options.extend(["--mount", "--propagation", "private"]);
        }
        if !works(&options) {
            println!("skipped: no network namespaces of our own here");
            return None;
        }
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &self.limit_s.to_string(), "unshare"]).args(options);
        let script = format!("{FUNCTIONS}{script}");
        command.args(["bash", "-c", &script]).current_dir(&self.folder);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Some(command.output().expect("timeout runs"))
    }
}

/// True if `unshare` works with these options here.
fn works(options: &[&str]) -> bool {
    let tried = Command::new("unshare").args(options).arg("true").output();
    tried.is_ok_and(|output| output.status.success())
}

const INSIDE: &str = "FYKE_TEST_INSIDE";

/// Returns true inside the namespaces. Elsewhere it runs the test named `test` of this binary inside and passes on its
/// failure, with the options of `unshare` for root or for other users. Prints a skip if the system permits neither.
///
/// # Panics
/// When the test fails inside.
pub fn inside(test: &str, root: &[&str], user: Option<&[&str]>) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let options = match user {
        Some(user) if !works(root) => user,
        _ => root,
    };
    if !works(options) || Command::new("ip").arg("-V").output().is_err() {
        println!("skipped: no network namespaces of our own here (unshare, ip)");
        return false;
    }
    let binary = std::env::current_exe().expect("this test has a file");
    let status = Command::new("unshare")
        .args(options)
        .arg(binary)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare runs");
    assert!(status.success(), "{test} failed in its namespaces");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_alone_has_its_variables_and_ends_with_its_limit() {
        let folder = std::env::temp_dir();
        let script = Script::new("/bin/true", &folder).env("WORD", "said");
        let Some(output) = script.run("echo $WORD; ip -o link | wc -l; pwd") else { return };
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, format!("said\n1\n{}\n", folder.canonicalize().unwrap().display()));
        let ended = script.limit_s(1).run("sleep 30 & sleep 30").unwrap();
        assert_eq!(ended.status.code(), Some(124));
    }
}
