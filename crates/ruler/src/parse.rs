//! Parser: tokens to [`Ast`], by recursive descent with one token of look-ahead; errors mark the first wrong token.
//!
//! Texts are bounded before they are parsed: size, nesting and number of rules have limits, and an error names the
//! limit that a text exceeds.

use crate::ast::{
    Action, Ast, BitField, Filter, Kind, Layout, Name, Part, PartKind, Pattern, Rule,
};
use crate::byte_set::ByteSet;
use crate::error::{Error, Span, Text};
use crate::lex::{Token, lex};

/// Maximum length of a text.
pub const MAX_TEXT_BYTES: usize = 64 << 20;
/// Maximum number of rules of a program.
pub const MAX_RULES: usize = 200_000;
/// Maximum nesting of groups.
pub const MAX_DEPTH: usize = 64;
/// Maximum repetition count, and maximum length of `V~N`, `V#N`.
pub const MAX_COUNT: u32 = 65_535;
/// Maximum number of texts of a program.
const MAX_INCLUDES: usize = 64;

/// Loads the text that an `include` names.
pub type Loader<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Words that cannot be names.
const RESERVED: &[&str] =
    &["accept", "bits", "bytes", "filter", "include", "layout", "reject", "with"];

type Parsed<T> = Result<T, Error>;

/// Parses the first text and all that it includes; appends the included ones to `texts`.
pub fn parse(texts: &mut Vec<Text>, load: &Loader<'_>) -> Parsed<Ast> {
    let mut ast = Ast::default();
    include(texts, 0, load, &mut ast)?;
    Ok(ast)
}

fn include(texts: &mut Vec<Text>, file: u32, load: &Loader<'_>, ast: &mut Ast) -> Parsed<()> {
    if texts[file as usize].text.len() > MAX_TEXT_BYTES {
        let message = format!("longer than {MAX_TEXT_BYTES} bytes");
        return Err(Error::new(texts, Span { file, ..Span::default() }, message));
    }
    let tokens = lex(texts, file)?;
    let mut at = 0;
    loop {
        let mut parser = Parser { texts, tokens: &tokens, at, depth: 0 };
        let wanted = parser.items(ast)?;
        at = parser.at;
        let Some((name, span)) = wanted else { return Ok(()) };
        if texts.iter().any(|text| text.name == name) {
            continue;
        }
        let text = match (name.as_str(), texts.len()) {
            (_, MAX_INCLUDES..) => Err(format!("more than {MAX_INCLUDES} texts")),
            ("layouts.rli", _) => Ok(crate::LAYOUTS.to_owned()),
            _ => load(&name),
        };
        let text = text.map_err(|why| Error::new(texts, span, format!("cannot include: {why}")))?;
        texts.push(Text { name, text });
        let number = u32::try_from(texts.len() - 1).unwrap_or(0);
        include(texts, number, load, ast)?;
    }
}

struct Parser<'a> {
    texts: &'a [Text],
    tokens: &'a [(Token, Span)],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1
    }

    /// Location of the previous token.
    fn before(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].1
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(given) if *given == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(given) if given == word)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        if is {
            self.next();
        }
        is
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        if is {
            self.next();
        }
        is
    }

    fn error(&self, span: Span, message: impl Into<String>) -> Error {
        Error::new(self.texts, span, message)
    }

    fn expected<T>(&self, what: &str) -> Parsed<T> {
        let given = match self.peek() {
            Token::Word(word) => format!("\"{word}\""),
            Token::Number(number) => format!("{number}"),
            Token::Sets(_) => "a string".to_owned(),
            Token::Class(_) => "a class".to_owned(),
            Token::Sign(sign) => format!("\"{sign}\""),
            Token::End => "the end".to_owned(),
        };
        Err(self.error(self.span(), format!("expected {what}, not {given}")))
    }

    fn sign(&mut self, sign: &'static str, after: &str) -> Parsed<()> {
        if self.take(sign) { Ok(()) } else { self.expected(&format!("\"{sign}\" {after}")) }
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        match self.peek() {
            Token::Word(word) if RESERVED.contains(&word.as_str()) => Err(self
                .error(self.span(), format!("\"{word}\" cannot be {what}: it is a reserved word"))),
            Token::Word(word) => {
                let name = Name { text: word.clone(), span: self.span() };
                self.next();
                Ok(name)
            }
            _ => self.expected(what),
        }
    }

    fn number(&mut self, what: &str) -> Parsed<u64> {
        match self.peek() {
            Token::Number(number) => {
                let number = *number;
                self.next();
                Ok(number)
            }
            _ => self.expected(what),
        }
    }

    fn count(&mut self, what: &str) -> Parsed<u32> {
        let span = self.span();
        let number = self.number(what)?;
        match u32::try_from(number) {
            Ok(number) if number <= MAX_COUNT => Ok(number),
            _ => Err(self.error(span, format!("{what} is at most {MAX_COUNT}"))),
        }
    }

    /// Parses items up to the end, or up to an include; returns the name of the included text.
    fn items(&mut self, ast: &mut Ast) -> Parsed<Option<(String, Span)>> {
        loop {
            match self.peek() {
                Token::End => return Ok(None),
                Token::Word(word) if word == "include" => {
                    self.next();
                    let span = self.span();
                    let Token::Sets(sets) = self.next() else {
                        self.at -= 1;
                        return self.expected("the name of a text in quotes");
                    };
                    self.take(";");
                    let bytes = sets.iter().filter_map(ByteSet::single).collect();
                    let name = String::from_utf8(bytes)
                        .map_err(|_| self.error(span, "the name of a text is UTF-8"))?;
                    return Ok(Some((name, span)));
                }
                Token::Word(word) if word == "layout" => {
                    self.next();
                    let name = self.name("the name of a layout")?;
                    self.sign("=", "after the name of the layout")?;
                    let pattern = self.pattern()?;
                    self.sign(";", "at the end of the layout")?;
                    ast.layouts.push(Layout { name, pattern });
                }
                Token::Word(word) if word == "filter" => {
                    let filter = self.filter()?;
                    ast.filters.push(filter);
                    if ast.filters.iter().map(|filter| filter.rules.len()).sum::<usize>()
                        > MAX_RULES
                    {
                        return Err(
                            self.error(self.before(), format!("more than {MAX_RULES} rules"))
                        );
                    }
                }
                _ => return self.expected("\"filter\", \"layout\" or \"include\""),
            }
        }
    }

    fn filter(&mut self) -> Parsed<Filter> {
        self.next();
        let name = self.name("the name of a filter")?;
        let mut links = Vec::new();
        if self.take_word("for") {
            links.push(self.name("a link type")?);
            while self.take(",") {
                links.push(self.name("a link type")?);
            }
            self.sign(":", "after the link types")?;
        }
        let mut rules = Vec::new();
        let item = |word: &str| matches!(word, "filter" | "layout" | "include");
        loop {
            match self.peek() {
                Token::End => break,
                Token::Word(word) if item(word) => break,
                _ => {}
            }
            let start = self.span();
            let pattern = self.pattern()?;
            self.sign("=>", "between pattern and action")?;
            let action = self.action()?;
            self.sign(";", "at the end of the rule")?;
            rules.push(Rule { pattern, action, span: start.to(self.before()) });
        }
        if rules.is_empty() {
            return self.expected(&format!("a rule of filter \"{}\"", name.text));
        }
        Ok(Filter { name, links, rules })
    }

    fn pattern(&mut self) -> Parsed<Pattern> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(self.span(), format!("nested deeper than {MAX_DEPTH}")));
        }
        let start = self.span();
        let mut branches = vec![self.sequence()?];
        while self.take("|") {
            branches.push(self.sequence()?);
        }
        self.depth -= 1;
        let span = start.to(self.before());
        Ok(match branches.len() {
            1 => branches.remove(0),
            _ => Pattern { kind: Kind::Alternation(branches), span },
        })
    }

    fn sequence(&mut self) -> Parsed<Pattern> {
        let start = self.span();
        let mut items = Vec::new();
        while self.starts_item() {
            items.push(self.item()?);
        }
        let span = start.to(if items.is_empty() { start } else { self.before() });
        Ok(match items.len() {
            1 => items.remove(0),
            _ => Pattern { kind: Kind::Sequence(items), span },
        })
    }

    fn starts_item(&self) -> bool {
        match self.peek() {
            Token::Word(word) => !matches!(word.as_str(), "filter" | "layout" | "include" | "with"),
            Token::Number(_) | Token::Sets(_) | Token::Class(_) => true,
            Token::Sign(sign) => matches!(*sign, "*" | "**" | "(" | "."),
            Token::End => false,
        }
    }

    /// Parses one element with its modifiers: a name before it, a count or constraints after it.
    fn item(&mut self) -> Parsed<Pattern> {
        let start = self.span();
        let named = matches!(self.tokens.get(self.at + 1), Some((Token::Sign(":"), _)));
        if matches!(self.peek(), Token::Word(_)) && named {
            let name = self.name("a name")?;
            self.next();
            if !self.starts_item() {
                return self.expected("a pattern after the name");
            }
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.error(start, format!("nested deeper than {MAX_DEPTH}")));
            }
            let inner = self.item()?;
            self.depth -= 1;
            let span = start.to(inner.span);
            return Ok(Pattern { kind: Kind::Named(name, Box::new(inner)), span });
        }
        let mut pattern = self.element()?;
        while let Some(kind) = self.suffix(&pattern)? {
            pattern = Pattern { kind, span: start.to(self.before()) };
        }
        Ok(pattern)
    }

    fn suffix(&mut self, pattern: &Pattern) -> Parsed<Option<Kind>> {
        if self.take_word("with") {
            let fields = self.fields(Self::pattern)?;
            return Ok(Some(Kind::With(Box::new(pattern.clone()), fields)));
        }
        let (min, max) = match self.peek() {
            Token::Sign("+") => (1, None),
            Token::Sign("?") => (0, Some(1)),
            Token::Sign("#") => {
                self.next();
                let count = self.count("the number of times")?;
                return Ok(Some(repeat(pattern, count, Some(count), true)));
            }
            Token::Sign("{") => return self.counts(pattern).map(Some),
            _ => return Ok(None),
        };
        self.next();
        let greedy = !self.take("?");
        Ok(Some(repeat(pattern, min, max, greedy)))
    }

    fn counts(&mut self, pattern: &Pattern) -> Parsed<Kind> {
        self.next();
        let span = self.span();
        let min = self.count("a count")?;
        let mut max = Some(min);
        if self.take(",") {
            max = if self.is("}") { None } else { Some(self.count("a count")?) };
        }
        self.sign("}", "after the count")?;
        if max.is_some_and(|max| max < min) {
            return Err(self.error(span.to(self.before()), "counts go from low to high"));
        }
        let greedy = !self.take("?");
        Ok(repeat(pattern, min, max, greedy))
    }

    fn fields<T>(&mut self, value: fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<(Name, T)>> {
        self.sign("[", "after \"with\"")?;
        let mut fields = Vec::new();
        loop {
            let name = self.name("the name of a field")?;
            self.sign("=", "after the name of the field")?;
            fields.push((name, value(self)?));
            if self.take("]") {
                return Ok(fields);
            }
            if !self.take(",") {
                return self.expected("\",\" or \"]\"");
            }
        }
    }

    fn element(&mut self) -> Parsed<Pattern> {
        let start = self.span();
        let kind = match self.next() {
            Token::Sets(sets) => Kind::Sets(sets),
            Token::Class(set) => Kind::Sets(vec![set]),
            Token::Sign(".") => Kind::Sets(vec![ByteSet::ALL]),
            Token::Sign("*") => Kind::Any { greedy: false },
            Token::Sign("**") => Kind::Any { greedy: true },
            Token::Number(low) => self.value(start, low)?,
            Token::Sign("(") => {
                let inner = self.pattern()?;
                self.sign(")", "to close the group")?;
                inner.kind
            }
            Token::Word(word) if word == "bits" && self.is("(") => self.bits()?,
            Token::Word(word) if word == "bytes" && self.is("(") => self.bytes()?,
            _ => {
                self.at -= 1;
                Kind::Layout(self.name("the name of a layout")?)
            }
        };
        Ok(Pattern { kind, span: start.to(self.before()) })
    }

    /// Parses `V`, `V~N`, `V#N`, `V..W`, `V..W~N`.
    fn value(&mut self, start: Span, low: u64) -> Parsed<Kind> {
        if self.take("..") {
            let high = self.number("the end of the range")?;
            if high < low {
                return Err(self.error(start.to(self.before()), "a range goes from low to high"));
            }
            let size = if self.take("~") { Some(self.count("the number of bytes")?) } else { None };
            return Ok(Kind::Range(low, high, size));
        }
        match self.sized(start, low)? {
            Some(bytes) => Ok(Kind::Sets(bytes.into_iter().map(ByteSet::one).collect())),
            None => Ok(Kind::Number(low)),
        }
    }

    /// Bytes of `V~N` or `V#N`; none if there is only a number.
    fn sized(&mut self, start: Span, value: u64) -> Parsed<Option<Vec<u8>>> {
        if self.take("~") {
            let size = self.count("the number of bytes")?;
            let bytes = crate::byte_range::big_endian(value, size as usize);
            return match bytes {
                Some(bytes) => Ok(Some(bytes)),
                None => Err(self.error(start, format!("{value} does not fit into {size} bytes"))),
            };
        }
        if self.take("#") {
            let count = self.count("the number of times")?;
            return match u8::try_from(value) {
                Ok(byte) => Ok(Some(vec![byte; count as usize])),
                Err(_) => Err(self.error(start, "V#N repeats a byte: V is at most 255")),
            };
        }
        Ok(None)
    }

    fn bits(&mut self) -> Parsed<Kind> {
        let start = self.span();
        self.next();
        let (mut fields, mut total) = (Vec::new(), 0);
        while !self.take(")") {
            let name = self.name("the name of a bit field, or _")?;
            self.sign(":", "and a number of bits")?;
            let span = self.span();
            let width = self.count("the number of bits")?;
            if width == 0 || width > 64 {
                return Err(self.error(span, "a bit field has 1 to 64 bits"));
            }
            let value = if self.take("=") { Some(self.number("a value")?) } else { None };
            if value.is_some_and(|value| width < 64 && value >> width != 0) {
                return Err(self.error(self.before(), format!("does not fit into {width} bits")));
            }
            total += width;
            fields.push(BitField { name, width, value });
        }
        if total == 0 || total % 8 != 0 {
            let message = format!("{total} bits are not whole bytes");
            return Err(self.error(start.to(self.before()), message));
        }
        Ok(Kind::Bits(fields))
    }

    /// Parses `bytes(field * 4 - 20, max 40)`.
    fn bytes(&mut self) -> Parsed<Kind> {
        self.next();
        let field = self.name("the field that contains the length")?;
        let factor = if self.take("*") { self.count("a factor")? } else { 1 };
        let sign = match self.peek() {
            Token::Sign("+") => 1,
            Token::Sign("-") => -1,
            _ => 0,
        };
        let mut offset = 0;
        if sign != 0 {
            self.next();
            offset = sign * i64::from(self.count("a number of bytes")?);
        }
        let mut max = None;
        if self.take(",") {
            if !self.take_word("max") {
                return self.expected("\"max\" and a number of bytes");
            }
            max = Some(self.count("a number of bytes")?);
        }
        self.sign(")", "after the number of bytes")?;
        Ok(Kind::Bytes { field, factor, offset, max })
    }

    fn action(&mut self) -> Parsed<Action> {
        if self.take_word("reject") {
            return Ok(Action::Reject);
        }
        if self.take_word("accept") {
            if !matches!(self.peek(), Token::Number(_)) {
                return Ok(Action::Accept(None));
            }
            let span = self.span();
            let class = self.number("a class value")?;
            return match u32::try_from(class) {
                Ok(class) => Ok(Action::Accept(Some(class))),
                Err(_) => Err(self.error(span, "a class value is below 2^32")),
            };
        }
        let mut parts = Vec::new();
        while !self.is(";") && !self.is_word("fix") {
            parts.push(self.part(true)?);
        }
        let (mut fix_lengths, mut fix_checksums) = (false, false);
        if self.take_word("fix") {
            while !self.is(";") {
                if self.take_word("lengths") {
                    fix_lengths = true;
                } else if self.take_word("checksums") {
                    fix_checksums = true;
                } else {
                    return self.expected("\"lengths\", \"checksums\" or \";\"");
                }
            }
        }
        Ok(Action::Rewrite { parts, fix_lengths, fix_checksums })
    }

    fn part(&mut self, with: bool) -> Parsed<Part> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(self.span(), format!("nested deeper than {MAX_DEPTH}")));
        }
        let start = self.span();
        let kind = match self.next() {
            Token::Sets(sets) => match sets.iter().map(ByteSet::single).collect() {
                Some(bytes) => PartKind::Literal(bytes),
                None => return Err(self.error(start, "new bytes must have exactly one value each")),
            },
            Token::Number(value) => match self.sized(start, value)? {
                Some(bytes) => PartKind::Literal(bytes),
                None => PartKind::Number(value),
            },
            Token::Word(_) => {
                self.at -= 1;
                self.reference(with)?
            }
            _ => {
                self.at -= 1;
                return self.expected("\"accept\", \"reject\", a name, bytes or \";\"");
            }
        };
        self.depth -= 1;
        Ok(Part { kind, span: start.to(self.before()) })
    }

    /// Parses `name`, `name.field`, `name with […]`, `word(…)`.
    fn reference(&mut self, with: bool) -> Parsed<PartKind> {
        let name = self.name("a name")?;
        if self.take("(") {
            let mut arguments = vec![self.part(true)?];
            while self.take(",") {
                arguments.push(self.part(true)?);
            }
            self.sign(")", "after the arguments")?;
            return Ok(PartKind::Call(name, arguments));
        }
        let mut path = vec![name];
        while self.take(".") {
            path.push(self.name("the name of a field")?);
        }
        if with && self.take_word("with") {
            return Ok(PartKind::With(path, self.fields(|parser| parser.part(false))?));
        }
        Ok(PartKind::Copy(path))
    }
}

fn repeat(pattern: &Pattern, min: u32, max: Option<u32>, greedy: bool) -> Kind {
    Kind::Repeat { pattern: Box::new(pattern.clone()), min, max, greedy }
}
