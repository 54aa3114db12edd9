//! Bytes as lower-case hexadecimal digits.

/// Two digits for each byte.
pub fn of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of an even number of digits; `None` for other texts.
pub fn read(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_read_back() {
        assert_eq!(super::read(&super::of(&[0, 1, 254, 255])), Some(vec![0, 1, 254, 255]));
        for wrong in ["0", "0g", "+1", "é"] {
            assert_eq!(super::read(wrong), None, "{wrong}");
        }
    }
}
