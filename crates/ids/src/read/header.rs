//! The header of a rule: action, protocol, addresses, ports and direction, as they are written.

use super::ACTIONS;
use super::options::shown;

/// Direction operator of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `->`: from the left to the right.
    ToRight,
    /// `<>`: either way.
    Both,
}

/// A header as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The action.
    pub action: String,
    /// The protocol.
    pub protocol: String,
    /// Addresses of the left side.
    pub source: String,
    /// Ports of the left side.
    pub source_port: String,
    /// The operator.
    pub direction: Direction,
    /// Addresses of the right side.
    pub destination: String,
    /// Ports of the right side.
    pub destination_port: String,
}

impl Header {
    /// Reads a header. A header without addresses, as Snort 3 has them, applies to all.
    pub(super) fn parse(text: &[u8]) -> Result<Header, String> {
        let text =
            std::str::from_utf8(text).map_err(|_| "the header is not UTF-8 text".to_owned())?;
        let words = words(text)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let action = words.first().copied().unwrap_or_default();
        if !ACTIONS.contains(&action) {
            return Err(format!("no rule: {} is no action", shown(action.as_bytes())));
        }
        let any = "any";
        let (protocol, [source, source_port, operator, destination, destination_port]) = match words
            [1..]
        {
            [protocol] => (protocol, [any, any, "->", any, any]),
            [protocol, source, ports, operator, destination, other_ports] => {
                (protocol, [source, ports, operator, destination, other_ports])
            }
            _ => {
                return Err(format!(
                    "the header has {} words; expected action, protocol, addresses, ports, -> or <>, addresses, \
                     ports",
                    words.len()
                ));
            }
        };
        let direction = match operator {
            "->" => Direction::ToRight,
            "<>" => Direction::Both,
            other => return Err(format!("the direction is {other}; expected -> or <>")),
        };
        let own = str::to_owned;
        Ok(Header {
            action: own(action),
            protocol: protocol.to_ascii_lowercase(),
            source: own(source),
            source_port: own(source_port),
            direction,
            destination: own(destination),
            destination_port: own(destination_port),
        })
    }
}

/// Words separated by spaces; spaces inside brackets do not separate.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut found: Vec<String> = Vec::new();
    let (mut depth, mut inside) = (0u32, false);
    for letter in text.chars() {
        if letter.is_ascii_whitespace() {
            inside &= depth > 0;
            continue;
        }
        if !std::mem::replace(&mut inside, true) {
            found.push(String::new());
        }
        match letter {
            '[' => depth += 1,
            ']' if depth == 0 => return Err("the header has a \"]\" without \"[\"".to_owned()),
            ']' => depth -= 1,
            _ => {}
        }
        if let Some(word) = found.last_mut() {
            word.push(letter);
        }
    }
    match depth {
        0 => Ok(found),
        _ => Err("the header has a \"[\" without \"]\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_seven_words_or_two() {
        let header =
            Header::parse(b"alert tcp [1.2.3.4, !10.0.0.0/8] any <> $HOME_NET [80, 443:]  ")
                .unwrap();
        assert_eq!((&*header.source, &*header.source_port), ("[1.2.3.4,!10.0.0.0/8]", "any"));
        assert_eq!((&*header.destination, &*header.destination_port), ("$HOME_NET", "[80,443:]"));
        assert_eq!(header.direction, Direction::Both);
        let short = Header::parse(b"alert http ").unwrap();
        assert_eq!((&*short.protocol, &*short.source), ("http", "any"));
        for (wrong, part) in [
            ("what tcp any any -> any any", "what"),
            ("alert tcp any -> any any", "6 words"),
            ("alert tcp any any <- any any", "<-"),
            ("alert tcp [1.2.3.4 any -> any any", "without"),
            ("", "no rule"),
        ] {
            let reason = Header::parse(wrong.as_bytes()).unwrap_err();
            assert!(reason.contains(part), "{wrong}: {reason}");
        }
    }
}
