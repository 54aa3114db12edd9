//! Properties of rules that hold for any input: shared by the fuzz target and `cargo test`.
//!
//! A panic is a finding. The input has a text of rules up to a zero byte, then bytes that are sent as a datagram and,
//! in two segments, over a connection.

use fyke_frame::{Frame, LinkType};
use fyke_ids::{Engine, Index, Limits, Translation, Variables, eve, prefilter};

/// Maximum length of text and bytes.
const MAX_TEXT: usize = 4096;
const MAX_BYTES: usize = 2048;

/// Translates any bytes, makes their pre-filter, and judges any bytes by them. Every rule is translated or refused
/// with a reason of bounded length; what is translated is translated again from its text; counts close. Returns the
/// numbers of translated rules and of alerts.
pub fn rules(data: &[u8]) -> (usize, u64) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (text, bytes) = data.split_at(end.min(MAX_TEXT));
    let bytes = bytes.get(1..).unwrap_or_default();
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    let variables = Variables::default();
    let found = Translation::new(text, None, &variables);
    for refused in &found.refused {
        assert!(!refused.reason.is_empty() && refused.to_string().len() < 70_000, "{refused}");
        assert!(refused.line > 0);
    }
    match prefilter(text, &variables) {
        Ok(filter) => assert!(filter.rules > 0 && !filter.expression.is_empty()),
        Err(refused) => assert!(!refused.reason.is_empty() && refused.line > 0),
    }
    let count = found.rules.len();
    let mut engine = Engine::new(Index::new(found.rules), Limits::default());
    let mut alerts = 0;
    let mut judge = |engine: &mut Engine, frame: &[u8]| {
        engine.frame(&Frame::new(LinkType::RAW, frame), &mut |alert| {
            alerts += 1;
            let _ = (eve::line(alert, eve::Options { payload: true }), eve::text(alert));
        });
    };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    judge(
        &mut engine,
        &packet(17, &[&[0, 53, 0, 53], &length(8 + bytes.len())[..], &[0, 0], bytes].concat()),
    );
    for (flags, sequence, to_server, payload) in [
        (2, 0, true, &b""[..]),
        (18, 0, false, b""),
        (16, 1, true, b""),
        (16, 1, true, first),
        (16, 1 + first.len(), true, second),
        (16, 1, false, first),
        (17, 1 + first.len(), false, second),
    ] {
        let ports = if to_server { [0x9c, 0x40, 0, 80] } else { [0, 80, 0x9c, 0x40] };
        let head = [&ports[..], &(sequence as u32).to_be_bytes(), &[0; 4], &[0x50, flags], &[1; 6]]
            .concat();
        let mut packet = packet(6, &[&head, payload].concat());
        if !to_server {
            let (low, high) = packet.split_at_mut(16);
            low[12..].swap_with_slice(&mut high[..4]);
        }
        judge(&mut engine, &packet);
    }
    engine.finish(&mut |_| ());
    let counters = engine.counters();
    assert_eq!(counters.frames, counters.judged + counters.fragments + counters.other);
    assert_eq!(counters.matches, counters.alerts + counters.held_back + counters.silent);
    (count, alerts)
}

fn length(len: usize) -> [u8; 2] {
    (len as u16).to_be_bytes()
}

/// A packet of IPv4 from 192.168.0.1 to 8.8.8.8.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = length(20 + payload.len());
    [
        &[0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0, 192, 168, 0, 1, 8, 8, 8, 8][..],
        payload,
    ]
    .concat()
}
