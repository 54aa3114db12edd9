//! A just-in-time compiler for classic BPF on x86-64, with the quality of the kernel's: a peer for comparison.
//!
//! The program is translated in rounds until the length of every jump is stable. `A` is in eax, `X` in ecx, the
//! scratch memory in the red zone of the stack. Bounds checks are inline (a compare and a jump that is rarely
//! taken); a load within a bound that was checked on every path to it needs none. No calls, no loops, no stack
//! frame.
//!
//! This file contains unsafe code: it makes memory executable and calls it. The memory is never writable and
//! executable at the same time.
#![allow(unsafe_code, reason = "maps memory for machine code and calls it")]

use super::native::{self, Descriptor, JudgeOne};
use fyke_frame::bpf::Instruction;
use std::ptr;

/// Error: a program cannot be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JitError {
    /// The instruction does not exist in classic BPF, or is not supported by this translator.
    #[error("instruction {index}: operation {code:#x} is not translated")]
    Operation {
        /// Its index.
        index: usize,
        /// Its operation.
        code: u16,
    },
    /// A jump leaves the program, or there is no return at the end.
    #[error("instruction {index} leads out of the program")]
    Target {
        /// Its index.
        index: usize,
    },
    /// The offset does not fit into an instruction.
    #[error("instruction {index}: offset {offset} is too large")]
    Offset {
        /// Its index.
        index: usize,
        /// The offset.
        offset: u32,
    },
    /// The system has no memory for the code.
    #[error("no memory for code: error {errno}")]
    Memory {
        /// The system's error number.
        errno: i32,
    },
    /// This is not an x86-64 machine.
    #[error("the translator is for x86-64")]
    Machine,
}

/// A translated program.
#[derive(Debug)]
pub struct Code {
    memory: *mut libc::c_void,
    len: usize,
}

// SAFETY: the code is never written after its creation and keeps no state.
unsafe impl Send for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: mapped by `Code::new` with this length, unmapped only here.
        unsafe { libc::munmap(self.memory, self.len) };
    }
}

impl Code {
    /// Translates a program.
    ///
    /// # Errors
    /// [`JitError`] names the instruction that cannot be translated.
    pub fn new(program: &[Instruction]) -> Result<Code, JitError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(JitError::Machine);
        }
        if program.is_empty() {
            return Err(JitError::Target { index: 0 });
        }
        let bytes = assemble(program)?;
        let len = bytes.len().next_multiple_of(4096);
        let failed = || {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
            JitError::Memory { errno }
        };
        // SAFETY: a new private mapping; no other memory is changed.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), len, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(failed());
        }
        let code = Code { memory, len };
        // SAFETY: the mapping is at least as long as the bytes, writable, and owned here.
        let status = unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len());
            libc::mprotect(memory, len, libc::PROT_READ | libc::PROT_EXEC)
        };
        if status == 0 { Ok(code) } else { Err(failed()) }
    }

    /// Evaluates the first `count` frames.
    ///
    /// # Panics
    /// If there are fewer descriptors or too few words for the verdicts.
    pub fn judge(&self, descriptors: &[Descriptor], count: usize, verdicts: &mut [u64]) {
        // SAFETY: the memory holds a function of this type: `assemble` follows the calling convention, all paths
        // end in a return, and the bound of every load is compared with the length first.
        unsafe {
            let judge = std::mem::transmute::<*mut libc::c_void, JudgeOne>(self.memory);
            native::each(judge, descriptors, count, verdicts);
        }
    }
}

/// Condition codes of x86, as in the second byte of a long conditional jump.
const BELOW: u8 = 0x82;
const NOT_BELOW: u8 = 0x83;
const EQUAL: u8 = 0x84;
const NOT_EQUAL: u8 = 0x85;
const ABOVE: u8 = 0x87;

/// Code under construction.
struct Assembler<'p> {
    program: &'p [Instruction],
    code: Vec<u8>,
    /// Offset of each instruction's code in the previous round; the last one is the rejection.
    places: Vec<usize>,
    /// Number of bytes that every path to an instruction has checked.
    checked: Vec<u32>,
    /// True if short jumps are allowed.
    short: bool,
}

fn assemble(program: &[Instruction]) -> Result<Vec<u8>, JitError> {
    let places = vec![0; program.len() + 1];
    let checked = vec![u32::MAX; program.len() + 1];
    let mut assembler = Assembler { program, code: Vec::new(), places, checked, short: true };
    // A round uses the offsets of the previous round; the translation is complete when none changes. Short jumps
    // could make the offsets alternate for ever; long ones are stable after the second round.
    for round in 0..40 {
        assembler.short = round < 30;
        let before = assembler.places.clone();
        assembler.round()?;
        if before == assembler.places {
            return Ok(assembler.code);
        }
    }
    Err(JitError::Target { index: 0 })
}

impl Assembler<'_> {
    fn round(&mut self) -> Result<(), JitError> {
        self.code.clear();
        self.checked.fill(u32::MAX);
        self.checked[0] = 0;
        // mov esi, esi; xor eax, eax; xor ecx, ecx
        self.bytes(&[0x89, 0xf6, 0x31, 0xc0, 0x31, 0xc9]);
        let mut places = Vec::with_capacity(self.places.len());
        for index in 0..self.program.len() {
            places.push(self.code.len());
            let last = index + 1 == self.program.len();
            if last && self.program[index].code & 7 != 6 {
                return Err(JitError::Target { index });
            }
            self.instruction(index)?;
        }
        places.push(self.code.len());
        self.bytes(&[0x31, 0xc0, 0xc3]); // xor eax, eax; ret
        self.places = places;
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    fn word(&mut self, opcode: &[u8], operand: u32) {
        self.bytes(opcode);
        self.bytes(&operand.to_le_bytes());
    }

    /// Adds a path: at `target`, no more bytes are checked than here.
    fn reach(&mut self, index: usize, target: usize) {
        let here = self.checked[index];
        self.checked[target] = self.checked[target].min(here);
    }

    /// Adds a jump; `jump` is a condition, or `None` for an unconditional one.
    fn jump(&mut self, jump: Option<u8>, target: usize) {
        let there = self.places[target] as i64;
        let here = self.code.len() as i64;
        // In the first round all offsets are 0.
        let short = there - here - 2;
        if self.short && self.places[target] != 0 && (-128..=127).contains(&short) {
            self.bytes(&[jump.map_or(0xeb, |condition| condition - 0x10), short as u8]);
            return;
        }
        match jump {
            Some(condition) => self.word(&[0x0f, condition], (there - here - 6) as i32 as u32),
            None => self.word(&[0xe9], (there - here - 5) as i32 as u32),
        }
    }

    fn instruction(&mut self, index: usize) -> Result<(), JitError> {
        let Instruction { code, jt, jf, k } = self.program[index];
        let unknown = JitError::Operation { index, code };
        let next = index + 1;
        match code & 7 {
            0 | 1 => self.load(index, code, k)?,
            2 | 3 => self.store(code, k, unknown)?,
            4 => self.arithmetic(code, k, unknown)?,
            5 => return self.branch(index, code, [jt.into(), jf.into()], k),
            6 => {
                match code & 0x18 {
                    0x00 => self.word(&[0xb8], k),
                    0x10 => {}
                    _ => return Err(unknown),
                }
                self.bytes(&[0xc3]);
                return Ok(());
            }
            _ => match code & 0xf8 {
                0x00 => self.bytes(&[0x89, 0xc1]), // mov ecx, eax
                0x80 => self.bytes(&[0x89, 0xc8]), // mov eax, ecx
                _ => return Err(unknown),
            },
        }
        self.reach(index, next);
        Ok(())
    }

    /// Registers: edi … rdi = data, esi = captured length, edx = length on the wire.
    fn load(&mut self, index: usize, code: u16, k: u32) -> Result<(), JitError> {
        let unknown = JitError::Operation { index, code };
        let to_x = code & 7 == 1;
        let width: u32 = match code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => return Err(unknown),
        };
        let reject = self.program.len();
        match (code & 0xe0, to_x) {
            (0x00, false) => self.word(&[0xb8], k),
            (0x00, true) => self.word(&[0xb9], k),
            (0x80, false) => self.bytes(&[0x89, 0xd0]), // mov eax, edx
            (0x80, true) => self.bytes(&[0x89, 0xd1]),
            (0x60, _) => {
                let register = if to_x { 0x4c } else { 0x44 };
                self.bytes(&[0x8b, register, 0x24, scratch(k).ok_or(unknown)?]);
            }
            (0xa0, true) => {
                self.check(index, k, 1)?;
                self.word(&[0x0f, 0xb6, 0x8f], k); // movzx ecx, byte [rdi+k]
                self.bytes(&[0x83, 0xe1, 0x0f, 0xc1, 0xe1, 0x02]);
            }
            (0x20, false) => {
                self.check(index, k, width)?;
                match width {
                    4 => self.word(&[0x8b, 0x87], k),
                    2 => self.word(&[0x0f, 0xb7, 0x87], k),
                    _ => self.word(&[0x0f, 0xb6, 0x87], k),
                }
                self.swap(width);
            }
            (0x40, false) => {
                let end = k.checked_add(width).filter(|&end| end < 1 << 30);
                let end = end.ok_or(JitError::Offset { index, offset: k })?;
                // r8 = X + k + width, in 64 bits, so that it cannot overflow.
                self.word(&[0x4c, 0x8d, 0x81], end);
                self.bytes(&[0x49, 0x39, 0xf0]); // cmp r8, rsi
                self.jump(Some(ABOVE), reject);
                match width {
                    4 => self.word(&[0x8b, 0x84, 0x0f], k),
                    2 => self.word(&[0x0f, 0xb7, 0x84, 0x0f], k),
                    _ => self.word(&[0x0f, 0xb6, 0x84, 0x0f], k),
                }
                self.swap(width);
            }
            _ => return Err(unknown),
        }
        Ok(())
    }

    /// Rejects if the frame is shorter, unless that was already checked.
    fn check(&mut self, index: usize, offset: u32, width: u32) -> Result<(), JitError> {
        let end = offset.checked_add(width).filter(|&end| end < 1 << 30);
        let end = end.ok_or(JitError::Offset { index, offset })?;
        if self.checked[index] < end {
            self.word(&[0x81, 0xfe], end); // cmp esi, end
            self.jump(Some(BELOW), self.program.len());
            self.checked[index] = end;
        }
        Ok(())
    }

    /// Converts eax from network order.
    fn swap(&mut self, width: u32) {
        match width {
            4 => self.bytes(&[0x0f, 0xc8]), // bswap eax
            2 => self.bytes(&[0x86, 0xe0]), // xchg al, ah
            _ => {}
        }
    }

    fn store(&mut self, code: u16, k: u32, unknown: JitError) -> Result<(), JitError> {
        let register = if code & 7 == 3 { 0x4c } else { 0x44 };
        self.bytes(&[0x89, register, 0x24, scratch(k).ok_or(unknown)?]);
        Ok(())
    }

    fn arithmetic(&mut self, code: u16, k: u32, unknown: JitError) -> Result<(), JitError> {
        let with_x = code & 8 != 0;
        let (by_x, by_k): (&[u8], &[u8]) = match code & 0xf0 {
            0x00 => (&[0x01, 0xc8], &[0x05]),
            0x10 => (&[0x29, 0xc8], &[0x2d]),
            0x20 => (&[0x0f, 0xaf, 0xc1], &[0x69, 0xc0]),
            0x40 => (&[0x09, 0xc8], &[0x0d]),
            0x50 => (&[0x21, 0xc8], &[0x25]),
            0xa0 => (&[0x31, 0xc8], &[0x35]),
            0x80 => {
                self.bytes(&[0xf7, 0xd8]); // neg eax
                return Ok(());
            }
            0x60 | 0x70 if !with_x && k < 32 => {
                let shift = if code & 0xf0 == 0x60 { 0xe0 } else { 0xe8 };
                self.bytes(&[0xc1, shift, k as u8]);
                return Ok(());
            }
            0x60 | 0x70 if with_x => {
                // cmp ecx, 32; jb +2; xor eax, eax; shl/shr eax, cl
                let shift = if code & 0xf0 == 0x60 { 0xe0 } else { 0xe8 };
                self.bytes(&[0x83, 0xf9, 0x20, 0x72, 0x02, 0x31, 0xc0, 0xd3, shift]);
                return Ok(());
            }
            _ => return Err(unknown),
        };
        if with_x {
            self.bytes(by_x)
        } else {
            self.word(by_k, k)
        }
        Ok(())
    }

    fn branch(
        &mut self,
        index: usize,
        code: u16,
        distances: [usize; 2],
        k: u32,
    ) -> Result<(), JitError> {
        let next = index + 1;
        let within = |distance: usize| {
            let target = next.checked_add(distance).filter(|&target| target < self.program.len());
            target.ok_or(JitError::Target { index })
        };
        if code & 0xf0 == 0 {
            let target = within(k as usize)?;
            self.reach(index, target);
            if target != next {
                self.jump(None, target);
            }
            return Ok(());
        }
        let (met, failed) = (within(distances[0])?, within(distances[1])?);
        let (holds, fails) = match code & 0xf0 {
            0x10 => (EQUAL, NOT_EQUAL),
            0x20 => (ABOVE, 0x86),
            0x30 => (NOT_BELOW, BELOW),
            0x40 => (NOT_EQUAL, EQUAL),
            _ => return Err(JitError::Operation { index, code }),
        };
        match (code & 0xf0 == 0x40, code & 8 != 0) {
            (false, false) => self.word(&[0x3d], k),
            (false, true) => self.bytes(&[0x39, 0xc8]),
            (true, false) => self.word(&[0xa9], k),
            (true, true) => self.bytes(&[0x85, 0xc8]),
        }
        self.reach(index, met);
        self.reach(index, failed);
        if met == next && failed != next {
            self.jump(Some(fails), failed);
        } else if met != next {
            self.jump(Some(holds), met);
            if failed != next {
                self.jump(None, failed);
            }
        }
        Ok(())
    }
}

/// Displacement of a scratch memory cell from the stack pointer, as a byte.
fn scratch(cell: u32) -> Option<u8> {
    (cell < 16).then(|| (-64 + 4 * cell as i8) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::filters::{pairs, set_text, static_filters};
    use crate::bench::frames::{Arena, Load};
    use crate::bench::traffic::Traffic;
    use crate::peers::libpcap::Libpcap;
    use fyke_frame::LinkType;

    #[test]
    fn the_code_gives_the_interpreters_verdicts_for_frames_of_every_length() {
        let Ok(libpcap) = Libpcap::load() else { return println!("skipped: no libpcap") };
        let mut traffic = Traffic::new(3);
        let (mut arena, mut frame) = (Arena::default(), Vec::new());
        for index in 0..4_000 {
            traffic.next(&mut frame);
            let len = if index % 2 == 0 { frame.len() } else { index % 90 };
            arena.push(&frame[..len.min(frame.len())], frame.len() as u32);
        }
        let load = Load::new(&arena, (0..arena.len() as u32).collect());
        let mut texts: Vec<String> = static_filters().into_iter().map(|(_, text)| text).collect();
        texts.push(set_text(&pairs(&traffic, 60)));
        let more =
            ["ip[ip[8] & 15 : 2] * 3 > len - 7", "ip[6:2] >> 3 ^ 5 < 90", "vlan and tcp port 80"];
        texts.extend(more.map(str::to_owned));
        for text in texts {
            for optimize in [false, true] {
                let program = libpcap.compile(LinkType::EN10MB, 65_535, &text, optimize).unwrap();
                let code = Code::new(program.instructions()).unwrap();
                let mut verdicts = vec![0; load.len().div_ceil(64)];
                code.judge(load.descriptors(), load.len(), &mut verdicts);
                for index in 0..load.len() {
                    let frame = arena.frame(index);
                    let expected = program.matches(frame.data, frame.wire_len);
                    let given = verdicts[index / 64] >> (index % 64) & 1 == 1;
                    assert_eq!(
                        given,
                        expected,
                        "{text}, frame {index}, {} bytes",
                        frame.data.len()
                    );
                }
            }
        }
    }

    #[test]
    fn broken_programs_are_refused() {
        let insn = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let refused = |program: &[Instruction]| Code::new(program).unwrap_err();
        assert_eq!(refused(&[]), JitError::Target { index: 0 });
        assert_eq!(refused(&[insn(0x28, 0, 0, 12)]), JitError::Target { index: 0 });
        assert_eq!(
            refused(&[insn(0x15, 9, 0, 1), insn(6, 0, 0, 1)]),
            JitError::Target { index: 0 }
        );
        let far = refused(&[insn(0x20, 0, 0, u32::MAX), insn(6, 0, 0, 1)]);
        assert_eq!(far, JitError::Offset { index: 0, offset: u32::MAX });
        let cell = refused(&[insn(0x60, 0, 0, 16), insn(6, 0, 0, 1)]);
        assert_eq!(cell, JitError::Operation { index: 0, code: 0x60 });
    }
}
