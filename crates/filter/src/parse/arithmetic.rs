//! Byte expressions and comparisons.
//!
//! `*` and `/` bind tightest, then `+` and `-`, the shifts, `&`, `|`. `%` and `^` have no precedence of their own:
//! they always take everything to their right. A minus sign binds tighter than everything but those two.

use super::{Error, MAX_NESTING, Operand, Parsed, Parser};
use crate::ast::{Arithmetic, Comparison, Header, Operator, PrimitiveKind};
use crate::keywords::Keyword;
use crate::lex::{Kind, Symbol};
use fyke_frame::condition::Width;
use std::ops::Range;

/// Precedence above all operators with a precedence.
const MINUS_SIGN: u8 = 6;
/// Precedence below all operators.
const LOOSEST: u8 = 0;

/// An expression and the length of the longest path through it.
type Deep = (Arithmetic, usize);

impl Parser<'_> {
    /// Reads a byte expression from its beginning.
    pub(super) fn arithmetic(&mut self) -> Parsed<Arithmetic> {
        Ok(self.operators(None, LOOSEST)?.0)
    }

    /// Reads the operators and the comparison after a number or byte expression.
    pub(super) fn comparison(&mut self, operand: Operand) -> Parsed<Operand> {
        let (left, span) = match operand {
            Operand::Number(value, span) => (Arithmetic::Number(value), span),
            Operand::Arithmetic(arithmetic, span) => (arithmetic, span),
            other => return Ok(other),
        };
        let plain_number = match left {
            Arithmetic::Number(value) if self.operator().is_none() => Some(value),
            _ => None,
        };
        let depth = depth(&left);
        let (left, _) = self.operators(Some((left, depth)), LOOSEST)?;
        let Some(comparison) = self.comparison_sign() else {
            return Ok(match plain_number {
                Some(value) => Operand::Number(value, span),
                None => Operand::Arithmetic(left, span.start..self.end),
            });
        };
        self.advance()?;
        let right = self.arithmetic()?;
        let span = span.start..self.end;
        let kind = PrimitiveKind::Relation { left, comparison, right };
        Ok(Operand::Term(self.primitive(kind, span)?, None))
    }

    /// Reads operators that bind tighter than `limit`, after an operand that may have been read
    /// already.
    fn operators(&mut self, first: Option<Deep>, limit: u8) -> Parsed<Deep> {
        let (mut left, mut depth) = match first {
            Some(first) => first,
            None => self.value()?,
        };
        while let Some((operator, level)) = self.operator() {
            if level.is_some_and(|level| level <= limit) {
                break;
            }
            let place = self.advance()?.span;
            self.deeper(place.clone())?;
            let (right, right_depth) = self.operators(None, level.unwrap_or(LOOSEST))?;
            self.nesting -= 1;
            depth = self.limited(1 + depth.max(right_depth), place)?;
            left = Arithmetic::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok((left, depth))
    }

    /// Reads one operand of an operator.
    fn value(&mut self) -> Parsed<Deep> {
        match self.token.kind {
            Kind::Number(value) => {
                self.advance()?;
                Ok((Arithmetic::Number(value), 1))
            }
            Kind::Keyword(Keyword::Len) => {
                self.advance()?;
                Ok((Arithmetic::Length, 1))
            }
            Kind::Keyword(keyword) if keyword.is_protocol() => {
                let place = self.advance()?.span;
                self.load(keyword, place)
            }
            Kind::Symbol(Symbol::Minus) => {
                let place = self.advance()?.span;
                self.deeper(place.clone())?;
                let (inner, depth) = self.operators(None, MINUS_SIGN)?;
                self.nesting -= 1;
                let depth = self.limited(depth + 1, place)?;
                Ok((Arithmetic::Negate(Box::new(inner)), depth))
            }
            Kind::Symbol(Symbol::Open) => {
                let place = self.advance()?.span;
                self.deeper(place)?;
                let inner = self.operators(None, LOOSEST)?;
                if !self.take(Symbol::Close)? {
                    return Err(self.unexpected("an operator or \")\""));
                }
                self.nesting -= 1;
                Ok(inner)
            }
            _ => Err(self.unexpected("a number, \"len\" or bytes such as \"ip[8]\"")),
        }
    }

    /// Reads `[index]` or `[index:width]` after the name of a header.
    pub(super) fn load(&mut self, name: Keyword, place: Range<usize>) -> Parsed<Deep> {
        if !self.take(Symbol::OpenIndex)? {
            return Err(self.unexpected("\"[\""));
        }
        self.deeper(place.clone())?;
        let (index, depth) = self.operators(None, LOOSEST)?;
        let width = if self.take(Symbol::Colon)? { self.width()? } else { Width::One };
        if !self.take(Symbol::CloseIndex)? {
            return Err(self.unexpected("\"]\", \":\" or an operator"));
        }
        self.nesting -= 1;
        let Some(header) = name.header() else {
            let message = format!("\"{}\" has no bytes to index", name.text());
            return Err(Error::new(self.text, place, message)
                .with_hint(Some("\"link[…]\", \"ip[…]\", \"ip6[…]\" and others do")));
        };
        let depth = self.limited(depth + 1, place)?;
        Ok((Arithmetic::Load { header, index: Box::new(index), width }, depth))
    }

    fn width(&mut self) -> Parsed<Width> {
        let Kind::Number(width) = self.token.kind else {
            return Err(self.unexpected("1, 2 or 4"));
        };
        let span = self.advance()?.span;
        match width {
            1 => Ok(Width::One),
            2 => Ok(Width::Two),
            4 => Ok(Width::Four),
            _ => Err(Error::new(
                self.text,
                span,
                "a byte expression cannot read this number of bytes",
            )
            .expected("1, 2 or 4")),
        }
    }

    /// The next token as an operator, with its precedence if it has one.
    fn operator(&self) -> Option<(Operator, Option<u8>)> {
        let Kind::Symbol(symbol) = self.token.kind else { return None };
        Some(match symbol {
            Symbol::Bar => (Operator::Or, Some(1)),
            Symbol::Ampersand => (Operator::And, Some(2)),
            Symbol::ShiftLeft => (Operator::Shl, Some(3)),
            Symbol::ShiftRight => (Operator::Shr, Some(3)),
            Symbol::Plus => (Operator::Add, Some(4)),
            Symbol::Minus => (Operator::Sub, Some(4)),
            Symbol::Times => (Operator::Mul, Some(5)),
            Symbol::Slash => (Operator::Div, Some(5)),
            Symbol::Percent => (Operator::Mod, None),
            Symbol::Caret => (Operator::Xor, None),
            _ => return None,
        })
    }

    /// The next token as a comparison.
    pub(super) fn comparison_sign(&self) -> Option<Comparison> {
        let Kind::Symbol(symbol) = self.token.kind else { return None };
        Some(match symbol {
            Symbol::Equal => Comparison::Equal,
            Symbol::NotEqual => Comparison::NotEqual,
            Symbol::Less => Comparison::Less,
            Symbol::LessOrEqual => Comparison::LessOrEqual,
            Symbol::Greater => Comparison::Greater,
            Symbol::GreaterOrEqual => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    fn limited(&self, depth: usize, place: Range<usize>) -> Parsed<usize> {
        if depth > MAX_NESTING {
            let message = format!("the expression has more than {MAX_NESTING} levels here");
            return Err(Error::new(self.text, place, message));
        }
        Ok(depth)
    }
}

impl Keyword {
    /// The header from which `name[…]` counts.
    fn header(self) -> Option<Header> {
        Some(match self {
            Keyword::Link => Header::Link,
            Keyword::Radio => Header::Radio,
            Keyword::Ip => Header::Network(0x0800),
            Keyword::Arp => Header::Network(0x0806),
            Keyword::Rarp => Header::Network(0x8035),
            Keyword::Ip6 => Header::Network(0x86dd),
            Keyword::Atalk => Header::Network(0x809b),
            Keyword::Decnet => Header::Network(0x6003),
            Keyword::Lat => Header::Network(0x6004),
            Keyword::Sca => Header::Network(0x6007),
            Keyword::Mopdl => Header::Network(0x6001),
            Keyword::Moprc => Header::Network(0x6002),
            Keyword::Tcp => Header::Transport(6),
            Keyword::Udp => Header::Transport(17),
            Keyword::Sctp => Header::Transport(132),
            Keyword::Icmp => Header::Transport(1),
            Keyword::Igmp => Header::Transport(2),
            Keyword::Igrp => Header::Transport(9),
            Keyword::Pim => Header::Transport(103),
            Keyword::Vrrp | Keyword::Carp => Header::Transport(112),
            Keyword::Icmp6 => Header::Icmp6,
            _ => return None,
        })
    }
}

/// The longest path through an expression.
fn depth(arithmetic: &Arithmetic) -> usize {
    match arithmetic {
        Arithmetic::Number(_) | Arithmetic::Length => 1,
        Arithmetic::Load { index: inner, .. } | Arithmetic::Negate(inner) => 1 + depth(inner),
        Arithmetic::Binary(_, left, right) => 1 + depth(left).max(depth(right)),
    }
}
