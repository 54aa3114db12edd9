//! `fyke generate`: sends generated frames at a rate, inside network namespaces only. Background traffic of the
//! demonstration and of the benches has the same engine.
//!
//! | module | purpose |
//! |---|---|
//! | `frames` | the frames, built once: sizes, flows, protocols, VLAN tag, correct checksums |
//! | `send` | a thread that sends them in turn, at a rate, with `sendmmsg` |
//! | `place` | the check of the namespace and of the interface |
//! | `sweep` | the reached rate at each of several frame sizes |
//!
//! A frame's size is its length as captures show it: with the Ethernet header, without the check sequence of 4 bytes.
//! Its destination address (MAC) is no device's unless one is given, so hosts do not answer. Frames that the queue of
//! the interface refuses are sent again: `sent` is exact, and `refused` counts the attempts.

mod frames;
mod place;
mod send;
mod sweep;

pub use frames::{
    Contents, Ends, Frames, FramesError, MAX_FLOWS, MAX_SIZE, MIN_SIZE, Protocol, Sizes, frame,
};
pub use place::PlaceError;
pub use send::{Counts, Order, Sent, send};
pub use sweep::{Row, SWEEP_SIZES, sweep};

use crate::net::sys::send::PacketSender;
use crate::net::{CLIENTS_DEVICE, SERVERS_DEVICE, World, WorldError, link_state};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// MTU of a pair made by [`Pair::create`]: the longest frames fit.
const PAIR_MTU: u32 = MAX_SIZE as u32 - 14;
/// Highest number of threads that send.
pub const MAX_THREADS: usize = 16;

/// Traffic to send.
#[derive(Debug, Clone)]
pub struct Options {
    /// The interface, in the namespace of the calling thread.
    pub interface: String,
    /// The frames.
    pub contents: Contents,
    /// Rate, number and duration.
    pub order: Order,
    /// Number of threads that send, 1 to [`MAX_THREADS`]; the rate and the number are divided among them.
    pub threads: usize,
    /// True to send past the queueing discipline: quicker, but captures on the same interface do not see the frames.
    pub direct: bool,
}

/// Reason why traffic was not sent.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// Sending is refused at this place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The frames cannot be built.
    #[error(transparent)]
    Frames(#[from] FramesError),
    /// The namespaces of [`Pair::create`] cannot be made.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The interface refuses the frames.
    #[error("cannot send on {interface}: {source}")]
    Send {
        /// The interface.
        interface: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Sends until the order is complete or `stop` is set. `counts` grow meanwhile.
///
/// # Errors
/// [`GenerateError`]. A refused place sends nothing.
pub fn run(options: &Options, stop: &AtomicBool, counts: &Counts) -> Result<Sent, GenerateError> {
    place::check(&options.interface, options.contents.longest())?;
    let frames = Frames::build(&options.contents)?;
    let fail = |source: io::Error| {
        let source = match source.kind() {
            io::ErrorKind::PermissionDenied => {
                io::Error::other(format!("{source} (root may, or CAP_NET_RAW)"))
            }
            _ => source,
        };
        GenerateError::Send { interface: options.interface.clone(), source }
    };
    let begin = Instant::now();
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = options
            .order
            .divided(options.threads.clamp(1, MAX_THREADS))
            .into_iter()
            .map(|order| {
                let frames = &frames;
                scope.spawn(move || -> io::Result<()> {
                    let sender = open(&options.interface, options.direct)?;
                    send(&sender, frames, &order, counts, &|| stop.load(Ordering::Relaxed))
                })
            })
            .collect();
        let ends = threads.into_iter().map(|thread| {
            let panicked = |_| Err(io::Error::other("a thread that sends panicked"));
            let end = thread.join().unwrap_or_else(panicked);
            // The others stop, too.
            stop.fetch_or(end.is_err(), Ordering::Relaxed);
            end
        });
        ends.collect::<Vec<_>>()
    });
    let took = begin.elapsed();
    results.into_iter().collect::<io::Result<()>>().map_err(fail)?;
    Ok(counts.sent(took))
}

fn open(interface: &str, direct: bool) -> io::Result<PacketSender> {
    if direct { PacketSender::open(interface) } else { PacketSender::open_queued(interface) }
}

/// Two namespaces with a wire between them, made for one run. They end with this value.
#[derive(Debug)]
pub struct Pair(World);

impl Pair {
    /// Creates the pair. An ordinary user must call this while the process has a single thread.
    ///
    /// # Errors
    /// [`WorldError`], such as a system that refuses namespaces.
    pub fn create() -> Result<Pair, WorldError> {
        World::create_with_mtu(1, 1, PAIR_MTU).map(Pair)
    }

    /// Name of the interface at the sender's end.
    pub fn interface(&self) -> &'static str {
        CLIENTS_DEVICE
    }

    /// Runs `work` in the namespace of the sender.
    ///
    /// # Errors
    /// [`WorldError`] when no thread can be started there.
    pub fn inside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorldError> {
        self.0.clients.inside(work)
    }

    /// Frames that have arrived at the other end so far.
    ///
    /// # Errors
    /// [`WorldError`] when the counts of the interface cannot be read.
    pub fn arrived(&self) -> Result<u64, WorldError> {
        let asked = self.0.servers.inside(|| link_state(SERVERS_DEVICE))?;
        let fail = |source| WorldError::Link { step: "read the counts of an interface", source };
        asked.map(|state| state.received).map_err(fail)
    }

    /// Runs as [`run`] does, on the sender's interface; also returns the number of frames that arrived.
    ///
    /// # Errors
    /// [`GenerateError`].
    pub fn run(
        &self,
        options: &Options,
        stop: &Arc<AtomicBool>,
        counts: &Arc<Counts>,
    ) -> Result<(Sent, u64), GenerateError> {
        let before = self.arrived()?;
        let options = Options { interface: self.interface().to_owned(), ..options.clone() };
        let (stop, counts) = (Arc::clone(stop), Arc::clone(counts));
        let sent = self.inside(move || run(&options, &stop, &counts))??;
        // The frames in the queues of the other end are counted within this time.
        std::thread::sleep(Duration::from_millis(20));
        Ok((sent, self.arrived()? - before))
    }
}
