//! Control messages of PPTP, a list of fields for each. Source: RFC 2637.

use crate::body::{Body, put};
use crate::text::{Piece, Printed, name_of, until_zero};

/// The value that every message contains.
const MAGIC_COOKIE: u32 = 0x1a2b_3c4d;
/// Length of the header that all messages have.
const HEADER_LEN: usize = 12;

/// Format of a field; the number of bytes follows from it.
#[derive(Clone, Copy)]
enum Field {
    /// A number of two bytes.
    Short(&'static str),
    /// A number of four bytes.
    Long(&'static str),
    /// A number of four bytes in hexadecimal.
    Mask(&'static str),
    /// A major and a minor number.
    Version,
    /// Two bytes that must be zero.
    Reserved,
    /// One byte that must be zero.
    ReservedByte,
    /// Letters of the bits that are set, the first bit last.
    Bits(&'static str, [&'static str; 2]),
    /// A name of a number of four bytes.
    Named(&'static str, &'static [(u32, &'static str)]),
    /// The code of one byte, with its name if verbose.
    Code(&'static str, &'static [(u32, &'static str)]),
    /// Text of a fixed length.
    Text(&'static str, usize),
    /// Text of 64 bytes, of which the number at an offset states how many are used.
    Number(&'static str, usize),
}

use Field::{Bits, Code, Long, Mask, Named, Number, Reserved, ReservedByte, Short, Text, Version};

const CHANNEL: &[(u32, &str)] = &[
    (1, "Successful channel establishment"),
    (2, "General error"),
    (3, "Command channel already exists"),
    (4, "Requester is not authorized to establish a command channel"),
    (5, "The protocol version of the requester is not supported"),
];
const ECHO: &[(u32, &str)] = &[(1, "OK"), (2, "General Error")];
const OUTGOING: &[(u32, &str)] = &[
    (1, "Connected"),
    (2, "General Error"),
    (3, "No Carrier"),
    (4, "Busy"),
    (5, "No Dial Tone"),
    (6, "Time-out"),
    (7, "Do Not Accept"),
];
const INCOMING: &[(u32, &str)] = &[(1, "Connect"), (2, "General Error"), (3, "Do Not Accept")];
const DISCONNECT: &[(u32, &str)] =
    &[(1, "Lost Carrier"), (2, "General Error"), (3, "Admin Shutdown"), (4, "Request")];
const REASONS: &[(u32, &str)] = &[(1, "None"), (2, "Stop-Protocol"), (3, "Stop-Local-Shutdown")];
const ERROR: Field = Code(
    "ERR_CODE",
    &[
        (0, "None"),
        (1, "Not-Connected"),
        (2, "Bad-Format"),
        (3, "Bad-Value"),
        (4, "No-Resource"),
        (5, "Bad-Call-ID"),
        (6, "PAC-Error"),
    ],
);
const CALL: Field = Short("CALL_ID");
const PEER_CALL: Field = Short("PEER_CALL_ID");
const WINDOW: Field = Short("RECV_WIN");
const DELAY: Field = Short("PROC_DELAY");
const BEARER: Field = Named("BEARER_TYPE", &[(1, "A"), (2, "D"), (3, "Any")]);
const FRAMING: Field = Named("FRAME_TYPE", &[(1, "A"), (2, "S"), (3, "E")]);
const SPEED: Field = Long("CONN_SPEED");
const CHANNEL_ID: Field = Long("PHY_CHAN_ID");
const SUB_ADDRESS: Field = Text("SUB_ADDR", 64);

/// Capabilities and names that both messages of the connection set-up end with.
const SELF: [Field; 6] = [
    Bits("FRAME_CAP", ["A", "S"]),
    Bits("BEARER_CAP", ["D", "A"]),
    Short("MAX_CHAN"),
    Short("FIRM_REV"),
    Text("HOSTNAME", 64),
    Text("VENDOR", 64),
];

/// Names and fields of the messages, by number.
const MESSAGES: [(&str, &[&[Field]]); 16] = [
    ("NOT_DEFINED", &[]),
    ("SCCRQ", &[&[Version, Reserved], &SELF]),
    ("SCCRP", &[&[Version, Code("RESULT_CODE", CHANNEL), ERROR], &SELF]),
    ("StopCCRQ", &[&[Code("REASON", REASONS), ReservedByte, Reserved]]),
    ("StopCCRP", &[&[Code("RESULT_CODE", ECHO), ERROR, Reserved]]),
    ("ECHORQ", &[&[Long("ID")]]),
    ("ECHORP", &[&[Long("ID"), Code("RESULT_CODE", ECHO), ERROR, Reserved]]),
    (
        "OCRQ",
        &[
            &[CALL, Short("CALL_SER_NUM"), Long("MIN_BPS"), Long("MAX_BPS"), BEARER, FRAMING],
            &[WINDOW, DELAY, Short("PHONE_NO_LEN"), Reserved, Number("PHONE_NO", 24)],
            &[SUB_ADDRESS],
        ],
    ),
    (
        "OCRP",
        &[
            &[CALL, PEER_CALL, Code("RESULT_CODE", OUTGOING), ERROR, Short("CAUSE_CODE")],
            &[SPEED, WINDOW, DELAY, CHANNEL_ID],
        ],
    ),
    (
        "ICRQ",
        &[
            &[CALL, Short("CALL_SER_NUM"), BEARER, CHANNEL_ID],
            &[Short("DIALED_NO_LEN"), Short("DIALING_NO_LEN")],
            &[Number("DIALED_NO", 12), Number("DIALING_NO", 14), SUB_ADDRESS],
        ],
    ),
    (
        "ICRP",
        &[&[CALL, PEER_CALL, Code("RESULT_CODE", INCOMING), ERROR], &[WINDOW, DELAY, Reserved]],
    ),
    ("ICCN", &[&[PEER_CALL, Reserved, SPEED, WINDOW, DELAY, FRAMING]]),
    ("CCRQ", &[&[CALL, Reserved]]),
    (
        "CDN",
        &[
            &[CALL, Code("RESULT_CODE", DISCONNECT), ERROR, Short("CAUSE_CODE"), Reserved],
            &[Text("CALL_STATS", 128)],
        ],
    ),
    (
        "WEN",
        &[
            &[PEER_CALL, Reserved, Long("CRC_ERR"), Long("FRAMING_ERR"), Long("HARDWARE_OVERRUN")],
            &[Long("BUFFER_OVERRUN"), Long("TIMEOUT_ERR"), Long("ALIGN_ERR")],
        ],
    ),
    ("SLI", &[&[PEER_CALL, Reserved, Mask("SEND_ACCM"), Mask("RECV_ACCM")]]),
];

/// Prints a control message.
pub(super) fn print(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "pptp";
    put!(body, ": pptp");
    let verbose = body.options.verbose > 0;
    if verbose {
        put!(body, " Length={}", packet.be16(0)?);
        let names = [(1, " CTRL-MSG"), (2, " MGMT-MSG")];
        put!(body, "{}", name_of(&names, packet.be16(2)?).unwrap_or(" UNKNOWN-MSG-TYPE"));
    }
    let cookie = packet.be32(4)?;
    if cookie != MAGIC_COOKIE {
        put!(body, " UNEXPECTED Magic-Cookie!!({cookie:08x})");
    }
    if verbose || cookie != MAGIC_COOKIE {
        put!(body, " Magic-Cookie={cookie:08x}");
    }
    let kind = packet.be16(8)?;
    let Some((name, parts)) = MESSAGES.get(usize::from(kind)) else {
        put!(body, " UNKNOWN_CTRL_MSGTYPE({kind})");
        reserved(body, packet.be16(10)?);
        return Ok(());
    };
    put!(body, " CTRL_MSGTYPE={name}");
    reserved(body, packet.be16(10)?);
    let message = packet.from(HEADER_LEN);
    let mut at = 0;
    for field in parts.iter().copied().flatten() {
        at += print_field(body, &message, at, *field)?;
    }
    Ok(())
}

fn reserved(body: &mut Body, value: u16) {
    if value != 0 {
        put!(body, " [ERROR: reserved={value} must be zero]");
    }
}

/// Prints a field and returns its length.
fn print_field(
    body: &mut Body,
    message: &Piece,
    at: usize,
    field: Field,
) -> Result<usize, crate::text::Cut> {
    Ok(match field {
        Short(name) => {
            put!(body, " {name}({})", message.be16(at)?);
            2
        }
        Long(name) => {
            put!(body, " {name}({})", message.be32(at)?);
            4
        }
        Mask(name) => {
            put!(body, " {name}({:#010x})", message.be32(at)?);
            4
        }
        Version => {
            put!(body, " PROTO_VER({}.{})", message.u8(at)?, message.u8(at + 1)?);
            2
        }
        Reserved => {
            reserved(body, message.be16(at)?);
            2
        }
        ReservedByte => {
            reserved(body, message.u8(at)?.into());
            1
        }
        Bits(name, letters) => {
            // The bearer's letters are in the other order than its bits.
            let (first, second) = if name == "BEARER_CAP" { (2, 1) } else { (1, 2) };
            let value = message.be32(at)?;
            put!(body, " {name}(");
            put!(body, "{}", if value & first != 0 { letters[0] } else { "" });
            put!(body, "{})", if value & second != 0 { letters[1] } else { "" });
            4
        }
        Named(name, table) => {
            put!(body, " {name}({})", name_of(table, message.be32(at)?).unwrap_or("?"));
            4
        }
        Code(name, table) => {
            let code = message.u8(at)?;
            put!(body, " {name}({code}");
            if body.options.verbose > 0 {
                put!(body, ":{}", name_of(table, code.into()).unwrap_or("?"));
            }
            put!(body, ")");
            1
        }
        Text(name, len) => {
            put!(body, " {name}(");
            until_zero(message, at, len, body.out)?;
            put!(body, ")");
            len
        }
        Number(name, len_at) => {
            put!(body, " {name}(");
            let len = usize::from(message.be16(len_at)?).min(64);
            until_zero(message, at, len, body.out)?;
            put!(body, ")");
            64
        }
    })
}
