//! The pass engine's hash table used frame by frame: cost of a set of (host, port) pairs without batches.
//!
//! Evaluates `tcp port 21 or (ip host A and tcp port X) or …` as a programmer would write it by hand with our
//! table.

use super::engine::Engine;
use super::frames::Load;
use super::traffic::End;
use fyke_frame::BATCH_CAPACITY;
use fyke_table::{RowTable, Seed, TableError, TableReader};

const FTP: u32 = 21;

/// The engine.
#[derive(Debug)]
pub struct Hash {
    reader: TableReader,
    _table: RowTable,
}

impl Hash {
    /// Creates a table of these pairs.
    ///
    /// # Errors
    /// If the table refuses them.
    pub fn new(pairs: &[End]) -> Result<Hash, TableError> {
        let mut table = RowTable::new(2, Seed::random());
        for (index, &(host, port)) in pairs.iter().enumerate() {
            table.insert(&[host, u32::from(port)], index as u32)?;
        }
        Ok(Hash { reader: table.reader(), _table: table })
    }

    fn holds(&mut self, data: &[u8]) -> Option<bool> {
        let half =
            |at: usize| Some(u32::from(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?)));
        let word = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
        match half(12)? {
            0x0800 => {
                if *data.get(23)? != 6 || half(20)? & 0x1fff != 0 {
                    return Some(false);
                }
                let at = 14 + 4 * usize::from(data.get(14)? & 15);
                let (source, destination) = (half(at)?, half(at + 2));
                if source == FTP || destination? == FTP {
                    return Some(true);
                }
                let ends = [word(26)?, word(30)?];
                let ports = [source, destination?];
                let mut found = |host, port| self.reader.find(&[host, port]).is_some();
                Some(ends.iter().any(|&host| ports.iter().any(|&port| found(host, port))))
            }
            0x86dd if *data.get(20)? == 6 => Some(half(54)? == FTP || half(56)? == FTP),
            _ => Some(false),
        }
    }
}

impl Engine for Hash {
    fn name(&self) -> &str {
        "hash"
    }

    fn judge(&mut self, load: &Load, count: usize, verdicts: &mut [u64]) {
        let batches = &load.batches()[..count.div_ceil(BATCH_CAPACITY)];
        for (batch, words) in batches.iter().zip(verdicts.chunks_mut(BATCH_CAPACITY / 64)) {
            words.fill(0);
            for (chunk, word) in batch.frames().chunks(64).zip(words) {
                for (index, frame) in chunk.iter().enumerate() {
                    *word |= u64::from(self.holds(frame.data) == Some(true)) << index;
                }
            }
        }
    }
}
