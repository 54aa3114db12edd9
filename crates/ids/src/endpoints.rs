//! Addresses and ports of a header, and the variables that they may name.
//!
//! A list matches if one of its plain members matches (or it has none) and no member with `!` does; lists nest.
//! Cost: O(members) per test.

use crate::error::VariableError;
use crate::prefilter::Condition;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Deepest nesting of lists and variables.
const MAX_DEPTH: usize = 16;
/// Most members of all lists of one side of a header.
const MAX_MEMBERS: usize = 1 << 16;

/// Variables and their values, with Suricata's defaults.
#[derive(Debug, Clone)]
pub struct Variables {
    values: HashMap<String, String>,
    /// Lists that were read with these values: rules with the same text have the same list.
    read: Arc<Mutex<Read>>,
}

/// Lists by their texts.
#[derive(Debug, Default)]
struct Read {
    addresses: Known<Network>,
    ports: Known<(u16, u16)>,
}

type Known<T> = HashMap<String, Arc<List<T>>>;

/// Most lists of a kind that are kept for other rules.
const MAX_KNOWN: usize = 4096;

/// Default values: those of Suricata's configuration.
const DEFAULTS: &[(&str, &str)] = &[
    ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
    ("EXTERNAL_NET", "!$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("SSH_SERVERS", "$HOME_NET"),
    ("FTP_SERVERS", "$HOME_NET"),
    ("SIP_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "$EXTERNAL_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("ENIP_CLIENT", "$HOME_NET"),
    ("ENIP_SERVER", "$HOME_NET"),
    ("HTTP_PORTS", "80"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
    ("FTP_PORTS", "21"),
    ("GENEVE_PORTS", "6081"),
    ("VXLAN_PORTS", "4789"),
    ("TEREDO_PORTS", "3544"),
    ("SIP_PORTS", "[5060,5061]"),
];

impl Default for Variables {
    fn default() -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Variables { values: DEFAULTS.iter().map(own).collect(), read: Arc::default() }
    }
}

impl Variables {
    /// Sets a variable from `NAME=VALUE`.
    ///
    /// # Errors
    /// If the text has another form, or the value is neither a list of addresses nor of ports.
    pub fn set(&mut self, text: &str) -> Result<(), VariableError> {
        let refuse =
            |reason: &str| VariableError { given: text.to_owned(), reason: reason.to_owned() };
        let (name, value) = text.split_once('=').ok_or_else(|| refuse("expected NAME=VALUE"))?;
        let name = name.trim().trim_start_matches('$');
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(refuse("a name has letters, digits and _ only"));
        }
        let value: String = value.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        let before = self.values.insert(name.to_owned(), value.clone());
        self.read = Arc::default();
        let addresses = Addresses::parse(&value, self);
        let ports = Ports::parse(&value, self);
        if let (Err(reason), Err(_)) = (&addresses, &ports) {
            match before {
                Some(before) => self.values.insert(name.to_owned(), before),
                None => self.values.remove(name),
            };
            self.read = Arc::default();
            return Err(refuse(reason));
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Result<&str, String> {
        let value = self.values.get(name).map(String::as_str);
        value.ok_or_else(|| format!("the variable ${name} has no value (--set {name}=…)"))
    }

    /// The list of a text.
    fn list<T>(
        &self,
        text: &str,
        known: fn(&mut Read) -> &mut Known<T>,
        one: fn(&str) -> Result<T, String>,
    ) -> Result<Arc<List<T>>, String> {
        let read = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = known(&mut read()).get(text) {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(Reader { variables: self, one, members: 0 }.list(text, 0)?);
        let mut read = read();
        let known = known(&mut read);
        if known.len() < MAX_KNOWN {
            known.insert(text.to_owned(), Arc::clone(&list));
        }
        Ok(list)
    }
}

/// A list of addresses or of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
struct List<T> {
    plain: Vec<Member<T>>,
    negated: Vec<Member<T>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Member<T> {
    Any,
    One(T),
    List(List<T>),
}

impl<T> List<T> {
    fn matches(&self, one: &impl Fn(&T) -> bool) -> bool {
        let any = |members: &[Member<T>]| members.iter().any(|member| member.matches(one));
        (self.plain.is_empty() || any(&self.plain)) && !any(&self.negated)
    }

    /// The condition that a value is in the list, from those of its members.
    fn condition(&self, one: &impl Fn(&T) -> Condition) -> Condition {
        let any = |members: &[Member<T>]| {
            Condition::any(members.iter().map(|member| match member {
                Member::Any => Condition::All,
                Member::One(value) => one(value),
                Member::List(list) => list.condition(one),
            }))
        };
        let plain = if self.plain.is_empty() { Condition::All } else { any(&self.plain) };
        Condition::every([plain, any(&self.negated).negated()])
    }

    /// Number of members, of lists within it, too.
    fn len(&self) -> usize {
        let count = |member: &Member<T>| match member {
            Member::Any | Member::One(_) => 1,
            Member::List(list) => 1 + list.len(),
        };
        self.plain.iter().chain(&self.negated).map(count).sum()
    }

    fn is_any(&self) -> bool {
        self.negated.is_empty()
            && (self.plain.is_empty()
                || self.plain.iter().any(|member| matches!(member, Member::Any)))
    }
}

impl<T> Member<T> {
    fn matches(&self, one: &impl Fn(&T) -> bool) -> bool {
        match self {
            Member::Any => true,
            Member::One(value) => one(value),
            Member::List(list) => list.matches(one),
        }
    }
}

/// Reads lists of one kind.
struct Reader<'v, T> {
    variables: &'v Variables,
    one: fn(&str) -> Result<T, String>,
    members: usize,
}

impl<T> Reader<'_, T> {
    fn list(&mut self, text: &str, depth: usize) -> Result<List<T>, String> {
        let mut list = List { plain: Vec::new(), negated: Vec::new() };
        let inner = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // `[a],[b]` has brackets on both ends, too.
            Some(inner) if is_balanced(inner) => inner,
            _ => text,
        };
        if depth > MAX_DEPTH {
            return Err(format!("lists and variables are nested deeper than {MAX_DEPTH}"));
        }
        for part in parts(inner) {
            let (negated, part) = match part.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, part),
            };
            self.members += 1;
            if self.members > MAX_MEMBERS {
                return Err(format!("more than {MAX_MEMBERS} members"));
            }
            let member = self.member(part, depth)?;
            if negated && matches!(&member, Member::Any) {
                return Err("!any matches nothing".to_owned());
            }
            match negated {
                true => list.negated.push(member),
                false => list.plain.push(member),
            }
        }
        if list.plain.is_empty() && list.negated.is_empty() {
            return Err("an empty list".to_owned());
        }
        list.plain.shrink_to_fit();
        list.negated.shrink_to_fit();
        Ok(list)
    }

    fn member(&mut self, text: &str, depth: usize) -> Result<Member<T>, String> {
        if text.eq_ignore_ascii_case("any") {
            return Ok(Member::Any);
        }
        if let Some(name) = text.strip_prefix('$') {
            let value = self.variables.get(name)?.to_owned();
            return Ok(Member::List(self.list(&value, depth + 1)?));
        }
        if text.starts_with('[') || text.starts_with('!') {
            return Ok(Member::List(self.list(text, depth + 1)?));
        }
        Ok(Member::One((self.one)(text)?))
    }
}

/// True if every bracket of a text is closed in it and none before it is opened.
fn is_balanced(text: &str) -> bool {
    let mut depth = 0i32;
    text.bytes().all(|byte| {
        depth += i32::from(byte == b'[') - i32::from(byte == b']');
        depth >= 0
    }) && depth == 0
}

/// Parts of a list, separated by commas outside brackets.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |letter| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    })
}

/// Addresses of one side of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(Arc<List<Network>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Prefix(IpAddr, u8),
    Range(IpAddr, IpAddr),
}

impl Addresses {
    /// Reads a list.
    ///
    /// # Errors
    /// If the text is no list of addresses, or names an unknown variable.
    pub fn parse(text: &str, variables: &Variables) -> Result<Addresses, String> {
        let list = variables.list(text, |read| &mut read.addresses, network);
        list.map(Addresses).map_err(|reason| format!("addresses {text}: {reason}"))
    }

    /// True if an address is in the list.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.matches(&|network| match network {
            Network::Prefix(base, len) => {
                prefix(*base, *len) == prefix(address, *len) && same(*base, address)
            }
            Network::Range(first, last) => {
                same(*first, address) && (*first..=*last).contains(&address)
            }
        })
    }

    /// True if every address is in the list.
    pub fn is_any(&self) -> bool {
        self.0.is_any()
    }

    /// Number of members, each of which a test compares.
    pub fn members(&self) -> usize {
        self.0.len()
    }

    /// The condition, in the pcap language, that one end of a packet (`src` or `dst`) is in the list.
    pub(crate) fn condition(&self, end: &str) -> Condition {
        self.0.condition(&|network| match network {
            Network::Prefix(base, len) => net(*base, *len, end),
            Network::Range(first, last) => range(*first, *last, end),
        })
    }
}

/// A network in the pcap language, which refuses bits outside the mask.
fn net(base: IpAddr, len: u8, end: &str) -> Condition {
    let (most, all) = if base.is_ipv4() { (32, "ip") } else { (128, "ip6") };
    let base = match base {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::from((u32::from(four) & mask).to_be_bytes())
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::from((u128::from(six) & mask).to_be_bytes())
        }
    };
    Condition::Text(match len {
        0 => all.to_owned(),
        len if len == most => format!("{end} host {base}"),
        len => format!("{end} net {base}/{len}"),
    })
}

/// A range of addresses in the pcap language: the fewest networks.
fn range(first: IpAddr, last: IpAddr, end: &str) -> Condition {
    let number = |address: IpAddr| match address {
        IpAddr::V4(four) => u128::from(u32::from(four)),
        IpAddr::V6(six) => u128::from(six),
    };
    let bits = if first.is_ipv4() { 32u32 } else { 128 };
    let (mut next, last) = (number(first), number(last));
    let mut parts = Vec::new();
    loop {
        // The largest network that begins here and ends within the range.
        let mut free = next.trailing_zeros().min(bits);
        while free > 0 && (free == 128 || last - next < (1 << free) - 1) {
            free -= 1;
        }
        let base = match bits {
            32 => IpAddr::from((next as u32).to_be_bytes()),
            _ => IpAddr::from(next.to_be_bytes()),
        };
        parts.push(net(base, (bits - free) as u8, end));
        match next.checked_add(1 << free).filter(|next| *next <= last) {
            Some(after) => next = after,
            None => return Condition::any(parts),
        }
    }
}

fn same(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

/// The first `len` bits of an address.
fn prefix(address: IpAddr, len: u8) -> u128 {
    match address {
        IpAddr::V4(four) => {
            u128::from(u32::from(four).checked_shr(32 - u32::from(len.min(32))).unwrap_or(0))
        }
        IpAddr::V6(six) => u128::from(six).checked_shr(128 - u32::from(len)).unwrap_or(0),
    }
}

fn network(text: &str) -> Result<Network, String> {
    let wrong = || format!("{text} is no address");
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (IpAddr, IpAddr) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if !same(first, last) || first > last {
            return Err(format!("{text}: the range is empty"));
        }
        return Ok(Network::Range(first, last));
    }
    let Some((base, len)) = text.split_once('/') else {
        let address: IpAddr = text.parse().map_err(|_| wrong())?;
        return Ok(Network::Prefix(address, if address.is_ipv4() { 32 } else { 128 }));
    };
    let base: IpAddr = base.parse().map_err(|_| wrong())?;
    let most = if base.is_ipv4() { 32 } else { 128 };
    let mask = len.parse::<std::net::Ipv4Addr>().ok().filter(|_| base.is_ipv4()).map(u32::from);
    let len = match mask {
        Some(mask) if mask.leading_ones() + mask.trailing_zeros() == 32 => {
            mask.leading_ones() as u8
        }
        _ => len.parse().ok().filter(|len| *len <= most).ok_or_else(wrong)?,
    };
    Ok(Network::Prefix(base, len))
}

/// Ports of one side of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(Arc<List<(u16, u16)>>);

impl Ports {
    /// Reads a list.
    ///
    /// # Errors
    /// If the text is no list of ports, or names an unknown variable.
    pub fn parse(text: &str, variables: &Variables) -> Result<Ports, String> {
        let list = variables.list(text, |read| &mut read.ports, ports);
        list.map(Ports).map_err(|reason| format!("ports {text}: {reason}"))
    }

    /// True if a port is in the list.
    pub fn contains(&self, port: u16) -> bool {
        self.0.matches(&|(first, last)| (*first..=*last).contains(&port))
    }

    /// True if every port is in the list.
    pub fn is_any(&self) -> bool {
        self.0.is_any()
    }

    /// Number of members, each of which a test compares.
    pub fn members(&self) -> usize {
        self.0.len()
    }

    /// The ports as ranges in order, none touching the next.
    pub(crate) fn ranges(&self) -> Vec<(u16, u16)> {
        if self.is_any() {
            return vec![(0, u16::MAX)];
        }
        let mut found: Vec<(u16, u16)> = Vec::new();
        for port in (0..=u16::MAX).filter(|port| self.contains(*port)) {
            match found.last_mut().filter(|(_, last)| Some(*last) == port.checked_sub(1)) {
                Some((_, last)) => *last = port,
                None => found.push((port, port)),
            }
        }
        found
    }
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("{text} is no port"));
    match text.split_once(':') {
        None => number(text).map(|port| (port, port)),
        Some((first, last)) => {
            let first = if first.is_empty() { 0 } else { number(first)? };
            let last = if last.is_empty() { u16::MAX } else { number(last)? };
            if first > last {
                Err(format!("{text}: the range is empty"))
            } else {
                Ok((first, last))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_addresses_nest_and_exclude() {
        let mut variables = Variables::default();
        variables.set("HOME_NET=[10.0.0.0/8, 2001:db8::/32]").unwrap();
        let has = |text: &str, address: &str| {
            Addresses::parse(text, &variables).unwrap().contains(address.parse().unwrap())
        };
        for (text, inside, outside) in [
            ("$HOME_NET", "10.9.8.7", "11.0.0.1"),
            ("!$HOME_NET", "11.0.0.1", "2001:db8::1"),
            ("[$HOME_NET,!10.1.0.0/16]", "10.2.0.1", "10.1.0.1"),
            ("[1.2.3.4,[5.6.7.0/255.255.255.0,!5.6.7.8]]", "5.6.7.9", "5.6.7.8"),
            ("![1.2.3.4,5.6.7.8]", "1.2.3.5", "5.6.7.8"),
            ("1.2.3.4-1.2.3.9", "1.2.3.9", "1.2.3.10"),
            ("0.0.0.0/0", "255.1.1.1", "::1"),
            ("[1.2.3.4],[5.6.7.8]", "5.6.7.8", "5.6.7.7"),
            ("::/0", "::1", "1.2.3.4"),
        ] {
            assert!(has(text, inside), "{text} {inside}");
            assert!(!has(text, outside), "{text} {outside}");
        }
        for wrong in [
            "!any",
            "[]",
            "1.2.3.4/33",
            "$NOTHING",
            "1.2.3",
            "9.9.9.9-1.1.1.1",
            "1.2.3.4/255.0.255.0",
        ] {
            assert!(Addresses::parse(wrong, &variables).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_are_numbers_ranges_and_lists() {
        let variables = Variables::default();
        let has = |text: &str, port| Ports::parse(text, &variables).unwrap().contains(port);
        assert!(has("[80,8000:8100]", 8050) && !has("[80,8000:8100]", 81));
        assert!(has("1024:", 65535) && has(":1023", 0) && !has("!80", 80) && has("!80", 81));
        assert!(
            has("$SHELLCODE_PORTS", 22)
                && has("any", 1)
                && has("[1:100,!50]", 51)
                && !has("[1:100,!50]", 50)
        );
        for wrong in ["70000", "9:1", "x", "$HOME_NET", "[80,]"] {
            assert!(Ports::parse(wrong, &variables).is_err(), "{wrong}");
        }
    }

    #[test]
    fn variables_that_name_each_other_end() {
        let mut variables = Variables::default();
        variables.set("A=1.2.3.4").unwrap();
        variables.set("B=$A").unwrap();
        assert!(variables.set("A=$B").unwrap_err().reason.contains("nested"));
        assert!(Addresses::parse("$B", &variables).is_ok());
        assert!(
            variables.set("A").is_err()
                && variables.set("A B=1").is_err()
                && variables.set("A=x").is_err()
        );
    }
}
