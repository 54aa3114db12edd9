//! Properties of printed frames that hold for any bytes: shared by fuzz targets and `cargo test`.

use fyke_frame::{Frame, LinkType};
use fyke_print::{Hex, PrintOptions, Printer, TimeStyle};

/// Option sets in which every option is set at least once; the first set is the default.
fn option_sets() -> Vec<PrintOptions> {
    let plain = PrintOptions { time: TimeStyle::None, ..PrintOptions::default() };
    vec![
        plain.clone(),
        PrintOptions { link_header: true, number: true, ..plain.clone() },
        PrintOptions { quiet: true, link_header: true, ..plain.clone() },
        PrintOptions { verbose: 1, absolute_sequence: true, ..plain.clone() },
        PrintOptions { verbose: 2, like_tcpdump: true, lengths: true, ..plain.clone() },
        PrintOptions { verbose: 3, link_header: true, time: TimeStyle::Date, ..plain.clone() },
        PrintOptions { hex: Hex::BytesAndText, hex_link_header: true, ..plain.clone() },
        PrintOptions { hex: Hex::Text, time: TimeStyle::Delta, ..plain },
    ]
}

/// Printers with all options.
pub struct Lines {
    printers: Vec<(PrintOptions, Printer)>,
    text: String,
}

impl Default for Lines {
    fn default() -> Self {
        let printers = option_sets();
        let printers = printers.into_iter().map(|o| (o.clone(), Printer::new(o))).collect();
        Lines { printers, text: String::new() }
    }
}

impl Lines {
    /// Prints a frame with every set of options: no panic, no control characters, one line unless more was requested,
    /// bounded text.
    pub fn check(&mut self, link: LinkType, data: &[u8], wire_len: u32) {
        let mut frame = Frame::new(link, data);
        frame.wire_len = wire_len;
        for (options, printer) in &mut self.printers {
            self.text.clear();
            printer.line(&frame, &mut self.text);
            let allowed = |c: char| matches!(c, ' '..='~' | '\n' | '\t');
            assert!(self.text.chars().all(allowed), "{options:?} {:?} {data:02x?}", self.text);
            let one_line = options.verbose == 0 && options.hex == Hex::None;
            assert!(!one_line || !self.text.contains(['\n']), "{:?} {data:02x?}", self.text);
            assert!(self.text.len() < 200_000 + 8 * data.len(), "{} bytes", self.text.len());
            assert!(!data.is_empty() || self.text.len() < 100, "{:?}", self.text);
        }
    }
}
