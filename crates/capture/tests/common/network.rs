//! Runs a test again inside its own network namespace, where it may change interfaces.

use fyke_testkit::namespace;
use std::process::Command;

/// True inside the test's own network namespace. Elsewhere it runs the test named `test` of this binary inside one,
/// and passes on its failure; it prints a skip if the system does not allow namespaces.
pub fn inside(test: &str) -> bool {
    namespace::inside(test, &["-n"], Some(&["-Urn"]))
}

/// The same, with options for `unshare`.
pub fn inside_with(test: &str, options: &[&str]) -> bool {
    namespace::inside(test, options, None)
}

/// Runs `ip` with `arguments`, separated by blanks.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
}

/// Creates a pair of Ethernet interfaces, `v0` and `v1`, both up and without traffic of their own.
pub fn veth() {
    for name in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        std::fs::write(path, "1").expect("IPv6 can be switched off in a namespace of our own");
    }
    ip("link add v0 type veth peer name v1");
    ip("link set v0 up");
    ip("link set v1 up");
}
