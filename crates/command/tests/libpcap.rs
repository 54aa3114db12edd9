//! Programs of libpcap that know nothing of fyke, on the captures of `fyke serve`: unmodified programs find the library
//! of `bindings/libpcap` in place of the system's, by `LD_LIBRARY_PATH`.

mod common;

use common::{FYKE, Running, folder, frames_of, inside, runtime, send, veth};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes a folder with our library under libpcap's names.
fn libraries(folder: &Path) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libfyke_pcap.so");
    assert!(library.is_file(), "no {}", library.display());
    let folder = folder.join("pcap");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libpcap.so.0.8", "libpcap.so.1"] {
        let _there = std::os::unix::fs::symlink(&library, folder.join(name));
    }
    folder
}

fn is_installed(program: &str) -> bool {
    let installed = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !installed {
        println!("skipped: {program} is not installed");
    }
    installed
}

/// Starts the service of `v1`.
fn serve() -> Running {
    let service = Running::start(Command::new(FYKE).args(["serve", "-i", "v1"]));
    service.hear("serving v1");
    service
}

/// Starts a program with our library.
fn program(libraries: &Path, words: &[&str]) -> Running {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("LD_LIBRARY_PATH", libraries).stdout(Stdio::null());
    // What the library keeps for the next handle is no leak.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    Running::start(&mut command)
}

/// Waits until `fyke ctl` reaches the program and its filter is set.
fn has_filter(program: &Running, text: &str) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let mut command = Command::new(FYKE);
        command.args(["ctl", "--pid", &program.child.id().to_string(), "show"]);
        let output = command.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
        if String::from_utf8_lossy(&output.stdout).contains(text) {
            return;
        }
        assert!(std::time::Instant::now() < limit, "no {text:?}: {}", program.said());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn tcpdump_reads_a_service_and_is_edited_meanwhile() {
    let name = "tcpdump_reads_a_service_and_is_edited_meanwhile";
    if !is_installed("tcpdump") || !inside(name) {
        return;
    }
    veth();
    let (folder, at) = folder();
    let (pcap, service, file) = (libraries(folder.path()), serve(), at("all.pcap"));
    let words = ["tcpdump", "-Z", "root", "-U", "-ni", "fyke:v1", "-w", file.to_str().unwrap()];
    let mut tcpdump = program(&pcap, &[&words[..], &["udp port 5001"]].concat());
    has_filter(&tcpdump, "udp port 5001");
    let beside = Running::start(
        Command::new(FYKE)
            .args(["dump", "-i", "serve:v1", "-w", "/dev/null"])
            .stdout(Stdio::null()),
    );
    beside.hear("listening on serve:v1");
    send(1000, 100);
    tcpdump.settle(1000);
    tcpdump.ctl(&["set", "udp port 5002 or arp"]);
    send(400, 100);
    tcpdump.settle(1400);
    let added = tcpdump.ctl(&["add", "udp port 5001"]);
    assert!(added.contains("filter 3"), "{added}");
    send(200, 100);
    tcpdump.settle(1600);
    let stats = tcpdump.ctl(&["stats"]);
    assert!(stats.contains("1600 seen = 900 accepted + 700 rejected + 0 lost"), "{stats}");
    assert!(tcpdump.ctl(&["log"]).contains("udp port 5002 or arp"));
    tcpdump.signal("INT");
    assert!(tcpdump.end().success(), "{}", tcpdump.said());
    let said = tcpdump.said();
    for line in ["900 packets captured", "900 packets received by filter", "0 packets dropped by k"]
    {
        assert!(said.contains(line), "no {line:?} in {said}");
    }
    assert_eq!(frames_of(&file), 900);
    beside.settle(1600);
    drop(service);
}

#[test]
fn dumpcap_and_tshark_read_a_service() {
    let name = "dumpcap_and_tshark_read_a_service";
    if !is_installed("dumpcap") || !is_installed("tshark") || !inside(name) {
        return;
    }
    veth();
    let (folder, at) = folder();
    let (pcap, service) = (libraries(folder.path()), serve());
    let (file, other) = (at("dumpcap.pcapng"), at("tshark.pcapng"));
    let text = "udp port 5001";
    let mut dumpcap = program(
        &pcap,
        &["dumpcap", "-q", "-i", "fyke:v1", "-f", text, "-w", file.to_str().unwrap()],
    );
    has_filter(&dumpcap, text);
    let words = ["tshark", "-q", "-i", "fyke:v1", "-f", text, "-c", "300", "-w"];
    let mut tshark = program(&pcap, &[&words[..], &[other.to_str().unwrap()]].concat());
    tshark.hear("Capturing on");
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // tshark captures in a process of its own.
    while !service.ctl(&["show"]).contains("reader 2") {
        assert!(std::time::Instant::now() < limit, "tshark does not capture: {}", tshark.said());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    service.wait_for("udp port 5001");
    send(400, 100);
    dumpcap.settle(400);
    // Frames that a program has not taken yet are evaluated again: only an addition leaves their number as it is.
    dumpcap.ctl(&["add", "udp port 5002"]);
    // tshark's capture is in the process of its dumpcap, a child.
    let child = child_of(&tshark);
    ctl(child, &["add", "udp port 5002"]);
    send(600, 100);
    dumpcap.settle(1000);
    assert!(tshark.end().success(), "{}", tshark.said());
    dumpcap.signal("INT");
    assert!(dumpcap.end().success(), "{}", dumpcap.said());
    assert_eq!((frames_of(&file), frames_with(&file, text)), (800, 500));
    assert_eq!((frames_of(&other), frames_with(&other, text)), (300, 250));
    let said = dumpcap.said();
    assert!(said.contains("received/dropped on interface 'fyke:v1': 800/0"), "{said}");
}

/// Sanitizers of the C compiler.
const SANITIZERS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// The first child of a process.
fn child_of(parent: &Running) -> u32 {
    let pid = parent.child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a child")
}

/// Sends a request to the process of this number.
fn ctl(pid: u32, words: &[&str]) {
    let mut command = Command::new(FYKE);
    command.args(["ctl", "--pid", &pid.to_string()]).args(words);
    let output = command.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Counts the frames of a file that a text accepts.
fn frames_with(path: &Path, text: &str) -> u64 {
    let mut command = Command::new(FYKE);
    let output = command.args(["dump", "--count", "-r"]).arg(path).arg(text).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// Compiles a program of `bindings/libpcap/tests`, with sanitizers if the compiler has them; `None` if that is not
/// possible.
fn compiled(folder: &Path, source: &str) -> Option<PathBuf> {
    compiled_with(folder, source, SANITIZERS)
}

fn compiled_with(folder: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    if !is_installed("cc") {
        return None;
    }
    if !Path::new("/usr/include/pcap/pcap.h").exists() {
        println!("skipped: the headers of libpcap are not installed");
        return None;
    }
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/libpcap/tests").join(source);
    let program = folder.join("program");
    let compile = |sanitizers: &[&str]| {
        let mut compile = Command::new("cc");
        compile.args(["-Wall", "-Werror", "-O1", "-g"]).args(sanitizers).arg("-o").arg(&program);
        compile.arg(&source).args(["-lpcap", "-lpthread"]).output().unwrap()
    };
    let mut output = compile(flags);
    if !flags.is_empty() && !output.status.success() {
        println!("without sanitizers: {}", String::from_utf8_lossy(&output.stderr));
        output = compile(&[]);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn a_c_program_has_exact_filters_counts_and_errors() {
    let name = "a_c_program_has_exact_filters_counts_and_errors";
    let (folder, at) = folder();
    let Some(c) = compiled(folder.path(), "program.c") else { return };
    if !inside(name) {
        return;
    }
    veth();
    let (pcap, _service) = (libraries(folder.path()), serve());
    let file = at("ten.pcap");
    let mut running = program(&pcap, &[c.to_str().unwrap(), file.to_str().unwrap()]);
    assert!(running.end().success(), "{}", running.said());
    assert_eq!(running.said(), "ok\n");
}

#[test]
fn a_program_gets_an_error_when_the_service_is_killed() {
    let name = "a_program_gets_an_error_when_the_service_is_killed";
    let (folder, at) = folder();
    let Some(c) = compiled(folder.path(), "program.c") else { return };
    if !inside(name) {
        return;
    }
    veth();
    let (pcap, mut service) = (libraries(folder.path()), serve());
    let file = at("none");
    let words = [c.to_str().unwrap(), file.to_str().unwrap(), "until-the-service-dies"];
    let mut running = program(&pcap, &words);
    running.hear("ready");
    service.signal("KILL");
    service.end();
    assert!(running.end().success(), "{}", running.said());
    assert!(running.said().contains("-1: "), "{}", running.said());
}

#[test]
fn a_filter_stays_while_the_service_does_not_answer() {
    let name = "a_filter_stays_while_the_service_does_not_answer";
    let (folder, at) = folder();
    let Some(c) = compiled(folder.path(), "program.c") else { return };
    if !inside(name) {
        return;
    }
    veth();
    let (pcap, mut service) = (libraries(folder.path()), serve());
    let (file, pid) = (at("none"), service.child.id().to_string());
    let words = [c.to_str().unwrap(), file.to_str().unwrap(), "while-the-service-stops", &pid];
    let mut running = program(&pcap, &words);
    assert!(running.end().success(), "{}", running.said());
    assert_eq!(running.said(), "ok\n");
    assert!(service.end().success(), "{}", service.said());
}

/// The text has a name of a host, which the service does not take, so the instructions decide in the program.
#[test]
fn an_undo_brings_back_a_filter_without_a_text() {
    let name = "an_undo_brings_back_a_filter_without_a_text";
    if !is_installed("tcpdump") || !inside(name) {
        return;
    }
    veth();
    let (folder, at) = folder();
    let (pcap, _service, file) = (libraries(folder.path()), serve(), at("all.pcap"));
    let words = ["tcpdump", "-Z", "root", "-U", "-ni", "fyke:v1", "-w", file.to_str().unwrap()];
    let mut tcpdump = program(&pcap, &[&words[..], &["host localhost or udp port 5001"]].concat());
    tcpdump.hear("listening on");
    send(100, 100);
    tcpdump.settle(100);
    let mut add = Command::new(FYKE);
    add.args(["ctl", "--pid", &tcpdump.child.id().to_string(), "add", "udp port 5002"]);
    let refused = add.env("FYKE_RUNTIME_DIR", runtime()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("instructions without a text"), "{said}");
    tcpdump.ctl(&["set", "udp port 5002"]);
    send(100, 100);
    tcpdump.settle(200);
    tcpdump.ctl(&["undo"]);
    send(100, 100);
    tcpdump.settle(300);
    tcpdump.signal("INT");
    assert!(tcpdump.end().success(), "{}", tcpdump.said());
    let counts = ["udp port 5001", "udp port 5002"].map(|text| frames_with(&file, text));
    assert_eq!((frames_of(&file), counts), (150, [100, 50]));
}

/// Arbitrary calls of three threads, with signals and forks, while a second service is killed and started again. The
/// seed is in the output; `FYKE_SEED` repeats the arguments.
#[test]
fn a_c_program_calls_with_arbitrary_arguments() {
    let name = "a_c_program_calls_with_arbitrary_arguments";
    let (folder, _) = folder();
    let Some(c) = compiled(folder.path(), "arbitrary.c") else { return };
    if !inside(name) {
        return;
    }
    veth();
    let (pcap, _service) = (libraries(folder.path()), serve());
    let second = || {
        let mut command = Command::new(FYKE);
        let service = Running::start(command.args(["serve", "-i", "v1", "--name", "v2"]));
        service.hear("serving v1");
        service
    };
    let mut other = second();
    let mut running = program(&pcap, &[c.to_str().unwrap(), "4000"]);
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while running.child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < limit, "a call does not return: {}", running.said());
        std::thread::sleep(std::time::Duration::from_millis(100));
        other.signal("KILL");
        other.end();
        other = second();
    }
    assert!(running.end().success(), "{}", running.said());
    assert!(running.said().contains("ok: "), "{}", running.said());
}

/// 200 forks while other threads are in calls. The program itself detects a hang, by alarms.
#[test]
fn a_c_program_forks_while_its_threads_are_in_calls() {
    let name = "a_c_program_forks_while_its_threads_are_in_calls";
    let (folder, _) = folder();
    let Some(c) = compiled_with(folder.path(), "forks.c", &[]) else { return };
    if !inside(name) {
        return;
    }
    veth();
    let (pcap, _service) = (libraries(folder.path()), serve());
    let mut running = program(&pcap, &[c.to_str().unwrap(), "200"]);
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while running.child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < limit, "it hangs: {}", running.said());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(running.end().success(), "{}", running.said());
    assert!(running.said().contains("ok: 200 forks"), "{}", running.said());
}

/// The set-user-ID bit gives a program the mark `AT_SECURE`, whatever the user is.
#[test]
fn a_program_with_more_rights_has_no_devices_of_services() {
    let name = "a_program_with_more_rights_has_no_devices_of_services";
    let (folder, at) = folder();
    if compiled(folder.path(), "privileged.c").is_none() || !inside(name) {
        return;
    }
    veth();
    let _service = serve();
    // Everyone can read copies of the library, where the program looks for it first.
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), all).unwrap();
    let real = libraries(folder.path()).join("libpcap.so.0.8");
    let copies = at("copies");
    std::fs::create_dir(&copies).unwrap();
    for name in ["libpcap.so.0.8", "libpcap.so.1"] {
        std::fs::copy(&real, copies.join(name)).unwrap();
    }
    let program = folder.path().join("privileged");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/libpcap/tests/privileged.c");
    let mut compile = Command::new("cc");
    compile.arg(source).arg("-o").arg(&program).args(["-lpcap", "-ldl"]);
    compile.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", copies.display()));
    assert!(compile.status().unwrap().success());
    std::os::unix::fs::chown(&program, Some(65_534), Some(65_534)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut command = Command::new(&program);
    command.env("FYKE_LIBPCAP", "/none/such").env("FYKE_RUNTIME_DIR", runtime());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(77) => println!("skipped: {said}"),
        code => assert_eq!((code, said.as_str()), (Some(0), "ok\n")),
    }
}

#[test]
fn a_python_module_reads_a_service() {
    let name = "a_python_module_reads_a_service";
    if !is_installed("python3") || !inside(name) {
        return;
    }
    veth();
    let (folder, _) = folder();
    let (pcap, _service) = (libraries(folder.path()), serve());
    // As the modules on ctypes do.
    let script = "
import ctypes, sys
lib = ctypes.CDLL('libpcap.so.0.8')
class Header(ctypes.Structure):
    _fields_ = [('s', ctypes.c_long), ('us', ctypes.c_long), ('caplen', ctypes.c_uint), ('len', ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_uint), ('insns', ctypes.c_void_p)]
lib.pcap_open_live.restype = ctypes.c_void_p
lib.pcap_next.restype = ctypes.c_void_p
errors = ctypes.create_string_buffer(256)
p = ctypes.c_void_p(lib.pcap_open_live(b'fyke:v1', 65535, 1, 100, errors))
assert p, errors.value
program = Program()
assert lib.pcap_compile(p, ctypes.byref(program), b'udp port 5001', 1, 0) == 0
assert lib.pcap_setfilter(p, ctypes.byref(program)) == 0
print('ready', file=sys.stderr, flush=True)
header, ports = Header(), {5001: 0, 5002: 0}
while sum(ports.values()) < 1500:
    data = lib.pcap_next(p, ctypes.byref(header))
    if data:
        assert header.len == 142, header.len
        ports[int.from_bytes(ctypes.string_at(data, 38)[36:], 'big')] += 1
assert ports == {5001: 1000, 5002: 500}, ports
lib.pcap_close(p)
";
    let mut python = program(&pcap, &["python3", "-c", script]);
    python.hear("ready");
    send(1000, 100);
    python.settle(1000);
    python.ctl(&["add", "udp port 5002"]);
    send(1000, 100);
    assert!(python.end().success(), "{}", python.said());
}

/// Scapy, which captures by libpcap if it is told to.
#[test]
fn scapy_reads_a_service() {
    let name = "scapy_reads_a_service";
    let target = std::env::current_exe().unwrap().parent().unwrap().join("../../python");
    if !target.join("scapy").exists() {
        return println!("skipped: no scapy in target/python: `cargo xtask setup` installs it");
    }
    if !is_installed("python3") || !inside(name) {
        return;
    }
    veth();
    let (folder, _) = folder();
    let (pcap, service) = (libraries(folder.path()), serve());
    let script = "
from scapy.all import UDP, conf, sniff
conf.use_pcap = True
frames = sniff(iface='fyke:v1', filter='udp port 5001', count=150, timeout=25)
ports = [one[UDP].dport for one in frames]
assert ports[:50] == [5001] * 50 and sorted(ports) == [5001] * 100 + [5002] * 50, ports
";
    let mut command = Command::new("python3");
    command.args(["-c", script]).env("PYTHONPATH", target).env("HOME", folder.path());
    let mut python = Running::start(command.env("LD_LIBRARY_PATH", pcap).stdout(Stdio::null()));
    service.wait_for("udp port 5001");
    send(100, 100);
    python.settle(100);
    python.ctl(&["add", "udp port 5002"]);
    send(100, 100);
    assert!(python.end().success(), "{}", python.said());
}

/// ngrep adds to the filter that it gets, and looks for an expression itself.
#[test]
fn ngrep_reads_a_service_and_is_edited_meanwhile() {
    let name = "ngrep_reads_a_service_and_is_edited_meanwhile";
    if !is_installed("ngrep") || !inside(name) {
        return;
    }
    veth();
    let (folder, _) = folder();
    let (pcap, _service) = (libraries(folder.path()), serve());
    let words = ["ngrep", "-q", "-X", "-d", "fyke:v1", "-n", "60", "07070707", "udp port 5001"];
    let mut ngrep = program(&pcap, &words);
    has_filter(&ngrep, "udp port 5001");
    send(100, 100);
    ngrep.settle(100);
    ngrep.ctl(&["set", "udp port 5002"]);
    send(100, 100);
    assert!(ngrep.end().success(), "{}", ngrep.said());
}

/// The functions and data that a library defines.
fn symbols(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect()
}

#[test]
fn the_library_has_all_symbols_of_the_installed_one() {
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu", "/usr/lib"];
    let names = ["libpcap.so.0.8", "libpcap.so.1"];
    let all = folders.iter().flat_map(|folder| names.map(|name| Path::new(folder).join(name)));
    let Some(installed) = all.into_iter().find(|path| path.exists()) else {
        return println!("skipped: libpcap is not installed");
    };
    if !is_installed("nm") {
        return;
    }
    let (folder, _) = folder();
    let ours = symbols(&libraries(folder.path()).join("libpcap.so.0.8"));
    let theirs = symbols(&installed);
    assert!(theirs.len() > 80, "{theirs:?}");
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    // Nothing else may be found in place of a function of the program.
    let more: Vec<_> = ours.difference(&theirs).filter(|name| !name.starts_with("pcap_")).collect();
    assert_eq!(more, ["fyke_pcap_version"]);
}
