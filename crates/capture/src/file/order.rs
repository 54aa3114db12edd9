//! Byte order of a capture file.

/// Byte order of the machine that wrote the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Two bytes at `at`. The caller has checked the length.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = [bytes[at], bytes[at + 1]];
        match self {
            Order::Little => u16::from_le_bytes(field),
            Order::Big => u16::from_be_bytes(field),
        }
    }

    /// Four bytes at `at`. The caller has checked the length.
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Order::Little => u32::from_le_bytes(field),
            Order::Big => u32::from_be_bytes(field),
        }
    }

    /// Eight bytes at `at`. The caller has checked the length.
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, at)), u64::from(self.u32(bytes, at + 4)));
        match self {
            Order::Little => second << 32 | first,
            Order::Big => first << 32 | second,
        }
    }

    /// True if it is not the order of this machine.
    pub(super) fn is_foreign(self) -> bool {
        (self == Order::Big) != cfg!(target_endian = "big")
    }
}
