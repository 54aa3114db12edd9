//! Text on standard output and standard error. Everything that commands print goes through [`safe`].
//!
//! Names of interfaces and files, arguments, and what another process answers can hold the escape sequences by which a
//! terminal is told to do something. A reader of a pipe that goes away ends the command quietly, a full disk with exit
//! status 1 (see [`Failure`](super::Failure)); neither makes it panic.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Stdout, Write};

/// The text with all control characters but line end and tab written as `\u001b`, as JSON writes them.
pub fn safe(text: &str) -> Cow<'_, str> {
    let harmful = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match harmful(letter) {
            true => {
                let _infallible = write!(safe, "\\u{:04x}", u32::from(letter));
            }
            false => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// Standard output for text; each write holds whole characters.
#[derive(Debug)]
pub struct Output(Stdout);

/// Standard output for text.
pub fn output() -> Output {
    Output(io::stdout())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(safe(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(safe("a\tb\nä 漢"), "a\tb\nä 漢");
        assert_eq!(safe("\x1b]0;x\x07\r\x7f\u{9b}"), r"\u001b]0;x\u0007\u000d\u007f\u009b");
    }
}
