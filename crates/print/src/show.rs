//! Text of numbers and addresses without `core::fmt`, for the parts that most lines have.
//!
//! `core::fmt` costs 20 to 50 ns for each value, a write here 2 to 8 ns. Lines that are rare use
//! [`put!`](crate::body::put).

use crate::text::Ipv6;
use fyke_frame::walk::view::MacAddr;
use std::net::{IpAddr, Ipv4Addr};

/// A value with a text.
pub(crate) trait Show {
    /// Appends the text.
    fn show(&self, out: &mut String);
}

/// Appends texts and values to the text of a [`Body`](crate::body::Body).
macro_rules! say {
    ($body:expr, $($part:expr),+ $(,)?) => {{
        $( $crate::show::Show::show(&$part, &mut *$body.out); )+
    }};
}
pub(crate) use say;

impl Show for &str {
    #[inline]
    fn show(&self, out: &mut String) {
        out.push_str(self);
    }
}

impl Show for char {
    #[inline]
    fn show(&self, out: &mut String) {
        out.push(*self);
    }
}

/// The numbers 0 to 99 with two digits each.
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
    2021222324252627282930313233343536373839\
    4041424344454647484950515253545556575859\
    6061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

/// Appends ASCII.
#[inline]
fn ascii(bytes: &[u8], out: &mut String) {
    // All callers pass digits and separators.
    out.push_str(std::str::from_utf8(bytes).unwrap_or_default());
}

impl Show for u64 {
    fn show(&self, out: &mut String) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = *self;
        while rest >= 100 {
            let pair = 2 * (rest % 100) as usize;
            rest /= 100;
            at -= 2;
            digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
        }
        if rest >= 10 {
            at -= 2;
            digits[at..at + 2].copy_from_slice(&PAIRS[2 * rest as usize..2 * rest as usize + 2]);
        } else {
            at -= 1;
            digits[at] = b'0' + rest as u8;
        }
        ascii(&digits[at..], out);
    }
}

impl Show for u32 {
    fn show(&self, out: &mut String) {
        let mut digits = [0; 10];
        let start = decimal(*self, &mut digits);
        ascii(&digits[start..], out);
    }
}

/// Writes a number at the end of `digits` and returns its start.
#[inline]
fn decimal(number: u32, digits: &mut [u8; 10]) -> usize {
    let mut at = digits.len();
    let mut rest = number;
    while rest >= 100 {
        let pair = 2 * (rest % 100) as usize;
        rest /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if rest >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[2 * rest as usize..2 * rest as usize + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + rest as u8;
    }
    at
}

impl Show for u16 {
    #[inline]
    fn show(&self, out: &mut String) {
        u32::from(*self).show(out);
    }
}

impl Show for u8 {
    #[inline]
    fn show(&self, out: &mut String) {
        u32::from(*self).show(out);
    }
}

impl Show for usize {
    #[inline]
    fn show(&self, out: &mut String) {
        (*self as u64).show(out);
    }
}

impl Show for Ipv4Addr {
    fn show(&self, out: &mut String) {
        let mut text = [b'.'; 15];
        let mut at = 0;
        for (number, octet) in self.octets().into_iter().enumerate() {
            at += usize::from(number > 0);
            if octet >= 100 {
                text[at] = b'0' + octet / 100;
                at += 1;
            }
            if octet >= 10 {
                text[at] = b'0' + octet / 10 % 10;
                at += 1;
            }
            text[at] = b'0' + octet % 10;
            at += 1;
            if let Some(next) = text.get_mut(at) {
                *next = b'.';
            }
        }
        ascii(&text[..at], out);
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Show for Ipv6 {
    fn show(&self, out: &mut String) {
        let bits = self.0.to_bits();
        if bits >> 32 == 0 && bits >> 16 != 0 {
            out.push_str("::");
            return Ipv4Addr::from_bits(bits as u32).show(out);
        }
        if bits >> 32 == 0xffff {
            out.push_str("::ffff:");
            return Ipv4Addr::from_bits(bits as u32).show(out);
        }
        let groups = self.0.segments();
        let (start, len) = longest_zeros(&groups);
        let mut text = [0; 39];
        let mut at = 0;
        let mut put = |byte: u8| {
            text[at] = byte;
            at += 1;
        };
        let (mut group, mut separated) = (0, true);
        while group < 8 {
            if group == start && len > 1 {
                put(b':');
                put(b':');
                (group, separated) = (group + len, true);
                continue;
            }
            if !separated {
                put(b':');
            }
            separated = false;
            let value = groups[group];
            let mut begun = false;
            for shift in [12, 8, 4, 0] {
                let digit = usize::from(value >> shift & 0xf);
                begun |= digit != 0 || shift == 0;
                if begun {
                    put(DIGITS[digit]);
                }
            }
            group += 1;
        }
        ascii(&text[..at], out);
    }
}

/// Start and length of the first of the longest runs of zero groups.
fn longest_zeros(groups: &[u16; 8]) -> (usize, usize) {
    let (mut best, mut run) = ((0, 0), 0);
    for (at, group) in groups.iter().enumerate() {
        run = if *group == 0 { run + 1 } else { 0 };
        if run > best.1 {
            best = (at + 1 - run, run);
        }
    }
    best
}

impl Show for MacAddr {
    fn show(&self, out: &mut String) {
        let mut text = [b':'; 17];
        for (number, byte) in self.0.into_iter().enumerate() {
            text[3 * number] = DIGITS[usize::from(byte >> 4)];
            text[3 * number + 1] = DIGITS[usize::from(byte & 0xf)];
        }
        ascii(&text, out);
    }
}

/// The address of either version.
impl Show for IpAddr {
    fn show(&self, out: &mut String) {
        match self {
            IpAddr::V4(address) => address.show(out),
            IpAddr::V6(address) => Ipv6(*address).show(out),
        }
    }
}

/// A number with leading zeros, of at most ten digits.
pub(crate) struct Padded(pub(crate) u32, pub(crate) usize);

impl Show for Padded {
    fn show(&self, out: &mut String) {
        let mut digits = [b'0'; 10];
        let start = decimal(self.0, &mut digits);
        digits[..start].fill(b'0');
        ascii(&digits[start.min(10 - self.1.min(10))..], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn shown(value: impl Show) -> String {
        let mut out = String::new();
        value.show(&mut out);
        out
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        for number in [0, 9, 10, 99, 100, 101, 999, 1000, 12_345, 99_999, 100_000, u32::MAX] {
            assert_eq!(shown(number), number.to_string());
            assert_eq!(shown(u64::from(number)), number.to_string());
            assert_eq!(shown(Padded(number, 6)), format!("{number:06}"));
            assert_eq!(shown(Padded(number, 2)), format!("{number:02}"));
        }
        assert_eq!(shown(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn addresses_are_those_of_the_standard_library() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let address = Ipv4Addr::from_bits((state >> 32) as u32);
            assert_eq!(shown(address), address.to_string());
            let mac = MacAddr(state.to_be_bytes()[..6].try_into().unwrap());
            assert_eq!(shown(mac), mac.to_string());
            // Groups of which many are zero.
            let group = |at: u32| match state >> (8 * at) & 3 {
                0 | 1 => 0,
                2 => (state >> at) as u16 & 0xf,
                _ => (state >> at) as u16,
            };
            let groups: [u16; 8] = std::array::from_fn(|at| group(at as u32));
            let address = Ipv6(Ipv6Addr::from(groups));
            assert_eq!(shown(address), address.to_string());
        }
        for text in ["::", "::1", "1::", "::1.2.3.4", "::ffff:1.2.3.4", "fe80::1", "1:0:0:2::3"] {
            let address = Ipv6(text.parse().unwrap());
            assert_eq!(shown(address), address.to_string());
        }
    }
}
