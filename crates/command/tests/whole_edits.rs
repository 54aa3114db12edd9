//! Edits and queries of any size during a capture: the built command captures in a network namespace at a constant rate
//! while clients add 100,000 passes, query them repeatedly and make thousands of small edits. No frame is lost, and the
//! counts add up.

use fyke_lab::background::{Background, Options, UDP_PORT};
use fyke_lab::ftp::Stop;
use fyke_lab::net::{SERVERS_DEVICE, World, WorldError};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far below the capacity of the loop: a lost frame means that the loop was delayed.
const PACKETS_PER_SECOND: u64 = 50_000;
/// Number of passes of the long expression.
const PAIRS: usize = 100_000;
/// Number of filters that are added, and deleted, one by one.
const SINGLE_EDITS: usize = 2_000;
/// Time limit for every command.
const LIMIT: Duration = Duration::from_secs(300);

/// A capture; it is ended even if a check fails.
struct Capture {
    child: Child,
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

fn fyke(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.env("FYKE_RUNTIME_DIR", folder.join("run")).current_dir(folder);
    command
}

/// Starts a capture on the servers' device and waits until clients can connect to it.
fn capture(world: &World, folder: &Path) -> Capture {
    let mut command = fyke(folder);
    command.args(["dump", "-n", "-i", SERVERS_DEVICE, "-w", "/dev/null", "udp port 53"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = world.servers.inside(move || command.spawn()).unwrap().unwrap();
    let capture = Capture { child };
    let began = Instant::now();
    while !fyke(folder).args(["ctl", "stats"]).output().unwrap().status.success() {
        assert!(began.elapsed() < LIMIT, "no control socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    capture
}

/// Runs `fyke ctl`; returns its output.
fn ctl(folder: &Path, words: &[&str]) -> String {
    let output = fyke(folder).arg("ctl").args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Ends a capture with a signal; returns the numbers of its last line: seen, accepted, rejected, lost.
fn end(mut capture: Capture) -> [u64; 4] {
    let pid = capture.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut said = String::new();
    capture.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(capture.child.wait().unwrap().success(), "{said}");
    let line =
        said.lines().find(|line| line.contains(" seen = ")).unwrap_or_else(|| panic!("{said}"));
    let number = |word: &str| -> u64 {
        let at = line.find(word).unwrap_or_else(|| panic!("no {word} in {line}"));
        let digits = line[..at].trim_end().rsplit(' ').next().unwrap_or_default().replace(',', "");
        digits.parse().unwrap_or_else(|_| panic!("{word}: {line}"))
    };
    println!("{line}");
    [" seen", " accepted", " rejected", " lost"].map(number)
}

/// Captures background traffic while `clients` runs.
fn beside_traffic(clients: impl FnOnce(&Path)) {
    let world = match World::create(1, 1) {
        Ok(world) => world,
        Err(refused @ WorldError::Refused { .. }) => return println!("skipped: {refused}"),
        Err(error) => panic!("{error}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let capture = capture(&world, folder.path());
    let traffic =
        Options { packets_per_second: PACKETS_PER_SECOND, streams: 0, ..Options::default() };
    let traffic = Background::start(&world, traffic, Stop::after(LIMIT)).unwrap();
    clients(folder.path());
    let sent = traffic.finish().unwrap();
    // Wait for the last frames.
    std::thread::sleep(Duration::from_millis(300));
    let [seen, accepted, rejected, lost] = end(capture);
    assert_eq!(lost, 0, "of {seen}");
    assert_eq!(seen, accepted + rejected);
    assert!(seen >= sent && sent > 0, "{sent} sent, {seen} seen");
}

#[test]
fn a_text_of_many_passes_and_questions_about_them_lose_nothing() {
    let pair = |n: usize| {
        let [_, a, b, c] = (n as u32).to_be_bytes();
        format!("(ip host 10.{a}.{b}.{c} and tcp port {})", 1_024 + n % 60_000)
    };
    let text: Vec<String> = (0..PAIRS).map(pair).collect();
    beside_traffic(|folder| {
        let file = folder.join("pairs");
        std::fs::write(&file, text.join(" or\n")).unwrap();
        ctl(folder, &["set", "-F", file.to_str().unwrap()]);
        for _ in 0..3 {
            ctl(folder, &["stats"]);
        }
        let shown = ctl(folder, &["show", "--full"]);
        assert!(shown.lines().count() >= PAIRS, "{} lines", shown.lines().count());
        ctl(folder, &["set", &format!("udp port {UDP_PORT}")]);
    });
}

#[test]
fn many_small_edits_beside_loops_of_questions_lose_nothing() {
    beside_traffic(|folder| {
        let done = std::sync::atomic::AtomicBool::new(false);
        let more = || !done.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    while more() {
                        ctl(folder, &["show"]);
                        ctl(folder, &["stats"]);
                    }
                });
            }
            for n in 0..SINGLE_EDITS {
                ctl(folder, &["add", &format!("host 10.1.{}.{}", n / 250, n % 250)]);
            }
            // The first filter is the capture's own.
            for id in 2..SINGLE_EDITS {
                ctl(folder, &["del", &id.to_string()]);
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(ctl(folder, &["stats"]).contains("host 10.1."));
    });
}
