//! MD5, SHA-1 and SHA-256, for names of hellos and certificates and for transforms: nothing is protected by them.
//! Source: RFC 1321, RFC 3174, RFC 6234.

use std::sync::LazyLock;

/// Keys of MD5: parts of the sines of the first integers.
static SINES: LazyLock<[u32; 64]> = LazyLock::new(|| {
    std::array::from_fn(|at| (((at + 1) as f64).sin().abs() * 4_294_967_296.0) as u32)
});

/// MD5 of some bytes.
pub fn md5(bytes: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] =
        [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let padded = padded(bytes, (bytes.len() as u64 * 8).to_le_bytes());
    for block in padded.chunks_exact(64) {
        let word = |at: usize| {
            u32::from_le_bytes([
                block[4 * at],
                block[4 * at + 1],
                block[4 * at + 2],
                block[4 * at + 3],
            ])
        };
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64 {
            let (mixed, at) = match step / 16 {
                0 => (b & c | !b & d, step),
                1 => (d & b | !d & c, (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), 7 * step % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(SINES[step]).wrapping_add(word(at));
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
        }
        for (own, new) in state.iter_mut().zip([a, b, c, d]) {
            *own = own.wrapping_add(new);
        }
    }
    let mut out = [0; 16];
    for (part, word) in out.chunks_exact_mut(4).zip(state) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    out
}

/// SHA-1 of some bytes.
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let padded = padded(bytes, (bytes.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 80];
        for (word, part) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([part[0], part[1], part[2], part[3]]);
        }
        for at in 16..80 {
            let mixed = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
            words[at] = mixed.rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (step, word) in words.iter().enumerate() {
            let (mixed, key) = match step / 20 {
                0 => (b & c | !b & d, 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
            let sum = sum.wrapping_add(key).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
        }
        for (own, new) in state.iter_mut().zip([a, b, c, d, e]) {
            *own = own.wrapping_add(new);
        }
    }
    let mut out = [0; 20];
    for (part, word) in out.chunks_exact_mut(4).zip(state) {
        part.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// Keys and first state of SHA-256: parts of the roots of the first primes.
static CONSTANTS: LazyLock<([u32; 64], [u32; 8])> = LazyLock::new(|| {
    let prime = |number: &u64| (2..*number).all(|one| !number.is_multiple_of(one));
    let primes: Vec<f64> = (2..312).filter(prime).map(|prime| prime as f64).collect();
    let fraction = |root: f64| (root.fract() * 4_294_967_296.0) as u32;
    (
        std::array::from_fn(|at| fraction(primes[at].cbrt())),
        std::array::from_fn(|at| fraction(primes[at].sqrt())),
    )
});

/// SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let (keys, mut state) = *CONSTANTS;
    let padded = padded(bytes, (bytes.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 64];
        for (word, part) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([part[0], part[1], part[2], part[3]]);
        }
        for at in 16..64 {
            let (one, other) = (words[at - 15], words[at - 2]);
            let low = one.rotate_right(7) ^ one.rotate_right(18) ^ one >> 3;
            let high = other.rotate_right(17) ^ other.rotate_right(19) ^ other >> 10;
            let sum = words[at - 16].wrapping_add(low).wrapping_add(words[at - 7]);
            words[at] = sum.wrapping_add(high);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (key, word) in keys.iter().zip(words) {
            let high = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let sum = h.wrapping_add(high).wrapping_add(e & f ^ !e & g);
            let sum = sum.wrapping_add(*key).wrapping_add(word);
            let low = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let other = low.wrapping_add(a & b ^ a & c ^ b & c);
            (h, g, f, e) = (g, f, e, d.wrapping_add(sum));
            (d, c, b, a) = (c, b, a, sum.wrapping_add(other));
        }
        for (own, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *own = own.wrapping_add(new);
        }
    }
    let mut out = [0; 32];
    for (part, word) in out.chunks_exact_mut(4).zip(state) {
        part.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// The bytes with a one bit, zeros and their length, up to a multiple of 64.
fn padded(bytes: &[u8], len: [u8; 8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out.push(0x80);
    out.resize((out.len() + 8).next_multiple_of(64) - 8, 0);
    out.extend(len);
    out
}

/// SHA-1 of some bytes, as `0a:ff`.
pub fn fingerprint(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<String> = sha1(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(":").into_bytes()
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standards() {
        assert_eq!(hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(&md5(b"message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
        let long =
            b"12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(hex(&md5(long)), "57edf4a22be3c955ac49da2e2107b67a");
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(&sha1(two)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(
            hex(&sha256(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            hex(&sha256(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        );
    }
}
