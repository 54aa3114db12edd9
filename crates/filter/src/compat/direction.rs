//! `inbound`, `outbound` and `ifindex`: only where the link header itself says so, since a file has no metadata.

use super::{Compat, Meaning, Refusal, equal, not};
use fyke_frame::LinkType;
use fyke_frame::condition::Width;

/// The packet type "sent by us" of Linux cooked headers.
const SENT: u32 = 4;

impl Compat {
    pub(super) fn direction(&self, outbound: bool) -> Meaning {
        let sent = if self.is_outer(LinkType::LINUX_SLL) {
            equal(0, Width::Two, SENT)
        } else if self.is_outer(LinkType::LINUX_SLL2) {
            equal(10, Width::One, SENT)
        } else {
            let title = self.title();
            return Err(Refusal::new(format!(
                "\"inbound\" and \"outbound\" are not supported on {title} when reading a file"
            ))
            .with_hint("the file does not say which way a packet went"));
        };
        Ok(if outbound { sent } else { not(sent) })
    }

    pub(super) fn ifindex(&self, index: u32) -> Meaning {
        if self.is_outer(LinkType::LINUX_SLL2) {
            return Ok(equal(4, Width::Four, index));
        }
        let title = self.title();
        Err(Refusal::new(format!("\"ifindex\" is not supported on {title} when reading a file")))
    }
}
