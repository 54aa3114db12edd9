//! Writes eBPF for given passes: what the specialised tier runs instead of interpreting them.
//!
//! ```text
//! frame ─▶ where its bytes are ─▶ test, test, … ─▶ a pass holds and its live word is set: accept
//!               │ too short, IPv4 options                 └▶ none: the rest, by the interpreter, or reject
//!               └▶ the interpreter, all passes
//! ```
//!
//! Instructions mean here what they mean to the interpreter, because what is special goes there: a frame that ends
//! within anything that is looked at, an IPv4 header with options where ports are looked at, and passes that test
//! what is not written here (other headers, byte expressions, metadata) are left to it. Sets and tables are read from
//! the shared rows, so their edits stay stores. Neighbouring passes that begin alike share the beginning.
//!
//! Tests read the frame where it is, as classic filters do ([`crate::direct`], Linux 6.17); a frame whose linear part
//! is shorter than what is looked at goes to the interpreter. On older kernels one call fetches the bytes to the stack
//! (or one, the old packet load, where a single word is looked at); that call takes 8 to 15 ns.

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

/// Most bytes of a frame that are fetched.
const HEAD_LIMIT: u32 = 128;
/// Most instructions of all passes: jumps stay within reach.
const INSTRUCTION_LIMIT: usize = 600;
/// Most loads that are made where the bytes are. Each checks its address, which costs as much as two loads from the
/// stack; with more of them the bytes are put there first, eight at once.
const MOST_LOADS: u32 = 6;
/// The end of an IPv4 header without options, over Ethernet.
const L1: u32 = 34;
const IPV4_START: u32 = 14;
/// Places in `struct __sk_buff`.
const SKB_LEN: i16 = 0;
const SKB_CB: i16 = 48;
/// Helper functions of the kernel.
const PROCESSOR: u32 = 8;
const TAIL_CALL: u32 = 12;
const LOAD_BYTES: u32 = 26;
/// The frame's bytes, where they are read directly. Once a pass holds, the offset of its counter.
const DATA: Register = R9;
/// Stack: four values of a key, above them the frame's bytes where they are copied.
const VALUES: i16 = -32;

/// The maps that a program uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maps<'a> {
    pub passes: BorrowedFd<'a>,
    pub rows: BorrowedFd<'a>,
    /// One value: the counters of each of the processors, one after the other.
    pub tallies: BorrowedFd<'a>,
    pub processors: u32,
    pub tiers: BorrowedFd<'a>,
}

/// Which of the passes can be written here; the others stay interpreted.
pub(crate) fn choose(passes: Vec<Covered>) -> Vec<Covered> {
    let mut instructions = 0;
    let fits = |pass: &Covered| {
        instructions += pass.instructions.len();
        let can = |one: &Instruction| extent(one).is_some_and(|extent| extent.end <= HEAD_LIMIT);
        instructions <= INSTRUCTION_LIMIT && pass.instructions.iter().all(can)
    };
    passes.into_iter().filter(fits).collect()
}

/// What a test looks at: up to where, how many words, whether it needs the end of the IPv4 header.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u32,
    end: u32,
    loads: u32,
    behind_ipv4: bool,
}

impl Extent {
    /// Looks at nothing.
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

/// `None` for a test that is not written here.
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

/// The program for these passes; `choose` has let them through.
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
    // A piece of eight bytes begins at 8n + 2, as the words of IPv4 do that belong together, and is aligned.
    let head = VALUES - 2 - all.end.saturating_sub(2).next_multiple_of(8) as i16;
    let bytes = match access {
        Access::Direct(places) if all.loads <= MOST_LOADS => Bytes::InPlace(places),
        Access::Direct(places) => Bytes::OnStack(head, Some(places)),
        Access::Copied if all.loads == 1 && !all.behind_ipv4 => Bytes::Single,
        Access::Copied => Bytes::OnStack(head, None),
    };
    let mut writer = Writer { asm, maps, bytes, everything, accept, counter: R9 };
    writer.begin(&all, short_below(short, &all));
    let nothing = writer.asm.label();
    let passes: Vec<&Covered> = passes.iter().collect();
    let numbered: Vec<(usize, &Covered)> = passes.into_iter().enumerate().collect();
    writer.group(&numbered, 0, false, nothing);
    writer.end(nothing, count_rejected);
    writer.asm.finish()
}

/// Frames with fewer bytes may have to be judged in the texts' own order, which is the interpreter's to do.
fn short_below((below, behind): (u32, u32), all: &Extent) -> u32 {
    match behind {
        0 => below,
        // Headers with options have been sent there already.
        behind if all.behind_ipv4 => below.max(L1 + behind),
        behind => below.max(IPV4_START + 60 + behind),
    }
}

struct Writer<'a> {
    asm: Assembler,
    maps: Maps<'a>,
    bytes: Bytes,
    /// To the interpreter, for all passes.
    everything: Label,
    /// A pass holds; its counter's offset is in `counter`.
    accept: Label,
    counter: Register,
}

/// Where the program finds the frame's bytes.
#[derive(Debug, Clone, Copy)]
enum Bytes {
    /// Behind [`DATA`].
    InPlace(Places),
    /// On the stack, the first one at this offset, put there by our own loads or by a call.
    OnStack(i16, Option<Places>),
    /// One word is looked at in all: no copy, the old packet load.
    Single,
}

impl Bytes {
    /// Register and offset of a byte that can be addressed.
    fn place(self, at: u32) -> Option<(Register, i16)> {
        match self {
            Bytes::InPlace(_) => Some((DATA, at as i16)),
            Bytes::OnStack(head, _) => Some((R10, head + at as i16)),
            Bytes::Single => None,
        }
    }
}

impl Writer<'_> {
    /// Bounds, and the frame's bytes.
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
                // Bytes beside what is looked at are harmless, wherever they are from.
                for piece in (all.start + 6) / 8..=(all.end + 5) / 8 {
                    let at = 8 * piece as i16 - 6;
                    self.asm.load(Width::Double, R1, DATA, at);
                    self.asm.store_register(Width::Double, R10, head + at, R1);
                }
            }
        }
    }

    /// [`DATA`] is where the frame's bytes are, if as many as are looked at are in one piece there.
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

    /// Passes that are alike in their first `depth` tests, which have held: one of them holds, or `next`.
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
            let (group, behind) = rest.split_at(alike.count());
            let fails = if behind.is_empty() { next } else { self.asm.label() };
            let needs = extent(test).is_some_and(|extent| extent.behind_ipv4);
            if needs && !options_known {
                self.no_options();
            }
            self.test(test, fails);
            self.group(group, depth + 1, options_known || needs, fails);
            if !behind.is_empty() {
                self.asm.bind(fails);
            }
            rest = behind;
        }
        self.asm.jump(next);
    }

    /// An IPv4 header with options is for the interpreter.
    fn no_options(&mut self) {
        // A program with a single load looks at nothing behind IPv4.
        if let Some((base, place)) = self.bytes.place(IPV4_START) {
            self.asm.load(Width::Byte, R1, base, place);
        }
        self.asm.alu(Alu::And, R1, 0xf);
        self.asm.jump_when(R1, When::NotEqual, 5, self.everything);
    }

    /// All tests of a pass have held: accepted, unless the pass has been edited.
    fn holds(&mut self, index: usize, pass: &Covered) {
        let edited = self.asm.label();
        self.asm.map_value(R1, self.maps.passes, live_word(index) as u32);
        self.asm.load(Width::Word, R1, R1, 0);
        self.asm.jump_when(R1, When::Equal, 0, edited);
        self.asm.alu(Alu::Mov, self.counter, pass.counter * 8);
        self.asm.jump(self.accept);
        self.asm.bind(edited);
    }

    /// What follows the tests.
    fn end(&mut self, nothing: Label, count_rejected: bool) {
        let (asm, maps) = (&mut self.asm, self.maps);
        let (reject, call) = (asm.label(), asm.label());
        asm.bind(nothing);
        asm.map_value(R1, maps.passes, offset_of!(Control, rest) as u32);
        asm.load(Width::Word, R1, R1, 0);
        asm.jump_when(R1, When::Equal, 0, reject);
        asm.alu(Alu::Mov, self.counter, COUNT_EMPTY as u32 * 8);
        asm.jump_when(R1, When::Equal, ACCEPT_SLOT * SLOT_INSTRUCTIONS as u32, self.accept);
        // From a register: before Linux 6.4 the verifier takes no store of a constant here.
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
        // The slot is empty when the writer is gone and the socket lives on: what only the interpreter could judge is
        // accepted.
        asm.map_value(R1, maps.passes, offset_of!(Control, accept) as u32);
        asm.load(Width::Word, R0, R1, 0);
        asm.exit();
        asm.bind(reject);
        if count_rejected {
            asm.alu(Alu::Mov, self.counter, COUNT_REJECTED as u32 * 8);
            tally(asm, maps, self.counter);
        }
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

/// Adds one to this processor's number, whose offset is in `counter`.
fn tally(asm: &mut Assembler, maps: Maps<'_>, counter: Register) {
    let none = asm.label();
    asm.call(PROCESSOR);
    // Never so; the verifier wants to know.
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
