//! A source of your own, with look-back: frames in hexadecimal, one a line. A frame that names a host edits the filter,
//! and frames of that host that came before are found among those that the source still holds.

use fyke::Error;
use fyke::capture::{
    HeldFrames, HeldMark, Interface, LookBack, Next, ReadError, Source, SourceStats,
};
use fyke::frame::{BATCH_CAPACITY, Batch, Frame, LinkType};
use std::collections::VecDeque;
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

fn main() -> Result<(), Error> {
    // Two frames of host 7, many of others, then one that makes host 7 interesting.
    let mut text = line(7, 1) + &line(1, 7);
    (0..300).for_each(|_| text += &line(1, 2));
    text += &line(9, 7);

    let filter = fyke::LiveFilter::compile("src host 10.0.0.9")?;
    let (mut source, mut reader) = (HexLines::new(text.as_bytes()), filter.reader());
    let mut late = Vec::new();
    while let Next::Frames(batch, held) = source.next()? {
        for at in reader.matches_batch(&batch).iter() {
            let host = batch.frames()[at].data[33];
            filter.add(&format!("host 10.0.0.{host}"))?;
            late.extend(
                held.frames().filter(|(_, frame)| reader.matches_frame(frame)).map(|(n, _)| n),
            );
        }
    }
    println!("frames {late:?} came before the edit that accepts them");
    assert_eq!(late, [0, 1]);
    assert_eq!(source.stats().delivered, 303);
    assert!(HexLines::new(&b"0x\n"[..]).next().is_err());
    Ok(())
}
