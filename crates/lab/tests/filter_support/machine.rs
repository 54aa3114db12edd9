//! A second interpreter of classic BPF. Unlike libpcap's own it supports Linux's metadata, and detects memory that
//! is read before it is written and infinite loops.

use fyke_frame::bpf::Instruction;
use fyke_frame::{Direction, Frame};

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The verdict: accepted or not.
    Verdict(bool),
    /// The program read a memory word that it had not written: the verdict is undefined.
    Unset,
    /// The run took more steps than any valid frame needs.
    Endless,
}

/// Maximum number of steps of a run.
const MAX_STEPS: usize = 100_000;
/// Offset of Linux's metadata.
const METADATA: u32 = 0_u32.wrapping_sub(0x1000);

/// State of a run.
struct Machine<'f> {
    frame: &'f Frame<'f>,
    live: bool,
    a: u32,
    x: u32,
    memory: [Option<u32>; 16],
}

/// Runs a program over a frame; with `live` as the kernel does, with metadata, otherwise as libpcap does over a
/// file.
pub fn run(program: &[Instruction], frame: &Frame, live: bool) -> Outcome {
    let mut machine = Machine { frame, live, a: 0, x: 0, memory: [None; 16] };
    let mut at = 0_usize;
    for _ in 0..MAX_STEPS {
        let Some(instruction) = program.get(at) else {
            return Outcome::Verdict(program.is_empty());
        };
        let Instruction { code, jt, jf, k } = *instruction;
        at += 1;
        match code & 7 {
            5 => {
                let operand = if code & 8 != 0 { machine.x } else { k };
                let holds = match code & 0xf0 {
                    0x00 => {
                        at = at.wrapping_add(k as i32 as usize);
                        continue;
                    }
                    0x10 => machine.a == operand,
                    0x20 => machine.a > operand,
                    0x30 => machine.a >= operand,
                    _ => machine.a & operand != 0,
                };
                at += usize::from(if holds { jt } else { jf });
            }
            6 => return Outcome::Verdict(k != 0),
            _ => match machine.step(code, k) {
                Ok(()) => {}
                Err(outcome) => return outcome,
            },
        }
    }
    Outcome::Endless
}

impl Machine<'_> {
    fn step(&mut self, code: u16, k: u32) -> Result<(), Outcome> {
        let reject = Outcome::Verdict(false);
        match code & 7 {
            0 => self.a = self.value(code, k)?,
            1 => {
                self.x = match code & 0xe0 {
                    0xa0 => 4 * (self.bytes(k, 1).ok_or(reject)? & 0xf),
                    _ => self.value(code, k)?,
                }
            }
            2 => self.memory[k as usize & 15] = Some(self.a),
            3 => self.memory[k as usize & 15] = Some(self.x),
            4 => {
                let operand = if code & 8 != 0 { self.x } else { k };
                self.a = match code & 0xf0 {
                    0x00 => self.a.wrapping_add(operand),
                    0x10 => self.a.wrapping_sub(operand),
                    0x20 => self.a.wrapping_mul(operand),
                    0x30 => self.a.checked_div(operand).ok_or(reject)?,
                    0x40 => self.a | operand,
                    0x50 => self.a & operand,
                    0x60 => self.a.checked_shl(operand).unwrap_or(0),
                    0x70 => self.a.checked_shr(operand).unwrap_or(0),
                    0x80 => self.a.wrapping_neg(),
                    0x90 => self.a.checked_rem(operand).ok_or(reject)?,
                    _ => self.a ^ operand,
                };
            }
            _ if code & 0xf8 == 0x80 => self.a = self.x,
            _ => self.x = self.a,
        }
        Ok(())
    }

    /// Returns the value of a load.
    fn value(&self, code: u16, k: u32) -> Result<u32, Outcome> {
        let width = match code & 0x18 {
            0x10 => 1,
            0x08 => 2,
            _ => 4,
        };
        let reject = Outcome::Verdict(false);
        match code & 0xe0 {
            0x00 => Ok(k),
            0x20 if self.live && k >= METADATA => self.metadata(k - METADATA).ok_or(reject),
            0x20 => self.bytes(k, width).ok_or(reject),
            0x40 => k.checked_add(self.x).and_then(|k| self.bytes(k, width)).ok_or(reject),
            0x60 => self.memory[k as usize & 15].ok_or(Outcome::Unset),
            _ => Ok(self.frame.wire_len),
        }
    }

    fn bytes(&self, from: u32, width: usize) -> Option<u32> {
        let from = from as usize;
        let bytes = self.frame.data.get(from..from.checked_add(width)?)?;
        Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    /// Returns Linux's numbers: packet type, interface, tag, 1 if there is a tag.
    fn metadata(&self, which: u32) -> Option<u32> {
        let meta = &self.frame.meta;
        match which {
            4 => Some(match meta.direction {
                Direction::Outbound => 4,
                Direction::OtherHost => 3,
                Direction::Multicast => 2,
                Direction::Broadcast => 1,
                Direction::Inbound | Direction::Unknown => 0,
            }),
            8 => Some(meta.ifindex),
            44 => Some(meta.vlan.unwrap_or(0).into()),
            48 => Some(meta.vlan.is_some().into()),
            _ => None,
        }
    }
}
