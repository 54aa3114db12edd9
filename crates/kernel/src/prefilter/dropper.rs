//! The pre-filter at XDP: frames that the rules reject are dropped before the host gets them.

use super::Arrays;
use super::layout::{TAP_PASSED, TAP_REJECTED, TAP_UNREAD};
use super::object::Object;
use crate::direct::Access;
use crate::error::OpenError;
use crate::sys::objects::{self, XDP_DRIVER, XDP_GENERIC};
use crate::sys::{self, TestRun};
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

const DROP: &str = "fyke_drop";
const EMPTY: &str = "fyke_drop_empty";

/// Place at which an interface runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropperMode {
    /// In the driver, before the kernel makes its buffer.
    Native,
    /// In the network stack, for drivers that cannot.
    Generic,
}

impl fmt::Display for DropperMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DropperMode::Native => "native XDP, in the driver",
            DropperMode::Generic => {
                "generic XDP, in the network stack: the driver has no XDP, or none for frames of \
                 this length"
            }
        })
    }
}

/// Reason why an interface does not run the program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropError {
    /// The program cannot be loaded.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The interface does not exist.
    #[error("there is no interface {interface}")]
    NoInterface {
        /// Its name.
        interface: String,
    },
    /// Another XDP program is there.
    #[error(
        "{interface} runs the XDP program {program} (number {number}) already, and has room for one: end the process \
         that attached it (a fyke takes its program off when it ends), or detach it (ip link set dev {interface} xdp \
         off)"
    )]
    Taken {
        /// The interface.
        interface: String,
        /// Name of the program.
        program: String,
        /// Its number.
        number: u32,
    },
    /// The kernel refuses.
    #[error("{interface}: the kernel refuses the XDP program: {source}")]
    System {
        /// The interface.
        interface: String,
        /// Error of the system call.
        source: io::Error,
    },
}

/// The program on an interface. The kernel detaches it when this value is dropped, however the process ends.
#[derive(Debug)]
pub struct Dropper {
    object: Object,
    link: Option<OwnedFd>,
    mode: DropperMode,
}

impl Dropper {
    /// Loads the program for arrays and attaches it to an interface of the calling thread's network namespace: in the
    /// driver if possible. Linux 5.9.
    ///
    /// # Errors
    /// The interface does not exist, another XDP program is there, or the kernel refuses.
    pub fn attach(arrays: &Arrays, interface: &str) -> Result<Dropper, DropError> {
        free(interface)?;
        let object = Object::load(arrays, Access::Copied, &[DROP, EMPTY])?;
        let attached = object.with_program(DROP, |program| attach(interface, program));
        let (link, mode) = attached
            .map_err(|source| DropError::System { interface: interface.to_owned(), source })??;
        Ok(Dropper { object, link: Some(link), mode })
    }

    /// Loads the program without an interface, for [`test_run`](Self::test_run).
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn detached(arrays: &Arrays) -> Result<Dropper, OpenError> {
        let object = Object::load(arrays, Access::Copied, &[DROP, EMPTY])?;
        Ok(Dropper { object, link: None, mode: DropperMode::Native })
    }

    /// Place at which the interface runs it.
    pub fn mode(&self) -> DropperMode {
        self.mode
    }

    /// Reports if the interface is gone, which detaches the program.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_detached(&self) -> io::Result<bool> {
        self.link.as_ref().map_or(Ok(true), objects::is_detached)
    }

    /// Number of frames that it dropped.
    pub fn dropped(&self) -> u64 {
        self.object.sum(TAP_REJECTED)
    }

    /// Number of frames that passed.
    pub fn passed(&self) -> u64 {
        self.object.sum(TAP_PASSED).wrapping_add(self.unread())
    }

    /// Number of frames that passed because it does not read their headers; part of [`passed`](Self::passed).
    pub fn unread(&self) -> u64 {
        self.object.sum(TAP_UNREAD)
    }

    /// Runs the program on a frame of at least 14 bytes, `repeat` times. It returns 1 to drop, 2 to pass.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.object.with_program(DROP, |program| sys::test_run(program, frame, repeat))?
    }

    /// The same with an empty program: the overhead to subtract.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run_empty(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        self.object.with_program(EMPTY, |program| sys::test_run(program, frame, repeat))?
    }
}

/// Refuses an interface that does not exist or that runs another program; returns its number.
fn free(interface: &str) -> Result<u32, DropError> {
    let named = || interface.to_owned();
    let index = objects::interface_index(interface)
        .map_err(|_none| DropError::NoInterface { interface: named() })?;
    let facts = objects::link_facts(index)
        .map_err(|source| DropError::System { interface: named(), source })?;
    let Some(number) = facts.xdp_program else { return Ok(index) };
    let program = objects::program_name(number).unwrap_or_else(|_| "of no name".to_owned());
    Err(DropError::Taken { interface: named(), program, number })
}

/// Attaches a program to an interface at XDP, in the driver if possible, until the link is closed.
pub(crate) fn attach(
    interface: &str,
    program: BorrowedFd<'_>,
) -> Result<(OwnedFd, DropperMode), DropError> {
    let index = free(interface)?;
    let failed = |source| DropError::System { interface: interface.to_owned(), source };
    match objects::attach_xdp(program, index, XDP_DRIVER) {
        Ok(link) => Ok((link, DropperMode::Native)),
        Err(error) if is_without_driver(&error) => {
            let link = objects::attach_xdp(program, index, XDP_GENERIC).map_err(failed)?;
            Ok((link, DropperMode::Generic))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Attaches a program that is bound to the interface, in the driver, until the link is closed.
pub(crate) fn attach_bound(
    interface: &str,
    program: BorrowedFd<'_>,
) -> Result<(OwnedFd, DropperMode), DropError> {
    let index = free(interface)?;
    let link = objects::attach_xdp(program, index, XDP_DRIVER);
    let failed = |source| DropError::System { interface: interface.to_owned(), source };
    Ok((link.map_err(failed)?, DropperMode::Native))
}

/// True if the driver has no XDP, or not as the interface is set.
fn is_without_driver(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE))
}
