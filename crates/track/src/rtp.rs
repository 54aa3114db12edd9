//! Statistics of RTP streams: packets, loss and jitter, as a receiver at the place of the capture would report them.
//!
//! Memory: 80 bytes a stream, at most [`STREAM_LIMIT`] for a call. Cost: O(streams of the call) per packet. Source:
//! RFC 3550, sections 6.4.1, A.1, A.3 and A.8; payload types of RFC 3551.

use std::net::SocketAddr;

/// Most streams of a call.
pub(crate) const STREAM_LIMIT: usize = 16;
/// Number of sequence numbers after which a stream counts as begun again.
const MAX_DROPOUT: u16 = 3_000;

/// A stream: one source to one end.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) ssrc: u32,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) payload_type: u8,
    pub(crate) packets: u64,
    /// Packets that were expected before the last new beginning.
    expected_before: u64,
    first: u16,
    highest: u32,
    transit: Option<i64>,
    /// Jitter in units of the clock, times 16.
    jitter: i64,
}

/// The streams of a call.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) list: Vec<Stream>,
    /// Packets of streams that had no room.
    pub(crate) over: u64,
}

/// Header of a packet.
pub(crate) struct Header {
    pub(crate) payload_type: u8,
    sequence: u16,
    pub(crate) time: u32,
    ssrc: u32,
}

/// The content of a packet: what follows its header, without padding.
pub(crate) fn content(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let mut begin = 12 + 4 * usize::from(first & 0x0f);
    if first & 0x10 != 0 {
        let words = packet.get(begin + 2..begin + 4)?;
        begin += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
    }
    let padding = if first & 0x20 != 0 { usize::from(*packet.last()?) } else { 0 };
    packet.get(begin..packet.len().checked_sub(padding)?)
}

impl Header {
    /// Reads a header; `None` for RTCP on the same port, STUN, DTLS and the like.
    pub(crate) fn of(payload: &[u8]) -> Option<Header> {
        let bytes: &[u8; 12] = payload.first_chunk()?;
        let is_rtcp = (192..=223).contains(&bytes[1]);
        (bytes[0] >> 6 == 2 && !is_rtcp).then(|| Header {
            payload_type: bytes[1] & 0x7f,
            sequence: u16::from_be_bytes([bytes[2], bytes[3]]),
            time: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            ssrc: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
        })
    }
}

impl Streams {
    /// Takes a packet; returns the number of its stream, from 0.
    pub(crate) fn packet(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        payload: &[u8],
        now_ns: u64,
    ) -> Option<usize> {
        let header = Header::of(payload)?;
        let same = |stream: &Stream| {
            stream.ssrc == header.ssrc
                && stream.source == source
                && stream.destination == destination
        };
        if let Some(at) = self.list.iter().position(same) {
            self.list[at].next(&header, now_ns);
            return Some(at);
        }
        if self.list.len() >= STREAM_LIMIT {
            self.over += 1;
            return None;
        }
        let mut stream = Stream {
            ssrc: header.ssrc,
            source,
            destination,
            payload_type: header.payload_type,
            packets: 0,
            expected_before: 0,
            first: header.sequence,
            highest: header.sequence.into(),
            transit: None,
            jitter: 0,
        };
        stream.next(&header, now_ns);
        self.list.push(stream);
        Some(self.list.len() - 1)
    }
}

impl Stream {
    fn next(&mut self, header: &Header, now_ns: u64) {
        self.packets += 1;
        let ahead = header.sequence.wrapping_sub(self.highest as u16);
        if ahead < MAX_DROPOUT {
            self.highest = self.highest.wrapping_add(ahead.into());
        } else if ahead.wrapping_neg() > MAX_DROPOUT {
            // Neither next nor late: the sender has begun again.
            self.expected_before = self.expected().saturating_sub(1);
            (self.first, self.highest) = (header.sequence, header.sequence.into());
            self.expected_before += 1;
            self.transit = None;
        }
        // Words without sound, such as those of keys, have times of their own.
        if header.payload_type != self.payload_type {
            return;
        }
        let Some(clock) = self.clock_hz() else { return };
        let arrival = (u128::from(now_ns) * u128::from(clock) / 1_000_000_000) as u64;
        let transit = i64::from((arrival as u32).wrapping_sub(header.time) as i32);
        if let Some(last) = self.transit {
            let distance = i64::from((transit as i32).wrapping_sub(last as i32)).abs();
            self.jitter += distance - ((self.jitter + 8) >> 4);
        }
        self.transit = Some(transit);
    }

    /// Packets that were sent, by their numbers.
    pub(crate) fn expected(&self) -> u64 {
        self.expected_before + u64::from(self.highest.wrapping_sub(self.first.into())) + 1
    }

    /// Packets that are missing; repeated ones make up for them, as in reports of receivers.
    pub(crate) fn lost(&self) -> i64 {
        self.expected() as i64 - self.packets as i64
    }

    /// Name and clock of a codec with a fixed payload type.
    fn codec(&self) -> Option<(&'static str, u32)> {
        Some(match self.payload_type {
            0 => ("PCMU", 8_000),
            3 => ("GSM", 8_000),
            4 => ("G723", 8_000),
            8 => ("PCMA", 8_000),
            9 => ("G722", 8_000),
            13 => ("CN", 8_000),
            15 => ("G728", 8_000),
            18 => ("G729", 8_000),
            26 => ("JPEG", 90_000),
            31 => ("H261", 90_000),
            32 => ("MPV", 90_000),
            33 => ("MP2T", 90_000),
            34 => ("H263", 90_000),
            _ => return None,
        })
    }

    fn clock_hz(&self) -> Option<u32> {
        self.codec().map(|(_, clock)| clock)
    }

    /// Name of the codec; `None` for a dynamic payload type.
    pub(crate) fn codec_name(&self) -> Option<&'static str> {
        self.codec().map(|(name, _)| name)
    }

    /// Jitter in milliseconds; `None` if the clock is not known.
    pub(crate) fn jitter_ms(&self) -> Option<f64> {
        let clock = self.clock_hz()?;
        Some(self.jitter as f64 / 16.0 * 1_000.0 / f64::from(clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u16, time: u32, kind: u8) -> Vec<u8> {
        let mut bytes = vec![0x80, kind];
        bytes.extend_from_slice(&sequence.to_be_bytes());
        bytes.extend_from_slice(&time.to_be_bytes());
        bytes.extend_from_slice(&[1, 2, 3, 4, 0, 0]);
        bytes
    }

    fn run(packets: &[(u16, u64)]) -> Stream {
        let (from, to) = (([10, 0, 0, 1], 4000).into(), ([10, 0, 0, 2], 5000).into());
        let mut streams = Streams::default();
        for (sequence, ms) in packets {
            let time = u32::from(*sequence).wrapping_mul(160);
            streams.packet(from, to, &packet(*sequence, time, 0), ms * 1_000_000);
        }
        streams.list.remove(0)
    }

    #[test]
    fn losses_are_counted_over_wrapped_and_swapped_numbers() {
        let stream = run(&[(65_534, 0), (65_535, 20), (1, 60), (0, 61), (4, 140)]);
        assert_eq!((stream.packets, stream.expected(), stream.lost()), (5, 7, 2));
        assert_eq!(stream.codec_name(), Some("PCMU"));
        let again = run(&[(10, 0), (11, 20), (40_000, 40), (40_001, 60)]);
        assert_eq!((again.packets, again.lost()), (4, 0));
        let repeated = run(&[(10, 0), (11, 20), (11, 21)]);
        assert_eq!(repeated.lost(), -1);
    }

    #[test]
    fn content_is_without_header_extension_and_padding() {
        let plain = [&packet(1, 1, 0)[..12], b"sound"].concat();
        assert_eq!(content(&plain), Some(&b"sound"[..]));
        let mut whole = packet(1, 1, 0)[..12].to_vec();
        whole[0] = 0x80 | 0x20 | 0x10 | 1;
        whole.extend([9, 9, 9, 9, 1, 2, 0, 1, 3, 3, 3, 3, b'o', b'k', 0, 2]);
        assert_eq!(content(&whole), Some(&b"ok"[..]));
        (0..12).for_each(|len| assert_eq!(content(&whole[..len]), None, "{len}"));
        *whole.last_mut().unwrap() = 255;
        assert_eq!(content(&whole), None);
    }

    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let even = run(&[(1, 0), (2, 20), (3, 40), (4, 60)]);
        assert_eq!(even.jitter_ms(), Some(0.0));
        // Transit times of four packets differ by 8 ms each: 64 units, J += (64 - J) / 16.
        let uneven = run(&[(1, 0), (2, 28), (3, 40), (4, 68)]);
        let by_hand = [64.0, 64.0, 64.0].iter().fold(0.0, |j: f64, d| j + (d - j) / 16.0) / 8.0;
        let found = uneven.jitter_ms().unwrap();
        assert!((found - by_hand).abs() < 0.05, "{found} {by_hand}");
    }

    #[test]
    fn other_bytes_and_too_many_streams_are_left_out() {
        let (from, to) = (([10, 0, 0, 1], 4000).into(), ([10, 0, 0, 2], 5000).into());
        let mut streams = Streams::default();
        for other in [&packet(1, 1, 200)[..], &[0x80, 0], &[0; 20]] {
            streams.packet(from, to, other, 0);
        }
        assert!(streams.list.is_empty());
        for ssrc in 0..100 {
            let mut bytes = packet(1, 1, 111);
            bytes[11] = ssrc;
            streams.packet(from, to, &bytes, 0);
        }
        assert_eq!((streams.list.len(), streams.over), (STREAM_LIMIT, 84));
        assert_eq!((streams.list[0].codec_name(), streams.list[0].jitter_ms()), (None, None));
    }
}
