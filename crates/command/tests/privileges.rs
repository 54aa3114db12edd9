//! Privileges that the built command drops once its sockets and files are open, checked from outside: /proc, other
//! users, files.
//!
//! `crates/privilege` tests from inside what the sandbox denies. This file shows that the command enters it on every
//! thread, and that the operations it needs afterwards still work.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Functions of all scripts: `begin LOG ARGUMENTS...` starts fyke in the background and waits for its start line, `end`
/// ends it, `as UID COMMAND...` runs a command as another user.
const FUNCTIONS: &str = r#"
    until_said() { for try in $(seq 400); do grep -q "$1" "$2" && return; sleep 0.05; done; cat "$2"; exit 9; }
    begin() { log=$1; shift; "$FYKE" "$@" > "$log.out" 2> "$log" & pid=$!; until_said 'edit: fyke ctl' "$log"; }
    end() { kill -INT "$pid"; wait "$pid"; echo "exit $?" >> "$log"; }
    as() { user=$1; shift; setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; }
    field() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$pid/status"; }
    uid() { field Uid | cut -f 1; }
    datagrams_until_end() {
        for try in $(seq 400); do
            echo x > /dev/udp/$1/9
            kill -0 "$pid" 2> /dev/null || break
            sleep 0.05
        done
        wait "$pid"
    }
    trap 'kill $(jobs -p) 2> /dev/null' EXIT
    ip link set lo up
"#;

/// Runs a script as root in its own network namespace; `None` if that is not permitted.
fn in_namespace(folder: &Path, script: &str) -> Option<Output> {
    let able = Command::new("unshare").args(["-n", "true"]).status();
    if !able.is_ok_and(|status| status.success()) {
        println!("skipped: making a network namespace takes root");
        return None;
    }
    let script = format!("{FUNCTIONS}{script}");
    let mut command = Command::new("timeout");
    command.args(["90", "unshare", "-n", "bash", "-c", &script]).current_dir(folder);
    command.env("FYKE", FYKE).env("FYKE_RUNTIME_DIR", folder.join("run"));
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    let output = command.output().unwrap();
    assert_ne!(output.status.code(), Some(9), "{output:?}");
    Some(output)
}

fn read(folder: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(folder.join(name));
    text.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A folder that every user can enter, with a copy of fyke that every user can run.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::copy(FYKE, folder.path().join("fyke")).unwrap();
    folder
}

#[test]
fn a_capture_becomes_another_user_on_every_thread() {
    let folder = open_folder();
    let script = r#"
        begin default dump -i lo -w out.pcapng udp
        for thread in /proc/$pid/task/*; do
            grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|NoNewPrivs|Seccomp):' $thread/status | tr -s '\t\n ' ' '
            echo
        done > threads
        stat -c '%a %u' out.pcapng > file
        uid > uid
        # What other programs of that user may do.
        as $(uid) ls /proc/$pid/fd > fds 2>&1
        as $(uid) cat /proc/$pid/maps > maps 2>&1
        as $(uid) perl -e 'exit(syscall(101, 16, $ARGV[0], 0, 0) == 0 ? 0 : 1)' $pid; echo $? > ptrace
        end
        begin daemon dump -i lo -Z daemon --no-sandbox; field Uid > daemon.uid; field Seccomp > daemon.seccomp; end
        begin root dump -i lo -Z root -w root.pcapng; field Uid > root.uid; field Seccomp > root.seccomp; end
        chmod 700 .; begin closed-log dump -i lo; grep edit: closed-log > closed; end; chmod 777 .
        export SUDO_UID=4711 SUDO_GID=4712
        begin sudo run '(device,lo) > (packetcount)'; (field Uid; field Gid) > sudo.ids
        mkdir -m 700 closed-folder
        "$FYKE" ctl add '(pcapin,/etc/passwd) > (packetcount)' 2> edits
        "$FYKE" ctl add '(device,lo) > (tofile,closed-folder/x)' 2>> edits
        "$FYKE" ctl add '(device,any) > (packetcount)' 2>> edits
        "$FYKE" ctl add '(device,lo) > (tofile,edit.pcap)' 2>> edits | sed 's/filter 2, //; s/1, .*/1, ok/' >> edits
        end
        begin demux demux -i lo 'udp => closed-folder.pcap'
        "$FYKE" ctl add 'tcp => closed-folder/new.pcap' 2> endpoint; echo $? >> endpoint
        end
        SUDO_UID=x "$FYKE" dump -i lo 2> wrong; echo $? >> wrong
        "$FYKE" dump -i lo -Z 'no such' 2>> wrong; echo $? >> wrong
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    let uid = read("uid").trim().to_owned();
    assert_ne!(uid, "0");
    let threads = read("threads");
    assert!(threads.lines().count() >= 2, "{threads}");
    for thread in threads.lines() {
        assert!(thread.starts_with(&format!("Uid: {uid} {uid} {uid} {uid} Gid: ")), "{threads}");
        let none = "CapPrm: 0000000000000000 CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2";
        assert!(thread.contains(none), "{threads}");
        let groups = thread.split("Groups: ").nth(1).unwrap().split(" Cap").next().unwrap();
        assert_eq!(groups.split_whitespace().count(), 1, "{threads}");
    }
    assert_eq!(read("file"), format!("600 {uid}\n"));
    assert!(read("default").contains(" (as root or "), "{}", read("default"));
    assert!(read("default").contains("0 seen") && read("default").ends_with("exit 0\n"));
    for denied in ["fds", "maps"] {
        assert!(read(denied).contains("Permission denied"), "{denied}: {}", read(denied));
    }
    assert_eq!(read("ptrace"), "1\n");
    assert_eq!(read("daemon.uid"), "1\t1\t1\t1\n");
    assert_eq!((&*read("daemon.seccomp"), &*read("root.seccomp")), ("0\n", "2\n"));
    assert_eq!(read("root.uid"), "0\t0\t0\t0\n");
    let edits = read("edits");
    assert_eq!(
        edits.matches("this fyke opens files for edits only beneath its working").count(),
        2
    );
    assert!(edits.contains("with the rights of user 4711"), "{edits}");
    assert!(edits.contains("any: this fyke has given up the right to open interfaces"), "{edits}");
    assert!(edits.ends_with("epoch 1, ok\n"), "{edits}");
    let endpoint = read("endpoint");
    let why =
        "with the rights of user 4711: name another file when it starts, or start it with -Z root";
    assert!(endpoint.contains("new.pcap: ") && endpoint.contains(why), "{endpoint}");
    assert!(endpoint.ends_with("\n2\n"), "{endpoint}");
    assert_eq!(read("sudo.ids"), "4711\t4711\t4711\t4711\n4712\t4712\t4712\t4712\n");
    let wrong = read("wrong");
    assert!(wrong.contains("SUDO_UID=\"x\" is not a user or group id"), "{wrong}");
    assert!(wrong.contains("there is no user no such") && wrong.ends_with("\n2\n"), "{wrong}");
    assert!(read("closed").ends_with(" (as root)\n"), "{}", read("closed"));
    let left = std::fs::read_dir(folder.path().join("run")).unwrap().count();
    assert_eq!(left, 0, "sockets are left: {output:?}");
}

#[test]
fn a_file_is_read_as_another_user() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        head='\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0'
        for options in '' '--no-sandbox' '-Z root'; do
            mkfifo pipe
            (printf "$head"; sleep 20) > pipe & writer=$!
            "$FYKE" dump -r pipe $options --count > count & pid=$!
            for try in $(seq 400); do "$FYKE" ctl --pid $pid stats > /dev/null 2>&1 && break; sleep 0.05; done
            echo "$(uid) $(field Seccomp) $(field NoNewPrivs)" >> found
            kill $writer; wait $pid; cat count >> found; rm pipe
        done
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let found = read(folder.path(), "found");
    let lines: Vec<_> = found.lines().collect();
    let [default, count, open, _, root, _] = lines[..] else { panic!("{found} {output:?}") };
    assert!(default.ends_with(" 2 1") && !default.starts_with("0 "), "{found}");
    assert!(open.ends_with(" 0 1") && !open.starts_with("0 "), "{found}");
    assert_eq!((root, count), ("0 2 1", "0"), "{found}");
}

/// Rotation works in a folder that the new user may write to, even if that user could not reach it by name; if rotation
/// would fail, nothing starts.
#[test]
fn rotation_goes_on_or_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let script = r#"
        mkdir open closed; chmod 777 open
        "$FYKE" dump -i lo -w closed/x.pcap -C 1 2> refused; echo $? >> refused
        "$FYKE" dump -i lo -w closed/x.pcap -G 1 2>> refused; echo $? >> refused
        "$FYKE" run '(device,lo) > (tofile,closed/x.pcap,size=1)' 2>> refused; echo $? >> refused
        "$FYKE" run '(device,lo) > (packetcount)' --svg closed/x.svg --live-svg 2>> refused; echo $? >> refused
        ls closed > left
        send() { perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); $to = sockaddr_in(9, INADDR_LOOPBACK);
            for (1..2500) { send(S, "x" x 1400, 0, $to); select(undef, undef, undef, 0.0005) }'; }
        begin rotated dump -i lo -w open/x.pcap -C 1 -W 3 udp; uid > uid; send; end
        stat -c '%n %a %u' open/* > files
        begin kept dump -i lo -Z root -w closed/x.pcap -C 1 udp; send; end
        ls closed > kept.files
        begin mode dump -i lo -w mode.pcap --file-mode 640; end; stat -c %a mode.pcap > mode
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    let refused = read("refused");
    assert_eq!(refused.matches("or keep root with -Z root\n1\n").count(), 4, "{refused}");
    assert!(refused.contains("may not make files in closed"), "{refused}");
    assert!(read("left").is_empty(), "{}", read("left"));
    let uid = read("uid").trim().to_owned();
    let files: String = (0..3).map(|number| format!("open/x.pcap{number} 600 {uid}\n")).collect();
    assert_eq!(read("files"), files, "{output:?}");
    assert!(read("rotated").ends_with("exit 0\n"), "{}", read("rotated"));
    assert!(read("kept.files").lines().count() >= 3, "{}", read("kept"));
    assert_eq!(read("mode").trim(), "640");
}

/// Another user makes the next file of a rotation: a FIFO, one with a reader, a link, a file that everybody may write,
/// another name of a file. No frame goes there, nothing waits for it; the capture continues in the file after it, and
/// reports it. A ring keeps its number of files.
#[test]
fn a_rotation_passes_over_what_another_user_has_planted() {
    let folder = open_folder();
    let script = r#"
        mkdir -m 777 shared
        echo precious > precious; chmod 666 precious
        names='fifo read link file hard'
        for name in $names; do
            begin $name dump -i lo -w shared/$name.pcap -C 1 udp; declare $name=$pid
        done
        begin ring dump -i lo -w shared/ring.pcap -C 1 -W 3 udp; ring=$pid
        echo earlier > shared/ring.pcap3
        as 4711 mkfifo -m 666 shared/ring.pcap1 shared/fifo.pcap1 shared/read.pcap1
        as 4711 ln -s ../precious shared/link.pcap1
        as 4711 bash -c 'umask 0; echo old > shared/file.pcap1'
        # With fs.protected_hardlinks = 0, another user could do this.
        ln precious shared/hard.pcap1
        setpriv --reuid=4711 --regid=4711 --clear-groups cat shared/read.pcap1 > taken & reader=$!
        perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); $to = sockaddr_in(9, INADDR_LOOPBACK);
            for (1..1500) { send(S, "x" x 1400, 0, $to); select(undef, undef, undef, 0.0005) }'
        for name in $names; do
            pid=${!name}
            for try in $(seq 200); do [ -s shared/$name.pcap2 ] && break; sleep 0.05; done
            kill -INT $pid; wait $pid; echo "exit $?" >> $name
            [ -s shared/$name.pcap2 ] && echo $name >> second
        done
        cat shared/file.pcap1 > old
        for try in $(seq 200); do grep -q 'is taken by another' ring && break; sleep 0.05; done
        kill -INT $ring; wait $ring; echo "exit $?" >> ring
        for number in 0 2 4; do head -c 4 shared/ring.pcap$number | od -An -tx1; done > kept
        cat shared/ring.pcap3 > earlier
        kill $reader
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    for name in ["fifo", "read", "link", "file", "hard"] {
        let text = read(name);
        assert!(text.contains("1 file names of a rotation were passed over"), "{text}");
        assert!(text.contains("+ 0 lost") && text.ends_with("exit 0\n"), "{text} {output:?}");
    }
    assert_eq!(read("second"), "fifo\nread\nlink\nfile\nhard\n", "{output:?}");
    assert_eq!((&*read("precious"), &*read("old")), ("precious\n", "old\n"));
    let ring = read("ring");
    assert_eq!(ring.matches("is taken by another user's file").count(), 1, "{ring}");
    assert!(ring.contains("2 file names of a rotation were passed over"), "{ring}");
    assert_eq!(read("kept"), " d4 c3 b2 a1\n".repeat(3), "three files are kept: {output:?}");
    assert_eq!(read("earlier"), "earlier\n", "a file outside of the ring is not overwritten");
    assert!(read("taken").is_empty(), "frames of a capture reached another user");
}

#[test]
fn the_control_socket_answers_root_and_the_new_user() {
    let folder = open_folder();
    let script = r#"
        umask 0
        begin log dump -i lo udp; user=$(uid)
        "$FYKE" ctl add 'tcp port 80' > root 2>&1; echo $? >> root
        export FYKE_RUNTIME_DIR=$PWD/run-$user
        as $user ./fyke ctl show > own 2>&1; echo $? >> own
        as 4711 ./fyke ctl --pid $pid show > other 2>&1; echo $? >> other
        # Even if the folder were open.
        chmod 755 $FYKE_RUNTIME_DIR; chmod 666 $FYKE_RUNTIME_DIR/$pid.sock
        as 4711 perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or die;
            print scalar <S>' $FYKE_RUNTIME_DIR/$pid.sock > open 2>&1
        end
        ls run $FYKE_RUNTIME_DIR > left
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    assert!(read("root").ends_with("\n0\n"), "{}", read("root"));
    let own = read("own");
    assert!(own.contains("tcp port 80") && own.ends_with("\n0\n"), "{own}");
    assert!(read("other").ends_with("\n1\n"), "{}", read("other"));
    assert!(read("open").contains("and answers that user and root, not user 4711"));
    assert!(!read("left").contains(".sock"), "{}", read("left"));
}

/// A capture that is killed cannot remove the socket of its new user; the next capture does, and `fyke ctl` of root.
#[test]
fn sockets_of_killed_captures_are_removed() {
    let folder = open_folder();
    let script = r#"
        killed() { begin $1 dump -i lo udp; user=$(uid); kill -KILL $pid; wait $pid; }
        killed first; echo run-$user/$pid.sock; first=$(echo run-$user/$pid.sock)
        ls $first >> found
        begin second dump -i lo udp
        ls $first >> found 2>&1; ls run-$user/$pid.sock >> found; end
        killed third; ls run-$user/ >> found
        # Another process now has the number.
        sleep 60 & mv run-$user/$pid.sock run-$user/$!.sock
        "$FYKE" ctl list 2> none; ls run-$user/ >> before
        as $user env FYKE_RUNTIME_DIR=$PWD/run-$user ./fyke ctl list 2>> none; ls -A run-$user/ > left
        killed fourth; ls -A run-$user/ > there; "$FYKE" ctl list 2>> none; ls -A run-$user/ >> left
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    let found = read("found");
    let lines: Vec<_> = found.lines().collect();
    let [first, gone, second, third] = lines[..] else { panic!("{found} {output:?}") };
    assert!(first.starts_with("run-") && gone.contains("No such file"), "{found}");
    assert!(second.starts_with("run-") && third.ends_with(".sock"), "{found}");
    assert!(read("before").ends_with(".sock\n"), "the process exists: {}", read("before"));
    assert!(read("there").ends_with(".sock\n"), "{}", read("there"));
    assert!(read("left").is_empty(), "{}", read("left"));
}

/// As many watchers as are served: the next of the same user hears it, and root is answered.
#[test]
fn watchers_of_the_new_user_do_not_lock_root_out() {
    let folder = open_folder();
    let script = r#"
        begin log dump -i lo udp; user=$(uid)
        setpriv --reuid=$user --regid=$user --clear-groups perl -MSocket -e '$| = 1; for (1..64) {
            socket(my $s, AF_UNIX, SOCK_STREAM, 0);
            connect($s, sockaddr_un($ARGV[0])) or die;
            syswrite($s, qq({"request":"watch","interval_ms":3600000}\n));
            sysread($s, my $first, 1) or die; push @all, $s }
            print "all\n"; sleep 50' $PWD/run-$user/$pid.sock > watchers & watchers=$!
        for try in $(seq 200); do grep -q all watchers && break; sleep 0.05; done
        "$FYKE" ctl --pid $pid stats > root 2>&1; echo $? >> root
        "$FYKE" ctl add 'tcp port 80' > edit 2>&1; echo $? >> edit
        export FYKE_RUNTIME_DIR=$PWD/run-$user
        as $user ./fyke ctl --pid $pid stats > own 2>&1; echo $? >> own
        as $user ./fyke ctl stats > only 2>&1; echo $? >> only
        kill $watchers
        end
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    assert_eq!(read("watchers"), "all\n");
    assert!(read("root").ends_with("\n0\n"), "{}", read("root"));
    assert!(read("edit").ends_with("\n0\n"), "{}", read("edit"));
    for name in ["own", "only"] {
        let text = read(name);
        assert!(text.contains("64 clients are being answered; try again"), "{name}: {text}");
        assert!(!text.ends_with("\n0\n"), "{name}: {text}");
    }
}

/// The helper binds the socket: the process itself may neither look up interfaces nor bind.
#[test]
fn an_interface_that_is_made_again_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        make() { ip link add far type veth peer name near && ip link set near up && ip link set far up; }
        send() { perl -MSocket -e 'socket(S, 17, SOCK_RAW, 0) or die; $i = pack("SnlSCCx8", 17, 3, $ARGV[0], 1, 0, 0);
            for (1..50) { send(S, "\xff" x 12 . "\x88\xb5" . "again" x 10, 0, $i);
                select(undef, undef, undef, 0.01) }' \
            $(ip -o link show near | cut -d: -f1); }
        make
        begin log dump -i far --count 'ether proto 0x88b5'; uid > uid
        ip link del far; until_said gone log
        make; until_said 'capturing on far again' log
        send; send
        end
        cat log.out > count
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    assert_ne!(read("uid").trim(), "0");
    let count: u64 = read("count").trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    assert!(count >= 50, "{count} frames after it came back: {}", read("log"));
}

/// The helper of a process that has become another user cannot be killed by it, so the command ends without it.
#[test]
fn a_helper_that_hangs_does_not_keep_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        begin log dump -i lo udp
        helper=$(pgrep -P $pid -x fyke-helper)
        kill -STOP $helper; kill -INT $pid; from=$(date +%s%N)
        for try in $(seq 400); do kill -0 $pid 2> /dev/null || break; sleep 0.05; done
        kill -KILL $pid 2> /dev/null && echo hangs >> log
        wait $pid; echo "exit $?" >> log
        echo $((($(date +%s%N) - from) / 1000000)) > lasted_ms
        kill -CONT $helper
        for try in $(seq 400); do kill -0 $helper 2> /dev/null || exit 0; sleep 0.05; done
        kill -KILL $helper; echo 'the helper stays' >> log
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let log = read(folder.path(), "log");
    assert!(log.contains("fyke: the helper process ") && log.contains(" does not end"), "{log}");
    assert!(log.ends_with("exit 0\n"), "{log} {output:?}");
    // Two seconds, and the time of a busy machine; it was seven when the removal of root's socket waited, too.
    let lasted_ms: u64 = read(folder.path(), "lasted_ms").trim().parse().unwrap();
    assert!(lasted_ms < 5000, "{lasted_ms} {log}");
}

/// Without the helper an interface cannot be captured again: the capture ends with this reason, after the frames that
/// had arrived.
#[test]
fn a_helper_that_is_killed_is_named_when_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        for workers in 1 2; do
            ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up
            begin log$workers dump -i v1 --workers $workers -w out.pcap udp
            kill -KILL $(pgrep -P $pid -x fyke-helper)
            "$FYKE" generate -i v0 --count 1000 --rate 100000 > /dev/null 2>> log$workers
            ip link delete v0
            for try in $(seq 400); do kill -0 $pid 2> /dev/null || break; sleep 0.05; done
            wait $pid; echo "exit $?" >> log$workers
        done
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    for workers in ["1", "2"] {
        let log = read(folder.path(), &format!("log{workers}"));
        assert!(
            log.contains("look for the interface: the helper process has ended"),
            "{log} {output:?}"
        );
        assert!(log.contains(" seen = 1000 accepted + ") && log.ends_with("exit 1\n"), "{log}");
    }
}

/// A program file with the capability is enough; without it, the error shows how to set it.
#[test]
fn capabilities_are_named_when_missing_and_given_up_when_there() {
    let folder = open_folder();
    let script = r#"
        umask 0; mkdir -m 777 own; cd own
        as 4711 ../fyke dump -i lo > ../missing 2>&1; echo $? >> ../missing
        setcap cap_net_raw+ep ../fyke || { touch ../no-setcap; exit; }
        export FYKE_RUNTIME_DIR=$PWD/run XDG_RUNTIME_DIR=$PWD/xdg
        mkdir -m 700 xdg; chown 4711 xdg
        setpriv --reuid=4711 --regid=4711 --clear-groups ../fyke dump -i lo -w out.pcap 2> ../log & pid=$!
        until_said 'listening on' ../log
        echo "$(uid) $(field CapEff) $(field CapPrm) $(field NoNewPrivs) $(field Seccomp)" > ../found
        kill -INT $pid; wait $pid
        stat -c '%a %u' out.pcap >> ../found
        # A program with more rights than its user ignores our variables.
        [ -d xdg/fyke ] && [ ! -e run ] && echo ignored >> ../found
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    let missing = read("missing");
    assert!(missing.contains("the capability CAP_NET_RAW is missing"), "{missing}");
    let line = format!("`sudo setcap cap_net_raw+ep {}`", folder.path().join("fyke").display());
    assert!(missing.contains(&line) && missing.ends_with("\n1\n"), "{missing}");
    if folder.path().join("no-setcap").exists() {
        return println!("skipped: this file system has no capabilities of files: {output:?}");
    }
    let none = "0000000000000000";
    assert_eq!(read("found"), format!("4711 {none} {none} 1 2\n600 4711\nignored\n"));
}

#[test]
fn a_ring_belongs_to_the_new_user_and_goes_with_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        "$FYKE" demux -i lo 'udp => ring:udp.ring' > log 2>&1 & pid=$!
        for try in $(seq 400); do [ "$(uid)" = 0 ] || break; sleep 0.05; done
        echo "$(uid) $(stat -c '%u %a' udp.ring)" > found
        kill -INT $pid; wait $pid; echo $? >> found
        ls udp.ring >> found 2> /dev/null
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let found = read(folder.path(), "found");
    let (user, rest) = found.split_once(' ').unwrap();
    assert_ne!(user, "0");
    assert_eq!(rest, format!("{user} 600\n0\n"), "{output:?}");
}

/// Without a word of the reader, frames come from root or from its own user.
#[test]
fn a_ring_of_another_user_is_read_only_on_request() {
    let folder = open_folder();
    let script = r#"
        mkfifo -m 666 pipe
        (printf '\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0'; sleep 60) > pipe & writer=$!
        as 4711 ./fyke demux -r pipe --no-control 'udp => ring:far.ring' 2> demux &
        for try in $(seq 400); do [ -S far.ring ] && break; sleep 0.05; done
        timeout 5 "$FYKE" dump -i ring:far.ring --count 2> refused; echo "exit $?" >> refused
        timeout 5 "$FYKE" run '(device,ring:far.ring) > (packetcount)' 2>> refused; echo "exit $?" >> refused
        begin dump dump -i ring:far.ring --ring-user 4711; end
        begin graph run '(device,ring:far.ring,user=4711) > (packetcount)'; end
        kill $writer
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    let refused = read("refused");
    assert_eq!(refused.matches("exit 1\n").count(), 2, "{refused} {output:?}");
    assert_eq!(refused.matches("user 4711 serves this ring").count(), 2, "{refused}");
    assert!(refused.contains("--ring-user 4711 reads this one"), "{refused}");
    for name in ["dump", "graph"] {
        assert!(read(name).ends_with("exit 0\n"), "{}", read(name));
    }
}

/// The sandbox keeps a capture on all interfaces from asking for their names, so they are read before.
#[test]
fn a_capture_on_all_interfaces_prints_their_names() {
    let folder = open_folder();
    let script = r#"
        begin any dump -i any -n -l -c 2 udp port 9
        datagrams_until_end 127.0.0.1
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let printed = read(folder.path(), "any.out");
    assert!(printed.lines().count() == 2, "{printed}");
    assert!(printed.lines().all(|line| line.contains(" lo ")), "{printed}");
}

/// An interface that is made after root was given up: the helper knows its name.
#[test]
fn a_capture_on_all_interfaces_prints_the_name_of_a_new_one() {
    let folder = open_folder();
    let script = r#"
        begin any dump -i any -n -l -c 2 udp port 9
        ip link add later type veth peer name other
        ip link set other up; ip link set later up; ip address add 10.9.9.1/24 dev later
        ip neighbour add 10.9.9.2 lladdr 02:00:00:00:00:02 dev later
        datagrams_until_end 10.9.9.2
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let printed = read(folder.path(), "any.out");
    assert!(printed.contains(" later Out ") && !printed.contains(" if"), "{printed} {output:?}");
}

/// Sockets of rings have time-outs, which the sandbox permits.
#[test]
fn an_edit_adds_a_ring_in_the_sandbox() {
    let folder = open_folder();
    let script = r#"
        begin graph run '(device,lo) > (packetcount)'
        "$FYKE" ctl --pid "$pid" add '(device,lo) > (toring,a.ring)' > edit 2>&1; echo "status $?" >> edit
        end
    "#;
    let Some(_) = in_namespace(folder.path(), script) else { return };
    let said = read(folder.path(), "edit") + &read(folder.path(), "graph");
    assert!(said.contains("status 0"), "{said}");
}

/// What another user has made in a folder with the sticky bit is neither followed nor written; one's own FIFO, devices
/// and pipes are.
#[test]
fn the_first_file_is_nothing_that_another_user_has_planted() {
    let folder = open_folder();
    let script = r#"
        printf '\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0' > in.pcap
        mkdir -m 1777 shared
        echo precious > precious; chmod 666 precious
        as 4711 ln -s ../precious shared/link
        as 4711 ln -s .. shared/folder
        as 4711 mkfifo -m 666 shared/fifo
        as 4711 bash -c 'umask 0; echo old > shared/file'
        # With fs.protected_hardlinks = 0, another user could do this.
        ln precious shared/hard
        mkdir group; chown 0:4711 group; chmod 1775 group
        as 4711 bash -c 'umask 0; echo old > group/file'
        ln -s ../mine shared/own-link
        mkfifo shared/own-fifo
        for name in shared/{link,folder/precious,fifo,file,hard} group/file; do
            for options in '' '-C 1'; do
                timeout 10 "$FYKE" dump -r in.pcap -w $name $options 2>> refused; echo "exit $?" >> refused
            done
        done
        timeout 10 "$FYKE" run --svg shared/link '(pcapin,in.pcap) > (packetcount)' 2>> refused
        cat shared/file group/file > old
        for name in shared/own-link /dev/null /dev/stdout; do
            timeout 10 "$FYKE" dump -r in.pcap -w $name --no-control > out 2>> taken; echo "exit $?" >> taken
        done
        timeout 10 "$FYKE" dump -r in.pcap -w >(cat > pipe) --no-control 2>> taken; echo "exit $?" >> taken
        timeout 10 "$FYKE" dump -r in.pcap -w shared/own-fifo 2>> taken & pid=$!
        cat shared/own-fifo > from-fifo; wait $pid; echo "exit $?" >> taken
        wait; for name in mine pipe from-fifo; do wc -c < $name; done > lengths
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    let refused = read("refused");
    assert_eq!(refused.matches("exit 1\n").count(), 12, "{refused} {output:?}");
    assert_eq!(refused.matches("a link of user 4711 in a folder that other users").count(), 5);
    assert!(refused.matches("belongs to user 4711, and other users may write").count() >= 3);
    assert_eq!(
        refused.matches("group/file: it exists, belongs to user 4711").count(),
        2,
        "{refused}"
    );
    assert_eq!(refused.matches("shared/hard: it has 2 names (hard links)").count(), 2, "{refused}");
    assert_eq!((&*read("precious"), &*read("old")), ("precious\n", "old\nold\n"));
    assert_eq!(read("taken"), "exit 0\n".repeat(5), "{output:?}");
    assert!(read("lengths").lines().all(|bytes| bytes.parse::<u64>().unwrap() > 24));
}

#[test]
fn a_drawing_follows_and_waits_for_nothing_that_another_user_has_planted() {
    let folder = open_folder();
    let script = r#"
        printf '\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0' > in.pcap
        mkdir -m 1777 shared
        echo precious > precious; chmod 666 precious
        as 4711 mkfifo -m 666 shared/fifo.svg.new
        as 4711 ln -s ../precious shared/link.svg.new
        as 4711 ln -s ../precious shared/direct.svg
        for name in fifo link; do
            timeout 10 "$FYKE" run '(pcapin,in.pcap) > (packetcount)' --svg shared/$name.svg --live-svg 2>> log
            echo "exit $?" >> log
        done
        ls -A shared > names
        timeout 10 "$FYKE" run '(pcapin,in.pcap) > (packetcount)' --svg shared/direct.svg --live-svg 2> direct
        echo "exit $?" >> direct
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let read = |name: &str| read(folder.path(), name);
    assert_eq!(read("log").matches("exit 0\n").count(), 2, "{} {output:?}", read("log"));
    assert_eq!(read("precious"), "precious\n");
    let names = "direct.svg\nfifo.svg\nfifo.svg.new\nlink.svg\nlink.svg.new\n";
    assert_eq!(read("names"), names, "no draft is left");
    let direct = read("direct");
    let cause = "cannot write shared/direct.svg: Operation not permitted (os error 1)\nexit 1\n";
    assert!(direct.ends_with(cause), "{direct}");
}

/// Containers refuse the system calls of a sandbox in several ways; perl installs such a filter.
#[test]
fn a_refused_sandbox_says_what_to_do() {
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: the filter of this test has the system call numbers of x86-64");
    }
    let folder = open_folder();
    let script = r#"
        printf '\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0' > in.pcap
        # refusing ERRNO COMMAND...: seccomp(2), or the call $ONE, and landlock_create_ruleset(2) fail.
        refusing() { timeout 20 perl -e 'sub step { pack("SCCL", @_) }
            $program = step(0x20, 0, 0, 0) . step(0x15, 1, 0, $ENV{ONE} // 317) . step(0x15, 0, 1, 444)
                . step(6, 0, 0, 0x50000 | shift) . step(6, 0, 0, 0x7fff0000);
            $head = pack("Sx6P", 5, $program);
            syscall(157, 38, 1, 0, 0, 0) == 0 && syscall(157, 22, 2, $head) == 0 or die $!;
            exec @ARGV' "$@"; }
        for options in '-i lo' '-r in.pcap' '-r in.pcap --no-control'; do
            refusing 1 "$FYKE" dump $options --count 2>> refused; echo "exit $?" >> refused
        done
        # capset(2) and prctl(2) fail in the helper.
        for call in 126 157; do
            ONE=$call refusing 1 "$FYKE" dump -i lo --count 2>> helper; echo "exit $?" >> helper
        done
        refusing 1 "$FYKE" dump -r in.pcap -Z root --no-sandbox --count 2>> taken; echo "exit $?" >> taken
        refusing 22 "$FYKE" dump -r in.pcap --count 2>> taken; echo "exit $?" >> taken
        refusing 38 "$FYKE" dump -r in.pcap --count 2>> taken; echo "exit $?" >> taken
    "#;
    let Some(output) = in_namespace(folder.path(), script) else { return };
    let refused = read(folder.path(), "refused");
    assert_eq!(refused.matches("exit 1\n").count(), 3, "{refused} {output:?}");
    let advice = "`-Z root --no-sandbox` keeps root and runs without a sandbox (docs/security.md)";
    assert_eq!(refused.matches(advice).count(), 3, "{refused}");
    assert_eq!(refused.matches("Operation not permitted").count(), 3, "{refused}");
    let helper = read(folder.path(), "helper");
    let cause = "the helper process cannot confine itself: Operation not permitted (os error 1)";
    assert_eq!(helper.matches(cause).count(), 2, "{helper}");
    assert_eq!(helper.matches("exit 1\n").count(), 2, "{helper}");
    let taken = read(folder.path(), "taken");
    assert_eq!(taken, "exit 0\n".repeat(3), "{output:?}");
}
