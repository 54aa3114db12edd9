//! Texts as one program of classic BPF for a packet socket. It accepts every frame that a text accepts in user space.
//!
//! ```text
//! shorter than a load may need? ─▶ accept │ text 1 ─▶ accept, or continue ─▶ text 2 ─▶ … ─▶ reject
//! ```
//!
//! A load out of bounds ends a program and rejects the frame, whatever the texts after it say. So frames that are too
//! short for any load of the program pass, and user space evaluates them. A cooked socket delivers packets without the
//! link header that user space sees: loads of its fields become loads of metadata, as in libpcap. O(instructions).

use super::ClassicError;
use fyke_filter::bpf::{self, Extent, Instruction};
use fyke_filter::{Options, Predicate};
use fyke_frame::LinkType;
use fyke_frame::bpf::code;

/// Most instructions that Linux takes.
pub(super) const MOST: usize = 4_096;
/// Most bytes of texts that are lowered; longer ones have more instructions.
const MOST_BYTES: usize = 1 << 19;
/// Most offsets of IPv4 headers that the program checks for short frames.
const MOST_HEADERS: usize = 4;
/// Longest IPv4 header.
const HEADER: u32 = 60;
/// Start of Linux's metadata, and the fields in it that a cooked header has.
const METADATA: u32 = 0xffff_f000;
const PROTOCOL: u32 = METADATA;
const PACKET_TYPE: u32 = METADATA + 4;
const IFINDEX: u32 = METADATA + 8;
const DEVICE_TYPE: u32 = METADATA + 28;
/// An Ethernet frame has at least this number of bytes.
const ETHERNET: u32 = 14;

/// Lowers texts to a program that returns `bytes` for what they accept. Without a text it accepts every frame. A text
/// that does not fit the link type accepts nothing.
///
/// # Errors
/// The first reason why the kernel cannot have a program of these texts.
pub fn classic_program<'t>(
    texts: impl IntoIterator<Item = &'t str>,
    options: &Options,
    bytes: u32,
) -> Result<Vec<Instruction>, ClassicError> {
    let texts: Vec<&str> = texts.into_iter().collect();
    if texts.is_empty() {
        return Ok(vec![Instruction::new(code::RET_K, bytes)]);
    }
    if texts.iter().map(|text| text.len()).sum::<usize>() > MOST_BYTES {
        return Err(ClassicError::TooLong { given: None, limit: MOST });
    }
    let compiled = texts.iter().map(|text| fyke_filter::compile(text, options));
    let fitting: Vec<Predicate> = compiled.filter_map(Result::ok).collect();
    let alone = fitting.len() == 1;
    let (mut programs, mut extent, mut length) = (Vec::new(), Extent::default(), 0);
    for predicate in &fitting {
        let (program, own) = lowered(predicate, options.link, alone)?;
        length += program.len();
        if length > MOST {
            return Err(ClassicError::TooLong { given: Some(length), limit: MOST });
        }
        extent = extent.and(&own);
        programs.push(program);
    }
    let mut joined = short_frames(extent, options.link, bytes);
    programs.iter().for_each(|program| append(&mut joined, program, bytes));
    joined.push(Instruction::new(code::RET_K, 0));
    match joined.len() {
        given @ ..=MOST => {
            debug_assert!(given > 0);
            Ok(joined)
        }
        given => Err(ClassicError::TooLong { given: Some(given), limit: MOST }),
    }
}

/// Lowers one text, and finds the frame lengths that it needs.
fn lowered(
    predicate: &Predicate,
    link: LinkType,
    alone: bool,
) -> Result<(Vec<Instruction>, Extent), ClassicError> {
    let program = without_header(bpf::lower(predicate, 1)?, link)?;
    let by_register = |operations: &[u16]| {
        let is_one = |one: &Instruction| operations.contains(&(one.code & !code::X));
        program
            .iter()
            .any(|one| one.code & code::X != 0 && one.code & 7 == code::ALU && is_one(one))
    };
    // The machines differ in shifts by 32 and more.
    if by_register(&[code::ALU | code::LSH, code::ALU | code::RSH]) {
        return Err(ClassicError::Shift);
    }
    // A division by zero rejects the frame, too.
    let divides = by_register(&[code::ALU | code::DIV, code::ALU | code::MOD]);
    match Extent::of(&program).filter(|_| !divides) {
        Some(extent) => Ok((program, extent)),
        // In its own order a text alone has the same verdict here as in user space, however short the frame.
        None if alone => {
            let program = without_header(bpf::lower_in_order(predicate)?, link)?;
            Ok((program, Extent::default()))
        }
        None => Err(ClassicError::Place),
    }
}

/// Replaces loads of a cooked header, which the socket does not deliver.
fn without_header(
    mut program: Vec<Instruction>,
    link: LinkType,
) -> Result<Vec<Instruction>, ClassicError> {
    let (bytes, fields): (u32, &[(u32, u16, u32)]) = match link {
        LinkType::LINUX_SLL2 => {
            let fields = &[
                (0, code::H, PROTOCOL),
                (4, code::W, IFINDEX),
                (8, code::H, DEVICE_TYPE),
                (10, code::B, PACKET_TYPE),
            ];
            (20, fields)
        }
        LinkType::LINUX_SLL => {
            let fields =
                &[(0, code::H, PACKET_TYPE), (2, code::H, DEVICE_TYPE), (14, code::H, PROTOCOL)];
            (16, fields)
        }
        _ => return Ok(program),
    };
    for one in &mut program {
        let mode = one.code & 0xe0;
        let is_load = one.code & 7 == code::LD && [code::ABS, code::IND].contains(&mode);
        let is_header = one.code & 7 == code::LDX && mode == code::MSH;
        if !(is_load || is_header) || (mode == code::ABS && one.k >= METADATA) {
            continue;
        }
        if let Some(k) = one.k.checked_sub(bytes) {
            one.k = k;
            continue;
        }
        let (offset, width) = (one.k, one.code & 0x18);
        let field = fields.iter().find(|field| (field.0, field.1) == (offset, width));
        let field = field.filter(|_| mode == code::ABS).ok_or(ClassicError::Cooked { offset })?;
        *one = Instruction::new(code::LD | code::W | code::ABS, field.2);
    }
    Ok(program)
}

/// The start of the program: frames that are too short for a load pass.
fn short_frames(mut extent: Extent, link: LinkType, bytes: u32) -> Vec<Instruction> {
    while extent.after_header.len() > MOST_HEADERS {
        let Some((header, after)) = extent.after_header.pop_last() else { break };
        extent.bytes = extent.bytes.max(header.saturating_add(HEADER).saturating_add(after));
    }
    // The check reads the first byte of the header.
    let headers = extent.after_header.keys().map(|header| header + 1).max().unwrap_or(0);
    let all = extent.bytes.max(headers);
    let mut program = Vec::new();
    let accept = Instruction::new(code::RET_K, bytes);
    let length = Instruction::new(code::LD_LEN, 0);
    let always = link == LinkType::EN10MB && extent.after_header.is_empty();
    if all > if always { ETHERNET } else { 0 } {
        program.extend([length, Instruction::jump(code::JGE, 1, 0, all), accept]);
    }
    for (header, after) in extent.after_header {
        program.extend([
            Instruction::new(code::LDX_MSH, header),
            Instruction::new(code::TXA, 0),
            Instruction::new(code::ALU | code::ADD, after),
            Instruction::new(code::TAX, 0),
            length,
            Instruction::jump(code::JGE | code::X, 1, 0, 0),
            accept,
        ]);
    }
    program
}

/// Appends a program that continues with what comes after it instead of rejecting.
fn append(joined: &mut Vec<Instruction>, program: &[Instruction], bytes: u32) {
    let count = program.len();
    joined.extend(program.iter().enumerate().map(|(at, one)| match one.code {
        code::RET_K if one.k == 0 => Instruction::new(code::JA, (count - at - 1) as u32),
        code::RET_K => Instruction::new(code::RET_K, bytes),
        _ => *one,
    }));
}
