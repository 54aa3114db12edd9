//! Text to predicate.
//!
//! One pass from left to right with one token of look-ahead. The language has two kinds of
//! operands: *terms* (`tcp port 80`, `ip[8] < 5`) and *identifiers*, which are terms without their
//! qualifiers (`or 443`). An identifier inherits the qualifiers of the operand before it, so the
//! parser passes those on to every operand. `and` and `or` have the same precedence and group to
//! the left.
//!
//! The grammar accepts the same texts as libpcap 1.10.3, oddities included: a group of identifiers
//! may not begin with a group (`port ((80 or 443) or 22)` is wrong); `%` and `^` take all text
//! after them as their right operand.
//!
//! Linear in the text. Brackets recurse, up to [`MAX_NESTING`] deep; chains of any length do not.
//!
//! | file | what |
//! |---|---|
//! | `parse.rs` | operands, groups, chains of `and` and `or` |
//! | `parse/term.rs` | terms, which begin with a keyword |
//! | `parse/special.rs` | words of particular link types |
//! | `parse/arithmetic.rs` | byte expressions |
//! | `parse/scope.rs` | `outer (…)`, `layer N (…)`, `any (…)` of the scoped reading |
//! | `parse/identifier.rs` | turns an identifier and its qualifiers into a primitive |

mod arithmetic;
mod identifier;
mod scope;
mod special;
mod term;

use crate::ast::{Arithmetic, Carrier, Node, Primitive, PrimitiveKind};
use crate::compat::{Compat, Known, Refusal, computed_fault};
use crate::error::Error;
use crate::keywords;
use crate::lex::{Kind, Lexer, Symbol, Token};
use crate::reach::reach;
use crate::{Options, Reading};
use fyke_frame::{Condition, ethertype};
use identifier::{Identifier, Qualifiers};
use std::ops::Range;

/// Longest text, in bytes.
pub const MAX_TEXT_LEN: usize = 16 << 20;

/// Most brackets that may be open at the same time, and most operators on one path through a byte
/// expression.
pub const MAX_NESTING: usize = 500;

/// Parses a whole text.
pub(crate) fn parse(text: &str, options: &Options) -> Result<Node, Error> {
    if text.len() > MAX_TEXT_LEN {
        let message =
            format!("the text has {} bytes, the limit is {MAX_TEXT_LEN} bytes", text.len());
        return Err(Error::new(text, MAX_TEXT_LEN..MAX_TEXT_LEN + 1, message));
    }
    let refused =
        |refusal: Refusal| Error::new(text, 0..text.len(), refusal.message).with_hint(refusal.hint);
    let read = |known: &Known| {
        let compat = Compat::new(options, known).map_err(refused)?;
        let mut parser = Parser::new(text, options, compat)?;
        let root = parser.text()?;
        Ok((parser, root))
    };
    let mut known = Known::nothing();
    let (mut parser, mut root) = read(&known)?;
    if options.reading == Reading::Scoped {
        return Ok(root);
    }
    if options.live {
        known.vlan_reached = reached(&root).map_err(refused)?;
    }
    known.unoptimized = !parser.compat.is_optimized();
    if known != Known::nothing() {
        (parser, root) = read(&known)?;
    }
    let always = parser.compat.is_optimized() && parser.check_reach(&root)?;
    if always && parser.compat.prologue().is_none() {
        return Ok(Node::Const(true));
    }
    if let Some(prologue) = parser.compat.prologue() {
        begin_with(prologue, &mut root);
    }
    Ok(root)
}

/// Inserts a test before the test that is made first.
fn begin_with(prologue: Condition, root: &mut Node) {
    let mut node = root;
    loop {
        node = match node {
            Node::Primitive(primitive) => {
                let own = std::mem::replace(&mut primitive.condition, Condition::Const(true));
                primitive.condition = Condition::All(vec![prologue, own]);
                return;
            }
            Node::All(operands) | Node::Any(operands) => match operands.first_mut() {
                Some(first) => first,
                None => return,
            },
            Node::Not(inner) => inner,
            Node::Const(_) => return,
        };
    }
}

/// The condition under which the first `vlan` of the text is evaluated.
fn reached(root: &Node) -> Result<Condition, Refusal> {
    let mut tests = Vec::new();
    let mut rest = root;
    let has_vlan =
        |node: &Node| node.primitives().any(|one| matches!(one.kind, PrimitiveKind::Vlan(_)));
    if !has_vlan(root) {
        return Ok(Condition::Const(true));
    }
    loop {
        let (operands, holds) = match rest {
            Node::All(operands) => (operands.as_slice(), true),
            Node::Any(operands) => (operands.as_slice(), false),
            Node::Not(inner) => (std::slice::from_ref(&**inner), true),
            Node::Primitive(_) | Node::Const(_) => break,
        };
        let Some(place) = operands.iter().position(has_vlan) else { break };
        for before in &operands[..place] {
            let condition = before.condition().ok_or_else(|| {
                Refusal::new("too many tests come before the first \"vlan\" for a live capture")
                    .with_hint("write \"vlan\" first")
            })?;
            tests.push(if holds { condition } else { Condition::Not(Box::new(condition)) });
        }
        rest = &operands[place];
    }
    Ok(if tests.is_empty() { Condition::Const(true) } else { Condition::All(tests) })
}

/// Operands that are allowed at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// At the beginning of a text or of a group: there is nothing to inherit.
    Terms,
    /// After qualifiers.
    Identifiers,
    /// After `and`, `or`.
    Both,
}

impl Allowed {
    fn terms(self) -> bool {
        self != Allowed::Identifiers
    }

    fn identifiers(self) -> bool {
        self != Allowed::Terms
    }
}

/// An operand that has been read.
enum Operand {
    /// A term, and the qualifiers that the operand after it inherits.
    Term(Node, Option<Qualifiers>),
    /// An identifier.
    Identifier(Node),
    /// Identifiers in brackets.
    Group(Node),
    /// A number, perhaps in brackets: an identifier, or the beginning of a byte expression.
    Number(u32, Range<usize>),
    /// A byte expression in brackets, before its comparison.
    Arithmetic(Arithmetic, Range<usize>),
}

/// The state of the parser.
struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The next token.
    token: Token,
    /// The kind of the token before it.
    before: Kind,
    /// The end of that token.
    end: usize,
    compat: Compat,
    options: &'t Options,
    nesting: usize,
    /// The beginning of the term, if its identifier comes next.
    term_start: Option<usize>,
    /// The number of primitives so far.
    primitives: usize,
    /// Faults of primitives, by their number; reported only if a frame can reach them.
    faults: Vec<(usize, Error)>,
    /// True if the next token is in the brackets of `outer`, `layer N` or `any`.
    in_scope: bool,
}

type Parsed<T> = Result<T, Error>;

impl<'t> Parser<'t> {
    fn new(text: &'t str, options: &'t Options, compat: Compat) -> Parsed<Parser<'t>> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Parser {
            text,
            lexer,
            token,
            before: Kind::End,
            end: 0,
            compat,
            options,
            nesting: 0,
            term_start: None,
            primitives: 0,
            faults: Vec::new(),
            in_scope: false,
        })
    }

    fn text(&mut self) -> Parsed<Node> {
        if self.token.kind == Kind::End {
            return Ok(Node::Const(true));
        }
        let first = self.operand(None, Allowed::Terms)?;
        let (node, qualifiers) = self.as_term(first)?;
        let node = self.chain(node, qualifiers, Allowed::Both)?;
        match self.token.kind {
            Kind::End => Ok(node),
            _ => Err(self.unexpected("\"and\", \"or\" or the end")),
        }
    }

    /// Refuses texts that no frame can match, and faults that a frame can reach; returns whether
    /// every frame matches.
    fn check_reach(&mut self, root: &Node) -> Parsed<bool> {
        let first = self.compat.first_test();
        let reach = reach(root, !self.faults.is_empty(), first.as_ref());
        for (primitive, error) in self.faults.drain(..) {
            if reach.comparisons.get(primitive).copied().unwrap_or(true) {
                return Err(error);
            }
        }
        if reach.never {
            let message = "no frame can match this filter";
            return Err(
                Error::new(self.text, 0..self.text.len(), message).with_hint(Some(exclusion(root)))
            );
        }
        Ok(reach.always)
    }

    /// Reads operands joined by `and` and `or`; the first has been read.
    fn chain(
        &mut self,
        mut node: Node,
        mut qualifiers: Option<Qualifiers>,
        allowed: Allowed,
    ) -> Parsed<Node> {
        while let Kind::Symbol(join @ (Symbol::And | Symbol::Or)) = self.token.kind {
            self.advance()?;
            let right = match self.operand(qualifiers, allowed)? {
                Operand::Term(right, inherited) => {
                    qualifiers = inherited;
                    right
                }
                other => self.as_identifier(other, qualifiers)?,
            };
            node = joined(join, node, right);
        }
        Ok(node)
    }

    /// Reads one operand and the `not`s before it. `inherited` are the qualifiers of the operand to
    /// the left.
    fn operand(&mut self, inherited: Option<Qualifiers>, allowed: Allowed) -> Parsed<Operand> {
        let mut nots = 0_usize;
        while self.token.kind == Kind::Symbol(Symbol::Not) {
            self.advance()?;
            nots += 1;
        }
        let mut operand = match self.token.kind {
            Kind::Symbol(Symbol::Open) => self.group(inherited, allowed)?,
            Kind::Number(value) => Operand::Number(value, self.advance()?.span),
            Kind::Name if allowed.terms() && self.opens_scope() => self.scope()?,
            Kind::Dotted | Kind::Ip6(_) | Kind::Ether(_) | Kind::Arcnet(_) | Kind::Name
                if allowed.identifiers() =>
            {
                let identifier = self.identifier()?;
                Operand::Identifier(self.identify(identifier, inherited)?)
            }
            Kind::Keyword(keyword) if allowed.terms() => self.term(keyword)?,
            Kind::Symbol(Symbol::Minus) if allowed.terms() => {
                let start = self.token.span.start;
                let arithmetic = self.arithmetic()?;
                Operand::Arithmetic(arithmetic, start..self.end)
            }
            _ => return Err(self.no_operand(allowed)),
        };
        if allowed.terms() {
            operand = self.comparison(operand)?;
        }
        if nots == 0 {
            return Ok(operand);
        }
        let negated = |node| if nots % 2 == 1 { negation(node) } else { node };
        match operand {
            Operand::Term(node, qualifiers) => Ok(Operand::Term(negated(node), qualifiers)),
            other if allowed.identifiers() => {
                Ok(Operand::Identifier(negated(self.as_identifier(other, inherited)?)))
            }
            other => self.as_term(other).map(|(node, _)| Operand::Term(negated(node), None)),
        }
    }

    /// Reads the content of brackets: terms, identifiers, or a part of a byte expression.
    fn group(&mut self, inherited: Option<Qualifiers>, allowed: Allowed) -> Parsed<Operand> {
        let open = self.advance()?.span;
        self.term_start = None;
        self.deeper(open.clone())?;
        let operand = match self.operand(inherited, allowed)? {
            Operand::Term(node, qualifiers) => {
                let node = self.chain(node, qualifiers, Allowed::Both)?;
                Operand::Term(node, inherited)
            }
            Operand::Number(value, _) if self.token.kind == Kind::Symbol(Symbol::Close) => {
                Operand::Number(value, open.start..self.token.span.end)
            }
            Operand::Arithmetic(arithmetic, _) if allowed.terms() => {
                Operand::Arithmetic(arithmetic, open.start..self.token.span.end)
            }
            Operand::Group(_) => {
                let message = "a group may not be the first thing in a group of names or numbers";
                return Err(Error::new(self.text, open.start..self.end, message)
                    .with_hint(Some("leave the inner brackets out")));
            }
            other if allowed.identifiers() => {
                let node = self.as_identifier(other, inherited)?;
                Operand::Group(self.chain(node, inherited, Allowed::Identifiers)?)
            }
            other => {
                return Err(self.as_term(other).err().unwrap_or_else(|| self.no_operand(allowed)));
            }
        };
        if self.token.kind != Kind::Symbol(Symbol::Close) {
            return Err(self.unexpected("\"and\", \"or\" or \")\""));
        }
        self.advance()?;
        self.nesting -= 1;
        Ok(operand)
    }

    /// Accepts only a term.
    fn as_term(&mut self, operand: Operand) -> Parsed<(Node, Option<Qualifiers>)> {
        match operand {
            Operand::Term(node, qualifiers) => Ok((node, qualifiers)),
            Operand::Number(_, span) => {
                let message = "a number alone is not a filter";
                let hint = "write \"host\", \"port\" or \"proto\" before it";
                Err(self.no_comparison(span, message, hint))
            }
            Operand::Arithmetic(_, span) => Err(self.bare_arithmetic(span)),
            Operand::Identifier(_) | Operand::Group(_) => Err(self.no_operand(Allowed::Terms)),
        }
    }

    /// Accepts only an identifier.
    fn as_identifier(&mut self, operand: Operand, inherited: Option<Qualifiers>) -> Parsed<Node> {
        match operand {
            Operand::Identifier(node) | Operand::Group(node) | Operand::Term(node, _) => Ok(node),
            Operand::Number(value, span) => {
                self.identify((Identifier::Number(value), span), inherited)
            }
            Operand::Arithmetic(_, span) => Err(self.bare_arithmetic(span)),
        }
    }

    fn bare_arithmetic(&self, span: Range<usize>) -> Error {
        let message = "a byte expression alone is not a filter";
        self.no_comparison(span, message, "write \"!= 0\" after it to test for any bit")
    }

    /// The error for a missing comparison.
    fn no_comparison(&self, span: Range<usize>, message: &str, hint: &str) -> Error {
        match self.token.kind {
            Kind::End | Kind::Symbol(Symbol::And | Symbol::Or | Symbol::Close) => {
                Error::new(self.text, span, message)
                    .expected("a comparison, such as \"ip[8] < 5\"")
                    .with_hint(Some(hint))
            }
            _ => self.unexpected("an operator or a comparison"),
        }
    }

    /// A node of this primitive.
    fn primitive(&mut self, kind: PrimitiveKind, span: Range<usize>) -> Parsed<Node> {
        if self.options.reading == Reading::Scoped {
            return self.scoped_primitive(kind, span);
        }
        if let PrimitiveKind::Relation { left, right, .. } = &kind {
            let fault = computed_fault(left).or_else(|| computed_fault(right));
            let fault = fault.map(|refusal| self.refused(span.clone(), refusal));
            self.faults.extend(fault.map(|error| (self.primitives, error)));
        }
        self.primitives += 1;
        match self.compat.condition(&kind) {
            Ok(condition) => Ok(Node::Primitive(Primitive { kind, span, condition })),
            Err(refusal) => Err(self.refused(span, refusal)),
        }
    }

    fn refused(&self, span: Range<usize>, refusal: Refusal) -> Error {
        Error::new(self.text, span, refusal.message).with_hint(refusal.hint)
    }

    /// Takes the next token.
    fn advance(&mut self) -> Parsed<Token> {
        let next = self.lexer.next()?;
        let token = std::mem::replace(&mut self.token, next);
        self.end = token.span.end;
        self.before = token.kind.clone();
        Ok(token)
    }

    /// Takes the next token if it is this symbol.
    fn take(&mut self, symbol: Symbol) -> Parsed<bool> {
        let there = self.token.kind == Kind::Symbol(symbol);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    /// Counts one more open bracket.
    fn deeper(&mut self, place: Range<usize>) -> Parsed<()> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            let message = format!("more than {MAX_NESTING} brackets are open here");
            return Err(Error::new(self.text, place, message));
        }
        Ok(())
    }

    /// The error for a token that is not allowed here.
    fn unexpected(&self, expected: &str) -> Error {
        let shown = &self.text[self.token.span.clone()];
        let message = match self.token.kind {
            Kind::End => "the text ends too early".to_string(),
            _ => format!("\"{}\" is not expected here", shortened(shown)),
        };
        let nearest = match self.token.kind {
            Kind::Name => keywords::nearest(shown).map(did_you_mean),
            _ => None,
        };
        let hint = nearest.or_else(|| self.missing_qualifier(shown));
        Error::new(self.text, self.token.span.clone(), message).expected(expected).with_hint(hint)
    }

    /// Advice for a number, name or address that directly follows the name of a protocol.
    fn missing_qualifier(&self, shown: &str) -> Option<String> {
        let Kind::Keyword(before) = self.before else { return None };
        let what = match self.token.kind {
            Kind::Number(_) => "port",
            Kind::Name | Kind::Dotted | Kind::Ip6(_) => "host",
            _ => return None,
        };
        let advice = format!("did you mean \"{} {what} {}\"?", before.text(), shortened(shown));
        before.is_protocol().then_some(advice)
    }

    /// The error for a token that begins no operand.
    fn no_operand(&self, allowed: Allowed) -> Error {
        let shown = shortened(&self.text[self.token.span.clone()]);
        let error = |message| Error::new(self.text, self.token.span.clone(), message);
        let expected = match allowed {
            Allowed::Identifiers => "an address, a name or a number",
            _ => "a primitive, such as \"host 10.0.0.1\", \"tcp port 80\" or \"ip[8] < 5\"",
        };
        match self.token.kind {
            Kind::Name => {
                let nearest = || keywords::nearest(&shown).map(did_you_mean);
                let hint = keywords::elsewhere(&shown).map(str::to_string).or_else(nearest);
                error(format!("\"{shown}\" is not a word of the filter language")).with_hint(hint)
            }
            Kind::Dotted | Kind::Ip6(_) => {
                error(format!("\"{shown}\" has no qualifier such as \"host\" or \"port\""))
                    .with_hint(Some(format!("did you mean \"host {shown}\"?")))
            }
            Kind::Keyword(_) => error(format!("\"{shown}\" is a word of the filter language"))
                .with_hint(Some(format!("write \"\\{shown}\" for a name that is spelled like it"))),
            _ => return self.unexpected(expected),
        }
        .expected(expected)
    }
}

/// Joins `left and right` or `left or right`, flat.
fn joined(join: Symbol, mut left: Node, mut right: Node) -> Node {
    let mut operands = match (join, &mut left) {
        (Symbol::And, Node::All(operands)) | (Symbol::Or, Node::Any(operands)) => {
            std::mem::take(operands)
        }
        _ => {
            let mut operands = Vec::with_capacity(2);
            operands.push(left);
            operands
        }
    };
    match (join, &mut right) {
        (Symbol::And, Node::All(more)) | (Symbol::Or, Node::Any(more)) => operands.append(more),
        _ => operands.push(right),
    }
    if join == Symbol::And { Node::All(operands) } else { Node::Any(operands) }
}

/// Negates a node; two negations cancel out.
fn negation(mut node: Node) -> Node {
    match &mut node {
        Node::Not(inner) => std::mem::replace(&mut **inner, Node::Const(false)),
        _ => Node::Not(Box::new(node)),
    }
}

/// The reason why nothing matches, as text.
fn exclusion(root: &Node) -> &'static str {
    let asks_for_ip6 = |kind: &PrimitiveKind| {
        let of = PrimitiveKind::Protocol { carrier: Carrier::Link, number: ethertype::IPV6.into() };
        *kind == of
    };
    let reads_transport = |kind: &PrimitiveKind| match kind {
        PrimitiveKind::Relation { left, right, .. } => {
            left.reads_transport() || right.reads_transport()
        }
        _ => false,
    };
    let has = |is: &dyn Fn(&PrimitiveKind) -> bool| root.primitives().any(|one| is(&one.kind));
    match has(&asks_for_ip6) && has(&reads_transport) {
        true => {
            "\"tcp[…]\", \"udp[…]\" and their like read IPv4 only; \"ip6[40 + …]\" reads after the IPv6 header"
        }
        false => "its conditions exclude each other",
    }
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean \"{word}\"?")
}

/// A word, shortened for a message.
fn shortened(word: &str) -> String {
    const SHOWN: usize = 40;
    if word.chars().count() <= SHOWN {
        return word.to_string();
    }
    word.chars().take(SHOWN).chain(['…']).collect()
}
