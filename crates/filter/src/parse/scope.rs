//! Syntax that only the scoped reading has: `outer (…)`, `layer N (…)`, `any (…)`.
//!
//! The three words are no keywords: without a bracket after them they are names, as in compat.

use super::{
    Error, Kind, Node, Operand, Parsed, Parser, Primitive, PrimitiveKind, Reading, Symbol,
};
use crate::ast::{AddressFamily, Place};
use crate::lex::Lexer;
use fyke_frame::Condition;
use fyke_frame::walk::MAX_LEVELS;
use std::ops::Range;
use std::sync::Arc;

impl Parser<'_> {
    /// True if the next token is a scope's word with its bracket (`layer`: with its number).
    pub(super) fn opens_scope(&self) -> bool {
        if self.options.reading != Reading::Scoped {
            return false;
        }
        let mut ahead: Lexer = self.lexer.clone();
        let after = ahead.next().map(|token| token.kind);
        match self.lexer.text_of(&self.token) {
            "outer" | "any" => after == Ok(Kind::Symbol(Symbol::Open)),
            "layer" => matches!(after, Ok(Kind::Number(_))),
            _ => false,
        }
    }

    /// Reads a scope and its brackets.
    pub(super) fn scope(&mut self) -> Parsed<Operand> {
        let start = self.token.span.start;
        let word = self.lexer.text_of(&self.token);
        let place = self.advance()?.span;
        if self.in_scope {
            let message = format!("\"{word}\" is inside the brackets of another scope");
            return Err(Error::new(self.text, place, message)
                .with_hint(Some("join the two scopes with \"and\" outside of the brackets")));
        }
        let place = match word {
            "any" => Place::Any,
            "outer" => Place::Level(0),
            _ => Place::Level(self.level()?),
        };
        let open = self.token.span.clone();
        if !self.take(Symbol::Open)? {
            return Err(self.unexpected("\"(\""));
        }
        self.deeper(open)?;
        self.in_scope = true;
        let first = self.operand(None, super::Allowed::Terms)?;
        let (node, qualifiers) = self.as_term(first)?;
        let node = self.chain(node, qualifiers, super::Allowed::Both)?;
        self.in_scope = false;
        if !self.take(Symbol::Close)? {
            return Err(self.unexpected("\"and\", \"or\" or \")\""));
        }
        self.nesting -= 1;
        let kind = PrimitiveKind::Within(place, Arc::new(node));
        Ok(Operand::Term(self.primitive(kind, start..self.end)?, None))
    }

    fn level(&mut self) -> Parsed<u8> {
        let Kind::Number(number) = self.token.kind else { return Err(self.unexpected("a number")) };
        let place = self.advance()?.span;
        match u8::try_from(number) {
            Ok(level) if level < MAX_LEVELS => Ok(level),
            _ => Err(Error::new(self.text, place, format!("there is no layer {number}")).expected(
                format!("0 (the outermost packet) to {}, counted from outside", MAX_LEVELS - 1),
            )),
        }
    }

    /// Makes a node of this primitive in the scoped reading, which has no byte condition and
    /// refuses little.
    pub(super) fn scoped_primitive(
        &mut self,
        kind: PrimitiveKind,
        span: Range<usize>,
    ) -> Parsed<Node> {
        let refused = match &kind {
            PrimitiveKind::DecnetHost { .. } => "DECnet addresses are not in the scoped reading",
            PrimitiveKind::ArcnetHost { .. }
            | PrimitiveKind::WlanHost { .. }
            | PrimitiveKind::WlanType { .. }
            | PrimitiveKind::WlanDirection(_)
            | PrimitiveKind::Signal(_)
            | PrimitiveKind::Field { .. }
            | PrimitiveKind::LogNumber { .. }
            | PrimitiveKind::LogName { .. } => {
                "words of one link type are not in the scoped reading"
            }
            PrimitiveKind::IpBroadcast if self.options.netmask.is_none() => {
                "\"ip broadcast\" needs the netmask, which is not known"
            }
            PrimitiveKind::Host { family: AddressFamily::Ip, address, .. } if address.is_ipv6() => {
                "an IPv6 address after \"ip\""
            }
            _ => {
                let condition = Condition::Const(true);
                return Ok(Node::Primitive(Primitive { kind, span, condition }));
            }
        };
        Err(Error::new(self.text, span, refused))
    }
}
