//! Data of earlier frames that a line needs: TCP's first sequence numbers, the two ends of key
//! exchanges, remote calls that wait for their reply. Each part has a limit.

use crate::sequence::Sequences;
use std::net::IpAddr;

/// Key exchanges that are remembered; tcpdump remembers as many, so the same ones are forgotten.
const EXCHANGES: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) sequences: Sequences,
    pub(crate) exchanges: Exchanges,
}

/// Key exchanges: the cookie of the initiator, its address, the other address.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    known: Vec<([u8; 8], IpAddr, IpAddr)>,
    next: usize,
}

impl Exchanges {
    /// Remembers the first message of an exchange.
    pub(crate) fn begin(&mut self, cookie: [u8; 8], ends: (IpAddr, IpAddr)) {
        let entry = (cookie, ends.0, ends.1);
        match self.known.get_mut(self.next) {
            Some(old) => *old = entry,
            None => self.known.push(entry),
        }
        self.next = (self.next + 1) % EXCHANGES;
    }

    /// The sender of a message of a known exchange: `Some('I')`, `Some('R')`, or `Some('?')` for
    /// another address; `None` for an unknown exchange.
    pub(crate) fn sender(&self, cookie: [u8; 8], ends: Option<(IpAddr, IpAddr)>) -> Option<char> {
        let (_, from, to) = self.known.iter().find(|(known, ..)| *known == cookie)?;
        Some(match ends {
            Some(ends) if ends == (*from, *to) => 'I',
            Some(ends) if ends == (*to, *from) => 'R',
            _ => '?',
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_exchange_is_forgotten() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut exchanges = Exchanges::default();
        for number in 0..=EXCHANGES as u8 {
            exchanges.begin([number; 8], (a, b));
        }
        assert_eq!(exchanges.known.len(), EXCHANGES);
        assert_eq!(exchanges.sender([0; 8], Some((a, b))), None);
        assert_eq!(exchanges.sender([1; 8], Some((a, b))), Some('I'));
        assert_eq!(exchanges.sender([20; 8], Some((b, a))), Some('R'));
        assert_eq!(exchanges.sender([20; 8], Some((a, a))), Some('?'));
    }
}
