//! Runs a test again inside a network namespace of its own, where it may do what it likes to interfaces.

use fyke_testkit::namespace;
use std::process::Command;

/// True inside a network namespace of the test's own. Elsewhere runs the test named `test` of this binary inside one,
/// and passes its failure on; prints a skip where the system does not allow namespaces.
pub fn inside(test: &str) -> bool {
    namespace::inside(test, &["-n"], Some(&["-Urn"]))
}

/// The same with the options of `unshare`.
pub fn inside_with(test: &str, options: &[&str]) -> bool {
    namespace::inside(test, options, None)
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
