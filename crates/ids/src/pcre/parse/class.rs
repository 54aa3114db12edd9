//! Sets of bytes: classes in brackets, escapes of a set, escapes of one byte.

use super::Parser;
use fyke_ruler::byte_set::ByteSet;

/// Letters, digits and `_`.
pub fn word() -> ByteSet {
    (0..=u8::MAX).filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').collect()
}

fn of(bytes: &[u8]) -> ByteSet {
    bytes.iter().copied().collect()
}

/// The set of `\d`, `\S` and the like.
pub fn escaped_set(byte: u8) -> Option<ByteSet> {
    let set = match byte.to_ascii_lowercase() {
        b'd' => ByteSet::range(b'0', b'9'),
        b'w' => word(),
        b's' => of(b"\t\n\x0b\x0c\r "),
        b'h' => of(b"\t \xa0"),
        b'v' => of(b"\n\x0b\x0c\r\x85"),
        b'n' if byte == b'N' => ByteSet::one(b'\n'),
        _ => return None,
    };
    Some(if byte.is_ascii_uppercase() { set.not() } else { set })
}

/// A byte written with an escape; the backslash is taken.
pub fn escaped_byte(parser: &mut Parser<'_>) -> Result<u8, String> {
    let Some(byte) = parser.next() else {
        return Err("the pattern ends with a backslash".to_owned());
    };
    Ok(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'f' => 0x0c,
        b'e' => 0x1b,
        b'a' => 0x07,
        b'x' => return hex(parser),
        b'o' => {
            if !parser.take(b"{") {
                return Err("\\o: \"{\" is missing".to_owned());
            }
            let digits = parser.until(b'}')?;
            return number(digits, 8);
        }
        b'0'..=b'7' => {
            let start = parser.at - 1;
            let rest = &parser.text[start..];
            let len = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            parser.at = start + len;
            return number(&rest[..len], 8);
        }
        b'c' => {
            let letter = parser.next().filter(u8::is_ascii).ok_or("\\c: a letter is missing")?;
            letter.to_ascii_uppercase() ^ 0x40
        }
        byte if byte.is_ascii_alphanumeric() => {
            return Err(format!("\\{} is not judged", char::from(byte)));
        }
        byte => byte,
    })
}

/// `\xHH`, with up to two digits, or `\x{HH}`.
fn hex(parser: &mut Parser<'_>) -> Result<u8, String> {
    if parser.take(b"{") {
        let digits = parser.until(b'}')?;
        return number(digits, 16);
    }
    let rest = &parser.text[parser.at..];
    let len = rest.iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
    parser.at += len;
    if len == 0 { Ok(0) } else { number(&rest[..len], 16) }
}

fn number(digits: &[u8], radix: u32) -> Result<u8, String> {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    u8::from_str_radix(text, radix).map_err(|_| format!("\"{text}\" is no number of a byte"))
}

/// A class; its bracket is taken.
pub fn class(parser: &mut Parser<'_>) -> Result<ByteSet, String> {
    let negated = parser.take(b"^");
    let mut set = ByteSet::EMPTY;
    let mut first = true;
    loop {
        let Some(byte) = parser.peek() else { return Err("\"]\" is missing".to_owned()) };
        if byte == b']' && !first {
            parser.at += 1;
            break;
        }
        first = false;
        match member(parser)? {
            Member::Set(other) => set = set.or(&other),
            Member::Nothing => {}
            Member::One(low) => match range_end(parser)? {
                Some(high) if high < low => {
                    return Err(format!(
                        "the range \\x{low:02x}-\\x{high:02x} of a class is empty"
                    ));
                }
                Some(high) => set = set.or(&ByteSet::range(low, high)),
                None => set.insert(low),
            },
        }
    }
    if parser.flags.caseless {
        set = set.fold();
    }
    Ok(if negated { set.not() } else { set })
}

enum Member {
    One(u8),
    Set(ByteSet),
    Nothing,
}

/// The upper end of a range, if one follows; a hyphen before a set or the end is a hyphen.
fn range_end(parser: &mut Parser<'_>) -> Result<Option<u8>, String> {
    let before = parser.at;
    if !parser.take(b"-") || parser.peek() == Some(b']') || parser.peek().is_none() {
        parser.at = before;
        return Ok(None);
    }
    match member(parser)? {
        Member::One(high) => Ok(Some(high)),
        Member::Set(_) | Member::Nothing => {
            parser.at = before;
            Ok(None)
        }
    }
}

fn member(parser: &mut Parser<'_>) -> Result<Member, String> {
    if let Some(set) = posix(parser)? {
        return Ok(Member::Set(set));
    }
    let Some(byte) = parser.next() else { return Err("\"]\" is missing".to_owned()) };
    if byte != b'\\' {
        return Ok(Member::One(byte));
    }
    let Some(byte) = parser.peek() else {
        return Err("the pattern ends with a backslash".to_owned());
    };
    if byte == b'N' {
        return Err("\\N in a class is not judged".to_owned());
    }
    if let Some(set) = escaped_set(byte) {
        parser.at += 1;
        return Ok(Member::Set(set));
    }
    match byte {
        b'b' => {
            parser.at += 1;
            Ok(Member::One(0x08))
        }
        b'E' => {
            parser.at += 1;
            Ok(Member::Nothing)
        }
        b'Q' | b'8' | b'9' => Err(format!("\\{} in a class is not judged", char::from(byte))),
        _ => escaped_byte(parser).map(Member::One),
    }
}

/// `[:alpha:]` and the like.
fn posix(parser: &mut Parser<'_>) -> Result<Option<ByteSet>, String> {
    let rest = &parser.text[parser.at..];
    let Some(inside) = rest.strip_prefix(b"[:") else { return Ok(None) };
    let Some(len) = memchr::memmem::find(inside, b":]") else { return Ok(None) };
    let name = &inside[..len];
    if !name.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'^') {
        return Ok(None);
    }
    let (negated, name) = match name.strip_prefix(b"^") {
        Some(name) => (true, name),
        None => (false, name),
    };
    let test: fn(&u8) -> bool = match name {
        b"alpha" => u8::is_ascii_alphabetic,
        b"digit" => u8::is_ascii_digit,
        b"alnum" => u8::is_ascii_alphanumeric,
        b"upper" => u8::is_ascii_uppercase,
        b"lower" => u8::is_ascii_lowercase,
        b"space" => |byte| b"\t\n\x0b\x0c\r ".contains(byte),
        b"blank" => |byte| b"\t ".contains(byte),
        b"punct" => u8::is_ascii_punctuation,
        b"xdigit" => u8::is_ascii_hexdigit,
        b"cntrl" => u8::is_ascii_control,
        b"graph" => u8::is_ascii_graphic,
        b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
        b"ascii" => u8::is_ascii,
        b"word" => |byte| byte.is_ascii_alphanumeric() || *byte == b'_',
        _ => return Err(format!("no class [:{}:]", String::from_utf8_lossy(name))),
    };
    parser.at += len + 4;
    let set: ByteSet = (0..=u8::MAX).filter(test).collect();
    Ok(Some(if negated { set.not() } else { set }))
}
