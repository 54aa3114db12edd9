//! `fyke lend`: hands filters in the kernel, and sockets that run them, to other programs of root.
//!
//! ```text
//! a client connects ─▶ is it root? ─▶ a space and a packet socket of its own ─▶ descriptors over the socket
//!   ─▶ the client stores and reads ─▶ it hangs up, or we end ─▶ revoked
//! ```
//!
//! Only root may be a client: whoever has a packet socket can bind it to another interface and send frames, also after
//! the lender has ended. A client has a thread here that waits for its end and does nothing else; nothing that a client
//! sends is read.

use super::Failure;
use crate::cli::LendArgs;
use anyhow::Context;
use fyke_kernel::{Lent, Options, Space, share, sockets};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Between two looks for clients and for the end.
const TICK: Duration = Duration::from_millis(50);

/// The listening socket, which goes away with us.
struct Listening<'a> {
    listener: UnixListener,
    path: &'a Path,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to do.
        let _ = std::fs::remove_file(self.path);
    }
}

/// Why a client must be root.
const ONLY_ROOT: &str = "fyke lends to root only: a packet socket can be bound to other interfaces \
                         and send frames, also after fyke has ended";

/// Runs the command until it is told to end.
pub fn run(mut args: LendArgs) -> Result<(), Failure> {
    args.interface = super::numbered(&args.interface)?;
    if let Some(user) = args.user.filter(|user| *user != 0) {
        return Err(Failure::Usage(format!("--user {user}: {ONLY_ROOT}")));
    }
    // What is missing is said now, not to the first client.
    Space::open(Options::default()).context("there is no kernel space here")?;
    sockets::open(&args.interface).with_context(|| format!("cannot open {}", args.interface))?;
    let over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, over.clone())?;
    }
    let listening = listen(&args.socket)?;
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
            note!("fyke: a client is turned away: {why}");
            continue;
        }
        clients.fetch_add(1, Ordering::Relaxed);
        let (interface, clients, over) = (args.interface.clone(), clients.clone(), over.clone());
        threads.push(std::thread::spawn(move || {
            if let Err(error) = serve(&stream, &interface, &over) {
                note!("fyke: a client: {error:#}");
            }
            clients.fetch_sub(1, Ordering::Relaxed);
        }));
        threads.retain(|thread| !thread.is_finished());
    }
    for thread in threads {
        if thread.join().is_err() {
            note!("fyke: a client's thread panicked");
        }
    }
    Ok(())
}

fn listen(path: &Path) -> Result<Listening<'_>, Failure> {
    let listener = fyke_ring::listen(path).context("cannot listen")?;
    let listening = Listening { listener, path };
    listening.listener.set_nonblocking(true)?;
    Ok(listening)
}

/// Whether the client may have a filter.
fn admit(stream: &UnixStream, args: &LendArgs, clients: u32) -> Result<(), String> {
    let user = share::user_of(stream).map_err(|error| error.to_string())?;
    if user != 0 {
        return Err(format!("user {user}: {ONLY_ROOT}"));
    }
    if clients >= args.clients {
        return Err(format!("there are {clients} clients already"));
    }
    Ok(())
}

/// Lends, waits for the client's end or ours, and takes back.
fn serve(mut stream: &UnixStream, interface: &str, over: &AtomicBool) -> anyhow::Result<()> {
    let socket = sockets::open(interface)?;
    let mut lent = Lent::lend(Space::open(Options::default())?, socket.as_fd(), stream)?;
    // The client's copy keeps the socket.
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
