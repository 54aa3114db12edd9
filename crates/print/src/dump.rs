//! Dumps after the line: `-x`, `-X`, `-A`.

use crate::{Hex, PrintOptions};
use fyke_frame::Frame;
use fyke_frame::walk::{Layers, Protocol};
use std::fmt::Write;

const BYTES_PER_LINE: usize = 16;
/// Eight pairs of bytes with a space before each.
const HEX_COLUMN: usize = 40;

/// Appends the dump that the options request.
pub(crate) fn print(frame: &Frame, layers: &Layers, options: &PrintOptions, out: &mut String) {
    let start = if options.hex_link_header { 0 } else { link_header_len(layers) };
    let bytes = frame.data.get(start..).unwrap_or(&[]);
    if bytes.is_empty() {
        return;
    }
    match options.hex {
        Hex::None => {}
        Hex::Bytes => lines(bytes, false, out),
        Hex::BytesAndText => lines(bytes, true, out),
        Hex::Text => text(bytes, out),
    }
}

/// Start of the network layer: after the link header, tags and the 802.2 header.
fn link_header_len(layers: &Layers) -> usize {
    let is_link = |protocol| {
        use Protocol::{Ethernet, Link, Llc, Vlan};
        matches!(protocol, Ethernet | Link | Llc | Vlan)
    };
    let headers = layers.iter().take_while(|layer| is_link(layer.protocol) && layer.level == 0);
    headers.last().map_or(0, |layer| layer.header_end())
}

fn lines(bytes: &[u8], with_text: bool, out: &mut String) {
    for (number, line) in bytes.chunks(BYTES_PER_LINE).enumerate() {
        let _ = write!(out, "\n\t0x{:04x}: ", number * BYTES_PER_LINE);
        let start = out.len();
        for pair in line.chunks(2) {
            out.push(' ');
            for byte in pair {
                let _ = write!(out, "{byte:02x}");
            }
        }
        if with_text {
            let hex_len = out.len() - start;
            out.extend(std::iter::repeat_n(' ', HEX_COLUMN - hex_len + 2));
            out.extend(
                line.iter().map(|&byte| if byte.is_ascii_graphic() { byte as char } else { '.' }),
            );
        }
    }
}

/// Appends printable characters, tabs and line breaks unchanged, a carriage return only as part of
/// a line break.
fn text(bytes: &[u8], out: &mut String) {
    out.push('\n');
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' => {
                if bytes.get(at + 1).is_some_and(|&next| next != b'\n') && at + 2 < bytes.len() {
                    out.push('.');
                }
            }
            b'\t' | b'\n' | b' '..=b'~' => out.push(byte as char),
            _ => out.push('.'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_with_and_without_text() {
        let bytes: Vec<u8> = (0x2e..0x41).collect();
        let mut out = String::new();
        lines(&bytes, false, &mut out);
        assert_eq!(out, "\n\t0x0000:  2e2f 3031 3233 3435 3637 3839 3a3b 3c3d\n\t0x0010:  3e3f 40");
        out.clear();
        lines(&bytes[14..], true, &mut out);
        assert_eq!(out, format!("\n\t0x0000:  3c3d 3e3f 40{:27}  <=>?@", ""));
    }

    #[test]
    fn text_keeps_line_breaks_only() {
        let mut out = String::new();
        text(b"a\r\nb\rc\x1b[2J\x7f\xff", &mut out);
        assert_eq!(out, "\na\nb.c.[2J..");
    }
}
