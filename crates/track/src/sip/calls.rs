//! The calls of the tracker, by `Call-ID` and the tag of the caller.
//!
//! A call is known while it is signalled or its media are expected, and a short time longer, so that repeated messages
//! do not make it a new one. Messages with the `Call-ID` of a call and other tags belong to another call, or to none.
//! Memory: at most [`Limits::control_connections`], each up to 600 bytes. The oldest call that was not answered makes
//! room for a new one, so that a flood of INVITEs ends no call that was; else the oldest.

use crate::Limits;
use crate::messages::Message;
use fyke_flow::Ageing;
use std::hash::{DefaultHasher, Hasher};

/// Longest `Call-ID`, and longest tag.
const ID_LIMIT: usize = 256;
/// Most tags of callees (a call may be forked).
const TAG_LIMIT: usize = 8;
/// Time without signalling after which a call without expectations is forgotten: longer than any repetition.
const FORGET_NS: u64 = 32_000_000_000;

/// A call.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    /// Number, from 1, never used again.
    pub(super) number: u64,
    /// True after a final success of an INVITE.
    pub(super) answered: bool,
    /// True from a BYE until it is answered.
    pub(super) leaving: bool,
    /// Tags of callees.
    callees: Vec<u64>,
}

impl Call {
    /// True if a dialogue of the call has this tag at the callee's end, as far as they are known.
    pub(super) fn has_dialogue(&self, tags: &Tags) -> bool {
        self.callees.is_empty() || self.callees.contains(&hash(&tags.callee))
    }

    /// Takes the tag of a callee.
    pub(super) fn learn(&mut self, tags: &Tags) {
        let number = hash(&tags.callee);
        let fits = self.callees.len() < TAG_LIMIT && !tags.callee.is_empty();
        if fits && !self.callees.contains(&number) {
            self.callees.push(number);
        }
    }
}

fn hash(tag: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(tag);
    hasher.finish()
}

/// The tags of a message, which name a dialogue of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tags {
    /// The key of the call.
    key: Box<[u8]>,
    callee: Box<[u8]>,
}

/// The table.
#[derive(Debug)]
pub(super) struct Calls {
    waiting: Ageing<Box<[u8]>, Call>,
    answered: Ageing<Box<[u8]>, Call>,
    most: usize,
    count: u64,
}

impl Calls {
    pub(super) fn new(limits: Limits) -> Calls {
        let most = limits.control_connections.max(1);
        Calls { waiting: Ageing::new(most), answered: Ageing::new(most), most, count: 0 }
    }

    /// The tags of a message, read from the end that began the call; `None` if its `Call-ID` is missing or a text is
    /// too long.
    pub(super) fn tags(&self, message: &Message<'_>) -> Option<Tags> {
        let id = message.field(&["call-id", "i"])?;
        let (from, to) = (message.field(&["from", "f"]), message.field(&["to", "t"]));
        let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
        let (from, to) = (tag(&from), tag(&to));
        if id.is_empty() || [&id[..], from, to].iter().any(|text| text.len() > ID_LIMIT) {
            return None;
        }
        let tags = |caller: &[u8], callee: &[u8]| Tags {
            key: [&id, &b"\0"[..], caller].concat().into(),
            callee: callee.into(),
        };
        let of_caller = tags(from, to);
        let of_callee = tags(to, from);
        let swapped = !to.is_empty() && !self.knows(&of_caller) && self.knows(&of_callee);
        Some(if swapped { of_callee } else { of_caller })
    }

    pub(super) fn knows(&self, tags: &Tags) -> bool {
        self.waiting.peek(&tags.key).is_some() || self.answered.peek(&tags.key).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.answered.len()
    }

    /// Number of calls so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a call if it is new; returns the number of a call that had to make room for it.
    pub(super) fn enter(&mut self, tags: &Tags, now_ns: u64) -> Option<u64> {
        if self.knows(tags) {
            return None;
        }
        let mut evicted = None;
        if self.len() >= self.most {
            evicted = self.waiting.pop_oldest().or_else(|| self.answered.pop_oldest());
        }
        self.count += 1;
        let call = Call { number: self.count, ..Call::default() };
        self.waiting.insert(tags.key.clone(), call, now_ns.saturating_add(FORGET_NS));
        evicted.map(|(_, call)| call.number)
    }

    /// A known call, kept for a while.
    pub(super) fn touch(&mut self, tags: &Tags, now_ns: u64) -> Option<&mut Call> {
        let deadline = now_ns.saturating_add(FORGET_NS);
        match self.waiting.touch(&tags.key, deadline) {
            Some(call) => Some(call),
            None => self.answered.touch(&tags.key, deadline),
        }
    }

    /// Marks a call as answered, so that calls that are not give way before it.
    pub(super) fn answer(&mut self, tags: &Tags, now_ns: u64) {
        if let Some(call) = self.waiting.remove(&tags.key) {
            let deadline = now_ns.saturating_add(FORGET_NS);
            self.answered.insert(tags.key.clone(), Call { answered: true, ..call }, deadline);
        }
    }

    /// Forgets calls without signalling that expect nothing.
    pub(super) fn expire(&mut self, now_ns: u64, expects: impl Fn(u64) -> bool) {
        for table in [&mut self.waiting, &mut self.answered] {
            while let Some((key, call)) = table.pop_due(now_ns) {
                if now_ns != u64::MAX && expects(call.number) {
                    table.insert(key, call, now_ns.saturating_add(FORGET_NS));
                }
            }
        }
    }
}

/// The tag of a `From` or `To`: `"A" <sip:a@b;c=d>;tag=x`; empty without one.
fn tag(value: &[u8]) -> &[u8] {
    let parameters = value.iter().rposition(|&byte| byte == b'>').map_or(value, |at| &value[at..]);
    let mut each = parameters.split(|&byte| byte == b';').skip(1).map(<[u8]>::trim_ascii);
    let is_tag = |one: &&[u8]| one.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"tag="));
    each.find(is_tag).map_or(&[], |one| &one[4..])
}

#[cfg(test)]
mod tests {
    use super::tag;

    #[test]
    fn tags_are_those_of_the_field_not_of_the_address() {
        assert_eq!(tag(b"\"A;tag=no\" <sip:a@b;tag=no>;x=1; TAG=yes;y"), b"yes");
        assert_eq!(tag(b"sip:a@b;tag=z"), b"z");
        assert_eq!((tag(b"<sip:a@b>"), tag(b""), tag(b";tag")), (&b""[..], &b""[..], &b""[..]));
    }
}
