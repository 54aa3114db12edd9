//! Rules and the commands that edit them, in text form: `+ip=192.168.0.10,port=80`, `-proto=tcp`, `reset`, `enable 1`.

use super::space::{IpKind, SpaceKind};
use std::fmt;
use std::net::IpAddr;

/// Fields that the source or the destination of a frame must have. `None` matches anything; at least one field is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Rule {
    net: Option<(IpAddr, u8)>,
    port: Option<u16>,
    protocol: Option<u8>,
    vlan: Option<u16>,
}

/// A parsed command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `+…`
    Add(Rule),
    /// `-…`
    Remove(Rule),
    /// `list`
    List,
    /// `reset`
    Reset,
    /// `enable 0|1`
    Enable(bool),
    /// `negative 0|1`
    Negative(bool),
}

/// Error in the text of a rule, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}\n{caret:>width$} {message}", caret = "^", width = at + 1)]
pub struct RuleTextError {
    /// The whole text.
    pub text: String,
    /// Number of characters before the error.
    pub at: usize,
    /// The expected text.
    pub message: String,
}

/// Limit on the length of a command; every valid command is shorter.
const MAX_TEXT: usize = 200;
/// Common names of protocols.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("sctp", 132),
    ("udplite", 136),
];

impl Rule {
    /// Address and prefix length.
    pub fn net(&self) -> Option<(IpAddr, u8)> {
        self.net
    }

    /// Port of the same source or destination.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// IP protocol.
    pub fn protocol(&self) -> Option<u8> {
        self.protocol
    }

    /// The VLAN.
    pub fn vlan(&self) -> Option<u16> {
        self.vlan
    }

    /// Sets a single address.
    pub fn with_address(self, address: IpAddr) -> Self {
        Rule { net: Some((address, if address.is_ipv4() { 32 } else { 128 })), ..self }
    }

    /// Sets a network; bits after the prefix are cleared, and a prefix that is too long means the whole address.
    pub fn with_net(self, address: IpAddr, prefix: u8) -> Self {
        let (kind, words) = IpKind::of(address);
        let prefix = prefix.min(kind.bits());
        Rule { net: Some((kind.address(kind.masked(words, prefix)), prefix)), ..self }
    }

    /// Sets a port; `None` for 0, which means any.
    pub fn with_port(self, port: u16) -> Self {
        Rule { port: (port != 0).then_some(port), ..self }
    }

    /// Sets an IP protocol; `None` for 0, which means any.
    pub fn with_protocol(self, protocol: u8) -> Self {
        Rule { protocol: (protocol != 0).then_some(protocol), ..self }
    }

    /// Sets a VLAN; `None` for 0, which means any.
    pub fn with_vlan(self, vlan: u16) -> Self {
        Rule { vlan: (vlan != 0).then_some(vlan), ..self }
    }

    pub(super) fn space(&self) -> SpaceKind {
        match self.net {
            None => SpaceKind::Any,
            Some((address, prefix)) => SpaceKind::Net(IpKind::of(address).0, prefix),
        }
    }

    /// Parses `ip=…,port=…,proto=…,vlan=…` in any order.
    ///
    /// # Errors
    /// When the text is not a valid rule.
    pub fn parse(text: &str) -> Result<Self, RuleTextError> {
        parse_rule(text, 0)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = Vec::new();
        if let Some((address, prefix)) = self.net {
            let whole = prefix == if address.is_ipv4() { 32 } else { 128 };
            fields.push(if whole {
                format!("ip={address}")
            } else {
                format!("ip={address}/{prefix}")
            });
        }
        fields.extend(self.port.map(|port| format!("port={port}")));
        fields.extend(self.protocol.map(|number| {
            let name = PROTOCOLS.iter().find(|(_, known)| *known == number);
            name.map_or(format!("proto={number}"), |(name, _)| format!("proto={name}"))
        }));
        fields.extend(self.vlan.map(|vlan| format!("vlan={vlan}")));
        f.write_str(&fields.join(","))
    }
}

impl Command {
    /// Parses a command.
    ///
    /// # Errors
    /// When the text is not a valid command.
    pub fn parse(text: &str) -> Result<Self, RuleTextError> {
        if text.len() > MAX_TEXT {
            let shown: String = text.chars().take(40).collect();
            let message = format!("a command has at most {MAX_TEXT} characters");
            return Err(RuleTextError { text: shown, at: 0, message });
        }
        let text = text.trim();
        if text.starts_with('+') {
            return parse_rule(text, 1).map(Command::Add);
        }
        if text.starts_with('-') {
            return parse_rule(text, 1).map(Command::Remove);
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [] | ["list"] => Ok(Command::List),
            ["reset"] => Ok(Command::Reset),
            ["enable", "0"] => Ok(Command::Enable(false)),
            ["enable", "1"] => Ok(Command::Enable(true)),
            ["negative", "0"] => Ok(Command::Negative(false)),
            ["negative", "1"] => Ok(Command::Negative(true)),
            ["enable" | "negative", "0" | "1", ..] => {
                Err(wrong(text, word_at(text, 2), "expected the end of the command".to_owned()))
            }
            ["enable" | "negative", ..] => {
                Err(wrong(text, word_at(text, 1), "expected 0 or 1".to_owned()))
            }
            ["list" | "reset", ..] => {
                Err(wrong(text, word_at(text, 1), "expected the end of the command".to_owned()))
            }
            _ => {
                let message = "expected +RULE, -RULE, list, reset, enable 0|1 or negative 0|1";
                Err(wrong(text, 0, message.to_owned()))
            }
        }
    }
}

/// Place of a word, counted from 0; the end of the text if there are fewer.
fn word_at(text: &str, number: usize) -> usize {
    let word = text.split_whitespace().nth(number);
    // The word is a part of the text.
    word.map_or(text.len(), |word| word.as_ptr().addr() - text.as_ptr().addr())
}

fn wrong(text: &str, byte: usize, message: String) -> RuleTextError {
    let at = text.get(..byte).unwrap_or(text).chars().count();
    RuleTextError { text: text.to_owned(), at, message }
}

fn parse_rule(text: &str, start: usize) -> Result<Rule, RuleTextError> {
    let mut rule = Rule::default();
    let mut at = start;
    for field in text[start..].split(',') {
        let Some((name, value)) = field.split_once('=') else {
            return Err(wrong(text, at, "expected ip=, port=, proto= or vlan=".to_owned()));
        };
        let value_at = at + name.len() + 1;
        let refuse = |message: String| wrong(text, value_at, message);
        let twice = match name.trim() {
            "ip" => rule.net.is_some(),
            "port" => rule.port.is_some(),
            "proto" => rule.protocol.is_some(),
            "vlan" => rule.vlan.is_some(),
            _ => return Err(wrong(text, at, "expected ip, port, proto or vlan".to_owned())),
        };
        if twice {
            return Err(wrong(text, at, format!("`{name}` is there twice")));
        }
        rule = match name.trim() {
            "ip" => net(rule, value.trim()).map_err(refuse)?,
            "port" => rule.with_port(number(value, 65_535).map_err(refuse)?),
            "vlan" => rule.with_vlan(number(value, 4_095).map_err(refuse)?),
            _ => rule.with_protocol(protocol(value.trim()).map_err(refuse)?),
        };
        at += field.len() + 1;
    }
    Ok(rule)
}

fn number(text: &str, largest: u16) -> Result<u16, String> {
    match text.trim().parse() {
        Ok(number) if (1..=largest).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from 1 to {largest} (leave the field out for any)")),
    }
}

fn protocol(text: &str) -> Result<u8, String> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    if let Some(&(_, number)) = named {
        return Ok(number);
    }
    match text.parse() {
        Ok(number) if number != 0 => Ok(number),
        _ => {
            let names: Vec<&str> = PROTOCOLS.iter().map(|&(name, _)| name).collect();
            Err(format!("expected a number from 1 to 255 or one of {}", names.join(", ")))
        }
    }
}

fn net(rule: Rule, text: &str) -> Result<Rule, String> {
    let expected = || "expected an address or a net such as 10.0.0.0/8".to_owned();
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| expected())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let Some(prefix) = prefix else { return Ok(rule.with_address(address)) };
    match prefix.parse::<u8>() {
        Ok(0) => Err("a prefix of 0 bits is any address: leave ip= out".to_owned()),
        Ok(prefix) if prefix <= longest => Ok(rule.with_net(address, prefix)),
        _ => Err(format!("expected a prefix length from 1 to {longest}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in [
            "ip=192.168.0.10,port=80",
            "proto=tcp",
            "ip=10.0.0.0/8,proto=udp,vlan=7",
            "ip=2001:db8::1,port=443,proto=sctp",
            "ip=2001:db8::/32",
            "port=53,proto=200",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
            let added = Command::parse(&format!(" +{text}\n")).unwrap();
            assert_eq!(added, Command::Add(Rule::parse(text).unwrap()));
        }
        let (given, meant) = ("port=80,ip=10.1.2.3/8", "ip=10.0.0.0/8,port=80");
        assert_eq!(Rule::parse(given).unwrap().to_string(), meant);
        assert_eq!(Command::parse("-proto=tcp").unwrap(), {
            Command::Remove(Rule::default().with_protocol(6))
        });
        assert_eq!(Command::parse("enable 0").unwrap(), Command::Enable(false));
        assert_eq!(Command::parse("").unwrap(), Command::List);
    }

    #[test]
    fn wrong_texts_are_refused_with_a_caret() {
        for (text, at, expected) in [
            ("+ip=1.2.3", 4, "address"),
            ("+ip=1.2.3.4/33", 4, "1 to 32"),
            ("+ip=1.2.3.4/0", 4, "any address"),
            ("+port=0", 6, "1 to 65535"),
            ("+port=99999", 6, "1 to 65535"),
            ("+ip=1.2.3.4,proto=xyz", 18, "tcp"),
            ("+port=80,port=81", 9, "twice"),
            ("+host=1.2.3.4", 1, "expected ip"),
            ("+", 1, "ip="),
            ("+ip=1.2.3.4,", 12, "ip="),
            ("enable 2", 7, "0 or 1"),
            ("enable", 6, "0 or 1"),
            ("enable 1  1", 10, "end of the command"),
            ("reset 1", 6, "end of the command"),
            (" list\tall", 5, "end of the command"),
            ("ip=1.2.3.4", 0, "+RULE"),
            ("+vlan=äöü", 6, "4095"),
        ] {
            let error = Command::parse(text).unwrap_err();
            assert_eq!(error.at, at, "{error}");
            assert!(error.message.contains(expected), "{error}");
        }
        assert!(Command::parse(&"+".repeat(1_000)).is_err());
        let shown = Command::parse("+port=x").unwrap_err().to_string();
        assert!(shown.starts_with("+port=x\n      ^ expected"), "{shown}");
    }
}
