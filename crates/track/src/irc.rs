//! IRC: follows chats and expects the connections that they announce directly between clients (DCC).
//!
//! Reads `DCC SEND`, `DCC CHAT` and the like in messages over TCP. A call is a control connection. The announced host
//! is the sender's; the other end may be any host, because the receiver's is not in the message. Port 0 asks the
//! receiver to listen, and announces nothing. Memory: [`Limits`]. Source: the DCC and CTCP specifications of
//! irchelp.org and modern.ircdocs.horse.

use crate::base::{Base, Controls, Ends, Follows, Offer, each_port};
use crate::records::Record;
use crate::segment::{Content, Segment};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use fyke_frame::Frame;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A message with `DCC`.
pub const DCC: Cause = Cause::new("IRC DCC");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "irc",
    summary: "IRC with its direct connections, DCC (port 6667)",
    port: 6_667,
    causes: &[DCC],
    start_filter: |ports| each_port(ports, "tcp port #"),
    held: Some("tcp"),
    make: |ports, limits| Box::new(Irc::at_ports(ports, limits)),
};

/// Longest line that is read.
const LINE_LIMIT: usize = 2_048;

/// The tracker.
#[derive(Debug)]
pub struct Irc {
    base: Base,
    controls: Controls,
    /// Number of announcements.
    announced: u64,
    unreadable: u64,
}

impl Default for Irc {
    fn default() -> Self {
        Irc::at_ports(&[KIND.port], Limits::default())
    }
}

impl Irc {
    /// A tracker of servers at these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        Irc {
            base: Base::new(&KIND, ports, limits),
            controls: Controls::new(limits, line),
            announced: 0,
            unreadable: 0,
        }
    }

    fn control(&mut self, ends: Ends, segment: &Segment<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let (call, lines) = self.controls.segment(&mut self.base, ends, segment, now_ns);
        for line in lines {
            let (end, label) = match dcc(&line) {
                Dcc::None => continue,
                Dcc::Unreadable => {
                    self.unreadable += 1;
                    continue;
                }
                Dcc::Listens(end, label) => (end, label),
            };
            self.announced += 1;
            let offer = Offer {
                end,
                protocol: Protocol::Tcp,
                client: ends.sender(),
                pair: false,
                label,
                cause: DCC,
                origin: self.announced,
                lifetime_ns: self.base.limits.announced_ns,
                follows_call: false,
            };
            self.base.expect(call, offer, now_ns, events);
        }
    }
}

/// The first line of bytes.
fn line(bytes: &[u8]) -> Record {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => Record::Whole(end + 1),
        None if bytes.len() > LINE_LIMIT => Record::Foreign,
        None => Record::Incomplete,
    }
}

/// A line as an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dcc {
    None,
    Unreadable,
    Listens(SocketAddr, &'static str),
}

/// Reads `PRIVMSG b :\x01DCC SEND "a file" 167772161 4000 1234\x01`.
fn dcc(line: &[u8]) -> Dcc {
    const START: &[u8] = b"\x01DCC ";
    let Some(at) = line.windows(START.len()).position(|part| part.eq_ignore_ascii_case(START))
    else {
        return Dcc::None;
    };
    let rest = &line[at + START.len()..];
    let end = rest.iter().position(|byte| [1, b'\r', b'\n'].contains(byte)).unwrap_or(rest.len());
    let words: Vec<&[u8]> =
        rest[..end].split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    // The name of a file may have spaces, so the numbers are counted from the end; some have more after the size.
    let (label, from) = match words.first().map(|word| word.to_ascii_uppercase()).as_deref() {
        Some(b"SEND" | b"SSEND" | b"TSEND" | b"XMIT") => ("IRC DCC file", 2),
        Some(b"CHAT" | b"SCHAT") => ("IRC DCC chat", 2),
        _ => return Dcc::None,
    };
    let mut ends = words.windows(2).skip(from).filter_map(|pair| {
        let port: u16 = std::str::from_utf8(pair[1]).ok()?.parse().ok()?;
        Some(SocketAddr::new(host(pair[0])?, port))
    });
    // A word of a file's name may look like an address; the right one is followed by a size, or by nothing.
    match ends.next_back() {
        Some(end) if end.port() == 0 => Dcc::None,
        Some(end) => Dcc::Listens(end, label),
        None => Dcc::Unreadable,
    }
}

/// An address as a decimal number, or as text.
fn host(word: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(word).ok()?;
    match text.parse::<u32>() {
        // No host has a smaller one; a size is often smaller.
        Ok(number) => (number >= 1 << 24).then(|| Ipv4Addr::from(number).into()),
        Err(_) => text.parse().ok(),
    }
}

impl Follows for Irc {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        let Content::Tcp(segment) = content else { return };
        match self.base.ends(segment.source, segment.destination) {
            Some(ends) => self.control(ends, &segment, frame.timestamp_ns, events),
            None => drop(self.base.segment(&segment, frame, events)),
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        self.controls.expire(now_ns);
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        notices.push(("unreadable", self.unreadable + self.controls.long()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listens(port: u16, label: &'static str) -> Dcc {
        Dcc::Listens(SocketAddr::from(([10, 0, 0, 1], port)), label)
    }

    #[test]
    fn announcements_are_read_from_the_end() {
        let of = |text: &str| dcc(format!("PRIVMSG b :\x01{text}\x01\r\n").as_bytes());
        assert_eq!(of("DCC SEND a.txt 167772161 4000 1234"), listens(4_000, "IRC DCC file"));
        assert_eq!(of("DCC SEND \"a 9 b\" 167772161 4000 12"), listens(4_000, "IRC DCC file"));
        assert_eq!(of("dcc chat chat 10.0.0.1 5000"), listens(5_000, "IRC DCC chat"));
        assert_eq!(of("DCC SEND a.txt 167772161 0 1234 7"), Dcc::None, "the receiver listens");
        assert_eq!(of("DCC RESUME a.txt 4000 99"), Dcc::None);
        for wrong in
            ["DCC SEND a 167772161 99999 1", "DCC SEND a x 4000 1", "DCC CHAT", "DCC SEND a"]
        {
            assert_eq!(of(wrong), Dcc::Unreadable, "{wrong}");
        }
        assert_eq!(dcc(b"PRIVMSG b :DCC SEND a 167772161 4000 1\r\n"), Dcc::None);
    }
}
