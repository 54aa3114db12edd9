//! 802.11: the radio's data before a frame (radiotap), management and control frames, the header of
//! data frames. Source: IEEE 802.11, radiotap.org.

mod radiotap;

use crate::body::{Body, Flow, Step, put};
use crate::text::{Cut, Piece, Printed, escape, name_of};
use fyke_frame::LinkType;
use fyke_frame::walk::view::MacAddr;

/// Bits of the second byte of the frame control.
const TO_SYSTEM: u8 = 0x01;
const FROM_SYSTEM: u8 = 0x02;
const PROTECTED: u8 = 0x40;

/// True for the link types with frames that this module prints.
pub(crate) fn is_wireless(link: LinkType) -> bool {
    matches!(link, LinkType::IEEE802_11 | LinkType::IEEE802_11_RADIO)
}

/// Prints the radio's data and the MAC header; the LLC header of a data frame follows.
pub(crate) fn print(body: &mut Body) -> Step {
    let mut frame = Piece { data: body.layers.data(), wire_len: body.end };
    let mut padded = false;
    if body.link == LinkType::IEEE802_11_RADIO {
        body.protocol = "802.11_radio";
        let radio = radiotap::print(body, &frame)?;
        frame = frame.from(radio.len);
        padded = radio.padded;
        if radio.checksum {
            // The checksum at the end is no part of the payload.
            frame.wire_len = frame.wire_len.checked_sub(4).ok_or(Cut)?;
            frame.data = &frame.data[..frame.data.len().min(frame.wire_len)];
            body.end -= 4;
        }
    }
    body.protocol = "802.11";
    let (kind, flags) = (frame.u8(0)?, frame.u8(1)?);
    let subtype = kind >> 4;
    let Some(len) = header_len(kind, flags) else {
        match kind >> 2 & 3 {
            1 => put!(body, "unknown 802.11 ctrl frame subtype ({subtype})"),
            kind => put!(body, "unknown 802.11 frame type ({kind})"),
        }
        return Ok(Flow::End);
    };
    let len = if padded { len.next_multiple_of(4) } else { len };
    frame.take(0, len)?;
    if body.options.link_header {
        header(body, &frame, kind, flags)?;
    }
    let rest = frame.from(len);
    match kind >> 2 & 3 {
        0 => management(body, &frame, &rest, subtype, flags)?,
        1 => control(body, &frame, subtype)?,
        // A data frame without data.
        _ if subtype & 4 != 0 => {}
        _ if flags & PROTECTED != 0 => {
            put!(body, "Data");
            secret(body, &rest)?;
        }
        _ => return Ok(Flow::Next),
    }
    Ok(Flow::End)
}

/// Length of the MAC header; `None` for an unknown kind of frame.
fn header_len(kind: u8, flags: u8) -> Option<usize> {
    let subtype = kind >> 4;
    Some(match kind >> 2 & 3 {
        0 => 24,
        1 => match subtype {
            7 => 12,
            8 => 20,
            9 | 12 | 13 => 10,
            10 | 11 | 14 | 15 => 16,
            _ => return None,
        },
        2 => {
            let both = flags & (TO_SYSTEM | FROM_SYSTEM) == TO_SYSTEM | FROM_SYSTEM;
            (if both { 30 } else { 24 }) + if subtype & 8 != 0 { 2 } else { 0 }
        }
        _ => return None,
    })
}

fn mac(frame: &Piece, at: usize) -> Result<MacAddr, Cut> {
    Ok(MacAddr(frame.take(at, 6)?.try_into().unwrap_or_default()))
}

/// Prints the addresses of the header, for `-e`.
fn header(body: &mut Body, frame: &Piece, kind: u8, flags: u8) -> Printed {
    let subtype = kind >> 4;
    if body.options.verbose > 0 {
        let names = [
            (0x20, "More Data "),
            (0x04, "More Fragments "),
            (0x10, "Pwr Mgmt "),
            (0x08, "Retry "),
            (0x80, "Strictly Ordered "),
            (PROTECTED, "Protected "),
        ];
        for (bit, name) in names {
            put!(body, "{}", if flags & bit != 0 { name } else { "" });
        }
        if (kind >> 2 & 3, subtype) != (1, 10) {
            put!(body, "{}us ", frame.be16(2)?.swap_bytes());
        }
    }
    let names: &[&str] = match (kind >> 2 & 3, subtype) {
        (0, _) => {
            put!(body, "BSSID:{} ", mac(frame, 16)?);
            &["DA", "SA"]
        }
        (1, 8) => return bar(body, frame),
        (1, 9 | 12 | 13) => &["RA"],
        (1, 10) => &["BSSID", "TA"],
        (1, 11) => &["RA", "TA"],
        (1, 14 | 15) => &["RA", "BSSID"],
        (1, _) => &[],
        _ => {
            if subtype & 0xb != 0 {
                let poll = ["", "Ack", "Poll", "Ack/Poll"][usize::from(subtype & 3)];
                put!(body, "CF {poll}{} ", if subtype & 8 != 0 { "+QoS" } else { "" });
            }
            match flags & 3 {
                0 => &["DA", "SA", "BSSID"],
                FROM_SYSTEM => &["DA", "BSSID", "SA"],
                TO_SYSTEM => &["BSSID", "SA", "DA"],
                _ => &["RA", "TA", "DA", "SA"],
            }
        }
    };
    for (at, name) in [4, 10, 16, 24].into_iter().zip(names) {
        put!(body, "{name}:{} ", mac(frame, at)?);
    }
    Ok(())
}

fn bar(body: &mut Body, frame: &Piece) -> Printed {
    put!(body, " RA:{} TA:{} ", mac(frame, 4)?, mac(frame, 10)?);
    let (control, sequence) = (frame.be16(16)?.swap_bytes(), frame.be16(18)?.swap_bytes());
    put!(body, "CTL({control:x}) SEQ({sequence}) ");
    Ok(())
}

/// Prints what precedes encrypted data.
fn secret(body: &mut Body, rest: &Piece) -> Printed {
    let vector = rest.be32(0)?.swap_bytes();
    put!(body, " IV:{:3x} Pad {:x} ", vector & 0xff_ffff, vector >> 24 & 0x3f);
    put!(body, "KeyID {:x}", vector >> 30);
    Ok(())
}

fn control(body: &mut Body, frame: &Piece, subtype: u8) -> Printed {
    const NAMES: &[(u8, &str)] = &[
        (7, "Control Wrapper"),
        (8, "BAR"),
        (9, "BA"),
        (10, "Power Save-Poll"),
        (11, "Request-To-Send"),
        (12, "Clear-To-Send"),
        (13, "Acknowledgment"),
        (14, "CF-End"),
        (15, "CF-End+CF-Ack"),
    ];
    put!(body, "{}", name_of(NAMES, subtype).unwrap_or("Unknown Ctrl Subtype"));
    match subtype {
        10 => put!(body, " AID({:x})", frame.be16(2)?.swap_bytes()),
        7 => {}
        _ if body.options.link_header => {}
        8 => bar(body, frame)?,
        11 => put!(body, " TA:{} ", mac(frame, 10)?),
        _ => put!(body, " RA:{} ", mac(frame, 4)?),
    }
    Ok(())
}

const STATUSES: [&str; 7] = [
    "Successful",
    "Unspecified failure",
    "TDLS wakeup schedule rejected but alternative schedule provided",
    "TDLS wakeup schedule rejected",
    "Reserved",
    "Security disabled",
    "Unacceptable lifetime",
];

const REASONS: [&str; 9] = [
    "Reserved",
    "Unspecified reason",
    "Previous authentication no longer valid",
    "Deauthenticated because sending STA is leaving (or has left) IBSS or ESS",
    "Disassociated due to inactivity",
    "Disassociated because AP is unable to handle all currently  associated STAs",
    "Class 2 frame received from nonauthenticated STA",
    "Class 3 frame received from nonassociated STA",
    "Disassociated because sending STA is leaving (or has left) BSS",
];

/// Prints the name of a number; beyond the table, the number.
fn numbered(body: &mut Body, table: &[&str], number: u16) {
    match table.get(usize::from(number)) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "{number}"),
    }
}

fn management(body: &mut Body, frame: &Piece, rest: &Piece, subtype: u8, flags: u8) -> Printed {
    const NAMES: &[(u8, &str)] = &[
        (0, "Assoc Request"),
        (1, "Assoc Response"),
        (2, "ReAssoc Request"),
        (3, "ReAssoc Response"),
        (4, "Probe Request"),
        (5, "Probe Response"),
        (8, "Beacon"),
        (9, "ATIM"),
        (10, "Disassociation"),
        (11, "Authentication"),
        (12, "DeAuthentication"),
        (13, "Action"),
    ];
    match name_of(NAMES, subtype) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "Unhandled Management subtype({subtype:x})"),
    }
    if flags & PROTECTED != 0 {
        return secret(body, rest);
    }
    match subtype {
        0..=5 | 8 => association(body, rest, subtype),
        _ => parting(body, frame, rest, subtype),
    }
}

/// Prints requests and answers of association and probes, and beacons.
fn association(body: &mut Body, rest: &Piece, subtype: u8) -> Printed {
    let little = |at: usize| rest.be16(at).map(u16::swap_bytes);
    let whole = |len: usize| {
        rest.take(0, len)?;
        if rest.wire_len < len { Err(Cut) } else { Ok(()) }
    };
    match subtype {
        0 | 2 => {
            let start = if subtype == 0 { 4 } else { 10 };
            whole(start)?;
            let elements = Elements::of(&rest.from(start));
            elements.network(body);
            match subtype {
                0 => elements.speeds(body),
                _ => put!(body, " AP : {}", mac(rest, 4)?),
            }
            elements.complete()?;
        }
        1 | 3 => {
            whole(6)?;
            let (capability, status, id) = (little(0)?, little(2)?, little(4)?);
            let privacy = if capability & 0x10 != 0 { " PRIVACY " } else { "" };
            put!(body, " AID({:x}) :{privacy}: ", id & 0x3fff);
            numbered(body, &STATUSES, status);
            Elements::of(&rest.from(6)).complete()?;
        }
        4 => {
            let elements = Elements::of(rest);
            elements.network(body);
            elements.speeds(body);
            elements.complete()?;
        }
        5 | 8 => {
            whole(12)?;
            let capability = little(10)?;
            let elements = Elements::of(&rest.from(12));
            elements.network(body);
            elements.speeds(body);
            if subtype == 8 {
                put!(body, "{}", if capability & 1 != 0 { " ESS" } else { " IBSS" });
            }
            if let Some(channel) = elements.channel {
                put!(body, " CH: {channel}");
            }
            put!(body, "{}", if capability & 0x10 != 0 { ", PRIVACY" } else { "" });
            elements.complete()?;
        }
        _ => {}
    }
    Ok(())
}

/// Prints authentication, its end and that of an association, and actions.
fn parting(body: &mut Body, frame: &Piece, rest: &Piece, subtype: u8) -> Printed {
    let little = |at: usize| rest.be16(at).map(u16::swap_bytes);
    let whole = |len: usize| {
        rest.take(0, len)?;
        if rest.wire_len < len { Err(Cut) } else { Ok(()) }
    };
    match subtype {
        10 => {
            put!(body, ": ");
            numbered(body, &REASONS, little(0)?);
        }
        11 => {
            whole(6)?;
            authentication(body, little(0)?, little(2)?, little(4)?);
            Elements::of(&rest.from(6)).complete()?;
        }
        12 | 13 => {
            whole(2)?;
            if !body.options.link_header {
                put!(body, " ({})", mac(frame, 10)?);
            }
            put!(body, ": ");
            match subtype {
                12 => numbered(body, &REASONS, little(0)?),
                _ => action(body, rest.u8(0)?, rest.u8(1)?),
            }
        }
        _ => {}
    }
    Ok(())
}

fn authentication(body: &mut Body, algorithm: u16, step: u16, status: u16) {
    let names = ["Open System", "Shared Key", "EAP"];
    let name = names.get(usize::from(algorithm)).unwrap_or(&"Reserved");
    put!(body, " ({name})-{step:x}");
    let challenge = algorithm == 1 && matches!(step, 2 | 3);
    put!(body, "{}", if challenge { " [Challenge Text] " } else { ": " });
    if step % 2 == 1 {
        numbered(body, &STATUSES, status);
    }
}

fn action(body: &mut Body, category: u8, number: u8) {
    let (name, actions): (&str, &[&str]) = match category {
        0 => ("Spectrum Management ", &[]),
        1 => ("QoS ", &[]),
        2 => ("DLS ", &[]),
        3 => ("BA ", &["ADDBA Request", "ADDBA Response", "DELBA"]),
        7 => ("HT ", &["TxChWidth", "MIMOPwrSave"]),
        13 => ("MeshAction ", &["MeshLink", "HWMP", "Gate Announcement", "Congestion Control"]),
        14 => ("MultiohopAction ", &["Proxy Update", "Proxy Update Confirmation"]),
        127 => ("Vendor ", &[]),
        _ => ("", &[]),
    };
    match name {
        "" => put!(body, "Reserved({category}) "),
        name => put!(body, "{name}"),
    }
    match actions.get(usize::from(number)) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "Act#{number}"),
    }
}

/// Elements of a management frame that are shown, the first of each kind.
struct Elements<'a> {
    network: Option<&'a [u8]>,
    speeds: Option<&'a [u8]>,
    channel: Option<u8>,
    cut: bool,
}

impl<'a> Elements<'a> {
    fn of(rest: &Piece<'a>) -> Elements<'a> {
        let mut found = Elements { network: None, speeds: None, channel: None, cut: false };
        let mut at = 0;
        while at < rest.wire_len {
            let len = rest.u8(at + 1).map(usize::from);
            let value = len.and_then(|len| rest.take(at + 2, len));
            let Ok(value) = value else {
                found.cut = true;
                break;
            };
            match (rest.u8(at), value.len()) {
                (Ok(0), ..=32) if found.network.is_none() => found.network = Some(value),
                (Ok(1), 1..=16) if found.speeds.is_none() => found.speeds = Some(value),
                (Ok(0), 33..) | (Ok(1), 17..) => {
                    found.cut = true;
                    break;
                }
                (Ok(3), 1) if found.channel.is_none() => found.channel = Some(value[0]),
                _ => {}
            }
            at += 2 + value.len();
        }
        found
    }

    fn complete(&self) -> Printed {
        if self.cut { Err(Cut) } else { Ok(()) }
    }

    fn network(&self, body: &mut Body) {
        if let Some(name) = self.network {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            put!(body, " (");
            escape(&name[..end], body.out);
            put!(body, ")");
        }
    }

    fn speeds(&self, body: &mut Body) {
        let Some(speeds) = self.speeds else { return };
        for (at, speed) in speeds.iter().enumerate() {
            // The unit is half a megabit per second.
            let tenths = 5 * u32::from(speed & 0x7f);
            put!(body, "{}{}.{}", if at == 0 { " [" } else { " " }, tenths / 10, tenths % 10);
            put!(body, "{}", if speed & 0x80 != 0 { "*" } else { "" });
        }
        put!(body, " Mbit]");
    }
}
