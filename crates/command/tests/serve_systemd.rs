//! The units of `docs/systemd` under a real systemd, in namespaces of its own: the socket starts the service, a restart
//! under load loses nothing, a killed process loses at most a batch, and a stop ends the readers in order.

mod common;
#[path = "common/numbered.rs"]
mod numbered;

use common::{FYKE, Running, Sum, folder, tool, veth};
use numbered::{numbers_of, pass, send_numbered};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TEST: &str = "the_units_keep_readers_over_restarts";
const INSIDE: &str = "FYKE_TEST_UNDER_SYSTEMD";
const SYSTEMD: &str = "/lib/systemd/systemd";
const SERVICE: &str = "fyke-serve@v1.service";
const SOCKET: &str = "/run/fyke-serve/v1.sock";
/// Standard error of the service.
const LOG: &str = "/run/fyke-serve.log";

/// Runs systemd as the first process of new namespaces, in a control group of its own, and this test beside it.
const OUTSIDE: &str = r#"
group=$GROUPS_AT/fyke-test-$$
mkdir "$group" && echo $$ > "$group/cgroup.procs" || exit 77
timeout -k 5 100 unshare -m -p -f -C -n -u --kill-child --propagation private bash -c "$WITHIN"
status=$?
echo $$ > "$GROUPS_AT/cgroup.procs"
find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
exit $status
"#;
const WITHIN: &str = r#"
mount -t proc proc /proc && mount -t tmpfs tmpfs /run || exit 77
umount -R /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup && touch /run/fyke-built && mount --bind "$FYKE" /run/fyke-built || exit 77
( "$BINARY" --exact "$TEST" --nocapture --test-threads=1; systemctl --force exit $? ) &
exec "$SYSTEMD" --system --unit=default.target --show-status=no </dev/null 2>/dev/null
"#;

/// Folder of the control groups of version 2.
fn groups() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(PathBuf::from(line.split(' ').nth(4)?))
}

/// The units of the project, and empty ones that they refer to.
fn units(folder: &Path) {
    for name in ["default", "basic", "sysinit", "shutdown", "sockets", "multi-user", "network"] {
        let text = "[Unit]\nDefaultDependencies=no\n";
        std::fs::write(folder.join(format!("{name}.target")), text).unwrap();
    }
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd");
    for entry in std::fs::read_dir(ours).unwrap().flatten() {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let more = folder.join("fyke-serve@.service.d");
    std::fs::create_dir(&more).unwrap();
    // systemd before version 254 keeps descriptors, and does not tell it by itself.
    let text = format!(
        "[Service]\nExecStart=\nExecStart=/run/fyke-built serve -i %i\nEnvironment=FDSTORE=1536\n\
         StandardError=append:{LOG}\n"
    );
    std::fs::write(more.join("test.conf"), text).unwrap();
}

/// Returns true under systemd. Elsewhere it runs this test there, or prints the reason why it cannot.
fn under_systemd() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let Some(at) = groups().filter(|_| Path::new(SYSTEMD).exists()) else {
        println!("skipped: no systemd or no control groups of version 2 here");
        return false;
    };
    let (folder, _at) = folder();
    units(folder.path());
    let mut command = Command::new("bash");
    command.args(["-c", OUTSIDE]).env("WITHIN", WITHIN).env("GROUPS_AT", at).env(INSIDE, "1");
    command.env("BINARY", std::env::current_exe().unwrap()).env("TEST", TEST);
    command.env("FYKE", FYKE).env("SYSTEMD", SYSTEMD).env("container", "fyke-test");
    let status = command.env("SYSTEMD_UNIT_PATH", folder.path()).status().unwrap();
    match status.code() {
        Some(77) => println!("skipped: systemd cannot run in namespaces of its own here"),
        code => assert_eq!(code, Some(0), "the test failed under systemd"),
    }
    false
}

fn log() -> String {
    std::fs::read_to_string(LOG).unwrap_or_default()
}

/// Waits until the log of the service has this number of lines with a text.
fn heard(text: &str, times: usize) {
    let limit = Instant::now() + Duration::from_secs(20);
    while log().matches(text).count() < times {
        assert!(Instant::now() < limit, "not {times} times {text:?}: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that systemd has started.
fn main_process() -> u32 {
    let words = ["show", "--value", "--property=MainPID", SERVICE];
    let shown = Command::new("systemctl").args(words).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).trim().parse().unwrap()
}

fn dump(text: &str, file: &Path) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-i", &format!("serve:{SOCKET}"), text, "-w"]).arg(file);
    let reader = Running::start(command.stdout(Stdio::null()));
    reader.hear("listening on serve:");
    reader
}

/// Sends frames while the service is restarted, or killed. Returns the sum of a reader that accepts all, and the number
/// of frames that were sent.
fn under_load(killed: bool, restored: &mut usize) -> (Sum, u64) {
    let (_folder, at) = folder();
    let file = at("all.pcapng");
    let readers = [dump("udp", &file), dump("udp port 5001", &at("half.pcapng"))];
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (ends, sent) = (Arc::clone(&stop), Arc::clone(&count));
    let sender = std::thread::spawn(move || send_numbered(&ends, &sent));
    for _ in 0..2 {
        pass(&count);
        match killed {
            true => tool(&format!("kill -KILL {}", main_process())),
            false => tool(&format!("systemctl restart {SERVICE}")),
        }
        *restored += 1;
        heard("the capture continues, with 2 readers", *restored);
        // systemd counts the starts after failures.
        tool(&format!("systemctl reset-failed {SERVICE}"));
    }
    pass(&count);
    stop.store(true, Ordering::Relaxed);
    let sent = sender.join().unwrap();
    let [all, half] = readers.map(|mut reader| {
        reader.settle(sent);
        reader.signal("INT");
        assert!(reader.end().success(), "{}", reader.said());
        reader.sum()
    });
    assert_eq!((all.seen, half.seen), (sent, sent));
    let numbers = numbers_of(&file);
    assert!(numbers.values().all(|count| *count == 1), "a frame twice");
    assert_eq!(numbers.len() as u64, all.accepted);
    (all, sent)
}

#[test]
fn the_units_keep_readers_over_restarts() {
    if !under_systemd() {
        return;
    }
    let limit = Instant::now() + Duration::from_secs(20);
    while !Path::new("/run/systemd/private").exists() {
        assert!(Instant::now() < limit, "systemd does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Until then it may stop what was started meanwhile. It is "degraded" if a unit of the system has failed.
    let _state = Command::new("systemctl").args(["is-system-running", "--wait"]).output().unwrap();
    tool("ip link set lo up");
    veth();
    tool("systemctl start fyke-serve@v1.socket");
    let mut restored = 0;
    let (sum, sent) = under_load(false, &mut restored);
    assert_eq!(sum, Sum { seen: sent, accepted: sent, rejected: 0, lost: 0 });
    let (sum, _) = under_load(true, &mut restored);
    // A batch has at most 256 frames.
    assert!(sum.lost <= 2 * 256, "{sum:?}");
    // Without a policy there is nothing to read again, and the service stays.
    tool(&format!("systemctl reload {SERVICE}"));
    heard("there is no policy to read again", 1);
    let (_folder, at) = folder();
    let mut last = dump("udp", &at("last.pcapng"));
    tool(&format!("systemctl stop {SERVICE}"));
    assert!(last.end().success(), "{}", last.said());
}
