//! OSI protocols over LLC: `iso proto`, `isis proto` and the names that stand for them.

use super::{Compat, Meaning, all, equal};
use fyke_frame::condition::Width;

/// The LLC service access point of OSI network protocols.
const SAP_OSI: u32 = 0xfe;
/// The network protocol identifier of IS-IS.
pub(crate) const ISIS: u32 = 0x83;
/// Offset of the type in an IS-IS packet.
const ISIS_TYPE: u32 = 4;

impl Compat {
    /// An OSI network protocol by its identifier.
    pub(super) fn osi(&self, identifier: u32) -> Meaning {
        Ok(all([self.carries(SAP_OSI)?, equal(self.after_llc(), Width::One, identifier)]))
    }

    /// An IS-IS packet by its type.
    pub(super) fn isis(&self, kind: u32) -> Meaning {
        let place = self.after_llc().wrapping_add(ISIS_TYPE);
        Ok(all([self.osi(ISIS)?, equal(place, Width::One, kind)]))
    }

    /// Where the network header starts behind an LLC header without SNAP.
    fn after_llc(&self) -> u32 {
        self.network().wrapping_add(self.llc_len)
    }
}
