//! Properties of filter texts that hold for any input: shared by the fuzz targets and `cargo test`.
//!
//! A panic is a finding. The input has the options, a text up to a zero byte, then a frame.

use fyke_filter::{Options, Reading, bpf, compile};
use fyke_frame::{Direction, Frame, LinkType, Meta, link};

/// Maximum length of a text.
const MAX_TEXT: usize = 4096;

/// Compiles any bytes as a text for any link type. The result is an error with a location in the text, or a
/// predicate: its canonical text has the same meaning, it evaluates any frame, and its program of classic BPF
/// terminates and has no jump outside.
pub fn texts(data: &[u8]) {
    let [choice, link, rest @ ..] = data else { return };
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let (text, bytes) = rest.split_at(end.min(MAX_TEXT));
    let Ok(text) = std::str::from_utf8(text) else { return };
    let links: Vec<LinkType> = link::all().map(|link| link.numbers[0]).collect();
    let options = Options {
        link: links[usize::from(*link) % links.len()],
        live: choice & 1 != 0,
        swapped: choice & 2 != 0,
        reading: if choice & 4 != 0 { Reading::Scoped } else { Reading::Compat },
        netmask: (choice & 8 != 0).then_some(0xffff_ff00),
        ..Options::default()
    };
    let predicate = match compile(text, &options) {
        Ok(predicate) => predicate,
        Err(error) => {
            let span = error.span();
            assert!(span.start <= span.end && span.end <= text.len(), "{text:?}: {span:?}");
            assert!(error.to_string().contains('^'), "{text:?}");
            return;
        }
    };
    let canonical = predicate.to_string();
    match compile(&canonical, &options) {
        Ok(again) => assert!(again == predicate, "{text:?} became {canonical:?}"),
        Err(error) => {
            // The text may have more levels of brackets than the limit.
            let deep =
                error.message().contains("brackets") || error.message().contains("registers");
            assert!(deep, "{text:?} became {canonical:?}: {error}");
        }
    }
    let frame = Frame {
        meta: Meta { direction: Direction::Outbound, ifindex: 3, ..Meta::default() },
        ..Frame::new(options.link, bytes)
    };
    assert_eq!(predicate.accepts(&frame), predicate.holds(&frame) == Ok(true));
    if let Ok(program) = bpf::lower(&predicate, 0xffff) {
        stays_inside(&program);
    }
}

/// Checks that all jumps go forward to an instruction, and that the last instruction returns.
fn stays_inside(program: &[bpf::Instruction]) {
    assert!(program.last().is_some_and(|last| last.code == 0x06), "no return");
    for (index, one) in program.iter().enumerate() {
        let furthest = match (one.code & 7, one.code) {
            (5, 0x05) => index + 1 + one.k as usize,
            (5, _) => index + 1 + usize::from(one.jt.max(one.jf)),
            _ => continue,
        };
        assert!(furthest < program.len(), "{index} jumps to {furthest} of {}", program.len());
    }
}
