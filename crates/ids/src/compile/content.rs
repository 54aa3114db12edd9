//! Contents with their modifiers, `pcre`, `isdataat`, `bsize` and `urilen`.

use super::number::{Ends, bound, within};
use super::{Builder, Dialect};
use crate::buffer::Buffer;
use crate::pcre::{Flags, Pattern};
use crate::read::RawOption;
use crate::rule::{Content, Pcre, Test, Value};
use memchr::memmem::Finder;
use std::sync::Arc;

/// Largest place or length.
const MOST: i64 = 65_535;

/// The last content, and the modifiers that it has.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    list: usize,
    at: usize,
    seen: Vec<String>,
    offset: Option<Value>,
    depth: Option<Value>,
    distance: Option<Value>,
    within: Option<Value>,
}

impl Builder {
    /// Reads an option of this file; false if it is none.
    pub(super) fn content_option(&mut self, option: &RawOption) -> Result<bool, String> {
        let name = &*option.name;
        match name {
            "content" | "uricontent" => {
                self.content(option)?;
                if name == "uricontent" {
                    self.assign(Buffer::HttpUri, "")?;
                }
            }
            "nocase" | "offset" | "depth" | "distance" | "within" | "fast_pattern"
            | "startswith" | "endswith" | "rawbytes" => self.modifier(name, option.text()?)?,
            "pcre" => self.pcre(&option.value)?,
            "isdataat" => self.is_data_at(option.text()?)?,
            "bsize" | "bufferlen" => {
                let test = Test::Len(bound(option.text()?, u32::MAX.into(), self.ends())?);
                if self.sticky.is_none() {
                    return Err("no buffer precedes it".to_owned());
                }
                self.push(test)?;
            }
            "tls.fingerprint" => self.text_of(Buffer::TlsFingerprint, &option.value, true)?,
            "tls.subject" => self.text_of(Buffer::TlsSubject, &option.value, false)?,
            "tls.issuerdn" => self.text_of(Buffer::TlsIssuer, &option.value, false)?,
            "urilen" => self.uri_len(option.text()?)?,
            "prefilter" => {
                option.text()?;
            }
            "replace" => return Err("packets are not changed".to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Snort's ranges contain their ends.
    pub(super) fn ends(&self) -> Ends {
        if self.dialect == Dialect::Suricata { Ends::Outside } else { Ends::Inside }
    }

    fn content(&mut self, option: &RawOption) -> Result<(), String> {
        self.settle()?;
        let (negated, text) = negation(&option.value);
        let inside = text.strip_prefix(b"\"").ok_or("expected the content in quotation marks")?;
        let end = closing_quote(inside).ok_or("the quotation mark is not closed")?;
        let bytes = content_bytes(&inside[..end])?;
        let rest = std::str::from_utf8(&inside[end + 1..]).map_err(|_| "not UTF-8 text")?;
        let folded = self.sticky.is_some_and(|list| self.rule.lists[list].buffer.is_folded());
        let content = Content {
            finder: Finder::new(&bytes).into_owned(),
            bytes: bytes.into(),
            nocase: folded,
            negated,
            relative: false,
            from: Value::Number(0),
            len: None,
            ends: false,
            fast: false,
        };
        let (list, at) = self.push(Test::Content(Arc::new(content)))?;
        self.last = Some(Draft { list, at, ..Draft::default() });
        let modifiers = rest.trim();
        if modifiers.is_empty() {
            return Ok(());
        }
        let modifiers =
            modifiers.strip_prefix(',').ok_or_else(|| format!("unexpected text: {modifiers}"))?;
        for part in modifiers.split(',') {
            let part = part.trim();
            let (name, value) = part.split_once([' ', '\t']).unwrap_or((part, ""));
            let name = name.trim_end_matches(':');
            // Offset and length of the part to search for: they do not change what matches.
            if matches!(name, "fast_pattern_offset" | "fast_pattern_length") {
                continue;
            }
            self.modifier(name, value.trim())?;
        }
        Ok(())
    }

    /// A keyword with the text that is in a buffer, or is all of it.
    fn text_of(&mut self, buffer: Buffer, value: &[u8], whole: bool) -> Result<(), String> {
        let before = self.sticky;
        self.settle()?;
        self.decoded = None;
        self.sticky = Some(self.list(buffer, &[], false));
        let (negated, text) = negation(value);
        let text =
            text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
        let sign: &[u8] = if negated { b"!" } else { b"" };
        let value = [sign, b"\"", text, b"\""].concat();
        self.content(&RawOption { name: "content".to_owned(), value })?;
        if whole {
            self.modifier("startswith", "")?;
            self.modifier("endswith", "")?;
        }
        self.settle()?;
        self.sticky = before;
        Ok(())
    }

    /// The last content, for a modifier.
    fn draft(&mut self, name: &str) -> Result<&mut Draft, String> {
        let draft = self.last.as_mut().ok_or("no content precedes it")?;
        if draft.seen.iter().any(|seen| seen == name) {
            return Err("given twice for one content".to_owned());
        }
        draft.seen.push(name.to_owned());
        Ok(draft)
    }

    /// The content that a draft is about.
    fn drafted(&mut self, list: usize, at: usize) -> Option<&mut Content> {
        let test = match self.decoded.filter(|_| at == usize::MAX) {
            Some((list, at)) => match self.rule.lists.get_mut(list)?.tests.get_mut(at)? {
                Test::Base64 { tests, .. } => tests.last_mut(),
                _ => None,
            },
            None => self.rule.lists.get_mut(list)?.tests.get_mut(at),
        };
        match test? {
            Test::Content(content) => Some(Arc::make_mut(content)),
            _ => None,
        }
    }

    fn modifier(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = match name {
            "offset" | "depth" => Some(self.place(value, 0)?),
            "distance" => Some(self.place(value, -MOST)?),
            "within" => Some(self.place(value, 0)?),
            _ => None,
        };
        let snort = self.dialect == Dialect::Snort2;
        let draft = self.draft(name)?;
        let (list, at) = (draft.list, draft.at);
        match name {
            "offset" => draft.offset = number,
            "depth" => draft.depth = number,
            "distance" => draft.distance = number,
            "within" => draft.within = number,
            _ => {}
        }
        if number.is_none() && !value.is_empty() && name != "fast_pattern" {
            return Err(format!("has no value, but {value} is given"));
        }
        let content = self.drafted(list, at).ok_or("no content precedes it")?;
        match name {
            "nocase" => content.nocase = true,
            "endswith" => content.ends = true,
            "fast_pattern" => {
                content.fast = true;
                // In Snort 2 such a content is only searched for, and that search does not mind case.
                content.nocase |= snort && value == "only";
                let parts = value.split_once(',').filter(|(offset, len)| {
                    let number = |text: &str| text.trim().parse::<u16>().is_ok();
                    number(offset) && number(len)
                });
                if !value.is_empty() && value != "only" && parts.is_none() {
                    return Err(format!("{value}: expected only, or an offset and a length"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A place: a number or a variable.
    pub(super) fn place(&self, text: &str, low: i64) -> Result<Value, String> {
        if let Some(at) = self.names.iter().position(|name| name == text.trim()) {
            return Ok(Value::Variable(at));
        }
        within(text, low, MOST).map(Value::Number)
    }

    /// Applies the modifiers of the last content, and checks what must fit together. Modifiers may be anywhere
    /// before the next content or buffer.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        let Some(draft) = self.last.take() else { return Ok(()) };
        let starts = draft.seen.iter().any(|seen| seen == "startswith");
        let (list, at) = (draft.list, draft.at);
        let Some(content) = self.drafted(list, at) else { return Ok(()) };
        let absolute = draft.offset.is_some() || draft.depth.is_some() || starts;
        content.relative = draft.distance.is_some() || draft.within.is_some();
        if absolute && content.relative {
            return Err(
                "one content has a place from the beginning and one from the position".to_owned()
            );
        }
        if starts && (draft.offset.is_some() || draft.depth.is_some()) {
            return Err("startswith beside offset or depth".to_owned());
        }
        content.from = draft.offset.or(draft.distance).unwrap_or(Value::Number(0));
        content.len = draft.depth.or(draft.within);
        let len = content.bytes.len() as i64;
        if starts {
            content.len = Some(Value::Number(len));
        }
        if let Some(Value::Number(most)) = content.len
            && most < len
        {
            return Err(format!(
                "the content has {len} bytes, more than the {most} in which it would lie"
            ));
        }
        if content.nocase {
            content.bytes = content.bytes.to_ascii_lowercase().into();
        }
        Ok(())
    }

    /// Assigns the last content to a buffer.
    pub(super) fn assign(&mut self, buffer: Buffer, value: &str) -> Result<(), String> {
        if !value.is_empty() {
            return Err(format!("has no value, but {value} is given"));
        }
        if self.sticky.is_some() {
            return Err("the content before it is in another buffer already".to_owned());
        }
        let draft = self.last.clone().filter(|draft| draft.at != usize::MAX);
        let Some(draft) = draft else { return Err("no content precedes it".to_owned()) };
        if self.rule.lists[draft.list].buffer != Buffer::Payload {
            return Err("the content before it has another buffer already".to_owned());
        }
        let test = self.rule.lists[draft.list].tests.remove(draft.at);
        let to = self.list(buffer, &[], false);
        self.rule.lists[to].tests.push(test);
        let at = self.rule.lists[to].tests.len() - 1;
        let from = draft.list;
        self.last = Some(Draft { list: to, at, ..draft });
        self.last_list = Some(to);
        self.drop_empty(from);
        Ok(())
    }

    /// Removes a list of the payload that has lost its last test.
    fn drop_empty(&mut self, list: usize) {
        if !self.rule.lists[list].tests.is_empty() {
            return;
        }
        self.rule.lists.remove(list);
        let shift = |at: usize| if at > list { at - 1 } else { at };
        self.last_list = self.last_list.map(shift);
        self.sticky = self.sticky.map(shift);
        if let Some(draft) = &mut self.last {
            draft.list = shift(draft.list);
        }
    }

    fn pcre(&mut self, value: &[u8]) -> Result<(), String> {
        let (negated, text) = negation(value);
        let inside = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
        // Without quotation marks, a semicolon ends the option.
        let text = match inside {
            Some(inside) => inside,
            None if text.starts_with(b"/") => text,
            None => return Err("expected /pattern/flags in quotation marks".to_owned()),
        };
        let text = text.strip_prefix(b"m").filter(|rest| !rest.is_empty()).unwrap_or(text);
        let delimiter = *text
            .first()
            .filter(|byte| byte.is_ascii_punctuation())
            .ok_or("expected /pattern/flags")?;
        let end = text.iter().rposition(|byte| *byte == delimiter).filter(|end| *end > 0);
        let end = end.ok_or("the pattern is not closed")?;
        let (pattern, letters) = (&text[1..end], flags_before_captures(&text[end + 1..])?);
        let mut flags = Flags::default();
        let (mut relative, mut buffer) = (false, None);
        for letter in letters {
            match letter {
                b'i' => flags.caseless = true,
                b's' => flags.dot_all = true,
                b'm' => flags.multi_line = true,
                b'x' => flags.extended = true,
                b'A' => flags.anchored = true,
                b'E' => flags.dollar_end_only = true,
                b'G' => flags.ungreedy = true,
                b'R' => relative = true,
                b'B' | b'O' => {}
                _ => {
                    let own = pcre_buffer(*letter);
                    let own = own
                        .ok_or_else(|| format!("the flag {} is not judged", char::from(*letter)))?;
                    if buffer.replace(own).is_some() {
                        return Err("two flags name a buffer".to_owned());
                    }
                }
            }
        }
        let pattern = Arc::new(Pattern::new(pattern, flags)?);
        let test = Test::Pcre(Pcre { pattern, negated, relative });
        match buffer {
            None => {
                self.push(test)?;
            }
            Some(buffer) => {
                let other = |at: usize| self.rule.lists[at].buffer != buffer;
                if self.sticky.is_some_and(other) {
                    return Err("the flag names another buffer than the keyword before".to_owned());
                }
                let list = self.list(buffer, &[], false);
                self.rule.lists[list].tests.push(test);
                self.last_list = Some(list);
            }
        }
        Ok(())
    }

    fn is_data_at(&mut self, value: &str) -> Result<(), String> {
        let mut parts = value.split(',').map(str::trim);
        let (negated, place) = match parts.next().unwrap_or_default().strip_prefix('!') {
            Some(place) => (true, place),
            None => (false, value.split(',').next().unwrap_or_default().trim()),
        };
        let at = self.place(place, 0)?;
        let mut relative = false;
        for part in parts {
            match part {
                "relative" => relative = true,
                "rawbytes" => {}
                other => return Err(format!("{other} is not judged")),
            }
        }
        self.push(Test::IsDataAt { at, relative, negated })?;
        Ok(())
    }

    fn uri_len(&mut self, value: &str) -> Result<(), String> {
        let (range, kind) =
            value.split_once(',').map_or((value, ""), |(range, kind)| (range, kind.trim()));
        // Without a word Snort measures the raw URI, Suricata the normalised one.
        let buffer = match kind {
            "" if self.dialect == Dialect::Suricata => Buffer::HttpUri,
            "norm" => Buffer::HttpUri,
            "" | "raw" => Buffer::HttpUriRaw,
            other => return Err(format!("{other}: expected norm or raw")),
        };
        let test = Test::Len(bound(range, u32::MAX.into(), self.ends())?);
        let list = self.list(buffer, &[], false);
        self.rule.lists[list].tests.push(test);
        Ok(())
    }
}

/// The flags of a `pcre`, without names for its captures (`, pkt:uid`), which only Suricata's records have.
fn flags_before_captures(text: &[u8]) -> Result<&[u8], String> {
    let mut parts = text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let flags = parts.next().unwrap_or_default();
    let is_capture = |part: &[u8]| {
        let kinds = [&b"pkt:"[..], b"flow:", b"alert:"];
        kinds.iter().any(|kind| part.strip_prefix(*kind).is_some_and(|name| !name.is_empty()))
    };
    match parts.find(|part| !is_capture(part)) {
        Some(part) => {
            Err(format!("{}: expected pkt:NAME, flow:NAME or alert:NAME", part.escape_ascii()))
        }
        None => Ok(flags),
    }
}

/// The buffer that a flag of `pcre` names.
fn pcre_buffer(flag: u8) -> Option<Buffer> {
    Some(match flag {
        b'U' => Buffer::HttpUri,
        b'I' => Buffer::HttpUriRaw,
        b'H' => Buffer::HttpHeader,
        b'D' => Buffer::HttpHeaderRaw,
        b'M' => Buffer::HttpMethod,
        b'C' => Buffer::HttpCookie,
        b'P' => Buffer::HttpRequestBody,
        b'Q' => Buffer::HttpResponseBody,
        b'S' => Buffer::HttpStatusCode,
        b'Y' => Buffer::HttpStatusMessage,
        b'V' => Buffer::HttpUserAgent,
        b'W' => Buffer::HttpHost,
        b'Z' => Buffer::HttpHostRaw,
        _ => return None,
    })
}

/// Takes the `!` off.
fn negation(value: &[u8]) -> (bool, &[u8]) {
    match value.strip_prefix(b"!") {
        Some(rest) => (true, rest.trim_ascii_start()),
        None => (false, value),
    }
}

/// Place of the quotation mark that closes a text.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|byte| match byte {
        _ if escaped => {
            escaped = false;
            false
        }
        b'\\' => {
            escaped = true;
            false
        }
        byte => *byte == b'"',
    })
}

/// The bytes of a content: `|0d 0a|` are hexadecimal, a backslash escapes.
fn content_bytes(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let (mut hex, mut high, mut escaped) = (false, None, false);
    for byte in text {
        if escaped {
            if !b"\\\";:|".contains(byte) {
                return Err(format!(
                    "\\{} is no escape; there are \\\\ \\\" \\; \\:",
                    char::from(*byte).escape_default()
                ));
            }
            bytes.push(*byte);
            escaped = false;
            continue;
        }
        match (byte, hex) {
            (b'|', true) if high.is_some() => {
                return Err("a hexadecimal byte has one digit".to_owned());
            }
            (b'|', _) => hex = !hex,
            (b' ' | b'\t', true) => {}
            (_, true) => {
                let digit = char::from(*byte).to_digit(16).map(|digit| digit as u8);
                let digit = digit.ok_or_else(|| {
                    format!("\"{}\" is no hexadecimal digit", char::from(*byte).escape_default())
                })?;
                match high.take() {
                    Some(high) => bytes.push(high << 4 | digit),
                    None => high = Some(digit),
                }
            }
            (b'\\', false) => escaped = true,
            (_, false) => bytes.push(*byte),
        }
    }
    match () {
        () if hex => Err("\"|\" is not closed".to_owned()),
        () if escaped => Err("the content ends with a backslash".to_owned()),
        () if bytes.is_empty() => Err("the content is empty".to_owned()),
        () => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_have_text_hexadecimal_bytes_and_escapes() {
        let bytes = |text: &str| content_bytes(text.as_bytes());
        assert_eq!(bytes("a|20 62|c|0D0a|"), Ok(b"a bc\r\n".to_vec()));
        assert_eq!(bytes(r#"a\"b\;c\\d\:"#), Ok(br#"a"b;c\d:"#.to_vec()));
        for wrong in ["a|2", "a|2|", "a|2x|", "", "||", "a\\", "a\\n"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
