//! The program at XDP that gives the frames of an interface to AF_XDP sockets.
//!
//! ```text
//! driver ─▶ (bound) ─▶ fyke_redirect ─┬─▶ the socket of the frame's queue  counted; the socket counts what it drops
//!                                     └─▶ the host: no socket for this queue      counted
//! ```
//!
//! A queue may have a socket for each of several workers. The worker is selected by the class that a filter before the
//! program gave the frame ([`FilterPlace`]), or by the frame's pair of addresses.
//!
//! The bound program asks the driver for the tag that the device removed, and for the device's time, and stores them
//! before the frame; it is there if kernel and driver have that ([`Redirector::tells_tags`]).
//!
//! The host does not get the redirected frames. [`host_needs`] tells whether it would miss them. The kernel takes the
//! program off when its value is dropped, however the process ends. Minimum kernel version: 5.9 (links at XDP).
//! `kernel/bpf/redirect.bpf.c` is the program.

mod bound;
mod host;

use crate::error::{OpenError, VERIFYING};
use crate::prefilter::{DropError, DropperMode, attach, attach_bound};
use crate::space::{map, refused};
use crate::sys::{self, Mapped, TestRun, objects};
use aya::maps::{Map, XskMap};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};
pub use host::host_needs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The object file, if clang was there to build it.
#[cfg(fyke_object)]
static OBJECT: Option<&[u8]> =
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.bpf.o")));
#[cfg(not(fyke_object))]
static OBJECT: Option<&[u8]> = None;

const PROGRAM: &str = "fyke_redirect";
const DELIVER: &str = "fyke_deliver";
const ON_AT: usize = 0;
const QUEUE_AT: usize = 4;
const FILTERS_AT: usize = 8;
const LONGEST_AT: usize = 12;
const WORKERS_AT: usize = 16;
const FACTOR_AT: usize = 20;
const GONE_AT: usize = 24;
const SETTINGS_BYTES: usize = 64;
const COUNTS_BYTES: usize = 64;
const REDIRECTED: usize = 0;
const NO_SOCKET: usize = 1;
const TOO_LONG: usize = 2;
const EVERY_QUEUE: u32 = u32::MAX;
/// Most queues of an interface that has sockets of several workers.
const MAX_QUEUES: u32 = 512;
/// Most workers: `FYKE_REDIRECT_WORKERS`.
pub const MAX_WORKERS: u32 = 64;

/// The program on an interface.
#[derive(Debug)]
pub struct Redirector {
    ebpf: Ebpf,
    settings: Arc<Mapped>,
    counts: Mapped,
    processors: usize,
    workers: u32,
    mode: DropperMode,
    tells_tags: bool,
    _link: OwnedFd,
}

impl Redirector {
    /// Attaches the program to an interface of the calling thread's network namespace, in the driver if possible. It
    /// passes every frame to the host until [`set_on`](Self::set_on). `queue`: redirects the frames of one queue only.
    /// `workers`: number of sockets of each queue, from 1 to [`MAX_WORKERS`]; others become the nearest.
    ///
    /// # Errors
    /// The interface does not exist, another XDP program is there, or the kernel refuses.
    pub fn attach(
        interface: &str,
        queue: Option<u32>,
        workers: u32,
    ) -> Result<Redirector, DropError> {
        let workers = workers.clamp(1, MAX_WORKERS);
        let why = option_env!("FYKE_NO_OBJECT").unwrap_or("no clang");
        let object = OBJECT.ok_or(OpenError::NoObject { why })?;
        let processors = aya::util::nr_cpus().map_err(|(what, source)| OpenError::Refused {
            step: "counting processors",
            what: format!("{what}: {source}"),
        })?;
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("counts", processors as u32).btf(None);
        loader.map_max_entries("sockets", MAX_QUEUES * workers);
        let mut ebpf = loader.load(object).map_err(refused("making the maps"))?;
        let settings = map(&ebpf, "redirect", SETTINGS_BYTES)?;
        let counts = map(&ebpf, "counts", processors * COUNTS_BYTES)?;
        settings.publish(LONGEST_AT, u32::MAX);
        settings.publish(QUEUE_AT, queue.unwrap_or(EVERY_QUEUE));
        settings.publish(WORKERS_AT, workers);
        settings.publish(FACTOR_AT, 1);
        program(&mut ebpf, DELIVER)?;
        let entry = program_array(&ebpf, "entry");
        let redirects = program(&mut ebpf, PROGRAM)?;
        let bound = entry.and_then(|entry| bound::load(interface, redirects, entry));
        let attached = bound.and_then(|bound| attach_bound(interface, bound.as_fd()).ok());
        let tells_tags = attached.is_some();
        let (link, mode) = attached.map_or_else(|| attach(interface, redirects), Ok)?;
        let settings = Arc::new(settings);
        Ok(Redirector {
            ebpf,
            settings,
            counts,
            processors,
            workers,
            mode,
            tells_tags,
            _link: link,
        })
    }

    /// True if it gives sockets the tags that the device removes from frames.
    pub fn tells_tags(&self) -> bool {
        self.tells_tags
    }

    /// The place for a filter of the frames.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn filter(&mut self) -> io::Result<FilterPlace> {
        let deliver = program(&mut self.ebpf, DELIVER).map_err(io::Error::other)?;
        let deliver = deliver.try_clone_to_owned()?;
        let slot = program_array(&self.ebpf, "filter").ok_or(io::Error::other("no map filter"))?;
        Ok(FilterPlace { deliver, slot, settings: Arc::clone(&self.settings) })
    }

    /// Place at which the interface runs the program.
    pub fn mode(&self) -> DropperMode {
        self.mode
    }

    /// Gives the frames of a queue for a worker to a socket, which must be bound to the queue. The kernel forgets a
    /// socket that is closed.
    ///
    /// # Errors
    /// The queue or the worker is beyond the limits, or the kernel refuses.
    pub fn connect(&mut self, queue: u32, worker: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        if queue >= MAX_QUEUES || worker >= self.workers {
            let what = format!("no place for a socket of queue {queue} and worker {worker}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let number = queue * self.workers + worker;
        let map = self.ebpf.map_mut("sockets").ok_or(io::Error::other("no map sockets"))?;
        let mut sockets = XskMap::try_from(map).map_err(io::Error::other)?;
        sockets.set(number, socket.as_raw_fd(), 0).map_err(io::Error::other)
    }

    /// Sets the factor, an odd number, of the hash that selects the worker of a frame by its pair of addresses.
    pub fn set_factor(&self, factor: u32) {
        self.settings.publish(FACTOR_AT, factor | 1);
    }

    /// Leaves the frames of some workers to the host, and counts them as those of queues without a socket. Bit n is
    /// for worker n. A run of the program that began before may still redirect its frame.
    pub fn set_gone(&self, workers: u64) {
        self.settings.publish(GONE_AT, workers as u32);
        self.settings.publish(GONE_AT + 4, (workers >> 32) as u32);
    }

    /// Starts to redirect and to count, or stops. A run of the program that began before may still redirect its frame.
    pub fn set_on(&self, on: bool) {
        self.settings.publish(ON_AT, on.into());
    }

    /// Number of frames that it gave to sockets, including those that a socket then dropped.
    pub fn redirected(&self) -> u64 {
        self.sum(REDIRECTED)
    }

    /// Number of frames of queues without a socket, or of workers that read no more: the host got them.
    pub fn without_socket(&self) -> u64 {
        self.sum(NO_SOCKET)
    }

    /// Leaves frames of more bytes to the host; at first there is no limit.
    pub fn set_longest(&self, bytes: u32) {
        self.settings.publish(LONGEST_AT, bytes);
    }

    /// Number of frames that were too long: the host got them.
    pub fn too_long(&self) -> u64 {
        self.sum(TOO_LONG)
    }

    /// Runs the program on a frame of at least 14 bytes, once. It returns 2 to leave the frame to the host.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run(&mut self, frame: &[u8]) -> io::Result<TestRun> {
        let program = program(&mut self.ebpf, PROGRAM).map_err(io::Error::other)?;
        sys::test_run(program, frame, 1)
    }

    fn sum(&self, counter: usize) -> u64 {
        let of = |cpu| self.counts.get_double(cpu * COUNTS_BYTES + counter * 8);
        (0..self.processors).map(of).fold(0, u64::wrapping_add)
    }
}

/// Returns an array of programs.
fn program_array(ebpf: &Ebpf, name: &str) -> Option<OwnedFd> {
    match ebpf.map(name)? {
        Map::ProgramArray(map) => map.fd().as_fd().try_clone_to_owned().ok(),
        _ => None,
    }
}

/// Returns a program, which it loads first if necessary.
fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<BorrowedFd<'a>, OpenError> {
    let step = "finding the program";
    let absent = OpenError::Refused { step, what: name.to_owned() };
    let program: &mut Xdp =
        ebpf.program_mut(name).ok_or(absent)?.try_into().map_err(refused(step))?;
    if program.fd().is_err() {
        program.load().map_err(refused(VERIFYING))?;
    }
    Ok(program.fd().map_err(refused(VERIFYING))?.as_fd())
}

/// The place of a [`Redirector`] for a filter; it may be used from any thread.
#[derive(Debug)]
pub struct FilterPlace {
    deliver: OwnedFd,
    slot: OwnedFd,
    settings: Arc<Mapped>,
}

impl FilterPlace {
    /// The program to which a filter gives the frames that it accepts ([`crate::Space::with_driver_program`]).
    pub fn deliver(&self) -> BorrowedFd<'_> {
        self.deliver.as_fd()
    }

    /// Puts a filter in; frames go through it after [`set_filtering`](Self::set_filtering).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn put(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        objects::set_program(self.slot.as_fd(), program)
    }

    /// Switches the filter on or off.
    pub fn set_filtering(&self, on: bool) {
        self.settings.publish(FILTERS_AT, on.into());
    }
}
