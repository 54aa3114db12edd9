//! Audio of calls: one WAV file for each RTP stream with G.711, mono, 16 bits, 8,000 samples a second.
//!
//! A sample is written at the place of its RTP time, so packets may arrive in any order, and what is missing stays a
//! hole of the file, which is silence. All files of a call begin at the same time, that of its first audio packet, so
//! that the directions can be played together. A time that is more than [`JUMP`] away from that of the arrival is a new
//! beginning of the sender: so a file is never much longer than its call.
//!
//! Packets with other payload types (tones of keys, comfort noise) are silence. Memory: about 100 bytes a stream. Cost:
//! a write for each packet. Source: ITU-T G.711; RFC 3550, section 5.1; RFC 3551, section 4.5.14.

use super::files::{Limits, Pattern};
use fyke_capture::{PRIVATE, WriteError};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const SAMPLES_PER_SECOND: u32 = 8_000;
/// Most samples between the place by RTP time and the place by arrival.
const JUMP: u64 = 10 * SAMPLES_PER_SECOND as u64;
/// Bytes of the header.
const HEADER: u64 = 44;
/// Most bytes of a WAV file: its lengths have 32 bits.
const MOST_BYTES: u64 = 0xffff_0000;

/// Audio of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Audio<'a> {
    /// Number of the stream in its call, from 0.
    pub(crate) stream: usize,
    /// Time of the first sample, in samples.
    pub(crate) time: u32,
    pub(crate) law: Law,
    pub(crate) bytes: &'a [u8],
}

/// Code of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Law {
    Mu,
    A,
}

impl Law {
    /// The code of a payload type.
    pub(crate) fn of(payload_type: u8) -> Option<Law> {
        match payload_type {
            0 => Some(Law::Mu),
            8 => Some(Law::A),
            _ => None,
        }
    }

    fn sample(self, byte: u8) -> i16 {
        match self {
            Law::Mu => {
                let code = !byte;
                let size = ((i16::from(code & 0x0f) << 3) + 0x84) << ((code & 0x70) >> 4);
                if code & 0x80 == 0 { size - 0x84 } else { 0x84 - size }
            }
            Law::A => {
                let code = byte ^ 0x55;
                let step = i16::from(code & 0x0f) << 4;
                let size = match (code & 0x70) >> 4 {
                    0 => step + 8,
                    segment => (step + 0x108) << (segment - 1),
                };
                if code & 0x80 == 0 { -size } else { size }
            }
        }
    }
}

/// The files.
pub(crate) struct CallAudio {
    pattern: Pattern,
    limits: Limits,
    /// All calls that have had audio, at most [`Limits::most`].
    calls: HashMap<u64, Call>,
    /// Streams with an open file, by the turn of their last packet.
    open: BTreeMap<u64, (u64, usize)>,
    turn: u64,
    /// Files so far.
    pub(crate) count: u64,
    /// Packets over a limit, or after the end of their call.
    pub(crate) over: u64,
}

struct Call {
    begin_ns: u64,
    is_over: bool,
    /// By the number of the stream; `None`: its file is closed.
    waves: BTreeMap<usize, Option<Wave>>,
}

/// An open file.
struct Wave {
    file: File,
    name: PathBuf,
    /// Place of the last packet, in samples, and its time.
    last: (u64, u32),
    /// Samples up to the last one.
    length: u64,
    turn: u64,
}

impl CallAudio {
    pub(crate) fn new(pattern: Pattern, limits: Limits) -> CallAudio {
        let (calls, open) = (HashMap::new(), BTreeMap::new());
        CallAudio { pattern, limits, calls, open, turn: 0, count: 0, over: 0 }
    }

    /// Writes the audio of a packet.
    ///
    /// # Errors
    /// The file could not be created or written.
    pub(crate) fn write(
        &mut self,
        (protocol, number): (&str, u64),
        call: u64,
        audio: &Audio<'_>,
        now_ns: u64,
    ) -> Result<(), WriteError> {
        if !self.calls.contains_key(&call) && self.calls.len() as u64 >= self.limits.most {
            self.over += 1;
            return Ok(());
        }
        let new = Call { begin_ns: now_ns, is_over: false, waves: BTreeMap::new() };
        let known = self.calls.entry(call).or_insert(new);
        let passed = u128::from(now_ns.saturating_sub(known.begin_ns));
        let arrival = (passed * u128::from(SAMPLES_PER_SECOND) / 1_000_000_000) as u64;
        let is_new = !known.is_over && !known.waves.contains_key(&audio.stream);
        if is_new && self.count < self.limits.most {
            let text = format!("{number}-{}", audio.stream + 1);
            let name = self.pattern.fill(protocol, &text);
            let wave = Wave::create(name, (arrival, audio.time))?;
            known.waves.insert(audio.stream, Some(wave));
            self.count += 1;
            while self.open.len() >= self.limits.open.max(1) {
                self.close_oldest()?;
            }
        }
        let place = self.calls.get_mut(&call).and_then(|call| call.waves.get_mut(&audio.stream));
        let Some(Some(wave)) = place else {
            self.over += 1;
            return Ok(());
        };
        self.open.remove(&wave.turn);
        self.turn += 1;
        wave.turn = self.turn;
        self.open.insert(self.turn, (call, audio.stream));
        if !wave.write(audio, arrival, self.limits.bytes)? {
            self.over += 1;
        }
        Ok(())
    }

    fn close_oldest(&mut self) -> Result<(), WriteError> {
        let Some((_, (call, stream))) = self.open.pop_first() else { return Ok(()) };
        let place = self.calls.get_mut(&call).and_then(|call| call.waves.get_mut(&stream));
        place.and_then(Option::take).map_or(Ok(()), |wave| wave.finish())
    }

    /// Closes the files of a call.
    pub(crate) fn end(&mut self, call: u64) -> Result<(), WriteError> {
        let Some(call) = self.calls.get_mut(&call) else { return Ok(()) };
        call.is_over = true;
        for wave in std::mem::take(&mut call.waves).into_values().flatten() {
            self.open.remove(&wave.turn);
            wave.finish()?;
        }
        Ok(())
    }
}

impl Wave {
    fn create(name: PathBuf, last: (u64, u32)) -> Result<Wave, WriteError> {
        let failed = |source| WriteError::Create { name: name.display().to_string(), source };
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(PRIVATE).open(&name);
        let wave = Wave { file: file.map_err(failed)?, name, last, length: 0, turn: 0 };
        // Programs read a file of unknown length to its end: so one that is not finished can be played, too.
        wave.checked(wave.file.write_all_at(&header(u32::MAX - 36), 0))?;
        Ok(wave)
    }

    /// Writes the samples of a packet that has arrived at this place; false if they are over the limit.
    fn write(
        &mut self,
        audio: &Audio<'_>,
        arrival: u64,
        most_bytes: u64,
    ) -> Result<bool, WriteError> {
        let (place, time) = self.last;
        let distance = i64::from(audio.time.wrapping_sub(time) as i32);
        let by_time = place.checked_add_signed(distance);
        let at = by_time.filter(|at| at.abs_diff(arrival) <= JUMP).unwrap_or(arrival);
        self.last = (at, audio.time);
        let end = at + audio.bytes.len() as u64;
        if HEADER + 2 * end > most_bytes.min(MOST_BYTES) {
            return Ok(false);
        }
        let samples = audio.bytes.iter().flat_map(|&byte| audio.law.sample(byte).to_le_bytes());
        let samples: Vec<u8> = samples.collect();
        self.checked(self.file.write_all_at(&samples, HEADER + 2 * at))?;
        self.length = self.length.max(end);
        Ok(true)
    }

    fn finish(self) -> Result<(), WriteError> {
        self.checked(self.file.write_all_at(&header(2 * self.length as u32), 0))
    }

    fn checked(&self, result: io::Result<()>) -> Result<(), WriteError> {
        let name = |path: &Path| path.display().to_string();
        result.map_err(|source| WriteError::Write { name: name(&self.name), source })
    }
}

/// The header of a file with this number of bytes of samples.
fn header(bytes: u32) -> Vec<u8> {
    let rate = SAMPLES_PER_SECOND.to_le_bytes();
    let bytes_per_second = (2 * SAMPLES_PER_SECOND).to_le_bytes();
    let parts: [&[u8]; 8] = [
        b"RIFF",
        &(bytes + 36).to_le_bytes(),
        // PCM, one channel.
        b"WAVEfmt \x10\0\0\0\x01\0\x01\0",
        &rate,
        &bytes_per_second,
        // Bytes and bits of a sample.
        &[2, 0, 16, 0],
        b"data",
        &bytes.to_le_bytes(),
    ];
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_those_of_the_tables_of_g_711() {
        for (byte, sample) in [(0xff, 0), (0x7f, 0), (0x80, 32_124), (0x00, -32_124), (0xf0, 120)] {
            assert_eq!(Law::Mu.sample(byte), sample, "{byte:#x}");
        }
        for (byte, sample) in [(0xd5, 8), (0x55, -8), (0xaa, 32_256), (0x2a, -32_256), (0xc5, 264)]
        {
            assert_eq!(Law::A.sample(byte), sample, "{byte:#x}");
        }
    }

    #[test]
    fn samples_are_at_the_place_of_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("a.wav");
        let mut wave = Wave::create(name.clone(), (0, u32::MAX - 1)).unwrap();
        let mut write = |time: u32, arrival, bytes| {
            let audio = Audio { stream: 0, time, law: Law::A, bytes };
            wave.write(&audio, arrival, 1_000_000).unwrap()
        };
        // Times wrap, packets are swapped, a sender begins again, another one lies: over the limit.
        assert!(write(u32::MAX - 1, 0, &[0xd5; 2]) && write(4, 4, &[0x55; 1]));
        assert!(write(2, 5, &[0xaa; 1]) && write(900_000, 8, &[0xd5; 1]));
        assert!(!write(0, 600_000, &[0xd5; 1]));
        wave.finish().unwrap();
        let bytes = std::fs::read(name).unwrap();
        let words = bytes[44..].chunks(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
        assert_eq!(words.collect::<Vec<_>>(), [8, 8, 0, 0, 32_256, 0, -8, 0, 8]);
        assert_eq!((&bytes[40..44], bytes.len()), (&18_u32.to_le_bytes()[..], 44 + 18));
    }
}
