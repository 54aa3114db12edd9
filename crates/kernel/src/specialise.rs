//! Generator of eBPF for given passes, which the specialised tier runs instead of interpreting them.
//!
//! ```text
//! frame ─▶ locate bytes ─▶ test, test, … ─▶ a pass holds and its live word is set: accept
//!               │ too short, IPv4 options       └▶ none: the interpreter runs the rest
//!               └▶ the interpreter, all passes       └▶ no rest: passes that reject select a counter; reject
//! ```
//!
//! Instructions have the same meaning as in the interpreter, because all special cases are left to it: frames shorter
//! than the bytes that the tests read, IPv4 headers with options if ports are tested, and passes with tests that are
//! not generated here (other headers, byte expressions, metadata). Sets and tables are read from the shared rows, so
//! edits of them remain stores. Neighbouring passes with equal first tests share these tests.
//!
//! Tests read the frame in place, as classic filters do ([`crate::direct`], Linux 6.17). If the linear part of a frame
//! is too short for the tests, the interpreter evaluates the frame. On older kernels, one call copies the bytes to the
//! stack (or a legacy packet load reads them, if the tests read only one word); that call takes 8 to 15 ns.

mod tests_of;

use crate::direct::{Access, Places};
use crate::ebpf::{
    Alu, Assembler, Label, ProgramError, R0, R1, R2, R3, R4, R6, R7, R9, R10, Register, When, Width,
};
use crate::facts;
use crate::layout::{
    ACCEPT_SLOT, COUNT_EMPTY, COUNT_REJECTED, Control, OP_ROWS, PART_EITHER, PART_L1,
    PART_OFFSET_MASK, PART_PRESENT, PART_WIDE, RUN_REST, SLOT_INSTRUCTIONS,
};
use crate::passes::{Covered, live_word};
use crate::sys::COUNTERS_BYTES;
use fyke_pass::layout::{Addressing, OFFSET_SHIFT};
use fyke_pass::{Instruction, Opcode};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;

/// Most bytes of a frame that are copied.
pub(crate) const HEAD_LIMIT: u32 = 128;
/// Most instructions of all passes, so that jump offsets do not overflow.
pub(crate) const INSTRUCTION_LIMIT: usize = 600;
/// Most loads in place. Each checks its address, which costs as much as two loads from the stack. If there are more,
/// the bytes are copied to the stack first, eight at once.
const MOST_LOADS: u32 = 6;
/// The end of an IPv4 header without options, over Ethernet.
const L1: u32 = 34;
const IPV4_START: u32 = 14;
/// Offsets in `struct __sk_buff`.
const SKB_LEN: i16 = 0;
const SKB_CB: i16 = 48;
/// Numbers of helper functions of the kernel.
const PROCESSOR: u32 = 8;
const TAIL_CALL: u32 = 12;
const LOAD_BYTES: u32 = 26;
/// Address of the frame's bytes, if they are read in place. Once a pass holds, the offset of its counter.
const DATA: Register = R9;
/// Offset on the stack of the four values of a key; the copied bytes of the frame are at lower addresses.
const VALUES: i16 = -32;

/// The maps that a program uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maps<'a> {
    pub passes: BorrowedFd<'a>,
    pub rows: BorrowedFd<'a>,
    /// Map with one value: the counters of each processor, one after the other.
    pub tallies: BorrowedFd<'a>,
    pub processors: u32,
    pub tiers: BorrowedFd<'a>,
}

/// Selects the passes that can be generated here; the others remain interpreted.
pub(crate) fn choose(passes: Vec<Covered>) -> Vec<Covered> {
    let mut instructions = 0;
    let fits = |pass: &Covered| {
        instructions += pass.instructions.len();
        let can = |one: &Instruction| extent(one).is_some_and(|extent| extent.end <= HEAD_LIMIT);
        instructions <= INSTRUCTION_LIMIT && pass.instructions.iter().all(can)
    };
    passes.into_iter().filter(fits).collect()
}

/// Bytes that a test reads: range, number of words, and whether it needs the end of the IPv4 header.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u32,
    end: u32,
    loads: u32,
    behind_ipv4: bool,
}

impl Extent {
    /// No bytes.
    const NONE: Extent = Extent { start: u32::MAX, end: 0, loads: 0, behind_ipv4: false };

    fn and(self, other: Extent) -> Extent {
        Extent {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
            loads: self.loads + other.loads,
            behind_ipv4: self.behind_ipv4 || other.behind_ipv4,
        }
    }
}

/// Extent of a test; `None` for a test that is not generated here.
fn extent(one: &Instruction) -> Option<Extent> {
    let at = one.command >> OFFSET_SHIFT;
    if one.command & fyke_pass::layout::OPCODE_MASK == OP_ROWS {
        let part = |place: u32| {
            let behind_ipv4 = place & PART_L1 != 0;
            let width = if place & PART_WIDE != 0 { 4 } else { 2 };
            let places = if place & PART_EITHER != 0 { 2 } else { 1 };
            let start = if behind_ipv4 { L1 } else { 0 } + (place & PART_OFFSET_MASK);
            Extent { start, end: start + width * places, loads: places, behind_ipv4 }
        };
        let (first, second) = (part(one.params[1]), one.params[3]);
        let second = if second & PART_PRESENT != 0 { part(second) } else { Extent::NONE };
        let both = first.and(second);
        return (!both.behind_ipv4 || one.params[6] & 0xffff == IPV4_START).then_some(both);
    }
    let opcode = one.opcode()?;
    let form = opcode.form();
    let behind_ipv4 = match form.addressing {
        Addressing::None if matches!(opcode, Opcode::Nop | Opcode::LenRng) => {
            return Some(Extent::NONE);
        }
        Addressing::Direct if opcode != Opcode::DAddr6 && opcode != Opcode::DSet6 => false,
        Addressing::L1 if one.params[6] & 0xffff == IPV4_START => true,
        _ => return None,
    };
    let start = if behind_ipv4 { L1 } else { 0 } + at;
    let (length, loads) = facts::reach(one, opcode);
    Some(Extent { start, end: start + length, loads, behind_ipv4 })
}

/// Generates the program for passes that `choose` has selected.
pub(crate) fn write(
    passes: &[Covered],
    maps: Maps<'_>,
    access: Access,
    count_rejected: bool,
    short: (u32, u32),
) -> Result<Vec<u64>, ProgramError> {
    let extents = passes.iter().flat_map(|pass| &pass.instructions).filter_map(extent);
    let mut all = extents.fold(Extent::NONE, Extent::and);
    if all.behind_ipv4 {
        all.start = all.start.min(IPV4_START);
    }
    let mut asm = Assembler::default();
    let (everything, accept) = (asm.label(), asm.label());
    // Pieces of eight bytes begin at 8n + 2, where related words of IPv4 begin, and are aligned on the stack.
    let head = VALUES - 2 - all.end.saturating_sub(2).next_multiple_of(8) as i16;
    let bytes = match access {
        Access::Direct(places) if all.loads <= MOST_LOADS => Bytes::InPlace(places),
        Access::Direct(places) => Bytes::OnStack(head, Some(places)),
        Access::Copied if all.loads == 1 && !all.behind_ipv4 => Bytes::Single,
        Access::Copied => Bytes::OnStack(head, None),
    };
    let count = asm.label();
    let mut writer = Writer { asm, maps, bytes, everything, accept, count, counter: R9 };
    writer.begin(&all, short_below(short, &all));
    let nothing = writer.asm.label();
    let (rejecting, accepting): (Vec<_>, Vec<_>) =
        passes.iter().enumerate().partition(|(_, pass)| pass.rejects());
    writer.group(&accepting, 0, false, nothing);
    writer.end(nothing, &rejecting, count_rejected);
    writer.asm.finish()
}

/// Frame length below which the interpreter runs, because it may have to evaluate the texts in their own order.
fn short_below((below, after_header): (u32, u32), all: &Extent) -> u32 {
    match after_header {
        0 => below,
        // Frames with header options are in the interpreter already.
        after_header if all.behind_ipv4 => below.max(L1 + after_header),
        after_header => below.max(IPV4_START + 60 + after_header),
    }
}

struct Writer<'a> {
    asm: Assembler,
    maps: Maps<'a>,
    bytes: Bytes,
    /// Continues in the interpreter, with all passes.
    everything: Label,
    /// A pass holds; the offset of its counter is in `counter`.
    accept: Label,
    /// A pass that rejects holds; the offset of its counter is in `counter`.
    count: Label,
    counter: Register,
}

/// Location of the frame's bytes.
#[derive(Debug, Clone, Copy)]
enum Bytes {
    /// At the address in [`DATA`].
    InPlace(Places),
    /// On the stack, from this offset; copied by loads in place or by a call.
    OnStack(i16, Option<Places>),
    /// Not copied: the tests read only one word, by a legacy packet load.
    Single,
}

impl Bytes {
    /// Base register and offset of a byte; `None` if it cannot be addressed.
    fn place(self, at: u32) -> Option<(Register, i16)> {
        match self {
            Bytes::InPlace(_) => Some((DATA, at as i16)),
            Bytes::OnStack(head, _) => Some((R10, head + at as i16)),
            Bytes::Single => None,
        }
    }
}

impl Writer<'_> {
    /// Generates the length checks and locates the frame's bytes.
    fn begin(&mut self, all: &Extent, short_below: u32) {
        let asm = &mut self.asm;
        asm.alu64_register(Alu::Mov, R6, R1);
        asm.load(Width::Word, R7, R6, SKB_LEN);
        if short_below > all.end {
            asm.jump_when(R7, When::Less, short_below, self.everything);
        }
        if all.end == 0 {
            return;
        }
        match self.bytes {
            Bytes::Single => asm.jump_when(R7, When::Less, all.end, self.everything),
            Bytes::OnStack(head, None) => {
                asm.jump_when(R7, When::Less, all.end, self.everything);
                asm.alu(Alu::Mov, R2, 0);
                asm.alu64_register(Alu::Mov, R3, R10);
                asm.alu64(Alu::Add, R3, head.into());
                asm.alu(Alu::Mov, R4, all.end);
                asm.call(LOAD_BYTES);
                asm.jump_when64(R0, When::NotEqual, 0, self.everything);
            }
            Bytes::InPlace(places) => self.find_data(places, all),
            Bytes::OnStack(head, Some(places)) => {
                self.find_data(places, all);
                // Reading bytes that no test needs is harmless, wherever they come from.
                for piece in (all.start + 6) / 8..=(all.end + 5) / 8 {
                    let at = 8 * piece as i16 - 6;
                    self.asm.load(Width::Double, R1, DATA, at);
                    self.asm.store_register(Width::Double, R10, head + at, R1);
                }
            }
        }
    }

    /// Sets [`DATA`] to the address of the frame's bytes, if the linear part has as many as the tests read.
    fn find_data(&mut self, places: Places, all: &Extent) {
        let asm = &mut self.asm;
        asm.call_kernel(places.cast_context);
        asm.load(Width::Word, R1, R0, places.data_len);
        asm.alu_register(Alu::Mov, R2, R7);
        asm.alu_register(Alu::Sub, R2, R1);
        asm.jump_when(R2, When::Less, all.end, self.everything);
        asm.load(Width::Double, R1, R0, places.data);
        asm.alu(Alu::Mov, R2, 0);
        asm.call_kernel(places.cast_memory);
        asm.alu64_register(Alu::Mov, DATA, R0);
    }

    /// Generates the remaining tests of passes with equal first `depth` tests, which have held; goes to `next` if no
    /// pass holds.
    fn group(
        &mut self,
        passes: &[(usize, &Covered)],
        depth: usize,
        options_known: bool,
        next: Label,
    ) {
        let mut rest = passes;
        while let Some(((index, first), _)) = rest.split_first() {
            let Some(test) = first.instructions.get(depth) else {
                self.holds(*index, first);
                rest = &rest[1..];
                continue;
            };
            let alike =
                rest.iter().take_while(|(_, pass)| pass.instructions.get(depth) == Some(test));
            let (group, others) = rest.split_at(alike.count());
            let fails = if others.is_empty() { next } else { self.asm.label() };
            let needs = extent(test).is_some_and(|extent| extent.behind_ipv4);
            if needs && !options_known {
                self.no_options();
            }
            self.test(test, fails);
            self.group(group, depth + 1, options_known || needs, fails);
            if !others.is_empty() {
                self.asm.bind(fails);
            }
            rest = others;
        }
        self.asm.jump(next);
    }

    /// Sends frames with options in the IPv4 header to the interpreter.
    fn no_options(&mut self) {
        // A program with a single load reads nothing after the IPv4 header.
        if let Some((base, place)) = self.bytes.place(IPV4_START) {
            self.asm.load(Width::Byte, R1, base, place);
        }
        self.asm.alu(Alu::And, R1, 0xf);
        self.asm.jump_when(R1, When::NotEqual, 5, self.everything);
    }

    /// All tests of a pass have held: accepts the frame, or rejects it, unless the pass was edited.
    fn holds(&mut self, index: usize, pass: &Covered) {
        let edited = self.asm.label();
        // Without a pass that rejects, the interpreter judges the frame: by the passes that took its place.
        let (dead, done) = match pass.rejects() {
            true => (self.everything, self.count),
            false => (edited, self.accept),
        };
        self.asm.map_value(R1, self.maps.passes, live_word(index) as u32);
        self.asm.load(Width::Word, R1, R1, 0);
        self.asm.jump_when(R1, When::Equal, 0, dead);
        self.asm.alu(Alu::Mov, self.counter, pass.counter * 8);
        self.asm.jump(done);
        self.asm.bind(edited);
    }

    /// Generates the code after the tests.
    fn end(&mut self, nothing: Label, rejecting: &[(usize, &Covered)], count_rejected: bool) {
        let (asm, maps) = (&mut self.asm, self.maps);
        let (no_rest, reject, call) = (asm.label(), asm.label(), asm.label());
        asm.bind(nothing);
        asm.map_value(R1, maps.passes, offset_of!(Control, rest) as u32);
        asm.load(Width::Word, R1, R1, 0);
        asm.jump_when(R1, When::Equal, 0, no_rest);
        asm.alu(Alu::Mov, self.counter, COUNT_EMPTY as u32 * 8);
        asm.jump_when(R1, When::Equal, ACCEPT_SLOT * SLOT_INSTRUCTIONS as u32, self.accept);
        // Through a register: before Linux 6.4 the verifier refuses to store a constant here.
        asm.alu(Alu::Mov, R1, RUN_REST);
        asm.jump(call);
        asm.bind(self.everything);
        asm.alu(Alu::Mov, R1, 0);
        asm.bind(call);
        asm.store_register(Width::Word, R6, SKB_CB, R1);
        asm.alu64_register(Alu::Mov, R1, R6);
        asm.map(R2, maps.tiers);
        asm.alu(Alu::Mov, R3, 0);
        asm.call(TAIL_CALL);
        // The slot is empty if the writer has ended and the socket is still open. Frames that only the interpreter can
        // evaluate are then accepted.
        asm.map_value(R1, maps.passes, offset_of!(Control, accept) as u32);
        asm.load(Width::Word, R0, R1, 0);
        asm.exit();
        asm.bind(no_rest);
        self.group(rejecting, 0, false, reject);
        let asm = &mut self.asm;
        asm.bind(reject);
        let rejected = asm.label();
        match count_rejected {
            true => asm.alu(Alu::Mov, self.counter, COUNT_REJECTED as u32 * 8),
            false => asm.jump(rejected),
        }
        asm.bind(self.count);
        tally(asm, maps, self.counter);
        asm.bind(rejected);
        asm.map_value(R1, maps.passes, offset_of!(Control, reject) as u32);
        asm.load(Width::Word, R0, R1, 0);
        asm.exit();
        asm.bind(self.accept);
        tally(asm, maps, self.counter);
        asm.map_value(R1, maps.passes, offset_of!(Control, accept) as u32);
        asm.load(Width::Word, R0, R1, 0);
        asm.exit();
    }
}

/// Adds one to this processor's counter at the offset in `counter`.
fn tally(asm: &mut Assembler, maps: Maps<'_>, counter: Register) {
    let none = asm.label();
    asm.call(PROCESSOR);
    // Never true, but the verifier needs the check.
    asm.jump_when64(R0, When::AtLeast, maps.processors as i32, none);
    asm.alu64(Alu::Shl, R0, COUNTERS_BYTES.trailing_zeros() as i32);
    asm.alu(Alu::And, counter, (crate::layout::COUNTERS as u32 - 1) * 8);
    asm.map_value(R1, maps.tallies, 0);
    asm.alu64_register(Alu::Add, R1, R0);
    asm.alu64_register(Alu::Add, R1, counter);
    asm.load(Width::Double, R2, R1, 0);
    asm.alu64(Alu::Add, R2, 1);
    asm.store_register(Width::Double, R1, 0, R2);
    asm.bind(none);
}

const _: () = assert!(COUNTERS_BYTES.is_power_of_two());
