//! `llc`: frames with an 802.2 LLC header, and their kinds.

use super::layout::Kind;
use super::link::ATM_LLC;
use super::{Compat, Meaning, Refusal, all, not};
use crate::ast::LlcFrame;
use fyke_frame::Condition;
use fyke_frame::condition::Width;

/// Offset of the control field.
const CONTROL: u32 = 2;

impl Compat {
    pub(super) fn llc(&self, frame: LlcFrame) -> Meaning {
        let has_llc = match self.kind {
            Kind::Ethernet => {
                // All ones is no LLC header, but IPX right after the length.
                let bare_ipx = self.equal(&self.payload, Width::Two, 0xffff);
                all([self.has_length(), not(bare_ipx)])
            }
            Kind::SunAtm => self.atm_traffic(ATM_LLC),
            Kind::TokenRing | Kind::Fddi | Kind::Atm => Condition::Const(true),
            Kind::Wlan(_) => self.wlan_data(),
            _ => {
                let title = self.title;
                return Err(Refusal::new(format!("\"llc\" is not known for {title}")));
            }
        };
        let place = self.payload.plus(CONTROL);
        let control = |mask, value| self.masked(&place, Width::One, mask, value);
        let kind = match frame {
            LlcFrame::Any => None,
            LlcFrame::Information => Some(control(0x01, 0)),
            LlcFrame::Supervisory(None) => Some(control(0x03, 0x01)),
            LlcFrame::Supervisory(Some(kind)) => Some(control(0x0f, kind.into())),
            LlcFrame::Unnumbered(None) => Some(control(0x03, 0x03)),
            LlcFrame::Unnumbered(Some(kind)) => Some(control(0xef, kind.into())),
        };
        Ok(all([has_llc].into_iter().chain(kind)))
    }
}
