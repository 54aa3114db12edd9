//! Prints the cost of a line; asserts only the text of the line, so it is cheap enough for every
//! run.

use fyke_frame::{Frame, LinkType};
use fyke_print::{PrintOptions, Printer};
use fyke_testkit::packet::Packet;
use std::time::Instant;

#[test]
fn print_cost() {
    let tcp = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1234, 80).flags(0x10);
    let bytes = tcp.tcp_options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]).payload(&[7; 64]).build();
    let frame = Frame::new(LinkType::EN10MB, &bytes);
    let mut printer = Printer::new(PrintOptions::default());
    let mut text = String::new();
    let mut round = || {
        const LINES: u32 = 1_000;
        let start = Instant::now();
        for _ in 0..LINES {
            text.clear();
            printer.line(&frame, &mut text);
        }
        start.elapsed().as_nanos() as f64 / f64::from(LINES)
    };
    // The minimum of many rounds excludes other programs on the same processor.
    let least_ns = (0..20).map(|_| round()).fold(f64::INFINITY, f64::min);
    println!("{least_ns:.0} ns: {text}");
    assert!(text.ends_with(", length 64: HTTP"), "{text}");
}
