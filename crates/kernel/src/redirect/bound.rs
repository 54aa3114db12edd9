//! The program at XDP that asks the driver about a frame: the tag that the device removed, the device's own time.
//!
//! Only a program that is bound to an interface may ask, and such a program cannot be in an array of programs, so it is
//! the first one. It stores the answers before the frame (`bpf/arrival.h`) and continues in `fyke_redirect`. The kernel
//! binds its calls to the driver's functions; it costs about as much as one more look-up for each frame. Minimum kernel
//! version: 6.16 (a bound program may continue in others). Source: the kernel's xdp-rx-metadata.rst.

use crate::btf::Btf;
use crate::ebpf::{Alu, Assembler, R0, R1, R2, R3, R6, R7, R10, Register, When, Width};
use crate::sys::{self, netdev, objects};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const NAME: [u8; 16] = *b"fyke_redirect\0\0\0";
/// Bytes before the frame; `struct fyke_arrival` has the places.
const ARRIVAL_BYTES: i16 = 32;
const DEVICE_TIME_AT: i16 = 8;
const TAG_AT: i16 = 16;
const REST_AT: i16 = 20;
/// Members of the context.
const DATA_AT: i16 = 0;
const DATA_META_AT: i16 = 8;
/// Places on the stack: a double word, and two halves of a word.
const TIME: i16 = -8;
const PROTOCOL: i16 = -16;
const CONTENT: i16 = -14;
const TAIL_CALL: u32 = 12;
const ADJUST_META: u32 = 54;
const XDP_PASS: u32 = 2;

/// Functions of the kernel, by number.
#[derive(Debug, Clone, Copy)]
struct Functions {
    time: u32,
    tag: u32,
}

impl Functions {
    fn of_kernel() -> Option<Functions> {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
        let names = ["bpf_xdp_metadata_rx_timestamp", "bpf_xdp_metadata_rx_vlan_tag"];
        let [time, tag] = Btf::new(&bytes)?.find(names, "", []).functions;
        Some(Functions { time: time?, tag: tag? })
    }
}

/// Loads the program for an interface, which continues in `next`; `None` if the driver or the kernel lacks what it
/// needs.
pub fn load(interface: &str, next: BorrowedFd<'_>, entry: OwnedFd) -> Option<OwnedFd> {
    let index = objects::interface_index(interface).ok()?;
    if netdev::told_by_driver(index).ok()? & netdev::TAG == 0 {
        return None;
    }
    objects::set_program(entry.as_fd(), next).ok()?;
    let code = code(Functions::of_kernel()?, entry.as_fd());
    sys::load_bound_program(index, NAME, &code.finish().ok()?).ok()
}

fn code(functions: Functions, entry: BorrowedFd<'_>) -> Assembler {
    let mut asm = Assembler::default();
    let go_on = asm.label();
    asm.alu64_register(Alu::Mov, R6, R1);
    asm.alu64(Alu::Mov, R2, -i32::from(ARRIVAL_BYTES));
    asm.call(ADJUST_META);
    asm.jump_when64(R0, When::NotEqual, 0, go_on);
    ask(&mut asm, functions.time, &[(R2, TIME)], (Width::Double, TIME));
    ask(&mut asm, functions.tag, &[(R2, PROTOCOL), (R3, CONTENT)], (Width::Word, PROTOCOL));
    asm.load(Width::Word, R1, R6, DATA_META_AT);
    asm.load(Width::Word, R2, R6, DATA_AT);
    asm.alu64_register(Alu::Mov, R3, R1);
    asm.alu64(Alu::Add, R3, i32::from(ARRIVAL_BYTES));
    asm.jump_when_register64(R3, When::Greater, R2, go_on);
    asm.load(Width::Double, R7, R10, TIME);
    asm.store_register(Width::Double, R1, DEVICE_TIME_AT, R7);
    asm.load(Width::Word, R7, R10, PROTOCOL);
    asm.store_register(Width::Word, R1, TAG_AT, R7);
    asm.store(Width::Word, R1, REST_AT, 0);
    asm.bind(go_on);
    asm.alu64_register(Alu::Mov, R1, R6);
    asm.map(R2, entry);
    asm.alu64(Alu::Mov, R3, 0);
    asm.call(TAIL_CALL);
    asm.alu(Alu::Mov, R0, XDP_PASS);
    asm.exit();
    asm
}

/// Calls a function of the driver that stores its answers on the stack; they are 0 if it has none.
fn ask(asm: &mut Assembler, function: u32, to: &[(Register, i16)], (width, at): (Width, i16)) {
    let told = asm.label();
    asm.store(width, R10, at, 0);
    asm.alu64_register(Alu::Mov, R1, R6);
    for &(register, place) in to {
        asm.alu64_register(Alu::Mov, register, R10);
        asm.alu64(Alu::Add, register, i32::from(place));
    }
    asm.call_kernel(function);
    asm.jump_when(R0, When::Equal, 0, told);
    asm.store(width, R10, at, 0);
    asm.bind(told);
}
