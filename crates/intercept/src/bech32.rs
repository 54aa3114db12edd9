//! Keys as texts of letters and digits with a checksum (Bech32). Source: BIP 173.

const LETTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// Letters of the checksum.
const CHECK: usize = 6;

fn checksum(values: impl Iterator<Item = u8>) -> u32 {
    const PARTS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.fold(1, |sum: u32, value| {
        let top = sum >> 25;
        let shifted = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
        let bits = (0..5).filter(|bit| top >> bit & 1 == 1);
        bits.fold(shifted, |sum, bit| sum ^ PARTS[bit])
    })
}

/// The values of the prefix that the checksum covers.
fn expanded(prefix: &str) -> impl Iterator<Item = u8> + '_ {
    let high = prefix.bytes().map(|byte| byte >> 5);
    high.chain([0]).chain(prefix.bytes().map(|byte| byte & 31))
}

/// Regroups bits; `None` if bits that are left are not zero.
fn regroup(values: &[u8], from: u32, to: u32) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for value in values {
        (bits, held) = (bits << from | u32::from(*value), held + from);
        while held >= to {
            held -= to;
            out.push((bits >> held) as u8 & ((1u32 << to) - 1) as u8);
            bits &= (1 << held) - 1;
        }
    }
    if from > to && held > 0 {
        out.push((bits << (to - held)) as u8);
    } else if bits != 0 || held >= from {
        return None;
    }
    Some(out)
}

/// The text of a key, in lower case.
pub(crate) fn encode(prefix: &str, key: &[u8; 32]) -> String {
    let values = regroup(key, 8, 5).unwrap_or_default();
    let sum = checksum(expanded(prefix).chain(values.iter().copied()).chain([0; CHECK])) ^ 1;
    let check = (0..CHECK).map(|at| (sum >> (5 * (CHECK - 1 - at)) & 31) as u8);
    let letters = values.iter().copied().chain(check).map(|value| LETTERS[usize::from(value)]);
    format!("{prefix}1{}", letters.map(char::from).collect::<String>())
}

/// The key of a text.
pub(crate) fn decode(prefix: &str, text: &str) -> Result<[u8; 32], &'static str> {
    let lower = text.to_ascii_lowercase();
    if text != lower && text != text.to_ascii_uppercase() {
        return Err("small and capital letters");
    }
    let Some((found, letters)) = lower.rsplit_once('1') else { return Err("no `1`") };
    if found != prefix {
        return Err("another kind of key");
    }
    let value = |letter: u8| LETTERS.iter().position(|one| *one == letter).map(|at| at as u8);
    let values: Option<Vec<u8>> = letters.bytes().map(value).collect();
    let values = values.ok_or("a letter that does not occur in keys")?;
    if checksum(expanded(prefix).chain(values.iter().copied())) != 1 {
        return Err("the checksum is wrong: a letter is missing or mistyped");
    }
    let data = values.len().checked_sub(CHECK).and_then(|length| values.get(..length));
    let bytes = data.and_then(|data| regroup(data, 5, 8)).ok_or("the length is wrong")?;
    bytes.try_into().map_err(|_| "the length is wrong")
}
