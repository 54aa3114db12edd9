//! Circuits and signalling: `vpi`, `vci`, `lane` and the named circuits of ATM, the fields of signalling system 7, and
//! the fields of packet-filter logs.
//!
//! Source: ATM UNI 3.1, Q.703, Q.704; the header of OpenBSD's pflog; the code of libpcap 1.10.3. There, `vpi != 5`
//! means the same as `vpi = 5`.

use super::layout::Kind;
use super::place::{Place, Prologue, binary, load};
use super::{Compat, Meaning, Refusal, all, any, not};
use crate::ast::{Comparison, Field, LogField, Signal};
use fyke_frame::Condition;
use fyke_frame::condition::{Compare, Expr, Operator, Width};

/// Offsets in a SunATM header.
const VPI: u32 = 1;
const VCI: u32 = 2;
const ATM_PAYLOAD: u32 = 4;
/// Offset of the type of a signalling message after the header.
const MESSAGE_TYPE: u32 = 5;
/// LAN emulation, as a kind of traffic; an Ethernet header follows two bytes later.
const LANE: u32 = 1;
const LANE_LEN: u32 = 2;
/// Types of messages: call proceeding, set-up, connect, its acknowledgement, release, release
/// complete; the last is tested first.
const MESSAGES: [u32; 6] = [0x5a, 0x4d, 0x0f, 0x07, 0x05, 0x02];
/// Bits of the length indicator of signalling system 7, of the usual and of high-speed links.
const LENGTH: u32 = 0x3f;
const LENGTH_HIGH: u32 = 0xff80;
/// Additional offset of fields on high-speed links.
const HIGH_SPEED: u32 = 3;
/// Bits of a point code, which is spread over bytes of the other byte order.
const ORIGIN: u32 = 0x00c0_ff0f;
const DESTINATION: u32 = 0xff3f_0000;

/// Length of names in packet-filter logs, the final zero included.
const NAME_LEN: usize = 16;

impl Compat {
    /// A named circuit, or a kind of unit.
    pub(super) fn signal(&mut self, signal: Signal) -> Meaning {
        use Signal as S;
        let ss7 =
            matches!(signal, S::Fisu | S::Lssu | S::Msu | S::HighFisu | S::HighLssu | S::HighMsu);
        match self.kind {
            Kind::Ss7(first) if ss7 => return Ok(self.unit(signal, first)),
            _ if ss7 || !self.atm => {
                let (what, title) = (signal.text(), self.title);
                let needed = if ss7 { "SS7 MTP2" } else { "raw ATM" };
                return Err(Refusal::new(format!(
                    "\"{what}\" needs {needed}, but this is {title}"
                )));
            }
            _ => {}
        }
        let on_vpi_0 = |this: &Compat, vci| {
            let [path, channel] = this.circuit();
            all([this.equal(&path, Width::One, 0), this.equal(&channel, Width::Two, vci)])
        };
        Ok(match signal {
            S::Lane => {
                let lane = self.atm_traffic(LANE);
                self.enter(Kind::Ethernet, "Ethernet", Place::at(ATM_PAYLOAD + LANE_LEN));
                // A part after a header of variable length stays so.
                self.link_type.offset = self.link_header.offset + 12;
                self.payload.offset = self.link_header.offset + 14;
                (self.network, self.network_without_snap) = (0, 3);
                lane
            }
            S::Metac => on_vpi_0(self, 1),
            S::Bcc => on_vpi_0(self, 2),
            S::Oamf4sc => on_vpi_0(self, 3),
            S::Oamf4ec => on_vpi_0(self, 4),
            S::Sc => on_vpi_0(self, 5),
            S::Ilmic => on_vpi_0(self, 16),
            S::Oam | S::Oamf4 => {
                let [path, channel] = self.circuit();
                let either = any([3, 4].map(|vci| self.equal(&channel, Width::Two, vci)));
                all([self.equal(&path, Width::One, 0), either])
            }
            S::Connectmsg => all([on_vpi_0(self, 5), self.connection_message(&MESSAGES)]),
            // Libpcap leaves the acknowledgement out too.
            _ => {
                let others: Vec<_> = MESSAGES.into_iter().filter(|kind| *kind != 0x0f).collect();
                all([on_vpi_0(self, 1), self.connection_message(&others)])
            }
        })
    }

    /// Places of the virtual path and channel.
    fn circuit(&self) -> [Place; 2] {
        [self.link_header.plus(VPI), self.link_header.plus(VCI)]
    }

    /// The kind of traffic in the low bits of the header's first byte.
    pub(super) fn atm_traffic(&self, kind: u32) -> Condition {
        self.masked(&self.link_header, Width::One, 0x0f, kind)
    }

    fn connection_message(&self, kinds: &[u32]) -> Condition {
        let place = self.link_header.plus(ATM_PAYLOAD + MESSAGE_TYPE);
        any(kinds.iter().map(|&kind| self.equal(&place, Width::One, kind)))
    }

    /// A kind of signal unit, distinguished by its length.
    fn unit(&self, signal: Signal, first: u32) -> Condition {
        use Signal as S;
        let high = matches!(signal, S::HighFisu | S::HighLssu | S::HighMsu);
        let (place, width, mask, two) = match high {
            true => (Place::at(first + 2), Width::Two, LENGTH_HIGH, 0x0100),
            false => (Place::at(first), Width::One, LENGTH, 2),
        };
        let most = |value| self.test(&place, width, mask, Compare::Range(0, value));
        match signal {
            S::Fisu | S::HighFisu => self.masked(&place, width, mask, 0),
            S::Lssu | S::HighLssu => all([not(most(0)), most(two)]),
            _ => not(most(two)),
        }
    }

    /// A field compared with a number.
    pub(super) fn field(&self, field: Field, comparison: Comparison, value: u32) -> Meaning {
        let (place, width, mask, value) = match field {
            Field::Vpi | Field::Vci if !self.atm => {
                return Err(Refusal::new(format!(
                    "\"{}\" needs raw ATM, but this is {}",
                    field.text(),
                    self.title
                )));
            }
            Field::Vpi => (self.link_header.plus(VPI), Width::One, u32::MAX, value),
            Field::Vci => (self.link_header.plus(VCI), Width::Two, u32::MAX, value),
            _ => self.ss7_field(field, value)?,
        };
        let test = |compare| self.test(&place, width, mask & width.full_mask(), compare);
        let most = |value| test(Compare::Range(0, value));
        Ok(match comparison {
            Comparison::Equal | Comparison::NotEqual => test(Compare::Equal(value)),
            Comparison::Greater => not(most(value)),
            Comparison::LessOrEqual => most(value),
            Comparison::GreaterOrEqual => test(Compare::Range(value, u32::MAX)),
            Comparison::Less => not(test(Compare::Range(value, u32::MAX))),
        })
    }

    fn ss7_field(&self, field: Field, value: u32) -> Result<(Place, Width, u32, u32), Refusal> {
        let Kind::Ss7(first) = self.kind else {
            let (what, title) = (field.text(), self.title);
            return Err(Refusal::new(format!("\"{what}\" needs SS7, but this is {title}")));
        };
        let limit = match field {
            Field::Sio | Field::HighSio => 255,
            Field::Sls | Field::HighSls => 15,
            _ => 16_383,
        };
        if value > limit {
            let what = field.text();
            return Err(Refusal::new(format!("{value} is too big for \"{what}\": 0 to {limit}")));
        }
        let high =
            matches!(field, Field::HighSio | Field::HighOpc | Field::HighDpc | Field::HighSls);
        let at = |offset: u32| Place::at(first + offset + if high { HIGH_SPEED } else { 0 });
        Ok(match field {
            Field::Sio | Field::HighSio => (at(1), Width::One, u32::MAX, value),
            Field::Opc | Field::HighOpc => {
                let spread = (value & 0x3c00) >> 10 | (value & 0x03fc) << 6 | (value & 3) << 22;
                (at(2), Width::Four, ORIGIN, spread)
            }
            Field::Dpc | Field::HighDpc => {
                (at(2), Width::Four, DESTINATION, (value & 0xff) << 24 | (value & 0x3f00) << 8)
            }
            _ => (at(5), Width::One, 0xf0, value << 4),
        })
    }

    /// A number in a packet-filter log.
    pub(super) fn log_number(&self, field: LogField, value: u32) -> Meaning {
        self.needs_log(field)?;
        let (offset, width) = match field {
            LogField::Action => (2, Width::One),
            LogField::Reason => (3, Width::One),
            LogField::Rule => (36, Width::Four),
            _ => (40, Width::Four),
        };
        Ok(self.equal(&self.link_header.plus(offset), width, value))
    }

    /// A prefix of a name in a packet-filter log: `on em` matches `em0` too.
    pub(super) fn log_name(&self, field: LogField, name: &str) -> Meaning {
        self.needs_log(field)?;
        if name.len() >= NAME_LEN {
            let limit = NAME_LEN - 1;
            return Err(Refusal::new(format!("\"{name}\" has more than {limit} characters")));
        }
        let offset = if field == LogField::Interface { 4 } else { 20 };
        Ok(self.bytes(&self.link_header.plus(offset), name.as_bytes()))
    }

    fn needs_log(&self, field: LogField) -> Result<(), Refusal> {
        match self.kind {
            Kind::PacketLog => Ok(()),
            _ => Err(Refusal::new(format!(
                "\"{}\" needs a packet-filter log, but this is {}",
                field.text(),
                self.title
            ))),
        }
    }
}

/// The length of a packet-filter log header: its first byte, rounded up to a multiple of four.
pub(super) fn log_len() -> Place {
    let up = binary(Operator::Add, load(None, 0, Width::One), Expr::Const(3));
    Place::after(binary(Operator::And, up, Expr::Const(!3)), Prologue::Payload)
}
