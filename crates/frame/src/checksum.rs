//! The Internet checksum of IPv4, ICMP, UDP and TCP. Source: RFC 1071.

/// Computes the Internet checksum over pieces, all of even length except the last; 0 if a packet's
/// own checksum is included and right.
///
/// The sum is in the machine's byte order, four bytes at a time, which the compiler vectorises: the
/// byte order matters only at the end (RFC 1071).
pub fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for piece in pieces {
        let words = piece.chunks_exact(4);
        let mut rest = [0u8; 4];
        rest[..words.remainder().len()].copy_from_slice(words.remainder());
        let add = |sum: u64, word: [u8; 4]| sum + u64::from(u32::from_ne_bytes(word));
        sum = words.fold(sum, |sum, word| add(sum, [word[0], word[1], word[2], word[3]]));
        sum = add(sum, rest);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::from_be(u16::try_from(sum).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_testkit::packet;

    #[test]
    fn equals_the_word_by_word_sum_of_the_test_kit() {
        let bytes: Vec<u8> = (0..=255).chain([0xff; 70]).chain([0; 5]).collect();
        for start in 0..bytes.len() {
            for len in [0, 1, 2, 3, 4, 5, 20, 31, 64, 259] {
                let Some(last) = bytes.get(start..start + len) else { continue };
                for first in [0, 2, 4, 6, 20] {
                    let pieces = [&bytes[..first], last];
                    assert_eq!(checksum(&pieces), packet::checksum(&pieces), "{start} {first}");
                }
            }
        }
    }

    #[test]
    fn a_header_with_its_checksum_sums_to_zero() {
        let mut header = [0x45, 0, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let right = checksum(&[&header]);
        assert_eq!(right, 0x66d6);
        header[10..12].copy_from_slice(&right.to_be_bytes());
        assert_eq!(checksum(&[&header[..12], &header[12..]]), 0);
    }
}
