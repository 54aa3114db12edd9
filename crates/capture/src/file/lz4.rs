//! Any number of LZ4 frames, one after the other, as one stream.
//!
//! The decoder takes the end of its input between two blocks for the end of the frame, so a truncated file would be
//! complete: here the input notes its end, which may come only between frames. Source: lz4_Frame_format.md, 1.6.

use lz4_flex::frame::FrameDecoder;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// Magic number of a frame.
pub(super) const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();

pub(super) struct Lz4<R: Read> {
    /// `None` only while the decoder is exchanged.
    decoder: Option<FrameDecoder<Input<R>>>,
    in_frame: bool,
}

/// The compressed bytes.
struct Input<R> {
    packed: BufReader<R>,
    has_ended: bool,
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The decoder would lose what it has read of a header before an interruption.
        let count = loop {
            match self.packed.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.has_ended |= count == 0 && !buffer.is_empty();
        Ok(count)
    }
}

impl<R: Read> Lz4<R> {
    pub(super) fn new(packed: R) -> Lz4<R> {
        let input = Input { packed: BufReader::new(packed), has_ended: false };
        Lz4 { decoder: Some(FrameDecoder::new(input)), in_frame: false }
    }

    /// Starts the next frame with a new decoder of the right size. False at the end of the file.
    fn start_frame(&mut self) -> io::Result<bool> {
        let Some(decoder) = &mut self.decoder else { return Ok(false) };
        if decoder.get_mut().packed.fill_buf()?.is_empty() {
            return Ok(false);
        }
        self.decoder = self.decoder.take().map(|decoder| FrameDecoder::new(decoder.into_inner()));
        self.in_frame = true;
        Ok(true)
    }
}

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.in_frame || self.start_frame()? {
            let Some(decoder) = &mut self.decoder else { break };
            let count = decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if decoder.get_ref().has_ended {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "lz4: the file is cut short"));
            }
            self.in_frame = false;
        }
        Ok(0)
    }
}
