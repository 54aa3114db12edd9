//! Outputs over a channel with faults: complete records are written once, and the others are counted.

use super::channel::Channel;
use super::file::FileSink;
use super::output::Output;
use super::{Compression, Format, Sink, SinkStats, WriteOptions};
use crate::file::{FileOptions, FileSource};
use crate::source::{Interface, Next, Source};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::faults::{BROKEN, Faulty};
use fyke_testkit::random::Random;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes written so far, shared with the test.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Vec<u8>>>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A channel with faults: short writes, interruptions, no space for a while, and an error at a random byte.
struct FaultyChannel {
    faulty: Mutex<Faulty<Disk>>,
    can_cut: bool,
}

impl Channel for FaultyChannel {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.faulty.lock().unwrap().write(bytes)
    }

    fn wait(&self, _patience: Duration) {}

    fn cut(&self, bytes: u64) -> bool {
        let mut faulty = self.faulty.lock().unwrap();
        let disk = faulty.get_mut();
        let mut written = disk.0.lock().unwrap();
        let end = written.len() - bytes as usize;
        if self.can_cut {
            written.truncate(end);
        }
        self.can_cut
    }
}

/// A record: its number, and padding of a length that depends on the number.
fn record(number: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(4 + (number as usize * 7) % 90, number as u8);
    bytes
}

#[test]
fn what_is_not_written_whole_is_lost_once() {
    let records: Vec<Vec<u8>> = (0..400).map(record).collect();
    let all = records.concat();
    for seed in 0..300u64 {
        let disk = Disk::default();
        let fails_at = Random::new(seed).below(all.len() + 500);
        let (can_cut, fails) = (seed % 3 > 0, fails_at < all.len());
        let faulty = Faulty::new(disk.clone(), seed).blocks();
        let faulty = faulty.breaks(fails_at as u64, BROKEN[seed as usize % 4]);
        let faulty = Mutex::new(faulty);
        let mut output = Output::over(Arc::new(FaultyChannel { faulty, can_cut }));
        let mut errors = 0;
        for (number, record) in records.iter().enumerate() {
            output.buffer().extend_from_slice(record);
            output.mark(true);
            if number % 16 == 15 {
                let patience = Some(Duration::from_micros(seed % 2 * 100));
                errors += usize::from(output.drain(patience).is_err());
            }
        }
        errors += usize::from(output.drain(None).is_err());
        assert_eq!(errors, usize::from(fails), "seed {seed}: an error is told once");
        let whole: usize = records[..output.frames() as usize].iter().map(Vec::len).sum();
        let written = disk.0.lock().unwrap();
        assert_eq!(output.frames() + output.lost(), 400, "seed {seed}");
        assert!(all.starts_with(&written), "seed {seed}: nothing is written twice or left out");
        match can_cut {
            true => assert_eq!(written.len(), whole, "seed {seed}"),
            false => {
                let next = records.get(output.frames() as usize).map_or(0, Vec::len);
                assert!((whole..=whole + next).contains(&written.len()), "seed {seed}");
            }
        }
    }
}

/// The same with a thread that writes: what is lost is known after the last block, and the counts are the same.
#[test]
fn a_thread_writes_the_same_and_its_accounts_close() {
    let records: Vec<Vec<u8>> = (0..400).map(record).collect();
    let all = records.concat();
    for seed in 0..200u64 {
        let disk = Disk::default();
        let fails_at = Random::new(seed).below(all.len() + 500);
        let (can_cut, fails) = (seed % 3 > 0, fails_at < all.len());
        let faulty = Faulty::new(disk.clone(), seed).blocks();
        let faulty = Mutex::new(faulty.breaks(fails_at as u64, BROKEN[seed as usize % 4]));
        let mut output = Output::over(Arc::new(FaultyChannel { faulty, can_cut }));
        output.use_thread();
        let mut errors = 0;
        for (number, record) in records.iter().enumerate() {
            output.buffer().extend_from_slice(record);
            output.mark(true);
            if number % 16 == 15 {
                errors += usize::from(output.pass_on(None).is_err());
            }
            if seed % 5 == 0 && number % 100 == 99 {
                errors += usize::from(output.drain(Some(Duration::ZERO)).is_err());
            }
        }
        errors += usize::from(output.drain(None).is_err());
        assert_eq!(errors, usize::from(fails), "seed {seed}: an error is told once");
        let whole: usize = records[..output.frames() as usize].iter().map(Vec::len).sum();
        assert_eq!(output.frames() + output.lost(), 400, "seed {seed}");
        let written = disk.0.lock().unwrap();
        assert!(all.starts_with(&written), "seed {seed}: nothing is written twice or left out");
        if can_cut {
            assert_eq!((written.len(), output.bytes()), (whole, whole as u64), "seed {seed}");
        }
    }
}

/// Compressed blocks through faults: with and without a thread, all that counts as written can be read back.
#[test]
fn compressed_blocks_are_whole_or_lost() {
    let frames = frames();
    let mut broken = 0;
    for seed in 0..90u64 {
        let compression = Compression::NAMES[1 + seed as usize % 3].1;
        let disk = Disk::default();
        let at = Random::new(seed).below(200_000) as u64;
        let faulty = Faulty::new(disk.clone(), seed).blocks();
        let faulty = Mutex::new(faulty.breaks(at, BROKEN[seed as usize % 4]));
        let mut output = Output::over(Arc::new(FaultyChannel { faulty, can_cut: true }));
        output.compress(compression);
        if seed % 2 == 0 {
            output.use_thread();
        }
        let interface = Interface::new("v0", LinkType::EN10MB);
        let pcap = super::pcap::Pcap::start(interface.link, 65_535, true, output.buffer());
        output.mark(false);
        let mut errors = 0;
        for (number, data) in frames.iter().enumerate() {
            pcap.frame(&Frame::new(LinkType::EN10MB, data), data, output.buffer());
            output.mark(true);
            if number % 64 == 63 {
                errors += usize::from(output.pass_on(None).is_err());
            }
        }
        errors += usize::from(output.drain(None).is_err());
        let (read, whole) = read_back(disk.0.lock().unwrap().clone());
        assert_eq!(output.frames() + output.lost(), frames.len() as u64, "seed {seed}");
        assert_eq!(errors, usize::from(output.lost() > 0), "seed {seed}");
        assert!(read == frames[..read.len()], "seed {seed}");
        assert_eq!(read.len() as u64, output.frames(), "seed {seed}: {compression:?}");
        assert!(whole || output.frames() == 0, "seed {seed}: the file ends with a complete unit");
        broken += errors;
    }
    assert!((20..85).contains(&broken), "{broken} of 90 broke");
}

#[test]
fn what_nobody_takes_is_given_up() {
    for seed in 0..50u64 {
        let disk = Disk::default();
        let faulty = Faulty::new(disk.clone(), seed).blocks();
        let faulty = Mutex::new(faulty);
        let mut output = Output::over(Arc::new(FaultyChannel { faulty, can_cut: false }));
        for number in 0..100 {
            output.buffer().extend_from_slice(&record(number));
            output.mark(true);
            assert!(output.drain(Some(Duration::ZERO)).is_ok());
        }
        let waited = output.waiting() > 0;
        output.give_up();
        assert_eq!(output.lost() > 0, waited, "seed {seed}");
        output.buffer().extend_from_slice(&record(100));
        output.mark(true);
        assert!(output.drain(None).unwrap());
        assert_eq!(output.frames() + output.lost(), 101);
        let whole: usize = (0..output.frames()).map(|number| record(number as u32).len()).sum();
        assert!(disk.0.lock().unwrap().len() >= whole);
    }
}

/// Frames of many lengths, with their numbers at the start.
fn frames() -> Vec<Vec<u8>> {
    (0..3000).map(|number| record(number).repeat(1 + number as usize % 5)).collect()
}

/// The frames of a file, and true if it ends with a complete record.
fn read_back(bytes: Vec<u8>) -> (Vec<Vec<u8>>, bool) {
    let mut read = Vec::new();
    let opened = FileSource::from_reader("written", io::Cursor::new(bytes), FileOptions::default());
    let Ok(mut source) = opened else { return (read, false) };
    loop {
        match source.next() {
            Ok(Next::Frames(batch, _)) => {
                read.extend(batch.frames().iter().map(|frame| frame.data.to_vec()));
            }
            Ok(Next::Idle) => {}
            Ok(Next::End) => return (read, true),
            Err(_) => return (read, false),
        }
    }
}

/// Writes all frames through faults; returns the counts of the sink and the bytes that arrived.
fn write_through(
    options: &WriteOptions,
    channel: FaultyChannel,
    flush_each: bool,
) -> (SinkStats, Option<String>) {
    let mut sink = FileSink::create(Path::new("/dev/null"), options.clone()).unwrap();
    sink.output().set_channel(Arc::new(channel));
    let interface = Interface::new("v0", LinkType::EN10MB);
    let mut told: Option<String> = None;
    for data in frames() {
        let frame = Frame::new(LinkType::EN10MB, &data);
        let written = sink.write(&interface, &frame);
        let flushed = if flush_each { written.and_then(|()| sink.flush()) } else { written };
        let made = flushed.and_then(|()| sink.make_room(Duration::ZERO).map(drop));
        if let Err(error) = made {
            assert!(told.replace(error.to_string()).is_none(), "an error is told once");
        }
    }
    let ended = sink.end().and_then(|()| sink.make_room(Duration::from_secs(60)).map(drop));
    if let Err(error) = ended {
        assert!(told.replace(error.to_string()).is_none(), "an error is told once");
    }
    (sink.stats(), told)
}

/// Both formats, waiting or not: every frame is in the file or counted as lost, and the file ends with a complete
/// record.
#[test]
fn files_written_through_faults_are_whole_and_their_accounts_close() {
    let all = frames();
    let size = all.iter().map(Vec::len).sum::<usize>();
    let mut broken = 0;
    for seed in 0..160u64 {
        let options = WriteOptions {
            format: Some(if seed & 1 == 0 { Format::Pcap } else { Format::Pcapng }),
            waits: seed & 2 == 0,
            interfaces: vec![Interface::new("v0", LinkType::EN10MB)],
            ..WriteOptions::default()
        };
        let disk = Disk::default();
        let at = Random::new(seed).below(size * 3 / 2) as u64;
        let error = BROKEN[seed as usize / 4 % 4];
        let faulty = Faulty::new(disk.clone(), seed).blocks().breaks(at, error);
        let can_cut = seed % 3 > 0;
        let faulty = Mutex::new(faulty);
        let (stats, told) =
            write_through(&options, FaultyChannel { faulty, can_cut }, seed % 5 == 0);
        let (read, whole) = read_back(disk.0.lock().unwrap().clone());
        assert_eq!(stats.frames + stats.lost, all.len() as u64, "seed {seed}");
        assert_eq!(told.is_some(), stats.lost > 0, "seed {seed}: {told:?}");
        assert!(read == all[..read.len()], "seed {seed}");
        assert_eq!(read.len() as u64, stats.frames, "seed {seed}");
        // The header may be incomplete; otherwise only a channel that cannot be cut ends within a record.
        assert!(whole || !can_cut || stats.frames == 0, "seed {seed}");
        broken += usize::from(told.is_some());
    }
    assert!((40..150).contains(&broken), "{broken} of 160 broke");
}

#[test]
fn a_reader_of_a_pipe_gets_each_batch() {
    use std::io::Read;
    let (mut reader, writer) = io::pipe().unwrap();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
    let interface = Interface::new("v1", LinkType::EN10MB);
    let options = WriteOptions { format: Some(Format::Pcap), ..WriteOptions::default() };
    let mut sink = FileSink::to_file(file, Path::new("pipe"), options).unwrap();
    let bytes = [7; 60];
    let frame = Frame::new(LinkType::EN10MB, &bytes);
    sink.write_run(&interface, &mut [frame, frame].iter()).unwrap();
    sink.end_batch().unwrap();
    // The header of the file, and two frames with headers of their own: it does not wait for more.
    let mut got = [0; 24 + 2 * (16 + 60)];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(got[24 + 16..24 + 16 + 60], bytes);
    Box::new(sink).finish().unwrap();
}
