//! The program that gives frames to AF_XDP sockets, by its verdicts and counts.

use fyke_kernel::prefilter::DropError;
use fyke_kernel::redirect::Redirector;
use fyke_testkit::namespace;
use fyke_testkit::skip::unless_missing;

/// Verdict that leaves a frame to the host.
const PASS: u32 = 2;

/// A frame for which there is no socket, and one that is too long for a socket, go to the host and are counted by
/// name; while the program is off, nothing is counted.
#[test]
fn frames_that_no_socket_can_take_are_counted() {
    if !namespace::inside("frames_that_no_socket_can_take_are_counted", &["-n"], None) {
        return;
    }
    let is_missing =
        |error: &DropError| matches!(error, DropError::Open(error) if error.is_unavailable());
    let attached = Redirector::attach("lo", None, 1);
    let Some(mut redirector) = unless_missing(attached, is_missing) else { return };
    assert!(!redirector.tells_tags(), "the loopback interface removes no tags");
    let mut run = |on: bool, longest: u32, len: usize| {
        redirector.set_on(on);
        redirector.set_longest(longest);
        assert_eq!(redirector.test_run(&vec![7; len]).unwrap().returned, PASS);
        (redirector.redirected(), redirector.without_socket(), redirector.too_long())
    };
    assert_eq!(run(false, 100, 101), (0, 0, 0));
    assert_eq!(run(true, 100, 100), (0, 1, 0));
    assert_eq!(run(true, 100, 101), (0, 1, 1));
    assert_eq!(run(true, u32::MAX, 1_500), (0, 2, 1));
}
