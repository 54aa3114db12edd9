//! Outputs over a channel that fails: whatever happens, whole records are written once, and the rest is counted.

use super::channel::Channel;
use super::output::Output;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A channel with faults: short writes, interruptions, no room for a while, and an error at a random byte.
struct Faulty {
    random: u64,
    fails_at: usize,
    error: i32,
    can_cut: bool,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Faulty {
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % limit
    }
}

impl Channel for Faulty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.below(8) {
            0 => return Err(ErrorKind::Interrupted.into()),
            1 => return Err(ErrorKind::WouldBlock.into()),
            _ => {}
        }
        let written = Arc::clone(&self.written);
        let mut written = written.lock().unwrap();
        let room = self.fails_at - written.len();
        if room == 0 {
            return Err(io::Error::from_raw_os_error(self.error));
        }
        let count = (self.below(bytes.len() as u64) as usize + 1).min(room);
        written.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn wait(&self, _patience: Duration) {}

    fn cut(&mut self, bytes: u64) -> bool {
        let mut written = self.written.lock().unwrap();
        let end = written.len() - bytes as usize;
        if self.can_cut {
            written.truncate(end);
        }
        self.can_cut
    }
}

/// A record: its number, and filling whose length depends on it.
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
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut channel = Faulty {
            random: seed,
            fails_at: 0,
            error: [libc::ENOSPC, libc::EIO, libc::EFBIG, libc::EDQUOT][seed as usize % 4],
            can_cut: seed % 3 > 0,
            written: Arc::clone(&written),
        };
        channel.fails_at = channel.below(all.len() as u64 + 500) as usize;
        let (can_cut, fails) = (channel.can_cut, channel.fails_at < all.len());
        let mut output = Output::over(Box::new(channel));
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
        let written = written.lock().unwrap();
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

#[test]
fn what_nobody_takes_is_given_up() {
    for seed in 0..50u64 {
        let written = Arc::new(Mutex::new(Vec::new()));
        let channel = Faulty {
            random: seed,
            fails_at: usize::MAX,
            error: 0,
            can_cut: false,
            written: Arc::clone(&written),
        };
        let mut output = Output::over(Box::new(channel));
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
        assert!(written.lock().unwrap().len() >= whole);
    }
}
