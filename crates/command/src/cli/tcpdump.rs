//! Options of tcpdump 4.99, in the order of its manual, and advice for those that fyke refuses.
//!
//! `fyke dump` takes all others under the same name and with the same meaning.

/// An option of tcpdump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Letter; `\0` if it has none.
    pub short: char,
    /// Long name; empty if it has none.
    pub long: &'static str,
    /// True if a value follows.
    pub has_value: bool,
    /// Advice, if fyke does not take the option.
    pub refused: Option<&'static str>,
}

/// An option without a value.
const fn flag(short: char, long: &'static str) -> Known {
    Known { short, long, has_value: false, refused: None }
}

/// An option with a value.
const fn value(short: char, long: &'static str) -> Known {
    Known { short, long, has_value: true, refused: None }
}

impl Known {
    const fn refused(self, advice: &'static str) -> Known {
        Known { refused: Some(advice), ..self }
    }
}

/// Letter of options that have only a long name.
pub const NONE: char = '\0';

/// All options.
pub const OPTIONS: &[Known] = &[
    flag('a', ""),
    flag('A', ""),
    flag('b', ""),
    value('B', "buffer-size"),
    value('c', ""),
    flag(NONE, "count"),
    value('C', ""),
    flag('d', ""),
    flag('D', "list-interfaces"),
    flag('e', ""),
    value('E', "").refused(
        "fyke decrypts no ESP; write the frames with -w, and read the file with \
         `tshark -o esp.enable_encryption_decode:TRUE` and its table of keys",
    ),
    flag('f', ""),
    value('F', ""),
    value('G', ""),
    flag('h', "help"),
    flag(NONE, "version"),
    flag('H', "").refused(
        "fyke does not look for headers of the draft of 802.11s; --dissect prints those of the \
         standard",
    ),
    value('i', "interface"),
    flag('I', "monitor-mode").refused(
        "fyke changes no mode of an interface; make one in monitor mode with \
         `iw dev IF interface add mon0 type monitor`, then capture with -i mon0",
    ),
    flag(NONE, "immediate-mode"),
    value('j', "time-stamp-type"),
    flag('J', "list-time-stamp-types"),
    value(NONE, "time-stamp-precision"),
    flag(NONE, "micro"),
    flag(NONE, "nano"),
    flag('K', "dont-verify-checksums"),
    flag('l', ""),
    flag('L', "list-data-link-types"),
    value('m', "").refused(
        "fyke reads no MIB modules (nor does the tcpdump of most distributions); --dissect \
         names the objects of SNMP",
    ),
    value('M', "")
        .refused("fyke does not verify the digests of TCP; tshark shows them for a file of -w"),
    flag('n', ""),
    flag('N', ""),
    flag('#', "number"),
    flag('O', "no-optimize"),
    flag('p', "no-promiscuous-mode"),
    flag(NONE, "print"),
    value('Q', "direction"),
    flag('q', ""),
    value('r', ""),
    flag('S', "absolute-tcp-sequence-numbers"),
    value('s', "snapshot-length"),
    value('T', "").refused(
        "fyke chooses how to print a datagram by its port; \
         `tshark -d udp.port==PORT,PROTOCOL` reads a file of -w as you say",
    ),
    flag('t', ""),
    flag('u', ""),
    flag('U', "packet-buffered"),
    flag('v', ""),
    value('V', ""),
    value('w', ""),
    value('W', ""),
    flag('x', ""),
    flag('X', ""),
    value('y', "linktype"),
    value('z', ""),
    value('Z', "relinquish-privileges"),
    flag(NONE, "lengths"),
    flag(NONE, "fp-type").refused("it tests tcpdump itself; omit this option"),
    flag('Y', "")
        .refused("it tests libpcap's parser; `fyke explain EXPR` shows how an expression is read"),
];

/// Options of other versions of tcpdump that fyke refuses.
const OTHERS: &[Known] = &[
    flag('R', "").refused("tcpdump has it no more; AH and ESP are read as in RFC 2402 and later"),
    flag('P', "")
        .refused("it is macOS's; use -Q for a direction, -w FILE.pcapng for a pcapng file"),
    flag('g', "").refused("it is macOS's; omit -v for one line a frame"),
    flag('k', "").refused("it is macOS's; -e prints the link header"),
];

/// Returns the advice for an option as it was given, such as `-I` or `--monitor-mode`, if fyke refuses it.
pub fn advice(given: &str) -> Option<&'static str> {
    let is_it = |known: &&Known| match given.strip_prefix("--") {
        Some(long) => !known.long.is_empty() && known.long == long,
        None => known.short != NONE && given.strip_prefix('-') == Some(&*known.short.to_string()),
    };
    OPTIONS.iter().chain(OTHERS).find(is_it)?.refused
}
