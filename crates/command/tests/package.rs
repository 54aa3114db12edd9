//! The Debian package of `cargo xtask package`: installed, run and removed in an overlay of the root of this system.

use fyke_testkit::namespace;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs in the overlay. Each line of its output is a fact that the test checks.
const SCRIPT: &str = r#"
set -u
ip link set lo up
dpkg -i /package.deb > /log 2>&1 || { cat /log; exit; }
echo "version: $(fyke --version)"
echo "page: $(zgrep -c '' /usr/share/man/man1/fyke-dump.1.gz | sed 's/[1-9].*/some lines/')"
for file in bash-completion/completions/fyke zsh/vendor-completions/_fyke fish/vendor_completions.d/fyke.fish; do
    [ -s /usr/share/$file ] && echo "completions: $file"
done
echo "units: $(ls /usr/lib/systemd/system/fyke-serve@.* | wc -l)"
echo "extcap: $(readlink -e /usr/lib/*/wireshark/extcap/fyke)"
echo "sums: $(cd / && md5sum --quiet -c /var/lib/dpkg/info/fyke.md5sums 2>&1)"
echo "capabilities: $(getcap /usr/bin/fyke) $(fyke-capabilities status)"
as="setpriv --reuid=4711 --regid=4711"
begin() { log=$1; shift; "$@" 2> $log & pid=$!
    for try in $(seq 400); do grep -q 'listening on' $log && return; sleep 0.05; done; cat $log; }
send() { for n in 1 2 3 4 5; do echo x > /dev/udp/127.0.0.1/9; done 2> /dev/null; sleep 0.5; }
if fyke-capabilities on > /log 2>&1; then
    echo "copy: $(stat -c '%a %U:%G' /usr/lib/fyke/bin/fyke)"
    # The first program after the change of user may still have root's rights; the second has none.
    $as --clear-groups sh -c '/usr/lib/fyke/bin/fyke --version' > /dev/null 2>&1; echo "others: $?"
    cd /tmp
    group=$(getent group fyke | cut -d: -f3)
    begin /log-as $as --groups $group /usr/lib/fyke/bin/fyke dump -i lo -w - udp > /dev/null
    send; kill -INT $pid; wait $pid; echo "member: $? $(grep -c '^[1-9].* seen .* + 0 lost' /log-as)"
    # Wireshark of a member starts the link to /usr/bin/fyke, which has no capability.
    mkfifo -m 666 /tmp/frames; timeout 60 cat /tmp/frames > /tmp/seen & reader=$!
    $as --groups $group /usr/lib/*/wireshark/extcap/fyke --capture --extcap-interface fyke:lo \
        --extcap-capture-filter udp --fifo /tmp/frames 2> /log-extcap & pid=$!
    for try in $(seq 400); do [ -s /tmp/seen ] && break; kill -0 $pid 2> /dev/null || break; sleep 0.05; done
    send; kill -TERM $pid; wait $pid; code=$?; wait $reader
    echo "member in Wireshark: $code $(fyke dump -r /tmp/seen --count udp)"; cat /log-extcap
else
    echo "no capabilities: $(cat /log)"
fi
begin /log-dump fyke dump -i lo -w /tmp/out.pcapng udp
dpkg -r fyke > /log 2>&1 || cat /log
send; kill -INT $pid; wait $pid; echo "removed while it captures: $?"
tail -n 1 /log-dump
echo "left: $(ls -d /usr/bin/fyke /usr/sbin/fyke-capabilities /usr/lib/fyke /usr/lib/libfyke* /usr/include/fyke* \
    /usr/share/doc/fyke /usr/share/man/man1/fyke* /usr/lib/*/wireshark/extcap/fyke 2> /dev/null)"
"#;

/// Builds the package from what the tests have built.
fn package(to: &Path) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut xtask = Command::new(cargo);
    xtask.args(["run", "-q", "-p", "xtask", "--", "package", "--fast", "--from"]).arg(built);
    let output = xtask.arg("--to").arg(to).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = std::fs::read_dir(to).unwrap().flatten().map(|entry| entry.path());
    files.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "deb")).unwrap()
}

/// Runs the script in an overlay with its changes in memory.
fn in_overlay(package: &Path, folder: &Path) -> String {
    let script = format!(
        "set -e; mount -t tmpfs none {0}; cd {0}; mkdir upper work root
         mount -t overlay -o lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work none root
         for dir in dev proc sys; do mount --rbind /$dir root/$dir; done
         mount -t tmpfs none root/tmp; mount -t tmpfs none root/run
         cp {1} root/package.deb; cat > root/script; timeout -k 5 120 chroot root bash /script 2>&1",
        folder.display(),
        package.display()
    );
    let file = folder.with_extension("sh");
    std::fs::write(&file, SCRIPT).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let output = Command::new("bash").args(["-c", &script]).stdin(input).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_package_is_installed_runs_and_goes() {
    let test = "the_package_is_installed_runs_and_goes";
    if !namespace::inside(test, &["-n", "-m", "--propagation", "private"], None) {
        return;
    }
    if Command::new("dpkg-shlibdeps").arg("--version").output().is_err() {
        return println!("skipped: dpkg-dev is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let package = package(&folder.path().join("out"));
    let overlay = folder.path().join("overlay");
    std::fs::create_dir(&overlay).unwrap();
    let said = in_overlay(&package, &overlay);
    let expected = [
        concat!("version: fyke ", env!("CARGO_PKG_VERSION")),
        "page: some lines",
        "completions: bash-completion/completions/fyke",
        "completions: zsh/vendor-completions/_fyke",
        "completions: fish/vendor_completions.d/fyke.fish",
        "units: 2",
        "extcap: /usr/bin/fyke",
        "sums: ",
        "capabilities:  off: only root captures",
        "removed while it captures: 0",
        "left: ",
    ];
    for line in expected {
        assert!(said.lines().any(|one| one == line), "{line:?} is not in:\n{said}");
    }
    let sum = said.lines().find(|line| line.contains(" seen = ")).unwrap_or_default();
    assert!(sum.contains(" + 0 lost") && !sum.starts_with("0 "), "{said}");
    if !said.contains("no capabilities: ") {
        for line in
            ["copy: 750 root:fyke", "others: 126", "member: 0 1", "member in Wireshark: 0 5"]
        {
            assert!(said.lines().any(|one| one == line), "{line:?} is not in:\n{said}");
        }
    } else {
        println!("the file system of this overlay has no capabilities of files");
    }
}
