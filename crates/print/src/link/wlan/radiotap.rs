//! The header that drivers put before 802.11 frames, with data of the radio.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed};

const EXTENDED: u32 = 1 << 31;
const VENDOR: u32 = 1 << 30;
const RESET: u32 = 1 << 29;
/// Fields that change the text of others.
const EXTENDED_CHANNEL: u32 = 1 << 18;
const MCS: u32 = 1 << 19;
const MODULATIONS: u8 = 76;

/// Data of the header that the frame after it needs.
pub(super) struct Radio {
    /// Length of the header.
    pub(super) len: usize,
    /// The MAC header is padded to a multiple of four bytes.
    pub(super) padded: bool,
    /// The frame ends with its checksum.
    pub(super) checksum: bool,
}

/// Reads aligned fields; the alignment counts from the start of the header.
struct Fields<'a> {
    header: Piece<'a>,
    at: usize,
}

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> Result<[u8; N], Cut> {
        let at = self.at.next_multiple_of(N);
        let bytes = self.header.take(at, N)?.try_into().map_err(|_| Cut)?;
        self.at = at + N;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Cut> {
        Ok(self.next::<1>()?[0])
    }

    fn signed(&mut self) -> Result<i8, Cut> {
        Ok(self.byte()? as i8)
    }

    fn short(&mut self) -> Result<u16, Cut> {
        self.next().map(u16::from_le_bytes)
    }

    fn long(&mut self) -> Result<u32, Cut> {
        self.next().map(u32::from_le_bytes)
    }
}

/// Prints the header.
pub(super) fn print(body: &mut Body, frame: &Piece) -> Result<Radio, Cut> {
    frame.take(0, 8)?;
    let len = usize::from(frame.be16(2)?.swap_bytes());
    if len < 8 {
        return Err(Cut);
    }
    let header = Piece { data: frame.take(0, len)?, wire_len: len };
    let word = |number: usize| header.be32(4 + 4 * number).map(u32::swap_bytes);
    let mut count = 1;
    while word(count - 1)? & EXTENDED != 0 {
        count += 1;
    }
    let mut fields = Fields { header, at: 4 + 4 * count };
    let (mut first, mut vendor, mut flags) = (0, false, 0);
    for present in (0..count).map(word) {
        let present = present?;
        if !vendor && namespace(body, &mut fields, present, first, &mut flags).is_err() {
            break;
        }
        match present & (VENDOR | RESET) {
            0 => first += 32,
            RESET => (first, vendor) = (0, false),
            VENDOR => {
                (first, vendor) = (0, true);
                fields.at = fields.at.next_multiple_of(2);
                let _organisation: [u8; 4] = [(); 4].map(|()| fields.byte().unwrap_or_default());
                let skipped = fields.short().unwrap_or_default();
                fields.at += usize::from(skipped);
            }
            _ => {}
        }
    }
    Ok(Radio { len, padded: flags & 0x20 != 0, checksum: flags & 0x10 != 0 })
}

/// Prints the fields of a word of bits; an error ends the list.
fn namespace(
    body: &mut Body,
    fields: &mut Fields,
    present: u32,
    first: u32,
    flags: &mut u8,
) -> Printed {
    for bit in (0..29).filter(|bit| present & 1 << bit != 0) {
        let number = first + bit;
        match field(body, fields, number, present, flags) {
            Ok(true) => {}
            Ok(false) => {
                // Without the length of a field, the next one is not found.
                put!(body, "[bit {number}] ");
                return Err(Cut);
            }
            Err(Cut) => {
                put!(body, " [|802.11_radio]");
                return Err(Cut);
            }
        }
    }
    Ok(())
}

/// Prints a field; false for an unknown one.
fn field(
    body: &mut Body,
    fields: &mut Fields,
    number: u32,
    present: u32,
    flags: &mut u8,
) -> Result<bool, Cut> {
    match number {
        0 => put!(body, "{}us tsft ", u64::from_le_bytes(fields.next()?)),
        1 => {
            *flags = fields.byte()?;
            let names = [
                (0x01, "cfp "),
                (0x02, "short preamble "),
                (0x04, "wep "),
                (0x08, "fragmented "),
                (0x40, "bad-fcs "),
            ];
            for (bit, name) in names {
                put!(body, "{}", if *flags & bit != 0 { name } else { "" });
            }
        }
        2 => match fields.byte()? {
            rate @ 0x80..=0x8f => put!(body, "MCS {} ", rate & 0x7f),
            rate => put!(body, "{}.{} Mb/s ", rate / 2, rate % 2 * 5),
        },
        3 => {
            let (frequency, channel) = (fields.short()?, fields.short()?);
            if present & EXTENDED_CHANNEL == 0 {
                channel_text(body, frequency, channel.into(), present);
            }
        }
        4 => put!(body, "fhset {} fhpat {} ", fields.byte()?, fields.byte()?),
        5 => put!(body, "{}dBm signal ", fields.signed()?),
        6 => put!(body, "{}dBm noise ", fields.signed()?),
        7 => put!(body, "{} sq ", fields.short()?),
        8 => put!(body, "{} tx power ", -i32::from(fields.short()? as i16)),
        9 => put!(body, "{}dB tx attenuation ", -i32::from(fields.signed()?)),
        10 => put!(body, "{}dBm tx power ", fields.signed()?),
        11 => put!(body, "antenna {} ", fields.byte()?),
        12 => put!(body, "{}dB signal ", fields.byte()?),
        13 => put!(body, "{}dB noise ", fields.byte()?),
        14 => {
            fields.short()?;
        }
        18 => {
            let (channel, frequency) = (fields.long()?, fields.short()?);
            fields.short()?;
            channel_text(body, frequency, channel, present);
        }
        19 => {
            let (known, flags, index) = (fields.byte()?, fields.byte()?, fields.byte()?);
            modulation(body, known, flags, index);
        }
        20 => {
            fields.long()?;
            fields.long()?;
        }
        21 => very_high(body, fields)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn channel_text(body: &mut Body, frequency: u16, flags: u32, present: u32) {
    let all = |bits: u32| flags & bits == bits;
    put!(body, "{frequency} MHz");
    let width = match flags {
        _ if all(0x4000) => "/10Mhz",
        _ if all(0x8000) => "/5Mhz",
        _ => "",
    };
    if present & MCS != 0 {
        put!(body, " 11n");
    } else {
        put!(body, "{}", if all(0x0880) { " FHSS" } else { "" });
        if all(0x0140) {
            put!(body, " 11a{width}");
        }
        if all(0x00c0) || all(0x0480) {
            put!(body, " 11g{width}");
        } else if all(0x00a0) {
            put!(body, " 11b");
        }
        put!(body, "{}", if all(0x0010) { " Turbo" } else { "" });
    }
    put!(
        body,
        "{}",
        match flags {
            _ if all(0x1_0000) => " ht/20 ",
            _ if all(0x4_0000) => " ht/40- ",
            _ if all(0x2_0000) => " ht/40+ ",
            _ => " ",
        }
    );
}

/// The rate of 802.11n in 100 kb/s, for streams of the same modulation.
fn rate_tenths(index: u8, wide: bool, short: bool) -> Option<u32> {
    let long = match (index, wide) {
        (32, true) => 60,
        (0..32, true) => [135, 270, 405, 540, 810, 1080, 1215, 1350][usize::from(index % 8)],
        (0..32, false) => [65, 130, 195, 260, 390, 520, 585, 650][usize::from(index % 8)],
        _ => return None,
    };
    let streams = if index == 32 { 1 } else { u32::from(index / 8) + 1 };
    let rate = long * streams;
    Some(if short { (rate * 20 / 9).div_ceil(2) } else { rate })
}

fn modulation(body: &mut Body, known: u8, flags: u8, index: u8) {
    let short = flags & 0x04 != 0;
    if known & 0x02 != 0 {
        let rate = rate_tenths(index, flags & 3 == 1, short);
        if let (Some(rate), true, ..=MODULATIONS) = (rate, known & 0x05 != 0, index) {
            put!(body, "{}.{} Mb/s ", rate / 10, rate % 10);
        }
        put!(body, "MCS {index} ");
    }
    let widths = ["20 MHz ", "40 MHz ", "20 MHz (L) ", "20 MHz (U) "];
    let parts = [
        (0x01, widths[usize::from(flags & 3)]),
        (0x04, if short { "short GI " } else { "long GI " }),
        (0x08, if flags & 0x08 != 0 { "greenfield " } else { "mixed " }),
        (0x10, if flags & 0x10 != 0 { "LDPC FEC " } else { "BCC FEC " }),
    ];
    for (bit, text) in parts {
        put!(body, "{}", if known & bit != 0 { text } else { "" });
    }
    if known & 0x20 != 0 {
        put!(body, "RX-STBC{} ", flags >> 5 & 3);
    }
}

/// Prints the field of 802.11ac.
fn very_high(body: &mut Body, fields: &mut Fields) -> Printed {
    const WIDTHS: [&str; 12] = [
        "20 MHz",
        "40 MHz",
        "20 MHz (L)",
        "20 MHz (U)",
        "80 MHz",
        "80 MHz (L)",
        "80 MHz (U)",
        "80 MHz (LL)",
        "80 MHz (LU)",
        "80 MHz (UL)",
        "80 MHz (UU)",
        "160 MHz",
    ];
    let (known, flags, width) = (fields.short()?, fields.byte()?, fields.byte()?);
    let users: [u8; 4] = [fields.byte()?, fields.byte()?, fields.byte()?, fields.byte()?];
    let coding = fields.byte()?;
    fields.byte()?;
    fields.short()?;
    for (user, streams) in users.into_iter().enumerate().filter(|(_, user)| user & 0xf != 0) {
        let code = if coding & 1 << user != 0 { "LDPC" } else { "BCC" };
        put!(body, "User {user} MCS {} {code} FEC ", streams >> 4);
    }
    if known & 0x40 != 0 {
        match WIDTHS.get(usize::from(width & 0x1f)) {
            Some(width) => put!(body, "{width} "),
            None => put!(body, "unknown ({}) ", width & 0x1f),
        }
    }
    if known & 0x04 != 0 {
        put!(body, "{} GI ", if flags & 0x04 != 0 { "short" } else { "long" });
    }
    Ok(())
}
