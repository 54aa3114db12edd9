//! A sink that writes files, one or, with rotation, several.
//!
//! Frames are encoded into one buffer that is handed to the operating system when it has grown to 256 KiB, on
//! [`Sink::flush`], with every frame when asked to, and at the end.

use super::pcap::{self, Pcap};
use super::pcapng::Pcapng;
use super::rotate::{Names, Turn};
use super::{Account, Format, Sink, SinkStats, WriteError, WriteOptions};
use crate::source::Interface;
use fyke_frame::{Frame, LinkType};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Encoded bytes that are kept back.
const BUFFER: usize = 1 << 18;

pub(super) struct FileSink {
    file: File,
    /// For error texts.
    name: String,
    /// Whether what has been written can still be changed: not in a pipe.
    can_patch: bool,
    names: Names,
    format: Format,
    options: WriteOptions,
    /// `None`: a pcap file whose link type is not known yet.
    encoder: Option<Encoder>,
    buffer: Vec<u8>,
    /// Bytes of this file that have left the buffer.
    flushed: u64,
    stats: SinkStats,
    finished: bool,
    /// Until the first bytes go to the file: what it was before, so that a sink that is dropped unused changes nothing.
    untouched: Option<Untouched>,
}

/// A file that nothing has been written to yet.
struct Untouched {
    path: PathBuf,
    /// Whether it was not there before.
    is_new: bool,
}

enum Encoder {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl FileSink {
    pub(super) fn create(path: &Path, options: WriteOptions) -> Result<Self, WriteError> {
        let standard_output = path.as_os_str() == "-";
        let names = Names::new(path, options.rotation)?;
        if standard_output && names.rotates() {
            return Err(WriteError::Options("rotation needs a file name, not standard output"));
        }
        if options.snaplen == 0 {
            return Err(WriteError::Options("the snapshot length starts at 1"));
        }
        let (file, name, untouched) = match standard_output {
            true => (standard_output_file()?, "standard output".to_owned(), None),
            false => open(&names.path())?,
        };
        let can_patch = !standard_output && file.metadata().is_ok_and(|kind| kind.is_file());
        let mut sink = FileSink {
            file,
            name,
            can_patch,
            names,
            format: options.format.unwrap_or_else(|| Format::of(path)),
            options,
            encoder: None,
            buffer: Vec::with_capacity(BUFFER),
            flushed: 0,
            stats: SinkStats { files: 1, ..Default::default() },
            finished: false,
            untouched,
        };
        sink.start();
        if sink.options.flush_each && !can_patch {
            sink.flush()?;
        }
        Ok(sink)
    }

    /// Writes what stands at the start of a file, as far as it is known.
    fn start(&mut self) {
        self.encoder = None;
        self.flushed = 0;
        let first = self.options.interfaces.first().cloned();
        if self.format == Format::Pcapng {
            let mut pcapng = Pcapng::start(&mut self.buffer);
            if let Some(first) = first {
                let snaplen = self.snaplen(&first);
                pcapng.describe(&first, first.link, snaplen, &mut self.buffer);
            }
            self.encoder = Some(Encoder::Pcapng(pcapng));
        } else if let Some(first) = first {
            self.start_pcap(&first, first.link);
        }
    }

    fn start_pcap(&mut self, interface: &Interface, link: LinkType) {
        // Readers cut frames to the snapshot length of the file. One that turns out too small can be corrected later.
        let snaplen = match self.can_patch {
            true => self.snaplen(interface),
            false => self.options.snaplen,
        };
        let finest = self.options.interfaces.iter().any(|any| any.nanoseconds);
        let nanoseconds = self.options.nanoseconds.unwrap_or(finest || interface.nanoseconds);
        let pcap = Pcap::start(written_link(link), snaplen, nanoseconds, &mut self.buffer);
        self.encoder = Some(Encoder::Pcap(pcap));
    }

    fn snaplen(&self, interface: &Interface) -> u32 {
        self.options.snaplen.min(interface.snaplen)
    }

    /// Corrects the snapshot length in the header of a pcap file.
    fn patch_snaplen(&mut self, snaplen: u32) -> Result<(), WriteError> {
        let bytes = snaplen.to_ne_bytes();
        if self.flushed == 0 {
            self.buffer[pcap::SNAPLEN_AT..pcap::SNAPLEN_AT + 4].copy_from_slice(&bytes);
            return Ok(());
        }
        let patched = self.file.write_all_at(&bytes, pcap::SNAPLEN_AT as u64);
        patched.map_err(|source| WriteError::Write { name: self.name.clone(), source })
    }

    fn size(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Starts another file if it is time.
    fn rotate(&mut self) -> Result<(), WriteError> {
        let size = self.size();
        match self.names.turn(size) {
            Turn::Stay => Ok(()),
            Turn::Done(count) => {
                self.end()?;
                Err(WriteError::FileLimit(count))
            }
            Turn::Next(path) => {
                self.end()?;
                (self.file, self.name, self.untouched) = open(&path)?;
                self.stats.files += 1;
                self.start();
                self.finished = false;
                Ok(())
            }
        }
    }

    /// Writes what stands at the end of a file.
    fn end(&mut self) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        match &self.encoder {
            Some(Encoder::Pcapng(pcapng)) => pcapng.end(&mut self.buffer),
            Some(Encoder::Pcap(_)) => {}
            // No frame came to tell the link type: an empty file of the commonest.
            None => self.start_pcap(&Interface::new("", LinkType::EN10MB), LinkType::EN10MB),
        }
        self.flush()
    }
}

impl Sink for FileSink {
    fn write(&mut self, interface: &Interface, frame: &Frame<'_>) -> Result<(), WriteError> {
        if self.names.rotates() {
            self.rotate()?;
        }
        let link = written_link(frame.link);
        let snaplen = self.snaplen(interface);
        if self.encoder.is_none() {
            self.start_pcap(interface, link);
        }
        let data = &frame.data[..frame.data.len().min(snaplen as usize)];
        match &mut self.encoder {
            Some(Encoder::Pcapng(pcapng)) => {
                let number = pcapng.describe(interface, link, snaplen, &mut self.buffer);
                pcapng.frame(number, frame, data, &mut self.buffer);
            }
            Some(Encoder::Pcap(pcap)) if pcap.link() == link => {
                let raised = pcap.raise_snaplen(snaplen);
                pcap.frame(frame, data, &mut self.buffer);
                if raised {
                    self.patch_snaplen(snaplen)?;
                }
            }
            Some(Encoder::Pcap(pcap)) => {
                let (name, holds) = (self.name.clone(), pcap.link());
                return Err(WriteError::LinkType { name, holds, given: link });
            }
            None => {}
        }
        self.stats.frames += 1;
        if self.options.flush_each || self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        if self.untouched.take().is_some_and(|untouched| !untouched.is_new) {
            let emptied = self.file.set_len(0);
            emptied.map_err(|source| WriteError::Write { name: self.name.clone(), source })?;
        }
        let written = self.file.write_all(&self.buffer);
        written.map_err(|source| WriteError::Write { name: self.name.clone(), source })?;
        self.flushed += self.buffer.len() as u64;
        self.stats.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn account(&mut self, interface: &Interface, account: &Account) {
        let snaplen = self.snaplen(interface);
        if let Some(Encoder::Pcapng(pcapng)) = &mut self.encoder {
            let link = written_link(interface.link);
            let number = pcapng.describe(interface, link, snaplen, &mut self.buffer);
            pcapng.account(number, *account);
        }
    }

    fn finish(mut self: Box<Self>) -> Result<SinkStats, WriteError> {
        self.end()?;
        Ok(self.stats)
    }
}

impl Drop for FileSink {
    /// A sink that is dropped without [`Sink::finish`] still leaves a whole file, if it can; one that took no frame
    /// and wrote nothing leaves everything as it was.
    fn drop(&mut self) {
        match self.untouched.take_if(|_| self.stats.frames == 0 && !self.finished) {
            Some(Untouched { path, is_new: true }) => drop(std::fs::remove_file(path)),
            Some(_) => {}
            None => drop(self.end()),
        }
    }
}

/// The number under which files know a link type: some have several.
fn written_link(link: LinkType) -> LinkType {
    link.description().map_or(link, |known| known.numbers[0])
}

/// Opens a file for writing, and leaves what is in it until there is something to write.
fn open(path: &Path) -> Result<(File, String, Option<Untouched>), WriteError> {
    let name = path.display().to_string();
    let new = File::options().write(true).create_new(true).open(path);
    let is_new = new.is_ok();
    let old = || File::options().write(true).create(true).truncate(false).open(path);
    let file = new.or_else(|_| old());
    let file = file.map_err(|source| WriteError::Create { name: name.clone(), source })?;
    let is_file = file.metadata().is_ok_and(|kind| kind.is_file());
    let untouched = is_file.then(|| Untouched { path: path.to_owned(), is_new });
    Ok((file, name, untouched))
}

fn standard_output_file() -> Result<File, WriteError> {
    let output = io::stdout();
    if output.is_terminal() {
        return Err(WriteError::Terminal);
    }
    let copied = output.as_fd().try_clone_to_owned();
    let copied = copied
        .map_err(|source| WriteError::Create { name: "standard output".to_owned(), source })?;
    Ok(File::from(copied))
}
