//! Transforms: changes that are made to the bytes of a buffer before its tests.

use crate::digest;
use std::borrow::Cow;

/// A transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transform {
    /// A dot before the first byte.
    DotPrefix,
    /// No white space.
    StripWhitespace,
    /// A single space for white space.
    CompressWhitespace,
    /// Small letters.
    Lowercase,
    /// Capital letters.
    Uppercase,
    /// `%41` becomes `A`, and `+` a space.
    UrlDecode,
    /// The MD5 of the bytes.
    Md5,
    /// The SHA-1 of the bytes.
    Sha1,
    /// The SHA-256 of the bytes.
    Sha256,
    /// Names of header fields in small letters.
    HeaderLowercase,
    /// No header fields with a name that begins with a colon.
    StripPseudoHeaders,
    /// Combined with a key that repeats.
    Xor(Vec<u8>),
}

impl Transform {
    /// The transform of a keyword; `Ok(None)` if the keyword is none.
    ///
    /// # Errors
    /// If the value is wrong.
    pub fn parse(name: &str, value: &str) -> Result<Option<Transform>, String> {
        let found = match name {
            "dotprefix" => Transform::DotPrefix,
            "strip_whitespace" => Transform::StripWhitespace,
            "compress_whitespace" => Transform::CompressWhitespace,
            "to_lowercase" => Transform::Lowercase,
            "to_uppercase" => Transform::Uppercase,
            "url_decode" => Transform::UrlDecode,
            "to_md5" => Transform::Md5,
            "to_sha1" => Transform::Sha1,
            "to_sha256" => Transform::Sha256,
            "header_lowercase" => Transform::HeaderLowercase,
            "strip_pseudo_headers" => Transform::StripPseudoHeaders,
            "xor" => {
                let digits = value.trim_matches('"');
                let byte = |at: usize| {
                    digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok())
                };
                let key: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
                let key = key.filter(|key| !key.is_empty());
                return key
                    .map(|key| Some(Transform::Xor(key)))
                    .ok_or_else(|| format!("xor: {value} is no key"));
            }
            _ => return Ok(None),
        };
        match value {
            "" => Ok(Some(found)),
            _ => Err(format!("{name} has no value, but {value} is given")),
        }
    }

    /// Changes bytes.
    pub fn apply<'b>(&self, bytes: Cow<'b, [u8]>) -> Cow<'b, [u8]> {
        let is_space = |byte: &u8| b" \t\n\x0b\x0c\r".contains(byte);
        Cow::Owned(match self {
            Transform::DotPrefix => [b".", &bytes[..]].concat(),
            Transform::StripWhitespace => {
                bytes.iter().copied().filter(|byte| !is_space(byte)).collect()
            }
            Transform::CompressWhitespace => {
                let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
                let mut space = false;
                for byte in bytes.iter() {
                    let now = is_space(byte);
                    if !now {
                        out.push(*byte);
                    } else if !space {
                        out.push(b' ');
                    }
                    space = now;
                }
                out
            }
            Transform::Lowercase => bytes.to_ascii_lowercase(),
            Transform::Uppercase => bytes.to_ascii_uppercase(),
            Transform::UrlDecode => url_decode(&bytes, true),
            Transform::Md5 => digest::md5(&bytes),
            Transform::Sha1 => digest::sha1(&bytes),
            Transform::Sha256 => digest::sha256(&bytes),
            Transform::HeaderLowercase => lowercase_names(&bytes),
            Transform::StripPseudoHeaders => bytes
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| !line.starts_with(b":"))
                .collect::<Vec<_>>()
                .concat(),
            Transform::Xor(key) => {
                bytes.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect()
            }
        })
    }
}

/// Puts names of header fields, up to the first colon of a line, in small letters.
fn lowercase_names(bytes: &[u8]) -> Vec<u8> {
    let mut in_name = true;
    let each = bytes.iter().map(|byte| {
        match byte {
            b':' => in_name = false,
            b'\n' => in_name = true,
            _ => {}
        }
        if in_name { byte.to_ascii_lowercase() } else { *byte }
    });
    each.collect()
}

/// Replaces `%41` by `A` and, if wanted, `+` by a space; what is no escape stays.
pub fn url_decode(bytes: &[u8], plus: bool) -> Vec<u8> {
    let digit = |at: usize| {
        bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8)
    };
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match (byte, digit(at), digit(at + 1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 2;
            }
            (b'+', ..) if plus => out.push(b' '),
            _ => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_change_bytes_as_their_names_say() {
        for (name, value, from, to) in [
            ("dotprefix", "", "a.b", ".a.b"),
            ("strip_whitespace", "", " a\t b\r\n", "ab"),
            ("compress_whitespace", "", " a\t\r b ", " a b "),
            ("to_lowercase", "", "aB1", "ab1"),
            ("to_uppercase", "", "aB1", "AB1"),
            ("url_decode", "", "a+b%41%zz%4", "a bA%zz%4"),
            ("xor", "\"2001\"", "AAA", "a@a"),
            ("header_lowercase", "", "Ab: Cd\r\nEF:G", "ab: Cd\r\nef:G"),
            ("strip_pseudo_headers", "", ":a: b\r\nc: d\r\n", "c: d\r\n"),
        ] {
            let transform = Transform::parse(name, value).unwrap().unwrap();
            let made = transform.apply(Cow::Borrowed(from.as_bytes()));
            assert_eq!(String::from_utf8_lossy(&made), to, "{name}");
        }
        assert_eq!(Transform::parse("content", "x"), Ok(None));
        assert!(Transform::parse("dotprefix", "x").is_err());
        assert!(Transform::parse("xor", "\"2\"").is_err() && Transform::parse("xor", "").is_err());
    }
}
