//! A text and a frame, judged here and by the installed libpcap: shared by the fuzz target and `cargo test`.

use fyke_filter::{Options, compile};
use fyke_frame::{Frame, LinkType};
use fyke_lab::peers::libpcap::{Compile, Libpcap};

/// Texts in which libpcap reads memory that it has not written, or does not end; see docs/language.md.
const APART: [&str; 5] = ["geneve", "protochain", "pppoes", "&", "|"];

/// A difference in acceptance or verdict panics. Texts of lower-case words, numbers and operators only: anything else
/// could be a name that libpcap looks up in the network.
pub fn pair(libpcap: &Libpcap, data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (text, bytes) = data.split_at(end.min(200));
    let Ok(text) = std::str::from_utf8(text) else { return };
    let options = Options { link: LinkType::EN10MB, ..Options::default() };
    if APART.iter().any(|word| text.contains(word)) {
        return;
    }
    let ours = compile(text, &options);
    if ours.as_ref().is_err_and(|error| error.message().contains("not known")) {
        return;
    }
    let there = [false, true].map(|optimize| {
        let how = Compile {
            link: options.link,
            snaplen: options.snaplen,
            netmask: None,
            optimize,
            swapped: false,
        };
        libpcap.compile_with(&how, text)
    });
    match (ours, &there) {
        (Ok(predicate), [Ok(plain), Ok(optimized)]) => {
            let frame = Frame::new(options.link, bytes);
            let verdicts = [plain, optimized].map(|one| one.matches(bytes, frame.wire_len));
            assert!(verdicts.contains(&predicate.accepts(&frame)), "{text:?} on {bytes:02x?}");
        }
        (Err(_), [Ok(_), Ok(_)]) | (Ok(_), [Err(_), _]) => panic!("{text:?} is read by one only"),
        // Refused by both, or as never matching by one of two optimisers.
        _ => {}
    }
}
