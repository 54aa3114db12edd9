//! Writer of pcapng files block by block, valid and invalid, in both byte orders.
//!
//! Nothing is checked: a test that needs an invalid file gives invalid values. Source: draft-ietf-opsawg-pcapng.

/// A file under construction.
#[derive(Debug, Clone)]
pub struct Pcapng {
    big_endian: bool,
    bytes: Vec<u8>,
}

/// One option of a block: code and value.
pub type BlockOption<'a> = (u16, &'a [u8]);

impl Pcapng {
    /// Creates a file with its first section header.
    pub fn new(big_endian: bool) -> Pcapng {
        let mut file = Pcapng { big_endian, bytes: Vec::new() };
        file.section(big_endian, &[]);
        file
    }

    /// Returns the bytes so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    fn word(&self, word: u32) -> [u8; 4] {
        if self.big_endian { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    fn half(&self, half: u16) -> [u8; 2] {
        if self.big_endian { half.to_be_bytes() } else { half.to_le_bytes() }
    }

    fn options(&self, options: &[BlockOption<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (code, value) in options {
            bytes.extend(self.half(*code));
            bytes.extend(self.half(value.len() as u16));
            bytes.extend(padded(value));
        }
        if !options.is_empty() {
            bytes.extend([0; 4]);
        }
        bytes
    }

    /// Adds a block of any type; the body is padded to words.
    pub fn block(&mut self, kind: u32, body: &[u8]) -> &mut Self {
        let body = padded(body);
        let len = self.word(12 + body.len() as u32);
        let kind = self.word(kind);
        self.bytes.extend([&kind[..], &len, &body, &len].concat());
        self
    }

    /// Adds raw bytes, for blocks with a wrong length.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    /// Adds a section header; later blocks have this byte order.
    pub fn section(&mut self, big_endian: bool, options: &[BlockOption<'_>]) -> &mut Self {
        self.big_endian = big_endian;
        let mut body = self.word(0x1a2b_3c4d).to_vec();
        body.extend([self.half(1), self.half(0)].concat());
        body.extend([0xff; 8]);
        body.extend(self.options(options));
        self.block(0x0a0d_0d0a, &body)
    }

    /// Adds an interface description.
    pub fn interface(&mut self, link: u16, snaplen: u32, options: &[BlockOption<'_>]) -> &mut Self {
        let mut body = [self.half(link), [0; 2]].concat();
        body.extend(self.word(snaplen));
        body.extend(self.options(options));
        self.block(1, &body)
    }

    /// Adds an enhanced packet block; `time` is in the interface's unit.
    pub fn packet(
        &mut self,
        interface: u32,
        time: u64,
        (data, wire_len): (&[u8], u32),
        options: &[BlockOption<'_>],
    ) -> &mut Self {
        let words = [interface, (time >> 32) as u32, time as u32, data.len() as u32, wire_len];
        let mut body: Vec<u8> = words.iter().flat_map(|&word| self.word(word)).collect();
        body.extend(padded(data));
        body.extend(self.options(options));
        self.block(6, &body)
    }

    /// Adds a simple packet block: a whole frame of the first interface, without a time.
    pub fn simple(&mut self, data: &[u8], wire_len: u32) -> &mut Self {
        let body = [&self.word(wire_len)[..], data].concat();
        self.block(3, &body)
    }

    /// Adds a packet block of the format's first versions.
    pub fn old_packet(&mut self, interface: u16, time: u64, data: &[u8]) -> &mut Self {
        let mut body = [self.half(interface), self.half(0)].concat();
        let len = data.len() as u32;
        let words = [(time >> 32) as u32, time as u32, len, len];
        body.extend(words.iter().flat_map(|&word| self.word(word)));
        body.extend(data);
        self.block(2, &body)
    }
}

/// Pads the bytes to words.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
