//! Tests of the helper process from its parent's side. The helper is forked, which needs a process with one thread, so
//! this file has its own `main` and no test harness; every case runs in its own process.

use fyke_privilege::helper::{self, Fetched, Opened, Presence, Sockets};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The only simulated interface that is found by its index.
const FIVE: Presence = Presence { ifindex: 5, link: 1, loopback: 9, up: true };

/// Simulated interfaces: `gone` does not exist; the index of any other is the length of its name.
struct Made;

impl Sockets for Made {
    fn look(&self, interface: &str) -> io::Result<Option<Presence>> {
        let ifindex = interface.len() as u32;
        let presence = Presence { ifindex, link: 1, loopback: 9, up: true };
        Ok((interface != "gone").then_some(presence))
    }

    fn named(&self, ifindex: u32) -> io::Result<Option<(String, Presence)>> {
        Ok((ifindex == 5).then(|| ("a name that is too long".to_owned(), FIVE)))
    }

    fn bind(&self, socket: BorrowedFd<'_>, to: &Presence, promiscuous: bool) -> io::Result<()> {
        // The other end of the socket can check that this one was used.
        let said = format!("{} {promiscuous}", to.ifindex);
        rustix::io::write(socket, said.as_bytes())?;
        Ok(())
    }

    /// Each socket is one end of a pair; the plan was sent into its other end.
    fn open_group(
        &self,
        plan: &[u8],
        count: usize,
        to: &Presence,
        promiscuous: bool,
    ) -> io::Result<Vec<Opened>> {
        let open = |member| {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
            let plan = String::from_utf8_lossy(plan);
            let said = format!("{plan} {} {promiscuous} {member}/{count}", to.ifindex);
            io::Write::write_all(&mut &ours, said.as_bytes())?;
            Ok(Opened { socket: theirs.into(), blocks: 7 })
        };
        (0..count).map(open).collect()
    }
}

fn denied<T>(result: io::Result<T>) {
    let error = result.err().expect("the helper refuses");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
}

fn status(pid: i32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_default().trim_matches([':', '\t']).to_owned()
}

/// The helper serves the sockets that were handed over, by number, and nothing else.
fn serves(folder: &Path) {
    let helper = helper::start(&Made).unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let number = helper.hold(theirs.as_fd(), "eth00", true).unwrap();
    let gone = helper.hold(theirs.as_fd(), "gone", false).unwrap();
    let file = |name: &str| {
        let path = folder.join(name);
        std::fs::write(&path, name).unwrap();
        path
    };
    let (named, changed, other) = (file("named"), file("changed"), file("other"));
    let wanted = file("removed on request");
    helper.may_remove(&wanted).unwrap();
    helper.will_remove(&named).unwrap();
    helper.will_remove(&changed).unwrap();
    assert!(helper.will_remove(&folder.join("not there")).is_err());
    std::fs::remove_file(&changed).unwrap();
    file("not to be given the number of the one before");
    file("changed");
    helper.seal().unwrap();
    denied(helper.hold(theirs.as_fd(), "eth0", false));
    denied(helper.will_remove(&other));
    assert_eq!(helper.look(number).unwrap().map(|found| found.ifindex), Some(5));
    assert_eq!(helper.look(gone).unwrap(), None);
    assert_eq!(helper.named(5).unwrap(), Some(("a name that is ".to_owned(), FIVE)));
    assert_eq!(helper.named(6).unwrap(), None);
    assert_eq!(helper.bind(number).unwrap().loopback, 9);
    let mut said = [0; 16];
    let length = io::Read::read(&mut &ours, &mut said).unwrap();
    assert_eq!(&said[..length], b"5 true");
    assert_eq!(helper.bind(gone).unwrap_err().raw_os_error(), Some(19), "ENODEV");
    assert!(helper.look(2).is_err() && helper.bind(u32::MAX).is_err());
    helper.remove(&named).unwrap();
    helper.remove(&wanted).unwrap();
    assert!(!named.exists() && !wanted.exists());
    denied(helper.remove(&named));
    denied(helper.remove(&other));
    denied(helper.remove(&changed));
    assert_eq!(status(helper.pid(), "NoNewPrivs"), "1");
    assert_eq!(status(helper.pid(), "CapEff"), "0000000000000000");
    assert_eq!(status(helper.pid(), "Name"), "fyke-helper");
    assert_eq!(status(helper.pid(), "Threads"), "1");
    assert!(helper.end());
    assert!(!Path::new(&format!("/proc/{}", helper.pid())).exists());
    assert!(helper.look(number).is_err(), "the helper has ended");
}

/// The members of a group get sockets of one generation. Only this helper keeps a capability.
fn renews() {
    let helper = helper::start(&Made).unwrap();
    let group = helper.hold_group("eth00", true, 2, b"plan").unwrap();
    let gone = helper.hold_group("gone", true, 2, b"").unwrap();
    assert!(helper.hold_group("eth0", true, 2, &[0; helper::MAX_PLAN + 1]).is_err());
    let most = helper::MAX_SOCKETS as u32;
    assert!(helper.hold_group("eth0", true, most - 3, b"").is_err(), "there are four sockets");
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let held = helper.hold(ours.as_fd(), "eth0", false).unwrap();
    let before = status(helper.pid(), "CapPrm");
    helper.seal().unwrap();
    denied(helper.hold_group("eth0", true, 2, b""));
    assert_eq!(helper.look(group).unwrap().map(|found| found.ifindex), Some(5));
    let fetch = |member| {
        let Fetched { opened, generation, presence } = helper.fetch(group, member).unwrap();
        let mut said = [0; 64];
        let length = rustix::io::read(&opened.socket, &mut said).unwrap();
        assert_eq!((opened.blocks, presence.ifindex), (7, 5));
        (generation, String::from_utf8_lossy(&said[..length]).into_owned())
    };
    assert_eq!(fetch(1), (1, "plan 5 true 1/2".to_owned()));
    assert_eq!(fetch(0), (1, "plan 5 true 0/2".to_owned()));
    assert_eq!(fetch(0), (2, "plan 5 true 0/2".to_owned()), "the first one is obsolete");
    assert_eq!(fetch(1).0, 2);
    assert_eq!(helper.fetch(gone, 0).unwrap_err().raw_os_error(), Some(19), "ENODEV");
    assert!(helper.fetch(group, 2).is_err() && helper.fetch(held, 0).is_err());
    assert!(helper.fetch(9, 0).is_err() && helper.bind(group).is_err());
    // CAP_NET_RAW, if there was one.
    let capability = u64::from_str_radix(before.trim(), 16).unwrap() & 1 << 13;
    assert_eq!(status(helper.pid(), "CapEff"), format!("{capability:016x}"));
    assert_eq!(status(helper.pid(), "CapPrm"), format!("{capability:016x}"));
    assert!(helper.end());
}

/// When the parent dies without cleaning up, the helper removes the named files.
fn cleans(folder: &Path) {
    let helper = helper::start(&Made).unwrap();
    std::fs::write(folder.join("left"), "").unwrap();
    helper.will_remove(&folder.join("left")).unwrap();
    std::fs::write(folder.join("kept"), "").unwrap();
    helper.may_remove(&folder.join("kept")).unwrap();
    std::fs::write(folder.join("pid"), helper.pid().to_string()).unwrap();
    std::process::abort();
}

/// A helper that does not run, such as one that waits for a file system, does not delay the end for ever.
fn hangs() {
    let helper = helper::start(&Made).unwrap();
    helper.seal().unwrap();
    let stop = Command::new("kill").args(["-STOP", &helper.pid().to_string()]).status();
    assert!(stop.unwrap().success());
    assert!(helper.end(), "it is killed");
    assert!(!Path::new(&format!("/proc/{}", helper.pid())).exists());
}

/// The answer to a request that was given up comes later; it is not taken for the answer to the next one. The helper
/// does not trust this process, and answers in the order of the requests.
fn answers_late(folder: &Path) {
    let helper = helper::start(&Made).unwrap();
    let file = folder.join("named");
    std::fs::write(&file, "").unwrap();
    helper.will_remove(&file).unwrap();
    helper.seal().unwrap();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &helper.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    let start = Instant::now();
    let silent = helper.remove(&file).unwrap_err();
    assert_eq!(silent.kind(), io::ErrorKind::TimedOut, "{silent}");
    assert_eq!(helper.remove(&file).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    signal("-CONT");
    assert_eq!(helper.named(5).unwrap(), Some(("a name that is ".to_owned(), FIVE)));
    assert_eq!(helper.named(6).unwrap(), None);
    assert!(!file.exists(), "it was removed late");
    assert!(helper.end());
}

/// A second thread might hold a lock, for which the child would wait forever.
fn refuses() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || ended.recv());
    let refused = helper::start(&Made).unwrap_err();
    assert!(refused.to_string().contains("already has 2 threads"), "{refused}");
    drop(end);
    let _ = other.join();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let (Some("child"), Some(case), Some(folder)) =
        (arguments.next().as_deref(), arguments.next(), arguments.next())
    {
        match case.as_str() {
            "serves" => serves(Path::new(&folder)),
            "cleans" => cleans(Path::new(&folder)),
            "renews" => renews(),
            "hangs" => hangs(),
            "answers late" => answers_late(Path::new(&folder)),
            _ => refuses(),
        }
        return;
    }
    for case in ["serves", "renews", "cleans", "hangs", "answers late", "refuses"] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["child", case]).arg(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), case != "cleans", "{case}: {said}");
        if case == "cleans" {
            let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
            let process = format!("/proc/{pid}/exe");
            for _ in 0..500 {
                if std::fs::read_link(&process).is_err() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(std::fs::read_link(&process).is_err(), "the helper continues");
            assert!(!folder.path().join("left").exists(), "the helper removes what is left");
            assert!(folder.path().join("kept").exists(), "one for requests stays");
        }
        println!("test {case} ... ok");
    }
}
