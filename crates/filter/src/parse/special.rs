//! Words of particular link types: types and directions of 802.11, fields of packet-filter logs, of ATM and of
//! signalling system 7.

use super::{Error, Operand, Parsed, Parser};
use crate::ast::{Comparison, Field, LogField, Node, PrimitiveKind};
use crate::keywords::Keyword;
use crate::lex::{Kind, Symbol};
use crate::names::{self, LOG_ACTIONS, LOG_REASONS, WLAN_DIRECTIONS, WLAN_TYPES};
use std::sync::Arc;

/// Bits of the type and of the subtype in the first byte of an 802.11 header.
const TYPE: u8 = 0x0c;
const SUBTYPE: u8 = 0xf0;

impl Parser<'_> {
    /// `type T`, `type T subtype S`, `subtype S`, `dir D`; the keyword is the next token.
    pub(super) fn wlan(&mut self, keyword: Keyword) -> Parsed<PrimitiveKind> {
        self.advance()?;
        if keyword == Keyword::Dir {
            let direction = self.number_or_name("a direction", WLAN_DIRECTIONS)?;
            return Ok(PrimitiveKind::WlanDirection(direction));
        }
        if keyword == Keyword::Subtype {
            let Some((subtypes, value)) = self.named(|name| {
                names::WLAN_SUBTYPES.iter().find_map(|(of, subtypes)| {
                    names::find(subtypes, name).map(|subtype| (*of, subtype))
                })
            }) else {
                return Err(self.unexpected("a subtype of 802.11, such as \"beacon\""));
            };
            self.advance()?;
            let value = subtypes | value as u8;
            return Ok(PrimitiveKind::WlanType { value, mask: TYPE | SUBTYPE });
        }
        let kind = self.masked_number("a type of 802.11", TYPE, WLAN_TYPES)?;
        if self.token.kind != Kind::Keyword(Keyword::Subtype) {
            return Ok(PrimitiveKind::WlanType { value: kind, mask: TYPE });
        }
        self.advance()?;
        let subtypes = names::WLAN_SUBTYPES.iter().find(|(of, _)| *of == kind);
        let known = subtypes.map_or(&[][..], |(_, subtypes)| subtypes);
        let subtype = self.masked_number("a subtype of this type", SUBTYPE, known)?;
        Ok(PrimitiveKind::WlanType { value: kind | subtype, mask: TYPE | SUBTYPE })
    }

    /// A number that has only these bits, or a name.
    fn masked_number(&mut self, what: &str, mask: u8, names: &[(&str, u32)]) -> Parsed<u8> {
        let place = self.token.span.clone();
        let value = self.number_or_name(what, names)?;
        match u8::try_from(value) {
            Ok(value) if value & !mask == 0 => Ok(value),
            _ => Err(Error::new(self.text, place, format!("{value:#04x} is not {what}"))
                .expected(format!("bits of {mask:#04x}, or a name"))),
        }
    }

    fn number_or_name(&mut self, what: &str, names: &[(&str, u32)]) -> Parsed<u32> {
        let value = match self.token.kind {
            Kind::Number(value) => Some(value),
            _ => self.named(|name| names::find(names, name)),
        };
        let Some(value) = value else {
            return Err(self.unexpected(&format!("{what}: {}", listed(names))));
        };
        self.advance()?;
        Ok(value)
    }

    /// The value that the next token names.
    fn named<T>(&self, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        (self.token.kind == Kind::Name).then(|| find(self.lexer.text_of(&self.token)))?
    }

    /// `on NAME`, `ruleset NAME`, `rulenum N` and their like; the keyword is the next token.
    pub(super) fn log(&mut self, keyword: Keyword) -> Parsed<PrimitiveKind> {
        let field = match keyword {
            Keyword::Ifname => LogField::Interface,
            Keyword::Ruleset => LogField::Ruleset,
            Keyword::Rulenum => LogField::Rule,
            Keyword::Subrulenum => LogField::Subrule,
            Keyword::Reason => LogField::Reason,
            _ => LogField::Action,
        };
        if matches!(field, LogField::Rule | LogField::Subrule) {
            return Ok(PrimitiveKind::LogNumber { field, value: self.operand_number()? });
        }
        self.advance()?;
        let value = match field {
            LogField::Reason => self.number_or_name("a reason", LOG_REASONS)?,
            LogField::Action => {
                let named = self.named(|name| names::find(LOG_ACTIONS, name));
                let Some(value) = named else {
                    return Err(self.unexpected(&format!("an action: {}", listed(LOG_ACTIONS))));
                };
                self.advance()?;
                value
            }
            _ => {
                let Some(name) = self.named(|name| Some(Arc::from(name))) else {
                    return Err(self.unexpected("a name"));
                };
                self.advance()?;
                return Ok(PrimitiveKind::LogName { field, name });
            }
        };
        Ok(PrimitiveKind::LogNumber { field, value })
    }

    /// `vpi N`, `vpi > N`, `vpi (N or N …)`; the word is the next token.
    pub(super) fn field(&mut self, field: Field) -> Parsed<Operand> {
        let start = self.token.span.start;
        self.advance()?;
        if self.take(Symbol::Open)? {
            let mut nodes = Vec::new();
            loop {
                nodes.push(self.field_value(field, Comparison::Equal, self.token.span.start)?);
                if !self.take(Symbol::Or)? {
                    break;
                }
            }
            if !self.take(Symbol::Close)? {
                return Err(self.unexpected("\"or\" or \")\""));
            }
            let node = if nodes.len() == 1 { nodes.remove(0) } else { Node::Any(nodes) };
            return Ok(Operand::Term(node, None));
        }
        let comparison = self.comparison_sign();
        if comparison.is_some() {
            self.advance()?;
        }
        let comparison = comparison.unwrap_or(Comparison::Equal);
        Ok(Operand::Term(self.field_value(field, comparison, start)?, None))
    }

    fn field_value(&mut self, field: Field, comparison: Comparison, start: usize) -> Parsed<Node> {
        let Kind::Number(value) = self.token.kind else {
            return Err(self.unexpected("a number"));
        };
        self.advance()?;
        self.primitive(PrimitiveKind::Field { field, comparison, value }, start..self.end)
    }
}

/// The names, for an error.
fn listed(names: &[(&str, u32)]) -> String {
    names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
