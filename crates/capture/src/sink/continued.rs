//! A capture file of a process that was killed, opened again to write after its last complete record.
//!
//! Only the file that the process had open is opened: the same device, inode and time of birth, under its own name and
//! no link. An incomplete last record is cut; a record that is wrong in any other way is refused, because what follows
//! it would be lost. Cost: the headers of all records are read once.

use super::pcap::Pcap;
use super::{Format, WriteError};
use fyke_frame::LinkType;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::time::UNIX_EPOCH;

/// Block of a frame in pcapng, the only one that we write.
const ENHANCED_PACKET: u32 = 6;
/// Most bytes of one record; longer ones are damaged.
const MAX_RECORD: u64 = 1 << 26;

/// A file, whatever its names are, also after another file has got its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its time of birth in nanoseconds since 1970; 0 if the file system has none.
    pub born_ns: u64,
}

impl FileIdentity {
    /// The identity of an open file; `None` if it is not a regular file.
    pub fn of(found: &Metadata) -> Option<FileIdentity> {
        let born = found.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or(0);
        let (device, inode) = (found.dev(), found.ino());
        found.is_file().then_some(FileIdentity { device, inode, born_ns })
    }
}

impl std::fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.device, self.inode, self.born_ns)
    }
}

impl FromStr for FileIdentity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text.splitn(3, ':').map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(Result::ok);
        let error = "expected device, inode and time of birth, as in 2049:131:0";
        let (Some(device), Some(inode), Some(born_ns)) = (next(), next(), next()) else {
            return Err(error);
        };
        Ok(FileIdentity { device, inode, born_ns })
    }
}

/// The complete records of a file.
struct Whole {
    /// Their end.
    end: u64,
    /// Frames among them.
    frames: u64,
}

/// Number of frames in the complete records of a file that would be continued. Reads the headers of all records.
///
/// # Errors
/// It is another file, or damaged before its end.
pub fn frames_before(path: &Path, expected: FileIdentity) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let (file, len) = checked(path, expected, flags)?;
    Ok(read(&file, len, Format::of(path))?.0.frames)
}

/// Opens a file that has this identity; also returns its length.
fn checked(path: &Path, expected: FileIdentity, flags: OFlags) -> io::Result<(File, u64)> {
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if FileIdentity::of(&found) != Some(expected) {
        let why = "another file has taken the place of the one that the capture had open";
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    Ok((file, found.len()))
}

/// Reads a file up to its last complete record.
fn read(file: &File, len: u64, format: Format) -> io::Result<(Whole, Option<Pcap>)> {
    let mut reader = BufReader::new(file);
    match format {
        Format::Pcapng => Ok((blocks(&mut reader, len)?, None)),
        Format::Pcap => records(&mut reader, len),
    }
}

/// Opens a file to continue it; also returns the properties of a pcap file that has its header.
pub(super) fn open(
    path: &Path,
    expected: FileIdentity,
    format: Format,
) -> Result<(File, Option<Pcap>), WriteError> {
    let name = path.display().to_string();
    opened(path, expected, format).map_err(|source| WriteError::Create { name, source })
}

fn opened(path: &Path, expected: FileIdentity, format: Format) -> io::Result<(File, Option<Pcap>)> {
    // A FIFO would block.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let (file, len) = checked(path, expected, flags)?;
    let (whole, pcap) = read(&file, len, format)?;
    file.set_len(whole.end)?;
    (&file).seek(SeekFrom::Start(whole.end))?;
    Ok((file, pcap))
}

fn damaged(at: u64, what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("at byte {at}: {what}; it is not continued"))
}

fn word(reader: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// Returns the complete blocks of a pcapng file of this machine's byte order.
fn blocks<R: Read + Seek>(reader: &mut BufReader<R>, len: u64) -> io::Result<Whole> {
    let (mut at, mut frames) = (0, 0);
    while len - at >= 12 {
        let (kind, size) = (word(reader)?, u64::from(word(reader)?));
        if at == 0 && kind != 0x0a0d_0d0a {
            return Err(damaged(at, "no pcapng file"));
        }
        if size < 12 || size % 4 != 0 || size > MAX_RECORD {
            return Err(damaged(at, "no block of a pcapng file of this machine"));
        }
        if size > len - at {
            break;
        }
        reader.seek_relative(size as i64 - 12)?;
        if u64::from(word(reader)?) != size {
            return Err(damaged(at, "the two lengths of a block are different"));
        }
        at += size;
        frames += u64::from(kind == ENHANCED_PACKET);
    }
    Ok(Whole { end: at, frames })
}

/// Returns the complete records of a pcap file of this machine's byte order, and its properties.
fn records<R: Read + Seek>(
    reader: &mut BufReader<R>,
    len: u64,
) -> io::Result<(Whole, Option<Pcap>)> {
    if len < 24 {
        return Ok((Whole { end: 0, frames: 0 }, None));
    }
    let magic = word(reader)?;
    let nanoseconds = match magic {
        0xa1b2_c3d4 => false,
        0xa1b2_3c4d => true,
        _ => return Err(damaged(0, "no pcap file of this machine")),
    };
    reader.seek_relative(12)?;
    let (snaplen, link) = (word(reader)?, word(reader)?);
    let link = u16::try_from(link).map_err(|_| damaged(20, "no link type"))?;
    let (mut at, mut frames) = (24, 0);
    while len - at >= 16 {
        reader.seek_relative(8)?;
        let size = u64::from(word(reader)?);
        if size > MAX_RECORD {
            return Err(damaged(at, "no record of a pcap file"));
        }
        if size + 16 > len - at {
            break;
        }
        reader.seek_relative(size as i64 + 4)?;
        at += 16 + size;
        frames += 1;
    }
    // Makes a read error of the last bytes visible.
    reader.fill_buf()?;
    let pcap = Pcap::of_file(LinkType(link), snaplen, nanoseconds);
    Ok((Whole { end: at, frames }, Some(pcap)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::{Format, WriteOptions, create_file};
    use crate::source::Interface;
    use fyke_frame::Frame;

    fn written(path: &Path, continues: Option<FileIdentity>, count: usize) {
        let options = WriteOptions { continues, ..WriteOptions::default() };
        let mut sink = create_file(path, options).unwrap();
        let interface = Interface::new("v0", LinkType::EN10MB);
        for number in 0..count {
            let data = [number as u8; 61];
            sink.write(&interface, &Frame::new(LinkType::EN10MB, &data)).unwrap();
        }
        sink.finish().unwrap();
    }

    fn identity(path: &Path) -> FileIdentity {
        FileIdentity::of(&path.symlink_metadata().unwrap()).unwrap()
    }

    #[test]
    fn a_file_is_continued_wherever_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.pcap", "a.pcapng"] {
            let path = folder.path().join(name);
            written(&path, None, 3);
            let whole = std::fs::read(&path).unwrap();
            let format = Format::of(&path);
            let mut ends = std::collections::BTreeSet::new();
            for len in 0..=whole.len() {
                std::fs::write(&path, &whole[..len]).unwrap();
                let (_, pcap) = open(&path, identity(&path), format).unwrap();
                let end = path.metadata().unwrap().len();
                assert!(end as usize <= len);
                assert_eq!(pcap.is_some(), format == Format::Pcap && len >= 24, "{name} {len}");
                ends.insert(end);
            }
            // pcap: nothing, the header, 3 records; pcapng: nothing, section, interface, 3 frames (and statistics).
            assert!(ends.len() >= 5, "{name}: {ends:?}");
            std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
            let frames = frames_before(&path, identity(&path)).unwrap();
            // The last record is that of a frame in pcap, and of statistics in pcapng.
            assert!((2..=3).contains(&frames), "{name}: {frames}");
            written(&path, Some(identity(&path)), 2);
            let after = std::fs::read(&path).unwrap();
            assert_eq!(frames_before(&path, identity(&path)).unwrap(), frames + 2, "{name}");
            let kept = *ends.range(..whole.len() as u64).next_back().unwrap() as usize;
            assert_eq!(after[..kept], whole[..kept], "{name}");
            assert!(after.len() > kept);
        }
    }

    #[test]
    fn links_other_files_and_damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.pcapng"), folder.path().join("l.pcapng"));
        written(&path, None, 3);
        let own = identity(&path);
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let refused = |path: &Path, own| open(path, own, Format::Pcapng).unwrap_err().to_string();
        refused(&link, own);
        assert!(frames_before(&link, own).is_err());
        let other = FileIdentity { inode: own.inode + 1, ..own };
        assert!(refused(&path, other).contains("another file"), "{}", refused(&path, other));
        let later = FileIdentity { born_ns: own.born_ns + 1, ..own };
        assert!(refused(&path, later).contains("another file"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4] = 5;
        std::fs::write(&path, &bytes).unwrap();
        assert!(refused(&path, own).contains("at byte 0"), "{}", refused(&path, own));
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "a refused file is not changed");
        assert_eq!("1:2:3".parse(), Ok(FileIdentity { device: 1, inode: 2, born_ns: 3 }));
        assert!("1:2".parse::<FileIdentity>().is_err());
    }
}
