//! `llc`: frames with an 802.2 LLC header, and the kinds of them.

use super::{Compat, Meaning, Refusal, all, equal, not, test};
use crate::ast::LlcFrame;
use fyke_frame::condition::{Compare, Width};

/// Offset of the control field.
const CONTROL: u32 = 2;
/// Largest 802.3 length.
const MAX_LENGTH: u32 = 1500;

impl Compat {
    pub(super) fn llc(&self, frame: LlcFrame) -> Meaning {
        if !self.is_ethernet() {
            let title = self.title();
            return Err(Refusal::new(format!("\"llc\" needs Ethernet, but this is {title}")));
        }
        let length = Compare::Range(0, MAX_LENGTH);
        let has_length = test(self.payload.wrapping_sub(2), Width::Two, 0xffff, length);
        // All ones is no LLC header, but IPX right behind the length.
        let llc = not(equal(self.payload, Width::Two, 0xffff));
        let control = |mask, value| {
            let place = self.payload.wrapping_add(CONTROL);
            test(place, Width::One, mask, Compare::Equal(value))
        };
        let kind = match frame {
            LlcFrame::Any => None,
            LlcFrame::Information => Some(control(0x01, 0)),
            LlcFrame::Supervisory(None) => Some(control(0x03, 0x01)),
            LlcFrame::Supervisory(Some(kind)) => Some(control(0x0f, kind.into())),
            LlcFrame::Unnumbered(None) => Some(control(0x03, 0x03)),
            LlcFrame::Unnumbered(Some(kind)) => Some(control(0xef, kind.into())),
        };
        Ok(all([has_length, llc].into_iter().chain(kind)))
    }
}
