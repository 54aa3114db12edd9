//! Runs a test again inside a network namespace of its own, where it may do what it likes to interfaces.

use std::process::Command;

const INSIDE: &str = "FYKE_TEST_INSIDE";

/// Whether we are inside. If not, runs the test named `test` of this binary inside, and passes its failure on. Says so
/// when the system does not allow namespaces.
pub fn inside(test: &str) -> bool {
    inside_with(test, &["-n"], &["-Urn"])
}

/// The same with the options of `unshare` for root, and those for everybody else.
pub fn inside_with(test: &str, root: &[&str], user: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let works = |options: &[&str]| {
        let tried = Command::new("unshare").args(options).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let options = if works(root) { root } else { user };
    if !works(options) || Command::new("ip").arg("-V").output().is_err() {
        println!("skipped: no network namespaces here (unshare, ip)");
        return false;
    }
    let binary = std::env::current_exe().expect("this test has a file");
    let status = Command::new("unshare")
        .args(options)
        .arg(binary)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare runs");
    assert!(status.success(), "{test} failed in its namespace");
    false
}

/// Runs `ip` with the words of `arguments`.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
}

/// A pair of Ethernet interfaces, `v0` and `v1`, both up and without chatter of their own.
pub fn veth() {
    for name in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        std::fs::write(path, "1").expect("IPv6 can be switched off in a namespace of our own");
    }
    ip("link add v0 type veth peer name v1");
    ip("link set v0 up");
    ip("link set v1 up");
}
