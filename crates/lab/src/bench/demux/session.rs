//! Sessions of the demux bench: keys, packets, and the programs of each engine for one session.
//!
//! Programs are assembled once for each session from the paper's texts, outside the measured time.

use crate::bench::BenchError;
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType};
use fyke_machine::bpf::run::Program;
use fyke_machine::bpf::{Dialect, assemble};
use fyke_machine::cspf::{self, ByteOrder};
use fyke_machine::{AnyProgram, papers};

const FIGURE_3: &str = include_str!("../../../../../testdata/machine/figure3.mpf");
const APPENDIX_A: &str = include_str!("../../../../../testdata/machine/appendix_a.bpf");
const APPENDIX_C: &str = include_str!("../../../../../testdata/machine/appendix_c.cspf");

const HERE: [u8; 4] = [10, 0, 0, 1];
/// Length of a packet in bytes: headers and 10 bytes of data.
const PACKET: usize = 64;

/// Source address and ports of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    source: u32,
    source_port: u16,
    destination_port: u16,
}

impl Session {
    /// Creates consecutive sessions, as in the paper.
    pub fn uniform(number: usize) -> Session {
        Session {
            source: 0x0a01_0000 + number as u32,
            source_port: 1024 + (number % 60_000) as u16,
            destination_port: 5000 + (number % 50_000) as u16,
        }
    }

    /// Creates sessions with the same sum of keys: the attack on an additive hash.
    pub fn colliding(number: usize) -> Session {
        let number = number as u32;
        Session { source: 0x0a01_0000 + number * 256, source_port: 1024, destination_port: 5000 }
    }

    fn packet(self) -> [u8; PACKET] {
        let mut bytes = [0; PACKET];
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14..26].copy_from_slice(&[0x45, 0, 0, 50, 0, 1, 0x40, 0, 64, 6, 0, 0]);
        bytes[26..30].copy_from_slice(&self.source.to_be_bytes());
        bytes[30..34].copy_from_slice(&HERE);
        bytes[34..36].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[36..38].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[46] = 0x50;
        bytes
    }

    pub fn program(self, engine: &str) -> Result<AnyProgram, BenchError> {
        let other = |error: &dyn std::fmt::Display| BenchError::Other(error.to_string());
        if engine == "cspf" {
            let mut symbols = papers::stack_machine(ByteOrder::Little);
            let address = self.source.to_be_bytes();
            let half = |bytes: [u8; 4], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            for (name, value) in [
                ("dst_addr_hi", half(HERE, 0)),
                ("dst_addr_lo", half(HERE, 2)),
                ("src_addr_hi", half(address, 0)),
                ("src_addr_lo", half(address, 2)),
                ("src_port", self.source_port.swap_bytes()),
                ("dst_port", self.destination_port.swap_bytes()),
            ] {
                symbols.define(name, value.into());
            }
            let words = cspf::assemble::assemble(APPENDIX_C, &symbols).map_err(|e| other(&e))?;
            let program = cspf::Program::new(words, ByteOrder::Little).map_err(|e| other(&e))?;
            return Ok(AnyProgram::Cspf(program));
        }
        let mut symbols = papers::register_machine();
        symbols.define("dst_addr", u32::from_be_bytes(HERE));
        symbols.define("src_addr", self.source);
        symbols.define("src_port", self.source_port.into());
        symbols.define("dst_port", self.destination_port.into());
        let (text, dialect) = match engine.starts_with("mpf") {
            true => (FIGURE_3, Dialect::Mpf),
            false => (APPENDIX_A, Dialect::Bpf),
        };
        register(text, dialect, &symbols)
    }

    pub fn text(self) -> String {
        let [a, b, c, d] = self.source.to_be_bytes();
        let [e, f, g, h] = HERE;
        format!(
            "ip src host {a}.{b}.{c}.{d} and ip dst host {e}.{f}.{g}.{h} and tcp src port {} and \
             tcp dst port {}",
            self.source_port, self.destination_port
        )
    }
}

pub(super) fn register(
    text: &str,
    dialect: Dialect,
    symbols: &fyke_machine::Symbols,
) -> Result<AnyProgram, BenchError> {
    let assembled = assemble::assemble(text, dialect, symbols)
        .map_err(|error| BenchError::Other(error.to_string()))?;
    let program = Program::new(assembled.program, dialect)
        .map_err(|error| BenchError::Other(error.to_string()))?;
    Ok(AnyProgram::Register(program))
}

/// Packets that hit the sessions uniformly; a near miss has one key that no session has.
pub(super) struct Load {
    bytes: Vec<u8>,
}

impl Load {
    /// Creates `count` packets; with near misses, one in four is a near miss.
    pub fn new(sessions: &[Session], count: usize, seed: u64, near_misses: bool) -> Load {
        let mut state = seed;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            (state >> 33) as usize
        };
        let mut bytes = Vec::with_capacity(count * PACKET);
        for _ in 0..count {
            let mut session = sessions[random() % sessions.len()];
            if near_misses && random() % 4 == 0 {
                match random() % 3 {
                    0 => session.source ^= 0x0010_0000,
                    1 => session.source_port ^= 0x8000,
                    _ => session.destination_port ^= 0x8000,
                }
            }
            bytes.extend_from_slice(&session.packet());
        }
        Load { bytes }
    }

    /// The packets.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.bytes.chunks_exact(PACKET).map(|bytes| Frame::new(LinkType::EN10MB, bytes))
    }

    /// The packets in full batches.
    pub fn batches(&self) -> Vec<Batch<'_>> {
        let mut frames = self.frames();
        let count = self.bytes.len() / PACKET;
        let batches = (0..count.div_ceil(BATCH_CAPACITY)).map(|_| {
            let mut batch = Batch::new();
            for frame in frames.by_ref().take(BATCH_CAPACITY) {
                // A batch has room for the whole chunk.
                let _ = batch.push(frame);
            }
            batch
        });
        batches.collect()
    }
}
