//! A sink that writes files, one or, with rotation, several.
//!
//! Frames are encoded into the buffer of an [`Output`]. The buffer is written to the operating system when it has grown
//! to 32 KiB (that of a regular file by a thread when it has grown to 256 KiB, if there are several processors), on
//! [`Sink::flush`], with every frame if requested, and at the end. If writing fails, the file ends with its last
//! complete record, and the other frames count as lost.

use super::continued::{self, FileIdentity};
use super::listener::{self, Listener};
use super::output::Output;
use super::pcap::{self, Pcap};
use super::pcapng::{Accounted, Pcapng};
use super::rotate::{Names, NextFile};
use super::{Account, Compression, Format, Sink, SinkStats, WriteError, WriteOptions};
use crate::source::Interface;
use fyke_frame::{Frame, LinkType};
use fyke_privilege::place::{Accepts, Place};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, TryLockError};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most encoded bytes that are kept in the buffer for a thread: a block is a hand-over to another processor.
const BLOCK: usize = 1 << 18;

/// Most that are kept otherwise. PERF: a buffer of this size fits into the first-level cache of most processors.
const BUFFER: usize = 1 << 15;

/// Longest wait for clients at the end.
const CLIENTS_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct FileSink {
    output: Output,
    /// Name for error texts.
    name: String,
    /// True if bytes that have been written can be changed, which is impossible in a pipe.
    can_patch: bool,
    /// Name of the current file.
    path: PathBuf,
    compression: Compression,
    /// True if regular files are written by a thread.
    has_threads: bool,
    names: Names,
    /// Folder of later files, kept open because the process may not be able to open it later.
    folder: Option<OwnedFd>,
    format: Format,
    options: WriteOptions,
    /// Encoder; `None` for a pcap file of a link type that is not known yet.
    encoder: Option<Encoder>,
    /// Counts of the earlier files; `files` includes this one.
    before: SinkStats,
    /// Accounts of interfaces, for the end of each file.
    accounted: Vec<Accounted>,
    /// Comments of the next frame.
    comments: Vec<String>,
    finished: bool,
    /// Former state of the file, until the first bytes are written, so that a sink that is dropped unused changes
    /// nothing.
    untouched: Option<Untouched>,
}

/// A file to which nothing has been written yet.
struct Untouched {
    path: PathBuf,
    /// True if the file did not exist before.
    is_new: bool,
}

/// Frames of one interface and link type in one file.
struct Run {
    link: LinkType,
    /// Number of the interface in the file.
    number: usize,
    snaplen: usize,
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
        if let Some(expected) = options.continues {
            return FileSink::continued(path, expected, names, options);
        }
        let opened = if standard_output {
            (standard_output_file()?, "standard output".to_owned(), None)
        } else if let Some(address) = listener::address(path)? {
            (listen(address, path, &names, &options)?, path.display().to_string(), None)
        } else {
            open(&names.path(), Role::First { rotates: names.rotates() }, options.mode)?
        };
        FileSink::over(opened, path, names, options)
    }

    /// Continues the file of a killed capture. A pcapng file gets another section.
    fn continued(
        path: &Path,
        expected: FileIdentity,
        names: Names,
        options: WriteOptions,
    ) -> Result<Self, WriteError> {
        let compression = options.compression.unwrap_or_else(|| Compression::of(path));
        if names.rotates() || compression != Compression::None {
            return Err(WriteError::Options(
                "a compressed file, or one of a rotation, cannot be continued",
            ));
        }
        let format = options.format.unwrap_or_else(|| Format::of(path));
        let (file, pcap) = continued::open(path, expected, format)?;
        let name = path.display().to_string();
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(WriteError::Busy { name });
        }
        let mut sink = FileSink::over((Output::new(file), name, None), path, names, options)?;
        if let Some(pcap) = pcap {
            // The file has its header.
            sink.output.forget();
            sink.encoder = Some(Encoder::Pcap(pcap));
        }
        Ok(sink)
    }

    /// Writes to a file that is open and empty; `path` is its name for errors and for the choice of the format.
    pub(super) fn to_file(
        file: File,
        path: &Path,
        options: WriteOptions,
    ) -> Result<Self, WriteError> {
        let names = Names::new(path, options.rotation)?;
        if names.rotates() {
            return Err(WriteError::Options("rotation needs a file name, not an open file"));
        }
        if options.snaplen == 0 {
            return Err(WriteError::Options("the snapshot length starts at 1"));
        }
        let name = path.display().to_string();
        FileSink::over((Output::new(file), name, None), path, names, options)
    }

    fn over(
        (output, name, untouched): (Output, String, Option<Untouched>),
        path: &Path,
        names: Names,
        options: WriteOptions,
    ) -> Result<Self, WriteError> {
        let standard_output = path.as_os_str() == "-";
        let folder = names.rotates().then(|| names.folder()).flatten();
        let compression = options.compression.unwrap_or_else(|| Compression::of(path));
        let plain = compression == Compression::None;
        let can_patch = !standard_output && plain && output.file().is_some();
        let mut sink = FileSink {
            output,
            name,
            can_patch,
            path: names.path(),
            compression,
            has_threads: std::thread::available_parallelism().is_ok_and(|count| count.get() > 1),
            names,
            folder,
            format: options.format.unwrap_or_else(|| Format::of(path)),
            options,
            encoder: None,
            before: SinkStats { files: 1, ..Default::default() },
            accounted: Vec::new(),
            comments: Vec::new(),
            finished: false,
            untouched,
        };
        sink.start();
        if sink.options.flush_each && !can_patch {
            sink.hand_over(sink.patience())?;
        }
        Ok(sink)
    }

    /// The output of the sink.
    #[cfg(test)]
    pub(super) fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Writes the start of a file, as far as it is known.
    fn start(&mut self) {
        self.encoder = None;
        self.output.compress(self.compression);
        if self.has_threads && self.output.file().is_some() && !self.options.flush_each {
            self.output.use_thread();
        }
        let first = self.options.interfaces.first().cloned();
        if self.format == Format::Pcapng {
            let mut pcapng = Pcapng::start(self.output.buffer());
            if let Some(first) = first {
                let snaplen = self.snaplen(&first);
                pcapng.describe(&first, first.link, snaplen, self.output.buffer());
            }
            self.output.mark(false);
            self.encoder = Some(Encoder::Pcapng(pcapng));
        } else if let Some(first) = first {
            self.start_pcap(&first, first.link);
        }
    }

    fn start_pcap(&mut self, interface: &Interface, link: LinkType) {
        // Readers cut frames to the snapshot length of the file. If it proves too small, it can be corrected later.
        let snaplen = match self.can_patch || self.compression == Compression::None {
            true => self.snaplen(interface),
            false => self.options.snaplen,
        };
        // A pipe's header is final: all interfaces that are known count.
        let known = self.options.interfaces.iter().map(|known| self.snaplen(known)).max();
        let snaplen = known.filter(|_| !self.can_patch).map_or(snaplen, |known| known.max(snaplen));
        let finest = self.options.interfaces.iter().any(|any| any.nanoseconds);
        let nanoseconds = self.options.nanoseconds.unwrap_or(finest || interface.nanoseconds);
        let pcap = Pcap::start(written_link(link), snaplen, nanoseconds, self.output.buffer());
        self.output.mark(false);
        self.encoder = Some(Encoder::Pcap(pcap));
    }

    fn snaplen(&self, interface: &Interface) -> u32 {
        self.options.snaplen.min(interface.snaplen)
    }

    /// Corrects the snapshot length in the header of a pcap file.
    fn patch_snaplen(&mut self, snaplen: u32) -> Result<(), WriteError> {
        let bytes = snaplen.to_ne_bytes();
        let at = pcap::SNAPLEN_AT;
        let is_new = self.options.continues.is_none();
        let start = self.output.unsent_start().filter(|_| is_new);
        if let Some(header) = start.and_then(|start| start.get_mut(at..at + 4)) {
            header.copy_from_slice(&bytes);
            return Ok(());
        }
        if !self.can_patch {
            // Readers would cut the frames without a word. The frames before them are complete.
            self.hand_over(None)?;
            let why = "a pipe of pcap cannot hold the frames of a later interface with a larger \
                       snapshot length; write to a file";
            return Err(WriteError::Options(why));
        }
        // The header may be with the thread.
        self.hand_over(None)?;
        let Some(file) = self.output.file() else { return Ok(()) };
        file.write_all_at(&bytes, at as u64).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::Write { name: self.name.clone(), source }
    }

    /// Index of an interface's account, which is created if necessary.
    fn accounted_at(&mut self, interface: &Interface) -> usize {
        let place = self.accounted.iter().position(|one| one.interface == *interface);
        place.unwrap_or_else(|| {
            self.accounted.push(Accounted::new(interface.clone()));
            self.accounted.len() - 1
        })
    }

    /// Adds the counts of this file to those of earlier ones.
    fn add_to_earlier(&mut self) {
        let Some(Encoder::Pcapng(pcapng)) = &self.encoder else { return };
        let counted: Vec<_> =
            pcapng.interfaces().map(|(_, one)| (one.clone(), pcapng.frames(one))).collect();
        for (interface, frames) in counted {
            let place = self.accounted_at(&interface);
            self.accounted[place].end_file(frames);
        }
    }

    /// Frames of an interface in the current file.
    fn frames_here(&self, interface: &Interface) -> u64 {
        match &self.encoder {
            Some(Encoder::Pcapng(pcapng)) => pcapng.frames(interface),
            _ => 0,
        }
    }

    /// Most encoded bytes that wait in the buffer.
    fn most_waiting(&self) -> usize {
        let is_direct = self.compression == Compression::None && !self.output.has_thread();
        if is_direct { BUFFER } else { BLOCK }
    }

    /// Longest wait of a write for space.
    fn patience(&self) -> Option<Duration> {
        if self.options.waits { None } else { Some(Duration::ZERO) }
    }

    /// Starts another file if it is time; true if it did. `now` gives the account of the file that ends.
    fn rotate(
        &mut self,
        interface: &Interface,
        now: &mut dyn FnMut() -> Option<Account>,
    ) -> Result<bool, WriteError> {
        let next = self.names.next_file(self.output.bytes());
        if next != NextFile::Stay
            && let Some(account) = now()
        {
            self.account(interface, &account);
        }
        match next {
            NextFile::Stay => Ok(false),
            NextFile::Done(count) => {
                self.end()?;
                self.hand_over(None)?;
                self.complete();
                Err(WriteError::FileLimit(count))
            }
            NextFile::Next(path) => {
                let of_next = std::mem::take(&mut self.comments);
                self.end()?;
                self.comments = of_next;
                self.hand_over(None)?;
                self.add_to_earlier();
                // The next file may have the same name as this one.
                self.output.file().map(File::unlock);
                self.complete();
                let next = self.open_next(path)?;
                self.before = self.stats();
                (self.output, self.name, self.untouched) = next;
                self.path = self.names.path();
                self.before.files += 1;
                self.start();
                self.finished = false;
                Ok(true)
            }
        }
    }

    /// Tells that the current file is complete.
    fn complete(&self) {
        if let Some(completed) = self.options.completed {
            completed(&self.path);
        }
    }

    /// Opens the next file. Skips names at which another user has created a file.
    fn open_next(&mut self, mut path: PathBuf) -> Result<Opened, WriteError> {
        let mut passed_over = 0;
        loop {
            let role = Role::Next { folder: self.folder.as_ref() };
            let must_be_new = passed_over > 0 && self.names.must_be_new();
            let refused = match open(&path, role, self.options.mode) {
                Ok((_, name, untouched)) if must_be_new && !is_new(untouched.as_ref()) => {
                    WriteError::Create { name, source: io::ErrorKind::AlreadyExists.into() }
                }
                Err(refused) if refused.is_taken() => refused,
                other => return other,
            };
            passed_over += 1;
            path = self.names.pass_over(passed_over).ok_or(refused)?;
            self.before.passed_over += 1;
        }
    }

    /// Prepares for frames of an interface and a link type: describes the interface in this file, or starts the file.
    fn prepare(&mut self, interface: &Interface, given: LinkType) -> Result<Run, WriteError> {
        let link = written_link(given);
        let snaplen = self.snaplen(interface);
        if self.encoder.is_none() {
            self.start_pcap(interface, link);
        }
        let (mut number, mut raised) = (0, false);
        match &mut self.encoder {
            Some(Encoder::Pcapng(pcapng)) => {
                number = pcapng.describe(interface, link, snaplen, self.output.buffer());
            }
            Some(Encoder::Pcap(pcap)) if pcap.link() == link => {
                raised = pcap.raise_snaplen(snaplen)
            }
            Some(Encoder::Pcap(pcap)) => {
                let (name, holds) = (self.name.clone(), pcap.link());
                return Err(WriteError::LinkType { name, holds, given: link });
            }
            None => {}
        }
        if raised {
            self.patch_snaplen(snaplen)?;
        }
        Ok(Run { link: given, number, snaplen: snaplen as usize })
    }

    /// Writes one frame.
    fn write_one(&mut self, frame: &Frame<'_>, run: &Run) -> Result<(), WriteError> {
        let data = &frame.data[..frame.data.len().min(run.snaplen)];
        match &mut self.encoder {
            Some(Encoder::Pcapng(pcapng)) => {
                let out = self.output.buffer();
                match self.comments.is_empty() {
                    true => pcapng.frame(run.number, frame, data, out),
                    false => {
                        pcapng.commented(run.number, frame, data, &self.comments, out);
                        self.comments.clear();
                    }
                }
            }
            Some(Encoder::Pcap(pcap)) => pcap.frame(frame, data, self.output.buffer()),
            None => {}
        }
        self.output.mark(true);
        if self.options.flush_each {
            self.hand_over(self.patience())?;
        } else if self.output.waiting() >= self.most_waiting() {
            self.open_up()?;
            let passed = self.output.pass_on(self.patience());
            passed.map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    /// Empties an existing file before the first bytes are written to it.
    fn open_up(&mut self) -> Result<(), WriteError> {
        if self.untouched.take().is_some_and(|untouched| !untouched.is_new)
            && let Some(file) = self.output.file()
        {
            file.set_len(0).map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    /// Writes the buffer to the operating system; true if all of it is written.
    fn hand_over(&mut self, patience: Option<Duration>) -> Result<bool, WriteError> {
        self.open_up()?;
        self.output.drain(patience).map_err(|source| self.failed(source))
    }
}

impl Sink for FileSink {
    fn write(&mut self, interface: &Interface, frame: &Frame<'_>) -> Result<(), WriteError> {
        self.write_run(interface, &mut std::iter::once(frame))
    }

    fn write_run(
        &mut self,
        interface: &Interface,
        frames: &mut dyn Iterator<Item = &Frame<'_>>,
    ) -> Result<(), WriteError> {
        self.write_accounted(interface, frames, &mut || None)
    }

    fn write_accounted(
        &mut self,
        interface: &Interface,
        frames: &mut dyn Iterator<Item = &Frame<'_>>,
        now: &mut dyn FnMut() -> Option<Account>,
    ) -> Result<(), WriteError> {
        // PERF: comparing the interface with the described ones for every frame took 62 % of a capture's time.
        let rotates = self.names.rotates();
        let mut next = frames.next();
        if rotates && next.is_some() {
            self.rotate(interface, now)?;
        }
        while let Some(mut frame) = next.take() {
            let run = self.prepare(interface, frame.link)?;
            while next.is_none() {
                self.write_one(frame, &run)?;
                let Some(after) = frames.next() else { return Ok(()) };
                if (rotates && self.rotate(interface, now)?) || after.link != run.link {
                    next = Some(after);
                }
                frame = after;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.output.attend();
        self.hand_over(self.patience()).map(drop)
    }

    fn end_batch(&mut self) -> Result<(), WriteError> {
        let is_stream = self.output.file().is_none() && self.compression == Compression::None;
        if is_stream { self.hand_over(self.patience()).map(drop) } else { Ok(()) }
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, WriteError> {
        match self.finished || self.output.waiting() >= self.most_waiting() {
            true => Ok(self.hand_over(Some(patience))?
                && (!self.finished || self.output.settle_receivers(patience))),
            false => Ok(true),
        }
    }

    fn give_up(&mut self) {
        self.output.give_up();
    }

    fn account(&mut self, interface: &Interface, account: &Account) {
        if self.format != Format::Pcapng {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let place = self.accounted_at(interface);
        let here = self.frames_here(interface);
        let one = &mut self.accounted[place];
        (one.account, one.time_ns, one.written) = (*account, time_ns, one.before + here);
    }

    fn comment(&mut self, text: String) {
        if self.format == Format::Pcapng {
            self.comments.push(text);
        }
    }

    fn end(&mut self) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        match &self.encoder {
            Some(Encoder::Pcapng(pcapng)) => {
                pcapng.end(&self.accounted, &self.comments, self.output.buffer());
                self.output.mark(false);
            }
            Some(Encoder::Pcap(_)) => {}
            // No frame has determined the link type, so the empty file gets the most common one.
            None => self.start_pcap(&Interface::new("", LinkType::EN10MB), LinkType::EN10MB),
        }
        Ok(())
    }

    fn stats(&self) -> SinkStats {
        SinkStats {
            frames: self.before.frames + self.output.frames(),
            bytes: self.before.bytes + self.output.bytes(),
            lost: self.before.lost + self.output.lost(),
            clients: self.output.clients(),
            ..self.before
        }
    }

    fn finish(mut self: Box<Self>) -> Result<SinkStats, WriteError> {
        self.end()?;
        self.hand_over(None)?;
        if !self.output.settle_receivers(CLIENTS_PATIENCE) {
            self.output.give_up();
        }
        Ok(self.stats())
    }
}

impl Drop for FileSink {
    /// Completes the file, if possible, when a sink is dropped without [`Sink::finish`]. A sink that took no frame
    /// and wrote nothing leaves the file unchanged. After a failure nothing is written.
    fn drop(&mut self) {
        let unused = self.stats().frames == 0 && !self.finished;
        match self.untouched.take_if(|_| unused) {
            Some(Untouched { path, is_new: true }) => drop(std::fs::remove_file(path)),
            Some(_) => {}
            None if self.output.is_closed() || self.end().is_err() => {}
            None => drop(self.hand_over(self.patience())),
        }
    }
}

/// The number of a link type in files: some link types have several.
fn written_link(link: LinkType) -> LinkType {
    link.description().map_or(link, |known| known.numbers[0])
}

/// An open file with its name.
type Opened = (Output, String, Option<Untouched>);

/// True if a file did not exist before it was opened.
fn is_new(untouched: Option<&Untouched>) -> bool {
    untouched.is_some_and(|untouched| untouched.is_new)
}

/// Role of a file in its sink.
#[derive(Clone, Copy)]
enum Role<'f> {
    /// The file that is opened with the sink.
    First {
        /// True if other files follow.
        rotates: bool,
    },
    /// A later file of a rotation, opened while frames wait.
    Next {
        /// The open folder of the new file, if the capture keeps it open.
        folder: Option<&'f OwnedFd>,
    },
}

impl Role<'_> {
    /// True if it is one of several files.
    fn rotates(self) -> bool {
        matches!(self, Role::First { rotates: true } | Role::Next { .. })
    }

    /// Finds the place of a file. In a shared folder another user can create a link, which is refused; a file of a
    /// rotation is never a link.
    fn place(self, path: &Path) -> io::Result<Place> {
        match (self, path.file_name()) {
            (Role::Next { folder: Some(folder) }, Some(name)) => {
                Ok(Place::within(folder.try_clone()?, name))
            }
            (Role::Next { folder: None }, Some(name)) => {
                let parent = path.parent().unwrap_or(Path::new("")).join(".");
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(Place::within(rustix::fs::open(parent, flags, Mode::empty())?, name))
            }
            _ => Place::of(path),
        }
    }
}

/// Refuses everything but regular files and character devices such as `/dev/null`, which only root can create.
fn check_rotated(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    match kind.is_file() || kind.is_char_device() {
        true => Ok(()),
        false => Err(no_file()),
    }
}

fn no_file() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "not a regular file (rotation writes no FIFO and follows no link)",
    )
}

/// Opens a file for writing, and keeps its content until the first write. A regular file is locked while it is open,
/// if its file system supports it. A new file belongs to the user that the process will change to.
fn open(path: &Path, role: Role<'_>, mode: u32) -> Result<Opened, WriteError> {
    let name = path.display().to_string();
    // A FIFO would make a rotation wait for its reader.
    let accepts = if role.rotates() { Accepts::Ready } else { Accepts::All };
    let opened = role.place(path).and_then(|place| place.open_to_write(accepts, mode));
    let opened = opened.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // A FIFO without a reader, a socket, or a link.
        Some(Errno::NXIO | Errno::LOOP) if role.rotates() => no_file(),
        _ => error,
    });
    let checked = opened.and_then(|(file, is_new)| {
        match (is_new, role.rotates()) {
            (true, _) => fyke_privilege::user::hand_over(&file)?,
            (false, true) => check_rotated(&file)?,
            (false, false) => {}
        }
        Ok((file, is_new))
    });
    let (file, is_new) =
        checked.map_err(|source| WriteError::Create { name: name.clone(), source })?;
    let is_file = file.metadata().is_ok_and(|kind| kind.is_file());
    if crate::inputs::is_read(&file) {
        return Err(WriteError::Input { name });
    }
    if is_file && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(WriteError::Busy { name });
    }
    let untouched = is_file.then(|| Untouched { path: path.to_owned(), is_new });
    Ok((Output::new(file), name, untouched))
}

pub(super) fn create_output(path: &Path, mode: u32) -> Result<Output, WriteError> {
    let name = path.display().to_string();
    let failed = |source| WriteError::Create { name: name.clone(), source };
    if path.as_os_str() == "-" {
        return Output::standard_output().map_err(failed);
    }
    let (output, ..) = open(path, Role::First { rotates: false }, mode)?;
    output.file().map_or(Ok(()), |file| file.set_len(0)).map_err(failed)?;
    Ok(output)
}

/// Listens for clients.
fn listen(
    address: SocketAddr,
    path: &Path,
    names: &Names,
    options: &WriteOptions,
) -> Result<Output, WriteError> {
    if names.rotates() {
        return Err(WriteError::Options("rotation needs a file name, not an address for clients"));
    }
    if options.compression.is_some_and(|compression| compression != Compression::None) {
        let why =
            "a compressed stream cannot be joined by later clients: leave the compression out";
        return Err(WriteError::Options(why));
    }
    let name = || path.display().to_string();
    let listener = Listener::bind(address, options.format.unwrap_or_else(|| Format::of(path)));
    let listener = listener.map_err(|source| WriteError::Create { name: name(), source })?;
    Ok(Output::over(Arc::new(listener)))
}

fn standard_output_file() -> Result<Output, WriteError> {
    if io::stdout().is_terminal() {
        return Err(WriteError::Terminal);
    }
    let name = || "standard output".to_owned();
    Output::standard_output().map_err(|source| WriteError::Create { name: name(), source })
}
