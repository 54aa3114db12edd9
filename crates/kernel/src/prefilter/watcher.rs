//! The pre-filter at tcx, for frames of both directions: it counts those that the rules reject, and may copy the others
//! to another interface, where any program can capture them. The host's own traffic is untouched.

use super::Arrays;
use super::layout::{TAP_COPY_TO_AT, TAP_IN, TAP_NOT_COPIED, TAP_OUT, TAP_UNREAD};
use super::object::Object;
use crate::direct::Access;
use crate::error::OpenError;
use crate::sys::{self, TestRun, objects};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, Program, TcAttachType};
use std::io;

const NAMES: [(&str, TcAttachType); 2] =
    [("fyke_in", TcAttachType::Ingress), ("fyke_out", TcAttachType::Egress)];
const EMPTY: &str = "fyke_tcx_empty";

/// Frames of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watched {
    /// Frames that passed the rules.
    pub passed: u64,
    /// Frames that the rules rejected.
    pub rejected: u64,
}

/// The programs on an interface. The kernel detaches them when this value is dropped, however the process ends.
#[derive(Debug)]
pub struct Watcher {
    object: Object,
}

impl Watcher {
    /// Loads the programs for arrays and attaches them to both directions of an interface of the calling thread's
    /// network namespace, after the programs that are there. `copy_to` gets the frames that pass the rules. Linux 6.6.
    ///
    /// # Errors
    /// An interface does not exist, is no Ethernet or is the same one, or the kernel refuses.
    pub fn attach(arrays: &Arrays, interface: &str, copy_to: Option<&str>) -> io::Result<Watcher> {
        let index = ethernet(interface)?;
        let copy_to = copy_to.map(ethernet).transpose()?;
        if copy_to == Some(index) {
            let what = "its own copies would be copied again; name another interface";
            return Err(io::Error::other(format!("{interface}: {what}")));
        }
        let mut watcher = Watcher::detached(arrays).map_err(io::Error::other)?;
        watcher.object.settings.publish(TAP_COPY_TO_AT, copy_to.unwrap_or(0));
        for (name, direction) in NAMES {
            watcher.attach_one(interface, name, direction).map_err(|error| {
                let hint = "an interface takes programs from Linux 6.6 on (tcx)";
                io::Error::other(format!("{interface}: {error}; {hint}"))
            })?;
        }
        Ok(watcher)
    }

    fn attach_one(
        &mut self,
        interface: &str,
        name: &str,
        direction: TcAttachType,
    ) -> io::Result<()> {
        let Some(Program::SchedClassifier(program)) = self.object.ebpf.program_mut(name) else {
            return Err(io::Error::other(format!("no program {name}")));
        };
        let last = TcAttachOptions::TcxOrder(LinkOrder::default());
        program.attach_with_options(interface, direction, last).map_err(io::Error::other)?;
        Ok(())
    }

    /// Loads the programs without an interface, for [`test_run`](Self::test_run).
    ///
    /// # Errors
    /// The kernel refuses them.
    pub fn detached(arrays: &Arrays) -> Result<Watcher, OpenError> {
        let names = [NAMES[0].0, NAMES[1].0, EMPTY];
        Ok(Watcher { object: Object::load(arrays, Access::Copied, &names)? })
    }

    /// Counts of the frames that came in, and of those that went out.
    pub fn counts(&self) -> [Watched; 2] {
        [TAP_IN, TAP_OUT]
            .map(|at| Watched { passed: self.object.sum(at), rejected: self.object.sum(at + 1) })
    }

    /// Number of frames that passed because their headers were not read.
    pub fn unread(&self) -> u64 {
        self.object.sum(TAP_UNREAD)
    }

    /// Number of copies that the other interface did not take.
    pub fn not_copied(&self) -> u64 {
        self.object.sum(TAP_NOT_COPIED)
    }

    /// Runs the program for incoming frames on a frame of at least 14 bytes, `repeat` times.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.object.with_program(NAMES[0].0, |program| sys::test_run(program, frame, repeat))?
    }

    /// The same with an empty program: the overhead to subtract.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run_empty(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.object.with_program(EMPTY, |program| sys::test_run(program, frame, repeat))?
    }
}

/// Number of an interface with Ethernet frames.
fn ethernet(interface: &str) -> io::Result<u32> {
    let absent = |_| io::Error::other(format!("there is no interface {interface}"));
    let index = objects::interface_index(interface).map_err(absent)?;
    match objects::link_facts(index)?.hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(index),
        kind => Err(io::Error::other(format!(
            "{interface} is of kind {kind}, and rules are for Ethernet only"
        ))),
    }
}
