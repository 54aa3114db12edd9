//! The first filter of monitoring sockets: frames that the rules reject do not reach them.

use super::Arrays;
use super::layout::{TAP_ACCEPT_AT, TAP_FOLLOWS_AT, TAP_ON_AT, TAP_REJECTED};
use super::object::Object;
use crate::direct::Access;
use crate::ebpf;
use crate::error::{AttachError, OpenError};
use crate::sys::{self, TestRun};
use aya::maps::{Map, MapData};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const TAP: &str = "fyke_tap";
const EMPTY: &str = "fyke_tap_empty";
/// The map with the program that follows.
const AFTER: &str = "after";

/// A program that reads arrays, for any number of packet sockets.
#[derive(Debug)]
pub struct Tap {
    object: Object,
    after: MapData,
}

impl Tap {
    /// Loads the program for arrays. It passes every frame until it is [on](Self::set_on); of a frame that passes,
    /// sockets get `accept` bytes.
    ///
    /// # Errors
    /// The object, a privilege or a kernel feature is missing.
    pub fn open(arrays: &Arrays, accept: u32) -> Result<Tap, OpenError> {
        Tap::open_with(arrays, accept, Access::best())
    }

    /// The same with a certain access to frames' bytes, or with copies if the kernel refuses this access.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(arrays: &Arrays, accept: u32, access: Access) -> Result<Tap, OpenError> {
        let mut object = Object::load(arrays, access, &[TAP, EMPTY])?;
        let missing = OpenError::Refused { step: "programs after the tap", what: "no map".into() };
        let Some(Map::ProgramArray(after)) = object.ebpf.take_map(AFTER) else {
            return Err(missing);
        };
        object.settings.publish(TAP_ACCEPT_AT, accept);
        Ok(Tap { object, after })
    }

    /// Switches it on or off. Off, every frame passes.
    pub fn set_on(&self, on: bool) {
        self.object.settings.publish(TAP_ON_AT, u32::from(on));
    }

    /// True if it is on.
    pub fn is_on(&self) -> bool {
        self.object.settings.get(TAP_ON_AT) != 0
    }

    /// Makes it the filter of a packet socket, in place of the one that is there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> Result<(), AttachError> {
        Ok(self.object.with_program(TAP, |program| sys::attach(socket, program))??)
    }

    /// Sets the program that gets the frames that pass, while it is [used](Self::set_following). Needs the right to
    /// change maps; the switch does not.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn follow(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        sys::objects::set_program(self.after.fd().as_fd(), program)
    }

    /// Gives frames that pass to the program that follows, or accepts them.
    pub fn set_following(&self, follows: bool) {
        self.object.settings.publish(TAP_FOLLOWS_AT, u32::from(follows));
    }

    /// Number of frames that it rejected.
    pub fn rejected(&self) -> u64 {
        self.object.sum(TAP_REJECTED)
    }

    /// Runs the program on a frame of at least 14 bytes, `repeat` times.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.run(TAP, frame, repeat)
    }

    /// The same with an empty program: the overhead to subtract.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run_empty(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.run(EMPTY, frame, repeat)
    }

    fn run(&self, name: &str, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        let bytes = ebpf::with_ethernet_header(frame);
        self.object.with_program(name, |program| sys::test_run(program, &bytes, repeat))?
    }
}
