//! The file of a warrant: pcapng, encrypted before it leaves the memory of this process.

use crate::age::{AgeError, Encrypted, Recipient, Written};
use crate::name_of;
use fyke_capture::Interface;
use fyke_frame::{Frame, LinkType};
use std::collections::VecDeque;
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
    path: PathBuf,
    described: Vec<(Interface, LinkType)>,
    block: Vec<u8>,
    pub(crate) frames: u64,
    /// Bytes of its frames.
    pub(crate) bytes: u64,
    /// Frames of which the file does not have all bytes yet: one chunk.
    waiting: VecDeque<Waiting>,
}

/// A frame of which the file does not have all bytes yet.
struct Waiting {
    /// Offset of its end in the plain bytes of the file.
    end: u64,
    /// Its number among the frames that pass the node; `None` if it counts as lost for another warrant.
    number: Option<u64>,
}

/// State of a file after a write that failed.
pub(crate) struct Failure {
    /// Its name in the folder.
    pub(crate) name: String,
    /// Frames that it has, whole.
    pub(crate) frames: u64,
    /// Number of frames that it was given and lacks.
    pub(crate) missing: u64,
    /// Those of them that count as passed, by number.
    pub(crate) passed: Vec<u64>,
    /// The reason, with the name of the file.
    pub(crate) error: io::Error,
}

fn create(folder: &Path, id: &str) -> io::Result<(String, PathBuf, File)> {
    for part in 1..=PARTS {
        let name = format!("{id}-{part}.pcapng.age");
        let path: PathBuf = folder.join(&name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((name, path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(name_of(&path, &error)),
        }
    }
    Err(io::Error::other(format!("warrant {id} has {PARTS} files already")))
}

impl Output {
    /// Creates the next file of a warrant; none is ever overwritten.
    pub(crate) fn create(folder: &Path, id: &str, key: &Recipient) -> Result<Output, AgeError> {
        let (name, path, file) = create(folder, id)?;
        let named = |error: AgeError| match error {
            AgeError::Io(error) => AgeError::Io(name_of(&path, &error)),
            other => other,
        };
        let mut file = Encrypted::new(file, key).map_err(named)?;
        let mut block = Vec::new();
        self::block(SECTION, &mut block, |out| {
            out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
            out.extend_from_slice(&[1, 0, 0, 0]);
            out.extend_from_slice(&u64::MAX.to_le_bytes());
        });
        file.write(&block).map_err(|error| name_of(&path, &error))?;
        let (described, waiting) = (Vec::new(), VecDeque::new());
        Ok(Output { name, path, file, described, block, frames: 0, bytes: 0, waiting })
    }

    /// Adds a frame; `passes_as` is its number if it passes the node. A failed write leaves an output that only
    /// [`fail`](Self::fail) may follow.
    pub(crate) fn write(
        &mut self,
        interface: &Interface,
        frame: &Frame<'_>,
        passes_as: Option<u64>,
    ) -> io::Result<()> {
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
        self.waiting.push_back(Waiting { end: self.file.given(), number: passes_as });
        let stored = self.file.stored();
        while self.waiting.pop_front_if(|first| first.end <= stored).is_some() {}
        Ok(())
    }

    /// Ends a file that cannot be written.
    pub(crate) fn fail(self, error: &io::Error) -> Failure {
        let stored = self.file.stored();
        failure(self.name, &self.path, self.frames, &self.waiting, stored, error)
    }

    /// Writes what waits and the end, and waits until it is on the disk.
    pub(crate) fn finish(self) -> Result<(String, u64, Written), Failure> {
        let Output { name, file, path, frames, waiting, .. } = self;
        let stored = file.stored();
        let written = file.finish().and_then(|(file, written)| file.sync_all().map(|()| written));
        match written {
            Ok(written) => Ok((name, frames, written)),
            Err(error) => Err(failure(name, &path, frames, &waiting, stored, &error)),
        }
    }
}

fn failure(
    name: String,
    path: &Path,
    frames: u64,
    waiting: &VecDeque<Waiting>,
    stored: u64,
    error: &io::Error,
) -> Failure {
    let missing = || waiting.iter().filter(|one| one.end > stored);
    let count = missing().count() as u64;
    Failure {
        name,
        frames: frames - count,
        missing: count,
        passed: missing().filter_map(|one| one.number).collect(),
        error: name_of(path, error),
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
