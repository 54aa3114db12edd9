//! OSI protocols over LLC: `iso proto`, `isis proto` and the names for them.

use super::layout::Kind;
use super::link::SAP_OSI;
use super::{Compat, Meaning, all};
use fyke_frame::condition::Width;

/// The network protocol identifier of IS-IS.
pub(crate) const ISIS: u32 = 0x83;
/// Offset of the type in an IS-IS packet.
const ISIS_TYPE: u32 = 4;

/// Frame relay has the identifier after an unnumbered-information control byte.
const UNNUMBERED: u32 = 0x0300;

impl Compat {
    /// An OSI network protocol by its identifier.
    pub(super) fn osi(&self, identifier: u32) -> Meaning {
        if self.kind == Kind::FrameRelay {
            let place = self.link_header.plus(2);
            return Ok(self.equal(&place, Width::Two, UNNUMBERED | identifier));
        }
        let (carried, skipped) = match self.kind {
            Kind::Hdlc => (SAP_OSI << 8 | SAP_OSI, 1),
            _ => (SAP_OSI, 0),
        };
        let place = self.network_without_snap().plus(skipped);
        Ok(all([self.carries(carried)?, self.equal(&place, Width::One, identifier)]))
    }

    /// An IS-IS packet by its type.
    pub(super) fn isis(&self, kind: u32) -> Meaning {
        let place = self.network_without_snap().plus(ISIS_TYPE);
        Ok(all([self.osi(ISIS)?, self.equal(&place, Width::One, kind)]))
    }
}
