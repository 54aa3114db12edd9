//! `fyke lend`: lends filters in the kernel, and sockets that use them, to other programs of root.
//!
//! ```text
//! a client connects ─▶ check for root ─▶ make its kernel space and packet socket ─▶ send the descriptors
//!   ─▶ the client edits and reads ─▶ it disconnects, or fyke ends ─▶ revoke the filter
//! ```
//!
//! Only root may be a client: the holder of a packet socket can bind it to another interface and send frames, even
//! after the lender has ended. A thread per client waits until the client disconnects; it reads no data from the
//! client.

use super::Failure;
use crate::cli::LendArgs;
use anyhow::Context;
use fyke_kernel::{Lent, Options, Space, share, sockets};
use fyke_privilege::place::Place;
use fyke_ring::RingError;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Interval between checks for new clients and for the end of the command.
const TICK: Duration = Duration::from_millis(50);

/// The listening socket; its file is removed when this value is dropped.
struct Listening {
    listener: UnixListener,
    /// In the folder that was checked, whatever becomes of the name of that folder.
    place: Place,
    /// Device and inode of our socket, so that no other file is removed.
    identity: (u64, u64),
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Only root and we can exchange it in this folder.
        if self.place.identity().is_ok_and(|found| found == self.identity) {
            // The file may have been removed already.
            let _ = self.place.remove();
        }
    }
}

/// Reason for refusing a client that is not root.
const ONLY_ROOT: &str = "fyke lends to root only: a packet socket can be bound to other interfaces \
                         and send frames, even after fyke has ended";

/// Runs the command until a signal ends it.
pub fn run(mut args: LendArgs) -> Result<(), Failure> {
    args.interface = super::numbered(&args.interface)?;
    if let Some(user) = args.user.filter(|user| *user != 0) {
        return Err(Failure::Usage(format!("--user {user}: {ONLY_ROOT}")));
    }
    let place = place(&args.socket)?;
    // Fail now if something is missing, not when the first client connects.
    Space::open(Options::default()).context("this kernel cannot run the filter")?;
    sockets::open(&args.interface).with_context(|| format!("cannot open {}", args.interface))?;
    let over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, over.clone())?;
    }
    let listening = listen(place, &args.socket)?;
    note!("fyke: lending filters of {} at {}", args.interface, args.socket.display());
    let clients = Arc::new(AtomicU32::new(0));
    let mut threads = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let stream = match listening.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(TICK);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if let Err(why) = admit(&stream, &args, clients.load(Ordering::Relaxed)) {
            note!("fyke: refused a client: {why}");
            continue;
        }
        clients.fetch_add(1, Ordering::Relaxed);
        let (interface, clients, over) = (args.interface.clone(), clients.clone(), over.clone());
        threads.push(std::thread::spawn(move || {
            if let Err(error) = serve(&stream, &interface, &over) {
                note!("fyke: error of a client: {error:#}");
            }
            clients.fetch_sub(1, Ordering::Relaxed);
        }));
        threads.retain(|thread| !thread.is_finished());
    }
    for thread in threads {
        if thread.join().is_err() {
            note!("fyke: the thread of a client panicked");
        }
    }
    Ok(())
}

/// Opens the folder of the socket; refuses one in which other users could replace it.
fn place(path: &Path) -> Result<Place, Failure> {
    let place = Place::of(path).and_then(|place| place.check_folder().map(|()| place));
    Ok(place.with_context(|| format!("cannot listen at {}", path.display()))?)
}

/// Listens at a place; `given` is its path for error texts.
fn listen(place: Place, given: &Path) -> Result<Listening, Failure> {
    let cannot = || format!("cannot listen at {}", given.display());
    let listener = fyke_ring::listen(&place.path()).map_err(|error| match error {
        RingError::Call { source, .. } => anyhow::Error::from(source),
        RingError::Taken { .. } => anyhow::anyhow!("another process listens there"),
        other => other.into(),
    });
    let listener = listener.with_context(cannot)?;
    let identity = place.identity().with_context(cannot)?;
    listener.set_nonblocking(true)?;
    Ok(Listening { listener, place, identity })
}

/// Checks that a client may get a filter.
fn admit(stream: &UnixStream, args: &LendArgs, clients: u32) -> Result<(), String> {
    let user = share::user_of(stream).map_err(|error| error.to_string())?;
    if user != 0 {
        return Err(format!("user {user}: {ONLY_ROOT}"));
    }
    if clients >= args.clients {
        return Err(format!("the limit of {clients} clients is reached (--clients)"));
    }
    Ok(())
}

/// Lends a filter, waits until the client disconnects or fyke ends, and revokes the filter.
fn serve(mut stream: &UnixStream, interface: &str, over: &AtomicBool) -> anyhow::Result<()> {
    let socket = sockets::open(interface)?;
    let mut lent = Lent::lend(Space::open(Options::default())?, socket.as_fd(), stream)?;
    // The client's descriptor keeps the socket open.
    drop(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TICK))?;
    let mut ignored = [0; 64];
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut ignored) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lent.revoke()?;
    Ok(())
}
