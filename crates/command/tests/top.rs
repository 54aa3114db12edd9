//! `fyke top` in a real terminal (tmux): it shows what `ctl stats` prints, and edits.

mod common;

use common::{FYKE, Running, inside, runtime, send, veth};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A terminal of 110 columns and 30 lines; it ends with the test.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn start(command: &str) -> Tmux {
        let tmux = Tmux { socket: runtime().with_extension("tmux").to_str().unwrap().to_owned() };
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "30", command]);
        tmux
    }

    fn run(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        let output = tmux.args(["-S", &self.socket]).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen contains all parts.
    fn shows(&self, parts: &[&str]) -> String {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if parts.iter().all(|part| screen.contains(part)) {
                return screen;
            }
            assert!(Instant::now() < limit, "{parts:?} is not in:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
        let _gone = std::fs::remove_file(&self.socket);
    }
}

fn the_line_has_a_cursor(tmux: &Tmux) {
    tmux.keys(&[
        "a",
        "xdp port 5009",
        "Home",
        "DC",
        "u",
        "End",
        "BSpace",
        "8",
        "Left",
        "Left",
        "Right",
        "DC",
        "8",
    ]);
    tmux.shows(&["add filter: udp port 5008"]);
    tmux.keys(&["Escape"]);
    tmux.shows(&["q quit"]);
}

/// Clients that ask once and stay: as many as are served, so that the one that has been idle longest is closed.
fn idle_clients(running: &Running) -> Vec<UnixStream> {
    let socket = runtime().join(format!("{}.sock", running.child.id()));
    let clients = (0..64).map(|_| {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(b"{\"request\":\"describe\"}\n").unwrap();
        assert!(client.read(&mut [0; 4_096]).unwrap() > 0);
        client
    });
    clients.collect()
}

#[test]
fn top_shows_the_counts_and_edits() {
    if !inside("top_shows_the_counts_and_edits") {
        return;
    }
    if Command::new("tmux").arg("-V").output().is_err() {
        println!("skipped: no tmux");
        return;
    }
    veth();
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "-w", "/dev/null", "--count-all"]);
    let mut running = Running::start(command.arg("udp port 5001").stdout(Stdio::null()));
    running.hear("listening on");
    let pid = running.child.id();
    let runtime = runtime().display().to_string();
    let top = format!(
        "env FYKE_RUNTIME_DIR={runtime} TERM=screen {FYKE} top --pid {pid} --interval-ms 200"
    );
    let tmux = Tmux::start(&top);
    send(40, 20);
    running.settle(40);
    // The line is that of `ctl stats`.
    let stats = running.ctl(&["stats"]);
    let sum = stats.lines().next().unwrap().split("  ").find(|part| part.contains(" seen = "));
    let screen = tmux.shows(&[sum.unwrap().trim(), "filter 1", "udp port 5001", "v1"]);
    assert!(screen.contains("per second: "), "{screen}");
    tmux.keys(&["a", "udp dst port", "Enter"]);
    tmux.shows(&["^", "add filter: udp dst port_"]);
    // The text is still there; a space is a part of it, and pauses nothing.
    tmux.keys(&["Space", "5003", "Enter"]);
    tmux.shows(&["filter 2, epoch 2", "udp dst port 5003"]);
    tmux.keys(&["u"]);
    tmux.shows(&["takes back epoch 2"]);
    the_line_has_a_cursor(&tmux);
    tmux.keys(&["t", "udp", "Enter"]);
    tmux.shows(&["would accept 40 of the last 40 frames", "20 of them new"]);
    // An edit after a long time without one: its connection is not one that was closed meanwhile.
    let idle = idle_clients(&running);
    tmux.keys(&["a", "udp port 5002", "Enter"]);
    tmux.shows(&["filter 3, epoch 4", "udp port 5002"]);
    drop(idle);
    running.signal("STOP");
    tmux.shows(&["no counts for "]);
    running.signal("CONT");
    tmux.keys(&["Escape"]);
    assert!(running.ctl(&["log"]).contains("(fyke top, process "), "{}", running.ctl(&["log"]));
    tmux.keys(&["Space"]);
    tmux.shows(&["pause? frames that arrive meanwhile are lost"]);
    tmux.keys(&["n"]);
    tmux.shows(&["q quit"]);
    assert_eq!(running.ctl(&["log"]).matches("pauses the capture").count(), 0);
    tmux.keys(&["Space", "y"]);
    tmux.shows(&["  paused"]);
    tmux.keys(&["Space", "u"]);
    tmux.shows(&["takes back epoch 4"]);
    let log = running.ctl(&["log"]);
    let pauses: Vec<_> = log.lines().filter(|line| line.contains("(fyke top, process ")).collect();
    assert!(pauses.iter().any(|line| line.ends_with("), pauses the capture")), "{log}");
    assert!(pauses.iter().any(|line| line.ends_with("), ends the pause")), "{log}");
    tmux.keys(&["p"]);
    tmux.shows(&["instructions", "pass 1"]);
    running.signal("INT");
    assert!(running.end().success());
    tmux.shows(&["it has ended"]);
    tmux.keys(&["q"]);
    let limit = Instant::now() + Duration::from_secs(20);
    while !tmux.run(&["list-sessions"]).is_empty() {
        assert!(Instant::now() < limit, "q does not end it");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn it_ends_with_its_terminal() {
    if Command::new("tmux").arg("-V").output().is_err() {
        println!("skipped: no tmux");
        return;
    }
    let file = std::env::temp_dir().join(format!("fyke-top-{}", std::process::id()));
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "lo", "-w", "/dev/null", "udp port 5001"]);
    let mut running = Running::start(command.stdout(Stdio::null()));
    running.hear("listening on");
    let (pid, runtime) = (running.child.id(), runtime().display().to_string());
    // Without SIGHUP, as after nohup.
    let tmux = Tmux::start(&format!(
        "trap '' HUP; echo $$ > {}; export FYKE_RUNTIME_DIR={runtime} TERM=screen; exec {FYKE} top \
         --pid {pid}",
        file.display()
    ));
    tmux.shows(&["udp port 5001"]);
    let top = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    drop(tmux);
    let limit = Instant::now() + Duration::from_secs(20);
    let command_line = format!("/proc/{}/cmdline", top.trim());
    while std::fs::read(&command_line).is_ok_and(|words| !words.is_empty()) {
        if Instant::now() >= limit {
            Command::new("kill").args(["-KILL", top.trim()]).status().unwrap();
            panic!("process {} runs on", top.trim());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    running.signal("INT");
    assert!(running.end().success());
}

#[test]
fn without_a_terminal_it_tells_what_to_use() {
    let output = Command::new(FYKE).args(["top", "--pid", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("`fyke ctl watch`"), "{said}");
}

#[test]
fn the_screen_is_drawn_into_a_file_without_a_terminal() {
    if !inside("the_screen_is_drawn_into_a_file_without_a_terminal") {
        return;
    }
    veth();
    let (_folder, path) = common::folder();
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "-w", "/dev/null", "--count-all"]);
    let mut running =
        Running::start(command.arg("udp port 5001 and len < 99").stdout(Stdio::null()));
    running.hear("edit: fyke ctl");
    send(40, 20);
    running.settle(40);
    let file = path("top.svg");
    let draw = |more: &[&str]| {
        let mut command = Command::new(FYKE);
        command.args([
            "top",
            "--pid",
            &running.child.id().to_string(),
            "--interval-ms",
            "100",
            "--svg",
        ]);
        command.arg(&file).args(more).env("FYKE_RUNTIME_DIR", runtime());
        command.stdin(Stdio::null()).output().unwrap()
    };
    assert!(draw(&["--size", "90x20"]).status.success());
    let drawn = std::fs::read_to_string(&file).unwrap();
    assert!(
        drawn.starts_with("<svg ") && drawn.contains("width=\"834\" height=\"384\""),
        "{drawn}"
    );
    for part in ["40 seen = 20 accepted + 20 rejected", "len &lt; 99", "filter 1", "fyke top"] {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
    let wrong = draw(&["--size", "90"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("COLUMNSxLINES"), "{said}");
    running.signal("INT");
    assert!(running.end().success());
}
