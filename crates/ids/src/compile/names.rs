//! Names, numbers and tags that outlive a packet: `flowbits`, `xbits`, `hostbits`, `flowint` and `tag`.

use super::number::within;
use super::{Builder, Dialect};
use crate::read::RawOption;
use crate::rule::{BitTest, Change, Mark, Owner, Tag};
use crate::rule::{FlowNumber, NumberChange, NumberKind, NumberTest};
use std::cmp::Ordering;
use std::sync::Arc;

/// Most names in all options of a rule.
const MAX_NAMES: usize = 64;
/// Time for which `xbits` are set without `expire`, in seconds.
const EXPIRES_S: u64 = 30;
/// Time for which `hostbits` are set, in seconds.
const HOST_EXPIRES_S: u64 = 300;

/// Packets that `tag` records without a count, as in Suricata.
const MAX_TAGGED: u32 = 256;

impl Builder {
    /// Reads an option of this file; false if it is none.
    pub(super) fn name_option(&mut self, option: &RawOption) -> Result<bool, String> {
        let text = option.text();
        match &*option.name {
            "flowbits" => self.flow_bits(text?)?,
            "xbits" => self.address_bits(text?)?,
            "hostbits" => self.host_bits(text?)?,
            "flowint" => self.flow_number(text?)?,
            "tag" => self.tag(text?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn flow_bits(&mut self, text: &str) -> Result<(), String> {
        let (word, names) = text.split_once(',').unwrap_or((text, ""));
        if word.trim() == "noalert" {
            self.rule.silent = true;
            return Ok(());
        }
        if word.trim() == "reset" {
            return Err("reset is not judged".to_owned());
        }
        let names = names.trim();
        if names.contains(',') {
            return Err("groups of names are not judged".to_owned());
        }
        // Snort joins names that must all be set by `&`.
        let all = if self.dialect == Dialect::Suricata {
            vec![names]
        } else {
            names.split('&').collect()
        };
        for names in all {
            self.bit(word.trim(), Owner::Flow, bit_names(names)?, u64::MAX)?;
        }
        Ok(())
    }

    /// `xbits:set,NAME,track ip_src,expire 60`.
    fn address_bits(&mut self, text: &str) -> Result<(), String> {
        let mut parts = text.split(',').map(str::trim);
        let word = parts.next().unwrap_or_default();
        if word == "noalert" {
            self.rule.silent = true;
            return Ok(());
        }
        let name = bit_names(parts.next().unwrap_or_default())?;
        let (mut owner, mut expires_s) = (None, EXPIRES_S);
        for part in parts {
            match part.split_once(char::is_whitespace).map(|(name, value)| (name, value.trim())) {
                Some(("track", "ip_src")) => owner = Some(Owner::Source),
                Some(("track", "ip_dst")) => owner = Some(Owner::Destination),
                Some(("track", "ip_pair")) => owner = Some(Owner::Pair),
                Some(("expire", seconds)) => expires_s = within(seconds, 1, 86_400 * 365)? as u64,
                _ => return Err(format!("{part} is not judged")),
            }
        }
        let owner = owner.ok_or("expected track ip_src, ip_dst or ip_pair")?;
        self.bit(word, owner, name, expires_s.saturating_mul(1_000_000_000))
    }

    fn bit(
        &mut self,
        word: &str,
        owner: Owner,
        names: Vec<Arc<str>>,
        expires_ns: u64,
    ) -> Result<(), String> {
        if self.names_so_far() + names.len() > MAX_NAMES {
            return Err(format!("more than {MAX_NAMES} names"));
        }
        let change = match word {
            "set" => Change::Set,
            "unset" => Change::Unset,
            "toggle" => Change::Toggle,
            "isset" | "isnotset" => {
                self.rule.bits.push(BitTest { owner, names, set: word == "isset" });
                return Ok(());
            }
            other => return Err(format!("{other} is not judged")),
        };
        let marks = names.into_iter().map(|name| Mark { owner, name, change, expires_ns });
        self.rule.marks.extend(marks);
        Ok(())
    }

    /// `hostbits:set,NAME,src`.
    fn host_bits(&mut self, text: &str) -> Result<(), String> {
        let mut parts = text.split(',').map(str::trim);
        let word = parts.next().unwrap_or_default();
        let name = bit_names(parts.next().unwrap_or_default())?;
        let owner = match parts.next() {
            None | Some("src") => Owner::Source,
            Some("dst") => Owner::Destination,
            Some(other) => return Err(format!("{other}: expected src or dst")),
        };
        if let Some(more) = parts.next() {
            return Err(format!("{more} is not judged"));
        }
        self.bit(word, owner, name, HOST_EXPIRES_S * 1_000_000_000)
    }

    /// `flowint:NAME,+,1`, with a number or the name of another one.
    fn flow_number(&mut self, text: &str) -> Result<(), String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (name, operator, value) = match parts[..] {
            [name, operator] => (name, operator, None),
            [name, operator, value] => (name, operator, Some(value)),
            _ => return Err("expected a name, an operator and a value".to_owned()),
        };
        if self.names_so_far() >= MAX_NAMES {
            return Err(format!("more than {MAX_NAMES} names"));
        }
        let name = one_name(name)?;
        let test = match (operator, value) {
            ("isset", None) => NumberKind::IsSet,
            ("isnotset" | "notset", None) => NumberKind::IsNotSet,
            (word @ ("isset" | "isnotset" | "notset"), Some(_)) => {
                return Err(format!("{word} has no value"));
            }
            (operator, None) => return Err(format!("{operator}: expected a value")),
            ("=" | "+" | "-", Some(value)) => {
                let value = flow_value(value)?;
                self.rule.sums.push(NumberChange { name, operator: operator.as_bytes()[0], value });
                return Ok(());
            }
            ("<", Some(value)) => NumberKind::Compares(Ordering::Less, flow_value(value)?),
            (">", Some(value)) => NumberKind::Compares(Ordering::Greater, flow_value(value)?),
            ("==", Some(value)) => NumberKind::Compares(Ordering::Equal, flow_value(value)?),
            ("<=", Some(value)) => NumberKind::ComparesNot(Ordering::Greater, flow_value(value)?),
            (">=", Some(value)) => NumberKind::ComparesNot(Ordering::Less, flow_value(value)?),
            ("!=", Some(value)) => NumberKind::ComparesNot(Ordering::Equal, flow_value(value)?),
            (other, _) => return Err(format!("{other} is no operator")),
        };
        self.rule.numbers.push(NumberTest { name, test });
        Ok(())
    }

    /// `tag:session`, `tag:host,100,packets,src`.
    fn tag(&mut self, text: &str) -> Result<(), String> {
        let mut parts = text.split(',').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let mut tag =
            Tag { owner: Owner::Flow, packets: MAX_TAGGED, bytes: u64::MAX, time_ns: u64::MAX };
        if let Some(count) = parts.next() {
            let count = within(count, 1, u32::MAX.into())? as u32;
            match parts.next() {
                Some("packets") => tag.packets = count,
                Some("seconds") => {
                    (tag.packets, tag.time_ns) = (u32::MAX, u64::from(count) * 1_000_000_000);
                }
                Some("bytes") => (tag.packets, tag.bytes) = (u32::MAX, count.into()),
                _ => return Err("expected packets, seconds or bytes after the count".to_owned()),
            }
        }
        tag.owner = match (kind, parts.next()) {
            ("session", None) => Owner::Flow,
            ("host", Some("src")) => Owner::Source,
            ("host", Some("dst")) => Owner::Destination,
            ("host", _) => return Err("expected src or dst at the end".to_owned()),
            ("session", Some(more)) => return Err(format!("{more} is not judged")),
            (other, _) => return Err(format!("{other}: expected session or host")),
        };
        if parts.next().is_some() || self.rule.tag.replace(tag).is_some() {
            return Err("too many values, or given twice".to_owned());
        }
        Ok(())
    }

    fn names_so_far(&self) -> usize {
        let rule = &self.rule;
        rule.bits.len() + rule.marks.len() + rule.numbers.len() + rule.sums.len()
    }
}

/// The other number of a `flowint`.
fn flow_value(text: &str) -> Result<FlowNumber, String> {
    match text.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-') {
        true => Ok(FlowNumber::Given(within(text, 0, u32::MAX.into())? as u32)),
        false => Ok(FlowNumber::Named(one_name(text)?)),
    }
}

/// One name.
fn one_name(text: &str) -> Result<Arc<str>, String> {
    match &bit_names(text)?[..] {
        [name] => Ok(Arc::clone(name)),
        _ => Err(format!("\"{text}\" is no name")),
    }
}

/// Names separated by `|`.
fn bit_names(text: &str) -> Result<Vec<Arc<str>>, String> {
    let names = text.split('|').map(str::trim);
    let is_name = |name: &str| !name.is_empty() && !name.contains([' ', '\t', '"']);
    let names: Vec<&str> = names.collect();
    match names.iter().find(|name| !is_name(name)) {
        Some(wrong) => Err(format!("\"{wrong}\" is no name")),
        None => Ok(names.into_iter().map(Arc::from).collect()),
    }
}
