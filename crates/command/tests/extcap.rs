//! `fyke extcap`: with the real tshark and dumpcap, and with a test that plays Wireshark's side of the toolbar.

mod common;

use common::{FYKE, Running, folder, inside, runtime, send, tool, veth};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// A message of the toolbar: control, command, payload.
type Message = (u8, u8, String);

/// Wireshark's ends of the pipes of a capture.
struct Wireshark {
    child: Child,
    frames: File,
    /// Bytes from the pipe for frames.
    pcapng: Vec<u8>,
    to: Option<File>,
    from: File,
    bytes: Vec<u8>,
    log: PathBuf,
}

impl Wireshark {
    fn start(folder: &Path, filter: &str) -> Wireshark {
        let pipe = |name: &str| {
            let path = folder.join(name);
            tool(&format!("mkfifo {}", path.display()));
            path
        };
        let (fifo, to, from) = (pipe("frames"), pipe("in"), pipe("out"));
        // Each pipe has its reader before the program opens it for writing; none of these opens waits.
        let nonblocking =
            |path: &Path| OpenOptions::new().read(true).custom_flags(0o4000).open(path).unwrap();
        let (frames, replies) = (nonblocking(&fifo), nonblocking(&from));
        let log = folder.join("log");
        let mut command = Command::new(FYKE);
        command.args(["--capture", "--extcap-interface", "fyke:v1"]);
        command.args(["--extcap-capture-filter", filter]).arg("--fifo").arg(&fifo);
        command.arg("--extcap-control-in").arg(&to).arg("--extcap-control-out").arg(&from);
        command.env("FYKE_RUNTIME_DIR", runtime()).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn();
        let to = OpenOptions::new().write(true).open(&to).unwrap();
        Wireshark {
            child: child.unwrap(),
            frames,
            pcapng: Vec::new(),
            to: Some(to),
            from: replies,
            bytes: Vec::new(),
            log,
        }
    }

    fn send(&mut self, control: u8, command: u8, payload: &str) {
        let mut bytes = vec![b'T'];
        bytes.extend_from_slice(&(payload.len() as u32 + 2).to_be_bytes()[1..]);
        bytes.extend_from_slice(&[control, command]);
        bytes.extend_from_slice(payload.as_bytes());
        // In pieces: a message may arrive at any byte.
        for piece in bytes.chunks(3) {
            self.to.as_mut().unwrap().write_all(piece).unwrap();
        }
    }

    /// Reads what is there.
    fn read(&mut self) {
        let mut bytes = [0; 65_536];
        while let Ok(count @ 1..) = self.frames.read(&mut bytes) {
            self.pcapng.extend_from_slice(&bytes[..count]);
        }
        while let Ok(count @ 1..) = self.from.read(&mut bytes) {
            self.bytes.extend_from_slice(&bytes[..count]);
        }
    }

    /// Waits for a message that passes the check; those before it are dropped.
    fn hear(&mut self, what: &str, check: impl Fn(&Message) -> bool) -> Message {
        let end = Instant::now() + LIMIT;
        let mut heard = Vec::new();
        while Instant::now() < end {
            self.read();
            while let Some(message) = self.message() {
                if check(&message) {
                    return message;
                }
                heard.push(message);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no {what} in {heard:?}; {}", std::fs::read_to_string(&self.log).unwrap());
    }

    fn message(&mut self) -> Option<Message> {
        let &[kind, a, b, c, control, command] = self.bytes.first_chunk::<6>()?;
        assert_eq!(kind, b'T', "{:?}", self.bytes);
        let end = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
        let payload = String::from_utf8(self.bytes.get(6..end)?.to_vec()).unwrap();
        self.bytes.drain(..end);
        Some((control, command, payload))
    }

    /// Waits for the end of the program, reading what it writes.
    fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            self.read();
            if let Some(status) = self.child.try_wait().unwrap() {
                self.read();
                return status;
            }
            let said = std::fs::read_to_string(&self.log).unwrap();
            assert!(Instant::now() < end, "it does not end: {said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The id of the `fyke dump` that it started.
    fn dump(&self) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(path).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Wireshark {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

fn is_running(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

fn wait_for_end(process: u32) {
    let end = Instant::now() + LIMIT;
    while is_running(process) {
        assert!(Instant::now() < end, "process {process} is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const FILTER: u8 = 0;
const IN_FORCE: u8 = 5;
const LOG: u8 = 8;
const SET: u8 = 1;
const ADD: u8 = 2;
const STATUS: u8 = 6;
const ERROR: u8 = 9;

#[test]
fn the_toolbar_edits_the_running_capture() {
    if !inside("the_toolbar_edits_the_running_capture") {
        return;
    }
    veth();
    let (folder, _) = folder();
    let mut wireshark = Wireshark::start(folder.path(), "udp port 5001");
    // A value from before the capture, then the toolbar is ready.
    wireshark.send(1, SET, "udp port 5002");
    wireshark.send(0, 0, "");
    wireshark.hear("filter", |(control, command, text)| {
        (*control, *command) == (FILTER, SET) && text == "udp port 5001"
    });
    wireshark.hear("selector", |(control, command, text)| {
        (*control, *command) == (IN_FORCE, ADD) && text.ends_with(": udp port 5001")
    });
    send(100, 60);
    wireshark.hear("status", |(_, command, text)| {
        *command == STATUS && text.contains("100 seen = 50 accepted + 50 rejected + 0 lost")
    });
    wireshark.send(3, SET, "");
    wireshark.hear("trial", |(control, _, text)| {
        *control == LOG && text.contains("udp port 5002: would accept 0 of")
            || text.contains("udp port 5002: would accept 50 of")
    });
    // Refused: the message has the place, and the old text comes back.
    wireshark.send(FILTER, SET, "udp prt 5002");
    let refusal = wireshark.hear("refusal", |(_, command, _)| *command == ERROR);
    assert!(refusal.2.contains("udp prt 5002") && refusal.2.contains('^'), "{refusal:?}");
    wireshark.hear("old text", |(control, command, text)| {
        (*control, *command) == (FILTER, SET) && text == "udp port 5001"
    });
    wireshark.send(FILTER, SET, "udp port 5002");
    wireshark.hear("edit", |(control, _, text)| {
        *control == LOG && text.contains("filter: udp port 5002")
    });
    send(100, 60);
    wireshark.hear("status", |(_, command, text)| {
        *command == STATUS && text.contains("200 seen = 100 accepted + 100 rejected + 0 lost")
    });
    wireshark.send(7, SET, "");
    wireshark.hear("undo", |(control, _, text)| *control == LOG && text.contains("undone"));
    // The control shows what is in force again, and the same edit is one.
    wireshark.hear("filter before the edit", |(control, command, text)| {
        (*control, *command) == (FILTER, SET) && text == "udp port 5001"
    });
    wireshark.send(FILTER, SET, "udp port 5002");
    wireshark.hear("the edit again", |(control, _, text)| {
        *control == LOG && text.contains("filter: udp port 5002")
    });
    // Another client edits: the toolbar follows.
    let dump = wireshark.dump().to_string();
    assert!(fyke(&["ctl", "--pid", &dump, "set", "udp port 5003"]).1);
    wireshark.hear("another's filter", |(control, command, text)| {
        (*control, *command) == (FILTER, SET) && text == "udp port 5003"
    });
    wireshark.hear("selector", |(control, command, text)| {
        (*control, *command) == (IN_FORCE, ADD) && text.ends_with(": udp port 5003")
    });
    wireshark.send(4, SET, "");
    wireshark.hear("explanation", |(control, _, text)| *control == LOG && text.contains("pass"));
    let dump = wireshark.dump();
    // Wireshark stops: it closes its pipes.
    wireshark.to = None;
    let status = wireshark.end();
    assert_eq!(status.code(), Some(0), "{}", std::fs::read_to_string(&wireshark.log).unwrap());
    assert!(!is_running(dump), "fyke dump has ended");
    let file = folder.path().join("out.pcapng");
    std::fs::write(&file, &wireshark.pcapng).unwrap();
    let count = Command::new(FYKE).args(["dump", "--count", "-r", file.to_str().unwrap()]).output();
    assert_eq!(String::from_utf8(count.unwrap().stdout).unwrap(), "100\n");
}

#[test]
fn pipes_that_are_closed_end_the_capture() {
    if !inside("pipes_that_are_closed_end_the_capture") {
        return;
    }
    veth();
    for case in ["frames", "toolbar", "signal", "killed"] {
        let (folder, _) = folder();
        let mut wireshark = Wireshark::start(folder.path(), "");
        wireshark.send(0, 0, "");
        wireshark.hear("filter", |(control, command, _)| (*control, *command) == (FILTER, SET));
        let dump = wireshark.dump();
        match case {
            // Nothing is captured, so nothing is written to the closed pipe.
            "frames" => wireshark.frames = File::open("/dev/null").unwrap(),
            "toolbar" => wireshark.to = None,
            "killed" => wireshark.child.kill().unwrap(),
            _ => tool(&format!("kill -TERM {}", wireshark.child.id())),
        }
        let code = if case == "killed" { None } else { Some(0) };
        assert_eq!(wireshark.end().code(), code, "{case}");
        wait_for_end(dump);
    }
}

/// Bytes that are no messages end the toolbar, with its error, and not the capture: no frame is missing.
#[test]
fn a_hostile_toolbar_does_not_end_the_capture() {
    if !inside("a_hostile_toolbar_does_not_end_the_capture") {
        return;
    }
    veth();
    for bytes in [&b"X"[..], b"T\xff\xff\xff\x00\x01", b"GET / HTTP/1.1\r\n\r\n"] {
        let (folder, _) = folder();
        let mut wireshark = Wireshark::start(folder.path(), "udp port 5001");
        wireshark.send(0, 0, "");
        wireshark.hear("filter", |(control, command, _)| (*control, *command) == (FILTER, SET));
        wireshark.to.as_mut().unwrap().write_all(bytes).unwrap();
        wireshark.hear("error", |(_, command, text)| {
            *command == ERROR && text.contains("which is no message; the capture continues")
        });
        // What follows is discarded, also a message.
        wireshark.send(FILTER, SET, "arp");
        send(100, 60);
        wireshark.hear("status", |(_, command, text)| {
            *command == STATUS && text.contains("epoch 1, 100 seen = 50 accepted")
        });
        wireshark.to = None;
        assert_eq!(wireshark.end().code(), Some(0), "{bytes:?}");
        let said = std::fs::read_to_string(&wireshark.log).unwrap();
        assert_eq!(said.matches("which is no message").count(), 1, "{said}");
        let file = folder.path().join("out.pcapng");
        std::fs::write(&file, &wireshark.pcapng).unwrap();
        let words = ["dump", "--count", "-r", file.to_str().unwrap()];
        assert_eq!(fyke(&words).0, "50\n", "{bytes:?}");
    }
}

#[test]
fn a_capture_that_cannot_start_says_why() {
    let (folder, path) = folder();
    let fifo = path("fifo");
    tool(&format!("mkfifo {}", fifo.display()));
    let reader = OpenOptions::new().read(true).custom_flags(0o4000).open(&fifo).unwrap();
    for (interface, filter, fifo, code, says) in [
        ("fyke:nowhere", "", &fifo, 1, "nowhere"),
        ("fyke:lo", "udp prt 1", &fifo, 2, "^"),
        ("fyke:lo", "", &path("missing"), 1, "missing"),
        ("fyke:lo", "", &PathBuf::from(FYKE), 1, "not a pipe"),
        ("lo", "", &fifo, 2, "begin with fyke:"),
    ] {
        let mut command = Command::new(FYKE);
        command.args(["--capture", "--extcap-interface", interface, "--extcap-capture-filter"]);
        let output = command.arg(filter).arg("--fifo").arg(fifo).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{interface} {filter}: {said}");
        assert!(said.contains(says), "{interface} {filter}: {said}");
    }
    drop((reader, folder));
}

#[test]
fn answers_have_only_the_lines_of_the_protocol() {
    let asked = |words: &[&str]| {
        let output = Command::new(FYKE).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let interfaces = asked(&["--extcap-interfaces", "--extcap-version=4.0"]);
    assert!(interfaces.starts_with("extcap {version="), "{interfaces}");
    assert!(interfaces.contains("interface {value=fyke:any}"), "{interfaces}");
    assert!(interfaces.contains("control {number=0}{type=string}{display=Filter}"), "{interfaces}");
    for line in interfaces.lines() {
        let kind = line.split(' ').next().unwrap();
        assert!(["extcap", "interface", "control"].contains(&kind), "{line}");
    }
    let config = asked(&["--extcap-config", "--extcap-interface", "fyke:any"]);
    assert!(config.lines().all(|line| line.starts_with("arg {number=")), "{config}");
    let links = asked(&["--extcap-dlts", "--extcap-interface", "fyke:any"]);
    assert!(links.starts_with("dlt {number=276}{name=LINUX_SLL2}"), "{links}");
    let refused = asked(&["--extcap-interface", "fyke:any", "--extcap-capture-filter", "tcp prt"]);
    assert!(refused.contains('^'), "{refused}");
    // Refused is what the capture would refuse on this interface, and nothing else.
    let check =
        |filter| asked(&["--extcap-interface", "fyke:any", "--extcap-capture-filter", filter]);
    for good in ["tcp", "ip broadcast", "host localhost", "outer (ip) and udp"] {
        assert_eq!(check(good), "", "{good}");
    }
    let refused = check("ether host 02:00:00:00:00:01");
    assert!(refused.contains("this is Linux cooked v2"), "{refused}");
}

#[test]
fn the_link_is_made_replaced_and_removed() {
    let (folder, path) = folder();
    let words = |words: &[&str]| {
        let output = Command::new(FYKE).arg("extcap").args(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (place, link) = (path("a/b"), path("a/b/fyke"));
    let place = place.to_str().unwrap();
    for _ in 0..2 {
        let (code, said) = words(&["--install", place]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new(FYKE));
    }
    assert_eq!(words(&["--uninstall", place]).0, Some(0));
    assert!(!link.exists());
    std::fs::write(&link, "another program").unwrap();
    assert_eq!(words(&["--install", place]).0, Some(1), "another program stays");
    assert_eq!(words(&["--uninstall", place]).0, Some(1));
    assert_eq!(std::fs::read_to_string(&link).unwrap(), "another program");
    assert_eq!(words(&[]).0, Some(2));
    drop(folder);
}

/// The link goes into a folder that the installed tshark reads, for a user too; if it reads none of a user, nothing is
/// made. A script plays tshark.
#[test]
fn the_folder_is_one_that_tshark_reads() {
    use std::os::unix::fs::PermissionsExt;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let (folder, path) = folder();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let mode = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755));
    let install = |lines: &str, word: &str| {
        std::fs::write(path("tshark"), format!("#!/bin/sh\nprintf '{lines}'\n")).unwrap();
        mode(&path("tshark")).unwrap();
        let mut command = match is_root {
            true => Command::new("setpriv"),
            false => Command::new(FYKE),
        };
        if is_root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", FYKE]);
        }
        let search = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        command.args(["extcap", word]).env("PATH", search).env("HOME", path("home"));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    std::fs::create_dir(path("home")).unwrap();
    std::fs::set_permissions(path("home"), PermissionsExt::from_mode(0o777)).unwrap();
    let (code, told) = install("Extcap path:\t/usr/lib/none/extcap\n", "--install");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("only /usr/lib/none/extcap") && told.contains("sudo fyke"), "{told}");
    assert!(!path("home/.local").exists());
    let personal = path("home/.local/lib/wireshark/extcap");
    let newer =
        format!("Personal Extcap path:\t{}\nGlobal Extcap path:\t/usr/lib/x\n", personal.display());
    let (code, told) = install(&newer, "--install");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("tshark -D lists its interfaces"), "{told}");
    assert_eq!(std::fs::read_link(personal.join("fyke")).unwrap(), Path::new(FYKE));
    // A tshark that does not read it does not keep the link from being removed.
    let (code, told) = install("Extcap path:\t/usr/lib/none/extcap\n", "--uninstall");
    assert_eq!(code, Some(0), "{told}");
    assert!(!personal.join("fyke").exists());
}

/// Puts the link into tshark's folder, which only this test then has, and checks that tshark finds the interface.
fn install_for_tshark() {
    let tshark = |words: &[&str]| {
        let output = Command::new("tshark").args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let folders = tshark(&["-G", "folders"]);
    let line = folders.lines().find(|line| line.starts_with("Extcap path:")).unwrap();
    tool(&format!("mount -t tmpfs none {}", line["Extcap path:".len()..].trim()));
    let installed = Command::new(FYKE).args(["extcap", "--install"]).output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let listed = tshark(&["-D"]);
    assert!(listed.contains("fyke:v1"), "{listed}");
}

/// The output of the command, and `true` if it succeeded.
fn fyke(words: &[&str]) -> (String, bool) {
    let output =
        Command::new(FYKE).args(words).env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

/// Waits until the output of the command has, or lacks, a text.
fn wait_until(words: &[&str], text: &str, is_there: bool, tshark: &Running) {
    let end = Instant::now() + LIMIT;
    loop {
        let (output, _) = fyke(words);
        if output.contains(text) == is_there {
            return;
        }
        assert!(Instant::now() < end, "{words:?}: {output}; {}", tshark.said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// tshark hands its capture filter over, and the filter is edited while it captures.
#[test]
fn tshark_captures_through_it() {
    if !inside("tshark_captures_through_it") {
        return;
    }
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not installed");
        return;
    }
    veth();
    install_for_tshark();
    let (_folder, path) = folder();
    let file = path("out.pcapng");
    let file = file.to_str().unwrap();
    let mut tshark = Running::start(
        Command::new("tshark")
            .args(["-i", "fyke:v1", "-f", "udp port 5001", "-w", file])
            .stdout(Stdio::null()),
    );
    let list = ["ctl", "list", "--json"];
    wait_until(&list, "udp port 5001", true, &tshark);
    send(100, 60);
    wait_until(&["ctl", "stats"], "100 seen = 50 accepted", true, &tshark);
    assert!(fyke(&["ctl", "set", "udp"]).1);
    send(100, 60);
    wait_until(&["ctl", "stats"], "200 seen = 150 accepted", true, &tshark);
    // tshark reads the pipe in its own time.
    wait_until(&["dump", "--count", "-r", file], "150\n", true, &tshark);
    tshark.signal("INT");
    assert!(tshark.end().success(), "{}", tshark.said());
    wait_until(&list, "udp port 5001", false, &tshark);
}
