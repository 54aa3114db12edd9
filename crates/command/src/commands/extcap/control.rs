//! Messages between Wireshark's toolbar and an external capture.
//!
//! ```text
//! 0        'T'
//! 1..4     length of the rest, big-endian
//! 4        number of the control
//! 5        command
//! 6..      payload, UTF-8, at most 65,535 bytes
//! ```
//!
//! Source: Wireshark Developer's Guide, "Extcap", messages of controls.

/// Bytes before the payload.
const HEAD: usize = 6;
/// Most bytes of a payload.
pub const MAX_PAYLOAD: usize = 65_535;
/// Most bytes of a text in a string control.
pub const MAX_TEXT: usize = 32_767;

/// The toolbar is ready; it sends the values that its user has changed before.
pub const INITIALIZED: u8 = 0;
/// Sets a value; for a button, it was pressed.
pub const SET: u8 = 1;
/// Adds to a log, or a value to a selector.
pub const ADD: u8 = 2;
/// Removes a value from a selector.
pub const REMOVE: u8 = 3;
/// Shows a text in the status bar.
pub const STATUS: u8 = 6;
/// Shows an error in a window.
pub const ERROR: u8 = 9;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub control: u8,
    pub command: u8,
    pub payload: String,
}

impl Message {
    pub fn new(control: u8, command: u8, payload: impl Into<String>) -> Message {
        Message { control, command, payload: payload.into() }
    }

    /// Its bytes; a payload that is too long is cut.
    pub fn bytes(&self) -> Vec<u8> {
        let payload = &self.payload[..self.payload.floor_char_boundary(MAX_PAYLOAD)];
        let length = (payload.len() + 2) as u32;
        let mut bytes = vec![b'T'];
        bytes.extend_from_slice(&length.to_be_bytes()[1..]);
        bytes.extend_from_slice(&[self.control, self.command]);
        bytes.extend_from_slice(payload.as_bytes());
        bytes
    }
}

/// Takes messages out of bytes that arrive in pieces.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    ///
    /// # Errors
    /// The bytes are not of this protocol; nothing after them can be read.
    pub fn next(&mut self) -> Result<Option<Message>, String> {
        let Some(&[kind, a, b, c, control, command]) = self.bytes.first_chunk::<HEAD>() else {
            let wrong = self.bytes.first().is_some_and(|first| *first != b'T');
            return if wrong { Err(self.not_the_protocol()) } else { Ok(None) };
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind != b'T' || !(2..=MAX_PAYLOAD + 2).contains(&length) {
            return Err(self.not_the_protocol());
        }
        let end = HEAD - 2 + length;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let payload = String::from_utf8_lossy(&self.bytes[HEAD..end]).into_owned();
        self.bytes.drain(..end);
        Ok(Some(Message { control, command, payload }))
    }

    fn not_the_protocol(&self) -> String {
        let head = &self.bytes[..self.bytes.len().min(HEAD)];
        format!("the toolbar sent {head:02x?}, which is no message")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_division_into_pieces() {
        let messages = [
            Message::new(0, SET, "tcp port 80"),
            Message::new(3, SET, ""),
            Message::new(7, ADD, "ü".repeat(1_000)),
        ];
        let bytes: Vec<u8> = messages.iter().flat_map(Message::bytes).collect();
        assert_eq!(&bytes[..6], [b'T', 0, 0, 13, 0, 1]);
        for size in [1, 2, 5, 7, 64, bytes.len()] {
            let mut incoming = Incoming::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(size) {
                incoming.push(piece);
                while let Some(message) = incoming.next().unwrap() {
                    read.push(message);
                }
            }
            assert_eq!(read, messages, "pieces of {size} bytes");
        }
    }

    #[test]
    fn other_bytes_and_wrong_lengths_are_refused() {
        for bytes in [&b"X"[..], b"TX\0\0\0\0", b"T\0\0\x01\0\0", b"T\x01\0\x02\0\0", b"GET / HTTP"]
        {
            let mut incoming = Incoming::default();
            incoming.push(bytes);
            assert!(incoming.next().is_err(), "{bytes:?}");
        }
        let long = Message::new(0, SET, "é".repeat(40_000)).bytes();
        assert!(long.len() <= MAX_PAYLOAD + HEAD && long.len() >= MAX_PAYLOAD + HEAD - 2);
        let mut incoming = Incoming::default();
        incoming.push(&long);
        assert!(incoming.next().unwrap().is_some(), "cut between two letters");
    }
}
