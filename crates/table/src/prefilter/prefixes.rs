//! Prefix lengths that rules may have, as a text: `ip/32,ip/24,ip6/64`, the names of the arrays in a listing.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A set of prefix lengths of IPv4 and IPv6, without 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixLengths {
    /// Bit *n* is set for a prefix of *n* + 1 bits.
    v4: u32,
    /// The same for IPv6.
    v6: u128,
}

/// Reason why a text names no prefix lengths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected ip/1 to ip/32 or ip6/1 to ip6/128, separated by commas, found `{given}`")]
pub struct PrefixLengthsError {
    /// The part of the text that is wrong.
    pub given: String,
}

impl PrefixLengths {
    /// True if rules with a network of this length may exist.
    pub fn has(&self, address: IpAddr, bits: u8) -> bool {
        let bit = u32::from(bits).wrapping_sub(1);
        match address {
            IpAddr::V4(_) => self.v4.checked_shr(bit).unwrap_or(0) & 1 == 1,
            IpAddr::V6(_) => self.v6.checked_shr(bit).unwrap_or(0) & 1 == 1,
        }
    }

    /// Number of lengths; each has an array.
    pub fn len(&self) -> usize {
        (self.v4.count_ones() + self.v6.count_ones()) as usize
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromStr for PrefixLengths {
    type Err = PrefixLengthsError;

    fn from_str(text: &str) -> Result<Self, PrefixLengthsError> {
        let mut lengths = PrefixLengths::default();
        for part in text.split(',').map(str::trim) {
            let shown = || PrefixLengthsError { given: part.chars().take(40).collect() };
            let (kind, bits) = part.split_once('/').ok_or_else(shown)?;
            let is_number = bits.bytes().all(|byte| byte.is_ascii_digit());
            let bits = bits.parse::<u32>().ok().filter(|_| is_number).ok_or_else(shown)?;
            match kind {
                "ip" if (1..=32).contains(&bits) => lengths.v4 |= 1 << (bits - 1),
                "ip6" if (1..=128).contains(&bits) => lengths.v6 |= 1 << (bits - 1),
                _ => return Err(shown()),
            }
        }
        Ok(lengths)
    }
}

impl fmt::Display for PrefixLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = (0..32).filter(|bit| self.v4 >> bit & 1 == 1).map(|bit| format!("ip/{}", bit + 1));
        let v6 = (0..128).filter(|bit| self.v6 >> bit & 1 == 1);
        let v6 = v6.map(|bit| format!("ip6/{}", bit + 1));
        f.write_str(&v4.chain(v6).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip_and_nonsense_is_named() {
        let lengths: PrefixLengths = "ip6/64, ip/32,ip/24,ip/24,ip6/128".parse().unwrap();
        assert_eq!(
            (lengths.to_string().as_str(), lengths.len()),
            ("ip/24,ip/32,ip6/64,ip6/128", 4)
        );
        let v4: IpAddr = "10.0.0.0".parse().unwrap();
        let v6: IpAddr = "2001:db8::".parse().unwrap();
        assert_eq!([0, 24, 31, 32].map(|bits| lengths.has(v4, bits)), [false, true, false, true]);
        assert_eq!([0, 24, 64, 128].map(|bits| lengths.has(v6, bits)), [false, false, true, true]);
        for (text, given) in [
            ("", ""),
            ("24", "24"),
            ("ip/0", "ip/0"),
            ("ip/33", "ip/33"),
            ("ip6/129", "ip6/129"),
            ("ip/24,,ip/32", ""),
            ("ip/24,ipx/9", "ipx/9"),
            ("ip/+9", "ip/+9"),
            ("ip/99999999999", "ip/99999999999"),
        ] {
            let error = text.parse::<PrefixLengths>().unwrap_err();
            assert_eq!(error, PrefixLengthsError { given: given.to_owned() }, "{text}");
        }
    }
}
