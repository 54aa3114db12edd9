//! Looking at a frame's bytes where they are, without a call: what a program needs to know of the running kernel.
//!
//! A socket filter sees its frame as a `__sk_buff`, which has no pointer to the bytes. `bpf_cast_to_kern_ctx` makes the
//! kernel's own `sk_buff` of it, whose `data` `bpf_rdonly_cast` lets a program read; the verifier turns both into
//! register moves. Such reads cannot harm: a bad address reads as 0. That the bytes are there is the program's own
//! business, so it compares with the linear part of the buffer (`len - data_len`) first.
//!
//! Casting to untyped memory came with Linux 6.17, root or `CAP_PERFMON` is needed, and programs must be under a
//! licence that the kernel takes for compatible with its own. Where any of it is missing, programs copy the bytes to
//! their stack by a call as before ([`Access::Copied`]).

use crate::btf::Btf;
use crate::ebpf::call_of;
use crate::layout::{CAST_CONTEXT, CAST_MEMORY};
use std::sync::OnceLock;

/// How a program gets at a frame's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It reads them where they are.
    Direct(Places),
    /// The kernel copies them to its stack.
    Copied,
}

/// Numbers of the running kernel.
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
    /// The best that this kernel's type information promises; whether it holds is seen when a program is loaded.
    pub fn best() -> Access {
        static BEST: OnceLock<Access> = OnceLock::new();
        *BEST.get_or_init(|| {
            let bytes = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
            Places::of(&bytes).map_or(Access::Copied, Access::Direct)
        })
    }
}

impl Places {
    /// The object with the numbers of the two functions in the place of those that stand for them.
    pub(crate) fn resolve(self, object: &[u8]) -> Vec<u8> {
        let mut object = object.to_vec();
        let names = [(CAST_CONTEXT, self.cast_context), (CAST_MEMORY, self.cast_memory)];
        // Sections of code are aligned, so instructions are.
        for instruction in object.as_chunks_mut::<8>().0 {
            for (name, function) in names {
                if *instruction == call_of(name, false) {
                    *instruction = call_of(function, true);
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
