//! Messages between a process and its loader: packets of a socket pair, in the byte order of the machine.
//!
//! ```text
//! request   number of the request (4) │ kind (1) │ fields of the kind       answer   number (4) │ fields
//! ```
//!
//! Reading checks every length; nothing here is trusted.

use crate::direct::{Access, Places};
use crate::layout::{COUNTERS, LIVE_WORDS};
use crate::passes::{Covered, KernelPassId};
use crate::specialise::INSTRUCTION_LIMIT;
use fyke_pass::Instruction;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Maps of a space.
pub(super) const MAPS: usize = 4;
/// Bytes of an instruction.
const INSTRUCTION: usize = size_of::<Instruction>();
/// Bytes of the longest request.
pub(super) const LONGEST_REQUEST: usize = 64 + LIVE_WORDS * 8 + INSTRUCTION_LIMIT * INSTRUCTION;
/// Most bytes of a reason in an answer.
const LONGEST_REASON: usize = 240;
/// Bytes of the longest answer.
pub(super) const LONGEST_ANSWER: usize = 64 + LONGEST_REASON;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Comes with the maps: passes, rows, tallies, tiers.
    Hold {
        processors: u32,
        access: Access,
    },
    Seal,
    Specialise {
        number: u32,
        count_rejected: bool,
        short: (u32, u32),
        passes: Vec<Wanted>,
    },
    Forget {
        number: u32,
    },
}

/// A pass to generate code for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    counter: u32,
    instructions: Vec<Instruction>,
}

impl Wanted {
    /// The pass, if its counter is one.
    pub fn covered(self) -> Option<Covered> {
        let Wanted { counter, instructions } = self;
        let is_counter = (counter as usize) < COUNTERS;
        // The parent knows the pass by its place.
        is_counter.then_some(Covered { id: KernelPassId(0), version: 0, counter, instructions })
    }
}

/// An answer; a program comes beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// Number of the held maps; of a seal, the number of spaces that are held.
    pub number: u32,
    /// Access of the program to frames.
    pub access: Access,
    /// Reason why there is none.
    pub refusal: Option<String>,
}

/// Writer of a message.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn word(mut self, word: u32) -> Bytes {
        self.0.extend(word.to_ne_bytes());
        self
    }

    fn byte(mut self, byte: u8) -> Bytes {
        self.0.push(byte);
        self
    }

    fn access(self, access: Access) -> Bytes {
        match access {
            Access::Copied => self.byte(0),
            Access::Direct(places) => {
                let Places { cast_context, cast_memory, data, data_len } = places;
                let offsets = u32::from(data as u16) | u32::from(data_len as u16) << 16;
                self.byte(1).word(cast_context).word(cast_memory).word(offsets)
            }
        }
    }
}

/// Reader of a message.
struct Reading<'a>(&'a [u8]);

impl Reading<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.byte()? != 0)
    }

    fn access(&mut self) -> Option<Access> {
        if !self.flag()? {
            return Some(Access::Copied);
        }
        let (cast_context, cast_memory, offsets) = (self.word()?, self.word()?, self.word()?);
        let (data, data_len) = (offsets as u16 as i16, (offsets >> 16) as u16 as i16);
        Some(Access::Direct(Places { cast_context, cast_memory, data, data_len }))
    }

    fn passes(&mut self) -> Option<Vec<Wanted>> {
        let (count, mut total) = (self.word()? as usize, 0);
        let mut passes = Vec::new();
        for _ in 0..Some(count).filter(|count| *count <= LIVE_WORDS)? {
            let (counter, len) = (self.word()?, self.word()? as usize);
            total = Some(len + total).filter(|total| *total <= INSTRUCTION_LIMIT)?;
            let instructions = (0..len).map(|_| self.instruction()).collect::<Option<Vec<_>>>()?;
            passes.push(Wanted { counter, instructions });
        }
        Some(passes)
    }

    fn instruction(&mut self) -> Option<Instruction> {
        let mut one = Instruction { command: self.word()?, ..Instruction::default() };
        for word in &mut one.params {
            *word = self.word()?;
        }
        Some(one)
    }
}

impl Request {
    /// A request for a program of these passes.
    pub fn specialise(
        number: u32,
        count_rejected: bool,
        short: (u32, u32),
        covered: &[Covered],
    ) -> Request {
        let wanted = |pass: &Covered| Wanted {
            counter: pass.counter,
            instructions: pass.instructions.clone(),
        };
        let passes = covered.iter().map(wanted).collect();
        Request::Specialise { number, count_rejected, short, passes }
    }

    pub fn to_bytes(&self, sequence: u32) -> Vec<u8> {
        let bytes = Bytes::default().word(sequence);
        let bytes = match self {
            Request::Hold { processors, access } => bytes.byte(0).word(*processors).access(*access),
            Request::Seal => bytes.byte(1),
            Request::Specialise { number, count_rejected, short, passes } => {
                let head = bytes.byte(2).word(*number).byte(u8::from(*count_rejected));
                let head = head.word(short.0).word(short.1).word(passes.len() as u32);
                passes.iter().fold(head, |bytes, pass| {
                    let bytes = bytes.word(pass.counter).word(pass.instructions.len() as u32);
                    pass.instructions.iter().fold(bytes, |bytes, one| {
                        one.params
                            .iter()
                            .fold(bytes.word(one.command), |bytes, &word| bytes.word(word))
                    })
                })
            }
            Request::Forget { number } => bytes.byte(3).word(*number),
        };
        bytes.0
    }

    /// Reads a request and its number; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<(u32, Request)> {
        let mut reading = Reading(bytes);
        let sequence = reading.word()?;
        let request = match reading.byte()? {
            0 => Request::Hold { processors: reading.word()?, access: reading.access()? },
            1 => Request::Seal,
            2 => Request::Specialise {
                number: reading.word()?,
                count_rejected: reading.flag()?,
                short: (reading.word()?, reading.word()?),
                passes: reading.passes()?,
            },
            3 => Request::Forget { number: reading.word()? },
            _ => return None,
        };
        reading.0.is_empty().then_some((sequence, request))
    }
}

impl Answer {
    /// An answer that something was done.
    pub fn done(number: u32) -> Answer {
        Answer { number, access: Access::Copied, refusal: None }
    }

    /// A refusal, with its reason.
    pub fn refused(why: impl Into<String>) -> Answer {
        Answer { refusal: Some(why.into()), ..Answer::done(0) }
    }

    pub fn to_bytes(&self, sequence: u32) -> Vec<u8> {
        let bytes = Bytes::default().word(sequence).word(self.number).access(self.access);
        let mut bytes = bytes.byte(u8::from(self.refusal.is_some())).0;
        let reason = self.refusal.as_deref().unwrap_or_default();
        bytes.extend(&reason.as_bytes()[..reason.len().min(LONGEST_REASON)]);
        bytes
    }

    /// Reads an answer and the number of its request.
    pub fn from_bytes(bytes: &[u8]) -> Option<(u32, Answer)> {
        let mut reading = Reading(bytes);
        let (sequence, number, access) = (reading.word()?, reading.word()?, reading.access()?);
        let refused = reading.flag()?;
        let refusal = refused.then(|| String::from_utf8_lossy(reading.0).into_owned());
        Some((sequence, Answer { number, access, refusal }))
    }
}

/// Sends a message with descriptors.
pub(super) fn send(
    channel: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAPS))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    retried(|| sendmsg(channel, &[IoSlice::new(bytes)], &mut rights, SendFlags::NOSIGNAL)).map(drop)
}

/// Waits until there is a message to receive, or the end.
pub(super) fn wait_for_data(channel: BorrowedFd<'_>, patience: Duration) -> Result<(), Errno> {
    let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
    let ready = retried(|| poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&patience)))?;
    if ready == 0 { Err(Errno::AGAIN) } else { Ok(()) }
}

/// Sends a message if there is room for it at once.
pub(super) fn tell(channel: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(channel, bytes, flags).map(drop)
}

/// Receives a message with the descriptors that came with it, at most as many as there are maps; the kernel closes
/// others. A length of zero means the end.
pub(super) fn receive(
    channel: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAPS))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received = retried(|| {
        recvmsg(channel, &mut [IoSliceMut::new(bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            fds.extend(sent);
        }
    }
    Ok((received.bytes, fds))
}

fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_testkit::random::Random;

    fn requests() -> Vec<Request> {
        let places = Places { cast_context: 7, cast_memory: 8, data: 200, data_len: -2 };
        let one = Instruction { command: 3, params: [1, 2, 3, 4, 5, 6, u32::MAX] };
        let passes = vec![
            Wanted { counter: 9, instructions: vec![one, one] },
            Wanted { counter: 10, instructions: vec![] },
        ];
        vec![
            Request::Hold { processors: 4, access: Access::Direct(places) },
            Request::Hold { processors: 1, access: Access::Copied },
            Request::Seal,
            Request::Specialise { number: 3, count_rejected: true, short: (60, 8), passes },
            Request::Forget { number: 2 },
        ]
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for request in requests() {
            assert_eq!(Request::from_bytes(&request.to_bytes(77)), Some((77, request)));
        }
        let refused = Answer::refused("no");
        assert_eq!(Answer::from_bytes(&refused.to_bytes(5)), Some((5, refused)));
    }

    #[test]
    fn cut_and_changed_messages_are_refused_or_read_and_never_more() {
        let mut random = Random::new(4);
        for request in requests() {
            let bytes = request.to_bytes(1);
            for end in 0..bytes.len() {
                assert_eq!(Request::from_bytes(&bytes[..end]), None, "{request:?} {end}");
            }
            assert_eq!(Request::from_bytes(&[&bytes[..], &[0]].concat()), None);
            for _ in 0..200 {
                let mut changed = bytes.clone();
                let at = random.below(changed.len());
                changed[at] = random.below(256) as u8;
                // Lengths that promise more than there is must not reserve it, and must not be read.
                let _read = Request::from_bytes(&changed);
            }
        }
    }

    #[test]
    fn too_many_passes_and_instructions_are_refused() {
        let one = Instruction::default();
        let request = |passes: usize, each: usize| {
            let pass = Wanted { counter: 9, instructions: vec![one; each] };
            let passes = vec![pass; passes];
            Request::Specialise { number: 0, count_rejected: false, short: (0, 0), passes }
        };
        let is_read = |request: Request| Request::from_bytes(&request.to_bytes(0)).is_some();
        assert!(is_read(request(LIVE_WORDS, 1)) && !is_read(request(LIVE_WORDS + 1, 1)));
        assert!(
            is_read(request(1, INSTRUCTION_LIMIT)) && !is_read(request(1, INSTRUCTION_LIMIT + 1))
        );
        assert!(request(LIVE_WORDS, 2).to_bytes(0).len() <= LONGEST_REQUEST);
    }
}
