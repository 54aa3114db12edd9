//! libpcap's programs as the kernel runs them: translated to eBPF as the kernel does, compiled by its JIT.
//!
//! The kernel cannot measure the run of a classic filter. But it translates classic instructions to eBPF one by one
//! (`bpf_convert_filter`), with loads at fixed offsets as inline code and indirect ones as calls, and the same JIT
//! compiles both. This file does the same translation: accumulator in R0, index in R7, the packet's bytes in R8 and
//! their end in R9. The result is a classifier, because the verifier allows direct packet access only there. The
//! kernel's overhead differs between the two program types, so that of an empty program ([`KernelJit::empty`]) must
//! be subtracted.

use fyke_frame::bpf::Instruction;
use fyke_kernel::TestRun;
use fyke_kernel::ebpf::{
    Alu, Assembler, Kind, Label, Program, ProgramError, R0, R1, R2, R6, R7, R8, R9, R10, Register,
    When, Width,
};
use std::io;

/// A classic program loaded into the kernel.
#[derive(Debug)]
pub struct KernelJit(Program);

/// Reason why a program was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum JitError {
    /// The instruction is one that libpcap's compiler does not generate for frames.
    #[error("instruction {at} ({code:#x}) is not translated")]
    Instruction {
        /// Its index.
        at: usize,
        /// Its operation.
        code: u16,
    },
    /// The program is longer than `SO_ATTACH_FILTER` accepts.
    #[error("{given} instructions, and the kernel attaches at most 4,096")]
    TooLong {
        /// Its length.
        given: usize,
    },
    /// The kernel refuses the program.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

const A: Register = R0;
const X: Register = R7;
const OTHER: Register = R2;
/// Maximum number of instructions of an attached classic filter (`BPF_MAXINSNS`).
const LIMIT: usize = 4_096;
/// Offsets in `struct __sk_buff`.
const DATA: i16 = 76;
const DATA_END: i16 = 80;

impl KernelJit {
    /// Translates and loads a program.
    ///
    /// # Errors
    /// [`JitError`]
    pub fn load(program: &[Instruction]) -> Result<KernelJit, JitError> {
        if program.len() > LIMIT {
            return Err(JitError::TooLong { given: program.len() });
        }
        let mut asm = Assembler::default();
        let places: Vec<Label> = program.iter().map(|_| asm.label()).collect();
        let outside = asm.label();
        asm.alu64_register(Alu::Mov, R6, R1);
        asm.load(Width::Word, R8, R6, DATA);
        asm.load(Width::Word, R9, R6, DATA_END);
        asm.alu(Alu::Mov, A, 0);
        asm.alu(Alu::Mov, X, 0);
        for (at, one) in program.iter().enumerate() {
            asm.bind(places[at]);
            let to = |distance: u32| places.get(at + 1 + distance as usize).copied();
            translate(&mut asm, one, outside, to)
                .ok_or(JitError::Instruction { at, code: one.code })?;
        }
        asm.bind(outside);
        asm.alu(Alu::Mov, A, 0);
        asm.exit();
        Ok(KernelJit(Program::load(Kind::Classifier, &asm.finish()?)?))
    }

    /// Loads the empty program.
    ///
    /// # Errors
    /// [`JitError`]
    pub fn empty() -> Result<KernelJit, JitError> {
        let mut asm = Assembler::default();
        asm.alu(Alu::Mov, A, 0);
        asm.exit();
        Ok(KernelJit(Program::load(Kind::Classifier, &asm.finish()?)?))
    }

    /// Runs it on bytes, `repeat` times.
    ///
    /// # Errors
    /// If the kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.0.test_run(frame, repeat)
    }
}

/// Emits a load at a fixed offset, as the kernel does: the bounds check, the load, the byte order.
fn direct(asm: &mut Assembler, width: Width, offset: u32, outside: Label) {
    let (bytes, bits) = match width {
        Width::Byte => (1, 0),
        Width::Half => (2, 16),
        _ => (4, 32),
    };
    let (Ok(end), Ok(at)) = (i32::try_from(offset + bytes), i16::try_from(offset)) else {
        return asm.packet_at(width, offset);
    };
    asm.alu64_register(Alu::Mov, OTHER, R8);
    asm.alu64(Alu::Add, OTHER, end);
    asm.jump_when_register64(OTHER, When::Greater, R9, outside);
    asm.load(width, A, R8, at);
    if bits > 0 {
        asm.from_network(A, bits);
    }
}

/// Translates one instruction; `None` if libpcap does not generate it.
fn translate(
    asm: &mut Assembler,
    one: &Instruction,
    outside: Label,
    to: impl Fn(u32) -> Option<Label>,
) -> Option<()> {
    let slot = |k: u32| -4 * (k as i16 + 1);
    match one.code {
        0x20 => direct(asm, Width::Word, one.k, outside),
        0x28 => direct(asm, Width::Half, one.k, outside),
        0x30 => direct(asm, Width::Byte, one.k, outside),
        0x40 => asm.packet_behind(Width::Word, X, one.k),
        0x48 => asm.packet_behind(Width::Half, X, one.k),
        0x50 => asm.packet_behind(Width::Byte, X, one.k),
        0xb1 => {
            asm.alu_register(Alu::Mov, X, A);
            direct(asm, Width::Byte, one.k, outside);
            asm.alu(Alu::And, A, 0xf);
            asm.alu(Alu::Shl, A, 2);
            asm.alu_register(Alu::Mov, OTHER, A);
            asm.alu_register(Alu::Mov, A, X);
            asm.alu_register(Alu::Mov, X, OTHER);
        }
        0x80 => asm.load(Width::Word, A, R6, 0),
        0x81 => asm.load(Width::Word, X, R6, 0),
        0x00 => asm.alu(Alu::Mov, A, one.k),
        0x01 => asm.alu(Alu::Mov, X, one.k),
        0x60 if one.k < 16 => asm.load(Width::Word, A, R10, slot(one.k)),
        0x61 if one.k < 16 => asm.load(Width::Word, X, R10, slot(one.k)),
        0x02 if one.k < 16 => asm.store_register(Width::Word, R10, slot(one.k), A),
        0x03 if one.k < 16 => asm.store_register(Width::Word, R10, slot(one.k), X),
        0x07 => asm.alu_register(Alu::Mov, X, A),
        0x87 => asm.alu_register(Alu::Mov, A, X),
        0x06 => {
            asm.alu(Alu::Mov, A, one.k);
            asm.exit();
        }
        0x16 => asm.exit(),
        0x05 => asm.jump(to(one.k)?),
        code if code & 7 == 4 => arithmetic(asm, one)?,
        code if code & 7 == 5 => {
            let when = match code & 0xf0 {
                0x10 => When::Equal,
                0x20 => When::Greater,
                0x30 => When::AtLeast,
                0x40 => When::AnyBit,
                _ => return None,
            };
            let (yes, no) = (to(one.jt.into())?, to(one.jf.into())?);
            if one.jt == one.jf {
                asm.jump(yes);
                return Some(());
            }
            // The kernel inverts a comparison if the next instruction is the target for "true".
            let turned = match when {
                When::Equal => Some(When::NotEqual),
                When::Greater => Some(When::AtMost),
                When::AtLeast => Some(When::Less),
                _ => None,
            };
            let (when, first, second) = match turned.filter(|_| one.jt == 0) {
                Some(turned) => (turned, no, None),
                None => (when, yes, Some(no).filter(|_| one.jf != 0)),
            };
            match code & 8 {
                0 => asm.jump_when(A, when, one.k, first),
                _ => asm.jump_when_register(A, when, X, first),
            }
            if let Some(second) = second {
                asm.jump(second);
            }
        }
        _ => return None,
    }
    Some(())
}

fn arithmetic(asm: &mut Assembler, one: &Instruction) -> Option<()> {
    let op = match one.code & 0xf0 {
        0x00 => Alu::Add,
        0x10 => Alu::Sub,
        0x20 => Alu::Mul,
        0x40 => Alu::Or,
        0x50 => Alu::And,
        0x60 => Alu::Shl,
        0x70 => Alu::Shr,
        0xa0 => Alu::Xor,
        0x80 => {
            asm.negate(A);
            return Some(());
        }
        _ => return None,
    };
    match one.code & 8 {
        0 => asm.alu(op, A, one.k),
        _ => asm.alu_register(op, A, X),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::frames::{Arena, Load};
    use crate::bench::traffic::Traffic;
    use crate::peers::libpcap::Libpcap;
    use fyke_frame::LinkType;

    /// Programs of many kinds give libpcap's verdict on generated frames.
    #[test]
    fn the_translation_gives_libpcaps_verdict() {
        let Ok(libpcap) = Libpcap::load() else { return println!("skipped: no libpcap") };
        let arena = Arena::synthetic(&mut Traffic::new(3), 400, 0);
        let load = Load::new(&arena, (0..arena.len() as u32).collect());
        let mut accepted = 0;
        for text in ["ip", "tcp port 80", "not ip", "ip[2:2] > 500", "tcp[13] & 3 != 0", "len > 99"]
        {
            let program = libpcap.compile(LinkType::EN10MB, 262_144, text, true).unwrap();
            let is_missing = |error: &JitError| error.to_string().contains("os error 1)");
            let loaded = KernelJit::load(program.instructions());
            let Some(jit) = fyke_testkit::skip::unless_missing(loaded, is_missing) else { return };
            for frame in load.batches().iter().flat_map(|batch| batch.frames()) {
                let ours = jit.test_run(frame.data, 1).unwrap().returned != 0;
                assert_eq!(ours, program.matches(frame.data, frame.wire_len), "{text}");
                accepted += u32::from(ours);
            }
        }
        assert!(accepted > 100);
    }
}
