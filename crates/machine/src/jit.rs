//! The fast path: programs of the register machines as machine code. Needs the feature `jit`.
//!
//! Translates a validated [`Program`](crate::bpf::run::Program) with the Cranelift code generator. A `ret_match_imm`
//! stores the scratch words for the caller, which looks them up. Some operations need the interpreter (loads from below
//! zero, static memory). Programs with these are refused; for a computed offset below zero, the code returns
//! [`Answer::AskInterpreter`].
//!
//! Without the feature, [`Compiled::new`] returns [`JitError::Generator`] and the interpreter runs every program: the
//! verdicts are the same, and the code generator with its 20 crates is not built.
//!
//! Cost: translation takes some 100 µs, so it pays only for programs that stay installed; a run costs 2 to 5 ns.

#[cfg(feature = "jit")]
mod code;
#[cfg(not(feature = "jit"))]
mod off;

#[cfg(feature = "jit")]
pub use code::Compiled;
#[cfg(not(feature = "jit"))]
pub use off::Compiled;

/// Reason why a program was not translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// It has a load that needs the interpreter, or a static memory.
    #[error("instruction {at} is for the interpreter only")]
    Interpreter {
        /// Number of the instruction.
        at: usize,
    },
    /// There is no code generator for this machine, or none was built in.
    #[error("no machine code: {0}")]
    Generator(String),
}

/// Result of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Number of bytes; 0 rejects.
    Bytes(u32),
    /// Number of bytes for the session with the keys in the scratch words.
    Match(u32),
    /// The interpreter must run the program.
    AskInterpreter,
}
