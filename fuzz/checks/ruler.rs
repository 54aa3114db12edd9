//! Properties of ruler texts that hold for any input: shared by the fuzz target and `cargo test`.
//!
//! A panic is a finding. The input has a text up to a zero byte, then a packet.

use fyke_ruler::matcher::Room;
use fyke_ruler::{Limits, Matcher, Program, oracle};

/// Maximum length of text and packet.
const MAX_TEXT: usize = 4096;
const MAX_PACKET: usize = 64;

/// Compiles any bytes as a text. The result is an error with a message of bounded length, or a program whose
/// filters agree with the oracle on any packet, unless the oracle gives up. Returns true for a program, and the
/// number of answers compared.
pub fn texts(data: &[u8]) -> (bool, usize) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (text, packet) = data.split_at(end.min(MAX_TEXT));
    let packet = packet.get(1..).unwrap_or_default();
    let packet = &packet[..packet.len().min(MAX_PACKET)];
    let Ok(text) = std::str::from_utf8(text) else { return (false, 0) };
    let program = match Program::from_text(text) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.message().is_empty() && error.to_string().len() < 4_000, "{text}");
            return (false, 0);
        }
    };
    let limits = Limits { nfa_states: 20_000, states: 256, work: 20_000, ..Limits::default() };
    let rules: Vec<_> = program.filters.iter().map(|filter| &filter.rules[..]).collect();
    let together = Matcher::of_filters(&rules, limits).ok();
    let (mut room, mut compared) = (Room::default(), 0);
    for (number, filter) in program.filters.iter().enumerate() {
        let Ok(matcher) = Matcher::new(&filter.rules, limits) else { continue };
        let Ok(expected) = oracle::first_match(&filter.rules, packet) else { continue };
        let expected = expected.map(|(rule, _)| rule);
        let found = matcher.first_match(&mut Room::default(), packet);
        assert_eq!(found, expected, "{packet:?}: {text}");
        if let Some(together) = &together {
            together.matches(&mut room, packet);
            assert_eq!(together.winner(&room, number), expected, "together, {packet:?}: {text}");
            // The same in two pieces, as a stream.
            let mut stream = together.stream();
            let (first, second) = packet.split_at(packet.len() / 2);
            together.feed(&mut stream, &mut room, first);
            together.feed(&mut stream, &mut room, second);
            together.at_end(&stream, &mut room);
            assert_eq!(together.winner(&room, number), expected, "stream, {packet:?}: {text}");
        }
        compared += 1;
    }
    (true, compared)
}
