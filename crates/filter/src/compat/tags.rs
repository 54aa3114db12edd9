//! `vlan`, `mpls`, `pppoed` and `pppoes`: after each but `pppoed`, everything that follows in the text is looked for
//! behind that header.

use super::{Compat, Layer, Meaning, Refusal, all, any};
use fyke_frame::condition::{Compare, Width};
use fyke_frame::ethertype;

/// Length of a VLAN tag, and of an MPLS label.
const TAG_LEN: u32 = 4;
/// Length of a PPPoE header, after which the PPP protocol number comes.
const PPPOE_LEN: u32 = 6;
/// Length of the PPP protocol number.
const PPP_LEN: u32 = 2;
/// PPP's number of MPLS.
const PPP_MPLS: u32 = 0x0281;
/// Largest label.
const MAX_LABEL: u32 = 0xf_ffff;

impl Compat {
    pub(super) fn vlan(&mut self, identifier: Option<u16>) -> Meaning {
        if self.labels > 0 {
            return Err(Refusal::new("\"vlan\" cannot come after \"mpls\""));
        }
        if !self.is_ethernet() {
            let title = self.title();
            return Err(Refusal::new(format!("\"vlan\" needs Ethernet, but this is {title}")));
        }
        let tagged = any([
            self.carries(ethertype::VLAN.into())?,
            self.carries(ethertype::QINQ.into())?,
            self.carries(ethertype::QINQ_OLD.into())?,
        ]);
        let matches = identifier.map(|identifier| {
            self.network_test(0, Width::Two, 0x0fff, Compare::Equal(identifier.into()))
        });
        self.tags = self.tags.wrapping_add(TAG_LEN);
        self.payload = self.payload.wrapping_add(TAG_LEN);
        Ok(all([tagged].into_iter().chain(matches)))
    }

    pub(super) fn mpls(&mut self, label: Option<u32>) -> Meaning {
        let labelled = if self.labels > 0 {
            // The label before this one was not the last.
            let before = self.network().wrapping_sub(TAG_LEN);
            super::test(before.wrapping_add(2), Width::One, 0x01, Compare::Equal(0))
        } else if matches!(self.layer, Layer::Ppp) {
            self.carries(PPP_MPLS)?
        } else if self.is_ethernet() {
            self.carries(ethertype::MPLS.into())?
        } else {
            let title = self.title();
            return Err(Refusal::new(format!(
                "\"mpls\" needs Ethernet or PPP, but this is {title}"
            )));
        };
        let matches = match label {
            Some(label) if label > MAX_LABEL => {
                return Err(Refusal::new(format!(
                    "the MPLS label {label} is more than {MAX_LABEL}"
                )));
            }
            Some(label) => {
                Some(self.network_test(0, Width::Four, 0xffff_f000, Compare::Equal(label << 12)))
            }
            None => None,
        };
        self.labels = self.labels.wrapping_add(TAG_LEN);
        Ok(all([labelled].into_iter().chain(matches)))
    }

    pub(super) fn pppoe_discovery(&self) -> Meaning {
        self.carries(ethertype::PPPOE_DISCOVERY.into())
    }

    pub(super) fn pppoe_session(&mut self, session: Option<u16>) -> Meaning {
        let in_session = self.carries(ethertype::PPPOE_SESSION.into())?;
        let matches = session.map(|session| {
            self.network_test(0, Width::Four, 0xffff, Compare::Equal(session.into()))
        });
        self.link_header = self.network().wrapping_add(PPPOE_LEN);
        self.layer = Layer::Ppp;
        self.payload = self.link_header.wrapping_add(PPP_LEN);
        self.tags = 0;
        self.labels = 0;
        self.llc_len = 0;
        Ok(all([in_session].into_iter().chain(matches)))
    }
}
