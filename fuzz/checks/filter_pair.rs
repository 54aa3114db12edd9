//! Compares fyke and the installed libpcap on a text and a frame: shared by the fuzz target and `cargo test`.

use fyke_filter::{Options, compile};
use fyke_frame::{Frame, LinkType, link};
use fyke_lab::peers::libpcap::{Compile, Libpcap};

/// Texts for which libpcap reads memory that it has not written, or does not terminate; see docs/language.md.
const APART: [&str; 3] = ["geneve", "protochain", "pppoes"];
/// Link types with headers of variable length: libpcap stores offsets in memory words, which expressions overwrite.
const IN_WORDS: [&str; 6] =
    ["IEEE802_11", "IEEE802_11_RADIO", "IEEE802_11_RADIO_AVS", "PRISM_HEADER", "PPI", "PFLOG"];

/// Errors about computed operands. libpcap refuses such values only as literal numbers.
const COMPUTED: [&str; 3] = ["division by zero", "modulus by zero", "shift by more than 31 bits"];

/// Compiles a text on both sides and compares the verdicts. The input has the link type (0 = Ethernet), a text up
/// to a zero byte, and a frame. A difference in acceptance or verdict panics. Only texts of lower-case words,
/// numbers and operators are used: anything else could be a name that causes a DNS look-up.
pub fn pair(libpcap: &Libpcap, data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (text, bytes) = data.split_at(end.min(200));
    let Ok(text) = std::str::from_utf8(text) else { return };
    // libpcap never loads a byte that is compared by `&` or `|`.
    let apart = text.contains("byte") && text.contains(['&', '|']);
    if apart || APART.iter().any(|word| text.contains(word)) {
        return;
    }
    let options = Options { link: link_of(*choice), ..Options::default() };
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
    let frame = Frame::new(options.link, bytes);
    match (ours, &there) {
        (Ok(predicate), [Ok(plain), Ok(optimized)]) => {
            let verdicts = [plain, optimized].map(|one| one.matches(bytes, frame.wire_len));
            let link = options.link;
            let ours = predicate.accepts(&frame);
            assert!(verdicts.contains(&ours), "{link} {text:?}: {ours} on {bytes:02x?}");
        }
        // The optimisers differ: a text that one of them finds to match nothing must match nothing.
        (Err(error), [Ok(plain), Ok(_)]) if error.message().starts_with("no frame can match") => {
            assert!(!plain.matches(bytes, frame.wire_len), "{text:?} accepts {bytes:02x?}");
        }
        // libpcap's optimiser refuses depending on how early it removes unused values; see docs/language.md.
        (Err(error), [Ok(_), Ok(_)]) if COMPUTED.contains(&error.message()) => {}
        (Err(_), [Ok(_), Ok(_)]) | (Ok(_), [Err(_), _]) => {
            panic!("{} {text:?} is accepted by one side only", options.link);
        }
        _ => {}
    }
}

fn link_of(choice: u8) -> LinkType {
    let links = || link::all().filter(|link| !IN_WORDS.contains(&link.name));
    match choice {
        0 => LinkType::EN10MB,
        other => links()
            .nth(usize::from(other) % links().count())
            .map_or(LinkType::EN10MB, |link| link.numbers[0]),
    }
}
