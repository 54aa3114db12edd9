//! re2c: a generator of tagged automata as C, the peer most similar to ours; used if it is installed.
//!
//! The pattern is `re2c/line.re`. re2c translates it to C, and the machine's compiler compiles that with the flags
//! of [`super::opt_c`]. Cost: about a second for both.

use super::native::{AHEAD, Descriptor};
use super::opt_c::{Folder, Function, Object};
use fyke_frame::{Frame, LinkType};
use std::fs;
use std::process::Command;

const LINE: &str = include_str!("re2c/line.re");

/// The pattern of `line.re`, compiled.
#[derive(Debug)]
pub struct HeaderLine(Function);

impl HeaderLine {
    /// Compiles the pattern with or without tags.
    ///
    /// # Errors
    /// Names the missing program: re2c or a C compiler.
    pub fn new(tags: bool) -> Result<HeaderLine, String> {
        let (name, value) = if tags { ("@n", "@v") } else { ("", "") };
        let folder = Folder::new().map_err(|error| error.to_string())?;
        let (input, output) = (folder.0.join("line.re"), folder.0.join("line.c"));
        let text = LINE.replace("NAME", name).replace("VALUE", value);
        fs::write(&input, text).map_err(|error| error.to_string())?;
        let mut command = Command::new("re2c");
        let run = command.args(["-W", "--tags", "-o"]).arg(&output).arg(&input).output();
        let run = run.map_err(|error| format!("re2c does not run: {error}"))?;
        if !run.status.success() {
            return Err(String::from_utf8_lossy(&run.stderr).into_owned());
        }
        let source = fs::read_to_string(&output).map_err(|error| error.to_string())?;
        let object = Object::compile(&source).map_err(|error| error.to_string())?;
        object.function("judge").map(HeaderLine).map_err(|error| error.to_string())
    }

    /// Writes the sum of the start positions of name and value, plus 1, for each packet; 0 without a match.
    pub fn judge(&self, packets: &[&[u8]], found: &mut [u64]) {
        let frames = packets.iter().map(|packet| Frame::new(LinkType::EN10MB, packet));
        let mut descriptors: Vec<Descriptor<'_>> =
            frames.map(|frame| Descriptor::new(&frame)).collect();
        descriptors.resize(packets.len() + AHEAD, Descriptor::default());
        // The C code writes one word per frame.
        self.0.judge(&descriptors, packets.len().min(found.len()), found);
    }
}
