//! Frames of a WebSocket (RFC 6455), from the side of a server.

/// Most bytes of a message.
pub const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Most bytes of the content of a control frame.
const MAX_CONTROL_BYTES: usize = 125;

/// A complete message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A text.
    Text(String),
    /// A question whether this side is there, with its content.
    Ping(Vec<u8>),
    /// The end.
    Close,
}

/// Reasons for which a socket is closed, with the status that a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are not of the protocol.
    Protocol,
    /// A message of bytes.
    Binary,
    /// A text is not UTF-8.
    Text,
    /// A message is too long.
    TooLong,
}

impl Fault {
    fn status(self) -> (u16, &'static str) {
        match self {
            Fault::Protocol => (1002, "not a frame of a WebSocket client"),
            Fault::Binary => (1003, "a message must be a text"),
            Fault::Text => (1007, "a text must be UTF-8"),
            Fault::TooLong => (1009, "a message has at most 256 KiB"),
        }
    }

    /// The frame that closes the socket.
    pub fn frame(self) -> Vec<u8> {
        let (status, reason) = self.status();
        frame(8, &[&status.to_be_bytes()[..], reason.as_bytes()].concat())
    }
}

/// The frame of a text.
pub fn text(content: &[u8]) -> Vec<u8> {
    frame(1, content)
}

/// The frame that answers a ping.
pub fn pong(content: &[u8]) -> Vec<u8> {
    frame(10, content)
}

/// The frame that asks for a sign of life.
pub fn ping() -> Vec<u8> {
    frame(9, &[])
}

/// The frame that answers a close.
pub fn closed() -> Vec<u8> {
    frame(8, &1000u16.to_be_bytes())
}

fn frame(opcode: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match (u8::try_from(content.len()), u16::try_from(content.len())) {
        (Ok(length @ ..=125), _) => frame.push(length),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend((content.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(content);
    frame
}

/// Puts the messages of a client together from the bytes that arrive. Memory: one message, and one read.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    /// Content of the frames before the last one of a message.
    begun: Option<Vec<u8>>,
}

/// The head of a frame.
struct Head {
    is_last: bool,
    opcode: u8,
    /// Bytes of the head, with the mask.
    len: usize,
    content_len: usize,
    mask: [u8; 4],
}

impl Messages {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if it is complete.
    ///
    /// # Errors
    /// The socket must be closed.
    pub fn take(&mut self) -> Result<Option<Message>, Fault> {
        loop {
            let Some(head) = self.head()? else { return Ok(None) };
            let end = head.len + head.content_len;
            let Some(content) = self.bytes.get(head.len..end) else { return Ok(None) };
            let masks = head.mask.iter().cycle();
            let content: Vec<u8> =
                content.iter().zip(masks).map(|(byte, mask)| byte ^ mask).collect();
            self.bytes.drain(..end);
            match head.opcode {
                8 => return Ok(Some(Message::Close)),
                9 => return Ok(Some(Message::Ping(content))),
                10 => continue,
                _ => {}
            }
            let mut whole = self.begun.take().unwrap_or_default();
            whole.extend(content);
            if head.is_last {
                let text = String::from_utf8(whole).map_err(|_| Fault::Text)?;
                return Ok(Some(Message::Text(text)));
            }
            self.begun = Some(whole);
        }
    }

    /// The head of the next frame, if it is complete.
    fn head(&self) -> Result<Option<Head>, Fault> {
        let &[first, second, ref rest @ ..] = &self.bytes[..] else { return Ok(None) };
        let (opcode, is_last, short) = (first & 15, first & 0x80 != 0, second & 0x7f);
        let is_control = opcode >= 8;
        let is_begun = self.begun.is_some();
        // Bits of extensions; a frame without a mask; an opcode out of place.
        match opcode {
            _ if first & 0x70 != 0 || second & 0x80 == 0 => return Err(Fault::Protocol),
            0 if is_begun => {}
            1 if !is_begun => {}
            2 if !is_begun => return Err(Fault::Binary),
            8..=10 if is_last && usize::from(short) <= MAX_CONTROL_BYTES => {}
            _ => return Err(Fault::Protocol),
        }
        let wide = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((length, rest)) = rest.split_at_checked(wide) else { return Ok(None) };
        let length = match wide {
            0 => u64::from(short),
            _ => length.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
        };
        let before = self.begun.as_ref().filter(|_| !is_control).map_or(0, Vec::len);
        let most = MAX_MESSAGE_BYTES - before;
        let content_len = usize::try_from(length).ok().filter(|length| *length <= most);
        let content_len = content_len.ok_or(Fault::TooLong)?;
        let Some(mask) = rest.first_chunk() else { return Ok(None) };
        Ok(Some(Head { is_last, opcode, len: 2 + wide + 4, content_len, mask: *mask }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    /// A frame of a client.
    fn sent(first: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = frame(0, content);
        bytes[0] = first;
        bytes[1] |= 0x80;
        let at = bytes.len() - content.len();
        drop(bytes.splice(at..at, MASK));
        bytes
            .iter_mut()
            .skip(at + 4)
            .zip(MASK.iter().cycle())
            .for_each(|(byte, mask)| *byte ^= mask);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Option<Message>, Fault> {
        let mut messages = Messages::default();
        messages.push(bytes);
        messages.take()
    }

    #[test]
    fn frames_are_those_of_the_rfc() {
        // Section 5.7.
        assert_eq!(text(b"Hello"), b"\x81\x05Hello");
        let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(sent(0x81, b"Hello"), hello);
        assert_eq!(read(&hello), Ok(Some(Message::Text("Hello".into()))));
        assert_eq!(text(&[b'x'; 256])[..4], [0x81, 126, 1, 0]);
        assert_eq!(text(&[b'x'; 65_536])[..10], [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(closed(), [0x88, 2, 3, 0xe8]);
    }

    #[test]
    fn messages_arrive_byte_by_byte_and_in_pieces() {
        let long = "ä".repeat(40_000);
        let bytes = [
            sent(0x01, b"one, "),
            sent(0x89, b"there?"),
            sent(0x00, b"two, "),
            sent(0x8a, b""),
            sent(0x80, b"three"),
            sent(0x81, long.as_bytes()),
            sent(0x88, &[]),
        ];
        let mut messages = Messages::default();
        let mut found = Vec::new();
        for byte in bytes.concat() {
            messages.push(&[byte]);
            found.extend(messages.take().unwrap());
        }
        let texts = [Message::Text("one, two, three".into()), Message::Text(long)];
        let [first, second] = texts;
        assert_eq!(found, [Message::Ping(b"there?".to_vec()), first, second, Message::Close]);
        assert!(messages.bytes.is_empty() && messages.begun.is_none());
    }

    #[test]
    fn faults_have_their_status() {
        let longest = vec![b'x'; MAX_MESSAGE_BYTES];
        assert!(matches!(read(&sent(0x81, &longest)), Ok(Some(Message::Text(_)))));
        let head = |length: u64| [&[0x81, 0xff][..], &length.to_be_bytes()].concat();
        for (bytes, fault) in [
            (text(b"no mask"), Fault::Protocol),
            (sent(0xc1, b"extension"), Fault::Protocol),
            (sent(0x80, b"nothing begun"), Fault::Protocol),
            (sent(0x83, b"unknown"), Fault::Protocol),
            (sent(0x09, b"a ping in pieces"), Fault::Protocol),
            (sent(0x89, &[0; 126]), Fault::Protocol),
            ([sent(0x01, b"a"), sent(0x81, b"b")].concat(), Fault::Protocol),
            (sent(0x82, b"bytes"), Fault::Binary),
            (sent(0x81, b"\xff"), Fault::Text),
            // The head is enough: nothing is kept for a message that is too long.
            (head(MAX_MESSAGE_BYTES as u64 + 1), Fault::TooLong),
            (head(u64::MAX), Fault::TooLong),
            ([sent(0x01, &longest), sent(0x80, b"x")].concat(), Fault::TooLong),
        ] {
            assert_eq!(read(&bytes), Err(fault), "{:x?}", &bytes[..bytes.len().min(20)]);
            assert!(fault.frame().len() <= 2 + MAX_CONTROL_BYTES);
        }
    }
}
