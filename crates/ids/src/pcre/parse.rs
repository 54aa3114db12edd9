//! Reads the syntax of PCRE.
//!
//! What is there but not judged exactly is an error with its name: recursion, conditions, callouts, verbs, `\K`, `\G`,
//! `\X`, `\C` and Unicode properties. Depth and counts are bounded.

mod class;

use super::ast::{Flags, Kind, Node, Place};
use class::{class, escaped_set, word};
use fyke_ruler::byte_set::ByteSet;

/// Deepest nesting of groups.
const MAX_DEPTH: u32 = 100;
/// Largest count of a repetition, as in PCRE.
const MAX_COUNT: u32 = 65_535;
/// Most groups with a number.
const MAX_GROUPS: u32 = 1000;

/// Reads a pattern: the tree, and the number of its groups.
pub fn parse(text: &[u8], flags: Flags) -> Result<(Node, u32), String> {
    let mut parser = Parser {
        text,
        at: 0,
        flags,
        groups: 0,
        names: Vec::new(),
        depth: 0,
        references: Vec::new(),
    };
    let node = parser.alternation()?;
    if parser.at < text.len() {
        return Err("\")\" without \"(\"".to_owned());
    }
    if let Some(wrong) = parser.references.iter().find(|group| **group > parser.groups) {
        return Err(format!("\\{wrong} refers to a group that is not there"));
    }
    Ok((node, parser.groups))
}

pub(super) struct Parser<'t> {
    pub(super) text: &'t [u8],
    pub(super) at: usize,
    pub(super) flags: Flags,
    groups: u32,
    names: Vec<(&'t [u8], u32)>,
    depth: u32,
    references: Vec<u32>,
}

impl<'t> Parser<'t> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn take(&mut self, text: &[u8]) -> bool {
        let there = self.text[self.at..].starts_with(text);
        self.at += if there { text.len() } else { 0 };
        there
    }

    /// Takes the text up to a byte, and that byte.
    pub(super) fn until(&mut self, end: u8) -> Result<&'t [u8], String> {
        let rest = &self.text[self.at..];
        let Some(len) = rest.iter().position(|byte| *byte == end) else {
            return Err(format!("\"{}\" is missing", char::from(end)));
        };
        self.at += len + 1;
        Ok(&rest[..len])
    }

    fn alternation(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("groups are nested deeper than {MAX_DEPTH}"));
        }
        let mut branches = vec![self.sequence()?];
        while self.take(b"|") {
            branches.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if branches.len() == 1 { branches.remove(0) } else { Node::Alternation(branches) })
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut nodes = Vec::new();
        // True if a quantifier may follow: not after another one, a place or flags.
        let mut repeats = false;
        loop {
            self.skip_ignored()?;
            if self.peek().is_none_or(|byte| b"|)".contains(&byte)) {
                break;
            }
            if let Some((min, max)) = self.counts()? {
                let node = nodes.pop().filter(|_| repeats);
                let node = node.ok_or("a quantifier does not follow what it could repeat")?;
                nodes.push(self.repeated(node, min, max)?);
                repeats = false;
                continue;
            }
            if self.take(b"\\Q") {
                let rest = &self.text[self.at..];
                let len = memchr::memmem::find(rest, b"\\E").unwrap_or(rest.len());
                nodes.extend(rest[..len].iter().map(|byte| self.letter(*byte)));
                repeats |= len > 0;
                self.at += len;
                continue;
            }
            let start = self.at;
            let node = self.atom()?;
            repeats = node.is_some() && !is_place(&self.text[start..]);
            nodes.extend(node);
        }
        Ok(match nodes.len() {
            0 => Node::Empty,
            1 => nodes.remove(0),
            _ => Node::Sequence(nodes),
        })
    }

    /// Skips what may be between a part and its quantifier, or between that and its `+` or `?`.
    fn skip_ignored(&mut self) -> Result<(), String> {
        loop {
            if self.take(b"(?#") {
                self.until(b')')?;
            } else if !(self.take(b"\\Q\\E") || self.take(b"\\E") || self.skip_blank()) {
                return Ok(());
            }
        }
    }

    /// Skips a space or a comment, where flags make them no part of the pattern.
    fn skip_blank(&mut self) -> bool {
        let Some(byte) = self.peek().filter(|_| self.flags.extended) else { return false };
        if byte == b'#' {
            let rest = &self.text[self.at..];
            self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            return true;
        }
        let blank = byte.is_ascii_whitespace() || byte == 0x0b;
        self.at += usize::from(blank);
        blank
    }

    /// A byte that means itself.
    fn letter(&self, byte: u8) -> Node {
        let set = if self.flags.caseless { ByteSet::folded(byte) } else { ByteSet::one(byte) };
        Node::Set(Box::new(set))
    }

    /// One part without its repetition; none for a part that only sets flags.
    fn atom(&mut self) -> Result<Option<Node>, String> {
        let Some(byte) = self.next() else { return Ok(None) };
        let set = |set: ByteSet| Ok(Some(Node::Set(Box::new(set))));
        match byte {
            b'.' => set(match self.flags.dot_all {
                true => ByteSet::ALL,
                false => (0..=u8::MAX).filter(|byte| *byte != b'\n').collect(),
            }),
            b'^' => {
                let place = if self.flags.multi_line { Place::LineStart } else { Place::Start };
                Ok(Some(Node::At(place)))
            }
            b'$' => Ok(Some(Node::At(match () {
                () if self.flags.multi_line => Place::LineEnd,
                () if self.flags.dollar_end_only => Place::End,
                () => Place::LastLine,
            }))),
            b'[' => set(class(self)?),
            b'(' => self.group(),
            b'\\' => self.escape().map(Some),
            _ => Ok(Some(self.letter(byte))),
        }
    }

    /// An escape outside of a class; the backslash is taken.
    fn escape(&mut self) -> Result<Node, String> {
        let Some(byte) = self.peek() else {
            return Err("the pattern ends with a backslash".to_owned());
        };
        if let Some(set) = escaped_set(byte) {
            self.at += 1;
            return Ok(Node::Set(Box::new(set)));
        }
        let place = match byte {
            b'b' => Some(Place::Boundary),
            b'B' => Some(Place::NoBoundary),
            b'A' => Some(Place::Start),
            b'Z' => Some(Place::LastLine),
            b'z' => Some(Place::End),
            _ => None,
        };
        if let Some(place) = place {
            self.at += 1;
            return Ok(Node::At(place));
        }
        match byte {
            b'R' => {
                self.at += 1;
                let one: ByteSet = [b'\n', 0x0b, 0x0c, b'\r', 0x85].into_iter().collect();
                let both = Node::Sequence(vec![
                    Node::Set(Box::new(ByteSet::one(b'\r'))),
                    Node::Set(Box::new(ByteSet::one(b'\n'))),
                ]);
                Ok(Node::Atomic(Box::new(Node::Alternation(vec![both, Node::Set(Box::new(one))]))))
            }
            b'1'..=b'9' => self.numbered(),
            b'g' => self.named_reference(),
            b'k' => {
                self.at += 1;
                let end = match self.next() {
                    Some(b'<') => b'>',
                    Some(b'{') => b'}',
                    Some(b'\'') => b'\'',
                    _ => return Err("\\k: expected a name".to_owned()),
                };
                let name = self.until(end)?;
                self.back_to(name)
            }
            _ => {
                let byte = class::escaped_byte(self)?;
                Ok(self.letter(byte))
            }
        }
    }

    /// `\1`: a back reference if there is such a group or it has one digit, an octal number otherwise.
    fn numbered(&mut self) -> Result<Node, String> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&self.text[self.at..self.at + digits]).unwrap_or_default();
        let number: u32 = number.parse().map_err(|_| format!("\\{number} is no group"))?;
        if number < 10 || number <= self.groups {
            self.at += digits;
            return Ok(self.back(number));
        }
        let byte = class::escaped_byte(self)?;
        Ok(self.letter(byte))
    }

    fn back(&mut self, group: u32) -> Node {
        self.references.push(group);
        Node::Back(group, self.flags.caseless)
    }

    fn back_to(&mut self, name: &[u8]) -> Result<Node, String> {
        let found = self.names.iter().find(|(own, _)| *own == name).map(|(_, group)| *group);
        let group = found.ok_or_else(|| format!("no group {}", String::from_utf8_lossy(name)))?;
        Ok(self.back(group))
    }

    /// `\g1`, `\g{1}`, `\g{-1}`, `\g{name}`.
    fn named_reference(&mut self) -> Result<Node, String> {
        self.at += 1;
        let text = if self.take(b"{") {
            self.until(b'}')?
        } else {
            let rest = &self.text[self.at..];
            let len =
                rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
            self.at += len;
            &rest[..len]
        };
        let number: Option<i64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let group = match number {
            Some(number) if number < 0 => i64::from(self.groups) + 1 + number,
            Some(number) => number,
            None => return self.back_to(text),
        };
        let group = u32::try_from(group).ok().filter(|group| (1..=MAX_GROUPS).contains(group));
        let group =
            group.ok_or_else(|| format!("\\g{} is no group", String::from_utf8_lossy(text)))?;
        Ok(self.back(group))
    }

    fn close(&mut self, node: Node) -> Result<Node, String> {
        if self.take(b")") { Ok(node) } else { Err("\")\" is missing".to_owned()) }
    }

    /// The inside of a group with the flags that are valid in it, and its end.
    fn inside(&mut self, flags: Flags) -> Result<Node, String> {
        let before = std::mem::replace(&mut self.flags, flags);
        let node = self.alternation()?;
        self.flags = before;
        self.close(node)
    }

    /// A group; its parenthesis is taken.
    fn group(&mut self) -> Result<Option<Node>, String> {
        let flags = self.flags;
        if self.peek() == Some(b'*') {
            return Err("verbs, as (*ANY), are not judged".to_owned());
        }
        if !self.take(b"?") {
            return self.numbered_group(None).map(Some);
        }
        if self.take(b":") {
            return self.inside(flags).map(Some);
        }
        if self.take(b">") {
            return Ok(Some(Node::Atomic(Box::new(self.inside(flags)?))));
        }
        for (text, is_behind, negated) in [
            (&b"="[..], false, false),
            (b"!", false, true),
            (b"<=", true, false),
            (b"<!", true, true),
        ] {
            if self.take(text) {
                let node = self.inside(flags)?;
                return if is_behind { behind(node, negated) } else { ahead(node, negated) }
                    .map(Some);
            }
        }
        for (text, end) in [(&b"P<"[..], b'>'), (b"<", b'>'), (b"'", b'\'')] {
            if self.take(text) {
                let name = self.until(end)?;
                if name.is_empty() || !name.iter().all(|byte| word().contains(*byte)) {
                    return Err("the name of a group is missing".to_owned());
                }
                return self.numbered_group(Some(name)).map(Some);
            }
        }
        if self.take(b"P=") {
            let name = self.until(b')')?;
            return self.back_to(name).map(Some);
        }
        self.flag_group()
    }

    fn numbered_group(&mut self, name: Option<&'t [u8]>) -> Result<Node, String> {
        self.groups += 1;
        if self.groups > MAX_GROUPS {
            return Err(format!("more than {MAX_GROUPS} groups"));
        }
        let number = self.groups;
        self.names.extend(name.map(|name| (name, number)));
        let node = self.inside(self.flags)?;
        Ok(Node::Group(number, Box::new(node)))
    }

    /// `(?i)`, `(?i:…)`.
    fn flag_group(&mut self) -> Result<Option<Node>, String> {
        let mut flags = self.flags;
        let mut on = true;
        loop {
            match self.next() {
                Some(b'-') => on = false,
                Some(b'i') => flags.caseless = on,
                Some(b's') => flags.dot_all = on,
                Some(b'm') => flags.multi_line = on,
                Some(b'x') => flags.extended = on,
                Some(b'U') => flags.ungreedy = on,
                Some(b':') => return self.inside(flags).map(Some),
                Some(b')') => {
                    self.flags = flags;
                    return Ok(None);
                }
                Some(byte) => {
                    let byte = char::from(byte).escape_default();
                    return Err(format!("groups that begin with (?{byte} are not judged"));
                }
                None => return Err("\")\" is missing".to_owned()),
            }
        }
    }

    /// A part with its repetition; the counts are taken.
    fn repeated(&mut self, node: Node, min: u32, max: Option<u32>) -> Result<Node, String> {
        self.skip_ignored()?;
        let kind = match () {
            () if self.take(b"+") => Kind::Possessive,
            () if self.take(b"?") != self.flags.ungreedy => Kind::Lazy,
            () => Kind::Greedy,
        };
        Ok(match node {
            // A place that is repeated is there once, or not at all.
            Node::At(_) | Node::Look { .. } if min == 0 => {
                Node::Alternation(vec![node, Node::Empty])
            }
            Node::At(_) | Node::Look { .. } => node,
            node => Node::Repeat { node: Box::new(node), min, max, kind },
        })
    }

    /// `*`, `+`, `?`, `{1}`, `{1,}`, `{1,2}`; anything else in braces means itself.
    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        for (text, counts) in [(&b"*"[..], (0, None)), (b"+", (1, None)), (b"?", (0, Some(1)))] {
            if self.take(text) {
                return Ok(Some(counts));
            }
        }
        let Some(inside) = self.text[self.at..].strip_prefix(b"{") else { return Ok(None) };
        let Some(len) = inside.iter().position(|byte| *byte == b'}') else { return Ok(None) };
        let inside = std::str::from_utf8(&inside[..len]).unwrap_or_default();
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (low, high) = match inside.split_once(',') {
            None if digits(inside) => (inside, Some(inside)),
            Some((low, "")) if digits(low) => (low, None),
            Some((low, high)) if digits(low) && digits(high) => (low, Some(high)),
            _ => return Ok(None),
        };
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| *number <= MAX_COUNT);
            number.ok_or_else(|| format!("{{{inside}}}: at most {MAX_COUNT} repetitions"))
        };
        let (low, high) = (number(low)?, high.map(number).transpose()?);
        if high.is_some_and(|high| high < low) {
            return Err(format!("{{{inside}}}: the second number is smaller"));
        }
        self.at += len + 2;
        Ok(Some((low, high)))
    }
}

/// True if a text begins with a place, which has no length and cannot be repeated.
fn is_place(text: &[u8]) -> bool {
    match text {
        [b'^' | b'$', ..] => true,
        [b'\\', letter, ..] => b"bBAZz".contains(letter),
        _ => false,
    }
}

fn ahead(node: Node, negated: bool) -> Result<Node, String> {
    Ok(Node::Look { node: Box::new(node), behind: None, negated })
}

/// A lookbehind: each alternative has a length of its own.
fn behind(node: Node, negated: bool) -> Result<Node, String> {
    let branches = match node {
        Node::Alternation(branches) => branches,
        one => vec![one],
    };
    let look = |node: Node| {
        let length = node.fixed_len().ok_or("the length of a lookbehind is not fixed")?;
        Ok(Node::Look { node: Box::new(node), behind: Some(length), negated })
    };
    let mut looks = branches.into_iter().map(look).collect::<Result<Vec<Node>, String>>()?;
    Ok(match looks.len() {
        1 => looks.remove(0),
        _ if negated => Node::Sequence(looks),
        _ => Node::Alternation(looks),
    })
}
