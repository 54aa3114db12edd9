//! Messages of H.225.0 call signalling: Q.931 with the H323-UserInformation in its user-user element.
//!
//! Reads the address for H.245, the elements of a fast start, and the messages of H.245 that are tunnelled; the rest is
//! skipped. Source: ITU-T H.225.0, annex H; Q.931, section 4.

use super::per::{Additions, Choice, Per, Read, Refusal};
use std::net::SocketAddr;

/// Message type of a Setup.
const SETUP: u8 = 0x05;
/// Message type of a ReleaseComplete.
const RELEASE_COMPLETE: u8 = 0x5a;
/// The user-user element, and the code of its content.
const USER_USER: u8 = 0x7e;
const ASN1: u8 = 5;

/// A message of Q.931.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// Call reference, without the flag of its side.
    pub(super) reference: u16,
    kind: u8,
    /// The H323-UserInformation; `None` if there is none.
    user: Option<&'a [u8]>,
}

/// Content of a message that matters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Announced<'a> {
    /// The end at which the sender listens for H.245.
    pub(super) control: Option<SocketAddr>,
    /// OpenLogicalChannel elements.
    pub(super) fast_start: Vec<&'a [u8]>,
    /// Messages of H.245.
    pub(super) tunnelled: Vec<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads a message up to its user-user element; `None` if it is no Q.931.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (&[8, length], rest) = bytes.split_first_chunk()? else { return None };
        let (reference, rest) = rest.split_at_checked(usize::from(length & 15))?;
        let &[high, low] = reference else { return None };
        let reference = u16::from_be_bytes([high & 0x7f, low]);
        let (&kind, mut rest) = rest.split_first()?;
        while let [element, after @ ..] = rest {
            match (*element, after) {
                (0x80.., _) => rest = after,
                (USER_USER, [high, low, ASN1, user @ ..]) => {
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    let user = user.get(..length.saturating_sub(1));
                    return Some(Message { reference, kind, user });
                }
                (USER_USER, _) => break,
                (_, [length, after @ ..]) => rest = after.get(usize::from(*length)..)?,
                _ => break,
            }
        }
        Some(Message { reference, kind, user: None })
    }

    pub(super) fn is_setup(&self) -> bool {
        self.kind == SETUP
    }

    pub(super) fn ends_call(&self) -> bool {
        self.kind == RELEASE_COMPLETE
    }

    /// Reads what the message announces.
    pub(super) fn announced(&self) -> Read<Announced<'a>> {
        let mut announced = Announced::default();
        let Some(user) = self.user else { return Ok(announced) };
        let mut per = Per::new(user);
        // Flags of the information and of its first part: additions, and optional parts.
        let [_, _, extended, has_other] = per.flags()?;
        match per.choice(3)? {
            Choice::Root(kind) => body(&mut per, kind, &mut announced)?,
            Choice::Added(0, mut progress) => self::progress(&mut progress, &mut announced)?,
            Choice::Added(..) => {}
        }
        if has_other {
            non_standard(&mut per)?;
        }
        if let Some(mut messages) = per.additions(extended)?.get(2) {
            announced.tunnelled.extend(messages.strings()?);
        }
        Ok(announced)
    }
}

/// Reads the message that is chosen.
fn body<'a>(per: &mut Per<'a>, kind: u32, announced: &mut Announced<'a>) -> Read<()> {
    let extended = per.flag()?;
    match kind {
        0 => return setup(per, extended, announced),
        1 | 3 => {
            let has_control = per.flag()?;
            per.string()?;
            endpoint(per)?;
            announced.control = optional(per, has_control)?;
        }
        2 => {
            let has_control = per.flag()?;
            per.string()?;
            announced.control = optional(per, has_control)?;
            endpoint(per)?;
            per.take(16)?;
        }
        5 => {
            let has_reason = per.flag()?;
            per.string()?;
            if has_reason {
                per.skip_choice(4)?;
            }
        }
        6 => return facility(per, extended, announced),
        _ => drop(per.string()?),
    }
    let additions = per.additions(extended)?;
    match kind {
        1..=3 => fast_start(&additions, 4, announced),
        4 => fast_start(&additions, 3, announced),
        _ => Ok(()),
    }
}

fn setup<'a>(per: &mut Per<'a>, extended: bool, announced: &mut Announced<'a>) -> Read<()> {
    let [
        has_control,
        has_source,
        has_destination,
        has_end,
        has_extra,
        has_references,
        has_services,
    ] = per.flags()?;
    per.string()?;
    announced.control = optional(per, has_control)?;
    aliases(per, has_source)?;
    endpoint(per)?;
    aliases(per, has_destination)?;
    optional(per, has_end)?;
    aliases(per, has_extra)?;
    if has_references {
        let count = per.count()?;
        per.take(2 * count)?;
    }
    per.flag()?;
    per.take(16)?;
    per.skip_choice(2)?;
    if has_services {
        // Eight flags, the first that of additions, and a sequence of two more flags.
        let extended = per.flag()?;
        per.skip_bits(7)?;
        let more = per.flag()?;
        per.skip_bits(2)?;
        per.end(more)?;
        per.end(extended)?;
    }
    per.skip_choice(2)?;
    let additions = per.additions(extended)?;
    if let Some(mut messages) = additions.get(24) {
        announced.tunnelled.extend(messages.strings()?);
    }
    fast_start(&additions, 6, announced)
}

fn facility<'a>(per: &mut Per<'a>, extended: bool, announced: &mut Announced<'a>) -> Read<()> {
    let [has_end, has_alias, has_conference] = per.flags()?;
    per.string()?;
    optional(per, has_end)?;
    aliases(per, has_alias)?;
    if has_conference {
        per.take(16)?;
    }
    per.skip_choice(2)?;
    let additions = per.additions(extended)?;
    if let Some(mut end) = additions.get(6) {
        announced.control = address(&mut end)?;
    }
    fast_start(&additions, 7, announced)
}

fn progress<'a>(per: &mut Per<'a>, announced: &mut Announced<'a>) -> Read<()> {
    let [_, has_control, has_mode, has_tokens, has_secret, has_start] = per.flags()?;
    per.string()?;
    endpoint(per)?;
    announced.control = optional(per, has_control)?;
    let extended = per.flag()?;
    per.take(16)?;
    per.end(extended)?;
    if has_mode || has_tokens || has_secret {
        return Err(Refusal::NotRead("a Progress with tokens"));
    }
    if has_start {
        announced.fast_start = per.strings()?;
    }
    Ok(())
}

fn fast_start<'a>(
    additions: &Additions<'a>,
    index: usize,
    announced: &mut Announced<'a>,
) -> Read<()> {
    if let Some(mut elements) = additions.get(index) {
        announced.fast_start = elements.strings()?;
    }
    Ok(())
}

fn optional(per: &mut Per<'_>, is_there: bool) -> Read<Option<SocketAddr>> {
    if is_there { address(per) } else { Ok(None) }
}

/// Reads a TransportAddress; `None` if it is none of IPv4 and IPv6.
fn address(per: &mut Per<'_>) -> Read<Option<SocketAddr>> {
    Ok(match per.choice(3)? {
        Choice::Root(0) => Some(SocketAddr::new(per.four()?.into(), per.word()?)),
        Choice::Root(1) => return Err(Refusal::NotRead("an address with a route")),
        Choice::Root(2) => {
            per.take(10)?;
            per.skip_bits(16)?;
            None
        }
        Choice::Root(3) => {
            let extended = per.flag()?;
            let end = SocketAddr::new(per.six()?.into(), per.word()?);
            per.end(extended)?;
            Some(end)
        }
        Choice::Root(4) => per.take(16).map(|_| None)?,
        Choice::Root(5) => {
            let length = per.bits(5)? as usize + 1;
            per.take(length).map(|_| None)?
        }
        Choice::Root(_) => non_standard(per).map(|()| None)?,
        Choice::Added(..) => None,
    })
}

fn aliases(per: &mut Per<'_>, are_there: bool) -> Read<()> {
    let count = if are_there { per.count()? } else { 0 };
    for _ in 0..count {
        match per.choice(1)? {
            // Digits of four bits.
            Choice::Root(0) => {
                let length = per.bits(7)? as usize + 1;
                per.take(0)?;
                per.skip_bits(4 * length)?;
            }
            Choice::Root(_) => {
                let length = usize::from(per.byte()?) + 1;
                per.take(2 * length)?;
            }
            Choice::Added(..) => {}
        }
    }
    Ok(())
}

/// Skips an EndpointType.
fn endpoint(per: &mut Per<'_>) -> Read<()> {
    let [extended, has_other, has_vendor, has_keeper, has_gateway, has_mcu, has_terminal] =
        per.flags()?;
    per_if(per, has_other, non_standard)?;
    per_if(per, has_vendor, vendor)?;
    per_if(per, has_keeper, capabilities)?;
    per_if(per, has_gateway, gateway)?;
    per_if(per, has_mcu, capabilities)?;
    per_if(per, has_terminal, capabilities)?;
    per.skip_bits(2)?;
    per.end(extended)
}

fn per_if(per: &mut Per<'_>, is_there: bool, read: fn(&mut Per<'_>) -> Read<()>) -> Read<()> {
    if is_there { read(per) } else { Ok(()) }
}

fn vendor(per: &mut Per<'_>) -> Read<()> {
    let [extended, has_product, has_version] = per.flags()?;
    manufacturer(per)?;
    for _ in 0..usize::from(has_product) + usize::from(has_version) {
        let length = usize::from(per.byte()?) + 1;
        per.take(length)?;
    }
    per.end(extended)
}

/// Skips an H221NonStandard.
fn manufacturer(per: &mut Per<'_>) -> Read<()> {
    let extended = per.flag()?;
    per.take(4)?;
    per.end(extended)
}

/// Skips a sequence of which the root has only a NonStandardParameter.
fn capabilities(per: &mut Per<'_>) -> Read<()> {
    let [extended, has_other] = per.flags()?;
    per_if(per, has_other, non_standard)?;
    per.end(extended)
}

fn gateway(per: &mut Per<'_>) -> Read<()> {
    let [extended, has_protocols, has_other] = per.flags()?;
    let count = if has_protocols { per.count()? } else { 0 };
    for _ in 0..count {
        match per.choice(4)? {
            Choice::Root(0) => non_standard(per)?,
            Choice::Root(_) => capabilities(per)?,
            Choice::Added(..) => {}
        }
    }
    per_if(per, has_other, non_standard)?;
    per.end(extended)
}

/// Skips a NonStandardParameter.
fn non_standard(per: &mut Per<'_>) -> Read<()> {
    match per.choice(1)? {
        Choice::Root(0) => drop(per.string()?),
        Choice::Root(_) => manufacturer(per)?,
        Choice::Added(..) => {}
    }
    per.string().map(drop)
}
