//! SCTP: the chunks of a packet. Source: RFC 9260.

use crate::body::{Body, Flow, Step, put};
use crate::ip;
use crate::text::{Cut, Piece, Printed, name_of};

const CHUNKS: &[(u8, &str)] = &[
    (0, "DATA"),
    (1, "INIT"),
    (2, "INIT ACK"),
    (3, "SACK"),
    (4, "HB REQ"),
    (5, "HB ACK"),
    (6, "ABORT"),
    (7, "SHUTDOWN"),
    (8, "SHUTDOWN ACK"),
    (9, "OP ERR"),
    (10, "COOKIE ECHO"),
    (11, "COOKIE ACK"),
    (12, "ECN ECHO"),
    (13, "ECN CWR"),
    (14, "SHUTDOWN COMPLETE"),
    (0xc0, "FOR CUM TSN"),
];

const PAYLOADS: &[(u32, &str)] = &[
    (1, "ISDN Q.921"),
    (2, "M2UA"),
    (3, "M3UA"),
    (4, "SUA"),
    (5, "M2PA"),
    (6, "V5.2"),
    (7, "H.248"),
    (8, "BICC"),
    (9, "TALI"),
    (10, "DUA"),
    (11, "ASAP"),
    (12, "ENRP"),
    (13, "H.323"),
    (14, "Q.IPC"),
    (15, "SIMCO"),
    (16, "DDPSC"),
    (17, "DDPSSC"),
    (18, "S1AP"),
    (19, "RUA"),
    (20, "HNBAP"),
    (21, "ForCES HP"),
    (22, "ForCES MP"),
    (23, "ForCES LP"),
    (24, "SBc-AP"),
    (25, "NBAP"),
    (27, "X2AP"),
];

pub(crate) fn print(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let packet = body.whole(layer);
    if packet.wire_len < 12 {
        put!(body, "truncated-sctp - {} bytes missing!", 12 - packet.wire_len);
        return Ok(Flow::End);
    }
    packet.take(0, 12)?;
    let ends = [packet.be16(0)?, packet.be16(2)?];
    ip::ends(body, index, ends[0], ends[1]);
    put!(body, "sctp");
    let forces = [(6704, "[ForCES HP]"), (6705, "[ForCES MP]"), (6706, "[ForCES LP]")];
    let known = ends.iter().find_map(|port| name_of(&forces, *port));
    put!(body, "{}", known.unwrap_or_default());
    let separator = if body.options.verbose > 1 { "\n\t" } else { " (" };
    let (mut at, mut number) = (12, 1);
    while at < packet.wire_len {
        put!(body, "{separator}{number}) ");
        if packet.wire_len - at < 4 {
            put!(body, "[chunk descriptor cut off at end of packet]");
            break;
        }
        let len = usize::from(packet.be16(at + 2)?);
        if len < 4 {
            put!(body, "[Bad chunk length {len}, < size of chunk descriptor]");
            break;
        }
        if len > packet.wire_len - at {
            put!(body, "[Bad chunk length {len}, > remaining data in packet]");
            break;
        }
        chunk(body, &Piece { data: packet.take(at, len)?, wire_len: len })?;
        at += len.next_multiple_of(4);
        number += 1;
    }
    Ok(Flow::End)
}

fn chunk(body: &mut Body, chunk: &Piece) -> Printed {
    let (kind, flags) = (chunk.u8(0)?, chunk.u8(1)?);
    match name_of(CHUNKS, kind) {
        Some(name) => put!(body, "[{name}] "),
        None => put!(body, "[Unknown chunk type: {kind:#x}] "),
    }
    let fixed_len = match kind {
        0 => 16,
        1 | 2 => 20,
        3 => 16,
        _ => 4,
    };
    if chunk.wire_len < fixed_len {
        put!(body, "bogus chunk length {}]", chunk.wire_len);
        return Ok(());
    }
    match kind {
        0 => {
            for (bit, mark) in [(4, "(U)"), (2, "(B)"), (1, "(E)")] {
                put!(body, "{}", if flags & bit != 0 { mark } else { "" });
            }
            put!(body, "{}", if flags & 7 != 0 { " " } else { "" });
            put!(body, "[TSN: {}] [SID: {}] ", chunk.be32(4)?, chunk.be16(8)?);
            put!(body, "[SSEQ {}] ", chunk.be16(10)?);
            let payload = chunk.be32(12)?;
            match name_of(PAYLOADS, payload) {
                Some(name) => put!(body, "[PPID {name}] "),
                None => put!(body, "[PPID {payload:#x}] "),
            }
        }
        1 | 2 => {
            put!(body, "[init tag: {}] [rwnd: {}] ", chunk.be32(4)?, chunk.be32(8)?);
            put!(body, "[OS: {}] [MIS: {}] ", chunk.be16(12)?, chunk.be16(14)?);
            put!(body, "[init TSN: {}] ", chunk.be32(16)?);
        }
        3 => {
            put!(body, "[cum ack {}] [a_rwnd {}] ", chunk.be32(4)?, chunk.be32(8)?);
            put!(body, "[#gap acks {}] [#dup tsns {}] ", chunk.be16(12)?, chunk.be16(14)?);
        }
        _ => {}
    }
    Ok(())
}
