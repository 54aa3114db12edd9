//! Direct access to a frame's bytes without a helper call, and the facts about the running kernel that it needs.
//!
//! A socket filter receives its frame as a `__sk_buff`, which has no pointer to the bytes. `bpf_cast_to_kern_ctx`
//! converts it to the kernel's own `sk_buff`; `bpf_rdonly_cast` lets a program read what its `data` points to. The
//! verifier turns both calls into register moves. Such reads are safe: a bad address reads as 0. The program itself
//! must check that the bytes exist, so it first compares with the length of the linear part (`len - data_len`).
//!
//! Casting to untyped memory needs Linux 6.17, root or `CAP_PERFMON`, and a program licence that the kernel accepts as
//! compatible with its own. If one of these is missing, a helper call copies the bytes to the program's stack
//! ([`Access::Copied`]).

use crate::btf::Btf;
use crate::ebpf::call_of;
use crate::layout::{CAST_CONTEXT, CAST_MEMORY, DATA_AT, DATA_LEN_AT};
use std::sync::OnceLock;

/// Operation codes of loads at an address.
const LOAD_U64: u8 = 0x79;
const LOAD_U32: u8 = 0x61;

/// Way in which a program reads a frame's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The program reads them in place.
    Direct(Places),
    /// A helper call copies them to the program's stack.
    Copied,
}

/// Function numbers and member offsets of the running kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Type number of `bpf_cast_to_kern_ctx`.
    pub(crate) cast_context: u32,
    /// Type number of `bpf_rdonly_cast`.
    pub(crate) cast_memory: u32,
    /// Offset of `sk_buff::data`.
    pub(crate) data: i16,
    /// Offset of `sk_buff::data_len`: bytes that are not in the linear part.
    pub(crate) data_len: i16,
}

impl Access {
    /// The best access that the kernel's type information allows. Loading a program shows whether it works.
    pub fn best() -> Access {
        static BEST: OnceLock<Access> = OnceLock::new();
        *BEST.get_or_init(|| {
            let bytes = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
            Places::of(&bytes).map_or(Access::Copied, Access::Direct)
        })
    }
}

impl Places {
    /// Returns the object with the running kernel's function numbers and offsets in place of the placeholders.
    pub(crate) fn resolve(self, object: &[u8]) -> Vec<u8> {
        let mut object = object.to_vec();
        let names = [(CAST_CONTEXT, self.cast_context), (CAST_MEMORY, self.cast_memory)];
        let loads = [(LOAD_U64, DATA_AT, self.data), (LOAD_U32, DATA_LEN_AT, self.data_len)];
        // Code sections are aligned to 8 bytes, so every instruction is one chunk.
        for instruction in object.as_chunks_mut::<8>().0 {
            for (name, function) in names {
                if *instruction == call_of(name, false) {
                    *instruction = call_of(function, true);
                }
            }
            for (load, name, offset) in loads {
                let [opcode, _, low, high, ..] = *instruction;
                if opcode == load && i16::from_ne_bytes([low, high]) == name {
                    instruction[2..4].copy_from_slice(&offset.to_ne_bytes());
                }
            }
        }
        object
    }

    fn of(bytes: &[u8]) -> Option<Places> {
        let functions = ["bpf_cast_to_kern_ctx", "bpf_rdonly_cast"];
        let found = Btf::new(bytes)?.find(functions, "sk_buff", ["data", "data_len"]);
        let [cast_context, cast_memory] = found.functions;
        let [data, data_len] = found.members.map(|at| i16::try_from(at?).ok());
        Some(Places {
            cast_context: cast_context?,
            cast_memory: cast_memory?,
            data: data?,
            data_len: data_len?,
        })
    }
}
