//! Tests of what the sandbox denies. A sandbox cannot be left, so each test runs itself again as a separate process and
//! enters the sandbox there.

use super::{Enforced, Rules, enter};
use crate::sys::call;
use rustix::net::{AddressFamily, SocketType, socket};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

const CHILD: &str = "FYKE_TEST_CHILD";

/// Runs a test again in a separate process; returns false in that process.
fn ran_in_child(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let name = format!("sandbox::tests::{test}");
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args([&name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
    true
}

/// Enters the sandbox; returns true if this kernel enforces all of it.
fn entered(rules: Rules) -> bool {
    let Enforced { files, calls } = enter(rules).unwrap();
    if !files || !calls {
        println!("skipped: this kernel has Landlock: {files}, seccomp: {calls}");
    }
    files && calls
}

fn is_denied<T>(result: Result<T, impl Into<Error>>) -> bool {
    let error = result.map_err(Into::into).err();
    error.is_some_and(|error: Error| error.raw_os_error() == Some(libc::EPERM))
}

/// System calls that reading frames never makes.
const DENIED: [libc::c_long; 30] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_kill,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_setuid,
    libc::SYS_setresuid,
    libc::SYS_capset,
    libc::SYS_seccomp,
    libc::SYS_init_module,
    libc::SYS_open_by_handle_at,
    libc::SYS_openat,
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_memfd_create,
    // A number of the x32 interface: read.
    0x4000_0000,
];

#[test]
fn calls_that_reading_frames_never_takes_fail() {
    if ran_in_child("calls_that_reading_frames_never_takes_fail") {
        return;
    }
    let me = libc::c_long::from(std::process::id());
    assert!(call(libc::SYS_unshare, [0; 4]).is_ok(), "allowed outside");
    let mut before = tempfile::tempfile().unwrap();
    if !entered(Rules::default()) {
        return;
    }
    for number in DENIED {
        assert!(is_denied(call(number, [0; 4])), "system call {number}");
    }
    // Allowed calls with arguments that a capture does not need.
    let tiocsti = 0x5412;
    for (number, arguments) in [
        (libc::SYS_clone, [libc::c_long::from(libc::SIGCHLD), 0, 0, 0]),
        (libc::SYS_tgkill, [1, 1, 0, 0]),
        (libc::SYS_tgkill, [me + 1, me + 1, 0, 0]),
        (libc::SYS_prctl, [libc::c_long::from(libc::PR_SET_DUMPABLE), 1, 0, 0]),
        (libc::SYS_ioctl, [0, tiocsti, 0, 0]),
        (libc::SYS_fcntl, [0, libc::c_long::from(libc::F_SETOWN), me, 0]),
        (libc::SYS_mmap, [0, 4096, libc::c_long::from(libc::PROT_EXEC), 0x22]),
        (libc::SYS_mprotect, [0, 4096, 7, 0]),
        (libc::SYS_prlimit64, [0, 7, 8, 0]),
    ] {
        assert!(is_denied(call(number, arguments)), "system call {number} {arguments:?}");
    }
    let clone3 = call(libc::SYS_clone3, [0; 4]).unwrap_err();
    assert_eq!(clone3.raw_os_error(), Some(libc::ENOSYS), "threads start another way");
    assert!(is_denied(socket(AddressFamily::PACKET, SocketType::RAW, None)));
    assert!(is_denied(File::open("/etc/passwd")));
    assert!(is_denied(Command::new("/bin/true").status()));
    assert!(is_denied::<()>(Err(Command::new("/bin/true").exec())));
    // The calls that a capture needs still work.
    before.write_all(b"frames").unwrap();
    before.set_len(3).unwrap();
    std::thread::Builder::new().name("more".into()).spawn(|| vec![0u8; 1 << 24].len()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1));
    let (mut left, mut right) = std::os::unix::net::UnixStream::pair().unwrap();
    right.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    left.write_all(b"x").unwrap();
    right.read_exact(&mut [0]).unwrap();
}

#[test]
fn files_outside_the_folders_are_out_of_reach() {
    if ran_in_child("files_outside_the_folders_are_out_of_reach") {
        return;
    }
    let (out, input, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&out, &input, &other] {
        std::fs::write(folder.path().join("old"), "old").unwrap();
    }
    let list = |folder: &tempfile::TempDir| vec![folder.path().to_owned()];
    let rules = Rules { writes: list(&out), reads: list(&input), ..Rules::default() };
    if !entered(rules) {
        return;
    }
    let write = |folder: &tempfile::TempDir, name| std::fs::write(folder.path().join(name), "new");
    let kind = |result: std::io::Result<()>| result.map_err(|error| error.kind());
    for name in ["old", "new"] {
        assert_eq!(kind(write(&out, name)), Ok(()));
        assert_eq!(kind(write(&input, name)), Err(ErrorKind::PermissionDenied), "{name}");
        assert_eq!(kind(write(&other, name)), Err(ErrorKind::PermissionDenied), "{name}");
    }
    std::fs::remove_file(out.path().join("old")).unwrap();
    assert_eq!(std::fs::read(input.path().join("old")).unwrap(), b"old");
    for outside in [other.path().join("old"), "/etc/passwd".into(), "/proc/self/mem".into()] {
        let read = std::fs::read(&outside).map(drop);
        assert_eq!(kind(read), Err(ErrorKind::PermissionDenied), "{outside:?}");
    }
    let link = std::os::unix::fs::symlink("/etc/passwd", out.path().join("link"));
    assert!(is_denied(link), "a link leads out of the folder");
}

/// Edits may open ordinary sockets, but never packet sockets.
#[test]
fn an_edit_may_open_sockets_but_no_packet_socket() {
    if ran_in_child("an_edit_may_open_sockets_but_no_packet_socket") {
        return;
    }
    if !entered(Rules { opens_sockets: true, ..Rules::default() }) {
        return;
    }
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for family in [AddressFamily::PACKET, AddressFamily::NETLINK, AddressFamily::VSOCK] {
        assert!(is_denied(socket(family, SocketType::RAW, None)), "{family:?}");
    }
}

/// A source on another machine connects again, to the port of its relay and nowhere else.
#[test]
fn a_lost_connection_may_be_made_again_to_its_port_only() {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    if ran_in_child("a_lost_connection_may_be_made_again_to_its_port_only") {
        return;
    }
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (relay, other) = (listen(), listen());
    let [port, elsewhere] = [&relay, &other].map(|one| one.local_addr().unwrap().port());
    if !entered(Rules { connects_to: vec![port], ..Rules::default() }) {
        return;
    }
    let connected = TcpStream::connect_timeout(
        &([127, 0, 0, 1], port).into(),
        std::time::Duration::from_secs(5),
    );
    connected.unwrap().set_nodelay(true).unwrap();
    // Landlock restricts ports since Linux 6.7.
    match TcpStream::connect(("127.0.0.1", elsewhere)) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        Ok(_) => println!("skipped: this kernel does not restrict ports"),
    }
    assert!(is_denied(UdpSocket::bind("127.0.0.1:0").map(drop)));
    assert!(is_denied(TcpListener::bind("127.0.0.1:0").map(drop)));
    assert!(is_denied(socket(AddressFamily::UNIX, SocketType::STREAM, None)));
}
