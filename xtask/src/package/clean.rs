//! The Debian package in a clean root: installed by apt with what it depends on, run, and removed again.
//!
//! debootstrap makes the root from Debian's archive, once: it is kept as an archive beside the package. Needs root, and
//! a network for the first run and for the packages of the dependencies.

use super::must;
use crate::install::at;
use crate::setup::runs_as_root;
use crate::shell::find_program;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest Debian that the package is made for.
const RELEASE: &str = "bookworm";
const ARCHIVE: &str = "http://deb.debian.org/debian";

/// Runs in the root. Each line of its output is a fact.
const SCRIPT: &str = r#"
set -u
export DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
other='^/(proc|sys|dev|tmp|run|var|package.deb|script)'
files() { find / -xdev -type f -o -xdev -type l 2> /dev/null | grep -vE "$other"; }
files | sort > /tmp/before
apt-get install -q -y --no-install-recommends /package.deb > /tmp/log 2>&1 || { cat /tmp/log; exit 1; }
dpkg-query -W -f '${Package}\n' | sort > /tmp/packages
echo "version: $(fyke --version)"
echo "libraries: $(ldd /usr/bin/fyke /usr/lib/libfyke.so | grep -c 'not found') missing"
printf '\324\303\262\241\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0' > /tmp/empty.pcap
echo "empty file: $(fyke dump -r /tmp/empty.pcap --count)"
fyke dump -i lo -w /tmp/out.pcapng 'udp port 8' 2> /tmp/log & pid=$!
for try in $(seq 200); do grep -q 'listening on' /tmp/log && break; sleep 0.1; done
echo "edit: $(fyke ctl add 'udp port 9' 2> /tmp/log-edit | cut -d, -f 1-2)"
for number in 1 2 3; do echo x > /dev/udp/127.0.0.1/9; done 2> /dev/null
sleep 1
kill -INT $pid; wait $pid
echo "capture: $? $(grep -c ' + 0 lost' /tmp/log)"
echo "frames: $(fyke dump -r /tmp/out.pcapng --count udp port 9)"
apt-get purge -q -y fyke > /tmp/log 2>&1 || { cat /tmp/log; exit 1; }
apt-get autoremove -q -y --purge > /tmp/log 2>&1 || { cat /tmp/log; exit 1; }
files | sort > /tmp/after
echo "left: $(comm -13 /tmp/before /tmp/after | grep -v '^/etc/ld.so.cache$' | tr '\n' ' ')"
"#;

/// The facts of a package that is in order.
const EXPECTED: [&str; 7] = [
    concat!("version: fyke ", env!("CARGO_PKG_VERSION")),
    "libraries: 0 missing",
    "empty file: 0",
    "edit: filter 2, epoch 2",
    "capture: 0 1",
    "frames: 3",
    "left: ",
];

/// Installs, runs and removes the package.
pub fn test(package: &Path, folder: &Path) -> Result<(), String> {
    if !runs_as_root() {
        return Err("the test in a clean root needs root".to_owned());
    }
    find_program("debootstrap").ok_or("debootstrap not found: apt-get install debootstrap")?;
    let clean = Root(folder.join("clean"));
    clean.make(&folder.join(format!("{RELEASE}.tar")))?;
    let facts = clean.run(package)?;
    eprintln!("{facts}");
    match wrong(&facts) {
        None => Ok(()),
        Some(line) => Err(format!("in a clean root: not `{line}`:\n{facts}")),
    }
}

/// The first expected fact that is missing.
fn wrong(facts: &str) -> Option<&'static str> {
    EXPECTED.into_iter().find(|expected| !facts.lines().any(|line| line.trim() == expected.trim()))
}

/// A folder that is removed with the value.
struct Root(PathBuf);

impl Root {
    /// Fills the folder from the archive, which is made if it is missing.
    fn make(&self, archive: &Path) -> Result<(), String> {
        if self.0.exists() {
            std::fs::remove_dir_all(&self.0).map_err(|e| at(&self.0, &e))?;
        }
        std::fs::create_dir_all(&self.0).map_err(|e| at(&self.0, &e))?;
        if !archive.exists() {
            let mut make = Command::new("debootstrap");
            make.args(["--variant=minbase", RELEASE]).arg(&self.0).arg(ARCHIVE);
            make.stdout(std::io::stderr());
            must(&mut make)?;
            let new = archive.with_extension("new");
            must(Command::new("tar").arg("-cf").arg(&new).arg("-C").arg(&self.0).arg("."))?;
            return std::fs::rename(&new, archive).map_err(|e| at(archive, &e));
        }
        must(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&self.0))
    }

    /// Runs the script there, with its own mounts and loopback interface, and the network of this machine for apt.
    fn run(&self, package: &Path) -> Result<String, String> {
        let to = self.0.join("package.deb");
        std::fs::copy(package, &to).map_err(|e| at(&to, &e))?;
        let resolver = self.0.join("etc/resolv.conf");
        // Without it names are looked up in /etc/hosts only, which may be enough.
        let _absent = std::fs::copy("/etc/resolv.conf", &resolver);
        let enter = "mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && \
                     mount -t tmpfs none run && cat > script && exec chroot . bash /script";
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "600", "unshare", "--mount", "--propagation", "private"]);
        command.args(["sh", "-c", enter]).current_dir(&self.0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |e: std::io::Error| format!("cannot run in the clean root: {e}");
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(SCRIPT.as_bytes()).map_err(failed)?;
        }
        let ran = child.wait_with_output().map_err(failed)?;
        let facts = String::from_utf8_lossy(&ran.stdout).trim_end().to_owned();
        match ran.status.success() {
            true => Ok(facts),
            false => Err(format!("in a clean root:\n{facts}")),
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_is_missing_is_named() {
        let good = EXPECTED.join("\n");
        assert_eq!(wrong(&good), None);
        assert_eq!(wrong(&good.replace("frames: 3", "frames: 2")), Some("frames: 3"));
        assert_eq!(wrong(&good.replace("left: ", "left: /usr/bin/fyke")), Some("left: "));
    }
}
