//! Messages of H.245 that open and close logical channels, as far as they name ends.
//!
//! Reads OpenLogicalChannel with its multiplex parameters of H.225.0, its acknowledgement, CloseLogicalChannel and
//! EndSession. The type of the data before the ends is skipped; types that are not skipped (MPEG) are refused. Source:
//! ITU-T H.245, annex A.

use super::per::{Choice, Per, Read, Refusal};
use std::net::SocketAddr;

/// Content of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Audio,
    Video,
    Fax,
    /// Encrypted, or several at once.
    Other,
    /// This direction carries nothing.
    Null,
}

/// Part of a channel at an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Media,
    Control,
    /// A connection of T.120.
    Stack,
}

/// Ends of a channel.
pub(super) type Ends = Vec<(Part, SocketAddr)>;

/// A message that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Open(Channel),
    Opened { number: u16, ends: Ends },
    Closed { number: u16 },
    EndSession,
}

/// An OpenLogicalChannel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Channel {
    pub(super) number: u16,
    pub(super) media: Media,
    pub(super) ends: Ends,
}

/// Reads a MultimediaSystemControlMessage; `None` if it opens and closes nothing.
pub(super) fn message(bytes: &[u8]) -> Read<Option<Message>> {
    let mut per = Per::new(bytes);
    let Choice::Root(kind) = per.choice(2)? else { return Ok(None) };
    let index = match kind {
        0 => per.choice(4)?,
        1 => per.choice(5)?,
        2 => per.choice(3)?,
        _ => return Ok(None),
    };
    Ok(match (kind, index) {
        (0, Choice::Root(3)) => Some(Message::Open(open(&mut per)?)),
        (0, Choice::Root(4)) => {
            per.flag()?;
            Some(Message::Closed { number: per.word()?.wrapping_add(1) })
        }
        (1, Choice::Root(5)) => Some(opened(&mut per)?),
        (2, Choice::Root(5)) => Some(Message::EndSession),
        _ => None,
    })
}

/// Reads an OpenLogicalChannel, as an element of a fast start.
pub(super) fn open(per: &mut Per<'_>) -> Read<Channel> {
    let [extended, has_reverse] = per.flags()?;
    let number = per.word()?.wrapping_add(1);
    let [more, has_port] = per.flags()?;
    if has_port {
        per.word()?;
    }
    let mut media = data_type(per)?;
    let mut ends = Ends::new();
    match per.choice(2)? {
        Choice::Added(0, mut parameters) => channel(&mut parameters, &mut ends)?,
        Choice::Added(1, _) => {}
        _ => return Err(Refusal::NotRead("a channel of another multiplex than H.225.0")),
    }
    per.end(more)?;
    if has_reverse {
        let [more, has_parameters] = per.flags()?;
        let reverse = data_type(per)?;
        media = if media == Media::Null { reverse } else { media };
        match has_parameters.then(|| per.choice(1)).transpose()? {
            Some(Choice::Added(0, mut parameters)) => channel(&mut parameters, &mut ends)?,
            Some(Choice::Root(_)) => {
                return Err(Refusal::NotRead("a channel of another multiplex than H.225.0"));
            }
            _ => {}
        }
        per.end(more)?;
    }
    if let Some(mut stack) = per.additions(extended)?.get(0) {
        separate_stack(&mut stack, &mut ends)?;
    }
    Ok(Channel { number, media, ends })
}

fn opened(per: &mut Per<'_>) -> Read<Message> {
    let [extended, has_reverse] = per.flags()?;
    let number = per.word()?.wrapping_add(1);
    let mut ends = Ends::new();
    if has_reverse {
        let [more, has_port, has_parameters] = per.flags()?;
        per.take(if has_port { 4 } else { 2 })?;
        match has_parameters.then(|| per.choice(0)).transpose()? {
            Some(Choice::Added(0, mut parameters)) => channel(&mut parameters, &mut ends)?,
            Some(Choice::Root(_)) => {
                return Err(Refusal::NotRead("a channel of another multiplex than H.225.0"));
            }
            _ => {}
        }
        per.end(more)?;
    }
    let additions = per.additions(extended)?;
    if let Some(mut stack) = additions.get(0) {
        separate_stack(&mut stack, &mut ends)?;
    }
    if let Some(mut parameters) = additions.get(1)
        && let Choice::Root(_) = parameters.choice(0)?
    {
        acknowledged(&mut parameters, &mut ends)?;
    }
    Ok(Message::Opened { number, ends })
}

/// Reads H2250LogicalChannelParameters up to the ends.
fn channel(per: &mut Per<'_>, ends: &mut Ends) -> Read<()> {
    per.flag()?;
    let [has_other, has_associated, has_media, has_guaranteed, has_control] = per.flags()?;
    per.skip_bits(5)?;
    non_standard_list(per, has_other)?;
    per.byte()?;
    per.skip_bits(if has_associated { 8 } else { 0 })?;
    if has_media {
        ends.extend(address(per)?.map(|end| (Part::Media, end)));
    }
    per.skip_bits(has_guaranteed.into())?;
    if has_control {
        ends.extend(address(per)?.map(|end| (Part::Control, end)));
    }
    Ok(())
}

/// Reads H2250LogicalChannelAckParameters up to the ends.
fn acknowledged(per: &mut Per<'_>, ends: &mut Ends) -> Read<()> {
    let [_, has_other, has_session, has_media, has_control, _] = per.flags()?;
    non_standard_list(per, has_other)?;
    per.skip_bits(if has_session { 8 } else { 0 })?;
    if has_media {
        ends.extend(address(per)?.map(|end| (Part::Media, end)));
    }
    if has_control {
        ends.extend(address(per)?.map(|end| (Part::Control, end)));
    }
    Ok(())
}

/// Reads NetworkAccessParameters up to its address.
fn separate_stack(per: &mut Per<'_>, ends: &mut Ends) -> Read<()> {
    let [_, has_distribution, _] = per.flags()?;
    if has_distribution {
        per.skip_choice(1)?;
    }
    if let Choice::Root(2) = per.choice(2)? {
        ends.extend(address(per)?.map(|end| (Part::Stack, end)));
    }
    Ok(())
}

/// Reads a TransportAddress; `None` if it is none of IPv4 and IPv6.
fn address(per: &mut Per<'_>) -> Read<Option<SocketAddr>> {
    let kind = per.choice(1)?;
    let is_multicast = kind == Choice::Root(1);
    if let Choice::Added(..) = kind {
        return Ok(None);
    }
    let family = match per.choice(if is_multicast { 1 } else { 3 })? {
        Choice::Root(family) => family,
        Choice::Added(..) => return Ok(None),
    };
    let extended = match family {
        // A NetBIOS name has no additions.
        3 if !is_multicast => return per.take(16).map(|_| None),
        _ => per.flag()?,
    };
    let end = match (is_multicast, family) {
        (_, 0) => Some(SocketAddr::new(per.four()?.into(), per.word()?)),
        (true, 1) | (false, 2) => Some(SocketAddr::new(per.six()?.into(), per.word()?)),
        (false, 1) => {
            per.take(10)?;
            per.skip_bits(16)?;
            None
        }
        _ => return Err(Refusal::NotRead("an address with a route")),
    };
    per.end(extended)?;
    Ok(end)
}

fn non_standard_list(per: &mut Per<'_>, is_there: bool) -> Read<()> {
    let count = if is_there { per.count()? } else { 0 };
    (0..count).try_for_each(|_| non_standard(per))
}

fn non_standard(per: &mut Per<'_>) -> Read<()> {
    match per.flag()? {
        true => per.take(4).map(drop)?,
        false => per.string().map(drop)?,
    }
    per.string().map(drop)
}

/// Skips a DataType.
fn data_type(per: &mut Per<'_>) -> Read<Media> {
    match per.choice(3)? {
        Choice::Root(0) => non_standard(per).map(|()| Media::Other),
        Choice::Root(1) => Ok(Media::Null),
        Choice::Root(2) => video(per).map(|()| Media::Video),
        Choice::Root(3) => audio(per).map(|()| Media::Audio),
        Choice::Root(4) => data(per),
        Choice::Added(..) => Ok(Media::Other),
        Choice::Root(_) => Err(Refusal::NotRead("a channel of H.233")),
    }
}

fn audio(per: &mut Per<'_>) -> Read<()> {
    match per.choice(4)? {
        Choice::Root(0) => non_standard(per),
        Choice::Root(1..=7 | 9..=11) => per.byte().map(drop),
        Choice::Root(8) => {
            per.byte()?;
            per.skip_bits(1)
        }
        Choice::Root(_) => Err(Refusal::NotRead("an audio channel of MPEG")),
        Choice::Added(..) => Ok(()),
    }
}

fn video(per: &mut Per<'_>) -> Read<()> {
    match per.choice(3)? {
        Choice::Root(0) => non_standard(per),
        Choice::Root(1) => {
            let [extended, has_small, has_large] = per.flags()?;
            per.skip_bits(2 * (usize::from(has_small) + usize::from(has_large)) + 1)?;
            per.word()?;
            per.skip_bits(1)?;
            per.end(extended)
        }
        Choice::Root(3) => {
            let [extended, sizes @ .., has_decoder, has_most] = per.flags::<8>()?;
            let intervals = sizes.into_iter().filter(|is_there| *is_there).count();
            per.skip_bits(5 * intervals)?;
            per.skip_large()?;
            per.skip_bits(5)?;
            if has_decoder {
                per.skip_large()?;
            }
            if has_most {
                per.word()?;
            }
            per.end(extended)
        }
        Choice::Root(_) => Err(Refusal::NotRead("a video channel of MPEG")),
        Choice::Added(..) => Ok(()),
    }
}

/// Skips a DataApplicationCapability.
fn data(per: &mut Per<'_>) -> Read<Media> {
    let extended = per.flag()?;
    let media = match per.choice(4)? {
        Choice::Root(0) => non_standard(per).map(|()| Media::Other)?,
        // T.120, DSM-CC, user data, T.434, H.224 and partitions of H.222 have a protocol.
        Choice::Root(1 | 2 | 3 | 5 | 6 | 9) => match per.choice(3)? {
            Choice::Root(0) => non_standard(per).map(|()| Media::Other)?,
            _ => Media::Other,
        },
        Choice::Root(8) => Media::Other,
        Choice::Added(2, _) => Media::Fax,
        Choice::Added(..) => Media::Other,
        Choice::Root(_) => return Err(Refusal::NotRead("a data channel of T.84 or NLPID")),
    };
    per.skip_large()?;
    per.end(extended)?;
    Ok(media)
}
