//! Numbers and ranges of options.

use crate::rule::Bound;

/// A number of decimal digits, or hexadecimal after `0x`, with a sign.
pub fn number(text: &str) -> Result<i64, String> {
    let wrong = || format!("\"{text}\" is no number");
    let (negative, digits) = match text.trim().strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.trim()),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let value = value.map_err(|_| wrong())?;
    // `--5` and `-+5`.
    if digits.starts_with(['-', '+']) {
        return Err(wrong());
    }
    Ok(if negative { -value } else { value })
}

/// A number within bounds.
pub fn within(text: &str, low: i64, high: i64) -> Result<i64, String> {
    let value = number(text)?;
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(format!("{value} is not within {low} and {high}")),
    }
}

/// A version of TLS, as `1.2` or `0x0303`; `!` before it negates.
pub fn tls_version(text: &str) -> Result<Bound, String> {
    let text = text.trim().trim_matches('"').trim();
    let (negated, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let version = match text {
        "1.0" => 0x0301,
        "1.1" => 0x0302,
        "1.2" => 0x0303,
        "1.3" => 0x0304,
        _ if text.starts_with("0x") => within(text, 0, u16::MAX.into())?.unsigned_abs(),
        _ => return Err(format!("{text}: expected 1.0, 1.1, 1.2, 1.3 or 0x0303")),
    };
    Ok(Bound { low: version, high: version, negated })
}

/// Names of the codes of responses of DNS, from 0.
const CODES: [&str; 11] = [
    "noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "yxdomain", "yxrrset",
    "nxrrset", "notauth", "notzone",
];

/// A code of a response of DNS: a name, a number or a range.
pub fn dns_code(text: &str) -> Result<Bound, String> {
    let (sign, name) = text.split_at(usize::from(text.starts_with('!')));
    let name = name.trim().to_ascii_lowercase();
    match CODES.iter().position(|own| *own == name) {
        Some(code) => bound(&format!("{sign}{code}"), u8::MAX.into(), Ends::Outside),
        None => bound(text, u8::MAX.into(), Ends::Outside),
    }
}

/// The reading of the ends of `a<>b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The ends do not belong to the range.
    Outside,
    /// The ends belong to the range.
    Inside,
}

/// A number, `=9`, `<9`, `<=9`, `>9`, `>=9`, `!9`, or a range: `1<>9`, `1-9`, `1<=>9`; `!` before it negates.
pub fn bound(text: &str, most: u64, ends: Ends) -> Result<Bound, String> {
    let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (negated, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, &*text),
    };
    let value = |text: &str| {
        let number = number(text)?;
        u64::try_from(number)
            .ok()
            .filter(|number| *number <= most)
            .ok_or_else(|| format!("{number} is not within 0 and {most}"))
    };
    let bound = |low: u64, high: u64| {
        if low > high {
            Err(format!("\"{text}\": nothing is in the range"))
        } else {
            Ok(Bound { low, high, negated })
        }
    };
    for (sign, with_ends) in
        [("<=>", true), ("<>", ends == Ends::Inside), ("-", ends == Ends::Inside)]
    {
        if let Some((low, high)) = text.split_once(sign).filter(|(low, _)| !low.is_empty()) {
            let (low, high) = (value(low)?, value(high)?);
            return if with_ends {
                bound(low, high)
            } else {
                bound(low + 1, high.saturating_sub(1))
            };
        }
    }
    if let Some(rest) = text.strip_prefix("<=") {
        return bound(0, value(rest)?);
    }
    if let Some(rest) = text.strip_prefix(">=") {
        return bound(value(rest)?, most);
    }
    if let Some(rest) = text.strip_prefix('<') {
        let high = value(rest)?.checked_sub(1).ok_or("nothing is less than 0")?;
        return bound(0, high);
    }
    if let Some(rest) = text.strip_prefix('>') {
        return bound(value(rest)? + 1, most);
    }
    let one = value(text.strip_prefix('=').unwrap_or(text))?;
    bound(one, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        assert_eq!((number("-12"), number(" 0x1F")), (Ok(-12), Ok(31)));
        assert!(number("--1").is_err() && number("").is_err() && number("1a").is_err());
        let is = |text: &str, ends| {
            bound(text, 1000, ends).map(|bound| (bound.low, bound.high, bound.negated))
        };
        assert_eq!(is("7", Ends::Outside), Ok((7, 7, false)));
        assert_eq!(is("!7", Ends::Outside), Ok((7, 7, true)));
        assert_eq!(is("10<>20", Ends::Outside), Ok((11, 19, false)));
        assert_eq!(is("10<>20", Ends::Inside), Ok((10, 20, false)));
        assert_eq!(is(" > 5", Ends::Outside), Ok((6, 1000, false)));
        assert_eq!(is("<5", Ends::Outside), Ok((0, 4, false)));
        assert_eq!(is(">=5", Ends::Outside), Ok((5, 1000, false)));
        assert_eq!(is("<=5", Ends::Outside), Ok((0, 5, false)));
        for wrong in ["<0", "9<>9", "20-10", "1001", "-1", "x", ">1000"] {
            assert!(is(wrong, Ends::Outside).is_err(), "{wrong}");
        }
    }
}
