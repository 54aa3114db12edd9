//! Several interfaces in one capture, and captures in another network namespace.

use fyke_testkit::namespace::Script;
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
}

fn run(script: &Script, text: &str, folder: &Path) -> Option<Output> {
    let output = script.run(text)?;
    let log = read(folder, "log");
    assert!(output.status.success(), "{}{log}", self::text(&output.stderr));
    Some(output)
}

/// Datagrams over two pairs of interfaces in turn: one file with all of them, in the order of time, and each with its
/// interface; the sum adds up.
#[test]
fn several_interfaces_are_one_capture() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        set -eu
        veth
        ip link add left type veth peer name right
        for end in left right; do
            sysctl -qw net.ipv6.conf.$end.disable_ipv6=1
            ip link set $end up
        done
        ip address add 10.9.1.1/24 dev near
        ip neigh add 10.9.1.2 lladdr 02:00:00:00:00:01 dev near
        ip address add 10.9.2.1/24 dev left
        ip neigh add 10.9.2.2 lladdr 02:00:00:00:00:02 dev left
        "$FYKE" dump -i far -i right --no-control -w out.pcapng udp 2> log & pid=$!
        wait_for grep -q 'listening on right' log
        for number in $(seq 200); do
            echo x > /dev/udp/10.9.1.2/5001
            echo x > /dev/udp/10.9.2.2/5002
        done
        sleep 0.5
        kill -INT $pid
        wait $pid
        "$FYKE" dump -nttr out.pcapng > lines
        "$FYKE" dump -nr out.pcapng --count udp port 5001 > first
        tshark -r out.pcapng -T fields -e frame.interface_name -e udp.dstport 2> /dev/null > names || true
        "$FYKE" dump -i far -i near --immediate-mode --no-control -c 2 -nt udp > both 2>> log & pid=$!
        wait_for grep -q 'listening on near' log
        echo x > /dev/udp/10.9.1.2/5001
        wait $pid
    "#;
    let namespace = Script::new(FYKE, folder.path());
    if run(&namespace, script, folder.path()).is_none() {
        return;
    }
    let log = read(folder.path(), "log");
    assert!(log.contains("400 accepted + ") && log.contains("+ 0 lost"), "{log}");
    let lines = read(folder.path(), "lines");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 400);
    let times: Vec<_> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // Frames were sent in turn, so they are in the file in turn.
    let ports: Vec<_> = lines.iter().map(|line| line.contains(".5001:")).collect();
    assert!(ports.chunks(2).all(|two| two == [true, false]), "{lines:?}");
    assert_eq!(read(folder.path(), "first"), "200\n");
    let names = read(folder.path(), "names");
    if names.is_empty() {
        println!("skipped: the names of interfaces: no tshark");
    } else {
        let all: Vec<_> = names.lines().collect();
        let known = ["far\t5001", "right\t5002"];
        assert!(all.len() == 400 && all.iter().all(|line| known.contains(line)), "{names}");
    }
    let both = read(folder.path(), "both");
    let both: Vec<_> = both.lines().collect();
    assert!(both.len() == 2 && both[0] == both[1], "both ends see the datagram: {both:?}");
}

/// Command lines about several interfaces that cannot run.
#[test]
fn combinations_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (line, says) in [
        ("dump -i any -i lo", "any cannot be captured together with other interfaces"),
        ("dump -i lo -i ring:x", "ring:x cannot be captured together"),
        ("dump -i lo -i lo", "lo is named twice"),
        ("dump -i lo -i any --look-back udp", "one interface can be named here"),
        ("track ftp -i lo -i any -w x.pcap", "one interface can be named here"),
        ("dump -L -i lo -i any", "one interface can be named here"),
        ("dump -r x.pcap --netns 1", "cannot be used with"),
        ("run --check (device,lo,expression=lo)>(accept)", "lo is named twice"),
    ] {
        let mut command = Command::new(FYKE);
        let refused = command.args(line.split(' ')).current_dir(folder.path()).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(says), "{line}: {said}");
    }
    for (given, says) in [
        ("no-such-name", "there is no network namespace no-such-name"),
        ("../1", "there is no network namespace ../1"),
        ("4294967295", "there is no process 4294967295"),
    ] {
        let refused = Command::new(FYKE).args(["dump", "--netns", given, "-D"]).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{given}: {said}");
        assert!(said.contains(says), "{given}: {said}");
    }
}

/// A capture in the namespace of another process, and in one that has a name. It sees the interfaces there, drops its
/// rights, and can be edited from outside.
#[test]
fn a_capture_in_another_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        set -eu
        ip link set lo up
        mount -t proc proc /proc
        mount -t tmpfs none /run
        mkdir -p /run/netns
        unshare -n sleep 1000 & there=$!
        mine=$(readlink /proc/self/ns/net)
        differs() { test "$(readlink /proc/$there/ns/net)" != "$mine"; }
        wait_for differs
        nsenter -t $there -n ip link set lo up
        nsenter -t $there -n ip link add only type veth peer name other
        nsenter -t $there -n ip link set only up
        touch /run/netns/blue /run/netns/text
        mount --bind /proc/$there/ns/net /run/netns/blue
        "$FYKE" dump --netns $there -D > by-process
        "$FYKE" dump --netns blue -D > by-name
        "$FYKE" dump --netns text -D 2> wrong && exit 1
        "$FYKE" dump --netns green -D 2>> wrong && exit 1
        "$FYKE" dump --netns blue -i lo -nl udp port 9 > lines 2> log & pid=$!
        wait_for grep -q 'listening on lo' log
        "$FYKE" ctl --pid $pid set 'udp port 10' > set
        nsenter -t $there -n bash -c 'for n in 1 2 3; do echo x > /dev/udp/127.0.0.1/10; done' || true
        echo x > /dev/udp/127.0.0.1/10
        enough() { test $(wc -l < lines) -ge 3; }
        wait_for enough
        kill -INT $pid
        wait $pid
        kill $there
    "#;
    let namespace = Script::new(FYKE, folder.path()).as_root().own_mounts();
    if run(&namespace, script, folder.path()).is_none() {
        return;
    }
    for name in ["by-process", "by-name"] {
        let listed = read(folder.path(), name);
        assert!(listed.contains(".only ") && listed.contains(".lo "), "{listed}");
    }
    let wrong = read(folder.path(), "wrong");
    assert!(wrong.contains("text is not a network namespace"), "{wrong}");
    assert!(
        wrong.contains("there is no network namespace green; there are: blue, text"),
        "{wrong}"
    );
    let lines = read(folder.path(), "lines");
    assert_eq!(lines.lines().count(), 3, "{lines}{}", read(folder.path(), "log"));
}

/// A user without rights is told what is missing.
#[test]
fn a_user_without_rights_is_refused() {
    let own = std::process::id().to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=4711", "--regid=4711", "--clear-groups", "--bounding-set=-all"]);
    if !command.arg("true").status().is_ok_and(|status| status.success()) {
        return println!("skipped: this user cannot become another one");
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("fyke");
    std::fs::copy(FYKE, &copy).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=4711", "--regid=4711", "--clear-groups"]);
    let refused = command.arg(&copy).args(["dump", "--netns", &own, "-D"]).output().unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("root may, or CAP_SYS_ADMIN"), "{said}");
}
