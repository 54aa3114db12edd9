//! In the place of the code generator when the feature `jit` is off.

use super::{Answer, JitError};
use crate::bpf::SCRATCH_WORDS;
use crate::bpf::run::Program;
use fyke_frame::Frame;

/// A translated program; there is none without the feature `jit`.
#[derive(Debug)]
pub enum Compiled {}

impl Compiled {
    /// Translates a program.
    ///
    /// # Errors
    /// Always: the code generator was not built in.
    pub fn new(_: &Program) -> Result<Compiled, JitError> {
        Err(JitError::Generator("built without the feature `jit`".to_owned()))
    }

    /// Runs the program over a packet.
    pub fn run(&self, _: &Frame<'_>, _: &mut [u32; SCRATCH_WORDS]) -> Answer {
        match *self {}
    }
}
