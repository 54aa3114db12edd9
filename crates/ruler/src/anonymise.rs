//! Functions of the right-hand side that hide bytes (anonymisation).
//!
//! All but `random` are consistent: the same input gives the same output under the same key, across packets and
//! files. Addresses go through Crypto-PAn (Xu, Fan, Ammar, Moon 2002): two addresses with a common prefix of n bits
//! get results with a common prefix of exactly n bits. The published function, `cryptopan`, leaves about 7 in
//! 100,000 IPv4 addresses unchanged, since neighbouring bits share a cipher input where address and padding agree.
//! `prefix` has no such fixed points: if none of the first eight bits is changed, it changes the eighth. This
//! depends only on the bits before the eighth, so the function is still prefix-preserving and one-to-one, and the
//! first byte of a result always differs from that of the address. The price: the eighth bit is not changed at
//! random where the seven before it are unchanged. A first byte therefore maps to 255 others instead of 256, and to
//! its neighbour with twice the probability of the others.
//!
//! `mac`, `hash` and `hashtext` never return their input either, except for addresses of all ones and of all zeros,
//! which are kept on purpose. All other keyed functions use a pseudo-random function: CBC-MAC over AES-128 with the
//! length in the first block, widened in counter mode. The key never appears in output and has no `Debug`.
//!
//! Cost: 32 AES blocks for an IPv4 address that is not in the cache, 128 for IPv6.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_ruler as ruler; }
//! use fyke::ruler::anonymise::Anonymiser;
//! use fyke::ruler::program::Function;
//!
//! let mut functions = Anonymiser::new(&[7; 32], &[0; 16]);
//! let (mut one, mut two) = (Vec::new(), Vec::new());
//! functions.apply(&Function::Prefix, &[10, 0, 0, 1], &mut one);
//! functions.apply(&Function::Prefix, &[10, 0, 0, 2], &mut two);
//! assert_eq!(one[..3], two[..3]); // equal prefixes stay equal
//! ```

use crate::program::Function;
use aes::Aes128;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockEncrypt, KeyInit};

/// Length of a key in bytes.
pub const KEY_LEN: usize = 32;
/// Number of addresses in the cache, per family.
const CACHE: usize = 4096;

/// Parses a key: 64 hexadecimal digits, between which white space is allowed. `None`: it is something else.
pub fn parse_key(text: &str) -> Option<[u8; KEY_LEN]> {
    let digits: Option<Vec<u32>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == KEY_LEN * 2)?;
    let mut key = [0; KEY_LEN];
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    Some(key)
}

type Block = [u8; 16];
/// Cache of addresses and their results.
type Cache<A> = Vec<Option<(A, A)>>;

/// The functions under one key.
pub struct Anonymiser {
    /// Crypto-PAn's cipher and padding.
    prefix: Aes128,
    pad: Block,
    hash: Aes128,
    random: Aes128,
    random_count: u128,
    /// Caches of the published function, and of the one without fixed points.
    cache_v4: [Cache<[u8; 4]>; 2],
    cache_v6: [Cache<Block>; 2],
    /// Indexed by [`name`].
    applied: [Applied; NAMES.len()],
}

/// Statistics of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Name of the function.
    pub function: &'static str,
    /// Number of values it was applied to, without empty ones.
    pub values: u64,
    /// Number of bytes of these values.
    pub bytes: u64,
    /// Number of values that it left unchanged.
    pub left: u64,
}

impl std::fmt::Debug for Anonymiser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Anonymiser").finish_non_exhaustive()
    }
}

fn encrypt(cipher: &Aes128, block: Block) -> Block {
    let mut block = GenericArray::from(block);
    cipher.encrypt_block(&mut block);
    block.into()
}

impl Anonymiser {
    /// Creates the functions under `key`; `seed` starts the sequence of `random` and should be new for every run.
    pub fn new(key: &[u8; KEY_LEN], seed: &[u8; 16]) -> Anonymiser {
        let (mut first, mut second) = ([0; 16], [0; 16]);
        first.copy_from_slice(&key[..16]);
        second.copy_from_slice(&key[16..]);
        let prefix = Aes128::new(&first.into());
        let pad = encrypt(&prefix, second);
        // The hash has a key of its own: another cipher block, since the padding already is an output of the
        // cipher.
        let mut own = second;
        own.iter_mut().zip(*b"fyke-ruler-hash!").for_each(|(byte, label)| *byte ^= label);
        let hash = Aes128::new(&encrypt(&Aes128::new(&pad.into()), own).into());
        let random = Aes128::new(&(*seed).into());
        Anonymiser {
            prefix,
            pad,
            hash,
            random,
            random_count: 0,
            cache_v4: [vec![None; CACHE], vec![None; CACHE]],
            cache_v6: [vec![None; CACHE], vec![None; CACHE]],
            applied: NAMES.map(|function| Applied { function, ..Applied::default() }),
        }
    }

    /// Appends the result of `function` for `given`, which has the same length.
    pub fn apply(&mut self, function: &Function, given: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        self.compute(function, given, out);
        let applied = &mut self.applied[name(function)];
        applied.values += u64::from(!given.is_empty());
        applied.bytes += given.len() as u64;
        applied.left += u64::from(!given.is_empty() && &out[start..] == given);
    }

    fn compute(&mut self, function: &Function, given: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        match function {
            Function::Zero => out.resize(out.len() + given.len(), 0),
            Function::Random => self.random(given.len(), out),
            Function::Hash => {
                self.hash(given, given.len(), out);
                differ(given, &mut out[start..], |byte| byte ^ 1);
            }
            Function::HashText => {
                self.hash(given, given.len(), out);
                out[start..].iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
                differ(given, &mut out[start..], |byte| b'a' + (byte - b'a' + 1) % 26);
            }
            Function::Prefix => self.prefix(given, true, out),
            Function::CryptoPan => self.prefix(given, false, out),
            Function::Mac => self.mac(given, out),
            Function::Fill(pattern) => out.extend(pattern.iter().cycle().take(given.len())),
        }
    }

    /// Statistics of the functions that were applied at least once.
    pub fn applied(&self) -> impl Iterator<Item = Applied> {
        self.applied.iter().filter(|applied| applied.values > 0).copied()
    }

    fn random(&mut self, mut len: usize, out: &mut Vec<u8>) {
        while len > 0 {
            self.random_count += 1;
            let block = encrypt(&self.random, self.random_count.to_be_bytes());
            out.extend_from_slice(&block[..len.min(16)]);
            len -= len.min(16);
        }
    }

    /// Appends `len` bytes that depend on all of `given` and the key.
    fn hash(&self, given: &[u8], mut len: usize, out: &mut Vec<u8>) {
        let mut state = encrypt(&self.hash, (given.len() as u128).to_be_bytes());
        for chunk in given.chunks(16) {
            state.iter_mut().zip(chunk).for_each(|(state, byte)| *state ^= byte);
            state = encrypt(&self.hash, state);
        }
        // Counters have their highest bit set; lengths do not.
        let mut counter = u128::from_be_bytes(state) | 1 << 127;
        while len > 0 {
            let block = encrypt(&self.hash, counter.to_be_bytes());
            out.extend_from_slice(&block[..len.min(16)]);
            len -= len.min(16);
            counter = counter.wrapping_add(1) | 1 << 127;
        }
    }

    fn mac(&self, given: &[u8], out: &mut Vec<u8>) {
        if given.iter().all(|byte| *byte == 0xff) || given.iter().all(|byte| *byte == 0) {
            return out.extend_from_slice(given);
        }
        let start = out.len();
        self.hash(given, given.len(), out);
        if let (Some(first), Some(was)) = (out.get_mut(start), given.first()) {
            *first = (*first & 0xfc) | 0x02 | (was & 1);
        }
        differ(given, &mut out[start..], |byte| byte ^ 4);
    }

    /// Computes a prefix-preserving address; with `moves`, every address changes.
    fn prefix(&mut self, given: &[u8], moves: bool, out: &mut Vec<u8>) {
        let cache = usize::from(moves);
        if let Ok(address) = <[u8; 4]>::try_from(given) {
            let at = slot(&address);
            let hidden = match self.cache_v4[cache][at] {
                Some((known, hidden)) if known == address => hidden,
                _ => {
                    let mut wide = [0; 16];
                    wide[..4].copy_from_slice(&address);
                    let wide = self.crypto_pan(wide, 32, moves);
                    let hidden = [wide[0], wide[1], wide[2], wide[3]];
                    self.cache_v4[cache][at] = Some((address, hidden));
                    hidden
                }
            };
            out.extend_from_slice(&hidden);
        } else if let Ok(address) = Block::try_from(given) {
            let at = slot(&address);
            let hidden = match self.cache_v6[cache][at] {
                Some((known, hidden)) if known == address => hidden,
                _ => {
                    let hidden = self.crypto_pan(address, 128, moves);
                    self.cache_v6[cache][at] = Some((address, hidden));
                    hidden
                }
            };
            out.extend_from_slice(&hidden);
        } else {
            // The language admits fields of 4 and 16 bytes only.
            self.hash(given, given.len(), out);
        }
    }

    /// Computes Crypto-PAn: bit n of the result is bit n of the address, changed by a function of the n bits before
    /// it.
    fn crypto_pan(&self, address: Block, bits: usize, moves: bool) -> Block {
        let (address, pad) = (u128::from_be_bytes(address), u128::from_be_bytes(self.pad));
        let mut blocks = Vec::with_capacity(bits);
        for bit in 0..bits {
            let known = u128::MAX.checked_shl(128 - u32::try_from(bit).unwrap_or(0)).unwrap_or(0);
            let block = (address & known) | (pad & !known);
            blocks.push(GenericArray::from(block.to_be_bytes()));
        }
        self.prefix.encrypt_blocks(&mut blocks);
        let mut change = blocks
            .iter()
            .enumerate()
            .fold(0u128, |change, (bit, block)| change | u128::from(block[0] >> 7) << (127 - bit));
        if moves && change >> 120 == 0 {
            change |= 1 << 120;
        }
        (address ^ change).to_be_bytes()
    }
}

/// Names of the functions in alphabetical order.
const NAMES: [&str; 8] =
    ["cryptopan", "fill", "hash", "hashtext", "mac", "prefix", "random", "zero"];

/// Changes the last byte of a result that equals its input.
fn differ(given: &[u8], made: &mut [u8], change: impl Fn(u8) -> u8) {
    if given == made
        && let Some(last) = made.last_mut()
    {
        *last = change(*last);
    }
}

/// Index of a function's name.
fn name(function: &Function) -> usize {
    match function {
        Function::CryptoPan => 0,
        Function::Fill(_) => 1,
        Function::Hash => 2,
        Function::HashText => 3,
        Function::Mac => 4,
        Function::Prefix => 5,
        Function::Random => 6,
        Function::Zero => 7,
    }
}

fn slot(address: &[u8]) -> usize {
    let folded = address.chunks(4).fold(0u32, |hash, chunk| {
        let word = chunk.try_into().map_or(0, u32::from_le_bytes);
        (hash ^ word).wrapping_mul(0x9e37_79b1)
    });
    (folded >> 16) as usize % CACHE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key and pairs of Crypto-PAn's own sample trace.
    const KEY: [u8; 32] = [
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131,
        121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
    ];

    fn hidden(anonymiser: &mut Anonymiser, function: &Function, given: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        anonymiser.apply(function, given, &mut out);
        out
    }

    fn prefix(address: &[u8]) -> Vec<u8> {
        hidden(&mut Anonymiser::new(&KEY, &[0; 16]), &Function::Prefix, address)
    }

    fn published(address: &[u8]) -> Vec<u8> {
        hidden(&mut Anonymiser::new(&KEY, &[0; 16]), &Function::CryptoPan, address)
    }

    /// SplitMix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Maps a million addresses under ten keys, and all first bytes under many keys: `prefix` changes every one.
    /// The published function leaves some unchanged, which shows that the test can fail.
    #[test]
    fn no_address_stays_as_it_is() {
        let (mut state, mut kept) = (7, 0);
        for round in 0..10 {
            let mut key = [0; KEY_LEN];
            key.chunks_mut(8)
                .for_each(|part| part.copy_from_slice(&next(&mut state).to_le_bytes()));
            let mut anonymiser = Anonymiser::new(&key, &[0; 16]);
            for _ in 0..100_000 {
                let address = (next(&mut state) as u32).to_be_bytes();
                let new = hidden(&mut anonymiser, &Function::Prefix, &address);
                assert_ne!(new[0], address[0], "key {round}");
                let old = hidden(&mut anonymiser, &Function::CryptoPan, &address);
                kept += usize::from(old == address);
                assert!(old == new || old[0] == address[0], "only what stays is changed");
            }
        }
        assert!(kept > 0, "the published function has fixed points");
        for round in 0..500u64 {
            let mut key = [round as u8; KEY_LEN];
            key[..8].copy_from_slice(&next(&mut state).to_le_bytes());
            let mut anonymiser = Anonymiser::new(&key, &[0; 16]);
            for rest in [[0; 3], [255; 3]] {
                let mut seen = [false; 256];
                for first in 0..=255 {
                    let address = [first, rest[0], rest[1], rest[2]];
                    let byte = hidden(&mut anonymiser, &Function::Prefix, &address)[0];
                    assert!(byte != first && !seen[usize::from(byte)], "one to one");
                    seen[usize::from(byte)] = true;
                    let wide: Block = std::array::from_fn(|at| if at == 0 { first } else { 9 });
                    assert_ne!(hidden(&mut anonymiser, &Function::Prefix, &wide)[0], first);
                }
            }
        }
        let done: Vec<_> = Anonymiser::new(&KEY, &[0; 16]).applied().collect();
        assert!(done.is_empty(), "{done:?}");
    }

    /// Short names and numbers collide with their own hash by chance: one letter in 26, one byte in 256.
    #[test]
    fn hashes_of_short_values_differ_from_them() {
        let mut anonymiser = Anonymiser::new(&KEY, &[0; 16]);
        for byte in 0..=255u8 {
            for function in [Function::Hash, Function::HashText, Function::Mac] {
                let out = hidden(&mut anonymiser, &function, &[byte]);
                let by_intent = function == Function::Mac && matches!(byte, 0 | 255);
                assert_eq!(out == [byte], by_intent, "{function:?} {byte}");
                assert!(function != Function::HashText || out[0].is_ascii_lowercase());
            }
        }
        let left: Vec<_> = anonymiser.applied().map(|one| (one.function, one.left)).collect();
        assert_eq!(left, [("hash", 0), ("hashtext", 0), ("mac", 2)]);
    }

    #[test]
    fn addresses_are_those_of_crypto_pan() {
        for (given, expected) in [
            ([128, 11, 68, 132], [135, 242, 180, 132]),
            ([129, 118, 74, 4], [134, 136, 186, 123]),
            ([130, 132, 252, 244], [133, 68, 164, 234]),
            ([141, 223, 7, 43], [141, 167, 8, 160]),
        ] {
            assert_eq!(published(&given), expected, "{given:?}");
        }
    }

    #[test]
    fn common_prefixes_stay_common_and_no_longer() {
        let leading = |a: &[u8], b: &[u8]| {
            let bits = a.iter().zip(b).map(|(a, b)| (a ^ b).leading_zeros());
            let mut total = 0;
            for bits in bits {
                total += bits;
                if bits < 8 {
                    break;
                }
            }
            total
        };
        let base: [u8; 16] = std::array::from_fn(|at| at as u8 * 17);
        for bit in 0..128 {
            let mut other = base;
            other[bit / 8] ^= 0x80 >> (bit % 8);
            assert_eq!(leading(&prefix(&base), &prefix(&other)) as usize, bit);
            assert_eq!(leading(&published(&base), &published(&other)) as usize, bit);
        }
    }

    #[test]
    fn functions_keep_lengths_and_depend_on_the_key() {
        let given = b"some host name";
        let run = |key: &[u8; 32], function: &Function| {
            let mut out = Vec::new();
            Anonymiser::new(key, &[1; 16]).apply(function, given, &mut out);
            out
        };
        for function in
            [Function::Zero, Function::Random, Function::Hash, Function::HashText, Function::Mac]
        {
            assert_eq!(run(&KEY, &function).len(), given.len());
        }
        assert_eq!(run(&KEY, &Function::Fill(b"ab".to_vec())), b"ababababababab");
        for function in [Function::Hash, Function::HashText, Function::Mac] {
            assert_eq!(run(&KEY, &function), run(&KEY, &function));
            assert_ne!(run(&KEY, &function), run(&[7; 32], &function));
        }
        assert!(run(&KEY, &Function::HashText).iter().all(u8::is_ascii_lowercase));
        let mut mac = Vec::new();
        Anonymiser::new(&KEY, &[1; 16]).apply(&Function::Mac, &[0xff; 6], &mut mac);
        assert_eq!(mac, [0xff; 6]);
    }
}
