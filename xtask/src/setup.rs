//! Set-up: the programs that the project needs from the system, and their installation.
//!
//! A check costs a few `stat` calls; nothing is downloaded if nothing is missing. As root on a
//! Debian-like system missing packages are installed, otherwise the command for it is printed.
//! Without a required package the run stops; for an optional one, the set-up prints the steps that
//! are skipped without it.

use crate::shell::{find_program, status};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Purpose of the set-up; each needs more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// `cargo xtask demo`.
    Demo,
    /// `cargo xtask test`.
    Test,
    /// `cargo xtask ci` and a plain `setup`: CI may not skip anything silently.
    Ci,
    /// `setup --all`.
    All,
    /// `cargo xtask kernels`, with a list of its own.
    Kernels,
    /// `cargo xtask portable`, with a list of its own.
    Portable,
    /// `cargo xtask package`, with a list of its own.
    Package,
    /// `cargo xtask package --musl`, with a list of its own.
    Musl,
}

impl Purpose {
    fn needs(self) -> &'static [Need] {
        match self {
            Purpose::Kernels => KERNELS,
            Purpose::Portable => PORTABLE,
            Purpose::Package => PACKAGE,
            Purpose::Musl => MUSL,
            Purpose::Demo | Purpose::Test | Purpose::Ci | Purpose::All => NEEDS,
        }
    }
}

/// Signs by which a package is recognised.
#[derive(Debug)]
enum Sign {
    /// One of these programs.
    Program(&'static [&'static str]),
    /// One of these shared libraries.
    Library(&'static [&'static str]),
}

/// A package of which some distributions have none: no run of this list stops without it.
const NEVER: Purpose = Purpose::Kernels;

#[derive(Debug)]
struct Need {
    name: &'static str,
    sign: Sign,
    /// Package names for apt, dnf and pacman.
    packages: [&'static str; 3],
    /// First purpose for which it is searched and installed.
    wanted_from: Purpose,
    /// First purpose for which the run stops without it.
    required_from: Purpose,
    /// Effect if it is missing.
    without: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        name: "C compiler (cc)",
        sign: Sign::Program(&["cc", "gcc"]),
        packages: ["gcc libc6-dev", "gcc", "gcc"],
        wanted_from: Purpose::Demo,
        required_from: Purpose::Demo,
        without: "nothing can be linked",
    },
    Need {
        name: "libpcap shared library (libpcap.so.0.8)",
        sign: Sign::Library(&["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"]),
        packages: ["libpcap0.8", "libpcap", "libpcap"],
        wanted_from: Purpose::Demo,
        required_from: Purpose::Ci,
        without: "comparisons with libpcap are skipped",
    },
    Need {
        name: "headers of libpcap (pcap-config)",
        sign: Sign::Program(&["pcap-config"]),
        packages: ["libpcap-dev", "libpcap-devel", "libpcap"],
        wanted_from: Purpose::Test,
        required_from: Purpose::Ci,
        without: "the drop-in for libpcap is not tested with a C program",
    },
    Need {
        name: "tcpdump",
        sign: Sign::Program(&["tcpdump"]),
        packages: ["tcpdump", "tcpdump", "tcpdump"],
        wanted_from: Purpose::Demo,
        required_from: Purpose::Ci,
        without: "comparisons with tcpdump are skipped",
    },
    Need {
        name: "ngrep",
        sign: Sign::Program(&["ngrep"]),
        packages: ["ngrep", "ngrep", "ngrep"],
        wanted_from: Purpose::Demo,
        required_from: Purpose::Ci,
        without: "the drop-in for libpcap is not tested with ngrep",
    },
    Need {
        name: "NATS server (nats-server)",
        sign: Sign::Program(&["nats-server"]),
        packages: ["nats-server", "nats-server", "nats-server"],
        wanted_from: Purpose::Test,
        required_from: Purpose::Ci,
        without: "groups of sensors are not tested",
    },
    Need {
        name: "client of Kafka (kcat)",
        sign: Sign::Program(&["kcat"]),
        packages: ["kcat", "kcat", "kcat"],
        wanted_from: Purpose::All,
        required_from: NEVER,
        without: "the recipe for Kafka is skipped",
    },
    Need {
        name: "Maven (mvn)",
        sign: Sign::Program(&["mvn"]),
        packages: ["maven", "maven", "maven"],
        wanted_from: Purpose::All,
        required_from: NEVER,
        without: "the recipe for Kafka is skipped",
    },
    Need {
        name: "ClickHouse (clickhouse-server, clickhouse-client)",
        sign: Sign::Program(&["clickhouse-client"]),
        packages: ["clickhouse-server clickhouse-client", "clickhouse", "clickhouse"],
        wanted_from: Purpose::All,
        required_from: NEVER,
        without: "the recipe for ClickHouse is skipped",
    },
    Need {
        name: "iproute2 (ip)",
        sign: Sign::Program(&["ip"]),
        packages: ["iproute2", "iproute", "iproute2"],
        wanted_from: Purpose::Demo,
        required_from: Purpose::Ci,
        without: "live traffic in network namespaces is skipped",
    },
    Need {
        name: "ethtool",
        sign: Sign::Program(&["ethtool"]),
        packages: ["ethtool", "ethtool", "ethtool"],
        wanted_from: Purpose::Demo,
        required_from: Purpose::All,
        without: "offloads of virtual interfaces stay as they are",
    },
    Need {
        name: "clang",
        sign: Sign::Program(&["clang", "clang-14", "clang-16", "clang-18", "clang-19"]),
        packages: ["clang", "clang", "clang"],
        wanted_from: Purpose::Demo,
        required_from: Purpose::Ci,
        without: "the kernel space is built without its programs",
    },
    Need {
        name: "tshark",
        sign: Sign::Program(&["tshark"]),
        packages: ["tshark", "wireshark-cli", "wireshark-cli"],
        wanted_from: Purpose::Test,
        required_from: Purpose::Ci,
        without: "comparisons with tshark are skipped",
    },
    Need {
        name: "Python 3",
        sign: Sign::Program(&["python3"]),
        packages: ["python3 python3-venv python3-pip", "python3 python3-pip", "python python-pip"],
        wanted_from: Purpose::Test,
        required_from: Purpose::Ci,
        without: "the Python package is not tested",
    },
    Need {
        name: "Chromium",
        sign: Sign::Program(&["chromium", "chromium-headless-shell"]),
        packages: ["chromium", "chromium", "chromium"],
        wanted_from: Purpose::Test,
        required_from: Purpose::Ci,
        without: "the page of `fyke web` is not tested in a browser",
    },
    Need {
        name: "Hyperscan (libhs.so.5)",
        sign: Sign::Library(&["libhs.so.5", "libhs.so"]),
        packages: ["libhyperscan5", "hyperscan", "hyperscan"],
        wanted_from: Purpose::Test,
        required_from: Purpose::Ci,
        without: "`fyke bench ruler` runs without this peer",
    },
];

/// A program that is a crate, installed by cargo. Distributions have none, or too old ones.
struct Crate {
    name: &'static str,
    /// More arguments of `cargo install`.
    arguments: &'static [&'static str],
    wanted_from: Purpose,
    required_from: Purpose,
    without: &'static str,
}

const CRATES: &[Crate] = &[
    // 37 s of processor time without optimisation. Debian 12's 0.24 does not read edition 2024.
    Crate {
        name: "cbindgen",
        arguments: &[],
        wanted_from: Purpose::Test,
        required_from: Purpose::Ci,
        without: "the header of the C library is not compared with what cbindgen writes",
    },
    // Three minutes.
    Crate {
        name: "cargo-deny",
        arguments: &[],
        wanted_from: Purpose::Ci,
        required_from: Purpose::All,
        without: "licences and advisories of external crates are not checked",
    },
    // 90 s of processor time; its server and its watcher would double that.
    Crate {
        name: "mdbook",
        arguments: &["--no-default-features"],
        wanted_from: Purpose::Ci,
        required_from: Purpose::All,
        without: "the site of the documents is not built",
    },
];

/// As [`prepare`], for crates.
fn prepare_crates(purpose: Purpose) -> Result<(), String> {
    if purpose > Purpose::All {
        return Ok(());
    }
    let mut required = Vec::new();
    for wanted in CRATES.iter().filter(|one| one.wanted_from <= purpose) {
        if find_program(wanted.name).is_none() && can_install() {
            eprintln!("set-up: installing {}", wanted.name);
            let mut cargo = Command::new("cargo");
            // Standard output belongs to the step after the set-up.
            cargo.args(["install", "--locked", "--debug", wanted.name]).args(wanted.arguments);
            cargo.stdout(std::io::stderr());
            if status(&mut cargo) != Ok(ExitCode::SUCCESS) {
                eprintln!("set-up: cargo install {} failed", wanted.name);
            }
        }
        if find_program(wanted.name).is_none() {
            let Crate { name, without, .. } = wanted;
            eprintln!("set-up: {name} not found (without it {without})");
            eprintln!("  to install: cargo install --locked {name}");
            required.extend((wanted.required_from <= purpose).then_some(*name));
        }
    }
    match required.is_empty() {
        true => Ok(()),
        false => Err(format!("required and missing: {}", required.join(", "))),
    }
}

/// Programs that boot another kernel.
const KERNELS: &[Need] = &[
    Need {
        name: "emulator of a machine (qemu-system-x86_64)",
        sign: Sign::Program(&["qemu-system-x86_64"]),
        packages: ["qemu-system-x86", "qemu-system-x86-core", "qemu-system-x86"],
        wanted_from: Purpose::Kernels,
        required_from: Purpose::Kernels,
        without: "no other kernel can be booted",
    },
    Need {
        name: "busybox",
        sign: Sign::Program(&["busybox"]),
        packages: ["busybox-static", "busybox", "busybox"],
        wanted_from: Purpose::Kernels,
        required_from: Purpose::Kernels,
        without: "there is nothing to start the tests with",
    },
    Need {
        name: "Debian's package tools (apt-get, dpkg-deb)",
        sign: Sign::Program(&["dpkg-deb"]),
        packages: ["dpkg", "dpkg apt", "dpkg apt"],
        wanted_from: Purpose::Kernels,
        required_from: Purpose::Kernels,
        without: "no kernel can be downloaded",
    },
    Need {
        name: "clang",
        sign: Sign::Program(&["clang"]),
        packages: ["clang", "clang", "clang"],
        wanted_from: Purpose::Kernels,
        required_from: Purpose::Kernels,
        without: "the kernel space is built without its programs",
    },
];

/// Programs that build and run tests for aarch64.
const PORTABLE: &[Need] = &[
    Need {
        name: "C compiler for aarch64 (aarch64-linux-gnu-gcc)",
        sign: Sign::Program(&["aarch64-linux-gnu-gcc"]),
        packages: [
            "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
            "gcc-aarch64-linux-gnu",
            "aarch64-linux-gnu-gcc",
        ],
        wanted_from: Purpose::Portable,
        required_from: Purpose::Portable,
        without: "nothing can be linked",
    },
    Need {
        name: "emulator of programs (qemu-aarch64)",
        sign: Sign::Program(&["qemu-aarch64", "qemu-aarch64-static"]),
        packages: ["qemu-user", "qemu-user", "qemu-user"],
        wanted_from: Purpose::Portable,
        required_from: Purpose::Portable,
        without: "nothing that is built can be run",
    },
];

/// Programs that build the Debian package. Without clang it would lack the kernel programs, without a message.
const PACKAGE: &[Need] = &[
    Need {
        name: "Debian's tools for packages (dpkg-deb, dpkg-shlibdeps)",
        sign: Sign::Program(&["dpkg-shlibdeps"]),
        packages: ["dpkg-dev", "dpkg-dev", "dpkg"],
        wanted_from: Purpose::Package,
        required_from: Purpose::Package,
        without: "no package is made",
    },
    Need {
        name: "tools for programs (strip)",
        sign: Sign::Program(&["strip"]),
        packages: ["binutils", "binutils", "binutils"],
        wanted_from: Purpose::Package,
        required_from: Purpose::Package,
        without: "the package keeps its symbols",
    },
    Need {
        name: "clang",
        sign: Sign::Program(&["clang"]),
        packages: ["clang", "clang", "clang"],
        wanted_from: Purpose::Package,
        required_from: Purpose::Package,
        without: "the package has no kernel programs",
    },
];

/// Programs that build the static command. Its Rust target is installed by rustup.
const MUSL: &[Need] = &[
    Need {
        name: "C compiler for musl (musl-gcc)",
        sign: Sign::Program(&["musl-gcc"]),
        packages: ["musl-tools", "musl-gcc", "musl"],
        wanted_from: Purpose::Musl,
        required_from: Purpose::Musl,
        without: "the C parts of crates are not built for musl",
    },
    Need {
        name: "tools for programs (strip, readelf)",
        sign: Sign::Program(&["readelf"]),
        packages: ["binutils", "binutils", "binutils"],
        wanted_from: Purpose::Musl,
        required_from: Purpose::Musl,
        without: "it is not checked that the command is static",
    },
    Need {
        name: "clang",
        sign: Sign::Program(&["clang"]),
        packages: ["clang", "clang", "clang"],
        wanted_from: Purpose::Musl,
        required_from: Purpose::Musl,
        without: "the command has no kernel programs",
    },
];

/// Searches the packages that `purpose` needs, installs missing ones or names them.
///
/// # Errors
/// A required package is missing and could not be installed.
pub fn prepare(purpose: Purpose) -> Result<(), String> {
    let needs = purpose.needs();
    let mut plan = Plan::make(needs, purpose, is_there);
    if !plan.missing.is_empty() && can_install() {
        install(&plan.packages(Packager::Apt));
        plan = Plan::make(needs, purpose, is_there);
    }
    let packager = Packager::of_this_system();
    eprint!("{}", plan.report(packager));
    match plan.required().map(|need| need.name).collect::<Vec<_>>() {
        names if names.is_empty() => prepare_crates(purpose),
        names => Err(format!("required and missing: {}", names.join(", "))),
    }
}

/// The packages that are missing for a purpose.
struct Plan<'a> {
    purpose: Purpose,
    missing: Vec<&'a Need>,
}

impl<'a> Plan<'a> {
    fn make(needs: &'a [Need], purpose: Purpose, is_there: impl Fn(&Sign) -> bool) -> Plan<'a> {
        let wanted = needs.iter().filter(|need| need.wanted_from <= purpose);
        Plan { purpose, missing: wanted.filter(|need| !is_there(&need.sign)).collect() }
    }

    fn required(&self) -> impl Iterator<Item = &'a Need> {
        self.missing.iter().copied().filter(|need| need.required_from <= self.purpose)
    }

    fn packages(&self, packager: Packager) -> Vec<&'static str> {
        let column = packager.column();
        self.missing.iter().flat_map(|need| need.packages[column].split(' ')).collect()
    }

    /// The report; empty if nothing is missing.
    fn report(&self, packager: Option<Packager>) -> String {
        let mut text = String::new();
        for need in &self.missing {
            let weight = if need.required_from <= self.purpose {
                "required: without it"
            } else {
                "optional: without it"
            };
            text += &format!("set-up: {} not found ({weight} {})\n", need.name, need.without);
        }
        if self.missing.is_empty() {
            return text;
        }
        let packages = self.packages(packager.unwrap_or(Packager::Apt)).join(" ");
        match packager {
            Some(packager) => text += &format!("  to install: {} {packages}\n", packager.command()),
            None => text += &format!("  to install (names as on Debian): {packages}\n"),
        }
        text
    }
}

/// The package tools with known package names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packager {
    Apt,
    Dnf,
    Pacman,
}

impl Packager {
    const ALL: [(Packager, &'static str); 3] =
        [(Packager::Apt, "apt-get"), (Packager::Dnf, "dnf"), (Packager::Pacman, "pacman")];

    fn of_this_system() -> Option<Packager> {
        let mut all = Packager::ALL.into_iter();
        all.find(|(_, program)| find_program(program).is_some()).map(|(packager, _)| packager)
    }

    fn column(self) -> usize {
        match self {
            Packager::Apt => 0,
            Packager::Dnf => 1,
            Packager::Pacman => 2,
        }
    }

    fn command(self) -> &'static str {
        match self {
            Packager::Apt => "sudo apt-get install",
            Packager::Dnf => "sudo dnf install",
            Packager::Pacman => "sudo pacman -S",
        }
    }
}

fn is_there(sign: &Sign) -> bool {
    match sign {
        Sign::Program(names) => names.iter().any(|name| find_program(name).is_some()),
        Sign::Library(names) => {
            let folders = library_folders();
            names.iter().any(|name| folders.iter().any(|folder| folder.join(name).exists()))
        }
    }
}

/// Folders of the dynamic linker on the usual distributions, including Debian's folders per
/// architecture.
fn library_folders() -> Vec<PathBuf> {
    let configured = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&configured).collect();
    for base in ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"] {
        folders.push(PathBuf::from(base));
        let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains("-linux-"))
        }));
    }
    folders
}

/// Result of a step of CI that cannot run here, with the reason: a failure where the set-up could have installed what
/// is missing: a skip would remain unnoticed.
pub fn skip(reason: &str) -> Result<ExitCode, String> {
    may_skip(reason, can_install())?;
    println!("skipped: {reason}");
    Ok(ExitCode::SUCCESS)
}

fn may_skip(reason: &str, could_install: bool) -> Result<(), String> {
    match could_install {
        true => Err(format!("skipped here though it need not be: {reason}")),
        false => Ok(()),
    }
}

/// True for root on a system with apt. The set-up never requests a password.
fn can_install() -> bool {
    Path::new("/etc/debian_version").exists() && find_program("apt-get").is_some() && runs_as_root()
}

/// True if this process has root's rights.
pub fn runs_as_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| is_root(&status))
}

/// Reads the effective user id from the text of `/proc/self/status`.
fn is_root(proc_status: &str) -> bool {
    let line = proc_status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

/// Installs packages. Never fails the run by itself: packages that are still missing are reported
/// later.
fn install(packages: &[&str]) {
    eprintln!("set-up: installing {}", packages.join(" "));
    apt(&["update", "-q"]);
    let install = &["install", "-q", "-y", "--no-install-recommends"][..];
    // apt installs nothing if one of the names is unknown.
    if !apt(&[install, packages].concat()) && packages.len() > 1 {
        for package in packages {
            apt(&[install, &[package]].concat());
        }
    }
}

/// Runs apt-get; true if it succeeds.
fn apt(args: &[&str]) -> bool {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt.args(["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"]);
    apt.args(["-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0"]).args(args);
    // Standard output belongs to the step after the set-up.
    apt.stdout(std::io::stderr());
    match status(&mut apt) {
        Ok(ExitCode::SUCCESS) => return true,
        Ok(_) => eprintln!("set-up: apt-get {} failed", args[0]),
        Err(message) => eprintln!("set-up: {message}"),
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_only(present: &'static [&'static str]) -> impl Fn(&Sign) -> bool {
        move |sign| {
            let (Sign::Program(names) | Sign::Library(names)) = sign;
            names.iter().any(|name| present.contains(name))
        }
    }

    #[test]
    fn a_skip_fails_where_the_set_up_could_have_installed() {
        assert_eq!(may_skip("no tool", false), Ok(()));
        assert!(may_skip("no tool", true).unwrap_err().ends_with("need not be: no tool"));
    }

    #[test]
    fn nothing_missing_says_nothing() {
        let plan = Plan::make(NEEDS, Purpose::All, |_| true);
        assert_eq!(plan.report(Some(Packager::Apt)), "");
        assert_eq!(plan.required().count(), 0);
    }

    #[test]
    fn the_static_command_needs_the_compiler_of_musl() {
        let there = with_only(&["cc", "readelf", "clang"]);
        let plan = Plan::make(MUSL, Purpose::Musl, &there);
        assert_eq!(plan.required().count(), 1);
        assert_eq!(plan.packages(Packager::Apt), ["musl-tools"]);
        assert!(plan.report(Some(Packager::Dnf)).contains("sudo dnf install musl-gcc\n"));
        let there = with_only(&["musl-gcc", "readelf", "clang"]);
        assert_eq!(Plan::make(MUSL, Purpose::Musl, there).report(None), "");
        // The other lists do not have it.
        assert!(NEEDS.iter().all(|need| need.wanted_from <= Purpose::All));
    }

    #[test]
    fn packages_need_the_compiler_of_the_kernel_programs() {
        for purpose in [Purpose::Package, Purpose::Musl] {
            let plan =
                Plan::make(purpose.needs(), purpose, with_only(&["cc", "musl-gcc", "readelf"]));
            assert!(plan.packages(Packager::Apt).contains(&"clang"), "{purpose:?}");
            assert!(plan.required().any(|need| need.name == "clang"), "{purpose:?}");
        }
    }

    #[test]
    fn tests_go_on_without_libpcap_and_ci_does_not() {
        let present = [
            "cc",
            "tcpdump",
            "ngrep",
            "nats-server",
            "ip",
            "ethtool",
            "clang",
            "tshark",
            "libhs.so.5",
            "chromium",
            "pcap-config",
            "python3",
        ];
        let there = with_only(Box::leak(Box::new(present)));
        let test = Plan::make(NEEDS, Purpose::Test, &there);
        assert_eq!(test.required().count(), 0);
        let report = test.report(Some(Packager::Apt));
        assert!(report.contains("optional: without it comparisons with libpcap"), "{report}");
        assert!(report.contains("sudo apt-get install libpcap0.8\n"), "{report}");
        let ci = Plan::make(NEEDS, Purpose::Ci, &there);
        assert_eq!(ci.required().count(), 1);
        assert!(ci.report(None).contains("(required: "), "{}", ci.report(None));
    }

    #[test]
    fn a_missing_compiler_stops_everything_and_is_named_for_each_distribution() {
        let plan = Plan::make(NEEDS, Purpose::Demo, with_only(&[]));
        assert_eq!(plan.required().map(|need| need.name).collect::<Vec<_>>(), ["C compiler (cc)"]);
        assert_eq!(plan.packages(Packager::Apt)[..2], ["gcc", "libc6-dev"]);
        assert!(plan.report(Some(Packager::Dnf)).contains("sudo dnf install gcc libpcap "));
    }

    #[test]
    fn big_optional_packages_are_not_looked_for_in_a_demo() {
        let plan = Plan::make(NEEDS, Purpose::Demo, with_only(&[]));
        assert!(!plan.packages(Packager::Apt).iter().any(|p| ["tshark"].contains(p)));
    }

    #[test]
    fn what_runs_elsewhere_has_lists_of_its_own() {
        for purpose in [Purpose::Kernels, Purpose::Portable, Purpose::Package] {
            let plan = Plan::make(purpose.needs(), purpose, with_only(&[]));
            assert_eq!(plan.required().count(), purpose.needs().len(), "all of it is required");
        }
        let plan = Plan::make(Purpose::All.needs(), Purpose::All, with_only(&[]));
        assert!(!plan.packages(Packager::Apt).contains(&"qemu-system-x86"));
    }

    #[test]
    fn only_the_effective_user_id_makes_root() {
        assert!(is_root("Name:\tx\nUid:\t1000\t0\t0\t0\n"));
        assert!(!is_root("Name:\tx\nUid:\t0\t1000\t1000\t1000\n"));
        assert!(!is_root("no such line"));
    }
}
