//! PPPoE: PAP and CHAP tell which user has which session, IPCP the address in it.
//!
//! A name counts once the other end has accepted it. Followed are sessions of users that a warrant names: at most
//! [`MOST`], the oldest makes room. Source: RFC 2516, RFC 1334, RFC 1994, RFC 1332.

use crate::facts::{Fact, Name, Place};
use fyke_frame::walk::view::PppoeView;
use fyke_frame::walk::{Layers, Protocol};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Most sessions with a name that is not accepted yet, and most that are.
const MOST: usize = 1_024;

const LCP: u16 = 0xc021;
const PAP: u16 = 0xc023;
const CHAP: u16 = 0xc223;
const IPCP: u16 = 0x8021;

/// A session: hardware address of the user's end, of the other end, and number.
type Key = ([u8; 6], [u8; 6], u16);

/// Sessions of users that are named in a warrant.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    waiting: VecDeque<(Key, Vec<u8>)>,
    accepted: VecDeque<(Key, Vec<u8>)>,
}

fn session(user: &[u8; 6], id: u16) -> Vec<u8> {
    [&b"pppoe "[..], user, &id.to_be_bytes()].concat()
}

fn take(list: &mut VecDeque<(Key, Vec<u8>)>, key: &Key) -> Option<Vec<u8>> {
    let at = list.iter().position(|(known, _)| known == key)?;
    list.remove(at).map(|(_, name)| name)
}

fn add(list: &mut VecDeque<(Key, Vec<u8>)>, key: Key, name: Vec<u8>) {
    take(list, &key);
    if list.len() >= MOST {
        list.pop_front();
    }
    list.push_back((key, name));
}

/// A name that is preceded by its length.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// The address of an IPCP option.
fn address(mut options: &[u8]) -> Option<Ipv4Addr> {
    while let [kind, length, ..] = *options {
        let value = options.get(2..usize::from(length))?;
        if let (3, Ok(address)) = (kind, <[u8; 4]>::try_from(value)) {
            return Some(address.into());
        }
        options = &options[usize::from(length)..];
    }
    None
}

impl Sessions {
    /// Reads a frame; `is_named` tells whether a user is named in a warrant.
    pub(crate) fn read(
        &mut self,
        layers: &Layers<'_>,
        is_named: impl Fn(&[u8]) -> bool,
    ) -> Option<Fact> {
        let scope = layers.all();
        let pppoe = PppoeView::new(layers.data(), scope.find(Protocol::Pppoe)?)?;
        let ethernet = scope.ethernet()?;
        let (source, destination) = (ethernet.source().0, ethernet.destination().0);
        let id = pppoe.session();
        // The server confirms a new session, and both may end one.
        let ended = |user: &[u8; 6], why| {
            Some(Fact::Ended { session: session(user, id), why, forever: false })
        };
        let [up, down] = [(source, destination, id), (destination, source, id)];
        match pppoe.code() {
            0x65 if id != 0 => {
                self.forget(&down);
                return ended(&destination, "PPPoE session confirmation");
            }
            0xa7 => return self.terminate(up, down, "PPPoE termination"),
            0 => {}
            _ => return None,
        }
        let (protocol, message) = pppoe.payload().split_first_chunk::<2>()?;
        let [code, _, high, low] = *message.first_chunk::<4>()?;
        let body = message.get(4..usize::from(u16::from_be_bytes([high, low])))?;
        match (u16::from_be_bytes(*protocol), code) {
            (PAP, 1) => {
                let (name, _) = counted(body)?;
                is_named(name).then(|| add(&mut self.waiting, up, name.to_vec()));
                None
            }
            (CHAP, 2) => {
                let (_, name) = counted(body)?;
                is_named(name).then(|| add(&mut self.waiting, up, name.to_vec()));
                None
            }
            (PAP, 2) => self.accept(down, "PAP acknowledgement"),
            (CHAP, 3) => self.accept(down, "CHAP success"),
            (PAP, 3) | (CHAP, 4) => {
                take(&mut self.waiting, &down);
                None
            }
            (IPCP, 2) => {
                let name = self.accepted.iter().find(|(key, _)| *key == down)?.1.clone();
                let places =
                    vec![Place::Session(destination, id), Place::Host(address(body)?.into())];
                Some(assigned(name, &down, places, "IPCP acknowledgement"))
            }
            (LCP, 5 | 6) => self.terminate(up, down, "LCP termination"),
            _ => None,
        }
    }

    fn forget(&mut self, key: &Key) -> bool {
        take(&mut self.waiting, key);
        take(&mut self.accepted, key).is_some()
    }

    fn accept(&mut self, key: Key, why: &'static str) -> Option<Fact> {
        let name = take(&mut self.waiting, &key)?;
        add(&mut self.accepted, key, name.clone());
        Some(assigned(name, &key, vec![Place::Session(key.0, key.2)], why))
    }

    /// Ends a session at the word of either end.
    fn terminate(&mut self, up: Key, down: Key, why: &'static str) -> Option<Fact> {
        let user = [up, down].into_iter().find(|key| self.forget(key))?.0;
        Some(Fact::Ended { session: session(&user, up.2), why, forever: false })
    }
}

fn assigned(name: Vec<u8>, key: &Key, places: Vec<Place>, why: &'static str) -> Fact {
    let session = session(&key.0, key.2);
    Fact::Assigned { who: vec![Name::User(name)], session, places, lifetime_ns: None, why }
}
