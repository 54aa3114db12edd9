//! A source of your own, with look-back: frames in hexadecimal, one a line. A frame that names a host edits the filter,
//! and frames of that host that came before are found among those that the source still holds. Every frame is
//! delivered and counted once.

use fyke::Error;
use fyke::capture::{
    HeldFrames, HeldMark, Interface, LookBack, Next, ReadError, Source, SourceStats,
};
use fyke::filters::FilterReader;
use fyke::frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Mask};
use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, Error as IoError, ErrorKind};

/// Frames that are held for look-back.
const HELD: usize = 1000;

/// Lines of hexadecimal digits as Ethernet frames.
struct HexLines<R> {
    interfaces: [Interface; 1],
    lines: std::io::Lines<R>,
    /// Frames that were lent last, and before them those that are held.
    frames: VecDeque<Vec<u8>>,
    /// Number of the first of them.
    first: u64,
    failed: bool,
}

impl<R: BufRead> HexLines<R> {
    fn new(text: R) -> HexLines<R> {
        let interfaces = [Interface::new("hex", LinkType::EN10MB)];
        HexLines {
            interfaces,
            lines: text.lines(),
            frames: VecDeque::new(),
            first: 0,
            failed: false,
        }
    }

    fn frame(&self, number: u64) -> Frame<'_> {
        Frame::new(LinkType::EN10MB, &self.frames[(number - self.first) as usize])
    }

    /// Number of the next frame.
    fn end(&self) -> u64 {
        self.first + self.frames.len() as u64
    }
}

fn bytes(line: &str) -> Option<Vec<u8>> {
    let digits = line.trim().as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}

impl<R: BufRead + Send> Source for HexLines<R> {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        let excess = self.frames.len().saturating_sub(HELD);
        self.frames.drain(..excess);
        self.first += excess as u64;
        let begin = self.end();
        while !self.failed && self.end() < begin + BATCH_CAPACITY as u64 {
            let Some(line) = self.lines.next() else { break };
            let invalid = || IoError::new(ErrorKind::InvalidData, "not hexadecimal digits");
            match line.and_then(|line| bytes(&line).ok_or_else(invalid)) {
                Ok(bytes) => self.frames.push_back(bytes),
                Err(source) => {
                    // Every call after an error answers the end.
                    self.failed = true;
                    let (name, offset) = ("hex".to_owned(), self.end());
                    return Err(ReadError::Io { name, offset, source });
                }
            }
        }
        if self.end() == begin {
            return Ok(Next::End);
        }
        let mut batch = Batch::new();
        batch.first_sequence = begin;
        for number in begin..self.end() {
            batch.push(self.frame(number)).expect("at most 256 of one link type");
        }
        // The mark is ours: here the first held frame, and the one after the last.
        let held = LookBack::new(&*self, [self.first, begin, 0, 0], &self.interfaces);
        Ok(Next::Frames(batch, held))
    }

    fn stats(&mut self) -> SourceStats {
        SourceStats { received: self.end(), delivered: self.end(), ..SourceStats::default() }
    }
}

impl<R> HeldFrames for HexLines<R>
where
    R: BufRead,
{
    fn frames(&self, mark: HeldMark) -> Box<dyn Iterator<Item = (u64, Frame<'_>)> + '_> {
        Box::new((mark[0]..mark[1]).map(|number| (number, self.frame(number))))
    }
}

/// An IPv4 frame from 10.0.0.`from` to 10.0.0.`to`, as a line.
fn line(from: u8, to: u8) -> String {
    let mut frame = [0; 60];
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[26..34].copy_from_slice(&[10, 0, 0, from, 10, 0, 0, to]);
    frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n"
}

/// Returns true, and counts the frame, if the filters accept it.
fn accepts(reader: &mut FilterReader, frame: Frame<'_>) -> Result<bool, Error> {
    let mut batch = Batch::new();
    batch.push(frame).expect("the first of 256");
    let accepted = reader.evaluate(&batch, batch.all())?;
    reader.count(accepted);
    Ok(accepted.get(0))
}

/// Reads a source to its end; a frame from 10.0.0.9 adds a filter for the host that it goes to. Returns the numbers
/// of the delivered frames, and of those that came before the edit that accepts them.
fn follow(source: &mut dyn Source, filter: &fyke::LiveFilter) -> Result<[Vec<u64>; 2], Error> {
    let mut reader = filter.filters().reader();
    let (mut delivered, mut late, mut hosts) = (Vec::new(), Vec::new(), BTreeSet::new());
    // The held frames that were delivered.
    let mut done = BTreeSet::new();
    while let Next::Frames(batch, held) = source.next()? {
        let oldest = held.frames().next().map_or(batch.first_sequence, |(number, _)| number);
        done = done.split_off(&oldest);
        let number = |at| batch.first_sequence + at as u64;
        let mut rest = batch.all();
        while rest != Mask::EMPTY {
            reader.refresh();
            let accepted = reader.evaluate(&batch, rest)?;
            // The filters in force decide as far as the next edit.
            let names_host = |&at: &usize| {
                let data = batch.frames()[at].data;
                data[29] == 9 && !hosts.contains(&data[33])
            };
            let edits = accepted.iter().find(names_host);
            let decided = edits.map_or(rest, |at| rest & Mask::first(at + 1));
            reader.count(accepted & decided);
            delivered.extend((accepted & decided).iter().map(number));
            done.extend((accepted & decided).iter().map(number));
            rest = rest & !decided;
            let Some(at) = edits else { break };
            let host = batch.frames()[at].data[33];
            filter.add(&format!("host 10.0.0.{host}"))?;
            hosts.insert(host);
            reader.refresh();
            // Look-back has no frame of this batch.
            let earlier = batch.frames()[..at].iter().enumerate();
            let earlier = earlier.map(|(at, frame)| (number(at), *frame));
            for (number, frame) in held.frames().chain(earlier) {
                if !done.contains(&number) && accepts(&mut reader, frame)? {
                    delivered.push(number);
                    late.push(number);
                    done.insert(number);
                }
            }
        }
    }
    Ok([delivered, late])
}

fn main() -> Result<(), Error> {
    // Two frames of host 7 and many of others. In the next batch, host 7 becomes interesting, then host 8.
    let mut text = line(7, 1) + &line(1, 7);
    (0..300).for_each(|_| text += &line(1, 2));
    text +=
        &[(8, 1), (9, 7), (7, 1), (1, 8), (9, 8), (8, 2), (9, 7)].map(|(a, b)| line(a, b)).concat();

    let filter = fyke::LiveFilter::compile("src host 10.0.0.9")?;
    let mut source = HexLines::new(text.as_bytes());
    let [mut delivered, late] = follow(&mut source, &filter)?;
    println!("frames {late:?} came before the edits that accept them");
    assert_eq!(late, [0, 1, 302, 305]);
    delivered.sort_unstable();
    assert_eq!(delivered, [0, 1, 302, 303, 304, 305, 306, 307, 308], "each of them once");
    assert_eq!(filter.counts().iter().map(|one| one.accepted).sum::<u64>(), 9);
    assert_eq!(source.stats().delivered, 309);
    assert!(HexLines::new(&b"0x\n"[..]).next().is_err());
    Ok(())
}
