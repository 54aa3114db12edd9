//! Session descriptions: which ends the media of a session will use.
//!
//! Reads what trackers need: `o=`, `c=`, `m=`, and the attributes `rtcp`, `rtcp-mux` and `candidate`. Lines
//! that cannot be read are counted and left out; the rest counts. At most [`MEDIA_LIMIT`] media and [`END_LIMIT`]
//! ends of each. Cost: O(bytes). Source: RFC 4566 and 8866, 3605 (`rtcp`), 5761 (`rtcp-mux`), 8839 (`candidate`),
//! 4145 (`setup`).

use crate::messages::{line, number};
use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, SocketAddr};

/// Most media of a description that are read.
pub(crate) const MEDIA_LIMIT: usize = 16;
/// Most ends of one medium.
pub(crate) const END_LIMIT: usize = 16;

/// Content of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: SocketAddr,
    /// True for TCP, false for UDP.
    pub(crate) tcp: bool,
    pub(crate) label: &'static str,
}

/// A description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Description {
    /// Identifies the session of the end that describes it: all of `o=` but the version.
    pub(crate) origin: u64,
    pub(crate) ends: Vec<End>,
    /// Media that are described, with those that are off.
    pub(crate) media: usize,
    /// True if a medium is on hold in the old way, at an unspecified address: what was announced stays.
    pub(crate) on_hold: bool,
    /// Lines that cannot be read.
    pub(crate) malformed: u64,
    /// Media beyond [`MEDIA_LIMIT`] and candidates beyond [`END_LIMIT`].
    pub(crate) over_limit: u64,
}

/// A medium while its lines are read.
#[derive(Debug, Clone, Copy)]
struct Medium {
    labels: [&'static str; 2],
    port: u16,
    count: u16,
    tcp: bool,
    rtp: bool,
    address: Option<IpAddr>,
    rtcp: Option<(u16, Option<IpAddr>)>,
    mux: bool,
}

/// Finds the description in a body: the body itself, or the part of a multipart body that begins with `v=0`.
pub(crate) fn find(body: &[u8]) -> Option<&[u8]> {
    let mut rest = body;
    while !rest.is_empty() {
        let (first, after) = line(rest);
        if first.trim_ascii_end() == b"v=0" {
            return Some(rest);
        }
        rest = after;
    }
    None
}

impl Description {
    /// Reads a description. `muxed`: the description is an answer, so RTCP is on the port of RTP if it has `rtcp-mux`.
    pub(crate) fn of(bytes: &[u8], muxed: bool) -> Description {
        let mut found = Description::default();
        let (mut session, mut medium): (Option<IpAddr>, Option<Medium>) = (None, None);
        let (mut rest, mut media) = (bytes, 0);
        let mut candidates: Vec<(u8, SocketAddr)> = Vec::new();
        while !rest.is_empty() {
            let (text, after) = line(rest);
            rest = after;
            let text = text.trim_ascii_end();
            // The boundary of a multipart body.
            if text.starts_with(b"--") {
                break;
            }
            let (Some((&kind, value)), true) = (text.split_first(), text.get(1) == Some(&b'='))
            else {
                continue;
            };
            let value = &value[1..];
            match kind {
                b'o' => found.origin = origin(value),
                b'c' => match (connection(value), &mut medium) {
                    (None, _) => found.malformed += 1,
                    (address, Some(medium)) => medium.address = address,
                    (address, None) => session = address,
                },
                b'm' => {
                    found.close(medium.take(), session, &mut candidates, muxed);
                    media += 1;
                    if media > MEDIA_LIMIT {
                        found.over_limit += 1;
                        continue;
                    }
                    medium = Medium::of(value);
                    found.malformed += u64::from(medium.is_none());
                    found.media += 1;
                }
                b'a' => found.attribute(value, &mut medium, &mut candidates),
                _ => {}
            }
        }
        found.close(medium, session, &mut candidates, muxed);
        found
    }

    fn attribute(
        &mut self,
        value: &[u8],
        medium: &mut Option<Medium>,
        candidates: &mut Vec<(u8, SocketAddr)>,
    ) {
        let Some(medium) = medium else { return };
        if value == b"rtcp-mux" {
            medium.mux = true;
        } else if let Some(value) = value.strip_prefix(b"rtcp:") {
            let mut words = words(value);
            let port = words.next().and_then(number).and_then(|port| u16::try_from(port).ok());
            let address = words.nth(2).and_then(address);
            match port {
                Some(port) => medium.rtcp = Some((port, address)),
                None => self.malformed += 1,
            }
        } else if let Some(value) = value.strip_prefix(b"candidate:") {
            match candidate(value) {
                Some(Some(found)) if candidates.len() < END_LIMIT => candidates.push(found),
                Some(None) => {}
                Some(Some(_)) => self.over_limit += 1,
                None => self.malformed += 1,
            }
        }
    }

    /// Adds the ends of a medium.
    fn close(
        &mut self,
        medium: Option<Medium>,
        session: Option<IpAddr>,
        candidates: &mut Vec<(u8, SocketAddr)>,
        muxed: bool,
    ) {
        let candidates = std::mem::take(candidates);
        let Some(medium) = medium else { return };
        // Port 0: the medium is off. Port 9 of TCP: this end connects, it does not listen.
        if medium.port == 0 || (medium.tcp && medium.port == 9) {
            return;
        }
        let Some(host) = medium.address.or(session) else {
            self.malformed += 1;
            return;
        };
        if host.is_unspecified() {
            self.on_hold = true;
            return;
        }
        let [label, control] = medium.labels;
        let tcp = medium.tcp;
        let mut add = |host: IpAddr, port: u16, label| {
            let end = End { address: SocketAddr::new(host, port), tcp, label };
            if port != 0 && !host.is_unspecified() && !self.ends.contains(&end) {
                self.ends.push(end);
            }
        };
        let step = if medium.rtp { 2 } else { 1 };
        for part in 0..medium.count {
            let Some(port) = medium.port.checked_add(part * step) else { break };
            add(host, port, label);
            let mux = medium.mux && muxed;
            if let (true, Some((port, other))) = (medium.rtp && part == 0, medium.rtcp) {
                add(other.unwrap_or(host), port, control);
            } else if let (true, Some(port)) = (medium.rtp && !mux && !tcp, port.checked_add(1)) {
                add(host, port, control);
            }
        }
        for (component, end) in candidates {
            add(end.ip(), end.port(), if component == 2 { control } else { label });
        }
    }
}

impl Medium {
    /// Reads `audio 49170/2 RTP/AVP 0`.
    fn of(value: &[u8]) -> Option<Medium> {
        let mut words = words(value);
        let (kind, ports, transport) = (words.next()?, words.next()?, words.next()?);
        let mut ports = ports.split(|&byte| byte == b'/');
        let port = u16::try_from(number(ports.next()?)?).ok()?;
        let count = ports.next().map_or(Some(1), number)?.clamp(1, 4) as u16;
        let has = |part: &[u8]| {
            let mut parts = transport.split(|&byte| byte == b'/');
            parts.any(|word| word.eq_ignore_ascii_case(part))
        };
        let rtp = has(b"RTP");
        // `UDP/TLS/RTP/SAVPF` is UDP, `TCP/DTLS/SCTP` TCP.
        let tcp = has(b"TCP");
        let is_secret = has(b"SAVP") || has(b"SAVPF");
        let labels = match (rtp, kind.to_ascii_lowercase().as_slice()) {
            (true, b"audio") if is_secret => ["SRTP audio", "SRTCP audio"],
            (true, b"video") if is_secret => ["SRTP video", "SRTCP video"],
            (true, _) if is_secret => ["SRTP", "SRTCP"],
            (true, b"audio") => ["RTP audio", "RTCP audio"],
            (true, b"video") => ["RTP video", "RTCP video"],
            (true, _) => ["RTP", "RTCP"],
            (false, b"image") => ["T.38 fax", ""],
            (false, b"message") => ["MSRP", ""],
            (false, b"application") => ["application", ""],
            (false, _) => ["media", ""],
        };
        let (address, rtcp, mux) = (None, None, false);
        Some(Medium { labels, port, count, tcp, rtp, address, rtcp, mux })
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Reads `IN IP4 224.2.1.1/127`.
fn connection(value: &[u8]) -> Option<IpAddr> {
    let mut words = words(value);
    let (network, _) = (words.next()?, words.next()?);
    let host = words.next()?.split(|&byte| byte == b'/').next()?;
    network.eq_ignore_ascii_case(b"IN").then(|| address(host)).flatten()
}

pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text.get(..text.len().min(64))?).ok()?.parse().ok()
}

/// Reads `1 1 UDP 2130706431 10.0.1.1 8998 typ host`; the inner value is `None` for another transport or a name.
fn candidate(value: &[u8]) -> Option<Option<(u8, SocketAddr)>> {
    let mut words = words(value);
    words.next()?;
    let component = u8::try_from(number(words.next()?)?).ok()?;
    let transport = words.next()?;
    words.next()?;
    let host = words.next()?;
    let port = u16::try_from(number(words.next()?)?).ok()?;
    if !transport.eq_ignore_ascii_case(b"udp") {
        return Some(None);
    }
    // A name of multicast DNS hides the address.
    Some(address(host).map(|host| (component, SocketAddr::new(host, port))))
}

/// A number for `o=`, without the version of the session.
fn origin(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (place, word) in words(value).enumerate().take(6) {
        if place != 2 {
            hasher.write(word);
            hasher.write_u8(b' ');
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str, muxed: bool) -> Vec<String> {
        let found = Description::of(text.replace('\n', "\r\n").as_bytes(), muxed);
        let text = |end: &End| {
            format!("{} {} {}", if end.tcp { "tcp" } else { "udp" }, end.address, end.label)
        };
        found.ends.iter().map(text).collect()
    }

    #[test]
    fn media_have_their_own_address_and_rtcp_its_own_port() {
        let text = "v=0\no=a 1 2 IN IP4 10.0.0.1\nc=IN IP4 10.0.0.1/127\nm=audio 4000 RTP/AVP 0\n\
                    m=video 5000/2 RTP/AVP 31\nc=IN IP6 2001:db8::1\nm=audio 6000 RTP/SAVP 8\n\
                    a=rtcp:7001 IN IP4 10.0.0.9\n\
                    m=image 8000 udptl t38\nm=message 2855 TCP/MSRP *\nm=audio 0 RTP/AVP 0\n";
        assert_eq!(
            ends(text, false),
            [
                "udp 10.0.0.1:4000 RTP audio",
                "udp 10.0.0.1:4001 RTCP audio",
                "udp [2001:db8::1]:5000 RTP video",
                "udp [2001:db8::1]:5001 RTCP video",
                "udp [2001:db8::1]:5002 RTP video",
                "udp [2001:db8::1]:5003 RTCP video",
                "udp 10.0.0.1:6000 SRTP audio",
                "udp 10.0.0.9:7001 SRTCP audio",
                "udp 10.0.0.1:8000 T.38 fax",
                "tcp 10.0.0.1:2855 MSRP",
            ]
        );
    }

    #[test]
    fn muxed_rtcp_has_no_port_once_it_is_agreed() {
        let text = "v=0\nc=IN IP4 10.0.0.1\nm=audio 4000 UDP/TLS/RTP/SAVPF 111\na=rtcp-mux\n\
                    a=candidate:1 1 UDP 213 192.168.1.5 9000 typ host\n\
                    a=candidate:1 2 udp 213 192.168.1.5 9001 typ host\n\
                    a=candidate:2 1 TCP 213 192.168.1.5 9 typ host\na=candidate:3 1 UDP 2 ab.local 9002 typ host\n";
        let candidates = ["udp 192.168.1.5:9000 SRTP audio", "udp 192.168.1.5:9001 SRTCP audio"];
        assert_eq!(ends(text, true), [&["udp 10.0.0.1:4000 SRTP audio"][..], &candidates].concat());
        assert_eq!(ends(text, false)[1], "udp 10.0.0.1:4001 SRTCP audio");
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_the_rest_is_used() {
        let text = b"v=0\nc=IN IP4 bad.example\nm=audio x RTP/AVP 0\n\
                     m=audio 4000 RTP/AVP 0\nc=IN IP4 10.0.0.1\nm=audio";
        let found = Description::of(text, false);
        assert_eq!((found.ends.len(), found.malformed, found.media), (2, 3, 3));
        let hold = Description::of(b"c=IN IP4 0.0.0.0\nm=audio 4000 RTP/AVP 0\n", false);
        assert!(hold.on_hold && hold.ends.is_empty());
        let many = format!("c=IN IP4 10.0.0.1\n{}", "m=audio 4000/9 RTP/AVP 0\n".repeat(99));
        let found = Description::of(many.as_bytes(), false);
        assert!(found.ends.len() <= MEDIA_LIMIT * END_LIMIT && found.over_limit == 83, "{found:?}");
        let body = b"--x\r\nContent-Type: application/sdp\r\n\r\n\
                     v=0\r\nc=IN IP4 10.0.0.1\r\nm=audio 4000 RTP/AVP 0\r\n--x--";
        assert_eq!(Description::of(find(body).unwrap(), false).ends.len(), 2);
        assert!(find(b"no description").is_none());
        let origin = |text: &[u8]| Description::of(text, false).origin;
        assert_eq!(origin(b"o=a 1 2 IN IP4 10.0.0.1\n"), origin(b"o=a 1 3 IN IP4 10.0.0.1\n"));
        assert_ne!(origin(b"o=a 1 2 IN IP4 10.0.0.1\n"), origin(b"o=b 1 2 IN IP4 10.0.0.1\n"));
    }
}
