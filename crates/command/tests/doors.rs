//! Access control of the built command: the users that may reach a running fyke, the escaping of data from others in
//! its output, and the limits on the cost of an expression.

use fyke_testkit::namespace::Script;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn fyke(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["30", FYKE]).args(arguments).current_dir(folder);
    command.env("FYKE_RUNTIME_DIR", folder.join("run")).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A socket in a folder that other users can write, and one in our own folder with a listener of another user.
#[test]
fn ctl_does_not_talk_to_a_socket_that_another_user_planted() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).unwrap();
    let planted = UnixListener::bind(run.join("4711.sock")).unwrap();
    let refused = fyke(folder.path(), &["ctl", "--pid", "4711", "show"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("not trusted: "), "{}", said(&refused));
    drop(planted);
    std::fs::remove_file(run.join("4711.sock")).unwrap();
    if chown(&run, Some(65534), None).is_err() {
        return println!("skipped: giving a folder to another user takes root");
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = "socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un('4711.sock')) or die; \
                  listen(S, 5); sleep 20";
    let mut nobody = Command::new("setpriv");
    nobody.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "perl",
        "-MSocket",
        "-e",
        script,
    ]);
    let mut nobody = match nobody.current_dir(&run).spawn() {
        Ok(nobody) => nobody,
        Err(error) => return println!("skipped: no setpriv here: {error}"),
    };
    for _ in 0..200 {
        if run.join("4711.sock").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let of_nobody = fyke(folder.path(), &["ctl", "--pid", "4711", "show"]);
    chown(&run, Some(0), None).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o700)).unwrap();
    let in_our_folder = fyke(folder.path(), &["ctl", "--pid", "4711", "show"]);
    let listed = fyke(folder.path(), &["ctl", "list"]);
    nobody.kill().unwrap();
    nobody.wait().unwrap();
    assert!(said(&of_nobody).contains("belongs to user 65534"), "{}", said(&of_nobody));
    let text = said(&in_our_folder);
    assert!(text.contains("not trusted: user 65534 listens there, expected user 0"), "{text}");
    assert!(listed.stdout.is_empty(), "{listed:?}");
}

#[test]
fn ctl_names_its_target_takes_only_live_captures_and_keeps_the_last_filter() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        ip link set lo up
        mkfifo idle fifo; chmod 666 fifo
        sleep 50 > idle & holder=$!
        (printf '\xd4\xc3\xb2\xa1\2\0\4\0'; head -c 8 /dev/zero
            printf '\0\0\4\0\1\0\0\0'; exec sleep 50) > idle & feeder=$!
        "$FYKE" dump -r idle -w file.pcapng 2> offline.log & offline=$!
        wait_for eval '"$FYKE" ctl list | grep -q .'
        "$FYKE" ctl add udp 2> none-live; echo $? >> none-live
        (umask 0; exec "$FYKE" dump -i lo -w $'live\e[31m.pcapng' udp 2> live.log) & live=$!
        wait_for "$FYKE" ctl stats
        stat -c %a run/$live.sock > mode
        "$FYKE" ctl del 1 2> last; echo $? >> last
        "$FYKE" ctl set '' 2> target
        "$FYKE" ctl --json stats > json 2> /dev/null
        "$FYKE" ctl show > /dev/full 2> full; echo $? >> full
        kill -INT $live $offline; kill $holder $feeder
        wait $live
        "$FYKE" run '(device,lo) > (packetcount)' 2> run.log & graph=$!
        wait_for "$FYKE" ctl stats
        timeout 10 "$FYKE" ctl add '(pcapin,fifo) > (packetcount)' 2> fifo.log; echo $? >> fifo.log
        timeout 10 "$FYKE" ctl add '(device,lo) > (tofile,fifo)' 2> to-fifo.log; echo $? >> to-fifo.log
        timeout 10 "$FYKE" ctl add '(device,lo) > (packetcount)' > after-fifo 2>&1; echo $? >> after-fifo
        kill -INT $graph
        echo $live > pid
        wait $graph
    "#;
    let namespace = Script::new(FYKE, folder.path()).as_root().among_all_processes();
    let Some(output) = namespace.run(script) else { return };
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        assert!(!text.is_empty(), "{name} is empty: {output:?}");
        text
    };
    let none_live = read("none-live");
    assert!(none_live.contains("no live capture is running"), "{none_live}");
    assert!(none_live.contains("dump -r idle") && none_live.ends_with("\n2\n"), "{none_live}");
    assert_eq!(read("mode").trim(), "600");
    let pid = read("pid").trim().to_owned();
    assert!(read("target").starts_with(&format!("fyke: process {pid}  ")), "{}", read("target"));
    assert!(read("json").contains(&format!("\"target\":{{\"pid\":{pid},\"source\":\"lo\"}}")));
    let last = read("last");
    assert!(last.contains("`set ''` accepts everything, ending the capture stops it"), "{last}");
    assert!(last.ends_with("\n2\n"), "{last}");
    let target = read("target");
    assert!(target.contains(r"live\u001b[31m.pcapng") && !target.contains('\x1b'), "{target}");
    assert!(read("full").ends_with("(os error 28)\n1\n"), "{}", read("full"));
    let fifo = read("fifo.log");
    assert!(fifo.contains("not a regular file") && fifo.ends_with("\n2\n"), "{fifo}");
    let to_fifo = read("to-fifo.log");
    assert!(to_fifo.contains("this FIFO has no reader"), "{to_fifo}");
    assert!(to_fifo.ends_with("\n2\n"), "{to_fifo}");
    assert!(read("after-fifo").ends_with("\n0\n"), "{}", read("after-fifo"));
}

/// Sockets of ended processes, as they seem, on which the user that root becomes listens and accepts nothing.
#[test]
fn a_user_cannot_delay_the_commands_of_root() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = folder.path().join("run-4711");
    std::fs::create_dir(&theirs).unwrap();
    std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o700)).unwrap();
    let script = "for my $at (4294967200..4294967211) { \
                      socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die $!; \
                      bind($s, sockaddr_un(\"$at.sock\")) or die $!; listen($s, 0) or die $!; \
                      socket(my $c, AF_UNIX, SOCK_STREAM, 0) or die $!; \
                      connect($c, sockaddr_un(\"$at.sock\")) or die $!; push @all, $s, $c; } \
                  open(my $done, '>', '../full') or die $!; close($done); sleep 50";
    let mut listeners = Command::new("perl");
    let listeners = listeners.args(["-MSocket", "-e", script]).current_dir(&theirs).spawn();
    let mut listeners = match listeners {
        Ok(listeners) => listeners,
        Err(error) => return println!("skipped: no perl here: {error}"),
    };
    for _ in 0..500 {
        if folder.path().join("full").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let is_root = chown(&theirs, Some(4711), None).is_ok();
    let start = std::time::Instant::now();
    let mut list = Command::new(FYKE);
    list.args(["ctl", "list"]).env("FYKE_RUNTIME_DIR", folder.path().join("run"));
    let listed = list.env("SUDO_UID", "4711").env("SUDO_GID", "4711").output().unwrap();
    let lasted = start.elapsed();
    listeners.kill().unwrap();
    listeners.wait().unwrap();
    if !is_root {
        return println!("skipped: giving a folder to another user takes root");
    }
    assert!(folder.path().join("full").exists());
    assert!(listed.status.success(), "{listed:?}");
    assert!(lasted < std::time::Duration::from_secs(8), "{lasted:?}");
}

#[test]
fn escape_sequences_of_arguments_and_files_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("\x1b[31m.rul"), "filter \x1b[32m").unwrap();
    for arguments in [
        &["dump", "-i", "\x1b]0;x\x07"][..],
        &["dump", "-r", "\x1b[31m"],
        &["dump", "\x1b[31m", "--\x1b[31m"],
        &["\x1b[31m"],
        &["explain", "tcp \x1b[31m"],
        &["ruler", "check", "\x1b[31m.rul"],
        &["run", "(\x1b[31m)"],
    ] {
        let output = fyke(folder.path(), arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let all = [said(&output), String::from_utf8_lossy(&output.stdout).into_owned()].concat();
        assert!(!all.is_empty() && !all.contains(['\x1b', '\x07']), "{all:?}");
    }
}

#[test]
fn lend_names_the_command_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["lend"][..], &["lend", "-i", "lo", "--clients", "2", "lend.sock"]] {
        let output = fyke(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            said(&output).contains("`fyke serve -i IF` serves the capture"),
            "{}",
            said(&output)
        );
    }
    assert!(!folder.path().join("lend.sock").exists());
}

#[test]
fn root_is_not_told_to_become_root() {
    let folder = tempfile::tempdir().unwrap();
    let is_root = chown(folder.path(), Some(0), None).is_ok();
    let output = fyke(folder.path(), &["ctl", "stats"]);
    assert!(said(&output).contains("no running fyke owned by you"), "{}", said(&output));
    assert_ne!(said(&output).contains("run as root"), is_root, "{}", said(&output));
}

/// A copy that is setuid root, run by another user, with the commands that read files, write them or start programs.
#[test]
fn a_setuid_copy_refuses_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let [copy, id, secret] = ["fyke", "id", "secret"].map(|name| folder.path().join(name));
    std::fs::copy(FYKE, &copy).unwrap();
    std::fs::write(&secret, "password").unwrap();
    if std::fs::copy("/usr/bin/id", &id).is_err() {
        return println!("skipped: no /usr/bin/id here");
    }
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(folder.path(), 0o755);
    mode(&secret, 0o600);
    if [&copy, &id].iter().any(|file| chown(file, Some(0), Some(0)).is_err()) {
        return println!("skipped: a setuid copy takes root");
    }
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["30", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(arguments).current_dir(folder.path()).output().unwrap()
    };
    assert!(as_nobody(&["./fyke", "--version"]).status.success(), "an ordinary copy runs");
    mode(&id, 0o4755);
    mode(&copy, 0o4755);
    if as_nobody(&["./id", "-u"]).stdout != b"0\n" {
        return println!("skipped: the folder for temporary files is mounted nosuid");
    }
    for arguments in [
        &["--version"][..],
        &["explain", "-F", "secret"],
        &["run", "--check", "-f", "secret"],
        &["run", "--check", "--svg", "drawing.svg", "(pcapin, secret) > (packetcount)"],
        &["ctl", "list"],
        &["rules", "list"],
        &["machine", "run", "secret"],
        &["ruler", "check", "secret"],
        &["serve", "-i", "lo", "--name", "./serve.sock"],
        &["exec", "--", "id"],
        &["dump", "-r", "secret"],
    ] {
        let output = as_nobody(&[&["./fyke"], arguments].concat());
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?} {text}");
        assert!(text.contains("must not be installed setuid"), "{arguments:?} {text}");
        assert!(output.stdout.is_empty() && !text.contains("password"), "{arguments:?} {text}");
    }
    // As setgid: the group of root may read the file.
    mode(&secret, 0o640);
    mode(&copy, 0o2755);
    let output = as_nobody(&["./fyke", "dump", "-F", "secret"]);
    assert!(said(&output).contains("installed setuid or setgid"), "{}", said(&output));
    let made = ["drawing.svg", "serve.sock"].map(|name| folder.path().join(name).exists());
    assert_eq!(made, [false; 2]);
}

/// A text of 64 KiB that took more than a minute, and files without an end. The limit of 30 seconds in [`fyke`] shows
/// as exit status 124.
#[test]
fn searches_and_texts_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let terms: Vec<String> =
        (0..2000).map(|i| format!("(vlan {i} and tcp port {})", i + 1)).collect();
    std::fs::write(folder.path().join("long.txt"), terms.join(" or ")).unwrap();
    let witness = fyke(folder.path(), &["explain", "--witness", "-F", "long.txt"]);
    assert_eq!(witness.status.code(), Some(0), "{}", said(&witness));
    assert!(!witness.stdout.is_empty());
    std::fs::write(folder.path().join("endless.rul"), "include \"/dev/zero\"\n").unwrap();
    for arguments in [
        &["ruler", "check", "endless.rul"][..],
        &["ruler", "check", "/dev/zero"],
        &["explain", "-F", "/dev/zero"],
        &["run", "-f", "/dev/zero"],
    ] {
        let output = fyke(folder.path(), arguments);
        assert!(said(&output).contains("longer than 67108864 bytes"), "{}", said(&output));
    }
    let output = fyke(folder.path(), &["run", "--check", "(device,lo) > (ruler,/dev/zero)"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("not a regular file"), "{}", said(&output));
}
