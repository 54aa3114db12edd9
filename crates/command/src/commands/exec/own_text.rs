//! Filter that a program was started with, read from its command line; only tcpdump's is known.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// One-letter options of tcpdump 4.99 that take a value.
const WITH_VALUE: &str = "BcCEFGijmMQrsTVwWyzZ";
/// Long options of tcpdump that take a value in the next argument.
const LONG_WITH_VALUE: &[&str] = &[
    "buffer-size",
    "count-limit",
    "interface",
    "linktype",
    "relinquish-privileges",
    "snapshot-length",
    "time-stamp-precision",
    "time-stamp-type",
    "direction",
];

/// Returns the filter text; `None` if the program is not known or reads its filter from elsewhere.
pub fn of(program: &OsStr, arguments: &[OsString]) -> Option<String> {
    if Path::new(program).file_name()? != "tcpdump" {
        return None;
    }
    let mut words = Vec::new();
    let mut arguments = arguments.iter().map(|argument| argument.to_str());
    while let Some(argument) = arguments.next() {
        let argument = argument?;
        if argument == "--" {
            for rest in arguments.by_ref() {
                words.push(rest?);
            }
        } else if let Some(long) = argument.strip_prefix("--") {
            if LONG_WITH_VALUE.contains(&long) {
                arguments.next();
            }
        } else if let Some(letters) = argument.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            let with_value = letters.find(|letter| WITH_VALUE.contains(letter));
            if let Some(place) = with_value {
                if letters[place..].starts_with(['F', 'r', 'V']) {
                    return None;
                }
                if place + 1 == letters.len() {
                    arguments.next();
                }
            }
        } else {
            words.push(argument);
        }
    }
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        of(&words[0], &words[1..])
    }

    #[test]
    fn tcpdumps_words_are_its_filter() {
        let found = |line| text(line).unwrap();
        assert_eq!(found("tcpdump -ni eth0 tcp port 80"), "tcp port 80");
        assert_eq!(found("/usr/bin/tcpdump tcp -i eth0 -c5 port 80 -w x.pcap"), "tcp port 80");
        assert_eq!(found("tcpdump --interface eth0 -nnc 3 -- not arp"), "not arp");
        assert_eq!(found("tcpdump -neti eth0"), "");
        assert_eq!(text("tcpdump -F file"), None);
        assert_eq!(text("dumpcap -i eth0 tcp"), None);
    }
}
