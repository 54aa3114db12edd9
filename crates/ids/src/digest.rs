//! MD5, SHA-1 and SHA-256, for names of hellos and certificates and for transforms: nothing is protected by them.

use md5::{Digest, Md5};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// MD5 of some bytes.
pub fn md5(bytes: &[u8]) -> Vec<u8> {
    Md5::digest(bytes).to_vec()
}

/// SHA-1 of some bytes.
pub fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

/// SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
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
