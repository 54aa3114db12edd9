//! Records of multicast groups and their sources, which IGMPv3 and MLDv2 have in common but for the
//! length of an address. Source: RFC 3376, 4.2; RFC 3810, 5.2.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed, name_of};

/// The differences of the two protocols.
pub(super) struct Membership {
    /// Length of an address.
    pub(super) address_len: usize,
    /// Prefix of a record of an unknown kind.
    pub(super) unknown: &'static str,
    /// The text of the address at an offset.
    pub(super) address: fn(&Piece, usize) -> Result<String, Cut>,
}

impl Membership {
    /// Prints the records of a report.
    pub(super) fn report(&self, body: &mut Body, message: &Piece) -> Printed {
        const KINDS: &[(u8, &str)] =
            &[(1, "is_in"), (2, "is_ex"), (3, "to_in"), (4, "to_ex"), (5, "allow"), (6, "block")];
        let record_len = 4 + self.address_len;
        let count = message.be16(6)?;
        put!(body, ", {count} group record(s)");
        if body.options.verbose == 0 {
            return Ok(());
        }
        let mut at = 8;
        for _ in 0..count {
            if message.wire_len < at + record_len {
                put!(body, " [invalid number of groups]");
                return Ok(());
            }
            put!(body, " [gaddr {}", (self.address)(message, at + 4)?);
            let kind = message.u8(at)?;
            match name_of(KINDS, kind) {
                Some(name) => put!(body, " {name}"),
                None => put!(body, "  [{}-#{kind}]", self.unknown),
            }
            let source_count = usize::from(message.be16(at + 2)?);
            self.sources(body, message, at + record_len, source_count)?;
            put!(body, "]");
            at += record_len + self.address_len * source_count;
        }
        Ok(())
    }

    /// Prints the sources of a group.
    pub(super) fn sources(
        &self,
        body: &mut Body,
        message: &Piece,
        at: usize,
        count: usize,
    ) -> Printed {
        if message.wire_len < at + self.address_len * count {
            put!(body, " [invalid number of sources {count}]");
        } else if body.options.verbose > 1 {
            put!(body, " {{");
            for number in 0..count {
                put!(body, " {}", (self.address)(message, at + self.address_len * number)?);
            }
            put!(body, " }}");
        } else {
            put!(body, ", {count} source(s)");
        }
        Ok(())
    }
}
