//! The address of a capture on another machine: `HOST:PORT`, or `HOST:PORT/NAME` if the relay offers several.

use std::fmt;
use std::str::FromStr;

/// Longest name of a capture, in bytes.
pub const MAX_NAME: usize = 64;
/// Longest host, in bytes (RFC 1035, 2.3.4).
const MAX_HOST: usize = 255;

/// An address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an address of the network, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Name of the capture; `None` for the only one.
    pub name: Option<String>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port)?,
            false => write!(f, "{}:{}", self.host, self.port)?,
        }
        self.name.as_ref().map_or(Ok(()), |name| write!(f, "/{name}"))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let (place, name) = match text.split_once('/') {
            Some((place, name)) => (place, Some(name)),
            None => (text, None),
        };
        let wrong = || format!("{text:?} is no HOST:PORT or HOST:PORT/NAME");
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_:%".contains(letter);
        let host = match inner {
            Some(inner) => inner,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        let fits = (1..=MAX_HOST).contains(&host.len()) && host.chars().all(is_plain);
        let port = port.parse().ok().filter(|port| *port != 0 && fits).ok_or_else(wrong)?;
        let is_name = |name: &str| {
            (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(|letter| letter.is_control())
        };
        if !name.is_none_or(is_name) {
            return Err(wrong());
        }
        Ok(Address { host: host.to_owned(), port, name: name.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "a:1",
            "probe-1.example.org:4747",
            "10.0.0.1:65535/eth0",
            "[::1]:7/a:b",
            "[fe80::1%eth0]:7",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for wrong in [
            "", "a", "a:", ":1", "a:0", "a:65536", "a:x", "::1:7", "[::1]", "[]:1", "a b:1", "a:1/",
        ] {
            let error = wrong.parse::<Address>().unwrap_err();
            assert!(error.contains("is no HOST:PORT"), "{error}");
        }
    }
}
