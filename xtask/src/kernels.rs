//! `cargo xtask kernels`: the tests of the kernel space on older kernels, in a virtual machine.
//!
//! apt downloads a kernel of the distribution, which is unpacked below the target folder; nothing is installed. It
//! boots with an archive of files in memory: a static busybox, the test programs of `fyke-kernel` with their shared
//! libraries, and the test data. The machine is emulated, not virtualised, so it runs on every machine with qemu; a run
//! takes some minutes. A test that is skipped there must name the Linux version that it needs.

mod archive;

use crate::shell::{Workspace, find_program, shown, status};
use crate::tally::Tally;
use crate::{programs, setup};
use archive::Archive;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Debian's kernel for virtual machines: 26 MB to download.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// Longest run of one machine, in seconds.
const LIMIT_SECONDS: &str = "900";
/// Memory of the machine, in MiB.
const MEMORY_MIB: &str = "3072";
/// Start of each line that the machine's first program prints itself.
const MARK: &str = "== ";

/// Runs the tests on Debian's own kernel, if this system can download it.
pub fn in_ci(workspace: &Workspace) -> Result<ExitCode, String> {
    if let Err(missing) = setup::prepare(setup::Purpose::Kernels) {
        return setup::skip(&missing);
    }
    run(workspace, &[])
}

/// Boots the kernel of each package, or Debian's own if none is named, and runs the tests there.
pub fn run(workspace: &Workspace, packages: &[String]) -> Result<ExitCode, String> {
    let qemu = needed("qemu-system-x86_64", "qemu-system-x86")?;
    let busybox = needed("busybox", "busybox-static")?;
    let folder = workspace.target_dir()?.join("kernels");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let tests = build_tests(workspace)?;
    let archive = folder.join("initramfs.cpio");
    pack(workspace, &busybox, &tests, &folder)?
        .write(&archive)
        .map_err(|e| format!("{}: {e}", archive.display()))?;
    let default = [PACKAGE.to_owned()];
    let packages = if packages.is_empty() { &default[..] } else { packages };
    let mut failed = Vec::new();
    for package in packages {
        let kernel = kernel_of(&folder, &concrete(package)?)?;
        match boot(&qemu, &kernel, &archive, tests.len()) {
            Ok(summary) => println!("{}: {summary}", name_of(&kernel)),
            Err(message) => failed.push(format!("{}: {message}", name_of(&kernel))),
        }
    }
    if failed.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(failed.join("\n")) }
}

/// Finds a program; the error names the package to install.
fn needed(name: &str, package: &str) -> Result<PathBuf, String> {
    let missing = || format!("{name} not found; to install (name as on Debian): {package}");
    find_program(name).ok_or_else(missing)
}

/// Builds all test programs and returns the paths of those of the kernel crate.
fn build_tests(workspace: &Workspace) -> Result<Vec<PathBuf>, String> {
    let all = programs::build(workspace)?.into_iter();
    let tests = all.filter(|program| program.folder.ends_with("crates/kernel"));
    let tests: Vec<PathBuf> = tests.map(|program| program.path).collect();
    if tests.is_empty() { Err("crates/kernel has no test program".to_owned()) } else { Ok(tests) }
}

/// Returns the standard output of a command; fails if the command fails.
fn output(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|e| format!("cannot start `{}`: {e}", shown(command)))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!("`{}` failed: {}", shown(command), said.trim()));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// The versioned package on which this one depends.
fn concrete(package: &str) -> Result<String, String> {
    let text = output(Command::new("apt-cache").args(["depends", "--important", package]))?;
    let depends = |line: &str| Some(line.trim().strip_prefix("Depends: ")?.to_owned());
    let kernel = text.lines().filter_map(depends).find(|name| name.starts_with("linux-image-"));
    Ok(kernel.unwrap_or_else(|| package.to_owned()))
}

/// Downloads and unpacks a kernel, unless this was done before, and returns the file to boot.
fn kernel_of(folder: &Path, package: &str) -> Result<PathBuf, String> {
    let unpacked = folder.join(package);
    if let Some(kernel) = file_in(&unpacked.join("boot"), "vmlinuz-") {
        return Ok(kernel);
    }
    let download =
        || status(Command::new("apt-get").args(["download", package]).current_dir(folder));
    if download()? != ExitCode::SUCCESS {
        // The list of packages may be old, and only root may update it.
        status(Command::new("apt-get").args(["update", "-q"]))?;
        if download()? != ExitCode::SUCCESS {
            return Err(format!("{package} cannot be downloaded"));
        }
    }
    let archive = file_in(folder, &format!("{package}_")).ok_or("no package where apt put it")?;
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    fs::remove_file(&archive).map_err(|e| format!("{}: {e}", archive.display()))?;
    let kernel = file_in(&unpacked.join("boot"), "vmlinuz-");
    kernel.ok_or_else(|| format!("{package} contains no kernel"))
}

/// File of a folder, by the start of its name.
fn file_in(folder: &Path, start: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(start))?;
    Some(found.path())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Packs the files of the machine.
fn pack(
    workspace: &Workspace,
    busybox: &Path,
    tests: &[PathBuf],
    folder: &Path,
) -> Result<Archive, String> {
    let mut archive = Archive::default();
    let mut libraries = BTreeSet::new();
    for test in tests {
        // Debugging information is most of a test program, and the machine has to unpack it.
        let stripped = folder.join("stripped");
        output(Command::new("strip").arg("-o").arg(&stripped).arg(test))?;
        archive.add_file(&Path::new("/tests").join(name_of(test)), &stripped)?;
        libraries.extend(libraries_of(test)?);
    }
    for library in &libraries {
        archive.add_file(library, library)?;
    }
    archive.add_file(Path::new("/bin/busybox"), busybox)?;
    archive.add_folder(&workspace.root.join("testdata"))?;
    let crate_folder = workspace.root.join("crates/kernel");
    archive.add_folder(&crate_folder.join("tests"))?;
    archive.add(Path::new("/init"), init(&crate_folder).as_bytes(), 0o755)?;
    Ok(archive)
}

/// Shared libraries to which a program is linked, with the loader.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, String> {
    let text = output(Command::new("ldd").arg(program))?;
    let paths = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/'))
    });
    Ok(paths.map(PathBuf::from).collect())
}

/// The first program of the machine.
fn init(crate_folder: &Path) -> String {
    format!(
        "#!/bin/busybox sh
PATH=/sbin:/bin:/usr/sbin:/usr/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up
export RUST_BACKTRACE=1
cd '{folder}'
echo \"{MARK}Linux $(uname -r)\"
for test in /tests/*; do
  echo \"{MARK}$test\"
  $test --show-output --color never
  echo \"{MARK}exit status $?\"
done
poweroff -f
",
        folder = crate_folder.display(),
    )
}

/// Runs a machine to its end and shows what it prints; fails unless all its test programs succeeded.
fn boot(qemu: &Path, kernel: &Path, archive: &Path, tests: usize) -> Result<String, String> {
    let mut command = Command::new("timeout");
    command.arg(LIMIT_SECONDS).arg(qemu);
    command.args(["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", MEMORY_MIB]);
    command.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]);
    command.args(["-nic", "none", "-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(archive);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    eprintln!("$ {}", shown(&command));
    let mut child =
        command.spawn().map_err(|e| format!("cannot start `{}`: {e}", shown(&command)))?;
    let console = child.stdout.take().ok_or("no pipe from qemu")?;
    let mut report = Report::default();
    for line in BufReader::new(console).split(b'\n') {
        let line = line.map_err(|e| format!("reading the console: {e}"))?;
        if let Some(shown) = report.line(String::from_utf8_lossy(&line).trim_end_matches('\r')) {
            println!("{shown}");
        }
    }
    child.wait().map_err(|e| format!("waiting for qemu: {e}"))?;
    report.outcome(tests)
}

/// Results read from the console.
#[derive(Default)]
struct Report {
    tally: Tally,
    /// Exit statuses of test programs.
    statuses: Vec<String>,
}

impl Report {
    fn line(&mut self, line: &str) -> Option<String> {
        let status = line.strip_prefix(MARK).and_then(|own| own.strip_prefix("exit status "));
        self.statuses.extend(status.map(str::to_owned));
        if line.starts_with(MARK) { Some(line.to_owned()) } else { self.tally.line(line) }
    }

    fn outcome(&self, tests: usize) -> Result<String, String> {
        let ended = self.statuses.iter().filter(|status| *status == "0").count();
        if ended != tests {
            let all = self.statuses.len();
            return Err(format!("{ended} of {tests} test programs succeeded, {all} ended"));
        }
        // A test may be skipped because the older kernel lacks something, but the skip must name it.
        let mut skips = self.tally.skips.iter();
        if let Some(skip) = skips.find(|skip| !skip.contains("Linux ")) {
            return Err(format!("this skip names no version of Linux: {skip}"));
        }
        if self.tally.failed > 0 || self.tally.passed == 0 {
            return Err(self.tally.summary());
        }
        Ok(self.tally.summary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "== /tests/a\n\
         test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; 0.00s\n\
         == exit status 0";

    fn outcome(console: &str, tests: usize) -> Result<String, String> {
        let mut report = Report::default();
        for line in console.lines() {
            report.line(line);
        }
        report.outcome(tests)
    }

    #[test]
    fn a_machine_that_stops_early_fails() {
        assert_eq!(outcome(GOOD, 1).as_deref(), Ok("2 passed, 0 failed, 0 skipped"));
        assert!(outcome(GOOD, 2).is_err());
        assert!(outcome("== Linux 6.1\nKernel panic", 0).is_err());
        assert!(outcome(&GOOD.replace("status 0", "status 101"), 1).is_err());
    }

    #[test]
    fn a_skip_names_the_version_it_needs() {
        let skip = |reason: &str| {
            format!("successes:\n\n---- a stdout ----\nskipped: {reason}\n\nsuccesses:\n{GOOD}")
        };
        assert!(outcome(&skip("needs may_goto (Linux 6.9)"), 1).is_ok());
        assert!(outcome(&skip("did not work"), 1).is_err());
    }
}
