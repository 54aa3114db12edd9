//! `decnet host`: addresses in the four forms of a DECnet Phase IV header. All fields are little-endian.

use super::host::sides;
use super::{Compat, Meaning, all, any};
use crate::ast::Side;
use fyke_frame::Condition;
use fyke_frame::condition::Width;

/// The EtherType of DECnet.
const DECNET: u32 = 0x6003;
/// Offset of the flags, or of the padding before them.
const FLAGS: u32 = 2;

/// Offsets of an address from the flags, in a short and in a long header.
struct Places {
    short: u32,
    long: u32,
}

const SOURCE: Places = Places { short: 3, long: 15 };
const DESTINATION: Places = Places { short: 1, long: 7 };

impl Compat {
    pub(super) fn decnet(&self, side: Side, address: u16) -> Meaning {
        let protocol = self.carries(DECNET)?;
        let end = |places: &Places| {
            let value = u32::from(address.swap_bytes());
            let field =
                |offset| self.equal(&self.network().plus(FLAGS + offset), Width::Two, value);
            let flags = self.network().plus(FLAGS);
            let plain = |kind| self.masked(&flags, Width::One, 0x07, kind);
            let padded = |kind: u32| self.masked(&flags, Width::Two, 0xff07, 0x8100 | kind);
            let forms: [(Condition, Condition); 4] = [
                (plain(0x02), field(places.short)),
                (padded(0x02), field(places.short + 1)),
                (plain(0x06), field(places.long)),
                (padded(0x06), field(places.long + 1)),
            ];
            any(forms.map(|(form, address)| all([form, address])))
        };
        Ok(all([protocol, sides(side, end(&SOURCE), end(&DESTINATION))]))
    }
}
