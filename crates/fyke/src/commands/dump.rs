//! `fyke dump`: capture or read, filter, print or write, editable while it runs.
//!
//! The packet loop owns the output; the filters are shared with the control socket ([`Live`]), so an edit from
//! another terminal takes effect at the next batch and loses nothing.

use super::live::Live;
use super::{Failure, expression, open, snaplen, stop_on_signals};
use crate::cli::{DumpArgs, PrintArgs};
use fyke_capture::{Interface, Rotation, Sink, Source, SourceStats, WriteOptions};
use fyke_control::Server;
use fyke_filter::{Options, Reading};
use fyke_frame::{Frame, LinkType};
use fyke_graph::pipeline::RunError;
use fyke_graph::{Accounting, Consumer, FilterError, FilterSet, Flow, Pipeline};
use fyke_print::{Hex, PrintOptions, Printer, Services, TimeStyle};
use std::io::{BufWriter, IsTerminal, Stdout, Write};
use std::sync::Arc;

/// Runs the command.
pub fn run(args: DumpArgs) -> Result<(), Failure> {
    if args.list_interfaces {
        return list_interfaces();
    }
    let text = expression(&args.expression, args.expression_file.as_deref())?;
    let mut source = open(&args.source, args.look_back)?;
    let filters = FilterSet::new(Options {
        link: source.interfaces().first().map_or(LinkType::EN10MB, |interface| interface.link),
        snaplen: snaplen(args.source.snaplen),
        reading: if args.scoped { Reading::Scoped } else { Reading::Compat },
        ..Options::default()
    });
    filters.set(&text).map_err(wrong_filter)?;
    let live = Live::new(filters.clone(), source.interfaces());
    let _server = if args.no_control { None } else { serve(&live, args.source.read.is_none()) };
    let stop = stop_on_signals()?;

    let mut pipeline = Pipeline::new(filters.reader(), args.look_back);
    let mut output = Output::new(&args, &live, source.interfaces())?;
    if args.source.read.is_none() {
        announce(source.as_ref());
    }
    let result = pipeline.run(source.as_mut(), &mut output, &stop);
    let finished = output.finish();
    live.report(&pipeline.accounting(), &source.stats());
    if args.stats || (args.source.read.is_none() && !args.count) {
        eprint!("{}", live.summary(args.stats));
    }
    if args.count {
        println!("{}", pipeline.accounting().delivered);
    }
    match result {
        Ok(()) => finished,
        Err(RunError::Consumer(failure)) => Err(failure),
        Err(RunError::Filter(error)) => Err(wrong_filter(error)),
        Err(RunError::Read(error)) => {
            finished?;
            Err(error.into())
        }
    }
}

/// A filter that cannot be is the user's to mend: exit status 2.
pub fn wrong_filter(error: FilterError) -> Failure {
    Failure::Usage(error.to_string())
}

/// Opens the control socket; a capture that nobody can edit is still a capture, so a failure is only said.
pub fn serve(live: &Arc<Live>, say: bool) -> Option<Server> {
    match Server::start(Arc::clone(live) as _) {
        Ok(server) => Some(server),
        Err(error) => {
            if say {
                eprintln!("fyke: no control socket, so this capture cannot be edited: {error}");
            }
            None
        }
    }
}

fn announce(source: &dyn Source) {
    if let Some(interface) = source.interfaces().first() {
        eprintln!(
            "listening on {}, link type {} ({}), snap length {} bytes; edit: fyke ctl --pid {}",
            interface.name,
            interface.link,
            interface.link.description().map_or("unknown", |link| link.title),
            interface.snaplen,
            std::process::id()
        );
    }
}

fn list_interfaces() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for (number, interface) in fyke_capture::interfaces_available()?.iter().enumerate() {
        writeln!(out, "{}.{interface}", number + 1)?;
    }
    Ok(())
}

/// Where accepted frames go: a file, the terminal, or only a count.
struct Output<'a> {
    printer: Option<(Printer, BufWriter<Stdout>, String)>,
    sink: Option<Box<dyn Sink>>,
    flush_each: bool,
    live: &'a Live,
    limit: u64,
    taken: u64,
    snaplen: usize,
}

impl<'a> Output<'a> {
    fn new(args: &DumpArgs, live: &'a Live, interfaces: &[Interface]) -> Result<Self, Failure> {
        let sink = args.write.as_deref().map(|path| {
            fyke_capture::create_file(
                path,
                WriteOptions {
                    snaplen: snaplen(args.source.snaplen),
                    flush_each: args.print_options.packet_buffered,
                    interfaces: interfaces.to_vec(),
                    rotation: Rotation {
                        size_millions: args.file_size,
                        seconds: args.rotate_seconds,
                        count: args.file_count,
                    },
                    ..WriteOptions::default()
                },
            )
        });
        let print = !args.count && (args.write.is_none() || args.print);
        let mut options = print_options(&args.print_options);
        if args.source.read.is_some() {
            // A file's interface indices are those of the machine that captured it.
            options.interface_name = |_| None;
        }
        let printer = print
            .then(|| (Printer::new(options), BufWriter::new(std::io::stdout()), String::new()));
        Ok(Output {
            printer,
            sink: sink.transpose()?,
            flush_each: args.print_options.line_buffered || std::io::stdout().is_terminal(),
            live,
            limit: args.count_limit.unwrap_or(u64::MAX),
            taken: 0,
            snaplen: snaplen(args.source.snaplen) as usize,
        })
    }

    fn finish(self) -> Result<(), Failure> {
        if let Some((_, mut out, _)) = self.printer {
            out.flush()?;
        }
        if let Some(sink) = self.sink {
            sink.finish()?;
        }
        Ok(())
    }
}

impl Consumer for Output<'_> {
    type Error = Failure;

    fn frame(&mut self, frame: &Frame<'_>, interface: &Interface) -> Result<Flow, Failure> {
        let mut frame = *frame;
        frame.data = &frame.data[..frame.data.len().min(self.snaplen)];
        self.taken += 1;
        if let Some(sink) = &mut self.sink {
            sink.write(interface, &frame)?;
        }
        if let Some((printer, out, line)) = &mut self.printer {
            line.clear();
            printer.line(&frame, line);
            line.push('\n');
            out.write_all(line.as_bytes())?;
            if self.flush_each {
                out.flush()?;
            }
        }
        Ok(if self.taken >= self.limit { Flow::Stop } else { Flow::Continue })
    }

    fn between(&mut self, counts: &Accounting, source: &SourceStats) -> Result<Flow, Failure> {
        self.live.report(counts, source);
        if let Some((_, out, _)) = &mut self.printer {
            out.flush()?;
        }
        Ok(Flow::Continue)
    }
}

/// Names of ports as this machine has them; numbers where it has none.
fn services() -> Services {
    Services::parse(&std::fs::read_to_string("/etc/services").unwrap_or_default())
}

fn print_options(args: &PrintArgs) -> PrintOptions {
    let hex = match (args.hex_text, args.hex, args.text) {
        (1.., _, _) => Hex::BytesAndText,
        (_, 1.., _) => Hex::Bytes,
        (_, _, 1..) => Hex::Text,
        _ => Hex::None,
    };
    PrintOptions {
        link_header: args.link_header,
        quiet: args.quiet,
        verbose: args.verbose,
        hex,
        hex_link_header: args.hex_text > 1 || args.hex > 1 || args.text > 1,
        time: match args.time {
            0 => TimeStyle::Clock,
            1 => TimeStyle::None,
            2 => TimeStyle::Epoch,
            3 => TimeStyle::Delta,
            4 => TimeStyle::Date,
            _ => TimeStyle::SinceFirst,
        },
        absolute_sequence: args.absolute_sequence,
        number: args.number,
        services: (args.numeric == 0).then(services),
        local_offset_s: fyke_capture::local_offset_s,
        interface_name: fyke_capture::interface_name,
        ..PrintOptions::default()
    }
}
