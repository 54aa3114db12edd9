//! Class `print`: prints a line for each frame on standard output, in tcpdump's format, and passes it.
//!
//! The letters of tcpdump's options select the format: `(print, nevv)`. Lines are written after each batch; with `l`
//! or on a terminal, after each line. Frames whose line is not consumed count as lost. Cost: about 1 µs a frame.

use crate::cuts;
use crate::losses::Losses;
use crate::node::{
    Arrival, Class, Counter, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use fyke_capture::Output;
use fyke_frame::{Frame, Mask};
use fyke_print::{Hex, PrintOptions, Printer, Services, TimeStyle};
use std::io::{IsTerminal, stdout};
use std::time::Duration;

struct Print {
    printer: Printer,
    out: Output,
    line: String,
    flush_each: bool,
    json: bool,
    snaplen: usize,
    losses: Losses,
    /// Reason why printing has ended.
    failed: Option<NodeError>,
}

impl Print {
    fn drain(&mut self, patience: Duration) -> Result<bool, NodeError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let drained = self.out.drain(Some(patience)).map_err(NodeError::new);
        self.failed = drained.as_ref().err().cloned();
        drained
    }
}

impl Node for Print {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let cut = cuts::frames(arrival);
        for (index, frame) in arrival.frames() {
            let frame = cut.get(index).unwrap_or(frame);
            let data = &frame.data[..frame.data.len().min(self.snaplen)];
            self.line.clear();
            let frame = Frame { data, ..*frame };
            match self.json {
                true => {
                    let credit = arrival.credit(index);
                    self.printer.object(&frame, credit, &mut self.line)
                }
                false => self.printer.line(&frame, &mut self.line),
            }
            self.line.push('\n');
            self.out.buffer().extend_from_slice(self.line.as_bytes());
            self.out.mark(true);
            if self.flush_each {
                // `make_room` reports a failure.
                let _ = self.drain(Duration::ZERO);
            }
        }
        if !self.losses.at_once {
            return Ok(arrival.mask());
        }
        let _ = self.drain(Duration::ZERO);
        let taken = arrival.mask();
        Ok(self.losses.pass(arrival, taken, self.out.lost(), false))
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        self.drain(patience)
    }

    fn give_up(&mut self) {
        self.out.give_up();
    }

    fn pass_written(&mut self, at_once: bool) {
        self.losses.at_once = at_once;
    }

    fn lost(&self) -> u64 {
        self.losses.late(self.out.lost())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("printed", self.out.frames())]
    }
}

/// Reads the port names of this machine; ports without a name are shown as numbers.
fn services() -> Services {
    Services::parse(&std::fs::read_to_string("/etc/services").unwrap_or_default())
}

/// Parses the letters; true if each line is written at once.
fn options(letters: &str) -> Result<(PrintOptions, bool), MakeError> {
    const LETTERS: &str = "neqvxXAtlS#";
    if let Some(other) = letters.chars().find(|&letter| !LETTERS.contains(letter)) {
        let message = format!("{other:?} is not one of the letters {LETTERS}");
        return Err(MakeError::new("expression", message));
    }
    let count = |letter| letters.matches(letter).count();
    let hex = match (count('X'), count('x'), count('A')) {
        (1.., _, _) => Hex::BytesAndText,
        (_, 1.., _) => Hex::Bytes,
        (_, _, 1..) => Hex::Text,
        _ => Hex::None,
    };
    let options = PrintOptions {
        link_header: count('e') > 0,
        quiet: count('q') > 0,
        verbose: count('v').min(255) as u8,
        hex,
        hex_link_header: count('X') > 1 || count('x') > 1 || count('A') > 1,
        time: match count('t') {
            0 => TimeStyle::Clock,
            1 => TimeStyle::None,
            2 => TimeStyle::Epoch,
            3 => TimeStyle::Delta,
            4 => TimeStyle::Date,
            _ => TimeStyle::SinceFirst,
        },
        absolute_sequence: count('S') > 0,
        number: count('#') > 0,
        services: (count('n') == 0).then(services),
        local_offset_s: fyke_capture::local_offset_s,
        ..PrintOptions::default()
    };
    Ok((options, count('l') > 0))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let (mut options, flush_each) = options(settings.text("expression").unwrap_or_default())?;
    options.nanoseconds = settings.flag("nano")?;
    options.lengths = settings.flag("lengths")?;
    options.like_tcpdump = settings.flag("like_tcpdump")?;
    options.color = settings.flag("color")?;
    if settings.flag("live")? || options.like_tcpdump {
        options.interface_name = fyke_capture::interface_name;
    }
    let snaplen = settings.number_or("snaplen", 1..=262_144, 262_144)? as usize;
    let flush_each = flush_each || stdout().is_terminal();
    let out = Output::standard_output();
    let out = out.map_err(|error| MakeError::refused("expression", error))?;
    Ok(Box::new(Print {
        printer: Printer::new(options),
        out,
        line: String::new(),
        flush_each,
        json: settings.flag("json")?,
        snaplen,
        losses: Losses::default(),
        failed: None,
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "print",
    waits: true,
    in_time_order: true,
    summary: "prints a line for each frame and passes it",
    parameters: &[
        Parameter { name: "expression", summary: "letters of tcpdump's options, of neqvxXAtlS#" },
        Parameter { name: "live", summary: "y: interface numbers are those of this machine" },
        Parameter { name: "snaplen", summary: "most bytes of a frame (262144)" },
        Parameter { name: "nano", summary: "y: times with nanoseconds, not microseconds" },
        Parameter { name: "json", summary: "y: an object a line (docs/lines.schema.json)" },
        Parameter { name: "color", summary: "y: colours by protocol and flags" },
        Parameter { name: "like_tcpdump", summary: "y: exactly tcpdump's lines" },
        Parameter { name: "lengths", summary: "y: captured and original length of each frame" },
    ],
    make,
    // Standard output.
    opens: |_| Opens::File,
    ..Class::NODE
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters() {
        let (options, flush) = options("nevvttl").unwrap();
        assert!(options.link_header && options.services.is_none() && flush);
        assert_eq!((options.verbose, options.time), (2, TimeStyle::Epoch));
        assert!(super::options("nz").unwrap_err().message.contains("'z'"));
    }
}
