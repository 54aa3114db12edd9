//! `fyke dump -d`: the filter as a program of classic BPF, in tcpdump's three forms.
//!
//! The link type is that of the file (-r) or of the interface (-i, -y), else Ethernet. The program may have other
//! instructions than libpcap's; it accepts the same frames.

use super::super::{Failure, MAX_SNAPLEN, expression, privilege};
use super::offered::Offered;
use super::{as_tcpdump, link_type};
use crate::cli::DumpArgs;
use anyhow::Context;
use fyke_capture::Source;
use fyke_filter::bpf::{Instruction, lower, lower_in_order};
use fyke_filter::{Options, Reading};
use fyke_frame::LinkType;
use fyke_frame::bpf::code::RET_K;
use fyke_machine::bpf::Dialect;
use fyke_machine::bpf::disassemble::{Format, disassemble};
use std::io::Write;

/// Prints the program.
pub fn print(args: &DumpArgs) -> Result<(), Failure> {
    let text = expression(&args.expression, args.expression_file.as_deref())?;
    let Frames { link, netmask, snaplen } = frames_of(args)?;
    let options = Options {
        link,
        netmask: Some(netmask),
        snaplen: super::super::snaplen(args.source.snaplen).min(snaplen),
        live: args.source.read.is_none() && !args.source.interface.is_empty(),
        resolve: Some(fyke_filter::system_resolver),
        reading: if args.scoped { Reading::Scoped } else { Reading::Compat },
        ..Options::default()
    };
    let predicate =
        fyke_filter::compile(&text, &options).map_err(|error| Failure::Usage(error.to_string()))?;
    let program = match args.print_options.no_optimise {
        false => lower(&predicate, options.snaplen),
        true => lower_in_order(&predicate).map(|program| returning(program, options.snaplen)),
    };
    let program = program
        .map_err(|error| Failure::Usage(format!("no classic BPF program exists: {error}")))?;
    let format = match args.dump_program {
        1 => Format::Listing,
        2 => Format::C,
        _ => Format::Decimal,
    };
    let text = disassemble(&program, Dialect::Bpf, format);
    Ok(super::super::output().write_all(text.as_bytes())?)
}

/// Makes a program that returns 1 for accepted frames return the snap length.
fn returning(mut program: Vec<Instruction>, snaplen: u32) -> Vec<Instruction> {
    for last in program.iter_mut().filter(|one| one.code == RET_K && one.k != 0) {
        last.k = snaplen;
    }
    program
}

/// Properties of the frames to filter.
struct Frames {
    link: LinkType,
    /// Netmask of their interface.
    netmask: u32,
    /// Snapshot length of their file.
    snaplen: u32,
}

impl Frames {
    fn new(link: LinkType, netmask: u32) -> Frames {
        Frames { link, netmask, snaplen: MAX_SNAPLEN }
    }
}

/// Returns the properties of the frames to filter.
fn frames_of(args: &DumpArgs) -> Result<Frames, Failure> {
    let source = &args.source;
    if source.read.is_none() && source.interface.is_empty() {
        let Some(name) = &args.link_type else {
            if args.as_tcpdump {
                note!("Warning: assuming Ethernet");
            }
            return Ok(Frames::new(LinkType::EN10MB, 0));
        };
        let unknown = || Failure::Usage(format!("unknown link type {name:?}"));
        return Ok(Frames::new(link_type(name).ok_or_else(unknown)?, 0));
    }
    if let Some(path) = source.read.as_ref().and_then(|files| files.first()) {
        privilege::read_only(&args.privilege, path, &privilege::Needs::default())?;
        let file = fyke_capture::open_file(path)?;
        let first = file.interfaces().first();
        let first = first.with_context(|| format!("{} names no interface", path.display()))?;
        if args.as_tcpdump {
            as_tcpdump::start(args, std::iter::once(first));
        }
        return Ok(Frames { snaplen: first.snaplen, ..Frames::new(first.link, 0) });
    }
    let offered = Offered::of(source)?;
    let link = match &args.link_type {
        Some(name) => {
            offered.check(name)?;
            link_type(name)
        }
        None => None,
    };
    Ok(Frames::new(link.unwrap_or(offered.link()), offered.netmask()))
}
