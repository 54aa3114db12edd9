//! The right-hand side of a rule: resolves names to slots and functions, and checks sizes.

use crate::ast;
use crate::ast::{Name, PartKind};
use crate::byte_range::big_endian;
use crate::error::{Error, Span};
use crate::program::{Action, Function, Overwrite, Part, Value};
use crate::resolve::{Names, closest};

/// Functions and their effects, for messages and documents. "As many" refers to the bytes of the part.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("zero", "as many zeros"),
    ("random", "as many unpredictable bytes"),
    ("hash", "as many bytes of a keyed hash"),
    ("hashtext", "as many lower-case letters of a keyed hash"),
    (
        "prefix",
        "a prefix-preserving IPv4 or IPv6 address, never the same (Crypto-PAn, first byte changed)",
    ),
    (
        "cryptopan",
        "a prefix-preserving address by Crypto-PAn as published: a few addresses do not change",
    ),
    ("mac", "a link address from a keyed hash"),
    ("fill", "as many bytes of a pattern: fill(part, \"x\")"),
];

impl Names<'_> {
    /// Resolves an action and returns which slots it uses.
    pub fn action(&self, action: &ast::Action) -> Result<(Action, Vec<bool>), Error> {
        let mut used = vec![false; self.slots.len()];
        let action = match action {
            ast::Action::Accept(class) => Action::Accept(*class),
            ast::Action::Reject => Action::Reject,
            ast::Action::Rewrite { parts, fix_lengths, fix_checksums } => {
                let parts = parts.iter().map(|part| self.part(part, None));
                let parts: Vec<Part> = parts.collect::<Result<_, Error>>()?;
                parts.iter().for_each(|part| mark(part, &mut used));
                Action::Rewrite { parts, fix_lengths: *fix_lengths, fix_checksums: *fix_checksums }
            }
        };
        Ok((action, used))
    }

    fn error(&self, span: Span, message: impl Into<String>) -> Error {
        Error::new(self.texts, span, message)
    }

    /// Resolves a part; inside `base with […]`, a name is first searched for among the fields of the base.
    fn part(&self, part: &ast::Part, base: Option<&str>) -> Result<Part, Error> {
        match &part.kind {
            PartKind::Literal(bytes) => Ok(Part::Literal(bytes.clone())),
            PartKind::Number(value) => Err(self
                .error(part.span, "a number needs a size here")
                .hint(format!("{value}~2 is {value} in two bytes"))),
            PartKind::Copy(path) => Ok(Part::Copy(self.slot(path, base)?)),
            PartKind::With(path, fields) => {
                let slot = self.slot(path, base)?;
                let mut overwrites = Vec::new();
                for (field, value) in fields {
                    overwrites.push(self.overwrite(path, field, value)?);
                }
                Ok(Part::With(slot, overwrites))
            }
            PartKind::Call(name, arguments) => self.call(name, arguments, base, part.span),
        }
    }

    fn find(&self, path: &str) -> Option<u32> {
        let at = self.slots.iter().position(|slot| slot.path == path)?;
        u32::try_from(at).ok()
    }

    fn slot(&self, path: &[Name], base: Option<&str>) -> Result<u32, Error> {
        let text = text_of(path);
        let inner = base.and_then(|base| self.find(&format!("{base}.{text}")));
        let Some(slot) = inner.or_else(|| self.find(&text)) else {
            let error = self.error(path[0].span, format!("\"{text}\" is not named in the pattern"));
            let known = self.slots.iter().map(|slot| slot.path.as_str());
            return Err(match closest(&text, known.filter(|path| !path.contains('@'))) {
                _ if self.bits.contains_key(&text) => {
                    error.hint("bits can be overwritten, not copied")
                }
                Some(near) => error.hint(format!("did you mean \"{near}\"?")),
                None => error,
            });
        };
        Ok(slot)
    }

    fn overwrite(
        &self,
        base: &[Name],
        field: &Name,
        value: &ast::Part,
    ) -> Result<Overwrite, Error> {
        let base = text_of(base);
        let path = format!("{base}.{}", field.text);
        if let Some(place) = self.bits.get(&path) {
            let PartKind::Number(number) = value.kind else {
                return Err(self.error(value.span, "bits are overwritten with a number"));
            };
            if place.width < 64 && number >> place.width != 0 {
                let message = format!("{number} does not fit into {} bits", place.width);
                return Err(self.error(value.span, message));
            }
            let value = Value::Bits { first: place.first, width: place.width, value: number };
            return Ok(Overwrite { slot: place.slot, value });
        }
        let Some(slot) = self.find(&path) else {
            let error =
                self.error(field.span, format!("\"{base}\" has no field \"{}\"", field.text));
            let prefix = format!("{base}.");
            let known = self.slots.iter().filter_map(|slot| slot.path.strip_prefix(&prefix));
            return Err(match closest(&field.text, known.filter(|path| !path.contains('@'))) {
                Some(near) => error.hint(format!("did you mean \"{near}\"?")),
                None => error,
            });
        };
        let len = self.slots[slot as usize].len;
        let part = match (&value.kind, len) {
            (PartKind::Number(number), Some(len)) => {
                let bytes = big_endian(*number, usize::try_from(len).unwrap_or(0));
                let message = format!("{number} does not fit into {len} bytes");
                Part::Literal(bytes.ok_or_else(|| self.error(value.span, message))?)
            }
            _ => self.part(value, Some(&base))?,
        };
        if let (Part::Literal(bytes), Some(len)) = (&part, len)
            && bytes.len() as u64 != len
        {
            let message = format!("the field has {len} bytes, but this value has {}", bytes.len());
            return Err(self.error(value.span, message));
        }
        Ok(Overwrite { slot, value: Value::Part(part) })
    }

    fn call(
        &self,
        name: &Name,
        arguments: &[ast::Part],
        base: Option<&str>,
        span: Span,
    ) -> Result<Part, Error> {
        let Some((first, rest)) = arguments.split_first() else {
            return Err(self.error(span, "expected a part"));
        };
        let inner = Box::new(self.part(first, base)?);
        let len = match &*inner {
            Part::Copy(slot) => self.slots[*slot as usize].len,
            _ => None,
        };
        let function = match name.text.as_str() {
            "zero" => Function::Zero,
            "random" => Function::Random,
            "hash" => Function::Hash,
            "hashtext" => Function::HashText,
            "prefix" if matches!(len, Some(4 | 16)) => Function::Prefix,
            "cryptopan" if matches!(len, Some(4 | 16)) => Function::CryptoPan,
            word @ ("prefix" | "cryptopan") => {
                let message =
                    format!("{word}() takes a field of 4 bytes (IPv4) or 16 bytes (IPv6)");
                return Err(self.error(first.span, message));
            }
            "mac" => Function::Mac,
            "fill" => match rest.first().map(|part| &part.kind) {
                Some(PartKind::Literal(bytes)) if !bytes.is_empty() => {
                    Function::Fill(bytes.clone())
                }
                _ => return Err(self.error(span, "fill() takes a part and bytes: fill(p, \"x\")")),
            },
            word => match self.filters.get(word) {
                Some(filter) => return self.alone(rest).map(|()| Part::Filter(*filter, inner)),
                None => return Err(self.unknown_function(name)),
            },
        };
        let arguments = if matches!(function, Function::Fill(_)) { &rest[1..] } else { rest };
        self.alone(arguments)?;
        Ok(Part::Apply(function, inner))
    }

    fn alone(&self, rest: &[ast::Part]) -> Result<(), Error> {
        match rest.first() {
            None => Ok(()),
            Some(extra) => Err(self.error(extra.span, "one argument too many")),
        }
    }

    fn unknown_function(&self, name: &Name) -> Error {
        let message = format!("\"{}\" is not a function or a filter", name.text);
        let error = self.error(name.span, message);
        let known = FUNCTIONS.iter().map(|(name, _)| *name).chain(self.filters.keys().copied());
        match closest(&name.text, known) {
            Some(near) => error.hint(format!("did you mean \"{near}\"?")),
            None => {
                let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
                error.hint(format!("functions: {}", names.join(", ")))
            }
        }
    }
}

fn text_of(path: &[Name]) -> String {
    let words: Vec<&str> = path.iter().map(|name| name.text.as_str()).collect();
    words.join(".")
}

fn mark(part: &Part, used: &mut [bool]) {
    match part {
        Part::Literal(_) => {}
        Part::Copy(slot) => used[*slot as usize] = true,
        Part::With(slot, overwrites) => {
            used[*slot as usize] = true;
            for overwrite in overwrites {
                used[overwrite.slot as usize] = true;
                if let Value::Part(part) = &overwrite.value {
                    mark(part, used);
                }
            }
        }
        Part::Apply(_, part) | Part::Filter(_, part) => mark(part, used),
    }
}
