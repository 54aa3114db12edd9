//! The file of a warrant: pcapng, encrypted before it leaves the memory of this process.

use crate::age::{AgeError, Encrypted, Recipient, Written};
use fyke_capture::Interface;
use fyke_frame::{Frame, LinkType};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// Most files of one warrant in a folder.
const PARTS: u32 = 100_000;

/// A file that is being written.
pub(crate) struct Output {
    /// Its name in the folder.
    pub(crate) name: String,
    file: Encrypted<File>,
    described: Vec<(Interface, LinkType)>,
    block: Vec<u8>,
    pub(crate) frames: u64,
    /// Bytes of its frames.
    pub(crate) bytes: u64,
}

fn create(folder: &Path, id: &str) -> io::Result<(String, File)> {
    for part in 1..=PARTS {
        let name = format!("{id}-{part}.pcapng.age");
        let path: PathBuf = folder.join(&name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
            }
        }
    }
    Err(io::Error::other(format!("warrant {id} has {PARTS} files already")))
}

impl Output {
    /// Creates the next file of a warrant; none is ever overwritten.
    pub(crate) fn create(folder: &Path, id: &str, key: &Recipient) -> Result<Output, AgeError> {
        let (name, file) = create(folder, id)?;
        let mut file = Encrypted::new(file, key)?;
        let mut block = Vec::new();
        self::block(SECTION, &mut block, |out| {
            out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
            out.extend_from_slice(&[1, 0, 0, 0]);
            out.extend_from_slice(&u64::MAX.to_le_bytes());
        });
        file.write(&block)?;
        Ok(Output { name, file, described: Vec::new(), block, frames: 0, bytes: 0 })
    }

    /// Adds a frame.
    pub(crate) fn write(&mut self, interface: &Interface, frame: &Frame<'_>) -> io::Result<()> {
        self.block.clear();
        let same = |(known, link): &(Interface, LinkType)| {
            known.name == interface.name && *link == frame.link
        };
        let number = self.described.iter().position(same).unwrap_or_else(|| {
            let name = interface.name.as_bytes();
            block(INTERFACE, &mut self.block, |out| {
                out.extend_from_slice(&frame.link.0.to_le_bytes());
                out.extend_from_slice(&[0; 6]);
                option(2, &name[..name.len().min(1_024)], out);
                option(9, &[9], out);
                out.extend_from_slice(&[0; 4]);
            });
            self.described.push((interface.clone(), frame.link));
            self.described.len() - 1
        });
        block(PACKET, &mut self.block, |out| {
            let time = frame.timestamp_ns;
            let captured = frame.data.len() as u32;
            for word in [number as u32, (time >> 32) as u32, time as u32, captured, frame.wire_len]
            {
                out.extend_from_slice(&word.to_le_bytes());
            }
            padded(frame.data, out);
        });
        self.file.write(&self.block)?;
        self.frames += 1;
        self.bytes += frame.data.len() as u64;
        Ok(())
    }

    /// Writes what waits and the end, and waits until it is on the disk.
    pub(crate) fn finish(self) -> io::Result<(String, u64, Written)> {
        let (file, written) = self.file.finish()?;
        file.sync_all()?;
        Ok((self.name, self.frames, written))
    }
}

fn padded(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn option(number: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    padded(value, out);
}

/// Adds a block; its body is padded to words.
fn block(kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    debug_assert!(start.is_multiple_of(4));
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend_from_slice(&length);
    out[start + 4..start + 8].copy_from_slice(&length);
}
