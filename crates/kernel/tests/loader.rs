//! Tests of the process that loads programs, from its parent's side. It is forked, which needs a process with one
//! thread, so this file has its own `main` and no test harness; every case runs in its own process. Needs root.

use fyke_kernel::loader::{self, LoaderError};
use fyke_kernel::{OpenError, Options, Space};
use fyke_pass::{Instruction, Opcode, primitive};
use fyke_testkit::skip::unless_missing;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// CAP_BPF and CAP_PERFMON.
const RIGHTS: &str = "000000c000000000";

fn status(pid: i32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_default().trim_matches([':', '\t']).to_owned()
}

/// A test of the destination port of UDP after an IPv4 header.
fn port(port: u16) -> [Instruction; 2] {
    let port = Instruction::new(Opcode::DSeq, 36).with_operands(&[port.into()]).unwrap();
    [primitive::ether_ip(), port]
}

fn udp(port: u16) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 17);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes
}

fn space() -> Space {
    let mut space = Space::open(Options::default()).unwrap();
    space.passes().add(&port(1)).unwrap();
    space
}

fn ends(pid: i32) {
    let (began, process) = (Instant::now(), format!("/proc/{pid}/exe"));
    while std::fs::read_link(&process).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "the loader continues");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// It loads programs over the maps that were handed over, with two rights, four maps and nothing else.
fn serves() {
    let loader = loader::start().unwrap().unwrap();
    let mut space = space();
    let held = space.hold().unwrap();
    let early = held.specialise(space.snapshot().unwrap()).unwrap_err();
    assert!(early.to_string().contains("after the seal only"), "{early}");
    loader.seal().unwrap();
    assert!(space.hold().is_none(), "maps are handed over before the seal only");
    let pid = loader.pid();
    assert_eq!((status(pid, "CapEff"), status(pid, "CapPrm")), (RIGHTS.into(), RIGHTS.into()));
    assert_eq!((status(pid, "NoNewPrivs"), status(pid, "Seccomp")), ("1".into(), "2".into()));
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert_eq!(open(), 4 + 4);
    for ports in 2..5 {
        space.passes().add(&port(ports)).unwrap();
        let made = held.specialise(space.snapshot().unwrap()).unwrap();
        assert_eq!(made.covered(), usize::from(ports));
        space.adopt(made).unwrap();
        for port in 0..7 {
            let frame = udp(port);
            let generated = space.test_run(&frame, 1).unwrap().returned;
            assert_eq!(generated, space.test_run_interpreted(&frame, 1).unwrap().returned);
            assert_eq!(generated != 0, (1..=ports).contains(&port), "{port}");
        }
        space.forget_specialised().unwrap();
    }
    assert_eq!(open(), 4 + 4, "it keeps no program");
    drop(held);
    let began = Instant::now();
    while open() != 4 {
        assert!(began.elapsed() < Duration::from_secs(20), "maps that are not needed stay open");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(loader.end());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// A loader that was killed is reported, and the interpreter continues.
fn is_killed() {
    let loader = loader::start().unwrap().unwrap();
    let space = space();
    let held = space.hold().unwrap();
    loader.seal().unwrap();
    let ended = std::thread::spawn(|| loader.wait_for_end());
    signal("-KILL", loader.pid());
    let ended = ended.join().unwrap().unwrap();
    assert_eq!(ended.to_string(), format!("process {} has ended by signal 9", loader.pid()));
    assert!(!Path::new(&format!("/proc/{}", loader.pid())).exists(), "it stays as a zombie");
    for _ in 0..2 {
        let gone = held.specialise(space.snapshot().unwrap()).unwrap_err();
        assert!(matches!(gone, LoaderError::Gone), "{gone}");
    }
    assert!(space.test_run(&udp(1), 1).unwrap().returned != 0);
}

/// Reports of a loader.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A loader that is stopped is reported, gets no request before it has answered, and makes programs again.
fn is_stopped() {
    let loader = loader::start().unwrap().unwrap();
    let space = space();
    let held = space.hold().unwrap();
    loader.seal().unwrap();
    loader.report(|text| TOLD.lock().unwrap().push(text.to_owned()));
    signal("-STOP", loader.pid());
    for _ in 0..2 {
        let silent = held.specialise(space.snapshot().unwrap()).unwrap_err();
        assert!(matches!(silent, LoaderError::Silent), "{silent}");
    }
    signal("-CONT", loader.pid());
    assert_eq!(held.specialise(space.snapshot().unwrap()).unwrap().covered(), 1);
    let told = TOLD.lock().unwrap().clone();
    assert!(told.len() == 2, "{told:?}");
    assert!(told[0].contains("does not answer") && told[1].contains("answers again"), "{told:?}");
    let waits = std::thread::spawn(|| loader.wait_for_end());
    assert!(loader.end());
    assert_eq!(waits.join().unwrap(), None, "its end by this process is not reported");
}

fn signal(name: &str, pid: i32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Without maps there is nothing to load: it ends at the seal, and leaves no dead child.
fn has_nothing_to_do() {
    let loader = loader::start().unwrap().unwrap();
    loader.seal().unwrap();
    assert!(!Path::new(&format!("/proc/{}", loader.pid())).exists());
}

/// Its parent is killed while it waits.
fn waits() {
    let loader = loader::start().unwrap().unwrap();
    let space = space();
    let _held = space.hold().unwrap();
    loader.seal().unwrap();
    println!("{}", loader.pid());
    std::thread::sleep(Duration::from_secs(60));
}

fn refuses() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || ended.recv());
    let refused = loader::start().unwrap_err();
    assert!(refused.to_string().contains("already has 2 threads"), "{refused}");
    drop(end);
    let _ = other.join();
}

fn main() {
    let case = std::env::args().nth(1).filter(|word| word.starts_with("case "));
    match case.as_deref() {
        Some("case serves") => return serves(),
        Some("case is killed") => return is_killed(),
        Some("case is stopped") => return is_stopped(),
        Some("case has nothing to do") => return has_nothing_to_do(),
        Some("case waits") => return waits(),
        Some("case refuses") => return refuses(),
        _ => {}
    }
    if unless_missing(Space::open(Options::default()), OpenError::is_unavailable).is_none() {
        return;
    }
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: programs are generated on x86-64 only");
    }
    for case in ["serves", "is killed", "is stopped", "has nothing to do", "refuses"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.arg(format!("case {case}")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{case}: {said}");
        println!("test {case} ... ok");
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let mut child = child.arg("case waits").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    ends(line.trim().parse().unwrap());
    println!("test ends with its parent ... ok");
}
