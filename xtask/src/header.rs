//! `cargo xtask header`: the C header for the data that user space and the kernel program share.
//!
//! Generated from the two files that define it, `crates/pass/src/isa/layout.rs` (instructions) and
//! `crates/kernel/src/layout.rs` (memory), which are compiled into this program unchanged. The
//! header asserts the sizes and offsets that Rust computed, so a C compiler with another layout
//! refuses it. A test compares the committed header with the generated text.

#[allow(dead_code, reason = "written for others; the header needs a part of it")]
#[path = "../../crates/kernel/src/layout.rs"]
mod memory;
#[allow(dead_code, reason = "written for others; the header needs a part of it")]
#[path = "../../crates/pass/src/isa/layout.rs"]
mod pass;

use crate::shell::Workspace;
use pass::{Addressing, Opcode, Operands};
use std::fmt::Write;
use std::mem::offset_of;
use std::process::ExitCode;

/// Path of the header.
const PATH: &str = "crates/kernel/bpf/layout.h";

/// Writes the header.
pub fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let path = workspace.root.join(PATH);
    std::fs::write(&path, text()).map_err(|error| format!("cannot write {PATH}: {error}"))?;
    eprintln!("header: {PATH} written");
    Ok(ExitCode::SUCCESS)
}

/// The whole header.
fn text() -> String {
    let mut out = String::from(
        "/* Written by `cargo xtask header` from pass/src/isa/layout.rs and kernel/src/layout.rs. */\n\
         #ifndef FYKE_LAYOUT_H\n#define FYKE_LAYOUT_H\n\n",
    );
    numbers(&mut out);
    structs(&mut out);
    forms(&mut out);
    out.push_str("\n#endif\n");
    out
}

macro_rules! define {
    ($out:expr, $module:ident: $($name:ident)*) => {
        $(let _infallible =
            writeln!($out, "#define FYKE_{} {:#x}", stringify!($name), $module::$name);)*
    };
}

fn numbers(out: &mut String) {
    define!(out, pass: PARAMS OPCODE_MASK NEG COUNT_SHIFT COUNT_MASK EITHER SHORT OFFSET_SHIFT
        META_DIRECTION META_IFINDEX);
    define!(out, memory: SLOT_INSTRUCTIONS SLOTS TRAILER ACCEPT_SLOT LAST OP_TRAILER OP_ROWS OP_CODE
        NEXT CONTINUE COUNTER REST CLASS RUN_REST PART_OFFSET_MASK PART_L1
        PART_EITHER PART_WIDE PART_PRESENT BUCKET_ROWS BUCKETS
        ROW_TABLE_SHIFT ROW_VALUE_SHIFT ROW_FIRST_SHIFT
        ROW_SECOND_SHIFT HINTS HINT_HASH HINT_FIRST_SHIFT HINT_SECOND_SHIFT
        MORE_ROWS CODE_WORDS CODE_LIMIT COOKED_BYTES CODE_MEMORY ADDRESSES ADDRESS_REACH
        COUNTERS COUNT_REJECTED COUNT_CAPPED
        COUNT_EMPTY COUNT_SAMPLED COUNT_LATER LATER FIRST_PASS_COUNTER FLAG_COUNT_REJECTED
        FLAG_PASS_CAPPED BUDGET_LIMIT HEAD_BYTES DATA_AT DATA_LEN_AT CAST_CONTEXT
        CAST_MEMORY);
    let _infallible = writeln!(out, "#define FYKE_ROW_HASH {:#x}ull\n", memory::ROW_HASH);
}

fn structs(out: &mut String) {
    let control = size_of::<memory::Control>();
    let _infallible = write!(
        out,
        "struct fyke_instruction {{\n\t__u32 command;\n\t__u32 params[FYKE_PARAMS];\n}};\n\n\
         struct fyke_control {{\n\t__u32 head;\n\t__u32 budget;\n\t__u32 accept;\n\
         \t__u32 reject;\n\t__u32 flags;\n\t__u32 rest;\n\
         \t__u32 short_head;\n\t__u32 short_below;\n\t__u32 short_behind;\n\t__u32 cooked;\n\
         \t__u32 sample;\n\t__u32 factor;\n\t__u32 unused[{}];\n}};\n\n\
         struct fyke_address {{\n\t__u64 table;\n\t__u32 words[4];\n\t__u64 unused;\n}};\n\n\
         _Static_assert(sizeof(struct fyke_address) == {}, \"address\");\n\
         _Static_assert(sizeof(struct fyke_instruction) == {}, \"instruction\");\n\
         _Static_assert(__builtin_offsetof(struct fyke_instruction, params) == {}, \"params\");\n\
         _Static_assert(sizeof(struct fyke_control) == {control}, \"control\");\n",
        control / 4 - 12,
        size_of::<memory::Address>(),
        size_of::<pass::Instruction>(),
        offset_of!(pass::Instruction, params),
    );
    for (name, offset) in [
        ("head", offset_of!(memory::Control, head)),
        ("budget", offset_of!(memory::Control, budget)),
        ("accept", offset_of!(memory::Control, accept)),
        ("reject", offset_of!(memory::Control, reject)),
        ("flags", offset_of!(memory::Control, flags)),
        ("rest", offset_of!(memory::Control, rest)),
        ("short_head", offset_of!(memory::Control, short_head)),
        ("short_below", offset_of!(memory::Control, short_below)),
        ("short_behind", offset_of!(memory::Control, short_behind)),
        ("cooked", offset_of!(memory::Control, cooked)),
        ("sample", offset_of!(memory::Control, sample)),
        ("factor", offset_of!(memory::Control, factor)),
    ] {
        let _infallible = writeln!(
            out,
            "_Static_assert(__builtin_offsetof(struct fyke_control, {name}) == {offset}, \
             \"{name}\");"
        );
    }
}

const KINDS: [&str; 16] = [
    "UNKNOWN",
    "NONE",
    "ANY16",
    "ANY32",
    "INTERVAL16",
    "INTERVAL32",
    "SET",
    "LENGTH",
    "META",
    "ROWS",
    "CODE",
    "ADDR6",
    "SET6",
    "MASKED32",
    "ALL32",
    "ALL16",
];
const BASES: [&str; 4] = ["NONE", "DIRECT", "L1", "L2"];
const BASE_SHIFT: usize = 4;
const WIDE: usize = 1 << 6;
const FIRST_SHIFT: usize = 7;
const ADJACENT: usize = 1 << 10;

fn forms(out: &mut String) {
    out.push_str("\n/* An opcode's form: kind | base | wide | first operand | adjacent. */\n");
    for (number, kind) in KINDS.iter().enumerate() {
        let _infallible = writeln!(out, "#define FYKE_KIND_{kind} {number}");
    }
    out.push_str("#define FYKE_FORM_KIND 0xf\n#define FYKE_FORM_BASE 0x30\n");
    for (number, base) in BASES.iter().enumerate() {
        let _infallible = writeln!(out, "#define FYKE_FORM_{base} {:#x}", number << BASE_SHIFT);
    }
    let _infallible = writeln!(
        out,
        "#define FYKE_FORM_WIDE {WIDE:#x}\n#define FYKE_FORM_FIRST_SHIFT {FIRST_SHIFT}\n\
         #define FYKE_FORM_ADJACENT {ADJACENT:#x}"
    );
    out.push_str("#define FYKE_FORMS { \\\n");
    for &opcode in Opcode::ALL {
        let _infallible = writeln!(
            out,
            "\t[{:#04x}] = {:#05x}, /* {} */ \\",
            opcode as u8,
            form(opcode),
            opcode.name()
        );
    }
    for (opcode, kind) in [(memory::OP_ROWS, "ROWS"), (memory::OP_CODE, "CODE")] {
        let number = kind_number(kind);
        let _infallible = writeln!(out, "\t[{opcode:#04x}] = {number:#05x}, /* {kind} */ \\");
    }
    out.push_str("}\n");
}

fn kind_number(name: &str) -> usize {
    KINDS.iter().position(|kind| *kind == name).unwrap_or(0)
}

/// The word that describes an opcode; 0 for opcodes that the kernel space cannot run.
fn form(opcode: Opcode) -> usize {
    let form = opcode.form();
    let kind = match (opcode, form.operands) {
        (Opcode::LenRng, _) => "LENGTH",
        (Opcode::MetaMeq, _) => "META",
        (Opcode::DSet | Opcode::L1Set, _) => "SET",
        (Opcode::DSet6, _) => "SET6",
        (_, Operands::None) => "NONE",
        (_, Operands::Any16) => "ANY16",
        (_, Operands::Any32) => "ANY32",
        (_, Operands::Interval16) => "INTERVAL16",
        (_, Operands::Interval32) => "INTERVAL32",
        (_, Operands::Masked32) => "MASKED32",
        (_, Operands::All32) => "ALL32",
        (_, Operands::All16) => "ALL16",
        (_, Operands::Address) => "ADDR6",
        (_, Operands::Reference) => return 0,
    };
    let base = match form.addressing {
        Addressing::None => 0,
        Addressing::Direct => 1,
        Addressing::L1 => 2,
        Addressing::L2 => 3,
    };
    let narrow = matches!(form.operands, Operands::Any16 | Operands::Interval16 | Operands::All16);
    let wide = if narrow { 0 } else { WIDE };
    let adjacent = matches!(opcode, Opcode::DDmeq | Opcode::L1Eseq);
    kind_number(kind)
        | base << BASE_SHIFT
        | wide
        | usize::from(form.first_operand) << FIRST_SHIFT
        | if adjacent { ADJACENT } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_header_is_the_one_that_would_be_written() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let committed = std::fs::read_to_string(root.join(PATH)).unwrap();
        assert_eq!(committed, text(), "run `cargo xtask header`");
    }
}
